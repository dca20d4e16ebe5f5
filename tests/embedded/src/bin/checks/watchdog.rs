//! A check that hangs ends the run.

use core::sync::atomic::{AtomicU32, Ordering};

use evenkeel_embedded::clock;

/// The count of periods at which patience ends.
static LIMIT: AtomicU32 = AtomicU32::new(u32::MAX);

/// So many periods from now, everything that was begun is to be done.
pub fn allow(periods: u32) {
    // Ordering: Relaxed: one core.
    LIMIT.store(clock::periods().saturating_add(periods), Ordering::Relaxed);
}

/// By the SysTick's handler.
pub fn on_period() {
    // Ordering: Relaxed, see `allow`.
    assert!(clock::periods() < LIMIT.load(Ordering::Relaxed), "a check has not come to its end");
}
