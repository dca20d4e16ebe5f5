//! The clock goes on at the wrap of the counter, whether or not its interrupt is let in.

use cortex_m_semihosting::hprintln;
use evenkeel::Handle;
use evenkeel_embedded::clock::{self, PERIOD_TICKS};
use evenkeel_embedded::reactor::Board;

use crate::latency::Way;
use crate::work::{Pace, work};

/// Over how many instructions before the wrap the readings begin. One reading takes about 60.
const INSTRUCTIONS: u32 = 300;
/// The most ticks that may be between two readings: the handler of the wrap comes between some.
const STEP: u64 = PERIOD_TICKS as u64 / 8;

/// Reads it across the wrap, from each instruction before it.
pub async fn goes_on(handle: &Handle<Board>) {
    let pace = Pace::measured();
    for before in 0..INSTRUCTIONS {
        Way::Completion.next_period(handle).await;
        work(pace.left() - before);
        readings();
        Way::Completion.next_period(handle).await;
        work(pace.left() - before);
        critical_section::with(|_| readings());
    }
    hprintln!("  the clock has gone on over {} wraps", 2 * INSTRUCTIONS);
}

fn readings() {
    let mut last = clock::ticks();
    for _ in 0..20 {
        let now = clock::ticks();
        assert!(now > last && now - last < STEP, "the clock went from {last} to {now}");
        last = now;
    }
}
