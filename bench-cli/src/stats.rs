//! Latencies and ratios, and what may be said of them.

use hdrhistogram::Histogram;

/// Recorded latencies: percentiles to three significant digits, minimum and maximum exactly.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
}

/// The longest latency that has a place of its own: an hour, far beyond every bound of a trial.
const LONGEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A percentile, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentile(f64);

impl Percentile {
    /// The median.
    pub const P50: Self = Self(0.50);
    /// One in ten is beyond it.
    pub const P90: Self = Self(0.90);
    /// One in a hundred is beyond it.
    pub const P99: Self = Self(0.99);
    /// One in a thousand is beyond it.
    pub const P99_9: Self = Self(0.999);

    /// How many samples it takes until at least one of them lies beyond the percentile with 95 %
    /// probability. With fewer, what is printed is likely to be too low.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small whole number by then"
    )]
    pub fn samples_needed(self) -> u64 {
        (0.05_f64.ln() / self.0.ln()).ceil() as u64
    }
}

/// A percentile of what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Its value.
    pub ns: u64,
    /// Whether it means anything.
    pub support: Support,
}

/// Whether there are enough samples behind a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As many as it needs.
    Enough,
    /// Fewer than it needs.
    TooFew {
        /// How many it needs.
        needed: u64,
    },
}

/// What is said about a series of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many there are.
    pub n: u64,
    /// The shortest, exactly.
    pub min_ns: u64,
    /// The median.
    pub p50: Estimate,
    /// One in a hundred is longer.
    pub p99: Estimate,
    /// The longest, exactly.
    pub max_ns: u64,
}

impl Latencies {
    /// None recorded yet.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS)
            .expect("constant bounds are accepted or not at every start");
        Self { histogram, min_ns: u64::MAX, max_ns: 0 }
    }

    /// Adds one.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value at the nearest rank: the smallest recorded one that at least this share of all
    /// does not exceed. 0 if there is none.
    #[must_use]
    pub fn percentile(&self, percentile: Percentile) -> Estimate {
        // The histogram answers with the upper end of a bucket, which may lie beyond the maximum.
        let ns = self.histogram.value_at_quantile(percentile.0).min(self.max_ns);
        let needed = percentile.samples_needed();
        let support =
            if self.count() < needed { Support::TooFew { needed } } else { Support::Enough };
        Estimate { ns, support }
    }

    /// Everything that is said about them; all zero if there is none.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            n: self.count(),
            min_ns: self.min_ns.min(self.max_ns),
            p50: self.percentile(Percentile::P50),
            p99: self.percentile(Percentile::P99),
            max_ns: self.max_ns,
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// The quartiles of a series of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter is below it.
    pub q1: f64,
    /// Half is below it.
    pub median: f64,
    /// A quarter is above it.
    pub q3: f64,
}

impl Quartiles {
    /// Between two neighbours by the straight line, as is usual (type 7 of Hyndman and Fan).
    /// All zero if there are no numbers.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Self {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quarters| quartile(&sorted, quarters);
        Self { q1: at(1), median: at(2), q3: at(3) }
    }
}

/// The number at this many quarters of the way through the sorted ones.
fn quartile(sorted: &[f64], quarters: usize) -> f64 {
    let steps = sorted.len().saturating_sub(1) * quarters;
    let (below, fraction) = (steps / 4, [0.0, 0.25, 0.5, 0.75][steps % 4]);
    match sorted.get(below..) {
        Some([low, high, ..]) => low + (high - low) * fraction,
        Some([only]) => *only,
        _ => 0.0,
    }
}

/// How many times `floor` fits into `value`. Nothing takes no time, so a floor of 0 ns, which a
/// coarse clock may report, counts as 1 ns.
#[must_use]
pub fn ratio(value_ns: u64, floor_ns: u64) -> f64 {
    to_f64(value_ns) / to_f64(floor_ns.max(1))
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which is 104 days in ns")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "all of these numbers are exact")]
mod tests {
    use super::*;

    fn latencies(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        values.into_iter().for_each(|ns| latencies.record(ns));
        latencies
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let latencies = latencies(1..=1000);
        assert_eq!(latencies.percentile(Percentile::P50).ns, 500);
        assert_eq!(latencies.percentile(Percentile::P99).ns, 990);
        assert_eq!(latencies.percentile(Percentile::P99_9).ns, 999);
        // Of two, the first is the one that half of them do not exceed.
        assert_eq!(self::latencies([10, 20]).percentile(Percentile::P50).ns, 10);
    }

    #[test]
    fn percentiles_hold_three_digits_and_extremes_are_exact() {
        let summary = latencies([123_456_789, 987_654_321, 987_654_321]).summary();
        assert_eq!((summary.min_ns, summary.max_ns), (123_456_789, 987_654_321));
        assert_eq!(summary.p50.ns, 987_654_321, "no percentile exceeds the maximum");
        let middle = latencies([1, 123_456_789, 987_654_321]).summary().p50.ns;
        assert!(middle.abs_diff(123_456_789) <= 123_456);
    }

    #[test]
    fn what_is_longer_than_an_hour_is_still_exact_as_maximum() {
        assert_eq!(latencies([2 * LONGEST_NS]).summary().max_ns, 2 * LONGEST_NS);
    }

    #[test]
    fn a_percentile_says_when_it_means_nothing() {
        assert_eq!(Percentile::P50.samples_needed(), 5);
        assert_eq!(Percentile::P99.samples_needed(), 299);
        assert_eq!(Percentile::P99_9.samples_needed(), 2995);
        let support = |n| latencies(1..=n).percentile(Percentile::P99).support;
        assert_eq!(support(298), Support::TooFew { needed: 299 });
        assert_eq!(support(299), Support::Enough);
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        let summary = Latencies::new().summary();
        assert_eq!((summary.n, summary.min_ns, summary.p50.ns, summary.max_ns), (0, 0, 0, 0));
    }

    #[test]
    fn quartiles_lie_between_their_neighbours() {
        let quartiles = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quartiles, Quartiles { q1: 1.75, median: 2.5, q3: 3.25 });
        let quartiles = Quartiles::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!(quartiles, Quartiles { q1: 2.0, median: 3.0, q3: 4.0 });
        assert_eq!(Quartiles::of(&[7.0]), Quartiles { q1: 7.0, median: 7.0, q3: 7.0 });
        assert_eq!(Quartiles::of(&[]), Quartiles { q1: 0.0, median: 0.0, q3: 0.0 });
    }

    #[test]
    fn a_floor_of_nothing_counts_as_one() {
        assert_eq!(ratio(30, 20), 1.5);
        assert_eq!(ratio(30, 0), 30.0);
    }
}
