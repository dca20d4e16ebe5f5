#![forbid(unsafe_code)]
//! A team of workers, each on a thread of its own.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::handle::Remote;
use crate::reactor::Reactor;
use crate::runtime::{StartError, StopError, ThreadConfig, WorkerThread};
use crate::service::join::JoinHandle;
use crate::team::{NoWorker, Team, TeamError};

/// What a team of threads is started with.
#[derive(Clone, Debug)]
pub struct TeamConfig {
    /// How many workers, each on a thread of its own: as many as the system says can run at once,
    /// unless said.
    pub workers: usize,
    /// What each is started with. The threads' names are this one's, with a number.
    pub thread: ThreadConfig,
}

impl Default for TeamConfig {
    fn default() -> Self {
        let workers = std::thread::available_parallelism().map_or(1, Into::into);
        Self { workers: workers.min(Team::MOST_WORKERS), thread: ThreadConfig::default() }
    }
}

/// Why there is no team of threads.
#[derive(Debug)]
#[non_exhaustive]
pub enum TeamStartError<E> {
    /// The team can't be made.
    Team(TeamError),
    /// One of the threads could not be started; those before it have been asked to end.
    Thread(StartError<E>),
}

impl<E: fmt::Display> fmt::Display for TeamStartError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Team(error) => error.fmt(f),
            Self::Thread(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for TeamStartError<E> {}

/// A team of workers, each on a thread of its own, over a reactor that is made there.
///
/// Dropping it asks the workers to end, and does not wait.
///
/// ```
/// # #[cfg(feature = "testing")]
/// use evenkeel::testing::{SimReactor, VirtualClock};
/// use evenkeel::{TeamConfig, TeamThreads};
/// use std::time::Duration;
///
/// # #[derive(Debug)] enum Never {}
/// # impl std::fmt::Display for Never {
/// #     fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) }
/// # }
/// # impl std::error::Error for Never {}
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let new_reactor = || Ok::<_, Never>(SimReactor::new(&VirtualClock::new()).waits_for_real());
/// let config = TeamConfig { workers: 2, ..TeamConfig::default() };
/// let team = TeamThreads::start(&config, move |_worker| new_reactor())?; // `EpollReactor::new()`, say
/// let task = team.spawn(async { 6 * 7 })?;
/// assert_eq!(task.wait_within(Duration::from_secs(1)).unwrap()?, 42);
/// // What has not ended is cancelled.
/// team.stop_within(Duration::from_secs(2))?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
pub struct TeamThreads<R: Reactor + 'static> {
    team: Team,
    threads: Vec<WorkerThread<R>>,
}

impl<R: Reactor + 'static> TeamThreads<R>
where
    R::Error: Send,
{
    /// Starts the threads, one after the other; each makes its reactor, told which worker it is,
    /// from 0. Waits for each as long as the configuration says.
    ///
    /// # Errors
    /// See [`TeamStartError`].
    pub fn start<E, Make>(
        config: &TeamConfig,
        make_reactor: Make,
    ) -> Result<Self, TeamStartError<E>>
    where
        E: Send + 'static,
        Make: Fn(usize) -> Result<R, E> + Clone + Send + 'static,
    {
        let team = Team::new(config.workers).map_err(TeamStartError::Team)?;
        let mut threads = Vec::with_capacity(config.workers);
        for number in 0..config.workers {
            let name = format!("{}-{number}", config.thread.name);
            let thread = ThreadConfig { name, ..config.thread.clone() };
            let make_reactor = make_reactor.clone();
            let started =
                WorkerThread::start_in(thread, Some(team.clone()), move || make_reactor(number));
            threads.push(started.map_err(TeamStartError::Thread)?);
        }
        Ok(Self { team, threads })
    }

    /// Submits a stealable task, as [`Team::spawn`].
    ///
    /// # Errors
    /// If all workers have ended. The future comes back.
    pub fn spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, NoWorker<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.team.spawn(future)
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The handles of its workers, for pinned tasks, and to ask how they are.
    pub fn remotes(&self) -> impl ExactSizeIterator<Item = &Remote<R>> {
        self.threads.iter().map(WorkerThread::remote)
    }

    /// Asks all workers to end and waits until they have, at most so long in all.
    ///
    /// # Errors
    /// The first worker's that did not end well; the others have been waited for all the same.
    pub fn stop_within(self, bound: Duration) -> Result<(), StopError<R::Error>> {
        let begun = Instant::now();
        self.remotes().for_each(Remote::stop);
        let stop = |thread: WorkerThread<R>| {
            thread.stop_within(bound.saturating_sub(begun.elapsed())).map_err(|error| {
                // What is said is the bound that was given, not what others have left of it.
                match error {
                    StopError::TimedOut(_) => StopError::TimedOut(bound),
                    error => error,
                }
            })
        };
        let results: Vec<_> = self.threads.into_iter().map(stop).collect();
        results.into_iter().collect()
    }
}

impl<R: Reactor + 'static> fmt::Debug for TeamThreads<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamThreads").field("workers", &self.threads.len()).finish_non_exhaustive()
    }
}
