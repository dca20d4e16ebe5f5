#![forbid(unsafe_code)]
//! The future that gives way once.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

/// Gives way once: the task goes to the back of its worker's local lane.
///
/// Costs no system call, allocates nothing, and inside the task's own worker no atomic
/// read-modify-write either. Any thread, any executor.
///
/// ```
/// # use evenkeel::yield_now;
/// async fn long_sum(numbers: &[u64]) -> u64 {
///     let mut sum = 0;
///     for chunk in numbers.chunks(1000) {
///         sum += chunk.iter().sum::<u64>();
///         yield_now().await; // whoever waits is served before the next thousand
///     }
///     sum
/// }
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { turn: Turn::Give }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub struct YieldNow {
    turn: Turn,
}

#[derive(Debug)]
enum Turn {
    Give,
    Given,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.turn {
            Turn::Give => {
                self.turn = Turn::Given;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Turn::Given => Poll::Ready(()),
        }
    }
}
