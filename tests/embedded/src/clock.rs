#![forbid(unsafe_code)]
//! Time from the SysTick: how many periods have passed, and how far this one has come.

use core::cell::Cell;
use core::time::Duration;

use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{SCB, SYST};
use critical_section::Mutex;
use evenkeel::{Clock, Instant};

/// The processor runs at 12.5 MHz after its reset, and one tick is one cycle of it.
pub const TICK_NANOS: u64 = 80;
/// A millisecond. The clock is as fine as a tick, but a wait ends with a period: a longer one costs
/// fewer interrupts while nothing happens, a shorter one ends a wait closer to its deadline.
pub const PERIOD_TICKS: u32 = 12_500;
/// The same.
pub const PERIOD: Duration = Duration::from_nanos(PERIOD_TICKS as u64 * TICK_NANOS);

/// Wider than the processor's atomics, so it is read and written with interrupts masked.
static PERIODS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// Starts it, and the interrupts that it lives by.
pub fn start(mut systick: SYST) {
    systick.set_clock_source(SystClkSource::Core);
    systick.set_reload(PERIOD_TICKS - 1);
    systick.clear_current();
    systick.enable_interrupt();
    systick.enable_counter();
}

/// By the SysTick's handler, before anything there looks at the time.
pub fn on_period() {
    critical_section::with(|cs| PERIODS.borrow(cs).update(|periods| periods + 1));
}

/// Ticks since the start. From thread mode and from handlers; some ten instructions with interrupts
/// masked.
///
/// The counter wraps whatever is masked, and the handler that counts the period may be yet to come.
/// That is known by its being pending: then the counter is read once more, since the first reading
/// may be from before the wrap, and the period that the handler is about to count is added. If the
/// counter wraps after the look, the first reading is from before the wrap, and so is the count.
///
/// One case is left out by the priorities: a handler that interrupts the SysTick's before it has
/// counted would see it neither pending nor done. All handlers here have the same priority.
pub fn ticks() -> u64 {
    critical_section::with(|cs| {
        let counter = SYST::get_current();
        let periods = PERIODS.borrow(cs).get();
        if SCB::is_pendst_pending() {
            in_ticks(periods + 1, SYST::get_current())
        } else {
            in_ticks(periods, counter)
        }
    })
}

/// The counter counts down, and its interrupt comes when it *reaches* 0, one tick before it reloads:
/// so 0 is the first tick of a period, not the last.
fn in_ticks(periods: u64, counter: u32) -> u64 {
    let passed = if counter == 0 { 0 } else { PERIOD_TICKS - counter };
    periods * u64::from(PERIOD_TICKS) + u64::from(passed)
}

/// How many periods have passed: a number for comparing, which wraps.
pub fn periods() -> u32 {
    lower(critical_section::with(|cs| PERIODS.borrow(cs).get()))
}

/// The lower half. A difference of two is right if it is below 2^32.
#[expect(clippy::cast_possible_truncation, reason = "that is the point")]
pub fn lower(count: u64) -> u32 {
    count as u32
}

/// The worker's clock. 64 bits of nanoseconds last for 584 years.
pub struct SysTickClock;

impl Clock for SysTickClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(ticks() * TICK_NANOS)
    }
}
