#![forbid(unsafe_code)]
//! Sleep until an interrupt, without losing one.

use core::cell::Cell;

use cortex_m::asm;
use critical_section::{CriticalSection, Mutex};

use crate::clock;

/// What sleeping has come to.
#[derive(Clone, Copy)]
pub struct Slept {
    /// How often the processor waited for an interrupt.
    pub times: u32,
    /// For how many ticks in all.
    pub ticks: u64,
}

static SLEPT: Mutex<Cell<Slept>> = Mutex::new(Cell::new(Slept { times: 0, ticks: 0 }));

/// Sleeps until `is_over`, which interrupt handlers make true, or the time does.
///
/// Interrupts are masked from before each look until after the wait. One that comes in between stays
/// pending, its handler can't make true what has just been found false, and WFI returns at once: a
/// pending interrupt ends it though it is masked. Unmasking lets the handler in, and then comes the
/// next look. Were the look outside, an interrupt between it and the WFI would be handled, and then
/// waited for.
pub fn until(is_over: impl Fn() -> bool) {
    while !critical_section::with(|cs| is_over() || wait_for_interrupt(cs)) {
        // What is pending is taken here, not some instructions later.
        asm::isb();
    }
}

/// Gives whether that was all there is to wait for, which it can't tell: no.
fn wait_for_interrupt(cs: CriticalSection<'_>) -> bool {
    let from = clock::ticks();
    // What was stored is to be in memory before the processor stops, as its manual asks.
    asm::dsb();
    asm::wfi();
    let slept = SLEPT.borrow(cs);
    let Slept { times, ticks } = slept.get();
    slept.set(Slept { times: times + 1, ticks: ticks + clock::ticks() - from });
    false
}

/// Since the start.
pub fn slept() -> Slept {
    critical_section::with(|cs| SLEPT.borrow(cs).get())
}
