//! An interrupt that comes while the worker is about to sleep: at every instruction of the way.

use cortex_m::asm;
use cortex_m_semihosting::hprintln;
use evenkeel::Handle;
use evenkeel_embedded::clock::{self, PERIOD_TICKS};
use evenkeel_embedded::reactor::Board;

use crate::latency::Way;
use crate::stamp;

/// How many instructions before the interrupt the task waits, at first; then fewer by one each
/// time. To go to sleep takes about 600.
const INSTRUCTIONS: u32 = 1_200;
/// In ticks. A wake that is lost is made up for by the next period, thousands later.
const BOUND: u32 = PERIOD_TICKS / 8;

/// Waits for the interrupt of a period from nearer and nearer before it.
pub async fn no_wake_is_lost(handle: &Handle<Board>) {
    let per_thousand = ticks_of(1_000);
    for way in [Way::Completion, Way::Signal] {
        let mut latest = 0;
        let mut met = 0;
        for before in (0..INSTRUCTIONS).rev() {
            way.next_period(handle).await;
            let left = PERIOD_TICKS - stamp::since().ticks;
            let instructions = left * 1_000 / per_thousand - before;
            work(instructions);
            let is_ahead = stamp::since().ticks > PERIOD_TICKS / 2;
            met += u32::from(is_ahead);
            // What follows is resumed by the period that is about to begin, or by the one after, if
            // that has just begun.
            way.next_period(handle).await;
            latest = stamp::since().ticks.max(latest);
        }
        hprintln!(
            "  {} wakes on the way to sleep, none lost: the latest served after {} ticks",
            met,
            latest
        );
        assert!(latest < BOUND, "a wake was lost until the next period");
        assert!(met > INSTRUCTIONS / 2, "the interrupts came too early to tell anything");
    }
}

/// About so many instructions, in steps of one.
fn work(instructions: u32) {
    asm::delay(instructions);
    if instructions % 2 == 1 {
        asm::nop();
    }
}

fn ticks_of(instructions: u32) -> u32 {
    let from = clock::ticks();
    work(instructions);
    clock::lower(clock::ticks() - from)
}
