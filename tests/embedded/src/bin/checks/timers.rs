//! Timers: never early, in their order, without drift.

use core::pin::pin;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use cortex_m_semihosting::hprintln;
use evenkeel::{Handle, Instant, TaskStorage, task_size};
use evenkeel_embedded::clock::{PERIOD, TICK_NANOS};
use evenkeel_embedded::reactor::{Board, Operation};

use crate::backlog;
use crate::promises::Wakes;
use crate::work::work;

/// In the order in which they are set: some fall into one period, two are equal, one is over.
const SPANS_MICROS: [u64; 7] = [5_000, 1_700, 0, 5_000, 1_000, 1_300, 12_345];
/// The places that they come in.
const PLACES: [usize; 7] = [4, 3, 0, 5, 1, 2, 6];

static SLEEPERS: TaskStorage<{ task_size(&sleeper) }, { SPANS_MICROS.len() }> =
    TaskStorage::new("sleepers");

// Ordering: Relaxed for both: one thread.
static ENDED: AtomicUsize = AtomicUsize::new(0);
/// The longest time from a deadline to its task, in ticks.
static LATEST: AtomicU32 = AtomicU32::new(0);

/// All of them.
pub async fn keep_time(handle: &Handle<Board>, wakes: Wakes) {
    let idle = in_order(handle).await;
    // The processor sleeps until a period ends.
    assert!(idle < PERIOD + PERIOD / 4, "a timer was late on an idle worker");
    let backlog = backlog::start(handle);
    let busy = in_order(handle).await;
    backlog.stop().await;
    // A dispatch takes so long here that the clock is looked at before each. Then those that were
    // due before have their turns, between which the other lanes have theirs; and all that yield, if
    // they stand in the same lane.
    let bound = match wakes {
        Wakes::Local => PERIOD,
        Wakes::ThroughInbox => PERIOD * 2,
    };
    assert!(busy < bound, "a timer was late under a backlog");
    hprintln!(
        "  timers in order, none early: at most {:?} late when idle, {:?} under a backlog",
        idle,
        busy
    );
    does_not_drift(handle).await;
    gives_up(handle).await;
}

/// How late the latest was.
async fn in_order(handle: &Handle<Board>) -> Duration {
    const ROUNDS: u32 = 25;
    LATEST.store(0, Ordering::Relaxed);
    for round in 0..ROUNDS {
        ENDED.store(0, Ordering::Relaxed);
        // So that the deadlines are not always at the same point of a period.
        work(round * 700);
        let start = handle.now();
        let mut place = PLACES.iter();
        let sleepers = SPANS_MICROS.map(|span| {
            let deadline = start + Duration::from_micros(span);
            let room = SLEEPERS.reserve().unwrap_or_else(|full| panic!("{full}"));
            let place = *place.next().expect("as many as spans");
            handle.spawn_in(room, sleeper(handle.clone(), deadline, place))
        });
        for sleeper in sleepers {
            sleeper.await.unwrap_or_else(|error| panic!("a sleeper: {error}"));
        }
    }
    Duration::from_nanos(u64::from(LATEST.load(Ordering::Relaxed)) * TICK_NANOS)
}

async fn sleeper(handle: Handle<Board>, deadline: Instant, place: usize) {
    handle.sleep_until(deadline).await;
    let now = handle.now();
    assert!(now >= deadline, "woken {:?} too early", deadline - now);
    assert_eq!(ENDED.load(Ordering::Relaxed), place, "timers fire in the order of their deadlines");
    ENDED.store(place + 1, Ordering::Relaxed);
    let ticks = now.nanos_since(deadline) / TICK_NANOS;
    let ticks = u32::try_from(ticks).expect("less than six minutes");
    LATEST.store(LATEST.load(Ordering::Relaxed).max(ticks), Ordering::Relaxed);
}

/// Not a multiple of the SysTick's period, so each tick is a different part of one late.
async fn does_not_drift(handle: &Handle<Board>) {
    const EVERY: Duration = Duration::from_micros(1_700);
    let mut expected = handle.now();
    let mut interval = pin!(handle.interval_at(expected, EVERY).expect("it is not zero"));
    for _ in 0..50 {
        let due = interval.as_mut().tick().await;
        let now = handle.now();
        assert_eq!(due, expected, "an interval has drifted");
        assert!(now >= due && now - due < PERIOD + PERIOD / 4);
        expected = expected + EVERY;
    }
}

/// No byte comes, so the timer wins, and the operation is cancelled; a period comes in time.
async fn gives_up(handle: &Handle<Board>) {
    const SPAN: Duration = Duration::from_micros(2_500);
    for _ in 0..20 {
        let start = handle.now();
        let byte = handle.submit(Operation::ReadByte).expect("there is room");
        handle.timeout(SPAN, byte).await.expect_err("no byte has come");
        assert!(handle.now() - start >= SPAN);

        let period = handle.submit(Operation::Period).expect("there is room");
        let ended = handle.timeout(SPAN, period).await.expect("it is shorter");
        ended.expect("the worker is there");
        assert!(handle.now() - start < SPAN + PERIOD * 3);
    }
}
