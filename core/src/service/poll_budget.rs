#![forbid(unsafe_code)]
//! How often a reactor is polled that can't tell whether it has something: on a budget of time.
//!
//! A dry poll is paid for nothing, so the worker learns what one costs and polls as often as keeps
//! that under a share of its time. The estimate is a decaying minimum: a sample that is lower
//! counts at once, one that is higher raises it by a 64th at most, so that one stolen time slice of
//! the host, or one stall inside the call, can't push the next poll out.

use crate::time::Instant;

/// The shortest interval between two polls, in nanoseconds: where a poll costs next to nothing,
/// the clock that times it does not.
pub(crate) const SHORTEST_NANOS: u64 = 1_000;
/// The longest, in nanoseconds, whatever a poll is thought to cost: it bounds the service latency.
pub(crate) const LONGEST_NANOS: u64 = 50_000;

/// The share of a worker's time that may go into dry polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollShare {
    percent: u8,
}

impl PollShare {
    /// A share in percent, from 1 to 100.
    ///
    /// ```
    /// use evenkeel::PollShare;
    ///
    /// assert!(PollShare::percent(10).is_some());
    /// assert!(PollShare::percent(0).is_none());
    /// assert!(PollShare::percent(101).is_none());
    /// ```
    #[must_use]
    pub const fn percent(percent: u8) -> Option<Self> {
        if percent >= 1 && percent <= 100 { Some(Self { percent }) } else { None }
    }
}

impl Default for PollShare {
    /// 5 %.
    fn default() -> Self {
        Self { percent: 5 }
    }
}

/// When to poll next.
pub(crate) struct PollBudget {
    share: PollShare,
    /// What a dry poll is thought to cost, in nanoseconds; none seen yet at `u64::MAX`.
    dry_nanos: u64,
    due: Instant,
}

impl PollBudget {
    pub(crate) fn new(share: PollShare) -> Self {
        Self { share, dry_nanos: u64::MAX, due: Instant::ZERO }
    }

    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Learns what a poll cost that found nothing.
    pub(crate) fn learn(&mut self, dry_nanos: u64) {
        let decayed = self.dry_nanos.saturating_add(self.dry_nanos / 64 + 1);
        self.dry_nanos = dry_nanos.min(decayed);
    }

    /// Sets the next poll by the start of the last one.
    pub(crate) fn spend(&mut self, start: Instant) {
        self.due = Instant::from_nanos(start.as_nanos().saturating_add(self.interval_nanos()));
    }

    fn interval_nanos(&self) -> u64 {
        let interval = self.dry_nanos.saturating_mul(100) / u64::from(self.share.percent);
        interval.clamp(SHORTEST_NANOS, LONGEST_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval_after(samples: &[u64]) -> u64 {
        let mut budget = PollBudget::new(PollShare::default());
        for &nanos in samples {
            budget.learn(nanos);
        }
        budget.spend(Instant::ZERO);
        budget.due.as_nanos()
    }

    #[test]
    fn the_interval_keeps_the_share() {
        assert_eq!(interval_after(&[100]), 2_000);
        assert_eq!(interval_after(&[300]), 6_000);
    }

    #[test]
    fn the_interval_is_clamped() {
        assert_eq!(interval_after(&[1]), SHORTEST_NANOS);
        assert_eq!(interval_after(&[100_000]), LONGEST_NANOS);
        assert_eq!(interval_after(&[]), LONGEST_NANOS, "nothing learnt yet");
    }

    #[test]
    fn a_stall_moves_the_next_poll_by_a_64th() {
        assert!(interval_after(&[100, 5_000_000]) <= 2_000 + 2_000 / 64 + 100);
    }

    #[test]
    fn a_first_sample_that_is_a_stall_is_forgotten_by_the_next() {
        assert_eq!(interval_after(&[5_000_000, 100]), 2_000);
    }

    #[test]
    fn a_poll_that_became_dearer_is_learnt_in_time() {
        let samples = [&[100][..], &[200; 64]].concat();
        assert_eq!(interval_after(&samples), 4_000);
    }
}
