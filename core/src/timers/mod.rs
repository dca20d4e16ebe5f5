//! Timers without an allocator: a queue, and the futures that wait in it.
//!
//! A [`TimerQueue`] is a piece that stands alone: whoever has a thread and a way to tell the time
//! calls [`expire`](TimerQueue::expire) now and then, and has [`Sleep`], [`Timeout`] and
//! [`Interval`]. The queue is reached by a handle, which is anything that implements [`Timers`]; if
//! it is a [`Clock`](crate::Clock) too, as [`Timed`] is, it sets timers relative to now.
//!
//! ```
//! use core::cell::Cell;
//! use core::pin::pin;
//! use core::task::{Context, Poll, Waker};
//! use core::time::Duration;
//! use evenkeel::timers::{MissedTicks, Timed, TimerQueue, Timers};
//! use evenkeel::{Clock, Instant};
//!
//! /// A clock that shows what it is set to.
//! struct Hand(Cell<Instant>);
//!
//! impl Clock for Hand {
//!     fn now(&self) -> Instant {
//!         self.0.get()
//!     }
//! }
//!
//! let (queue, clock) = (TimerQueue::new(), Hand(Cell::new(Instant::ZERO)));
//! let time = Timed::new(&queue, &clock);
//! let mut task = pin!(async {
//!     time.sleep(Duration::from_millis(5)).await;
//!     let mut interval = pin!(time.interval(Duration::from_secs(1))?);
//!     interval.as_mut().tick().await;
//!     let due = interval.as_mut().tick().await;
//!     Ok::<_, evenkeel::timers::ZeroPeriod>(due)
//! });
//!
//! // The executor: polls what was woken, then waits for what comes next.
//! let context = &mut Context::from_waker(Waker::noop());
//! let due = loop {
//!     if let Poll::Ready(due) = task.as_mut().poll(context) {
//!         break due?;
//!     }
//!     clock.0.set(queue.next_deadline().expect("the task waits for a timer"));
//!     assert_eq!(queue.expire(clock.now(), 64, Waker::wake).fired, 1);
//! };
//! assert_eq!(due.as_nanos(), 2_005_000_000);
//! # Ok::<(), evenkeel::timers::ZeroPeriod>(())
//! ```
//!
//! # On one thread
//! A queue belongs to one thread, and so does what stands in it: neither [`TimerQueue`] nor
//! [`Sleep`], nor a future that awaits one, is `Send`. For tasks without a worker there is
//! [`Runnable::in_place_here`](crate::task::Runnable::in_place_here), which takes such futures; an
//! executor of these two pieces is [shown there](crate::task::Runnable#with-timers).
//!
//! # What it promises
//! - Nothing fires early; what is due fires in the order of deadlines, and of setting if these are
//!   equal. What is set when it is due already fires once all that was due before it has.
//! - Every timer that is set for the past, too, gives way once.
//! - [`Instant::FAR_FUTURE`](crate::Instant::FAR_FUTURE) never comes, and spans that are too long
//!   end there.
//! - No step is long: setting and dropping a timer visits at most 4 log₂ *n* + 4 others, and a pass
//!   fires as many as it was told to, no more.
//!
//! # Why this queue
//! It is a balanced tree that runs through the timers themselves. What else there is has one long
//! step: a pairing heap's removal, a wheel's cascade, the growth or the clearing out of an array.
//! Nanoseconds for one operation with 10, 1,000 and 100,000 live timers, the lowest median of some
//! runs on a virtual machine of two cores (`cargo bench -p evenkeel --features std --bench
//! timers`). *Fire* takes the earliest and sets it anew, *cancel* sets any one anew; the spans are
//! random, or all equal, as of many connections with one timeout:
//!
//! | | `TimerQueue` | `BTreeMap` | `BinaryHeap` |
//! |---|---|---|---|
//! | fire, equal | 16, 19, 32 | 25, 45, 85 | 20, 41, 73 |
//! | cancel, equal | 34, 57, 283 | 37, 112, 339 | 17, 16, 27 |
//! | fire, random | 37, 99, 525 | 41, 88, 238 | 29, 51, 247 |
//! | cancel, random | 63, 126, 709 | 55, 135, 438 | 35, 42, 158 |
//!
//! So it loses where spans are random and timers so many that they don't fit the cache: by up to
//! 2.2 times to the map, whose nodes hold eleven keys each, but are allocated. The binary heap can't
//! cancel: it leaves what was cancelled where it is, and clears it out in one long step. A leftist
//! heap, intrusive as well and with the same bounds, was measured in this queue's place by a build
//! that is not kept, so the bench does not print it: it cancelled up to 1.7 times faster where spans
//! are random, and fired up to 18 times slower where they are equal.

#[cfg(feature = "std")]
#[allow(unsafe_code)]
mod alarm;
mod interval;
#[allow(unsafe_code)]
mod queue;
#[allow(unsafe_code)]
mod sleep;
#[cfg(all(test, not(loom)))]
#[allow(unsafe_code)]
mod tests;
mod timeout;
#[allow(unsafe_code)]
mod tree;

#[cfg(feature = "std")]
pub(crate) use alarm::Alarm;
pub use interval::{Interval, MissedTicks, NextTick, ZeroPeriod};
pub use queue::{Expired, More, Timed, TimerQueue, Timers};
pub use sleep::Sleep;
pub use timeout::{Elapsed, Timeout};
