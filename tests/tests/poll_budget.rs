//! Where looking costs, the worker spends a budget of time. On virtual time, so that the shares are
//! exact.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use evenkeel::testing::{SimOperation, VirtualClock};
use evenkeel::{Clock, Instant, PollShare, Rest, Wait, WorkerConfig, yield_now};
use evenkeel_tests::{Rig, Sight};

const LONGEST_INTERVAL: Duration = Duration::from_micros(50);
const SHORTEST_INTERVAL: Duration = Duration::from_micros(1);
/// None of these tests needs more ticks in a row.
const MOST_TICKS: usize = 1_000_000;
/// What a stride is to take at most, beyond its one dispatch.
const STRIDE: Duration = Duration::from_micros(1);

fn blind(share: u8, poll_cost: Duration) -> Rig {
    let config = WorkerConfig::default().poll_share(PollShare::percent(share).unwrap());
    Rig::with(Sight::Blind, config, |reactor| reactor.poll_cost(poll_cost))
}

/// Spawns a task that yields, and takes so much time in each dispatch.
fn busy(rig: &Rig, dispatch: Duration) -> Rc<Cell<Duration>> {
    let cost = Rc::new(Cell::new(dispatch));
    let (clock, each) = (rig.clock.clone(), Rc::clone(&cost));
    drop(rig.handle.spawn(async move {
        loop {
            clock.advance(each.get());
            yield_now().await;
        }
    }));
    cost
}

/// Whole ticks, as a worker runs them, until so much time has passed.
fn run_for(rig: &mut Rig, span: Duration) {
    let end = rig.clock.now() + span;
    // Each tick takes time, for a task in it does.
    for _ in 0..MOST_TICKS {
        if rig.clock.now() >= end {
            return;
        }
        assert_eq!(rig.tick().rest, Rest::Spent);
    }
    panic!("{MOST_TICKS} ticks, and not yet {end:?}");
}

/// Whole ticks, until the reactor has been polled so often in all. `between` is called before each.
fn run_for_polls(rig: &mut Rig, polls: usize, mut between: impl FnMut(&Rig)) {
    for _ in 0..MOST_TICKS {
        if rig.sim.polls().len() >= polls {
            return;
        }
        between(rig);
        rig.tick();
    }
    panic!("{MOST_TICKS} ticks, and not yet {polls} polls");
}

/// The longest and the shortest time from poll to poll.
fn gaps(polls: &[Instant]) -> (Duration, Duration) {
    let gaps = || polls.windows(2).map(|two| two[1] - two[0]);
    (gaps().max().expect("several polls"), gaps().min().expect("several polls"))
}

fn interval(share: u8, poll_cost: Duration) -> Duration {
    (poll_cost * 100 / u32::from(share)).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
}

#[test]
fn dry_polls_keep_to_their_share_whatever_a_dispatch_costs() {
    for share in [1, 2, 5, 10, 50, 100] {
        for poll_nanos in [20, 100, 350, 500, 1_000, 2_500] {
            let poll = Duration::from_nanos(poll_nanos);
            if poll * 100 / u32::from(share) > LONGEST_INTERVAL {
                continue; // There the bound on latency comes first: see the next test.
            }
            for dispatch_nanos in [10, 100, 1_000, 5_000, 20_000] {
                let dispatch = Duration::from_nanos(dispatch_nanos);
                let span = Duration::from_millis(1).max(dispatch * 1_000);
                let mut rig = blind(share, poll);
                busy(&rig, dispatch);
                run_for(&mut rig, span);
                let polls = rig.sim.polls();
                let spent = poll * u32::try_from(polls.len() - 1).unwrap();
                let case = format!("{share} %, polls of {poll:?}, dispatches of {dispatch:?}");
                assert!(spent * 100 <= span * u32::from(share), "{case}: {spent:?} of {span:?}");
                // And it is spent: no poll is later than its interval and a stride.
                let longest = gaps(&polls[1..]).0;
                let most = interval(share, poll) + poll + STRIDE + dispatch;
                assert!(longest <= most, "{case}: {longest:?} between two polls, not {most:?}");
            }
        }
    }
}

#[test]
fn the_interval_is_clamped_whatever_a_poll_costs() {
    for poll_micros in [3, 10, 40] {
        let mut rig = blind(5, Duration::from_micros(poll_micros));
        busy(&rig, Duration::from_nanos(100));
        run_for(&mut rig, Duration::from_millis(5));
        let (longest, shortest) = gaps(&rig.sim.polls());
        assert!(shortest >= LONGEST_INTERVAL, "polls of {poll_micros} µs: {shortest:?}");
        assert!(longest <= LONGEST_INTERVAL + STRIDE, "polls of {poll_micros} µs: {longest:?}");
    }
    let mut rig = blind(100, Duration::from_nanos(1));
    busy(&rig, Duration::from_nanos(10));
    run_for(&mut rig, Duration::from_millis(1));
    assert!(gaps(&rig.sim.polls()).1 >= SHORTEST_INTERVAL);
}

#[test]
fn a_stall_inside_a_poll_does_not_push_the_next_one_out() {
    let stall = Duration::from_millis(5);
    // In the first poll of all, in an early one, and late, when the estimate is settled.
    for polls_before in [0, 1, 3, 1_000] {
        let mut rig = blind(5, Duration::from_nanos(100));
        busy(&rig, Duration::from_nanos(50));
        run_for_polls(&mut rig, polls_before, |_| {});
        rig.sim.stall_next_poll(stall);
        run_for(&mut rig, stall + 3 * LONGEST_INTERVAL);
        let polls = rig.sim.polls();
        let after = polls_before;
        let ended = polls[after] + stall;
        let next = polls[after + 1] - ended;
        assert!(next <= LONGEST_INTERVAL, "after {polls_before} polls: the next {next:?} later");
        // The estimate has hardly moved: the next ones come as often as before.
        let longest = gaps(&polls[after + 1..]).0;
        let most = Duration::from_micros(2) * 102 / 100 + STRIDE + Duration::from_nanos(150);
        assert!(longest <= most, "after {polls_before} polls: then {longest:?} apart");
    }
}

#[test]
fn several_stalls_in_a_row_raise_the_interval_by_a_64th_each() {
    let mut rig = blind(5, Duration::from_nanos(100));
    busy(&rig, Duration::from_nanos(50));
    run_for(&mut rig, Duration::from_millis(1));
    let before = rig.sim.polls().len();
    run_for_polls(&mut rig, before + 8, |rig| {
        rig.sim.stall_next_poll(Duration::from_millis(5));
    });
    let from = rig.sim.polls().len();
    rig.sim.stall_next_poll(Duration::ZERO);
    run_for(&mut rig, Duration::from_micros(100));
    let longest = gaps(&rig.sim.polls()[from..]).0;
    assert!(longest <= Duration::from_nanos(2_400) + STRIDE, "{longest:?} between two polls");
}

#[test]
fn a_poll_that_became_dearer_is_polled_less_often_in_time() {
    // A stall in each poll is a dearer poll.
    let mut rig = blind(5, Duration::from_nanos(100));
    busy(&rig, Duration::from_nanos(50));
    let dearer = Duration::from_nanos(900);
    run_for_polls(&mut rig, 400, |rig| rig.sim.stall_next_poll(dearer));
    let (_, shortest) = gaps(&rig.sim.polls()[350..]);
    assert!(shortest >= Duration::from_micros(20), "{shortest:?} between polls of 1 µs");
}

#[test]
fn dispatches_that_grow_long_are_timed_one_by_one() {
    let mut rig = blind(5, Duration::from_nanos(100));
    let cost = busy(&rig, Duration::from_nanos(10));
    run_for(&mut rig, Duration::from_millis(1));
    cost.set(Duration::from_micros(20));
    // The stride that was begun is finished blindly; after it each dispatch is followed by a look.
    let tick = rig.tick();
    assert!(tick.dispatches.total() <= 64);
    for _ in 0..100 {
        let tick = rig.tick();
        assert_eq!((tick.dispatches.total(), tick.polls), (1, 1));
    }
}

#[test]
fn a_reactor_that_knows_is_never_polled_for_nothing() {
    let mut rig = Rig::knowing();
    let operation = rig.handle.submit(SimOperation::Event(0)).unwrap();
    busy(&rig, Duration::from_nanos(10));
    run_for(&mut rig, Duration::from_millis(1));
    assert_eq!(rig.sim.polls().len(), 1, "the one that armed the operation");
    assert_eq!(rig.remote.stats().dry_polls, 0);
    drop(operation);
}

#[test]
fn dry_polls_are_counted_and_others_are_not() {
    let mut rig = blind(5, Duration::from_nanos(100));
    busy(&rig, Duration::from_nanos(50));
    let handle = rig.handle.clone();
    drop(rig.handle.spawn(async move {
        loop {
            handle.submit(SimOperation::Event(0)).unwrap().await.unwrap();
        }
    }));
    let mut fired = 0;
    for _ in 0..10_000 {
        fired += usize::from(rig.sim.fire(0, 0));
        rig.tick();
    }
    let stats = rig.remote.stats();
    assert_eq!(stats.polls, rig.sim.polls().len());
    let wet = stats.polls - stats.dry_polls;
    assert!(wet == fired || wet + 1 == fired, "{wet} polls found something, {fired} events");
}

#[test]
fn a_wait_is_a_look_as_good_as_any() {
    let mut rig = blind(5, Duration::from_nanos(100));
    assert_eq!(rig.settle(), 0);
    let operation = rig.handle.submit(SimOperation::After(Duration::from_millis(1))).unwrap();
    rig.worker.park(Wait::Forever).unwrap();
    let waited = rig.clock.now();
    assert!(waited >= Instant::ZERO + Duration::from_millis(1), "it waited for the timer");
    let polls = rig.sim.polls().len();
    busy(&rig, Duration::from_nanos(10));
    run_for(&mut rig, SHORTEST_INTERVAL / 2);
    assert_eq!(rig.sim.polls().len(), polls, "not polled again at once");
    drop(operation);
}

#[test]
fn the_worker_stands_still_when_the_clock_does() {
    // A clock that never moves must not keep a worker from its tasks, nor from its rest.
    let mut rig = Rig::with(Sight::Blind, WorkerConfig::default(), |r| r.poll_cost(Duration::ZERO));
    let clock: VirtualClock = rig.clock.clone();
    drop(rig.handle.spawn(async {
        for _ in 0..1_000 {
            yield_now().await;
        }
    }));
    assert_eq!(rig.settle(), 1_001);
    assert_eq!(clock.now(), Instant::ZERO);
}
