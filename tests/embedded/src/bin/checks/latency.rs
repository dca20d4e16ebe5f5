//! Service latency: from an interrupt to the first instruction of the task that it resumes.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m_semihosting::hprintln;
use evenkeel::{Handle, Lane};
use evenkeel_embedded::clock;
use evenkeel_embedded::reactor::{Board, Operation};

use crate::backlog::{self, BACKLOG};
use crate::promises::Wakes;
use crate::{alarm, stamp};

const SAMPLES: usize = 256;

/// In ticks.
static TABLE: [AtomicU32; SAMPLES] = [const { AtomicU32::new(0) }; SAMPLES];

/// The two ways that lead from an interrupt to a task.
#[derive(Clone, Copy)]
pub enum Way {
    /// The handler records, the reactor reports a completion.
    Completion,
    /// The handler wakes the task itself, through the worker's inbox.
    Signal,
}

impl Way {
    /// Waits for the next period.
    pub async fn next_period(self, handle: &Handle<Board>) {
        match self {
            Self::Completion => {
                let period = handle.submit(Operation::Period).expect("there is room");
                period.await.expect("the worker is there");
            }
            Self::Signal => alarm::after(1).await,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Signal => "handler's wake",
        }
    }
}

/// Both ways, on an idle worker and under a backlog.
pub async fn latencies(handle: &Handle<Board>, wakes: Wakes) {
    for way in [Way::Completion, Way::Signal] {
        measure(handle, way, "idle", 0).await;
    }
    // The first of its lane: each of the lanes has a turn before it at most. Where there is but one
    // way to wake, those who yield stand in the same lane, all of them before it.
    let first = match wakes {
        Wakes::Local => 1,
        Wakes::ThroughInbox => BACKLOG + 1,
    };
    for way in [Way::Completion, Way::Signal] {
        let backlog = backlog::start(handle);
        measure(handle, way, "busy", first * Lane::COUNT).await;
        backlog.stop().await;
    }
}

async fn measure(handle: &Handle<Board>, way: Way, load: &str, bound: usize) {
    let mut most = 0;
    // The first period passes while the others find their places.
    way.next_period(handle).await;
    let first = clock::periods();
    for sample in &TABLE {
        way.next_period(handle).await;
        let since = stamp::since();
        // Ordering: Relaxed: one thread.
        sample.store(since.ticks, Ordering::Relaxed);
        most = since.dispatches.max(most);
    }
    let passed = clock::periods().wrapping_sub(first);
    let mut table = TABLE.each_ref().map(|sample| sample.load(Ordering::Relaxed));
    table.sort_unstable();
    let [min, p50, max] = [0, SAMPLES / 2, SAMPLES - 1].map(|index| table[index]);
    hprintln!(
        "  latency of a {}, {}: min {}, p50 {}, max {} ticks, at most {} dispatches of {} (n = {})",
        way.name(),
        load,
        min,
        p50,
        max,
        most,
        bound,
        SAMPLES
    );
    assert_eq!(passed as usize, SAMPLES, "every period has resumed the task, once");
    assert!(most <= bound, "the bound of service is broken");
}
