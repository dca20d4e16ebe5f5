//! Stealable tasks on a worker: how they are woken, put into its queue, and polled.

use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::service::context;
use crate::service::crew::{Crew, Enrolled, Membership, NoSeat, Seat};
use crate::service::home::{Home, WakeTo, drop_reference, settle};
use crate::service::home_ref::HomeRef;
use crate::service::idle::Call;
use crate::sync::Cell;
use crate::task::TaskRef;
use crate::task::node::Entry;
use crate::task::state::{Activated, Retired};

/// A waker that stands for one of the task's references, as the one of a pinned task does.
///
/// # Safety
/// The task is stealable, and alive as long as the waker.
#[inline]
pub(crate) unsafe fn waker_of(task: TaskRef) -> Waker {
    // SAFETY: the functions below keep the contract of `RawWaker`: they may be called from any
    // thread, since all that they touch is atomic, or belongs to the worker that ticks on theirs.
    unsafe { Waker::from_raw(raw(task)) }
}

fn raw(task: TaskRef) -> RawWaker {
    RawWaker::new(task.to_data(), &VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { TaskRef::of_data(data) };
    task.header().state.add_reference();
    raw(task)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: by the contract of the vtable; `wake` takes the waker's reference with it.
    unsafe {
        wake_by_ref(data);
        drop(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { TaskRef::of_data(data) };
    if context::with_ticking(|here| here.wakes_itself(task)) != Some(true)
        && task.header().state.activate() == Activated::Owed
    {
        push(task);
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    unsafe { drop_reference(TaskRef::of_data(data)) };
}

/// Puts a task that the caller has where a worker finds it: into the queue of the one that ticks
/// here, if it is of the task's team, or else into the inbox of the one that spawned it.
pub(crate) fn push(task: TaskRef) {
    let home = Home::of(task);
    if context::with_ticking(|here| here.takes_in(task, home)) != Some(true) {
        home.hand_over(task);
    }
}

/// Asks for a stealable task's end: transition 18.
pub(crate) fn abort(task: TaskRef) {
    if task.header().state.activate_and_abort() == Activated::Owed {
        push(task);
    }
}

/// What a worker that is in a team keeps for itself.
pub(super) struct Sharing {
    /// Its place in the team; there from its joining to its end.
    seat: Cell<Option<NonNull<Seat>>>,
    /// The stealable task that it polls now.
    polled: Cell<Option<TaskRef>>,
    /// Whether that task has woken itself meanwhile.
    woke_itself: Cell<bool>,
    /// Whether it owes its team a search.
    called: Cell<bool>,
}

impl Sharing {
    pub(super) fn new() -> Self {
        Self {
            seat: Cell::new(None),
            polled: Cell::new(None),
            woke_itself: Cell::new(false),
            called: Cell::new(false),
        }
    }

    #[inline]
    fn seat(&self) -> Option<&Seat> {
        // SAFETY: it is there as long as the team, which the worker's membership keeps.
        self.seat.get().map(|seat| unsafe { seat.as_ref() })
    }

    /// Notes where a pinned task stands among the stealable ones: behind all that were pushed
    /// before it.
    #[inline]
    pub(super) fn stamp(&self, task: TaskRef) {
        if let Some(seat) = self.seat() {
            // SAFETY: by the owner of the seat.
            task.header().ticket.set(unsafe { seat.queue.pushed() });
        }
    }

    /// How many tasks wait in the queue.
    fn waiting(&self) -> usize {
        let Some(seat) = self.seat() else { return 0 };
        // SAFETY: by the owner of the seat.
        let (oldest, pushed) = unsafe { (seat.queue.oldest(), seat.queue.pushed()) };
        oldest.map_or(0, |oldest| pushed.wrapping_sub(oldest) as usize)
    }

    pub(super) fn has_work(&self) -> bool {
        // SAFETY: by the owner of the seat.
        self.seat().is_some_and(|seat| unsafe { !seat.queue.is_empty() })
    }
}

/// Anybody's part.
impl Home {
    /// Adds a task that was just made to the team, and makes it runnable.
    pub(crate) fn take_in_stealable(task: TaskRef) {
        match Self::of(task).crew().enroll(task) {
            Enrolled::Yes => push(task),
            // SAFETY: just made, never polled.
            Enrolled::TooLate => unsafe { Self::cancel_stealable(task) },
        }
    }

    /// Drops the future of a task that will not be polled again.
    ///
    /// # Safety
    /// The caller has the task, and it has not ended.
    pub(crate) unsafe fn cancel_stealable(task: TaskRef) {
        // SAFETY: passed on to the caller.
        unsafe { task.cancel() };
        Self::finish_stealable(task);
    }

    /// Transition 17.
    fn finish_stealable(task: TaskRef) {
        Self::of(task).crew().strike(task);
        settle(task, task.header().state.complete());
        // SAFETY: the scheduler's reference: whoever has the task gives it up, once.
        unsafe { drop_reference(task) };
    }

    /// The team.
    pub(super) fn crew(&self) -> &Crew {
        &self.membership.get().expect("a stealable task's worker is in a team").crew
    }

    pub(crate) fn is_in_team(&self) -> bool {
        self.membership.get().is_some()
    }

    fn is_in_team_of(&self, other: &Self) -> bool {
        match (self.membership.get(), other.membership.get()) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one.crew, &other.crew),
            _ => false,
        }
    }
}

/// Where a thread knows its worker a future leaves its operation at once, and nothing is taken from
/// the inbox before its turn.
#[allow(clippy::unused_self)] // the shape of what is needed without
impl Home {
    #[inline]
    pub(super) fn has_early(&self) -> bool {
        false
    }

    #[inline]
    pub(super) fn take_early(&self) -> Option<Entry> {
        None
    }

    pub(crate) fn reclaim(&self) {}
}

/// The owner's part.
impl Home {
    /// Joins a team, once.
    pub(crate) fn join_team(this: &HomeRef, crew: &Arc<Crew>) -> Result<(), JoinTeamError> {
        if this.is_in_team() {
            return Err(JoinTeamError::InATeam);
        }
        let take = |seat| {
            this.mine.sharing.seat.set(Some(NonNull::from(crew.seat(seat))));
            let membership = Membership { crew: Arc::clone(crew), seat };
            assert!(this.membership.set(membership).is_ok(), "looked at above, by the owner");
        };
        crew.join(this.clone(), take).map_err(|NoSeat| JoinTeamError::NoSeat)
    }

    /// The worker ends.
    pub(super) fn leave_team(&self) {
        let Some(membership) = self.membership.get() else { return };
        self.decline_call();
        membership.crew.leave(self, membership.seat);
        self.mine.sharing.seat.set(None);
    }

    /// Ends the search that it owes its team, if it owes one: it searches no more.
    pub(crate) fn decline_call(&self) {
        if self.mine.sharing.called.take() {
            self.crew().end_search();
        }
    }

    /// Adds a task that was just made to the team, and to the local lane.
    pub(crate) fn take_in_and_queue_stealable(&self, task: TaskRef) {
        match self.crew().enroll(task) {
            Enrolled::Yes if self.takes_in(task, self) => {}
            Enrolled::Yes => self.crew().hand_to_anybody(task),
            // SAFETY: just made, never polled.
            Enrolled::TooLate => unsafe { Self::cancel_stealable(task) },
        }
    }

    /// Whether the task is being polled by this worker now: then its wake is only noted.
    #[inline]
    fn wakes_itself(&self, task: TaskRef) -> bool {
        let wakes_itself = self.mine.sharing.polled.get() == Some(task);
        if wakes_itself {
            self.mine.sharing.woke_itself.set(true);
        }
        wakes_itself
    }

    /// Whether this worker has queued the task: it must be of the same team.
    fn takes_in(&self, task: TaskRef, home: &Self) -> bool {
        let Some(seat) = self.mine.sharing.seat() else { return false };
        if !self.is_in_team_of(home) {
            return false;
        }
        match self.mine.wake_to.get() {
            WakeTo::Nowhere => return false,
            WakeTo::Io => self.mine.io.push(task),
            WakeTo::Local => {
                // SAFETY: the owner of the seat; the caller has the task.
                unsafe { seat.queue.push(task) };
                self.crew().call_for_help();
            }
        }
        true
    }

    /// Polls a stealable task that was just taken: one dispatch.
    pub(super) fn dispatch_stealable(&self, task: TaskRef) {
        let (sharing, state) = (&self.mine.sharing, &task.header().state);
        if state.take_active().is_aborted() {
            // SAFETY: the caller has the task, and it has not ended.
            return unsafe { Self::cancel_stealable(task) };
        }
        // SAFETY: the scheduler's reference outlives the poll, so this one counts nothing and is
        // never dropped.
        let waker = ManuallyDrop::new(unsafe { waker_of(task) });
        sharing.polled.set(Some(task));
        sharing.woke_itself.set(false);
        // SAFETY: the caller has the task, so nobody else polls it; what is taken has not ended.
        let polled = unsafe { task.poll(&mut Context::from_waker(&waker)) };
        sharing.polled.set(None);
        if polled == Poll::Ready(()) {
            Self::finish_stealable(task);
        } else if sharing.woke_itself.get() || state.retire() == Retired::Woken {
            let seat = sharing.seat().expect("a worker that ticks has not left its team");
            // SAFETY: the owner of the seat, who has the task. No call for help: it is served here
            // in its turn, and what is too much for one worker is shared at the next tick.
            unsafe { seat.queue.push(task) };
        }
    }

    /// The front of the local lane, if it is a stealable task.
    #[inline]
    pub(super) fn next_shared(&self) -> Option<TaskRef> {
        let queue = &self.mine.sharing.seat()?.queue;
        // SAFETY: by the owner of the seat.
        unsafe {
            match self.mine.local.front() {
                None => queue.pop(),
                Some(pinned) => queue.pop_before(pinned.header().ticket.get()),
            }
        }
    }

    /// At a look at the clock: searches, if the team has called, and calls for help if there is more
    /// than this worker does next.
    pub(crate) fn keep_up_with_team(&self) {
        let sharing = &self.mine.sharing;
        if sharing.called.take() {
            self.steal();
            self.crew().end_search();
        }
        if sharing.waiting() + usize::from(!self.mine.local.is_empty()) > 1
            && self.crew().could_help()
        {
            self.crew().call_for_help();
        }
    }

    /// Takes over tasks of other members, when this one has nothing to do. How many.
    #[inline(never)]
    pub(crate) fn steal(&self) -> usize {
        if self.mine.sharing.seat().is_none() {
            return 0;
        }
        let membership = self.membership.get().expect("who has a seat is a member");
        // SAFETY: by the owner of the seat.
        let stolen = unsafe { membership.crew.steal_for(membership.seat) };
        self.counts.steals.add(stolen);
        stolen
    }

    /// Says that the worker idles, before its last look.
    pub(super) fn announce_idle(&self) {
        if let Some(membership) = self.membership.get() {
            membership.crew.announce_idle(membership.seat);
        }
    }

    /// The worker goes on.
    pub(super) fn retract_idle(&self) {
        if let Some(membership) = self.membership.get()
            && membership.crew.retract_idle(membership.seat) == Call::Pending
        {
            self.mine.sharing.called.set(true);
        }
    }

    /// Whether another member has something to steal, or this one was called to look for it and has
    /// not yet: until then nobody else can be called.
    pub(crate) fn could_steal(&self) -> bool {
        self.mine.sharing.called.get()
            || self.membership.get().is_some_and(|membership| membership.crew.has_work())
    }
}

/// Why a worker can't join a team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinTeamError {
    InATeam,
    NoSeat,
}
