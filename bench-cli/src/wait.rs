//! Bounded waiting of the measuring thread.

use std::time::Duration;

use crate::clock;

/// The measuring thread never spins while it waits: nothing that is measured depends on when it
/// wakes up (every stamp is taken where the thing happens), on one CPU the worker needs the time,
/// and on two a spinning neighbour would heat the same core and pull at the worker's cache lines.
const NAP: Duration = Duration::from_micros(50);

/// Waits until `seen` says so, looking every [`NAP`], for at most `bound`. Which of the two it
/// was, the caller sees for itself.
pub(crate) fn until(bound: Duration, mut seen: impl FnMut() -> bool) {
    let deadline = clock::now_ns().saturating_add(nanoseconds(bound));
    loop {
        // The order matters: the time is looked at first, so that a thread that was kept from
        // running beyond the deadline still looks once more before it gives up.
        let late = clock::now_ns() >= deadline;
        if seen() || late {
            return;
        }
        std::thread::sleep(NAP);
    }
}

/// Sleeps until this time of the clock; not at all if it has passed.
pub(crate) fn sleep_until(at_ns: u64) {
    let left = at_ns.saturating_sub(clock::now_ns());
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// A duration as the clock counts it; all that occur here fit.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_when_seen() {
        let mut looks = 0;
        until(Duration::from_secs(10), || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn ends_at_its_bound_and_not_before() {
        let before = clock::now_ns();
        until(Duration::from_millis(3), || false);
        assert!(clock::now_ns() - before >= 3_000_000);
    }

    #[test]
    fn looks_once_even_without_any_time() {
        let mut looks = 0;
        until(Duration::ZERO, || {
            looks += 1;
            false
        });
        assert_eq!(looks, 1);
    }

    #[test]
    fn a_time_that_has_passed_is_not_waited_for() {
        sleep_until(0);
    }
}
