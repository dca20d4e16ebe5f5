#![forbid(unsafe_code)]
//! Workers that share tasks: what one has too much of, another takes over when it has nothing to do.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::service::crew::Crew;
use crate::service::home::Home;
use crate::service::home_ref::HomeRef;
use crate::service::idle::MOST_MEMBERS;
use crate::service::join::{JoinHandle, stealable_of};
use crate::service::stealable::JoinTeamError;

/// What workers join that share their stealable tasks. Clones are the same team.
///
/// A stealable task is spawned by [`Handle::spawn_stealable`](crate::Handle::spawn_stealable) or
/// [`spawn`](Self::spawn). It stands in the local lane of the worker that woke it, in order of age
/// with that worker's pinned tasks, until that one dispatches it, or another, which has nothing to
/// do, steals it. A worker that makes a task runnable while others idle wakes one of them.
///
/// Woken from a thread that runs none of the team's workers, it goes to the inbox of the worker
/// that it was spawned to, and can't be stolen from there: that worker dispatches it in its remote
/// lane's turn.
///
/// A [`Handle`](crate::Handle) stays on its worker's thread, so a stealable task has none. For I/O it
/// asks a worker, by a [`Remote`](crate::Remote) that it takes along: `remote.spawn_with(|handle|
/// async move { … })`. For time there are [`sleep`](crate::sleep) and its like.
///
/// A worker that ends leaves its stealable tasks to the others. The last one ends them.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use evenkeel::testing::{SimReactor, VirtualClock};
/// use evenkeel::{Team, Worker, WorkerConfig};
///
/// let clock = VirtualClock::new();
/// let mut worker = || {
///     Worker::new(SimReactor::new(&clock), clock.clone(), WorkerConfig::default())
/// };
/// let (mut one, mut other) = (worker(), worker());
/// let team = Team::new(2)?;
/// one.join(&team)?;
/// other.join(&team)?;
///
/// // A task that does not give way: this one's next is the other's.
/// let tasks = [1, 2].map(|number| one.handle().spawn_stealable(async move { number }));
/// one.tick_at_most(std::num::NonZeroU32::MIN)?;
/// other.tick()?;
/// assert!(tasks.iter().all(|task| task.is_finished()));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone)]
pub struct Team {
    crew: Arc<Crew>,
}

/// Why there is no such team, or a worker is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TeamError {
    /// A team has 1 to [`Team::MOST_WORKERS`] workers; this is how many were asked for.
    Size(usize),
    /// As many workers as the team has room for have joined it, or the last of them has ended.
    Full,
    /// The worker is in a team already.
    InATeam,
}

impl fmt::Display for TeamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(
                f,
                "a team of {size} workers can't be made: it has 1 to {MOST_MEMBERS}; use several teams"
            ),
            Self::Full => f.write_str(
                "as many workers as the team has room for have joined it, or its last worker has \
                 ended; make a larger team, or a new one",
            ),
            Self::InATeam => f.write_str("the worker is in a team already, and stays in it"),
        }
    }
}

impl std::error::Error for TeamError {}

/// A team has no worker that could run a task: none has joined, or all have ended. The future
/// comes back.
pub struct NoWorker<F>(pub F);

impl<F> fmt::Debug for NoWorker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoWorker").finish_non_exhaustive()
    }
}

impl<F> fmt::Display for NoWorker<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the team has no worker: none has joined it, or all have ended")
    }
}

impl<F> std::error::Error for NoWorker<F> {}

impl Team {
    /// The most workers that a team can have.
    pub const MOST_WORKERS: usize = MOST_MEMBERS;

    /// A team with room for so many workers. Allocates their queues, about 2.5 KiB each.
    ///
    /// # Errors
    /// If there are to be none, or too many.
    pub fn new(workers: usize) -> Result<Self, TeamError> {
        if (1..=MOST_MEMBERS).contains(&workers) {
            Ok(Self { crew: Arc::new(Crew::new(workers)) })
        } else {
            Err(TeamError::Size(workers))
        }
    }

    pub(crate) fn take_in(&self, worker: &HomeRef) -> Result<(), TeamError> {
        Home::join_team(worker, &self.crew).map_err(|error| match error {
            JoinTeamError::InATeam => TeamError::InATeam,
            JoinTeamError::NoSeat => TeamError::Full,
        })
    }

    /// Submits a stealable task: to a worker that idles, if there is one, or else to each in turn.
    /// From inside a task of the team, to that task's own worker, which wakes one that idles.
    /// Any thread; one allocation, for future, header and output together. A system call only if
    /// the worker is parked.
    ///
    /// If the last worker ends first, the future is dropped and the handle's output is
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled).
    ///
    /// # Errors
    /// If no worker is there. The future comes back.
    pub fn spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, NoWorker<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let Some(home) = self.crew.anybody() else { return Err(NoWorker(future)) };
        let (task, handle) = stealable_of(home, future);
        Home::take_in_stealable(task);
        Ok(handle)
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom), feature = "testing"))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::testing::{SimReactor, VirtualClock};
    use crate::{Rest, Wait, Worker, WorkerConfig};

    type TestWorker = Worker<SimReactor, VirtualClock>;

    fn member(team: &Team, while_waiting: impl FnMut() + 'static) -> TestWorker {
        let clock = VirtualClock::new();
        let reactor = SimReactor::new(&clock).while_waiting(while_waiting);
        let mut worker = Worker::new(reactor, clock, WorkerConfig::default());
        worker.join(team).unwrap();
        worker
    }

    /// One who is busy, one who is called while it waits and then does something else, and one who
    /// idles after the `end` of that one: it is called too.
    fn a_call_gets_through(then: fn(), end: impl FnOnce(TestWorker) -> Option<TestWorker>) {
        let team = Team::new(3).unwrap();
        let mut busy = member(&team, || ());
        let spawns = || {
            let handle = busy.handle();
            move || drop(handle.spawn_stealable(async {}))
        };
        let (first, second) = (spawns(), spawns());
        let called = member(&team, move || {
            first();
            then();
        });
        let mut idle = member(&team, second);
        let _kept = end(called);
        busy.tick().unwrap();
        idle.park(Wait::Forever).unwrap();
        assert_eq!(idle.remote().stats().notifications, 1);
    }

    #[test]
    fn a_worker_that_is_stopped_and_kept_holds_up_no_call() {
        a_call_gets_through(
            || (),
            |mut called| {
                called.park(Wait::Forever).unwrap();
                called.remote().stop();
                assert_eq!(called.tick().unwrap().rest, Rest::Stopped);
                Some(called)
            },
        );
    }

    #[test]
    fn a_worker_whose_reactor_panics_holds_up_no_call() {
        a_call_gets_through(
            || panic!("as a reactor might"),
            |mut called| {
                catch_unwind(AssertUnwindSafe(|| called.park(Wait::Forever))).unwrap_err();
                None
            },
        );
    }
}
