#![forbid(unsafe_code)]
//! Time as the scheduler knows it: nanoseconds since an origin that its clock chose.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since the origin of the [`Clock`] that gave it. 64 bits last for
/// 584 years; arithmetic saturates at both ends.
///
/// ```
/// use core::time::Duration;
/// use evenkeel::Instant;
///
/// let start = Instant::from_nanos(1_000);
/// assert_eq!((start + Duration::from_micros(2)).as_nanos(), 3_000);
/// assert_eq!(Instant::ZERO - start, Duration::ZERO); // never negative
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);
    /// The end of time: what lies further is never reached.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Nanoseconds since an earlier point, 0 if it is not earlier.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

/// Where a worker reads the time. It never goes back, and it goes on: a worker over a reactor that
/// can't tell its readiness polls it by this clock.
///
/// ```
/// use core::cell::Cell;
/// use evenkeel::{Clock, Instant};
///
/// /// A counter that an interrupt advances.
/// struct Ticks(Cell<u64>);
///
/// impl Clock for Ticks {
///     fn now(&self) -> Instant {
///         Instant::from_nanos(self.0.get() * 1_000_000)
///     }
/// }
/// assert_eq!(Ticks(Cell::new(3)).now().as_nanos(), 3_000_000);
/// ```
pub trait Clock {
    /// The time now. Called about once a microsecond by a busy worker.
    fn now(&self) -> Instant;
}

impl<C: Clock + ?Sized> Clock for &C {
    #[inline]
    fn now(&self) -> Instant {
        (**self).now()
    }
}

/// The operating system's monotonic clock, from a process-wide origin. Every value of this type
/// reads the same time. A read is about 20 ns and no system call where the system offers it so.
///
/// ```
/// use evenkeel::{Clock, MonotonicClock};
///
/// let clock = MonotonicClock::new();
/// let start = clock.now();
/// assert!(MonotonicClock::new().now() >= start);
/// ```
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: std::time::Instant,
}

#[cfg(feature = "std")]
impl MonotonicClock {
    /// The process's clock.
    #[must_use]
    pub fn new() -> Self {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Self { origin: *ORIGIN.get_or_init(std::time::Instant::now) }
    }
}

#[cfg(feature = "std")]
impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "std")]
impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Instant {
        let elapsed = self.origin.elapsed();
        Instant(elapsed.as_secs().wrapping_mul(1_000_000_000) + u64::from(elapsed.subsec_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_end_is_reached_and_not_passed() {
        assert_eq!(Instant::ZERO + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(Instant::FAR_FUTURE + Duration::from_nanos(1), Instant::FAR_FUTURE);
    }
}
