//! Operations in flight: the table of their slots, with the futures that wait for them.
//!
//! A worker has one of its own. Here it stands alone, for whoever drives a reactor, or anything
//! else that gives each request exactly one answer, with a loop of their own:
//!
//! - [`Operations`] is the owner's side. It names each operation by a [`Token`], takes in what the
//!   reactor reports, knows what comes too late, and tells which operations nobody waits for any
//!   more.
//! - [`Pending`] is the future of one operation. It may be polled and dropped on any thread, and is
//!   valid when the owner is gone.
//! - [`OperationStorage`] is the memory of both, for a static. With `alloc`,
//!   `Operations::new` does without.
//!
//! No feature is needed, nothing but `Operations::new` allocates, and nothing waits. The results
//! are numbers; a buffer that the kernel may still write is for the owner to keep until the
//! operation has ended.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use evenkeel::operation::{Arrival, OperationStorage, Operations, Pending};
//! use evenkeel::testing::{SimOperation, SimReactor, VirtualClock};
//! use evenkeel::{Completions, Reactor, Wait};
//! # use std::future::Future;
//! # use std::pin::Pin;
//! # use std::task::{Context, Poll, Waker};
//! # fn poll(future: &mut Pending) -> Poll<Result<i32, evenkeel::Orphaned>> {
//! #     Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
//! # }
//!
//! static STORAGE: OperationStorage<8> = OperationStorage::new();
//!
//! let mut reactor = SimReactor::new(&VirtualClock::new());
//! let sim = reactor.control();
//! let operations = Operations::new_in(&STORAGE, reactor.notifier())?;
//!
//! // Whoever wants something done:
//! let (token, mut answer) = operations.start()?;
//! if let Err(refused) = reactor.submit(token, SimOperation::Event(1)) {
//!     operations.withdraw(answer);
//!     return Err(refused.error.into());
//! }
//! let (token, unwanted) = operations.start()?;
//! reactor.submit(token, SimOperation::Event(2)).unwrap();
//!
//! // The loop, in which futures are polled and dropped, here or anywhere:
//! let mut found = Completions::new();
//! assert!(poll(&mut answer).is_pending());
//! std::thread::spawn(move || drop(unwanted)).join().unwrap();
//! while let Some(token) = operations.next_cancel() {
//!     reactor.cancel(token);
//! }
//! reactor.poll(Wait::Never, &mut found)?;
//! sim.fire(1, 42);
//! reactor.poll(Wait::Never, &mut found)?;
//! for completion in found.as_slice() {
//!     assert_eq!(operations.complete(completion.token, completion.result), Arrival::Ended);
//! }
//!
//! assert_eq!(poll(&mut answer), Poll::Ready(Ok(42)));
//! assert_eq!(operations.complete(token, 7), Arrival::Stale);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! # The protocol
//! A slot is shared memory. Its *owner*, in a worker the worker itself, allocates it, publishes the result
//! and frees it; the *future* that waits may be polled and dropped on any thread. What passes
//! between them is one atomic word per slot:
//!
//! | bit | set means | set by |
//! |---|---|---|
//! | `DONE` | the result is in place, the kernel is finished with the operation | the owner |
//! | `LENT` | the future's waker is in its cell, which is now the owner's | the future |
//! | `GONE` | the future will not look at the slot again | the future |
//! | `ROUTED` | the slot's node stands in the owner's inbox, or is being pushed | the future, with `GONE` |
//! | `ORPHANED` | the owner ended first; set with `DONE`, there is no result | the owner |
//!
//! ```text
//!   vacant ──(1) allocate──► in flight ──(2) complete──► DONE ──(3) result taken──► GONE
//!                               │                          │
//!                               └──(4) future dropped──────┴──► GONE
//!   GONE ──(5) by the owner's own thread: cancelled at once, or freed if DONE
//!        └─(6) by another: + ROUTED; the owner takes the node, cancels, or frees if DONE
//!   DONE + GONE − ROUTED ──(7)──► vacant, the generation one higher; what the slot held is dropped
//! ```

#[cfg(feature = "alloc")]
use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;
use core::task::{Poll, Waker};

use crate::reactor::Token;
use crate::sync::{AtomicU32, Cell, Ordering, SharedCell, const_but_under_loom};
use crate::task::cell;
use crate::task::node::{Kind, Node};
#[cfg(feature = "std")]
use crate::timers::Alarm;

#[cfg(feature = "io")]
#[allow(unsafe_code)]
mod hold;
#[allow(unsafe_code)]
mod operations;
#[allow(unsafe_code)]
mod waiting;

#[cfg(feature = "io")]
pub(crate) use hold::{HELD_BYTES, Held, Hold};
pub use operations::{AlreadyOwned, Arrival, Full, OperationStorage, Operations, Pending};
pub(crate) use waiting::{Reach, Waiting};

const DONE: u32 = 1 << 0;
const LENT: u32 = 1 << 1;
const GONE: u32 = 1 << 2;
const ROUTED: u32 = 1 << 3;
const ORPHANED: u32 = 1 << 4;

/// No further slot is free.
const NONE: u32 = u32::MAX;

/// One operation's place in a table.
#[repr(C)]
pub(crate) struct Slot {
    /// The inbox's link, for (6).
    node: Node,
    state: AtomicU32,
    /// Written by the owner before `DONE`, read by the future after it.
    result: SharedCell<i32>,
    /// The future's until `LENT`, then the owner's; the future takes it back unless `DONE`.
    waker: SharedCell<Option<Waker>>,
    /// The owner's: its place in the table.
    index: Cell<u32>,
    /// The owner's.
    generation: Cell<u32>,
    /// The owner's.
    tenancy: Cell<Tenancy>,
    /// The owner's: of an operation that is a timer.
    #[cfg(feature = "std")]
    alarm: Alarm,
    /// What the kernel may reach until the operation has ended.
    #[cfg(feature = "io")]
    hold: Hold,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tenancy {
    Occupied,
    /// The index of the next vacant slot.
    Vacant(u32),
}

impl Slot {
    const_but_under_loom! {
        /// One that is in no table yet.
        pub(crate) const fn new() -> Self {
            Self {
                node: Node::new(Kind::Operation),
                state: AtomicU32::new(0),
                result: SharedCell::new(0),
                waker: SharedCell::new(None),
                index: Cell::new(0),
                generation: Cell::new(0),
                // All of it is zero, so that a static of slots takes room in the RAM alone, none in
                // the image that it is made from.
                tenancy: Cell::new(Tenancy::Occupied),
                #[cfg(feature = "std")]
                alarm: Alarm::new(),
                #[cfg(feature = "io")]
                hold: Hold::new(),
            }
        }
    }

    /// The name of its operation now. By the owner.
    #[cfg(feature = "std")]
    pub(crate) fn token(&self) -> Token {
        Token::new(self.index.get(), self.generation.get())
    }

    /// By the owner.
    #[cfg(feature = "std")]
    pub(crate) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// The owner's, and that of a future which is on its thread.
    #[cfg(feature = "io")]
    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }
}

/// The memory of a table.
pub(crate) enum Slots {
    /// A static's.
    Static(&'static [Slot]),
    #[cfg(feature = "alloc")]
    Boxed(Box<[Slot]>),
}

impl Slots {
    #[cfg(feature = "alloc")]
    pub(crate) fn boxed(capacity: usize) -> Self {
        Self::Boxed((0..capacity).map(|_| Slot::new()).collect())
    }
}

impl Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        match self {
            Self::Static(slots) => slots,
            #[cfg(feature = "alloc")]
            Self::Boxed(slots) => slots,
        }
    }
}

/// The slots of one reactor.
pub(crate) struct Table {
    slots: Slots,
    /// The owner's: the vacant slot that the next allocation takes.
    vacant: Cell<u32>,
}

// SAFETY: everything that another thread than the owner's reaches is atomic or governed by the
// slot's state; the owner's cells are touched by methods alone whose contract names the owner.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// Why an operation gives no result: its worker, or who else owned the table, ended first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Orphaned;

impl core::fmt::Display for Orphaned {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the worker ended before the operation did; keep it running until it has")
    }
}

impl core::error::Error for Orphaned {}

/// What a completion led to.
pub(crate) enum Completed {
    /// Its operation had ended already, or never was.
    Stale,
    /// The operation has ended; whoever waited is to be woken.
    Ended(Option<Waker>),
}

/// What is owed for a slot that its future has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    Nothing,
    /// The owner asks the reactor for an early end.
    Cancel(Token),
}

impl Table {
    /// A table with so much room, all of it vacant. Nobody else uses the slots.
    ///
    /// # Panics
    /// If there are 2^32 - 1 slots or more: a token's index has 32 bits.
    pub(crate) fn new(slots: Slots) -> Self {
        let capacity = u32::try_from(slots.len()).ok().filter(|&capacity| capacity < NONE);
        let capacity = capacity.expect("a reactor has fewer than 2^32 - 1 operations in flight");
        for (index, slot) in (0..capacity).zip(slots.iter()) {
            let after = index + 1;
            slot.index.set(index);
            slot.tenancy.set(Tenancy::Vacant(if after < capacity { after } else { NONE }));
        }
        Self { slots, vacant: Cell::new(if capacity == 0 { NONE } else { 0 }) }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The slot that a token names, whatever its tenant; none if there is no such slot.
    #[cfg(feature = "std")]
    pub(crate) fn find(&self, token: Token) -> Option<&Slot> {
        self.slots.get(token.index())
    }

    /// The slot of an operation.
    #[cfg(feature = "std")]
    pub(crate) fn slot(&self, token: Token) -> &Slot {
        &self.slots[token.index()]
    }

    /// Transition 1.
    ///
    /// # Safety
    /// By the owner.
    pub(crate) unsafe fn allocate(&self) -> Option<Token> {
        let slot = self.slots.get(self.vacant.get() as usize)?;
        let Tenancy::Vacant(next) = slot.tenancy.replace(Tenancy::Occupied) else {
            unreachable!("an occupied slot is not in the list of vacant ones")
        };
        self.vacant.set(next);
        // Ordering: Relaxed; the token reaches another thread only by a hand-over that publishes.
        slot.state.store(0, Ordering::Relaxed);
        Some(Token::new(slot.index.get(), slot.generation.get()))
    }

    /// Gives back a slot that was allocated for an operation which the reactor then refused.
    ///
    /// # Safety
    /// By the owner, before the token has a future; or who has that future, and it does not come
    /// back.
    pub(crate) unsafe fn give_back(&self, token: Token) {
        self.vacate(&self.slots[token.index()]);
    }

    /// Transition 2.
    ///
    /// # Safety
    /// By the owner.
    pub(crate) unsafe fn complete(&self, token: Token, result: i32) -> Completed {
        match self.slots.get(token.index()) {
            Some(slot)
                if slot.tenancy.get() == Tenancy::Occupied
                    && slot.generation.get() == token.generation() =>
            {
                // Ordering: Relaxed, the owner is the only one to set `DONE`.
                if slot.state.load(Ordering::Relaxed) & DONE != 0 {
                    return Completed::Stale;
                }
                // SAFETY: not `DONE`, so the result is the owner's.
                slot.result.with_mut(|place| unsafe { *place = result });
                Completed::Ended(self.finish(slot, DONE))
            }
            _ => Completed::Stale,
        }
    }

    /// Ends what has not ended, for want of a worker, and hands each waker over.
    ///
    /// # Safety
    /// By the owner.
    pub(crate) unsafe fn orphan_all(&self, mut wake: impl FnMut(Waker)) {
        for slot in self.slots.iter() {
            // Ordering: Relaxed, the owner is the only one to set `DONE`.
            let ended = slot.state.load(Ordering::Relaxed) & DONE != 0;
            if slot.tenancy.get() == Tenancy::Occupied && !ended {
                #[cfg(feature = "io")]
                slot.hold.leak();
                self.finish(slot, DONE | ORPHANED).into_iter().for_each(&mut wake);
            }
        }
    }

    /// The operations that have not ended and hold something that the kernel may reach.
    ///
    /// # Safety
    /// By the owner.
    #[cfg(feature = "io")]
    pub(crate) unsafe fn laden(&self) -> impl Iterator<Item = Token> {
        self.slots.iter().filter_map(|slot| {
            // Ordering: Relaxed, the owner is the only one to set `DONE`.
            let ended = slot.state.load(Ordering::Relaxed) & DONE != 0;
            let laden = slot.tenancy.get() == Tenancy::Occupied && !ended && slot.hold.is_laden();
            laden.then(|| slot.token())
        })
    }

    /// Publishes the end, and frees the slot if nobody is left to read of it.
    fn finish(&self, slot: &Slot, bits: u32) -> Option<Waker> {
        // Ordering: Release, pairs with the Acquire of the future's loads: the result is in place.
        // Acquire, pairs with the Release of `lend`: so is the waker.
        let before = slot.state.fetch_or(bits, Ordering::AcqRel);
        let waker = if before & LENT != 0 {
            // SAFETY: lent, and the future does not touch the cell after `DONE`.
            slot.waker.with_mut(|cell| unsafe { (*cell).take() })
        } else {
            None
        };
        if before & GONE == 0 {
            return waker;
        }
        if before & ROUTED == 0 {
            self.vacate(slot);
        }
        waker.into_iter().for_each(cell::drop_waker);
        None
    }

    /// The future's look at its slot.
    ///
    /// # Safety
    /// By the one who has the token's future, which has neither been given its result nor left.
    pub(crate) unsafe fn poll(&self, token: Token, waker: &Waker) -> Poll<Result<i32, Orphaned>> {
        let slot = &self.slots[token.index()];
        // Ordering: Acquire, pairs with the Release of `finish`.
        let mut seen = slot.state.load(Ordering::Acquire);
        while seen & (DONE | LENT) == LENT {
            // Take the cell back, unless the owner has it for good.
            // Ordering: Acquire on failure, pairs with the Release of `finish`. Relaxed on
            // success: the owner has not touched the cell, and will not before the next `LENT`.
            seen = match slot.state.compare_exchange_weak(
                seen,
                seen & !LENT,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(before) => before & !LENT,
                Err(now) => now,
            };
        }
        if seen & DONE == 0 {
            slot.waker.with_mut(|cell| {
                // SAFETY: neither lent nor `DONE`: the cell is the future's.
                let cell = unsafe { &mut *cell };
                match cell {
                    Some(old) => old.clone_from(waker),
                    None => *cell = Some(waker.clone()),
                }
            });
            // Ordering: Release, pairs with the Acquire of `finish`: the waker is in the cell.
            // Acquire, pairs with its Release: if it came first, the result is there.
            seen = slot.state.fetch_or(LENT, Ordering::AcqRel);
        }
        if seen & DONE == 0 {
            return Poll::Pending;
        }
        if seen & ORPHANED != 0 {
            return Poll::Ready(Err(Orphaned));
        }
        // SAFETY: `DONE`: the owner has written it and writes no more.
        Poll::Ready(Ok(slot.result.with(|place| unsafe { *place })))
    }

    /// Transition 5: the future leaves, on its owner's own thread.
    ///
    /// # Safety
    /// By the owner, who has the token's future; the future does not come back.
    pub(crate) unsafe fn leave_here(&self, token: Token) -> Left {
        let slot = &self.slots[token.index()];
        // Ordering: Relaxed: the owner itself set whatever it finds, or will find, there.
        let before = slot.state.fetch_or(GONE, Ordering::Relaxed);
        if before & DONE == 0 {
            return Left::Cancel(token);
        }
        self.vacate(slot);
        Left::Nothing
    }

    /// Transition 6: the future leaves, anywhere else. The node is to be pushed into the owner's
    /// inbox.
    ///
    /// # Safety
    /// By the one who has the token's future; the future does not come back.
    pub(crate) unsafe fn leave(&self, token: Token) -> NonNull<Node> {
        let slot = &self.slots[token.index()];
        // Ordering: Relaxed: who reads `ROUTED` waits for the node, and it is the inbox by which
        // the owner knows that the future is done with the slot.
        slot.state.fetch_or(GONE | ROUTED, Ordering::Relaxed);
        NonNull::from(slot).cast()
    }

    /// Transition 6, the owner's part.
    ///
    /// # Safety
    /// By the owner, with a node of one of this table's slots, just taken from its inbox.
    pub(crate) unsafe fn take_routed(&self, node: NonNull<Node>) -> Left {
        // SAFETY: the node is the first field of a slot, and the pointer was made from the slot.
        let slot = unsafe { node.cast::<Slot>().as_ref() };
        // Ordering: Relaxed: the inbox has carried over what the future did, and the next tenant,
        // who may push the node again, has its token from the owner.
        let before = slot.state.fetch_and(!ROUTED, Ordering::Relaxed);
        if before & DONE == 0 {
            return Left::Cancel(Token::new(slot.index.get(), slot.generation.get()));
        }
        self.vacate(slot);
        Left::Nothing
    }

    /// Transition 7.
    fn vacate(&self, slot: &Slot) {
        // First, while nobody can be given the slot: dropping what is held may run anything.
        // SAFETY: `DONE` and `GONE`, so there is a result, and the future is gone; or given back,
        // and then nothing is held.
        #[cfg(feature = "io")]
        unsafe {
            slot.hold.release(slot.result.with(|place| *place));
        }
        slot.generation.set(Token::new(0, slot.generation.get().wrapping_add(1)).generation());
        slot.tenancy.set(Tenancy::Vacant(self.vacant.replace(slot.index.get())));
        // SAFETY: `DONE` and `GONE`, or given back by who is owner and future: the cell is the
        // owner's. The waker is dropped last of all, since that may run anything.
        let waker = slot.waker.with_mut(|cell| unsafe { (*cell).take() });
        waker.into_iter().for_each(cell::drop_waker);
    }
}

#[cfg(all(test, feature = "alloc", not(loom)))]
mod tests {
    use super::*;

    fn poll(table: &Table, token: Token) -> Poll<Result<i32, Orphaned>> {
        // SAFETY: the tests are owner and future in one thread.
        unsafe { table.poll(token, Waker::noop()) }
    }

    #[test]
    fn a_result_is_published_once() {
        let table = Table::new(Slots::boxed(1));
        // SAFETY: one thread.
        unsafe {
            let token = table.allocate().unwrap();
            assert!(poll(&table, token).is_pending());
            assert!(matches!(table.complete(token, 5), Completed::Ended(Some(_))));
            assert!(matches!(table.complete(token, 6), Completed::Stale));
            assert_eq!(poll(&table, token), Poll::Ready(Ok(5)));
        }
    }

    #[test]
    fn a_late_completion_does_not_reach_the_next_tenant() {
        let table = Table::new(Slots::boxed(1));
        // SAFETY: one thread.
        unsafe {
            let first = table.allocate().unwrap();
            table.complete(first, 0);
            assert_eq!(table.leave_here(first), Left::Nothing);
            let second = table.allocate().unwrap();
            assert_eq!(first.index(), second.index());
            assert!(matches!(table.complete(first, 1), Completed::Stale));
            assert!(poll(&table, second).is_pending());
        }
    }

    #[test]
    fn a_slot_is_held_until_the_last_completion() {
        let table = Table::new(Slots::boxed(1));
        // SAFETY: one thread.
        unsafe {
            let token = table.allocate().unwrap();
            assert_eq!(table.leave_here(token), Left::Cancel(token));
            assert!(table.allocate().is_none());
            assert!(matches!(table.complete(token, -125), Completed::Ended(None)));
            assert!(table.allocate().is_some());
        }
    }

    #[test]
    fn a_routed_slot_is_held_until_its_node_is_taken() {
        let table = Table::new(Slots::boxed(1));
        // SAFETY: one thread.
        unsafe {
            let token = table.allocate().unwrap();
            let node = table.leave(token);
            table.complete(token, 0);
            assert!(table.allocate().is_none(), "its node stands in an inbox");
            assert_eq!(table.take_routed(node), Left::Nothing);
            assert!(table.allocate().is_some());
        }
    }

    #[test]
    fn an_orphan_says_so() {
        let table = Table::new(Slots::boxed(2));
        // SAFETY: one thread.
        unsafe {
            let token = table.allocate().unwrap();
            assert!(poll(&table, token).is_pending());
            let mut woken = 0;
            table.orphan_all(|_| woken += 1);
            assert_eq!((woken, poll(&table, token)), (1, Poll::Ready(Err(Orphaned))));
        }
    }

    #[test]
    fn a_table_without_room_allocates_nothing() {
        // SAFETY: one thread.
        assert!(unsafe { Table::new(Slots::boxed(0)).allocate() }.is_none());
    }
}
