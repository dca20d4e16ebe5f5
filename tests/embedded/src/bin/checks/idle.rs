//! A worker with nothing to do sleeps.

use cortex_m_semihosting::hprintln;
use evenkeel::{Handle, Remote};
use evenkeel_embedded::clock;
use evenkeel_embedded::reactor::{Board, Operation};
use evenkeel_embedded::sleep;

use crate::alarm;
use crate::latency::Way;

/// For how many periods.
const PERIODS: u32 = 100;

/// Counts how often the worker parks and how often the processor is woken, and how long it sleeps,
/// while a task waits for a byte that does not come.
pub async fn idles(handle: &Handle<Board>, remote: &Remote<Board>) {
    Way::Completion.next_period(handle).await;
    let (from, slept, stats) = (clock::ticks(), sleep::slept(), remote.stats());
    let byte = handle.submit(Operation::ReadByte).expect("there is room");
    alarm::after(PERIODS).await;
    drop(byte);
    let (to, slept_now, stats_now) = (clock::ticks(), sleep::slept(), remote.stats());

    let sleeps = slept_now.times - slept.times;
    let asleep = (slept_now.ticks - slept.ticks) * 1_000 / (to - from);
    let parks = stats_now.parks - stats.parks;
    let dispatches = stats_now.dispatches - stats.dispatches;
    hprintln!(
        "  idle for {} periods: {} WFI, {} parks, {} dispatches, asleep for {}.{} % of the time",
        PERIODS,
        sleeps,
        parks,
        dispatches,
        asleep / 10,
        asleep % 10
    );
    assert!((PERIODS - 1..=PERIODS + 1).contains(&sleeps), "one sleep for each interrupt");
    assert_eq!(parks, 1, "the interrupts that change nothing don't reach the worker");
    assert!(dispatches <= 2, "nothing was to be done");
    assert!(asleep > 980, "the processor was awake for nothing");
}
