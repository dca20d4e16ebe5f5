#![forbid(unsafe_code)]
//! How many dispatches pass between two looks at the clock.
//!
//! A look costs about 20 ns, a dispatch a few. So one is taken about once a microsecond, whatever a
//! dispatch costs: down to every dispatch when they are long, and never further apart than
//! [`LONGEST`], since how long the next one takes is not known. A stride grows at most twofold, and
//! shrinks at once.

use crate::time::Instant;

/// What a stride is to take, in nanoseconds: at 20 ns a look costs 2 %.
const TARGET_NANOS: u64 = 1_000;
/// The most dispatches in a stride: at 20 ns a look costs a third of a nanosecond each.
pub(crate) const LONGEST: u32 = 64;

pub(crate) struct Stride {
    dispatches: u32,
    /// The last look, if the worker has been dispatching since.
    last_look: Option<Instant>,
}

impl Stride {
    pub(crate) fn new() -> Self {
        Self { dispatches: 1, last_look: None }
    }

    /// At a look: how many dispatches may pass until the next, given how many have passed since
    /// the last one.
    #[inline]
    pub(crate) fn next(&mut self, now: Instant, dispatched: u32) -> u32 {
        if let Some(last) = self.last_look.replace(now)
            && dispatched > 0
        {
            let fits = u64::from(dispatched) * TARGET_NANOS / now.nanos_since(last).max(1);
            let most = (self.dispatches * 2).min(LONGEST);
            self.dispatches = u32::try_from(fits).unwrap_or(LONGEST).clamp(1, most);
        }
        self.dispatches
    }

    /// Time passes that no dispatch takes.
    pub(crate) fn pause(&mut self) {
        self.last_look = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs strides of dispatches that take `nanos` each; gives the length that it settles at.
    fn settled(stride: &mut Stride, nanos: u64) -> u32 {
        let (mut now, mut passed) = (Instant::ZERO, 0);
        stride.pause();
        for _ in 0..20 {
            passed = stride.next(now, passed);
            now = Instant::from_nanos(now.as_nanos() + nanos * u64::from(passed));
        }
        passed
    }

    #[test]
    fn short_dispatches_make_long_strides() {
        assert_eq!(settled(&mut Stride::new(), 4), LONGEST);
        assert_eq!(settled(&mut Stride::new(), 100), 10);
    }

    #[test]
    fn long_dispatches_are_timed_one_by_one() {
        assert_eq!(settled(&mut Stride::new(), 10_000), 1);
    }

    #[test]
    fn a_stride_shrinks_at_once_and_grows_slowly() {
        let mut stride = Stride::new();
        settled(&mut stride, 4);
        stride.pause();
        stride.next(Instant::ZERO, 0);
        assert_eq!(stride.next(Instant::from_nanos(640_000), 64), 1);
        assert_eq!(stride.next(Instant::from_nanos(640_004), 1), 2);
    }
}
