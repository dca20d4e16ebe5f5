//! A signal by the SysTick's handler, after so many periods.

use core::sync::atomic::{AtomicU32, Ordering};

use evenkeel_embedded::signal::Signal;

static SIGNAL: Signal = Signal::new();
/// How many periods are left; 0 if nobody has asked.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// By the SysTick's handler.
pub fn on_period() {
    // Ordering: Relaxed: one core, and a handler runs as a whole.
    match LEFT.load(Ordering::Relaxed) {
        0 => {}
        left => {
            LEFT.store(left - 1, Ordering::Relaxed);
            if left == 1 {
                SIGNAL.raise();
            }
        }
    }
}

/// Waits until so many periods have begun, at least one. One task at a time.
pub async fn after(periods: u32) {
    // Ordering: Relaxed, see `on_period`.
    LEFT.store(periods, Ordering::Relaxed);
    SIGNAL.raised().await;
}
