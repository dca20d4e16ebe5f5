#![forbid(unsafe_code)]
//! The alphabet of task states.
//!
//! A task has two sets of marks. The *shared* ones live in one atomic word, [`State`], beside the
//! reference count. The *owner's* ones live in a plain cell, [`Marks`], that only the task's worker
//! touches: this is why a yield costs no atomic read-modify-write.
//!
//! # The shared marks
//!
//! | bit | set means | may be set | may not be set |
//! |---|---|---|---|
//! | `SCHEDULED` | the task stands in its worker's inbox, or is being pushed | by any thread that then pushes | twice without a take between: the node has one link |
//! | `COMPLETE` | the future is gone, the output (or why there is none) is in place | by the worker, once | ever cleared |
//! | `ABORTED` | someone asked for the end; the worker drops the future at its next take | by any thread | ever cleared |
//! | `JOINED` | a join handle exists: the output is its to take or drop | at the spawn | after the handle is gone |
//! | `JOIN_WAKER` | the join handle's waker is in its cell, which is now the worker's to read | by the handle | while the handle writes the cell |
//! | `ACTIVE` | tasks without an owner only: it stands in a queue, or is being polled; whoever finds it set owes no push | at the spawn, by any thread that then pushes | ever by two at once |
//!
//! # The owner's marks
//!
//! | bit | set means |
//! |---|---|
//! | `QUEUED` | the task stands in one of the worker's own lanes (`next` is in use) |
//! | `OVERTAKEN` | it was put there while its inbox entry was already waiting: that entry is the older one and keeps its turn |
//! | `ENDED` | the owner's copy of `COMPLETE` |
//! | `ADOPTED` | the worker knows the task: it is in the list of those to drop at shutdown |
//! | `AWAITED` | the task ended while it was `SCHEDULED`: its inbox entry is still to be taken (the bit itself tells no more, a wake may set it in vain) |
//!
//! # The transitions
//!
//! ```text
//!                 ┌────────(1) spawn by the worker────► QUEUED, ADOPTED
//!  (nothing) ─────┤
//!                 └────────(2) spawn from outside─────► SCHEDULED
//!
//!  idle ──(3) wake by the worker itself──► QUEUED        (nothing if QUEUED or ENDED already;
//!                                                         + OVERTAKEN if SCHEDULED)
//!  idle ──(4) wake from anywhere else────► SCHEDULED     (nothing more if SCHEDULED or COMPLETE)
//!
//!  QUEUED ────(5) taken from a lane──────► not QUEUED, polled       (ENDED: only released)
//!  SCHEDULED ─(6) taken from the inbox───► not SCHEDULED, ADOPTED, and then
//!                  (6a) ENDED             → not AWAITED, released
//!                  (6b) ABORTED           → the future is dropped, (7)
//!                  (6c) QUEUED, not OVERTAKEN → nothing: it stays where it is
//!                  (6d) else              → not OVERTAKEN, polled
//!
//!  polled ────(7) ready, panicked, aborted, or the worker ends──► COMPLETE, ENDED
//!                  + AWAITED if SCHEDULED, and released
//!
//!  any ───────(8) abort──────────────────► ABORTED, SCHEDULED       (as (4))
//!  JOINED ────(9) handle dropped─────────► not JOINED    (COMPLETE: it drops the output)
//!  JOINED ───(10) handle polled──────────► JOIN_WAKER    (COMPLETE: it takes the output)
//!  any ──────(11) waker cloned or dropped► one reference more or less; the last one frees
//! ```
//!
//! # Tasks without an owner
//!
//! Those that may be stolen, and those of who has no worker. Their marks are all shared ones, since no one thread owns such a task. `ACTIVE` is the right to
//! poll it, or to put it where somebody will; `SCHEDULED` says that it was woken since it was last
//! taken. A task that yields keeps both as they are: taking it, polling it and putting it back costs
//! no read-modify-write here.
//!
//! ```text
//!  (nothing) ─(12) spawn─────────────────► ACTIVE
//!  idle ─────(13) wake───────────────────► ACTIVE, SCHEDULED, pushed by the waker
//!  ACTIVE ───(13) wake───────────────────► SCHEDULED, no push
//!  ACTIVE ───(14) taken from a queue─────► not SCHEDULED, polled   (ABORTED: (17))
//!  polled ───(15) pending, woke itself───► pushed again by its worker
//!  polled ───(16) pending, not SCHEDULED─► not ACTIVE
//!                 pending, SCHEDULED     → pushed again by its worker
//!  polled ───(17) ready, panicked, aborted──► COMPLETE, released   (ACTIVE stays)
//!  any ──────(18) abort──────────────────► ABORTED, and (13)
//! ```
//!
//! *Released* means that the scheduler's one reference is given up, unless the task is QUEUED or
//! AWAITED: then (5) or (6a) does it. The reference stands for every place in which a worker may
//! hold the task (lanes, inbox, list), so queueing counts nothing.

use core::hint::cold_path;

use crate::sync::{AtomicUsize, Cell, Ordering, const_but_under_loom};

/// The shared marks and the reference count, in one word.
pub(crate) struct State(AtomicUsize);

/// What [`State`] held when it was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot(usize);

const SCHEDULED: usize = 1 << 0;
const COMPLETE: usize = 1 << 1;
const ABORTED: usize = 1 << 2;
const JOINED: usize = 1 << 3;
const JOIN_WAKER: usize = 1 << 4;
const ACTIVE: usize = 1 << 5;
const REFERENCE: usize = 1 << 6;
/// Half of what the count can hold: whoever passes it leaks wakers in a loop.
const TOO_MANY_REFERENCES: usize = usize::MAX / 2;

impl Snapshot {
    #[inline]
    pub(crate) fn is_scheduled(self) -> bool {
        self.0 & SCHEDULED != 0
    }

    #[inline]
    pub(crate) fn is_complete(self) -> bool {
        self.0 & COMPLETE != 0
    }

    #[inline]
    pub(crate) fn is_aborted(self) -> bool {
        self.0 & ABORTED != 0
    }

    #[inline]
    pub(crate) fn is_joined(self) -> bool {
        self.0 & JOINED != 0
    }

    #[inline]
    pub(crate) fn has_join_waker(self) -> bool {
        self.0 & JOIN_WAKER != 0
    }

    /// Whether whoever changed the state owes the inbox a push.
    #[inline]
    pub(crate) fn owes_push(self) -> bool {
        self.0 & (SCHEDULED | COMPLETE) == 0
    }
}

impl State {
    /// Transition 1: spawned by its own worker. Two references: the scheduler's and the handle's.
    pub(crate) fn spawned_here() -> Self {
        Self(AtomicUsize::new(JOINED + 2 * REFERENCE))
    }

    /// Transition 2: spawned from outside, about to be pushed.
    pub(crate) fn spawned_elsewhere() -> Self {
        Self(AtomicUsize::new(SCHEDULED + JOINED + 2 * REFERENCE))
    }

    /// What the owner sees of it; `SCHEDULED` can't be cleared meanwhile, for only the owner does.
    #[inline]
    pub(crate) fn glance(&self) -> Snapshot {
        // Ordering: Relaxed, pairs with nothing: it decides where an entry waits, never whether.
        Snapshot(self.0.load(Ordering::Relaxed))
    }

    /// What it is now, with everything that led to it.
    pub(crate) fn load(&self) -> Snapshot {
        // Ordering: Acquire, pairs with the Release of `complete`: the output is visible.
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// Transition 4. The caller pushes if the snapshot [owes a push](Snapshot::owes_push).
    #[inline]
    pub(crate) fn schedule(&self) -> Snapshot {
        // Ordering: Release, pairs with the Acquire of `take`: what the waker did before the wake
        // is visible to the poll that answers it, even when an earlier wake's push serves both,
        // since `take` reads the last of a chain of read-modify-writes. Acquire, pairs with
        // `take`: a bit found cleared was cleared before, never a stale one.
        Snapshot(self.0.fetch_or(SCHEDULED, Ordering::AcqRel))
    }

    /// Transition 8. The caller pushes if the snapshot [owes a push](Snapshot::owes_push).
    pub(crate) fn abort(&self) -> Snapshot {
        // Ordering: as `schedule`.
        Snapshot(self.0.fetch_or(ABORTED | SCHEDULED, Ordering::AcqRel))
    }

    /// Transition 6, by the owner, before it polls.
    #[inline]
    pub(crate) fn take(&self) -> Snapshot {
        // Ordering: Acquire, pairs with the Release of `schedule` and `abort`. Release, pairs with
        // their Acquire: the node is out of the queue before its link may be used again.
        Snapshot(self.0.fetch_and(!SCHEDULED, Ordering::AcqRel))
    }

    /// Transition 7, by the owner, once.
    pub(crate) fn complete(&self) -> Snapshot {
        // Ordering: Release, pairs with the Acquire of `load`, `drop_handle`, `lend_waker`: the
        // output is in place. Acquire, pairs with the Release of `lend_waker`: so is the waker.
        Snapshot(self.0.fetch_or(COMPLETE, Ordering::AcqRel))
    }

    /// Transitions 9 and 11 in one, for a handle that leaves before the task is complete: whether it
    /// was so. The scheduler's reference is there, so this one was not the last.
    #[inline]
    pub(crate) fn detach(&self) -> bool {
        let seen = self.load();
        // Ordering: Release on success, pairs with the Acquire of `complete` and of
        // `drop_reference`: the handle is done with the task. Failure decides nothing.
        !seen.is_complete()
            && self
                .0
                .compare_exchange(
                    seen.0,
                    seen.0 - JOINED - REFERENCE,
                    Ordering::Release,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Transition 9.
    pub(crate) fn drop_handle(&self) -> Snapshot {
        // Ordering: Acquire, pairs with the Release of `complete`: the output may be dropped. No
        // Release: of what the worker may touch now the handle has touched nothing that it has
        // not lent.
        Snapshot(self.0.fetch_and(!JOINED, Ordering::Acquire))
    }

    /// Transition 10: the handle has written its waker and gives the cell to the worker.
    pub(crate) fn lend_waker(&self) -> Snapshot {
        // Ordering: Release, pairs with the Acquire of `complete`: the waker is in the cell.
        // Acquire, pairs with the Release of `complete`: if that came first, so did the output.
        Snapshot(self.0.fetch_or(JOIN_WAKER, Ordering::AcqRel))
    }

    /// The handle takes the cell back to change its waker. If the snapshot is complete it must not:
    /// the worker may be reading it.
    pub(crate) fn reclaim_waker(&self) -> Snapshot {
        let mut seen = self.load();
        while !seen.is_complete() {
            // Ordering: Acquire on failure, pairs with the Release of `complete`. Relaxed on
            // success: the worker has not touched the cell, and will not before it is lent again.
            match self.0.compare_exchange_weak(
                seen.0,
                seen.0 & !JOIN_WAKER,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(before) => return Snapshot(before),
                Err(now) => seen = Snapshot(now),
            }
        }
        seen
    }

    /// Transition 11.
    ///
    /// # Panics
    /// Past half of what the word can count (2^57 on 64 bits, 2^25 on 32): somebody forgets clones
    /// of a waker in a loop, and going on would free a task that is still referred to.
    pub(crate) fn add_reference(&self) {
        // Ordering: Relaxed, as in `Arc`: a new reference is made from one that keeps it alive.
        let before = self.0.fetch_add(REFERENCE, Ordering::Relaxed);
        if before > TOO_MANY_REFERENCES {
            self.0.fetch_sub(REFERENCE, Ordering::Relaxed);
            panic!("too many wakers of one task: clones of it are being forgotten");
        }
    }

    /// Transition 11.
    #[must_use]
    pub(crate) fn drop_reference(&self) -> References {
        // Ordering: Release, so that each holder's last access comes before the free; Acquire,
        // pairs with it: the one who frees sees them all.
        let before = self.0.fetch_sub(REFERENCE, Ordering::AcqRel);
        if before / REFERENCE == 1 { References::None } else { References::Some }
    }
}

/// What becomes of a task without an owner that was polled and is pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retired {
    /// It waits for a wake.
    Idle,
    /// It was woken meanwhile, and is still the caller's: to be pushed.
    Woken,
}

/// Tasks without an owner.
impl State {
    /// Transition 12, of a task that nobody joins. One reference: the one that goes with `ACTIVE`.
    pub(crate) fn spawned_alone() -> Self {
        Self(AtomicUsize::new(ACTIVE + REFERENCE))
    }

    /// Transition 12.
    #[cfg(feature = "std")]
    pub(crate) fn spawned_stealable() -> Self {
        Self(AtomicUsize::new(ACTIVE + JOINED + 2 * REFERENCE))
    }

    /// Transition 13. Whether the caller has the task now, and owes a push.
    pub(crate) fn activate(&self) -> Activated {
        // Ordering: Release, pairs with the Acquire of `take_active`: what the waker did before the
        // wake is visible to the poll that answers it. Acquire, pairs with the Release of `retire`:
        // the links and marks that a push touches are as the last who had the task left them.
        Activated::from(Snapshot(self.0.fetch_or(ACTIVE | SCHEDULED, Ordering::AcqRel)))
    }

    /// Transition 18.
    #[cfg(feature = "std")]
    pub(crate) fn activate_and_abort(&self) -> Activated {
        // Ordering: as `activate`.
        Activated::from(Snapshot(self.0.fetch_or(ABORTED | ACTIVE | SCHEDULED, Ordering::AcqRel)))
    }

    /// Transition 14, by whoever took it from a queue.
    #[inline]
    pub(crate) fn take_active(&self) -> Snapshot {
        // Ordering: Relaxed. A wake that this load does not see leaves `SCHEDULED` set, and so
        // another poll to come: at 16, or at the next 14.
        let seen = Snapshot(self.0.load(Ordering::Relaxed));
        if !seen.is_scheduled() {
            return seen;
        }
        // Ordering: Acquire, pairs with the Release of `activate`. No Release: no waker reads what
        // the taker did.
        Snapshot(self.0.fetch_and(!SCHEDULED, Ordering::Acquire))
    }

    /// Transition 16, by whoever polled it.
    pub(crate) fn retire(&self) -> Retired {
        // Ordering: Relaxed, the exchange tells whether it is still so.
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & SCHEDULED == 0 {
            // Ordering: Release, pairs with the Acquire of `activate`: what the poll did is
            // visible to the next. Failure reads nothing but the word.
            match self.0.compare_exchange_weak(
                seen,
                seen & !ACTIVE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Retired::Idle,
                Err(now) => seen = now,
            }
        }
        Retired::Woken
    }
}

/// What a wake of a task without an owner led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activated {
    /// It was idle: the caller has it, and pushes it.
    Owed,
    /// Somebody has it already, or it has ended: who ended it had it.
    Nothing,
}

impl From<Snapshot> for Activated {
    fn from(before: Snapshot) -> Self {
        if before.0 & ACTIVE == 0 { Self::Owed } else { Self::Nothing }
    }
}

/// Whether a task is still referred to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum References {
    /// The caller's was the last: it frees the task.
    None,
    Some,
}

/// The owner's marks. Only the thread that ticks the task's worker touches them.
pub(crate) struct Marks(Cell<u8>);

const QUEUED: u8 = 1 << 0;
const OVERTAKEN: u8 = 1 << 1;
const ENDED: u8 = 1 << 2;
const ADOPTED: u8 = 1 << 3;
const AWAITED: u8 = 1 << 4;

/// Where an inbox entry of a task leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// 6a: nothing is left to do but to release it.
    Ended,
    /// 6b
    Aborted,
    /// 6c
    StaysWhereItIs,
    /// 6d
    Runs,
}

impl Marks {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self(Cell::new(0))
        }
    }

    /// Transition 1.
    pub(crate) fn adopt(&self) -> bool {
        let marks = self.0.get();
        self.0.set(marks | ADOPTED);
        marks & ADOPTED == 0
    }

    /// Whether the worker has it in its list, or had until its end.
    pub(crate) fn is_adopted(&self) -> bool {
        self.0.get() & ADOPTED != 0
    }

    /// Transition 3: whether the caller is to put the task at the back of a lane.
    #[inline]
    pub(crate) fn queue(&self, shared: Snapshot) -> bool {
        let marks = self.0.get();
        if marks & (QUEUED | ENDED) != 0 {
            return false;
        }
        self.0.set(marks | QUEUED);
        if shared.is_scheduled() {
            cold_path();
            self.0.set(marks | QUEUED | OVERTAKEN);
        }
        true
    }

    /// Transition 5: whether the task is to be polled.
    #[inline]
    pub(crate) fn leave_lane(&self) -> bool {
        let marks = self.0.get();
        self.0.set(marks & !(QUEUED | OVERTAKEN));
        marks & ENDED == 0
    }

    /// Transition 6, after [`State::take`].
    pub(crate) fn leave_inbox(&self, before: Snapshot) -> Taken {
        let marks = self.0.get();
        self.0.set(marks & !(OVERTAKEN | AWAITED));
        if marks & ENDED != 0 {
            Taken::Ended
        } else if before.is_aborted() {
            Taken::Aborted
        } else if marks & (QUEUED | OVERTAKEN) == QUEUED {
            Taken::StaysWhereItIs
        } else {
            Taken::Runs
        }
    }

    /// Transition 7, before [`State::complete`].
    pub(crate) fn end(&self) {
        self.0.set(self.0.get() | ENDED);
    }

    /// Transition 7, after [`State::complete`].
    pub(crate) fn await_entry_of(&self, before: Snapshot) {
        if before.is_scheduled() {
            self.0.set(self.0.get() | AWAITED);
        }
    }

    /// Whether neither a lane nor the inbox has the task.
    pub(crate) fn stands_nowhere(&self) -> bool {
        self.0.get() & (QUEUED | AWAITED) == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_second_wake_owes_no_push() {
        let state = State::spawned_here();
        assert!(state.schedule().owes_push());
        assert!(!state.schedule().owes_push());
        state.take();
        assert!(state.schedule().owes_push());
    }

    #[test]
    fn a_complete_task_is_pushed_no_more() {
        let state = State::spawned_here();
        state.complete();
        assert!(!state.schedule().owes_push());
        assert!(!state.abort().owes_push());
    }

    #[test]
    fn the_last_reference_is_told() {
        let state = State::spawned_here();
        state.add_reference();
        assert_eq!(state.drop_reference(), References::Some);
        assert_eq!(state.drop_reference(), References::Some);
        assert_eq!(state.drop_reference(), References::None);
    }

    #[test]
    fn a_lane_entry_that_came_first_keeps_its_place() {
        let (state, marks) = (State::spawned_here(), Marks::new());
        assert!(marks.queue(state.glance()));
        state.schedule();
        assert_eq!(marks.leave_inbox(state.take()), Taken::StaysWhereItIs);
        assert!(marks.leave_lane());
    }

    #[test]
    fn an_inbox_entry_that_came_first_keeps_its_turn() {
        let (state, marks) = (State::spawned_here(), Marks::new());
        state.schedule();
        assert!(marks.queue(state.glance()));
        assert_eq!(marks.leave_inbox(state.take()), Taken::Runs);
        assert!(!marks.queue(state.glance()), "still queued: it stays where it is");
    }

    #[test]
    fn an_ended_task_stands_in_the_inbox_until_its_entry_is_taken() {
        let (state, marks) = (State::spawned_here(), Marks::new());
        assert!(marks.queue(state.glance()));
        state.schedule();
        marks.end();
        marks.await_entry_of(state.complete());
        assert!(!marks.leave_lane());
        assert!(!marks.stands_nowhere(), "its inbox entry is still to come");
        assert_eq!(marks.leave_inbox(state.take()), Taken::Ended);
        assert!(marks.stands_nowhere());
    }

    #[test]
    fn an_ended_task_is_queued_no_more() {
        let (state, marks) = (State::spawned_here(), Marks::new());
        marks.end();
        assert!(!marks.queue(state.glance()));
    }
}
