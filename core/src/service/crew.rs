//! What the workers of a team share: their queues of stealable tasks, who of them idles, and the
//! list of all stealable tasks, which says what to drop when the last worker ends.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::service::home::{Home, drop_reference};
use crate::service::home_ref::HomeRef;
use crate::service::idle::{Call, Idle, MOST_MEMBERS};
use crate::steal::{Haul, StealQueue};
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};
use crate::task::TaskRef;
use crate::task::header::Custody;
use crate::task::list::TaskList;
use crate::task::state::Activated;

/// How many tasks of a worker can be stolen at a time. What does not fit waits behind them.
#[cfg(not(loom))]
const CAPACITY: usize = 256;
#[cfg(loom)]
const CAPACITY: usize = 2;

/// What the workers of a team share.
pub(crate) struct Crew {
    seats: Box<[CachePadded<Seat>]>,
    idle: CachePadded<Idle>,
    /// Whom the next submission from outside goes to, if nobody idles.
    turn: AtomicUsize,
    register: Mutex<Register>,
}

/// A member's place.
pub(crate) struct Seat {
    /// The member's stealable tasks; the member alone pushes and pops.
    pub(crate) queue: StealQueue<TaskRef, CAPACITY>,
    /// Who sits here.
    member: Mutex<Option<HomeRef>>,
}

struct Register {
    /// How many seats have been taken.
    taken: usize,
    /// How many members are there.
    present: usize,
    stage: Stage,
    /// All stealable tasks that have not ended.
    tasks: TaskList,
}

/// Whether a task was taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enrolled {
    Yes,
    /// The last member has left: the task is to be ended.
    TooLate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Tasks are taken in.
    Open,
    /// The last member has left.
    Ended,
}

// SAFETY: the tasks in the register are reached under its lock, or by whoever has them.
unsafe impl Send for Register {}

/// A worker's part in its team.
pub(crate) struct Membership {
    pub(crate) crew: Arc<Crew>,
    pub(crate) seat: usize,
}

/// All seats of a team are taken, or were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoSeat;

impl Crew {
    /// # Panics
    /// If there are no members, or more than [`MOST_MEMBERS`].
    pub(crate) fn new(members: usize) -> Self {
        assert!((1..=MOST_MEMBERS).contains(&members), "the team's size was checked");
        let seat =
            |_| CachePadded::new(Seat { queue: StealQueue::new(), member: Mutex::new(None) });
        let register =
            Register { taken: 0, present: 0, stage: Stage::Open, tasks: TaskList::new() };
        Self {
            seats: (0..members).map(seat).collect(),
            idle: CachePadded::new(Idle::new()),
            turn: AtomicUsize::new(0),
            register: Mutex::new(register),
        }
    }

    pub(crate) fn seat(&self, index: usize) -> &Seat {
        &self.seats[index]
    }

    /// Takes a seat for a worker, for good. It is told which before anybody finds it there.
    ///
    /// All under the lock: who leaves meanwhile finds the newcomer, or is the last.
    pub(crate) fn join(&self, home: HomeRef, tell: impl FnOnce(usize)) -> Result<(), NoSeat> {
        let mut register = lock(&self.register);
        let index = register.taken;
        if index == self.seats.len() || register.stage == Stage::Ended {
            return Err(NoSeat);
        }
        register.taken += 1;
        register.present += 1;
        tell(index);
        *lock(&self.seats[index].member) = Some(home);
        Ok(())
    }

    /// By a member that ends, before its inbox is closed. What it has not done others do, if there
    /// are any.
    pub(crate) fn leave(&self, home: &Home, index: usize) {
        *lock(&self.seats[index].member) = None;
        let stage = {
            let mut register = lock(&self.register);
            register.present -= 1;
            if register.present == 0 {
                register.stage = Stage::Ended;
            }
            register.stage
        };
        // SAFETY: by the owner of the seat.
        while let Some(task) = unsafe { self.seats[index].queue.pop() } {
            self.hand_to_anybody(task);
        }
        // The pinned ones among them end with the worker, which has them in a list.
        while let Some(task) = home.next_io() {
            if task.header().custody() == Custody::Stealable {
                self.hand_to_anybody(task);
            }
        }
        if stage == Stage::Ended {
            self.cancel_all();
        }
    }

    /// Puts a task into some member's inbox, or ends it if nobody is left. The caller has the task.
    pub(crate) fn hand_to_anybody(&self, task: TaskRef) {
        match self.anybody() {
            Some(home) => home.hand_over(task),
            // SAFETY: the caller has it, and it has not ended.
            None => unsafe { Home::cancel_stealable(task) },
        }
    }

    /// A member: one that idles, if there is one, else each in turn.
    pub(crate) fn anybody(&self) -> Option<HomeRef> {
        // Ordering: Relaxed, a turn orders nothing.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let seats = self.seats.len();
        // Within the seats before anything is added: a turn may be the last number there is.
        let first = self.idle.somebody().unwrap_or(turn) % seats;
        (0..seats).find_map(|next| lock(&self.seats[(first + next) % seats].member).clone())
    }

    /// Adds a task that was just made.
    pub(crate) fn enroll(&self, task: TaskRef) -> Enrolled {
        let register = lock(&self.register);
        if register.stage == Stage::Ended {
            return Enrolled::TooLate;
        }
        register.tasks.add(task);
        Enrolled::Yes
    }

    /// Removes a task that has ended.
    pub(crate) fn strike(&self, task: TaskRef) {
        lock(&self.register).tasks.remove(task);
    }

    /// The last member has left: nobody polls any more, and what waits will not be woken.
    fn cancel_all(&self) {
        while let Some(task) = self.strike_one() {
            // Who has it, if somebody has, finds everybody gone, and ends it.
            if task.header().state.activate_and_abort() == Activated::Owed {
                // SAFETY: it was idle, so it is the caller's now, and it has not ended.
                unsafe { Home::cancel_stealable(task) };
            }
            // SAFETY: the reference that `strike_one` has counted.
            unsafe { drop_reference(task) };
        }
    }

    /// Takes one task out of the register, with a reference counted.
    fn strike_one(&self) -> Option<TaskRef> {
        let register = lock(&self.register);
        let task = register.tasks.first()?;
        register.tasks.remove(task);
        // Under the lock: who ends it comes here before giving up the scheduler's reference.
        task.header().state.add_reference();
        Some(task)
    }

    /// Whether a task waits in some member's queue.
    pub(crate) fn has_work(&self) -> bool {
        self.seats.iter().any(|seat| seat.queue.has_stealable())
    }

    /// Takes over some of another member's tasks, half of what can be stolen from the first that
    /// has any. Looks at each once.
    ///
    /// # Safety
    /// By the owner of the seat.
    pub(crate) unsafe fn steal_for(&self, index: usize) -> usize {
        let (own, count) = (&self.seats[index].queue, self.seats.len());
        let victims = (1..count).map(|next| &self.seats[(index + next) % count].queue);
        let mut hauls = victims.map(|victim| {
            // SAFETY: passed on to the caller.
            match unsafe { victim.steal_half(own) } {
                Haul::Moved(count) => count.get(),
                Haul::Empty | Haul::Contended => 0,
            }
        });
        hauls.find(|&stolen| stolen > 0).unwrap_or(0)
    }

    /// By a member: it idles, unless its last look, after this, finds something.
    pub(crate) fn announce_idle(&self, member: usize) {
        self.idle.announce(member);
    }

    /// By a member that goes on.
    pub(crate) fn retract_idle(&self, member: usize) -> Call {
        self.idle.retract(member)
    }

    /// By a member that was called, when it has searched. Who has pushed meanwhile has called
    /// nobody, and what the search left may be more than one can do.
    pub(crate) fn end_search(&self) {
        self.idle.end_search();
        if self.has_work() {
            self.call_for_help();
        }
    }

    /// Whether a call for help would wake somebody, for who looks again soon.
    pub(crate) fn could_help(&self) -> bool {
        self.idle.could_be_called()
    }

    /// By who has made a task runnable: wakes one member that idles, unless one searches already.
    pub(crate) fn call_for_help(&self) {
        let Some(member) = self.idle.call() else { return };
        let home = lock(&self.seats[member].member).clone();
        // Who has left meanwhile ends the search all the same.
        if let Some(home) = home {
            home.tell();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::task::Waker;

    use super::*;
    use crate::service::context::Identity;

    #[test]
    fn a_member_is_found_where_the_turns_wrap() {
        let crew = Arc::new(Crew::new(3));
        let homes = [(), (), ()].map(|()| {
            let home = Home::counted(Waker::noop().clone(), 0, Identity::new(None));
            Home::join_team(&home, &crew).unwrap();
            home
        });
        // One of each three turns begins at the one who stays.
        homes[..2].iter().for_each(|home| home.close(|| ()));
        crew.turn.store(usize::MAX - 3, Ordering::Relaxed);
        for _ in 0..6 {
            assert!(crew.anybody().is_some());
        }
        homes[2].close(|| ());
        assert!(crew.anybody().is_none());
    }
}
