//! What it would take to have the kernel tell of a worker's next timer, by the same flag that tells of
//! completions: why the reactor does not.
//!
//! ```sh
//! cargo bench -p evenkeel-uring --bench kernel_timers
//! ```
//!
//! A worker looks at its clock once in a stride of about a microsecond, which costs it 20 ns, and is as
//! late as that with a timer at most. A timeout that the kernel has (`IORING_OP_TIMEOUT`) would need a
//! system call when it is set, another when an earlier one comes before it, and an interrupt when it is
//! due. On the virtual machine where this was decided: set 7.3 µs, moved 14.3 µs, and the flag raised
//! 15 µs after the deadline, where `bench-cli` gives 0.7-0.9 µs from a deadline to the task (medians).

use std::hint::spin_loop;
use std::time::Duration;

use io_uring::types::{TimeoutFlags, Timespec};
use io_uring::{IoUring, opcode};
use rustix::time::{ClockId, clock_gettime};

const AHEAD_NS: u64 = 60_000;
const LATEST_NS: u64 = 2_000_000;
const TIMER: u64 = 1;
const MOVE: u64 = 2;

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[derive(Default)]
struct Samples {
    set: Vec<u64>,
    moved: Vec<u64>,
    late: Vec<u64>,
}

/// One timer: set, moved to where it is, and waited for. None if the thread was kept from running in
/// between.
fn round(ring: &mut IoUring, samples: &mut Samples) -> std::io::Result<()> {
    let due_ns = now_ns() + AHEAD_NS;
    let due = Timespec::from(Duration::from_nanos(due_ns));
    let begun = now_ns();
    let set = opcode::Timeout::new(&raw const due).flags(TimeoutFlags::ABS);
    // SAFETY: the time is read by the kernel in the call that follows, and is there until after it.
    unsafe { ring.submission().push(&set.build().user_data(TIMER)) }.expect("there is room");
    ring.submit()?;
    let was_set = now_ns();

    let moves = opcode::TimeoutUpdate::new(TIMER, &raw const due).flags(TimeoutFlags::ABS);
    // SAFETY: as above.
    unsafe { ring.submission().push(&moves.build().user_data(MOVE)) }.expect("there is room");
    ring.submit_and_wait(1)?;
    let was_moved = now_ns();
    while ring.completion().next().is_some() {}

    while !ring.submission().taskrun() {
        if now_ns() > due_ns + LATEST_NS {
            return Ok(());
        }
        spin_loop();
    }
    samples.set.push(was_set - begun);
    samples.moved.push(was_moved - was_set);
    samples.late.push(now_ns().saturating_sub(due_ns));
    ring.submit_and_wait(1)?;
    while ring.completion().next().is_some() {}
    Ok(())
}

fn main() -> std::io::Result<()> {
    let rounds = if std::env::args().any(|it| it == "--bench") { 5000 } else { 10 };
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(8);
    let mut ring = match ring {
        Ok(ring) => ring,
        Err(refused) => {
            println!("there is no such ring here: {refused}");
            return Ok(());
        }
    };
    let mut samples = Samples::default();
    for _ in 0..rounds {
        round(&mut ring, &mut samples)?;
    }
    let Samples { set, moved, late } = samples;
    println!("{} timers in the kernel, ns", set.len());
    for (what, mut samples) in [("set", set), ("moved", moved), ("late by", late)] {
        samples.sort_unstable();
        let at = |percent: usize| samples.get(samples.len() * percent / 100).copied().unwrap_or(0);
        println!("  {what:<8} p50 {:>6}  p90 {:>6}  p99 {:>6}", at(50), at(90), at(99));
    }
    Ok(())
}
