//! The shared half of a worker: what tasks, wakers and other threads reach. It outlives them all.

#[cfg(feature = "alloc")]
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};

use crossbeam_utils::CachePadded;

use crate::inbox::{MpscQueue, Take};
use crate::operation::{Completed, Left, Slots, Table};
use crate::park::{Owed, Park};
use crate::reactor::{Completion, POLL_BATCH, Token};
use crate::run_queue::Fifo;
#[cfg(not(feature = "std"))]
use crate::service::alone::{Early, Sharing};
use crate::service::context::{self, Identity};
#[cfg(feature = "std")]
use crate::service::crew::Membership;
use crate::service::home_ref::{HomeRef, Residence};
use crate::service::slice::Slice;
use crate::service::stats::Counts;
#[cfg(feature = "std")]
use crate::service::stealable::{self, Sharing};
use crate::service::waker;
#[cfg(feature = "std")]
use crate::sync::OnceLock;
use crate::sync::{AtomicU32, AtomicUsize, Cell, Ordering};
use crate::task::TaskRef;
use crate::task::cell;
#[cfg(feature = "std")]
use crate::task::header::Custody;
use crate::task::header::Header;
use crate::task::list::TaskList;
use crate::task::node::{Entry, Kind, Node};
use crate::task::state::{References, Snapshot, Taken};
use crate::time::Instant;
use crate::timers::{Expired, TimerQueue};

/// The shared half of a worker.
pub(crate) struct Home {
    pub(super) inbox: MpscQueue<Entry>,
    park: CachePadded<Park>,
    /// The owner's half: touched by the worker's thread alone.
    pub(super) mine: CachePadded<Mine>,
    pub(crate) counts: CachePadded<Counts>,
    notifier: Waker,
    pub(super) operations: Table,
    /// How many operations the kernel has.
    armed: AtomicUsize,
    /// How many had not ended when the worker did, and hold what the kernel may reach.
    #[cfg(feature = "io")]
    leaked: AtomicUsize,
    stop: AtomicU32,
    /// How many have come to clear the inbox of a worker that is gone, since it was last clear.
    clearing: AtomicU32,
    #[cfg_attr(feature = "std", expect(dead_code))] // there a thread knows by itself
    identity: Identity,
    residence: Residence,
    /// The team whose tasks the worker shares, if it is in one.
    #[cfg(feature = "std")]
    pub(super) membership: OnceLock<Membership>,
}

/// What only the worker's own thread touches.
pub(super) struct Mine {
    pub(super) local: Fifo<TaskRef>,
    pub(super) io: Fifo<TaskRef>,
    pub(super) wake_to: Cell<WakeTo>,
    /// The tasks that the worker knows: to be ended with it.
    tasks: TaskList,
    timers: TimerQueue,
    slice: Slice,
    driver: Cell<Option<DriverHook>>,
    pub(super) sharing: Sharing,
    /// Where this is, as the `Arc` knows it that it is in, or null: a reference to it may not reach
    /// the counts.
    #[cfg(feature = "std")]
    counted: Cell<*const Home>,
    #[cfg(not(feature = "std"))]
    pub(super) early: Early,
}

/// Where a wake by the worker's own thread puts its task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeTo {
    /// By a running task.
    Local,
    /// By the processing of completions.
    Io,
    /// The worker is at its end: its tasks are being dropped, and none comes back.
    Nowhere,
}

/// The driver of the worker's reactor, its type erased: for what reaches a worker from a task.
#[derive(Clone, Copy)]
pub(crate) struct DriverHook {
    pub(crate) driver: NonNull<()>,
    /// Cancels an operation, unless the reactor is at work on this very thread.
    pub(crate) cancel: unsafe fn(NonNull<()>, Token) -> Cancel,
    /// The time on the worker's clock.
    #[cfg(feature = "std")]
    pub(crate) now: unsafe fn(NonNull<()>) -> Instant,
    /// Writes a handle of the driver's worker to where the second pointer says.
    pub(crate) handle: unsafe fn(NonNull<()>, NonNull<()>),
}

/// Whether the reactor could be asked for a cancel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancel {
    Asked,
    ReactorBusy,
}

/// Whether there was a task to poll.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dispatched {
    One,
    None,
}

/// What the inbox held.
pub(crate) enum Delivery {
    /// A task to poll.
    Task(TaskRef),
    /// An operation whose future is gone.
    Cancel(Token),
    /// Something that is settled by having been taken.
    Settled,
    Empty,
    /// A push is half done.
    Busy,
}

// SAFETY: `mine` is reached by the owner's methods alone, which name their contract; the rest is
// atomic, or `Sync` itself.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// A shared half with room for so many operations.
    #[cfg(feature = "alloc")]
    pub(crate) fn counted(notifier: Waker, operations: usize, identity: Identity) -> HomeRef {
        let slots = Slots::boxed(operations);
        let home = Arc::new(Self::new(notifier, slots, identity, Residence::Counted));
        #[cfg(feature = "std")]
        home.mine.counted.set(Arc::as_ptr(&home));
        HomeRef::Counted(home)
    }

    /// One for a static.
    pub(crate) fn in_static(notifier: Waker, slots: Slots, identity: Identity) -> Self {
        Self::new(notifier, slots, identity, Residence::Static)
    }

    fn new(notifier: Waker, slots: Slots, identity: Identity, residence: Residence) -> Self {
        Self {
            inbox: MpscQueue::new(),
            park: CachePadded::new(Park::new()),
            mine: CachePadded::new(Mine {
                local: Fifo::new(),
                io: Fifo::new(),
                wake_to: Cell::new(WakeTo::Local),
                tasks: TaskList::new(),
                timers: TimerQueue::new(),
                slice: Slice::new(),
                driver: Cell::new(None),
                sharing: Sharing::new(),
                #[cfg(feature = "std")]
                counted: Cell::new(core::ptr::null()),
                #[cfg(not(feature = "std"))]
                early: Early::new(),
            }),
            counts: CachePadded::new(Counts::new()),
            notifier,
            operations: Table::new(slots),
            armed: AtomicUsize::new(0),
            #[cfg(feature = "io")]
            leaked: AtomicUsize::new(0),
            stop: AtomicU32::new(0),
            clearing: AtomicU32::new(0),
            identity,
            residence,
            #[cfg(feature = "std")]
            membership: OnceLock::new(),
        }
    }

    pub(crate) fn residence(&self) -> Residence {
        self.residence
    }

    #[cfg(not(feature = "std"))]
    #[inline]
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The shared half of a task's worker.
    #[inline]
    pub(crate) fn of<'a>(task: TaskRef) -> &'a Self {
        // SAFETY: every header is made with what `HomeRef::into_raw` gives, and the task holds that
        // reference.
        unsafe { task.header().home.cast().as_ref() }
    }
}

/// Anybody's part.
impl Home {
    /// A wake from outside the worker's tick: transition 4.
    #[inline]
    pub(crate) fn wake(&self, task: TaskRef) {
        if task.header().state.schedule().owes_push() {
            self.hand_over(task);
        }
    }

    /// Asks for a task's end: transition 8.
    pub(crate) fn abort(&self, task: TaskRef) {
        #[cfg(feature = "std")]
        if task.header().custody() == Custody::Stealable {
            return stealable::abort(task);
        }
        if task.header().state.abort().owes_push() {
            self.hand_over(task);
        }
    }

    /// Puts a task into the inbox. The caller has set `SCHEDULED`, or made the task with it.
    #[inline]
    pub(crate) fn hand_over(&self, task: TaskRef) {
        // SAFETY: whoever sets `SCHEDULED` pushes, so the node stands in no inbox; the scheduler's
        // reference keeps the task alive until it is taken.
        unsafe { self.push(task.node()) };
    }

    /// A future leaves its operation: transitions 5 and 6 of the operation's slot.
    ///
    /// # Safety
    /// By the one who has the token's future, which does not come back.
    pub(crate) unsafe fn leave(&self, token: Token) {
        if context::is_ticking(self) {
            // SAFETY: the owner is this thread; the rest is the caller's.
            unsafe { self.leave_here(token) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.leave_from_elsewhere(token) };
        }
    }

    /// Transition 6.
    ///
    /// # Safety
    /// As `leave`.
    unsafe fn leave_from_elsewhere(&self, token: Token) {
        // SAFETY: the caller's; the node of a slot that is not in an inbox, which lives as long as
        // the table.
        unsafe {
            let node = self.operations.leave(token);
            self.push(node);
        }
    }

    /// # Safety
    /// As `Entry::new`.
    #[inline]
    unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: passed on to the caller.
        self.inbox.push(unsafe { Entry::new(node) });
        self.tell();
    }

    /// After something was handed over.
    #[inline]
    pub(super) fn tell(&self) {
        match self.park.handed_over() {
            Owed::Nothing => {}
            Owed::Notification => {
                self.counts.count_notification();
                self.notifier.wake_by_ref();
            }
            Owed::Clearing => self.clear(),
        }
    }

    /// Asks the worker to end.
    pub(crate) fn request_stop(&self) {
        // Ordering: Relaxed; the fence in `tell` orders it against the worker's last look.
        self.stop.store(1, Ordering::Relaxed);
        self.tell();
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        // Ordering: Relaxed: nothing is read by its leave.
        self.stop.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.park.is_closed()
    }

    pub(crate) fn is_parked(&self) -> bool {
        self.park.is_parked()
    }

    pub(crate) fn armed(&self) -> usize {
        // Ordering: Acquire, pairs with the Release of `count_armed`: who finds an operation armed
        // finds what was done before it was.
        self.armed.load(Ordering::Acquire)
    }

    #[cfg(feature = "io")]
    pub(crate) fn leaked(&self) -> usize {
        // Ordering: Acquire, pairs with the Release of `leak_laden`.
        self.leaked.load(Ordering::Acquire)
    }

    pub(crate) fn operations(&self) -> &Table {
        &self.operations
    }

    /// Clears away what was pushed after the worker's end. One at a time: who comes while another is
    /// at it adds to the count by which that one knows to look again. Nobody waits for a push that
    /// is half done: its producer comes here too.
    fn clear(&self) {
        // Ordering: Acquire, pairs with the Release of the one who cleared before: one consumer
        // after the other. Release, pairs with the Acquire of the one who is at it: it finds what
        // this one pushed. (The fence that each has passed on its way here would do for that.) A
        // chain of read-modify-writes, so all who came before are seen too.
        if self.clearing.fetch_add(1, Ordering::AcqRel) != 0 {
            return;
        }
        let mut come = 1;
        loop {
            // SAFETY: the worker is gone, and the count makes this the one consumer.
            while let Take::Item(entry) = unsafe { self.inbox.take() } {
                self.discard(entry.node());
            }
            // Ordering: as above, the Release on success, the Acquire on failure.
            match self.clearing.compare_exchange(come, 0, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => come = now,
            }
        }
    }

    /// The worker is gone, and all tasks that it knew have ended.
    fn discard(&self, node: NonNull<Node>) {
        // SAFETY: a node that was just taken is alive.
        match unsafe { node.as_ref() }.kind() {
            // The slot belongs to a table that nobody allocates from any more.
            Kind::Operation => {}
            Kind::Task(_) => {
                // SAFETY: the scheduler's reference keeps it alive.
                let task = unsafe { TaskRef::new(node.cast::<Header>()) };
                #[cfg(feature = "std")]
                if task.header().custody() == Custody::Stealable {
                    return Self::of(task).crew().hand_to_anybody(task);
                }
                let before = task.header().state.take();
                match task.header().marks.leave_inbox(before) {
                    Taken::Ended => release(task),
                    // SAFETY: it was spawned from outside and the worker never saw it, so its
                    // future is whole, `Send`, and nobody's but the taker's.
                    _ => unsafe { self.cancel(task) },
                }
            }
        }
    }
}

/// The owner's part: every method here is called on the worker's thread alone. The worker sees to
/// it by being neither `Send` nor `Sync`.
impl Home {
    /// Spawns: transition 1.
    pub(crate) fn adopt_and_queue(&self, task: TaskRef) {
        self.adopt(task);
        if self.is_ending() {
            // SAFETY: just made, never polled.
            unsafe { self.cancel(task) };
        } else {
            task.header().marks.queue(task.header().state.glance());
            self.push_local(task);
        }
    }

    #[inline]
    fn push_local(&self, task: TaskRef) {
        self.mine.sharing.stamp(task);
        self.mine.local.push(task);
    }

    /// A wake inside the worker's tick: transition 3.
    #[inline]
    pub(crate) fn wake_here(&self, task: TaskRef) {
        if !task.header().marks.queue(task.header().state.glance()) {
            return;
        }
        match self.mine.wake_to.get() {
            WakeTo::Local | WakeTo::Nowhere => self.push_local(task),
            WakeTo::Io => self.mine.io.push(task),
        }
    }

    #[inline]
    pub(crate) fn has_io(&self) -> bool {
        !self.mine.io.is_empty()
    }

    #[inline]
    pub(crate) fn has_remote(&self) -> bool {
        // SAFETY: the owner is the one consumer.
        self.has_early() || unsafe { self.inbox.has_visible() }
    }

    /// Whether the inbox is empty and no push is half done.
    pub(crate) fn is_drained(&self) -> bool {
        !self.has_early() && self.inbox.is_drained()
    }

    /// The oldest entry of the inbox.
    ///
    /// # Safety
    /// By the owner.
    unsafe fn take_entry(&self) -> Take<Entry> {
        match self.take_early() {
            Some(entry) => Take::Item(entry),
            // SAFETY: the owner is the one consumer.
            None => unsafe { self.inbox.take() },
        }
    }

    /// Whether a task waits in one of the worker's own lanes.
    pub(crate) fn has_own(&self) -> bool {
        !self.mine.local.is_empty() || !self.mine.io.is_empty() || self.mine.sharing.has_work()
    }

    /// The front of the local lane.
    #[inline]
    pub(crate) fn next_local(&self) -> Option<TaskRef> {
        self.next_shared().or_else(|| next_of(&self.mine.local))
    }

    #[inline]
    pub(crate) fn next_io(&self) -> Option<TaskRef> {
        next_of(&self.mine.io)
    }

    /// Transition 6, and what concerns the operations.
    pub(crate) fn next_remote(&self) -> Delivery {
        // SAFETY: the owner is the one consumer.
        let node = match unsafe { self.take_entry() } {
            Take::Item(entry) => entry.node(),
            Take::Empty => return Delivery::Empty,
            Take::Busy => return Delivery::Busy,
        };
        // SAFETY: a node that was just taken is alive.
        match unsafe { node.as_ref() }.kind() {
            Kind::Operation => {
                // SAFETY: only this worker's slots are pushed into its inbox.
                match unsafe { self.operations.take_routed(node) } {
                    Left::Cancel(token) => Delivery::Cancel(token),
                    Left::Nothing => Delivery::Settled,
                }
            }
            Kind::Task(_) => {
                // SAFETY: the scheduler's reference keeps it alive.
                let task = unsafe { TaskRef::new(node.cast::<Header>()) };
                #[cfg(feature = "std")]
                if task.header().custody() == Custody::Stealable {
                    return Delivery::Task(task);
                }
                let before = task.header().state.take();
                self.adopt(task);
                match task.header().marks.leave_inbox(before) {
                    Taken::Runs => return Delivery::Task(task),
                    Taken::StaysWhereItIs => {}
                    Taken::Ended => release(task),
                    // SAFETY: not ended, and not being polled: it was just taken.
                    Taken::Aborted => unsafe { self.cancel(task) },
                }
                Delivery::Settled
            }
        }
    }

    /// Dispatches the front of the local lane.
    #[inline]
    pub(crate) fn dispatch_next(&self) -> Dispatched {
        match self.next_local() {
            Some(task) => {
                self.dispatch(task);
                Dispatched::One
            }
            None => Dispatched::None,
        }
    }

    /// The same, for a worker that is in no team: all its tasks are pinned ones.
    #[inline]
    pub(crate) fn dispatch_next_pinned(&self) -> Dispatched {
        match next_of(&self.mine.local) {
            Some(task) => {
                self.dispatch_pinned(task);
                Dispatched::One
            }
            None => Dispatched::None,
        }
    }

    /// Polls a task that was just taken: one dispatch.
    #[inline]
    pub(crate) fn dispatch(&self, task: TaskRef) {
        #[cfg(feature = "std")]
        if task.header().custody() == Custody::Stealable {
            return self.dispatch_stealable(task);
        }
        self.dispatch_pinned(task);
    }

    /// The same, for one that is known to be pinned.
    #[inline]
    pub(crate) fn dispatch_pinned(&self, task: TaskRef) {
        // SAFETY: the scheduler's reference outlives the poll, so this one counts nothing and is
        // never dropped.
        let waker = ManuallyDrop::new(unsafe { waker::of(task) });
        // SAFETY: the owner polls, what was taken to be polled has not ended, and a task is not
        // taken while it is polled: a nested tick is another worker's.
        if let Poll::Ready(()) = unsafe { task.poll(&mut Context::from_waker(&waker)) } {
            self.finish(task);
        }
    }

    /// Gives a completion to its operation, and wakes who waits for it into the `io` lane. Whether
    /// there was one.
    pub(crate) fn complete(&self, completion: Completion) -> bool {
        if self.is_timer(completion.token) {
            return false;
        }
        // SAFETY: by the owner.
        match unsafe { self.operations.complete(completion.token, completion.result) } {
            Completed::Stale => false,
            Completed::Ended(waker) => {
                let before = self.mine.wake_to.replace(WakeTo::Io);
                waker.into_iter().for_each(cell::wake);
                self.mine.wake_to.set(before);
                true
            }
        }
    }

    /// The same at the worker's end: whoever waits is not a task of this worker.
    #[cfg(feature = "io")]
    pub(crate) fn complete_at_end(&self, completion: Completion) {
        // SAFETY: by the owner.
        let completed = unsafe { self.operations.complete(completion.token, completion.result) };
        if let Completed::Ended(waker) = completed {
            waker.into_iter().for_each(cell::wake);
        }
    }

    /// A future leaves its operation: transition 5. When this has returned the reactor has been
    /// asked for the operation's end, unless it is at work on this very thread.
    ///
    /// # Safety
    /// As `leave`.
    pub(crate) unsafe fn leave_here(&self, token: Token) {
        // SAFETY: by the owner; the rest is the caller's.
        match unsafe { self.operations.leave_here(token) } {
            Left::Cancel(token) if self.cancel_here(token) == Cancel::ReactorBusy => {
                // SAFETY: the caller's.
                unsafe { self.leave_from_elsewhere(token) };
            }
            Left::Cancel(_) | Left::Nothing => {}
        }
    }

    /// The operations that have not ended and hold something that the kernel may reach.
    #[cfg(feature = "io")]
    pub(crate) fn laden(&self) -> impl Iterator<Item = Token> {
        // SAFETY: by the owner.
        unsafe { self.operations.laden() }
    }

    /// Leaves the memory of operations that could not be taken back to the kernel, for good: what
    /// they hold, and their table.
    #[cfg(feature = "io")]
    fn leak_laden(&self) {
        let laden = self.laden().count();
        if laden > 0 {
            // Ordering: Release, pairs with the Acquire of `leaked`.
            self.leaked.fetch_add(laden, Ordering::Release);
            core::mem::forget(self.reference());
        }
    }

    /// The worker's timers.
    #[inline]
    pub(crate) fn timers(&self) -> &TimerQueue {
        &self.mine.timers
    }

    /// What is known of the time that a task takes which does not give way.
    #[inline]
    pub(crate) fn slice(&self) -> &Slice {
        &self.mine.slice
    }

    /// Fires timers that are due, up to a batch, and wakes who waits for them into the `io` lane.
    pub(crate) fn expire(&self, now: Instant) -> Expired {
        let before = self.mine.wake_to.replace(WakeTo::Io);
        let expired = self.mine.timers.expire(now, POLL_BATCH, cell::wake);
        self.mine.wake_to.set(before);
        expired
    }

    /// The kernel has so many operations more, or fewer.
    pub(crate) fn count_armed(&self, change: impl FnOnce(usize) -> usize) {
        // Ordering: Relaxed, the owner is the one writer. Release, pairs with the Acquire of
        // `armed`.
        self.armed.store(change(self.armed.load(Ordering::Relaxed)), Ordering::Release);
    }

    pub(crate) fn set_driver(&self, hook: Option<DriverHook>) {
        self.mine.driver.set(hook);
    }

    pub(crate) fn driver(&self) -> Option<DriverHook> {
        self.mine.driver.get()
    }

    /// Whether the worker's end has begun: it takes nothing more.
    pub(crate) fn is_ending(&self) -> bool {
        self.mine.wake_to.get() == WakeTo::Nowhere
    }

    /// One more reference to this.
    #[cfg(feature = "std")]
    pub(crate) fn reference(&self) -> HomeRef {
        let counted = self.mine.counted.get();
        let home = if counted.is_null() { core::ptr::from_ref(self) } else { counted };
        // SAFETY: the pointer of its `Arc`, or if it is in none the address of its static.
        unsafe { HomeRef::of(home) }
    }

    /// The time on the worker's clock.
    #[cfg(feature = "std")]
    pub(crate) fn now(&self) -> Instant {
        let hook = self.driver().expect("a worker that ticks has its driver");
        // SAFETY: the hook is taken away before the driver is dropped.
        unsafe { (hook.now)(hook.driver) }
    }

    pub(super) fn cancel_here(&self, token: Token) -> Cancel {
        if self.cancels_timer(token) {
            return Cancel::Asked;
        }
        match self.mine.driver.get() {
            // SAFETY: the hook is taken away before the driver is dropped.
            Some(hook) => unsafe { (hook.cancel)(hook.driver, token) },
            None => Cancel::Asked,
        }
    }

    /// Announces that the worker parks. It looks at everything once more afterwards.
    pub(crate) fn announce_park(&self) {
        self.park.announce();
        self.announce_idle();
    }

    pub(crate) fn resume(&self) {
        self.park.resume();
        self.retract_idle();
    }

    /// The worker's end: drops the futures of all tasks that it knows, on this thread, and whatever
    /// is in the inbox. In between the reactor is drained. Nothing comes back after it.
    pub(crate) fn close(&self, drain: impl FnOnce()) {
        self.mine.wake_to.set(WakeTo::Nowhere);
        self.request_stop();
        self.leave_team();
        while let Some(task) = self.mine.tasks.first() {
            // SAFETY: known and not ended, or it would not be in the list; none is being polled.
            unsafe { self.cancel(task) };
        }
        drain();
        #[cfg(feature = "io")]
        self.leak_laden();
        // SAFETY: by the owner.
        unsafe { self.operations.orphan_all(cell::wake) };
        self.count_armed(|_| 0);
        let left = self.next_local().or_else(|| self.next_io());
        assert!(left.is_none(), "every task that the worker knew has ended");
        while let Some(entry) = self.take_early() {
            self.discard(entry.node());
        }
        // From here on those who push clear away what they push.
        self.park.close();
        self.clear();
    }

    /// Transition 7.
    #[inline(never)]
    fn finish(&self, task: TaskRef) {
        let header = task.header();
        header.marks.end();
        // Whoever clears a closed inbox comes here with tasks that were never in the list, and must
        // not so much as look at it.
        if header.marks.is_adopted() {
            self.mine.tasks.remove(task);
        }
        let before = header.state.complete();
        header.marks.await_entry_of(before);
        settle(task, before);
        release(task);
    }

    /// Drops the future of a task that will not be polled again.
    ///
    /// # Safety
    /// It has not ended and is not being polled.
    unsafe fn cancel(&self, task: TaskRef) {
        // SAFETY: passed on to the caller.
        unsafe { task.cancel() };
        self.finish(task);
    }

    fn adopt(&self, task: TaskRef) {
        if task.header().marks.adopt() {
            self.mine.tasks.add(task);
        }
    }
}

/// Gives the output of a task that is complete to its join handle, or drops it for want of one.
pub(super) fn settle(task: TaskRef, before: Snapshot) {
    let waker = if before.has_join_waker() {
        // SAFETY: every task is a `TaskCell`.
        let place = unsafe { cell::join_waker(task) };
        // SAFETY: lent, and complete: the cell is this thread's for good. The waker leaves it:
        // tasks that await each other would keep each other for ever.
        place.with_mut(|waker| unsafe { (*waker).take() })
    } else {
        None
    };
    if before.is_joined() {
        waker.into_iter().for_each(cell::wake);
    } else {
        waker.into_iter().for_each(cell::drop_waker);
        // SAFETY: complete, and no handle is there to take the output.
        unsafe { task.drop_output() };
    }
}

/// Transition 5.
#[inline]
fn next_of(lane: &Fifo<TaskRef>) -> Option<TaskRef> {
    loop {
        let task = lane.pop()?;
        if task.header().marks.leave_lane() {
            return Some(task);
        }
        release(task);
    }
}

/// Gives up the scheduler's reference to a task that has ended, unless it still stands somewhere.
fn release(task: TaskRef) {
    if task.header().marks.stands_nowhere() {
        // SAFETY: the scheduler's reference, given up once: whoever ends the task, takes it from
        // its lane or from the inbox after that comes here, and only the last of them finds that
        // it stands nowhere.
        unsafe { drop_reference(task) };
    }
}

/// Transition 11: gives up one reference to a task, and frees it if it was the last.
///
/// # Safety
/// The caller has the reference and does not use it again.
pub(crate) unsafe fn drop_reference(task: TaskRef) {
    if task.header().state.drop_reference() == References::None {
        let home = task.header().home;
        // SAFETY: it was the last reference, and the task's own reference to its home goes with it.
        unsafe {
            task.free();
            let _given_up = HomeRef::from_raw(home);
        }
    }
}
