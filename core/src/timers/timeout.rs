#![forbid(unsafe_code)]
//! The future that gives up.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::queue::Timers;
use super::sleep::Sleep;
use crate::time::Instant;

pin_project! {
    /// A future with a deadline: made by [`Timers::timeout`] and [`Timers::timeout_at`].
    ///
    /// Each poll asks the future first: if it is ready, its output counts, however late it is. With
    /// a deadline that has passed it is asked twice, and gives way once between. It is dropped with
    /// this, not when the deadline passes. The timer is set at the first poll at which the future
    /// is not ready. Allocates nothing.
    ///
    /// Polled again after it was ready, it polls the future again; after [`Elapsed`] that is
    /// allowed, and the future may still become ready.
    ///
    /// ```
    /// use core::future::{Future, pending, ready};
    /// use core::pin::pin;
    /// use core::task::{Context, Poll, Waker};
    /// use evenkeel::Instant;
    /// use evenkeel::timers::{Elapsed, TimerQueue, Timers};
    ///
    /// let (queue, deadline) = (TimerQueue::new(), Instant::from_nanos(20));
    /// let context = &mut Context::from_waker(Waker::noop());
    ///
    /// let answer = pin!(queue.timeout_at(deadline, ready(42)));
    /// assert_eq!(answer.poll(context), Poll::Ready(Ok(42)));
    ///
    /// let mut never = pin!(queue.timeout_at(deadline, pending::<u32>()));
    /// assert!(never.as_mut().poll(context).is_pending());
    /// assert_eq!(queue.expire(deadline, 64, Waker::wake).fired, 1);
    /// assert_eq!(never.poll(context), Poll::Ready(Err(Elapsed)));
    /// ```
    #[must_use = "a future does nothing until it is awaited"]
    pub struct Timeout<F, Q: Timers> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep<Q>,
    }
}

/// The deadline passed before the future was ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline passed before the future was ready")
    }
}

impl core::error::Error for Elapsed {}

impl<F: Future, Q: Timers> Timeout<F, Q> {
    /// The future, until the sleep is over.
    pub fn new(future: F, sleep: Sleep<Q>) -> Self {
        Self { future, sleep }
    }
}

impl<F, Q: Timers> Timeout<F, Q> {
    /// When it gives up.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.sleep.deadline()
    }
}

impl<F: Future, Q: Timers> Future for Timeout<F, Q> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll(context).map(|()| Err(Elapsed))
    }
}

impl<F, Q: Timers> fmt::Debug for Timeout<F, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("sleep", &self.sleep).finish_non_exhaustive()
    }
}
