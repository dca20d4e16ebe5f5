//! Work of a given length, to meet an interrupt at a given instruction.

use cortex_m::asm;
use evenkeel_embedded::clock::{self, PERIOD_TICKS};

/// About so many instructions, in steps of one.
pub fn work(instructions: u32) {
    // It counts down by one in a loop of two.
    asm::delay(instructions / 2);
    if instructions % 2 == 1 {
        asm::nop();
    }
}

/// How much is done in a tick.
pub struct Pace {
    /// How many ticks 5,000 instructions take.
    ticks: u32,
}

impl Pace {
    /// Measures it, without what measuring takes.
    pub fn measured() -> Self {
        let (long, short) = (ticks_of(10_000), ticks_of(5_000));
        Self { ticks: long - short }
    }

    /// How many instructions fit into what is left of this period.
    pub fn left(&self) -> u32 {
        let passed = clock::lower(clock::ticks() % u64::from(PERIOD_TICKS));
        (PERIOD_TICKS - passed) * 5_000 / self.ticks
    }
}

fn ticks_of(instructions: u32) -> u32 {
    // The same number of interrupts in each: none.
    critical_section::with(|_| {
        let from = clock::ticks();
        work(instructions);
        clock::lower(clock::ticks() - from)
    })
}
