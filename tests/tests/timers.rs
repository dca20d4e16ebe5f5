//! A worker's timers, on virtual time: never early, in their order, and within a bound in counts,
//! whatever else the worker has to do. And the same on the machine's own clock, where only what holds
//! at any speed is asked.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use evenkeel::testing::{SimError, SimOperation, VirtualClock};
use evenkeel::timers::{Elapsed, MissedTicks, Sleep};
use evenkeel::{
    Clock, Instant, Lane, POLL_BATCH, Parked, Rest, Wait, WorkerConfig, WorkerTimers, yield_now,
};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::{
    DEADLINE, Live, Random, Rig, Seed, Sight, Tally, WakeCount, WakerSlot, poll_once, ready, seeds,
    seen, start, wait_for, wait_until,
};
use evenkeel_uring::UringReactor;

type SimSleep = Sleep<WorkerTimers<evenkeel::testing::SimReactor>>;

/// What was dispatched by timers: who, and when.
type Log<T> = Rc<RefCell<Vec<T>>>;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn room_for(operations: usize) -> WorkerConfig {
    WorkerConfig::default().operations(operations)
}

/// A worker whose polls take no time.
fn free_polls(sight: Sight) -> Rig {
    Rig::with(sight, WorkerConfig::default(), |reactor| reactor.poll_cost(Duration::ZERO))
}

/// Spawns a task that sleeps until then and says so.
fn sleeper(rig: &Rig, deadline: Instant, id: usize, log: &Log<usize>) {
    let (handle, log) = (rig.handle.clone(), Rc::clone(log));
    drop(rig.handle.spawn(async move {
        handle.sleep_until(deadline).await;
        assert!(handle.now() >= deadline, "early");
        log.borrow_mut().push(id);
    }));
}

/// Ticks and parks until nobody waits for a timer. How often it parked.
fn run_out(rig: &mut Rig) -> usize {
    let mut parks = 0;
    loop {
        rig.settle();
        match rig.worker.park(Wait::Forever) {
            Ok(Parked::Waited) => parks += 1,
            Ok(Parked::Retracted) => {}
            Err(SimError::Hang) => return parks,
            Err(error) => panic!("{error}"),
        }
    }
}

// Never early, and in order.

#[test]
fn no_timer_is_early_and_all_keep_the_order_of_deadlines_and_of_setting() {
    for seed in seeds(100) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut rig = Rig::new(Sight::BOTH[random.below(2)]);
        let (order, asked): (Log<(Instant, usize)>, _) = (Rc::default(), Rc::new(Cell::new(0)));
        let range = [3, 100, 5_000, 1_000_000][random.below(4)];
        for _ in 0..=random.below(150) {
            let (handle, order, asked) = (rig.handle.clone(), Rc::clone(&order), Rc::clone(&asked));
            let spans: Vec<_> = (0..5).map(|_| nanos(1 + random.below(range) as u64)).collect();
            let (clock, cost) = (rig.clock.clone(), nanos(random.below(300) as u64));
            drop(rig.handle.spawn(async move {
                for span in spans {
                    let number = asked.replace(asked.get() + 1);
                    let deadline = handle.now() + span;
                    handle.sleep_until(deadline).await;
                    assert!(handle.now() >= deadline, "early");
                    order.borrow_mut().push((deadline, number));
                    clock.advance(cost);
                }
            }));
        }
        run_out(&mut rig);
        assert_eq!(order.borrow().len(), asked.get(), "all have fired");
        assert!(order.borrow().is_sorted(), "{:?}", order.borrow());
    }
}

#[test]
fn equal_deadlines_fire_in_the_order_of_setting_across_batches() {
    for sight in Sight::BOTH {
        let (mut rig, log) = (Rig::new(sight), Log::default());
        let count = 5 * POLL_BATCH + 3;
        for id in 0..count {
            sleeper(&rig, at(50_000), id, &log);
        }
        rig.settle();
        assert_eq!(log.borrow().len(), 0);
        run_out(&mut rig);
        assert!(log.borrow().iter().copied().eq(0..count), "{sight:?}: {:?}", log.borrow());
    }
}

#[test]
fn a_tick_fires_one_batch_and_says_so() {
    for sight in Sight::BOTH {
        let (mut rig, log) = (Rig::new(sight), Log::default());
        for id in 0..=2 * POLL_BATCH {
            sleeper(&rig, at(50_000), id, &log);
        }
        rig.settle();
        rig.clock.advance(nanos(50_000));
        let mut fired = Vec::new();
        while log.borrow().len() < 2 * POLL_BATCH + 1 {
            let tick = rig.tick();
            fired.extend((tick.timers > 0).then_some(tick.timers));
        }
        let batch = u32::try_from(POLL_BATCH).unwrap();
        assert_eq!(fired, [batch, batch, 1], "{sight:?}");
    }
}

#[test]
fn what_sleeps_for_no_time_gives_way_once() {
    let mut rig = Rig::knowing();
    let (order, handle) = (Log::default(), rig.handle.clone());
    let sleeps = Rc::clone(&order);
    drop(rig.handle.spawn(async move {
        sleeps.borrow_mut().push("before");
        handle.sleep(Duration::ZERO).await;
        sleeps.borrow_mut().push("after");
    }));
    let other = Rc::clone(&order);
    drop(rig.handle.spawn(async move { other.borrow_mut().push("another") }));
    // Time stands still meanwhile: it is due all the same. The rest comes at the next look.
    while order.borrow().len() < 3 {
        rig.tick();
    }
    assert_eq!(*order.borrow(), ["before", "another", "after"]);
}

// The bound. Tasks count their dispatches, and each of these takes so much time.

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static COST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static DUE: Cell<Instant> = const { Cell::new(Instant::FAR_FUTURE) };
    /// The number of the first dispatch that began when the timers were due.
    static DUE_AT: Cell<Option<usize>> = const { Cell::new(None) };
    static CLOCK: RefCell<VirtualClock> = RefCell::default();
}

/// What each dispatch of each task begins with. Its number.
fn step() -> usize {
    let number = STEPS.replace(STEPS.get() + 1);
    CLOCK.with_borrow(|clock| {
        if clock.now() >= DUE.get() && DUE_AT.get().is_none() {
            DUE_AT.set(Some(number));
        }
        clock.advance(COST.get());
    });
    number
}

/// What keeps a worker busy beside its timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    Backlog,
    Submissions,
    Completions,
}

/// How many tasks wait for completions without end: more than two batches.
const FLOOD_OF_COMPLETIONS: usize = 3 * POLL_BATCH;

fn flooded(sight: Sight, cost: Duration, floods: &[Flood]) -> Rig {
    let rig = Rig::with(sight, room_for(FLOOD_OF_COMPLETIONS), |reactor| reactor);
    CLOCK.set(rig.clock.clone());
    COST.set(cost);
    STEPS.set(0);
    DUE.set(Instant::FAR_FUTURE);
    DUE_AT.set(None);
    for flood in floods {
        match flood {
            Flood::Backlog => {
                for _ in 0..200 {
                    drop(rig.handle.spawn(async {
                        loop {
                            step();
                            yield_now().await;
                        }
                    }));
                }
            }
            Flood::Submissions => {
                for _ in 0..20_000 {
                    drop(rig.remote.spawn_with(|_| async { step() }));
                }
            }
            Flood::Completions => {
                for _ in 0..FLOOD_OF_COMPLETIONS {
                    let handle = rig.handle.clone();
                    drop(rig.handle.spawn(async move {
                        loop {
                            step();
                            let operation = SimOperation::After(Duration::ZERO);
                            handle.submit(operation).unwrap().await.unwrap();
                        }
                    }));
                }
            }
        }
    }
    rig
}

/// So many timers, due together at a time that a busy worker reaches: how many dispatches after they
/// were due each was dispatched, from 1, and at most so many dispatches a stride.
fn dispatches_after_due(rig: &mut Rig, timers: usize, warm_up: usize) -> Vec<usize> {
    let log: Log<usize> = Rc::default();
    // At the front, so that all are set before the flood has moved on.
    let gate = Rc::new(Cell::new(None));
    for _ in 0..timers {
        let (handle, log, gate) = (rig.handle.clone(), Rc::clone(&log), Rc::clone(&gate));
        drop(rig.handle.spawn(async move {
            step();
            let deadline = gate.get().expect("set before the first tick");
            handle.sleep_until(deadline).await;
            log.borrow_mut().push(step());
        }));
    }
    // Far enough for the stride to have settled, and for all to have been set.
    let span = COST.get() * u32::try_from(warm_up).unwrap();
    let deadline = rig.clock.now() + span;
    gate.set(Some(deadline));
    DUE.set(deadline);
    while log.borrow().len() < timers {
        rig.tick();
        assert!(STEPS.get() < 10 * (warm_up + 10_000), "not served: {:?}", log.borrow());
    }
    let due_at = DUE_AT.get().expect("a dispatch began after the deadline");
    let places: Vec<usize> = log.borrow().iter().map(|number| number + 1 - due_at).collect();
    places
}

/// How many dispatches of this cost a stride has at most when it has settled.
fn stride(cost: Duration) -> usize {
    usize::try_from(1_000 / cost.as_nanos()).unwrap().clamp(1, 64)
}

#[test]
fn the_mth_timer_of_those_due_together_comes_within_a_stride_and_3m_dispatches() {
    for sight in Sight::BOTH {
        for floods in [&[Flood::Backlog][..], &[Flood::Backlog, Flood::Submissions]] {
            for cost in [5, 20, 100, 500, 2_000, 20_000].map(nanos) {
                let mut rig = flooded(sight, cost, floods);
                let places = dispatches_after_due(&mut rig, 5 * POLL_BATCH, 8_000);
                for (place, m) in places.iter().zip(1..) {
                    let most = stride(cost) + 3 * m;
                    assert!(
                        *place <= most,
                        "{sight:?}, {floods:?}, {cost:?}, m = {m}: dispatch {place}, not {most}"
                    );
                }
            }
        }
    }
}

/// Timers and completions share a lane, a batch of each in turn. So *m* counts the completions that
/// were in it when the timers became due, and a batch of them after each batch of timers.
#[test]
fn a_flood_of_completions_gives_every_other_batch_of_the_lane_to_timers() {
    for sight in Sight::BOTH {
        for cost in [20, 100, 2_000].map(nanos) {
            let floods = [Flood::Backlog, Flood::Submissions, Flood::Completions];
            let mut rig = flooded(sight, cost, &floods);
            let places = dispatches_after_due(&mut rig, 5 * POLL_BATCH, 8_000);
            for (place, m) in places.iter().zip(1_usize..) {
                let in_the_lane = POLL_BATCH * m.div_ceil(POLL_BATCH) + m;
                let most = stride(cost) + 3 * in_the_lane;
                assert!(*place <= most, "{sight:?}, {cost:?}, m = {m}: dispatch {place}, {most}");
            }
        }
    }
}

#[test]
fn dispatches_that_grow_long_at_once_delay_a_timer_by_64_of_them_at_most() {
    let mut rig = flooded(Sight::Knowing, nanos(1), &[Flood::Backlog]);
    for _ in 0..1_000 {
        rig.tick(); // The stride has settled at its longest.
    }
    let (handle, log) = (rig.handle.clone(), Log::default());
    let done = Rc::clone(&log);
    // At the front of the stride that follows: from now on each dispatch takes a millisecond.
    drop(rig.handle.spawn(async move {
        step();
        COST.set(Duration::from_millis(1));
        DUE.set(handle.now() + nanos(1));
        handle.sleep_until(DUE.get()).await;
        done.borrow_mut().push(step());
    }));
    while log.borrow().is_empty() {
        rig.tick();
    }
    let place = log.borrow()[0] + 1 - DUE_AT.get().unwrap();
    assert!(place <= 64 + 3, "dispatch {place}");
}

#[test]
fn timers_take_turns_with_the_other_lanes() {
    let mut rig = Rig::knowing();
    for id in 0..90 {
        sleeper(&rig, at(1_000), id, &Rc::default());
    }
    rig.settle();
    rig.backlog(10);
    for _ in 0..90 {
        drop(rig.remote.spawn(async {}));
    }
    rig.clock.advance(nanos(1_000));
    for three in rig.dispatches(3 * 90).chunks(3) {
        for lane in [Lane::Local, Lane::Remote, Lane::Io] {
            assert!(three.iter().any(|step| step.lane == lane), "no {lane:?} in {three:?}");
        }
    }
}

/// Spawns tasks that sleep for no time, again and again.
fn restless(rig: &Rig, tasks: usize) -> Rc<Cell<usize>> {
    let fired = Rc::new(Cell::new(0));
    for _ in 0..tasks {
        let (handle, count) = (rig.handle.clone(), Rc::clone(&fired));
        drop(rig.handle.spawn(async move {
            loop {
                handle.sleep(Duration::ZERO).await;
                count.set(count.get() + 1);
            }
        }));
    }
    fired
}

#[test]
fn timers_that_are_set_again_and_again_starve_neither_backlog_nor_inbox() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let fired = restless(&rig, 1_000);
        rig.dispatches(1_000);
        rig.backlog(5);
        for _ in 0..2_000 {
            drop(rig.remote.spawn(async {}));
        }
        rig.dispatches(10);
        for three in rig.dispatches(3 * 1_500).chunks(3) {
            for lane in [Lane::Local, Lane::Remote, Lane::Io] {
                assert!(three.iter().any(|step| step.lane == lane), "{sight:?}: no {lane:?}");
            }
        }
        assert!(fired.get() >= 1_500, "and they go on: {}", fired.get());
    }
}

#[test]
fn timers_that_are_set_again_and_again_do_not_starve_the_reactor() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        rig.cost = nanos(100);
        let (handle, served) = (rig.handle.clone(), Rc::new(Cell::new(0)));
        let count = Rc::clone(&served);
        drop(rig.handle.spawn(async move {
            loop {
                handle.submit(SimOperation::Event(0)).unwrap().await.unwrap();
                count.set(count.get() + 1);
            }
        }));
        rig.settle();
        restless(&rig, 1_000);
        rig.backlog(100);
        for _ in 0..3_000 {
            drop(rig.remote.spawn(async {}));
        }
        rig.dispatches(4_000);
        for round in 0..10 {
            assert!(rig.sim.fire(0, 0), "armed again: {sight:?}, round {round}");
            // What was fired before it, a batch at most, and the poll comes; then the next batch of
            // timers, and it. One poll interval more for a reactor that can't tell.
            let before = served.get();
            let most = 3 * (2 * POLL_BATCH + 1) + 20;
            let dispatches = (1..=most).find(|_| {
                rig.dispatch().expect("it is busy");
                served.get() > before
            });
            assert!(dispatches.is_some(), "{sight:?}, round {round}: not within {most}");
            rig.dispatches(3 * (2 * POLL_BATCH + 1) + round); // Armed.
        }
    }
}

#[test]
fn who_sleeps_until_a_time_long_past_again_and_again_holds_nobody_up() {
    for sight in Sight::BOTH {
        let (mut rig, log) = (Rig::new(sight), Log::default());
        for _ in 0..2 * POLL_BATCH {
            let handle = rig.handle.clone();
            drop(rig.handle.spawn(async move {
                loop {
                    handle.sleep_until(Instant::ZERO).await;
                }
            }));
        }
        for id in 0..2 * POLL_BATCH {
            sleeper(&rig, at(1_000_000), id, &log);
        }
        rig.dispatches(20 * POLL_BATCH);
        assert_eq!(log.borrow().len(), 0);
        rig.clock.advance(nanos(1_000_000));
        // What was due before goes first, once; and what was in the lane.
        rig.dispatches(5 * POLL_BATCH);
        assert!(
            log.borrow().iter().copied().eq(0..2 * POLL_BATCH),
            "{sight:?}: {:?}",
            log.borrow()
        );
    }
}

/// The lane holds a batch of timers and one of completions when the operation is submitted, at most;
/// the poll comes when both have been served.
#[test]
fn what_is_submitted_among_restless_timers_and_completions_is_armed_after_two_batches() {
    for skip in 0..250 {
        let mut rig = Rig::with(Sight::Knowing, room_for(100), |reactor| reactor);
        for event in 0..80 {
            let handle = rig.handle.clone();
            drop(rig.handle.spawn(async move {
                loop {
                    handle.submit(SimOperation::Event(event)).unwrap().await.unwrap();
                }
            }));
        }
        rig.settle();
        restless(&rig, 200);
        rig.backlog(10);
        for _ in 0..1_000 {
            drop(rig.remote.spawn(async {}));
        }
        rig.dispatches(800);
        for event in 0..80 {
            assert!(rig.sim.fire(event, 0), "armed");
        }
        rig.dispatches(skip);
        let operation = rig.handle.submit(SimOperation::Event(99)).unwrap();
        let most = 3 * 2 * POLL_BATCH + 3;
        let dispatches = (0..=most).find(|_| rig.sim.fire(99, 0) || rig.dispatch().is_none());
        assert!(dispatches.is_some(), "not armed after {most} dispatches");
        drop(operation);
    }
}

#[test]
fn a_thousand_restless_timers_share_the_lane_evenly() {
    let mut rig = Rig::knowing();
    let rounds: Rc<RefCell<Vec<usize>>> = Rc::new(RefCell::new(vec![0; 1_000]));
    for id in 0..1_000 {
        let (handle, rounds) = (rig.handle.clone(), Rc::clone(&rounds));
        drop(rig.handle.spawn(async move {
            loop {
                handle.sleep(Duration::ZERO).await;
                rounds.borrow_mut()[id] += 1;
            }
        }));
    }
    // Until all have been set: the first of them come round meanwhile.
    rig.dispatches(4_000);
    rounds.borrow_mut().fill(0);
    rig.dispatches(20_500);
    let rounds = rounds.borrow();
    assert!(rounds.iter().all(|rounds| [20, 21].contains(rounds)), "{rounds:?}");
}

// Parking.

#[test]
fn an_idle_worker_parks_once_for_each_deadline_and_exactly_until_it() {
    for sight in Sight::BOTH {
        let (mut rig, log) = (free_polls(sight), Log::default());
        let deadlines = [5_000, 70_000, 70_001, 9_000_000];
        for (id, &deadline) in deadlines.iter().enumerate().rev() {
            sleeper(&rig, at(deadline), id, &log);
        }
        rig.settle();
        let before = rig.remote.stats();
        for (number, &deadline) in deadlines.iter().enumerate() {
            assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
            assert_eq!(rig.clock.now(), at(deadline), "{sight:?}");
            let polls = rig.remote.stats().polls;
            let tick = rig.tick();
            assert_eq!((tick.timers, tick.dispatches.io, tick.rest), (1, 1, Rest::Idle));
            assert_eq!(rig.remote.stats().polls, polls, "{sight:?}: the wait was a look");
            assert_eq!(log.borrow().len(), number + 1);
        }
        let after = rig.remote.stats();
        assert_eq!(after.parks - before.parks, deadlines.len());
        assert_eq!(after.retractions, before.retractions);
        assert_eq!(rig.sim.waits(), deadlines.len(), "{sight:?}");
        assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang), "nothing is left");
    }
}

#[test]
fn the_earlier_of_a_deadline_and_of_the_callers_wait_ends_a_park() {
    let (mut rig, log) = (free_polls(Sight::Knowing), Log::default());
    sleeper(&rig, at(5_000), 0, &log);
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Until(at(4_000))), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), at(4_000));
    assert_eq!(rig.settle(), 0);
    assert_eq!(rig.worker.park(Wait::Until(at(6_000))), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), at(5_000));
    assert_eq!(rig.settle(), 1);
    assert_eq!(rig.worker.park(Wait::Until(at(6_000))), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), at(6_000));
}

#[test]
fn a_timer_that_is_due_keeps_the_worker_from_its_park() {
    let (mut rig, log) = (free_polls(Sight::Knowing), Log::default());
    sleeper(&rig, at(5_000), 0, &log);
    rig.settle();
    rig.clock.advance(nanos(5_000));
    assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Retracted));
    assert_eq!(rig.sim.waits(), 0);
    assert_eq!(rig.settle(), 1);
    assert_eq!(*log.borrow(), [0]);
}

#[test]
fn a_park_that_does_not_wait_fires_no_timer_and_moves_no_time() {
    let (mut rig, log) = (free_polls(Sight::Knowing), Log::default());
    sleeper(&rig, at(5_000), 0, &log);
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Never), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), Instant::ZERO);
    assert_eq!(rig.settle(), 0);
}

#[test]
fn a_timer_that_is_dropped_does_not_end_the_park() {
    let (mut rig, log) = (free_polls(Sight::Knowing), Log::default());
    let handle = rig.handle.clone();
    let early = rig.handle.spawn(async move { handle.sleep_until(at(1_000)).await });
    sleeper(&rig, at(5_000), 0, &log);
    rig.settle();
    early.abort();
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), at(5_000));
}

#[test]
fn the_far_future_never_fires_and_does_not_end_a_park() {
    for sight in Sight::BOTH {
        let mut rig = free_polls(sight);
        let fired = Rc::new(Cell::new(0));
        for way in 0..4 {
            let (handle, fired) = (rig.handle.clone(), Rc::clone(&fired));
            drop(rig.handle.spawn(async move {
                match way {
                    0 => handle.sleep_until(Instant::FAR_FUTURE).await,
                    1 => handle.sleep(Duration::MAX).await,
                    2 => drop(handle.timeout(Duration::MAX, pending::<()>()).await),
                    _ => drop(pin!(handle.interval(Duration::MAX).unwrap()).tick().await),
                }
                fired.set(fired.get() + 1);
            }));
        }
        rig.settle();
        assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang), "for ever, not until then");
        assert_eq!(rig.worker.park(Wait::Until(at(77_000))), Ok(Parked::Waited));
        assert_eq!(rig.clock.now(), at(77_000));
        rig.clock.advance(Duration::MAX);
        assert_eq!(rig.clock.now(), Instant::FAR_FUTURE);
        assert_eq!(rig.settle(), 0);
        assert_eq!(fired.get(), 0, "{sight:?}");
    }
}

// Intervals.

#[test]
fn an_interval_does_not_drift_over_ten_thousand_ticks_with_stalls() {
    for sight in Sight::BOTH {
        for missed in [MissedTicks::Burst, MissedTicks::Skip] {
            let mut rig = Rig::new(sight);
            let (handle, clock) = (rig.handle.clone(), rig.clock.clone());
            let (period, first) = (nanos(1_000), at(12_345));
            let task = rig.handle.spawn(async move {
                let mut random = Random::new(7);
                let interval = handle.interval_at(first, period).unwrap();
                let mut interval = pin!(interval.missed_ticks(missed));
                let mut before = None;
                for number in 0..10_000_u64 {
                    let due = interval.as_mut().tick().await;
                    assert!(handle.now() >= due, "early");
                    assert_eq!((due - first).as_nanos() % 1_000, 0, "drifted");
                    assert!(before < Some(due), "twice");
                    before = Some(due);
                    if missed == MissedTicks::Burst {
                        assert_eq!(due, first + nanos(1_000 * number), "tick {number}");
                    }
                    let stall = if random.once_in(50) { 9_000 } else { 1_500 };
                    clock.advance(nanos(random.below(stall) as u64));
                }
            });
            run_out(&mut rig);
            ready(task).unwrap();
        }
    }
}

#[test]
fn missed_ticks_burst_skip_or_delay() {
    let cases = [
        (MissedTicks::Burst, [100, 200, 300, 400, 500]),
        (MissedTicks::Skip, [100, 200, 500, 600, 700]),
        (MissedTicks::Delay, [100, 200, 550, 650, 750]),
    ];
    for (missed, expected) in cases {
        let mut rig = free_polls(Sight::Knowing);
        let (handle, clock) = (rig.handle.clone(), rig.clock.clone());
        let task = rig.handle.spawn(async move {
            let interval = handle.interval(nanos(100)).unwrap();
            let mut interval = pin!(interval.missed_ticks(missed));
            let mut ticks = Vec::new();
            ticks.push(interval.as_mut().tick().await.as_nanos());
            // Late for the second, and for all until 450.
            clock.advance(nanos(350));
            while ticks.len() < 5 {
                ticks.push(interval.as_mut().tick().await.as_nanos());
            }
            ticks
        });
        run_out(&mut rig);
        assert_eq!(ready(task).unwrap(), expected, "{missed:?}");
    }
}

#[test]
fn an_interval_without_a_period_is_an_error() {
    let rig = Rig::knowing();
    let error = rig.handle.interval(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("a nanosecond"), "{error}");
    assert!(rig.handle.interval_at(at(5), Duration::ZERO).is_err());
}

// Timeouts.

#[test]
fn a_timeout_drops_its_future_and_so_cancels_what_it_waits_for() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let (handle, tally) = (rig.handle.clone(), Tally::new());
        let never = tally.pending();
        let task = rig.handle.spawn(async move {
            let waits = async {
                let operation = handle.submit(SimOperation::Event(0)).unwrap();
                never.await;
                operation.await
            };
            let timed_out = handle.timeout(nanos(2_000), waits).await;
            (timed_out.unwrap_err(), handle.now())
        });
        rig.settle();
        assert_eq!((tally.seen(), rig.sim.held()), (seen(1, 0, 0), 1));
        run_out(&mut rig);
        let (Elapsed, now) = ready(task).unwrap();
        assert!(now >= at(2_000));
        // Once for the spawn, once for the timer.
        assert_eq!((tally.seen(), rig.sim.held()), (seen(2, 1, 0), 0), "{sight:?}");
    }
}

#[test]
fn a_timeout_that_was_not_needed_leaves_no_timer() {
    let mut rig = free_polls(Sight::Knowing);
    let handle = rig.handle.clone();
    let task = rig.handle.spawn(async move {
        let operation = handle.submit(SimOperation::Event(0)).unwrap();
        handle.timeout_at(at(9_000), operation).await
    });
    rig.settle();
    assert!(rig.sim.fire(0, 42));
    rig.settle();
    assert_eq!(ready(task).unwrap().unwrap().unwrap(), 42);
    assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang), "no deadline is left");
}

#[test]
fn a_completion_and_a_timeout_of_the_same_moment_count_as_completion() {
    let mut rig = Rig::new(Sight::Knowing);
    let handle = rig.handle.clone();
    let task = rig.handle.spawn(async move {
        let operation = handle.submit(SimOperation::Event(0)).unwrap();
        handle.timeout_at(at(9_000), operation).await
    });
    rig.settle();
    rig.clock.advance(nanos(9_000));
    assert!(rig.sim.fire(0, 42));
    rig.settle();
    assert_eq!(ready(task).unwrap().unwrap().unwrap(), 42);
}

// Other people's wakers.

/// A combinator's waker: notes which of its futures was woken, and passes the wake on.
struct Branch {
    woken: AtomicBool,
    whole: Mutex<Option<Waker>>,
}

impl Branch {
    fn new() -> Arc<Self> {
        Arc::new(Self { woken: AtomicBool::new(true), whole: Mutex::new(None) })
    }

    /// Polls the future if it has been woken.
    fn poll<F: Future>(
        self: &Arc<Self>,
        future: Pin<&mut F>,
        context: &Context<'_>,
    ) -> Poll<F::Output> {
        *self.whole.lock().unwrap() = Some(context.waker().clone());
        if !self.woken.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }
}

impl Wake for Branch {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let whole = self.whole.lock().unwrap().take();
        whole.into_iter().for_each(Waker::wake);
    }
}

#[test]
fn sleeps_polled_through_a_joins_own_wakers_all_end() {
    for sight in Sight::BOTH {
        let mut rig = free_polls(sight);
        let handle = rig.handle.clone();
        let task = rig.handle.spawn(async move {
            let sleeps = [7_000, 3_000, 5_000].map(|deadline| handle.sleep_until(at(deadline)));
            let mut branches: Vec<_> =
                sleeps.map(|sleep| (Branch::new(), Box::pin(sleep))).into_iter().collect();
            let mut ended = Vec::new();
            poll_fn(|context| {
                branches.retain_mut(|(branch, sleep)| {
                    let pending = branch.poll(sleep.as_mut(), context).is_pending();
                    if !pending {
                        ended.push((sleep.deadline(), handle.now()));
                    }
                    pending
                });
                if branches.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            ended
        });
        assert_eq!(run_out(&mut rig), 3);
        let expected = [3_000, 5_000, 7_000].map(|nanos| (at(nanos), at(nanos)));
        assert_eq!(ready(task).unwrap(), expected, "{sight:?}");
    }
}

#[test]
fn a_select_drops_the_sleep_that_lost_and_its_deadline_with_it() {
    let mut rig = free_polls(Sight::Knowing);
    let handle = rig.handle.clone();
    let task = rig.handle.spawn(async move {
        let mut early = pin!(handle.sleep_until(at(2_000)));
        let mut late = Box::pin(handle.sleep_until(at(8_000)));
        let (one, two) = (Branch::new(), Branch::new());
        poll_fn(|context| {
            assert!(two.poll(late.as_mut(), context).is_pending());
            one.poll(early.as_mut(), context)
        })
        .await;
        handle.now()
    });
    assert_eq!(run_out(&mut rig), 1, "nobody waits for the one that lost");
    assert_eq!(ready(task).unwrap(), at(2_000));
}

#[test]
fn a_sleep_outside_of_any_task_is_woken_by_the_worker() {
    let mut rig = free_polls(Sight::Knowing);
    let mut sleep = Box::pin(rig.handle.sleep(nanos(4_000)));
    let (first, last) = (WakeCount::new(), WakeCount::new());
    for count in [&first, &last] {
        let waker = Waker::from(Arc::clone(count));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
    assert_eq!(rig.clock.now(), at(4_000));
    assert_eq!(last.wakes(), 0, "a park fires nothing");
    let tick = rig.tick();
    assert_eq!((tick.timers, tick.dispatches.total()), (1, 0));
    assert_eq!((first.wakes(), last.wakes()), (0, 1), "the last waker, once");
    assert!(poll_once(&mut sleep).is_ready());
}

#[test]
fn a_timer_wakes_a_task_on_another_thread() {
    let mut rig = free_polls(Sight::Knowing);
    // Another worker, which is parked in its reactor.
    let other = start::<EpollReactor>(WorkerConfig::default()).unwrap();
    let slot = WakerSlot::new();
    let (leave, mut polls) = (slot.clone(), 0);
    let task = other.remote().spawn(poll_fn(move |context| {
        leave.put(context.waker());
        polls += 1;
        if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
    }));
    wait_until("it parks", || other.remote().stats().dispatches == 1 && other.remote().is_parked());
    let waker = slot.take();
    let mut sleep = Box::pin(rig.handle.sleep(nanos(10)));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    rig.clock.advance(nanos(10));
    assert_eq!(rig.tick().timers, 1);
    wait_for("the task", task).unwrap();
    other.stop_within(DEADLINE).unwrap();
}

#[test]
fn a_timer_of_one_worker_wakes_a_task_of_another() {
    let (mut one, mut other) = (free_polls(Sight::Knowing), free_polls(Sight::Knowing));
    let handle = one.handle.clone();
    let task = other.handle.spawn(async move { handle.sleep(nanos(500)).await });
    other.settle();
    one.clock.advance(nanos(500));
    assert_eq!(one.tick().timers, 1);
    let tick = other.tick();
    assert_eq!(tick.dispatches.remote, 1, "through the inbox: {tick:?}");
    assert!(task.is_finished());
}

// Ends.

#[test]
fn sleeps_alive_at_the_workers_end_are_dropped_with_their_tasks() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    for deadline in [1_000, 5, 70_000] {
        let (handle, held) = (rig.handle.clone(), tally.pending());
        drop(rig.handle.spawn(async move {
            let _held = held;
            handle.sleep_until(at(deadline)).await;
        }));
    }
    rig.settle();
    rig.clock.advance(nanos(1_000)); // Due, and not fired.
    drop(rig.worker);
    assert_eq!(tally.seen(), seen(0, 3, 0));
}

#[test]
fn a_sleep_that_outlives_its_worker_is_never_ready_and_is_dropped_in_peace() {
    let rig = Rig::knowing();
    let clock = rig.clock.clone();
    let count = WakeCount::new();
    let waker = Waker::from(Arc::clone(&count));
    let mut set: Pin<Box<SimSleep>> = Box::pin(rig.handle.sleep(nanos(50)));
    assert!(set.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut unset = Box::pin(rig.handle.sleep(nanos(50)));
    let handle = rig.handle.clone();
    drop(rig);
    clock.advance(nanos(100));
    let mut made_after = Box::pin(handle.sleep(Duration::ZERO));
    drop(handle);
    for _ in 0..2 {
        for sleep in [&mut set, &mut unset, &mut made_after] {
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    unset.as_mut().reset(at(7));
    drop((set, unset, made_after));
    assert_eq!(count.wakes(), 0);
}

// Faults.

#[test]
fn a_reactor_that_fails_in_the_poll_that_comes_with_timers_loses_none_of_them() {
    for sight in Sight::BOTH {
        let (mut rig, log) = (Rig::new(sight), Log::default());
        let count = 2 * POLL_BATCH + 5;
        for id in 0..count {
            sleeper(&rig, at(100_000), id, &log);
        }
        rig.settle();
        let handle = rig.handle.clone();
        let event =
            rig.handle.spawn(async move { handle.submit(SimOperation::Event(0)).unwrap().await });
        rig.settle();
        rig.clock.advance(nanos(100_000));
        assert!(rig.sim.fire(0, 9), "so that both reactors have something to say");
        rig.sim.fail_next_poll();
        assert_eq!(rig.worker.tick(), Err(SimError::Failed), "{sight:?}");
        rig.settle();
        assert!(log.borrow().iter().copied().eq(0..count), "{sight:?}: {:?}", log.borrow());
        assert_eq!(ready(event).unwrap(), Ok(9), "nor what the poll had found");
    }
}

thread_local! {
    static SLEEPS: RefCell<Vec<Pin<Box<SimSleep>>>> = const { RefCell::new(Vec::new()) };
}

/// Drops all sleeps when it is woken.
struct DropsAll(AtomicBool);

impl Wake for DropsAll {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
        drop(SLEEPS.take());
    }
}

#[test]
fn a_timer_that_is_dropped_while_others_fire_does_not_fire() {
    let mut rig = Rig::knowing();
    let drops = Arc::new(DropsAll(AtomicBool::new(false)));
    let count = WakeCount::new();
    // The one that is fired first, and is dropped by its own waker, is in the middle.
    for deadline in [7, 3, 5] {
        let mut sleep = Box::pin(rig.handle.sleep_until(at(deadline)));
        let waker = if deadline == 3 {
            Waker::from(Arc::clone(&drops))
        } else {
            Waker::from(Arc::clone(&count))
        };
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        SLEEPS.with_borrow_mut(|sleeps| sleeps.push(sleep));
    }
    rig.clock.advance(nanos(10));
    let tick = rig.tick();
    assert!(drops.0.load(Ordering::SeqCst));
    assert_eq!((tick.timers, count.wakes()), (1, 0));
    assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang), "none is left");
}

#[test]
fn a_task_whose_timer_has_fired_may_be_aborted_before_its_turn() {
    let mut rig = Rig::knowing();
    let (tally, handle) = (Tally::new(), rig.handle.clone());
    let held = tally.pending();
    let second: Rc<RefCell<Option<evenkeel::JoinHandle<()>>>> = Rc::default();
    let aborts = Rc::clone(&second);
    drop(rig.handle.spawn({
        let handle = handle.clone();
        async move {
            handle.sleep_until(at(10)).await;
            aborts.borrow().as_ref().unwrap().abort();
        }
    }));
    *second.borrow_mut() = Some(rig.handle.spawn(async move {
        let _held = held;
        handle.sleep_until(at(10)).await;
        yield_now().await;
        unreachable!("it was aborted");
    }));
    rig.settle();
    rig.clock.advance(nanos(10));
    rig.settle();
    let second = second.take().unwrap();
    assert!(matches!(ready(second), Err(evenkeel::JoinError::Cancelled)));
    assert_eq!(tally.seen(), seen(0, 1, 0));
}

#[test]
fn a_waker_that_panics_when_its_timer_fires_loses_no_other() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a waker's panic"));
        }
    }
    let (mut rig, log) = (Rig::knowing(), Log::default());
    sleeper(&rig, at(10), 0, &log);
    rig.settle();
    let mut sleep = Box::pin(rig.handle.sleep_until(at(10)));
    let waker = Waker::from(Arc::new(Panics));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    sleeper(&rig, at(10), 1, &log);
    rig.settle();
    rig.clock.advance(nanos(10));
    rig.settle();
    assert_eq!(*log.borrow(), [0, 1]);
    assert!(poll_once(&mut sleep).is_ready());
}

// On the machine's own clock.

/// An idle worker that sleeps so often wakes so often, and is never early.
fn an_idle_worker_wakes_once_for_each_sleep<R: Live>() {
    const SLEEPS: usize = 20;
    let Some(worker) = start::<R>(WorkerConfig::default()) else { return };
    let remote = worker.remote().clone();
    let task = remote.spawn_with(|handle| async move {
        let span = Duration::from_millis(2);
        for _ in 0..SLEEPS {
            let start = handle.now();
            let mut sleep = pin!(handle.sleep(span));
            let deadline = sleep.deadline();
            sleep.as_mut().await;
            assert!(handle.now() >= deadline && handle.now() - start >= span, "early");
        }
    });
    wait_for("the sleeps", task).unwrap();
    let stats = remote.stats();
    // One before the task came, and one after.
    assert!(stats.parks <= SLEEPS + 2, "{stats:?}");
    assert!(stats.polls <= 2 * SLEEPS + 4, "{stats:?}");
    assert!(stats.notifications <= 1, "{stats:?}");
    assert!(stats.dispatches <= SLEEPS + 1, "{stats:?}");
    worker.stop_within(DEADLINE).unwrap();
}

#[test]
fn an_idle_worker_over_epoll_wakes_once_for_each_sleep() {
    an_idle_worker_wakes_once_for_each_sleep::<EpollReactor>();
}

#[test]
fn an_idle_worker_over_uring_wakes_once_for_each_sleep() {
    an_idle_worker_wakes_once_for_each_sleep::<UringReactor>();
}

/// Sleeps fire, in order, past a backlog that never ends.
fn a_busy_worker_wakes_its_sleepers_in_order<R: Live>() {
    let Some(worker) = start::<R>(WorkerConfig::default()) else { return };
    let remote = worker.remote();
    for _ in 0..100 {
        drop(remote.spawn(async {
            loop {
                yield_now().await;
            }
        }));
    }
    let task = remote.spawn_with(|handle| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = handle.now();
        let spawn = |id: u64| {
            let (sleeps, order) = (handle.clone(), Rc::clone(&order));
            handle.spawn(async move {
                // All are set before the first is due, by an emulated processor too.
                let deadline = start + Duration::from_micros(100 * id) + Duration::from_millis(200);
                sleeps.sleep_until(deadline).await;
                assert!(sleeps.now() >= deadline, "early");
                order.borrow_mut().push(id);
            })
        };
        let tasks: Vec<_> = (0..50).rev().map(spawn).collect();
        for task in tasks {
            task.await.unwrap();
        }
        order.take()
    });
    assert!(wait_for("the sleepers", task).unwrap().is_sorted());
    worker.stop_within(DEADLINE).unwrap();
}

#[test]
fn a_busy_worker_over_epoll_wakes_its_sleepers_in_order() {
    a_busy_worker_wakes_its_sleepers_in_order::<EpollReactor>();
}

#[test]
fn a_busy_worker_over_uring_wakes_its_sleepers_in_order() {
    a_busy_worker_wakes_its_sleepers_in_order::<UringReactor>();
}
