#![forbid(unsafe_code)]
//! The timer that goes on.

use core::fmt;
use core::future::Future;
use core::num::NonZeroU64;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use pin_project_lite::pin_project;

use super::queue::Timers;
use super::sleep::Sleep;
use crate::time::{Clock, Instant};

pin_project! {
    /// A tick each period: made by [`Timers::interval`] and [`Timers::interval_at`].
    ///
    /// The ticks are due at *first* + *k* · *period*, exactly: a tick that is taken late does not
    /// move the others, unless [`MissedTicks::Delay`] asks for it. What happens to ticks that
    /// became due before the one ahead of them was taken, [`MissedTicks`] says. None comes early,
    /// and between any two the task gives way at least once. Beyond [`Instant::FAR_FUTURE`] there
    /// are none. Allocates nothing.
    ///
    /// ```
    /// use core::cell::Cell;
    /// use core::future::Future;
    /// use core::pin::pin;
    /// use core::task::{Context, Poll, Waker};
    /// use core::time::Duration;
    /// use evenkeel::timers::{Timed, TimerQueue, Timers};
    /// use evenkeel::{Clock, Instant};
    ///
    /// # struct Nanos(Cell<u64>);
    /// # impl Clock for Nanos {
    /// #     fn now(&self) -> Instant { Instant::from_nanos(self.0.get()) }
    /// # }
    /// let (queue, clock) = (TimerQueue::new(), Nanos(Cell::new(0)));
    /// let period = Duration::from_nanos(100);
    /// let mut interval = pin!(Timed::new(&queue, &clock).interval(period)?);
    ///
    /// let context = &mut Context::from_waker(Waker::noop());
    /// let mut tick_at = |now| {
    ///     assert!(interval.as_mut().poll_tick(context).is_pending());
    ///     clock.0.set(now);
    ///     assert_eq!(queue.expire(clock.now(), 64, Waker::wake).fired, 1);
    ///     interval.as_mut().poll_tick(context)
    /// };
    /// assert_eq!(tick_at(130), Poll::Ready(Instant::from_nanos(100)));
    /// assert_eq!(tick_at(200), Poll::Ready(Instant::from_nanos(200)));
    /// assert_eq!(tick_at(777), Poll::Ready(Instant::from_nanos(300))); // and skips four
    /// assert_eq!(tick_at(801), Poll::Ready(Instant::from_nanos(800)));
    /// # Ok::<(), evenkeel::timers::ZeroPeriod>(())
    /// ```
    pub struct Interval<Q: Timers> {
        #[pin]
        sleep: Sleep<Q>,
        nanos: NonZeroU64,
        missed: MissedTicks,
    }
}

/// What becomes of ticks that are due before the one ahead of them was taken. With *due* the time
/// at which a tick was due, and *now* the time at which it is taken, the next one is due at:
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MissedTicks {
    /// *due* + *period*. None is left out: each that was missed comes at once, one after another.
    Burst,
    /// The first of *due* + *k* · *period* that is after *now*. What was missed is left out, and
    /// the ticks stay where they would have been; one that is due just *now* is left out too.
    #[default]
    Skip,
    /// *now* + *period*. There is never less than a period between one tick and the next, and so
    /// they drift: all those to come move with each that is taken late.
    Delay,
}

/// An interval without length: ticks would come without end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroPeriod;

impl fmt::Display for ZeroPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an interval needs a period of at least a nanosecond; to give way, yield")
    }
}

impl core::error::Error for ZeroPeriod {}

impl MissedTicks {
    /// When the next tick is due. A period of zero is one of a nanosecond.
    pub(crate) fn next(self, due: Instant, now: Instant, period: Duration) -> Instant {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1);
        // A queue that is expired by another clock than the handle's may be ahead of it.
        let now = now.max(due);
        match self {
            Self::Burst => due + period,
            Self::Skip => {
                let since_the_last = now.nanos_since(due) % nanos;
                Instant::from_nanos(now.as_nanos() - since_the_last) + period
            }
            Self::Delay => now + period,
        }
    }
}

impl<Q: Timers + Clock> Interval<Q> {
    /// The first tick is when the sleep is over. A period beyond 2^64 nanoseconds is never over.
    ///
    /// # Errors
    /// If the period is zero.
    pub fn new(first: Sleep<Q>, period: Duration) -> Result<Self, ZeroPeriod> {
        let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let nanos = NonZeroU64::new(nanos).ok_or(ZeroPeriod)?;
        Ok(Self { sleep: first, nanos, missed: MissedTicks::default() })
    }

    /// The same, with another answer to missed ticks.
    #[must_use]
    pub fn missed_ticks(self, missed: MissedTicks) -> Self {
        Self { missed, ..self }
    }

    /// Waits for the next tick. Gives the time at which it was due, which may be before now. If the
    /// future is dropped before it is ready, no tick is lost.
    pub fn tick(self: Pin<&mut Self>) -> NextTick<'_, Q> {
        NextTick { interval: self }
    }

    /// The same, for who polls.
    pub fn poll_tick(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Instant> {
        let mut this = self.project();
        ready!(this.sleep.as_mut().poll(context));
        let (due, now) = (this.sleep.deadline(), this.sleep.handle().now());
        this.sleep.reset(this.missed.next(due, now, Duration::from_nanos(this.nanos.get())));
        Poll::Ready(due)
    }
}

impl<Q: Timers> Interval<Q> {
    /// When the next tick is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.sleep.deadline()
    }
}

impl<Q: Timers> fmt::Debug for Interval<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interval")
            .field("sleep", &self.sleep)
            .field("nanos", &self.nanos)
            .field("missed", &self.missed)
            .finish()
    }
}

/// The future of [`Interval::tick`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct NextTick<'a, Q: Timers> {
    interval: Pin<&'a mut Interval<Q>>,
}

impl<Q: Timers + Clock> Future for NextTick<'_, Q> {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Instant> {
        self.interval.as_mut().poll_tick(context)
    }
}
