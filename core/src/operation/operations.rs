//! A table that stands alone: its owner, its futures, and what is between them.

use core::fmt;
use core::future::Future;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr;
use core::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::inbox::{MpscQueue, Take};
use crate::operation::{Completed, Left, Orphaned, Reach, Slot, Slots, Table, Waiting};
use crate::park::{Owed, Park};
use crate::reactor::Token;
use crate::shared::Lasting;
use crate::sync::{AtomicU32, Cell, Ordering, SharedCell};
use crate::task::cell;
use crate::task::node::Entry;

/// What the owner and the futures share. It stays as long as any of them.
struct Hub {
    table: Table,
    inbox: MpscQueue<Entry>,
    /// The owner counts as parked from when it has been told that there is no cancel until it does
    /// something, so that only one of those who leave meanwhile makes a wake of it.
    park: CachePadded<Park>,
    notifier: Waker,
}

impl Hub {
    fn new(slots: Slots, notifier: Waker) -> Self {
        Self {
            table: Table::new(slots),
            inbox: MpscQueue::new(),
            park: CachePadded::new(Park::new()),
            notifier,
        }
    }
}

/// The owner's side of a table of operations. See the [module](crate::operation) for an example.
///
/// There is one owner, which may move to another thread, but is not shared:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<evenkeel::operation::Operations>();
/// ```
///
/// # The owner's loop
/// 1. Start operations and submit them, give each completion to [`complete`](Self::complete), let
///    the futures be polled: in any order, as often as you like.
/// 2. Before it waits, take the cancels until there is none. Who leaves an operation after that
///    wakes the notifier, which ends the wait: once for all who leave until the owner does
///    something again. Who leaves while the owner runs makes no wake.
///
/// The futures need not know who the owner is, so every one of them leaves through the owner's
/// inbox, wherever it is dropped, and with its result too: a slot is vacant again when
/// [`next_cancel`](Self::next_cancel), or [`start`](Self::start) for want of another, has come
/// across it. That allocates nothing and never fails: a slot carries its own link.
///
/// # Its end
/// When the owner is dropped, each operation that has not ended gives [`Orphaned`], and its future
/// is woken.
pub struct Operations {
    hub: Lasting<Hub>,
    /// The next cancel, if `start` came across it. Not `Sync`, as the owner must not be.
    held_back: Cell<Option<Token>>,
}

impl Operations {
    /// A table in a static.
    ///
    /// The notifier is woken, on the thread of who leaves an operation, when the owner may be
    /// waiting: [`Reactor::notifier`](crate::Reactor::notifier), or what else ends the owner's
    /// wait.
    ///
    /// # Errors
    /// If the storage has had its owner.
    pub fn new_in<const CAPACITY: usize>(
        storage: &'static OperationStorage<CAPACITY>,
        notifier: Waker,
    ) -> Result<Self, AlreadyOwned> {
        Ok(Self::owning(Lasting::Static(storage.fill(notifier)?)))
    }

    /// A table on the heap, with room for so many operations in flight: the only thing here that
    /// allocates. The notifier is as in [`new_in`](Self::new_in).
    ///
    /// # Panics
    /// If there is room for 2^32 - 1 or more: a token's index has 32 bits.
    ///
    /// ```
    /// use core::task::Waker;
    /// use evenkeel::operation::Operations;
    ///
    /// let operations = Operations::new(1, Waker::noop().clone());
    /// let first = operations.start().unwrap();
    /// let full = operations.start().unwrap_err();
    /// assert!(full.to_string().starts_with("all 1 operations of the table are in flight"));
    /// # drop(first);
    /// ```
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn new(capacity: usize, notifier: Waker) -> Self {
        let hub = Hub::new(Slots::boxed(capacity), notifier);
        Self::owning(Lasting::Counted(alloc::sync::Arc::new(hub)))
    }

    fn owning(hub: Lasting<Hub>) -> Self {
        Self { hub, held_back: Cell::new(None) }
    }

    /// How many operations there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.hub.table.capacity()
    }

    /// Takes a slot for a new operation: its name for the reactor, and its future. Constant time.
    ///
    /// Whatever has this name must be reported to [`complete`](Self::complete) once, or else be
    /// [withdrawn](Self::withdraw): until then the slot is not vacant again.
    ///
    /// # Errors
    /// If no slot is vacant. Take the cancels and report completions, then try again.
    pub fn start(&self) -> Result<(Token, Pending), Full> {
        self.hub.park.resume();
        // SAFETY: by the owner.
        let token = unsafe { self.hub.table.allocate() }.or_else(|| self.reclaim());
        let token = token.ok_or(Full { capacity: self.capacity() })?;
        // SAFETY: just allocated.
        Ok((token, Pending(unsafe { Waiting::new(self.hub.clone(), token) })))
    }

    /// Allocates the slot of the first in the inbox, unless it is still to be cancelled.
    #[cold]
    fn reclaim(&self) -> Option<Token> {
        if self.held_back.get().is_some() {
            return None;
        }
        // Only if there is one: giving a slot back drops a waker, which may have come here before.
        if let Some(token) = self.take_cancel(Until::Vacant) {
            self.held_back.set(Some(token));
        }
        // SAFETY: by the owner.
        unsafe { self.hub.table.allocate() }
    }

    /// Undoes a [start](Self::start), for an operation that the reactor refused: the slot is vacant
    /// at once, and no cancel comes of it. A completion of that name is stale from now on.
    ///
    /// # Panics
    /// If the future is of another table.
    pub fn withdraw(&self, mut pending: Pending) {
        let ours = ptr::eq(&raw const *self.hub, &raw const **pending.0.reach());
        assert!(ours, "an operation is withdrawn from the table in which it was started");
        if let Some(token) = pending.0.take_token() {
            // SAFETY: by the owner; the future is here, and its token is gone from it.
            unsafe { self.hub.table.give_back(token) };
        }
    }

    /// Gives an operation its result and wakes its future, on this thread. Whether there was such
    /// an operation: it is not an error if there was not, for the reactor may report what has ended
    /// already or never was. Constant time.
    ///
    /// A panic of the waker is caught where std is there.
    pub fn complete(&self, token: Token, result: i32) -> Arrival {
        self.hub.park.resume();
        // SAFETY: by the owner.
        match unsafe { self.hub.table.complete(token, result) } {
            Completed::Stale => Arrival::Stale,
            Completed::Ended(waker) => {
                waker.into_iter().for_each(cell::wake);
                Arrival::Ended
            }
        }
    }

    /// The next operation, oldest first, whose future was dropped before its end: the reactor is to
    /// be asked for an early one ([`Reactor::cancel`](crate::Reactor::cancel)). Each is told once.
    /// It is still to be completed, by whatever comes of the cancel.
    ///
    /// Makes vacant the slots that it comes across. When it has said `None`, who leaves an
    /// operation wakes the notifier, until the next `start` or `complete`: the last thing to ask
    /// before a wait.
    pub fn next_cancel(&self) -> Option<Token> {
        if let Some(token) = self.held_back.take().or_else(|| self.take_cancel(Until::Empty)) {
            return Some(token);
        }
        if self.hub.park.is_parked() {
            return None;
        }
        self.hub.park.announce();
        // A push that is half done finds the announcement, so there is no need to wait for it.
        self.take_cancel(Until::Empty)
    }

    /// Takes from the inbox what is settled, and the first that is not.
    fn take_cancel(&self, until: Until) -> Option<Token> {
        // SAFETY: by the owner, the one consumer.
        while let Take::Item(entry) = unsafe { self.hub.inbox.take() } {
            let node = entry.node();
            // SAFETY: by the owner; only slots of its own table come into its inbox.
            match unsafe { self.hub.table.take_routed(node) } {
                Left::Cancel(token) => return Some(token),
                Left::Nothing if until == Until::Vacant => break,
                Left::Nothing => {}
            }
        }
        None
    }
}

/// How far to go through the inbox if there is no cancel in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// One slot is vacant.
    Vacant,
    Empty,
}

impl Drop for Operations {
    fn drop(&mut self) {
        // SAFETY: by the owner.
        unsafe { self.hub.table.orphan_all(cell::wake) };
        self.hub.park.close();
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

impl Reach for Lasting<Hub> {
    fn table(&self) -> &Table {
        &self.table
    }

    unsafe fn leave(&self, token: Token) {
        // SAFETY: the caller's; the node of a slot that is not in an inbox, which lives as long as
        // the table.
        unsafe {
            let node = self.table.leave(token);
            self.inbox.push(Entry::new(node));
        }
        match self.park.handed_over() {
            Owed::Notification => self.notifier.wake_by_ref(),
            // There is nothing to clear away: nobody allocates from the table any more.
            Owed::Nothing | Owed::Clearing => {}
        }
    }
}

/// Waits for an operation's result: the number that [`Operations::complete`] was given.
///
/// It may be polled and dropped on any thread, and neither waits nor allocates. Dropped before the
/// operation has ended, it has the owner told, by [`Operations::next_cancel`].
///
/// # Errors
/// The output is [`Orphaned`] if the owner was dropped first.
///
/// # Panics
/// If it is polled again after it has given its output.
#[must_use = "dropping it cancels the operation"]
pub struct Pending(Waiting<Lasting<Hub>>);

impl Pending {
    /// The operation's token, until the result is given.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.0.token()
    }
}

impl Future for Pending {
    type Output = Result<i32, Orphaned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("token", &self.token()).finish_non_exhaustive()
    }
}

/// What a completion met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// Its operation, which has ended by it.
    Ended,
    /// Nothing: its operation had ended already, or never was. It changed nothing.
    Stale,
}

/// No slot of the table is vacant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    capacity: usize,
}

impl Full {
    /// How many operations there is room for.
    #[must_use]
    pub fn capacity(self) -> usize {
        self.capacity
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all {} operations of the table are in flight, or are left and not yet taken back by \
             `next_cancel`; wait for one of them, or give the table more room",
            self.capacity
        )
    }
}

impl core::error::Error for Full {}

const VACANT: u32 = 0;
const TAKEN: u32 = 1;

/// Room for the [`Operations`] of one owner in a static: `CAPACITY` of them in flight.
///
/// It serves once: futures of it are valid for ever, so the room is not given back.
///
/// ```
/// use core::task::Waker;
/// use evenkeel::operation::{OperationStorage, Operations};
///
/// static STORAGE: OperationStorage<16> = OperationStorage::new();
///
/// let operations = Operations::new_in(&STORAGE, Waker::noop().clone()).unwrap();
/// assert_eq!(operations.capacity(), 16);
/// assert!(Operations::new_in(&STORAGE, Waker::noop().clone()).is_err());
/// ```
pub struct OperationStorage<const CAPACITY: usize> {
    taken: AtomicU32,
    slots: [Slot; CAPACITY],
    hub: SharedCell<MaybeUninit<Hub>>,
}

// SAFETY: what is in it is touched by the one who took it, who makes a `Hub` of it, which is `Sync`.
unsafe impl<const CAPACITY: usize> Sync for OperationStorage<CAPACITY> {}

impl<const CAPACITY: usize> OperationStorage<CAPACITY> {
    /// Empty room.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            taken: AtomicU32::new(VACANT),
            slots: [const { Slot::new() }; CAPACITY],
            hub: SharedCell::new(MaybeUninit::uninit()),
        }
    }

    /// The same; loom's atomics are not const.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            taken: AtomicU32::new(VACANT),
            slots: core::array::from_fn(|_| Slot::new()),
            hub: SharedCell::new(MaybeUninit::uninit()),
        }
    }

    fn fill(&'static self, notifier: Waker) -> Result<&'static Hub, AlreadyOwned> {
        // Ordering: Relaxed, nothing is read by the leave of an earlier holder: there is none.
        if self.taken.swap(TAKEN, Ordering::Relaxed) == TAKEN {
            return Err(AlreadyOwned);
        }
        let hub = Hub::new(Slots::Static(&self.slots), notifier);
        // SAFETY: taken just now, for good: nobody else has come or will come here.
        Ok(self.hub.with_mut(|place| unsafe { (*place).write(hub) }))
    }
}

impl<const CAPACITY: usize> Default for OperationStorage<CAPACITY> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CAPACITY: usize> fmt::Debug for OperationStorage<CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationStorage").field("capacity", &CAPACITY).finish_non_exhaustive()
    }
}

/// An [`OperationStorage`] has its owner already, or had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadyOwned;

impl fmt::Display for AlreadyOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the operation storage has had its owner, and serves once since futures of it are \
             valid for ever; declare one static for each owner",
        )
    }
}

impl core::error::Error for AlreadyOwned {}
