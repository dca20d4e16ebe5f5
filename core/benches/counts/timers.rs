//! The timer queue by itself, with 256 timers of one timeout.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use evenkeel::Instant;
use evenkeel::timers::{Sleep, TimerQueue};

const LIVE: usize = 256;
/// Between two timers.
const GAP: Duration = Duration::from_nanos(100);
/// So that a timer is set for the time when all others have fired.
const TIMEOUT: Duration = Duration::from_nanos(100 * LIVE as u64);

struct Timers<'a> {
    sleeps: Vec<Pin<Box<Sleep<&'a TimerQueue>>>>,
    now: Instant,
}

impl<'a> Timers<'a> {
    fn new(queue: &'a TimerQueue) -> Self {
        let sleeps = (0..LIVE).map(|_| Box::pin(queue.sleep_until(Instant::ZERO))).collect();
        let mut timers = Self { sleeps, now: Instant::ZERO };
        (0..LIVE).for_each(|timer| timers.set(timer));
        timers
    }

    /// A moment later.
    fn set(&mut self, timer: usize) {
        self.now = self.now + GAP;
        let sleep = &mut self.sleeps[timer];
        sleep.as_mut().reset(self.now + TIMEOUT);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

/// The oldest fires and is set again.
pub(crate) fn fire(operations: usize) {
    let queue = TimerQueue::new();
    let mut timers = Timers::new(&queue);
    for number in 0..operations {
        let due = queue.next_deadline().expect("all are set");
        assert_eq!(queue.expire(due, 1, Waker::wake).fired, 1);
        timers.set(number % LIVE);
    }
}

/// One is taken out before it has fired, and set anew.
pub(crate) fn cancel(operations: usize) {
    let queue = TimerQueue::new();
    let mut timers = Timers::new(&queue);
    for number in 0..operations {
        // Not one after the other, so that they come out of all places of the tree.
        let timer = number * 77 % LIVE;
        timers.sleeps[timer].set(queue.sleep_until(Instant::FAR_FUTURE));
        timers.set(timer);
    }
}
