#![forbid(unsafe_code)]
//! A wait's time: what is left of it, and the timer that ends it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use evenkeel::{Clock, Instant, Wait};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// How long one call may block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Not at all.
    Never,
    /// Until the deadline, which is `left` away and not reached yet.
    Until { deadline: Instant, left: Duration },
    /// As long as it takes.
    Forever,
}

impl Pause {
    /// What is left of a wait.
    #[inline]
    fn of(wait: Wait, clock: &impl Clock) -> Self {
        match wait {
            Wait::Never => Self::Never,
            Wait::Forever => Self::Forever,
            Wait::Until(deadline) => match deadline - clock.now() {
                Duration::ZERO => Self::Never,
                left => Self::Until { deadline, left },
            },
        }
    }
}

/// Makes calls that block until one of them is `Ok(true)`, which ends the wait, or the time is over.
/// An interrupted call, or one that brought nothing, is followed by one for the time that is left.
/// There is at least one call, and it is the only one if there is no time.
#[inline]
pub(crate) fn until_over(
    wait: Wait,
    clock: &impl Clock,
    mut call: impl FnMut(Pause) -> Result<bool, Errno>,
) -> Result<(), Errno> {
    let mut pause = Pause::of(wait, clock);
    loop {
        match call(pause) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if pause == Pause::Never {
            return Ok(());
        }
        pause = Pause::of(wait, clock);
        if pause == Pause::Never {
            return Ok(());
        }
    }
}

/// A span as the kernel takes it. Never shorter: both count nanoseconds.
pub(crate) fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}

/// A timerfd on the monotonic clock. It is in the set edge-triggered, and never read: setting it
/// resets its count.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) timerfd: OwnedFd,
    /// The deadline that it is set to and has not reported.
    deadline: Option<Instant>,
}

impl Timer {
    /// A timer that is not set. Sets it all the same, so that a sandbox which refuses that is found
    /// out now.
    pub(crate) fn new() -> Result<Self, Errno> {
        let timerfd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let timer = Self { timerfd, deadline: None };
        timer.set_time(Duration::ZERO)?;
        Ok(timer)
    }

    /// Sets it to the deadline, which is `left` away. No system call if it is set to it already.
    pub(crate) fn set(&mut self, deadline: Instant, left: Duration) -> Result<(), Errno> {
        if self.deadline != Some(deadline) {
            self.set_time(left)?;
            self.deadline = Some(deadline);
        }
        Ok(())
    }

    /// It has reported. The next wait sets it anew even for the same deadline: the time that the process
    /// reads may be rounded differently from the timer's, and be a nanosecond short of it still.
    pub(crate) fn reported(&mut self) {
        self.deadline = None;
    }

    fn set_time(&self, left: Duration) -> Result<(), Errno> {
        let time = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(left) };
        timerfd_settime(&self.timerfd, TimerfdTimerFlags::empty(), &time).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::time::timerfd_gettime;

    use super::*;

    /// A clock that goes on only when told.
    struct Manual(Cell<u64>);

    impl Clock for Manual {
        fn now(&self) -> Instant {
            Instant::from_nanos(self.0.get())
        }
    }

    impl Manual {
        fn advance(&self, nanos: u64) {
            self.0.set(self.0.get() + nanos);
        }
    }

    fn until(deadline: u64, left: u64) -> Pause {
        Pause::Until { deadline: Instant::from_nanos(deadline), left: Duration::from_nanos(left) }
    }

    /// Makes the calls that `answers` lists, each of which takes 100 ns; returns what they were
    /// given and how it ended.
    fn calls(wait: Wait, answers: &[Result<bool, Errno>]) -> (Vec<Pause>, Result<(), Errno>) {
        let clock = Manual(Cell::new(1_000));
        let mut seen = Vec::new();
        let mut answers = answers.iter();
        let end = until_over(wait, &clock, |pause| {
            seen.push(pause);
            clock.advance(100);
            *answers.next().expect("no more calls than that")
        });
        assert!(answers.next().is_none(), "as many calls as that");
        (seen, end)
    }

    #[test]
    fn an_interrupted_wait_goes_on_with_the_time_that_is_left() {
        let wait = Wait::Until(Instant::from_nanos(1_250));
        let (seen, end) = calls(wait, &[Err(Errno::INTR), Err(Errno::INTR), Ok(true)]);
        assert_eq!(seen, [until(1_250, 250), until(1_250, 150), until(1_250, 50)]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn a_wait_that_returns_early_with_nothing_goes_on() {
        let wait = Wait::Until(Instant::from_nanos(1_150));
        let (seen, end) = calls(wait, &[Ok(false), Ok(false)]);
        assert_eq!(seen, [until(1_150, 150), until(1_150, 50)]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn an_interrupted_wait_without_end_goes_on_without_end() {
        let (seen, end) = calls(Wait::Forever, &[Err(Errno::INTR), Ok(false), Ok(true)]);
        assert_eq!(seen, [Pause::Forever; 3]);
        assert_eq!(end, Ok(()));
    }

    #[test]
    fn a_look_is_one_call_whatever_it_brings() {
        for answer in [Ok(true), Ok(false), Err(Errno::INTR)] {
            let (seen, end) = calls(Wait::Never, &[answer]);
            assert_eq!((seen, end), (vec![Pause::Never], Ok(())));
        }
    }

    #[test]
    fn a_deadline_that_has_passed_is_a_look() {
        let (seen, end) = calls(Wait::Until(Instant::from_nanos(1_000)), &[Ok(false)]);
        assert_eq!((seen, end), (vec![Pause::Never], Ok(())));
    }

    #[test]
    fn an_error_ends_the_wait() {
        let (_, end) = calls(Wait::Forever, &[Err(Errno::BADF)]);
        assert_eq!(end, Err(Errno::BADF));
    }

    #[test]
    fn a_timer_is_set_once_for_a_deadline_until_it_has_reported() {
        let hours = |count: u64| Duration::from_secs(count * 3_600);
        let left = |timer: &Timer| {
            let seconds = timerfd_gettime(&timer.timerfd).expect("it is a timer").it_value.tv_sec;
            u64::try_from(seconds).expect("it is not negative").div_ceil(3_600)
        };
        let deadline = Instant::from_nanos(1);
        let mut timer = Timer::new().expect("timers are allowed");
        timer.set(deadline, hours(3)).expect("it can be set");
        timer.set(deadline, hours(2)).expect("nothing to do");
        assert_eq!(left(&timer), 3);
        timer.reported();
        timer.set(deadline, hours(1)).expect("it can be set");
        assert_eq!(left(&timer), 1);
        timer.set(Instant::from_nanos(2), hours(2)).expect("it can be set");
        assert_eq!(left(&timer), 2);
    }

    #[test]
    fn a_span_keeps_its_nanoseconds() {
        let span = timespec(Duration::from_nanos(3_000_000_001));
        assert_eq!((span.tv_sec, span.tv_nsec), (3, 1));
    }
}
