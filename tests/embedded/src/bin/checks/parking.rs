//! An interrupt that comes while the worker is about to sleep: at every instruction of the way.

use core::ops::RangeInclusive;

use cortex_m_semihosting::hprintln;
use evenkeel::Handle;
use evenkeel_embedded::clock;
use evenkeel_embedded::reactor::Board;
use evenkeel_embedded::sleep;

use crate::latency::Way;
use crate::stamp;
use crate::work::{Pace, work};

/// How many instructions before the interrupt the task begins to wait. Nearer than the least it may
/// come too late to wait for that one; to go to sleep takes about a thousand.
const BEFORE: RangeInclusive<u32> = 600..=2_600;

/// Waits for the interrupt of a period from nearer and nearer before it.
pub async fn no_wake_is_lost(handle: &Handle<Board>) {
    let pace = Pace::measured();
    for way in [Way::Completion, Way::Signal] {
        let (mut latest, mut awake, mut asleep) = (0, 0, 0);
        for before in BEFORE.rev() {
            way.next_period(handle).await;
            work(pace.left() - before);
            let (period, slept) = (clock::periods(), sleep::slept().times);
            way.next_period(handle).await;
            latest = stamp::since().ticks.max(latest);
            assert_eq!(clock::periods(), period + 1, "a wake was lost, until the next interrupt");
            match sleep::slept().times - slept {
                0 => awake += 1,
                _ => asleep += 1,
            }
        }
        hprintln!(
            "  {} interrupts on the way to sleep, {} after it: none lost, the latest served after {} ticks",
            awake,
            asleep,
            latest
        );
        assert!(awake > 100 && asleep > 100, "not all of the way was tried");
    }
}
