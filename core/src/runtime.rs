#![forbid(unsafe_code)]
//! A worker on a thread of its own.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::handle::Remote;
use crate::reactor::Reactor;
use crate::team::Team;
use crate::time::MonotonicClock;
use crate::worker::{Worker, WorkerConfig};

/// What a worker's thread is started with.
#[derive(Clone, Debug)]
pub struct ThreadConfig {
    /// The thread's name.
    pub name: String,
    /// What the worker is made with.
    pub worker: WorkerConfig,
    /// How long to wait for the thread to have made its reactor: 10 s unless said.
    pub timeout: Duration,
}

impl Default for ThreadConfig {
    fn default() -> Self {
        Self {
            name: "evenkeel-worker".into(),
            worker: WorkerConfig::default(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Why there is no worker on a thread.
#[derive(Debug)]
pub enum StartError<E> {
    /// The system gave no thread.
    Thread(io::Error),
    /// The reactor could not be made.
    Reactor(E),
    /// The thread has not made its reactor in time. It ends as soon as it has.
    TimedOut(Duration),
    /// The thread panicked while it made the reactor.
    Panicked,
}

impl<E: fmt::Display> fmt::Display for StartError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "the system gave no thread for the worker: {error}"),
            Self::Reactor(error) => write!(f, "the worker's reactor could not be made: {error}"),
            Self::TimedOut(bound) => {
                write!(f, "the worker's thread did not make its reactor within {bound:?}")
            }
            Self::Panicked => f.write_str("the worker's thread panicked while it made its reactor"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for StartError<E> {}

/// Why a worker's thread did not end well.
#[derive(Debug)]
pub enum StopError<E> {
    /// The reactor failed, at some time, in a way that it could not mend.
    Reactor(E),
    /// The worker has not ended in time: a task of it does not give way. The thread is left to
    /// itself, and so is all that its tasks hold.
    TimedOut(Duration),
    /// The worker has ended, but so many operations could not be taken back from the kernel in time.
    /// What they hold, such as buffers, is left to it for good.
    #[cfg(feature = "io")]
    Leaked(usize),
    /// The thread panicked.
    Panicked,
}

impl<E: fmt::Display> fmt::Display for StopError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reactor(error) => write!(f, "the worker's reactor failed: {error}"),
            Self::TimedOut(bound) => write!(
                f,
                "the worker did not end within {bound:?}; a task of it does not give way, and its \
                 thread is left to itself"
            ),
            #[cfg(feature = "io")]
            Self::Leaked(operations) => write!(
                f,
                "the worker ended while {operations} operations were still in the kernel's hands; \
                 their buffers are left to it and never freed; let operations end before the \
                 worker, or give it more time (WorkerConfig::drain)"
            ),
            Self::Panicked => f.write_str("the worker's thread panicked"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for StopError<E> {}

/// A worker on a thread of its own, over a reactor that is made there.
///
/// Dropping it asks the worker to end, and does not wait.
///
/// ```
/// # #[cfg(feature = "testing")]
/// use evenkeel::testing::{SimReactor, VirtualClock};
/// use evenkeel::{ThreadConfig, WorkerThread};
/// use std::time::Duration;
///
/// # #[derive(Debug)] enum Never {}
/// # impl std::fmt::Display for Never {
/// #     fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) }
/// # }
/// # impl std::error::Error for Never {}
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let make_reactor = || Ok::<_, Never>(SimReactor::new(&VirtualClock::new()).waits_for_real());
/// let worker = WorkerThread::start(ThreadConfig::default(), make_reactor)?;
/// let task = worker.remote().spawn(async { 6 * 7 });
/// assert_eq!(task.wait_within(Duration::from_secs(1)).unwrap()?, 42);
/// // What has not ended is cancelled.
/// worker.stop_within(Duration::from_secs(2))?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct WorkerThread<R: Reactor + 'static> {
    remote: Remote<R>,
    ended: mpsc::Receiver<Result<(), R::Error>>,
    /// There until somebody has waited for it.
    thread: Option<thread::JoinHandle<()>>,
}

impl<R: Reactor + 'static> Drop for WorkerThread<R> {
    fn drop(&mut self) {
        self.remote.stop();
    }
}

impl<R: Reactor + 'static> WorkerThread<R>
where
    R::Error: Send,
{
    /// Starts a thread that makes a reactor and runs a worker over it. Waits for the reactor, at
    /// most as long as the configuration says.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start<E, Make>(config: ThreadConfig, make_reactor: Make) -> Result<Self, StartError<E>>
    where
        E: Send + 'static,
        Make: FnOnce() -> Result<R, E> + Send + 'static,
    {
        Self::start_in(config, None, make_reactor)
    }

    /// The same, in a team that has room.
    pub(crate) fn start_in<E, Make>(
        config: ThreadConfig,
        team: Option<Team>,
        make_reactor: Make,
    ) -> Result<Self, StartError<E>>
    where
        E: Send + 'static,
        Make: FnOnce() -> Result<R, E> + Send + 'static,
    {
        if config.name.contains('\0') {
            let why = "a thread's name must not contain a null byte";
            return Err(StartError::Thread(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        // Without room: what is sent has been received, so that no worker runs for a caller that
        // has just given up.
        let (started, start) = mpsc::sync_channel(0);
        let (end, ended) = mpsc::sync_channel(1);
        let body = move || {
            let reactor = match make_reactor() {
                Ok(reactor) => reactor,
                Err(error) => return drop(started.send(Err(error))),
            };
            let mut worker = Worker::new(reactor, MonotonicClock::new(), config.worker);
            // It has room for this worker, unless it came so late that the others have left.
            if team.is_some_and(|team| worker.join(&team).is_err()) {
                return;
            }
            if started.send(Ok(worker.remote())).is_err() {
                return; // Nobody waits for it any more.
            }
            let result = worker.run();
            drop(worker);
            // Nobody may be waiting for the end.
            let _ = end.send(result);
        };
        let thread =
            thread::Builder::new().name(config.name).spawn(body).map_err(StartError::Thread)?;
        match start.recv_timeout(config.timeout) {
            Ok(Ok(remote)) => Ok(Self { remote, ended, thread: Some(thread) }),
            Ok(Err(error)) => {
                // It has sent its last word: what is left is the end of the thread itself.
                let _ = thread.join();
                Err(StartError::Reactor(error))
            }
            Err(RecvTimeoutError::Timeout) => Err(StartError::TimedOut(config.timeout)),
            Err(RecvTimeoutError::Disconnected) => {
                let _ = thread.join();
                Err(StartError::Panicked)
            }
        }
    }

    /// The handle for all other threads.
    #[must_use]
    pub fn remote(&self) -> &Remote<R> {
        &self.remote
    }

    /// Asks the worker to end and waits until it has, at most so long, and then for the end of its
    /// thread: for the destructors of thread-locals that its tasks have used, if any.
    ///
    /// # Errors
    /// See [`StopError`].
    pub fn stop_within(mut self, bound: Duration) -> Result<(), StopError<R::Error>> {
        self.remote.stop();
        let result = match self.ended.recv_timeout(bound) {
            Err(RecvTimeoutError::Timeout) => return Err(StopError::TimedOut(bound)),
            Ok(result) => result.map_err(StopError::Reactor),
            Err(RecvTimeoutError::Disconnected) => Err(StopError::Panicked),
        };
        // It has sent its last word: what is left is the end of the thread itself.
        match self.thread.take().map(thread::JoinHandle::join) {
            Some(Err(_)) => Err(StopError::Panicked),
            #[cfg(feature = "io")]
            Some(Ok(())) | None if result.is_ok() && self.remote.leaked() > 0 => {
                Err(StopError::Leaked(self.remote.leaked()))
            }
            Some(Ok(())) | None => result,
        }
    }
}
