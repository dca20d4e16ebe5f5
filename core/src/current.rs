#![forbid(unsafe_code)]
//! The worker that ticks on this thread, for who has no handle of it: a thin look-up.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;

use crate::service::context;
use crate::service::home::Home;
use crate::service::in_flight::InFlight;
use crate::service::join::{JoinHandle, stealable_of, task_of};
use crate::service::slot_timer::Set;
use crate::task::state::State;
use crate::time::Instant;
use crate::timers::{MissedTicks, ZeroPeriod};

/// Asks the worker that ticks on this thread.
///
/// # Panics
/// If there is none.
#[track_caller]
fn ask<U>(what: impl FnOnce(&Home) -> U) -> U {
    context::with_ticking(what).expect(
        "no worker ticks on this thread: call this from inside a task, or use the worker's handle",
    )
}

/// The time on the clock of the worker that ticks on this thread.
///
/// # Panics
/// If no worker ticks on this thread.
#[must_use]
#[track_caller]
pub fn now() -> Instant {
    ask(Home::now)
}

/// Spawns a pinned task on the worker that ticks on this thread, as
/// [`Handle::spawn`](crate::Handle::spawn) does.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), evenkeel::testing::SimError> {
/// # use evenkeel::testing::{SimReactor, VirtualClock};
/// # use evenkeel::{Worker, WorkerConfig};
/// # let clock = VirtualClock::new();
/// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
/// let outer = worker.handle().spawn(async {
///     let inner = evenkeel::spawn(async { 6 * 7 });
///     assert_eq!(inner.await.unwrap(), 42);
/// });
/// # while !outer.is_finished() {
/// #     worker.tick()?;
/// # }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
///
/// # Panics
/// If no worker ticks on this thread.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    ask(|home| {
        let (task, handle) = task_of(home.reference(), future, State::spawned_here());
        home.adopt_and_queue(task);
        handle
    })
}

/// Spawns a task that other workers of the team may steal, as
/// [`Handle::spawn_stealable`](crate::Handle::spawn_stealable) does. On a worker that is in no team
/// nobody steals it.
///
/// # Panics
/// If no worker ticks on this thread.
#[track_caller]
pub fn spawn_stealable<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if ask(Home::is_in_team) {
        ask(|home| {
            let (task, handle) = stealable_of(home.reference(), future);
            home.take_in_and_queue_stealable(task);
            handle
        })
    } else {
        spawn(future)
    }
}

/// A future that is ready so long after now, at the earliest, and may move from worker to worker:
/// see [`StealableSleep`]. Too long a span is never over.
///
/// # Panics
/// If no worker ticks on this thread: its clock is the one that tells what now is.
#[track_caller]
pub fn sleep(span: Duration) -> StealableSleep {
    sleep_until(now() + span)
}

/// A future that is ready at this time, at the earliest, and may move from worker to worker: see
/// [`StealableSleep`]. The time is one of the worker's clock, as [`now`] tells it.
pub fn sleep_until(deadline: Instant) -> StealableSleep {
    StealableSleep { deadline, stage: Stage::Unset }
}

/// A sleep for tasks that may be stolen. Unlike the one of a [`Handle`](crate::Handle) it is `Send`,
/// and may be polled and dropped on any thread.
///
/// Its timer stands in a slot of the worker on which it is first polled, among that worker's
/// operations in flight; if that worker ends first, it is set anew where it is polled then. It
/// allocates nothing, and makes no system call but to wake a worker that is parked: the owner of its
/// slot, when it is dropped elsewhere. The clocks of all workers that it may come to must have one
/// origin, as [`MonotonicClock`](crate::MonotonicClock) has.
///
/// It gives way at least once. Once ready it stays so.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use evenkeel::testing::{SimReactor, VirtualClock};
/// # use evenkeel::{Team, Worker, WorkerConfig};
/// # use std::time::Duration;
/// # let clock = VirtualClock::new();
/// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
/// # let team = Team::new(1)?;
/// # worker.join(&team)?;
/// let task = team.spawn(async { evenkeel::sleep(Duration::from_millis(5)).await })?;
/// # while !task.is_finished() {
/// #     if worker.tick()?.rest == evenkeel::Rest::Idle && !task.is_finished() {
/// #         worker.park(evenkeel::Wait::Forever)?;
/// #     }
/// # }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
///
/// # Errors
/// See [`SleepError`].
#[must_use = "a future does nothing until it is awaited"]
pub struct StealableSleep {
    deadline: Instant,
    stage: Stage,
}

enum Stage {
    /// The next poll sets it.
    Unset,
    Set(InFlight),
    Over,
}

/// Why a [`StealableSleep`] can't wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SleepError {
    /// As many operations and timers are in flight as the worker has room for.
    NoRoom {
        /// How many there is room for.
        capacity: usize,
    },
    /// It was polled where no worker ticks, or where one is at its end.
    NoWorker,
}

impl fmt::Display for SleepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom { capacity } => write!(
                f,
                "all {capacity} operations and timers of the worker are in flight; await one of \
                 them, or give the worker more room"
            ),
            Self::NoWorker => f.write_str(
                "the sleep was polled where no worker ticks, so nobody could wake it; await it in a \
                 task",
            ),
        }
    }
}

impl core::error::Error for SleepError {}

impl StealableSleep {
    /// When it is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for StealableSleep {
    type Output = Result<(), SleepError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Ready(Ok(())),
                Stage::Set(in_flight) => match Pin::new(in_flight).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(_)) => self.stage = Stage::Over,
                    // The worker that was to wake it has ended.
                    Poll::Ready(Err(_)) => self.stage = Stage::Unset,
                },
                Stage::Unset => {
                    let deadline = self.deadline;
                    match context::with_ticking(|home| home.set_timer(deadline)) {
                        Some(Set::Waits(in_flight)) => self.stage = Stage::Set(in_flight),
                        Some(Set::NoRoom(capacity)) => {
                            return Poll::Ready(Err(SleepError::NoRoom { capacity }));
                        }
                        Some(Set::Ending) | None => return Poll::Ready(Err(SleepError::NoWorker)),
                    }
                }
            }
        }
    }
}

impl fmt::Debug for StealableSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StealableSleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Why there is no output of a future that was given a [`timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TimeoutError {
    /// The time was over before the future was ready.
    Elapsed,
    /// There was no way to wait for that.
    Sleep(SleepError),
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elapsed => f.write_str("the deadline passed before the future was ready"),
            Self::Sleep(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for TimeoutError {}

/// Gives a future so much time, counted from now; it may move from worker to worker. Each poll asks
/// the future first: if it is ready its output counts, however late it is.
///
/// # Errors
/// If the time is over first, or its timer can't be set.
///
/// # Panics
/// If no worker ticks on this thread: its clock is the one that tells what now is.
#[track_caller]
pub fn timeout<F: Future>(
    span: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, TimeoutError>> {
    let mut sleep = sleep(span);
    async move {
        let mut future = pin!(future);
        poll_fn(move |context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut sleep).poll(context).map(|over| match over {
                Ok(()) => Err(TimeoutError::Elapsed),
                Err(error) => Err(TimeoutError::Sleep(error)),
            })
        })
        .await
    }
}

/// A tick each period, the first of them one period after now, which may move from worker to
/// worker: see [`StealableInterval`].
///
/// # Errors
/// If the period is zero.
///
/// # Panics
/// If no worker ticks on this thread: its clock is the one that tells what now is.
#[track_caller]
pub fn interval(period: Duration) -> Result<StealableInterval, ZeroPeriod> {
    if period.is_zero() {
        return Err(ZeroPeriod);
    }
    let next = now() + period;
    Ok(StealableInterval { sleep: sleep_until(next), period, missed: MissedTicks::default() })
}

/// An interval for tasks that may be stolen: like [`Interval`](crate::timers::Interval), but `Send`.
#[derive(Debug)]
pub struct StealableInterval {
    sleep: StealableSleep,
    period: Duration,
    missed: MissedTicks,
}

impl StealableInterval {
    /// The same, with another answer to missed ticks.
    #[must_use]
    pub fn missed_ticks(self, missed: MissedTicks) -> Self {
        Self { missed, ..self }
    }

    /// Waits for the next tick. Gives the time at which it was due, which may be before now. If the
    /// future is dropped before it is ready, no tick is lost.
    ///
    /// # Errors
    /// See [`SleepError`].
    ///
    /// # Panics
    /// If it becomes ready where no worker ticks.
    pub async fn tick(&mut self) -> Result<Instant, SleepError> {
        (&mut self.sleep).await?;
        let due = self.sleep.deadline();
        self.sleep = sleep_until(self.missed.next(due, now(), self.period));
        Ok(due)
    }
}
