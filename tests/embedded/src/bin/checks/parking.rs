//! An interrupt that comes while the worker is about to sleep: at every instruction of the way.

use cortex_m_semihosting::hprintln;
use evenkeel::Handle;
use evenkeel_embedded::clock::PERIOD_TICKS;
use evenkeel_embedded::reactor::Board;
use evenkeel_embedded::sleep;

use crate::latency::Way;
use crate::stamp;
use crate::work::{Pace, work};

/// How many instructions before the interrupt the task begins to wait, at most; then fewer by one
/// each time. To go to sleep takes about a thousand.
const INSTRUCTIONS: u32 = 2_000;
/// In ticks. A wake that is lost is made up for by the next period, thousands later.
const BOUND: u32 = PERIOD_TICKS / 4;

/// Waits for the interrupt of a period from nearer and nearer before it.
pub async fn no_wake_is_lost(handle: &Handle<Board>) {
    let pace = Pace::measured();
    for way in [Way::Completion, Way::Signal] {
        let (mut latest, mut asleep) = (0, 0);
        for before in (0..INSTRUCTIONS).rev() {
            way.next_period(handle).await;
            work(pace.left() - before);
            let slept = sleep::slept().times;
            way.next_period(handle).await;
            latest = stamp::since().ticks.max(latest);
            asleep += sleep::slept().times - slept;
        }
        hprintln!(
            "  {} interrupts on the way to sleep, {} after it; no wake lost, the latest served after {} ticks",
            INSTRUCTIONS - asleep,
            asleep,
            latest
        );
        assert!(latest < BOUND, "a wake was lost until the next period");
        let on_both_sides = INSTRUCTIONS / 10..INSTRUCTIONS * 9 / 10;
        assert!(on_both_sides.contains(&asleep), "not all of the way was tried");
    }
}
