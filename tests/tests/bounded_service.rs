//! The promise: the m-th task of a lane is dispatched after at most 3m dispatches and ⌈m/B⌉ polls,
//! however long the other lanes are. On virtual time, in counts.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel::testing::SimOperation;
use evenkeel::{Clock, Lane, POLL_BATCH, Rest, WorkerConfig, yield_now};
use evenkeel_tests::{Random, Rig, Seed, Sight, Step, WakerSlot, elsewhere, seeds};

const BACKLOGS: [usize; 3] = [1, 100, 10_000];
/// How often each latency is measured, at different points of the lanes' turns.
const ROUNDS: usize = 30;
const DISPATCH: Duration = Duration::from_nanos(100);
/// The simulated reactor's.
const POLL_COST: Duration = Duration::from_nanos(100);
/// 5 % for polls of 100 ns.
const POLL_INTERVAL: Duration = Duration::from_micros(2);

/// A worker with a backlog that has run for a while, each dispatch of 100 ns.
fn rig_with_backlog(sight: Sight, backlog: usize, prepare: impl FnOnce(&mut Rig)) -> Rig {
    let mut rig = Rig::new(sight);
    rig.cost = DISPATCH;
    prepare(&mut rig);
    rig.settle();
    rig.backlog(backlog);
    // The same number for every backlog, so that the turns stand at the same point.
    rig.dispatches(BACKLOGS[2] + 7);
    rig
}

/// Counts the dispatches until the count moves, the last one included.
fn dispatches_until(rig: &mut Rig, mut served: impl FnMut() -> usize) -> Vec<Step> {
    let before = served();
    let mut steps = Vec::new();
    while served() == before {
        steps.push(rig.dispatch().expect("the backlog keeps the worker busy"));
        assert!(steps.len() < 10_000, "not served in 10,000 dispatches");
    }
    steps
}

/// For each backlog what `measure` gives, of which all must be the same.
fn independent_of_backlog(measure: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
    let [one, more @ ..] = BACKLOGS.map(measure);
    for (counts, backlog) in more.iter().zip(&BACKLOGS[1..]) {
        assert_eq!(counts, &one, "{backlog} backlog tasks against {}", BACKLOGS[0]);
    }
    one
}

/// Spawns a task that waits for event 0 again and again, and counts.
fn waits_for_events(rig: &Rig) -> Rc<Cell<usize>> {
    let served = Rc::new(Cell::new(0));
    let (handle, count) = (rig.handle.clone(), Rc::clone(&served));
    drop(rig.handle.spawn(async move {
        loop {
            handle.submit(SimOperation::Event(0)).unwrap().await.unwrap();
            count.set(count.get() + 1);
        }
    }));
    served
}

/// The dispatches from each event to its task; for a blind reactor, from the poll that found it.
fn event_latencies(sight: Sight, backlog: usize) -> Vec<usize> {
    let mut served = Rc::default();
    let mut rig = rig_with_backlog(sight, backlog, |rig| served = waits_for_events(rig));
    let measure = |round| {
        // Armed again by now, and at another point of the turns.
        rig.dispatches(4 + round % 5);
        let start = rig.clock.now();
        assert!(rig.sim.fire(0, 1), "armed");
        let steps = dispatches_until(&mut rig, || served.get());
        let waited = rig.clock.now() - start;
        assert_eq!(steps.last().unwrap().lane, Lane::Io);
        match sight {
            Sight::Knowing => steps.len(),
            Sight::Blind => {
                let most = POLL_INTERVAL + 4 * DISPATCH + 2 * POLL_COST;
                assert!(waited <= most, "{waited:?} is more than a poll interval");
                let found = steps.iter().position(|step| step.completions > 0).unwrap();
                steps.len() - found
            }
        }
    };
    (0..ROUNDS).map(measure).collect()
}

#[test]
fn an_event_passes_any_backlog_in_the_same_few_dispatches() {
    for sight in Sight::BOTH {
        let counts = independent_of_backlog(|backlog| event_latencies(sight, backlog));
        assert!(counts.iter().all(|&count| count <= 3), "{sight:?}: {counts:?}");
    }
}

#[test]
fn a_submission_passes_any_backlog_in_the_same_few_dispatches() {
    for sight in Sight::BOTH {
        let counts = independent_of_backlog(|backlog| {
            let mut rig = rig_with_backlog(sight, backlog, |_| {});
            let served = Arc::new(AtomicUsize::new(0));
            let measure = |round| {
                rig.dispatches(round % 5);
                let (remote, count) = (rig.remote.clone(), Arc::clone(&served));
                elsewhere(move || {
                    drop(remote.spawn(async move { count.fetch_add(1, Ordering::SeqCst) }));
                });
                let steps = dispatches_until(&mut rig, || served.load(Ordering::SeqCst));
                assert_eq!(steps.last().unwrap().lane, Lane::Remote);
                steps.len()
            };
            (0..ROUNDS).map(measure).collect()
        });
        assert!(counts.iter().all(|&count| count <= 3), "{sight:?}: {counts:?}");
    }
}

#[test]
fn a_wake_from_another_thread_passes_any_backlog_in_the_same_few_dispatches() {
    for sight in Sight::BOTH {
        let counts = independent_of_backlog(|backlog| {
            let (slot, polls) = (WakerSlot::new(), Rc::new(Cell::new(0)));
            let mut rig = rig_with_backlog(sight, backlog, |rig| {
                let (slot, polls) = (slot.clone(), Rc::clone(&polls));
                drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
                    slot.put(context.waker());
                    polls.set(polls.get() + 1);
                    Poll::Pending
                })));
            });
            let measure = |round| {
                rig.dispatches(round % 5);
                let waker = slot.take();
                elsewhere(move || waker.wake());
                let steps = dispatches_until(&mut rig, || polls.get());
                assert_eq!(steps.last().unwrap().lane, Lane::Remote);
                steps.len()
            };
            (0..ROUNDS).map(measure).collect()
        });
        assert!(counts.iter().all(|&count| count <= 3), "{sight:?}: {counts:?}");
    }
}

/// Spawns so many tasks that each wait for an event of its own, and arms them. Who ends is noted.
fn waiters(rig: &mut Rig, count: usize) -> Rc<RefCell<Vec<usize>>> {
    let order = Rc::new(RefCell::new(Vec::new()));
    for event in 0..count {
        let (handle, order) = (rig.handle.clone(), Rc::clone(&order));
        drop(rig.handle.spawn(async move {
            let operation = SimOperation::Event(u32::try_from(event).unwrap());
            handle.submit(operation).unwrap().await.unwrap();
            order.borrow_mut().push(event);
        }));
    }
    rig.settle();
    order
}

fn room_for(operations: usize) -> WorkerConfig {
    WorkerConfig::default().operations(operations)
}

#[test]
fn floods_of_submissions_and_of_completions_starve_nobody() {
    let (submissions, events) = (100_000, 5_000);
    let mut rig = Rig::with(Sight::Knowing, room_for(events), |reactor| reactor);
    let order = waiters(&mut rig, events);
    rig.backlog(10);
    for _ in 0..submissions {
        drop(rig.remote.spawn(async {}));
    }
    for event in 0..events {
        assert!(rig.sim.fire(u32::try_from(event).unwrap(), 0));
    }
    let steps = rig.dispatches(3 * events);
    for (round, three) in steps.chunks(3).enumerate() {
        for lane in [Lane::Local, Lane::Remote, Lane::Io] {
            assert!(three.iter().any(|step| step.lane == lane), "round {round}: no {lane:?}");
        }
    }
    assert!(order.borrow().iter().copied().eq(0..events), "in the order of the events");
    // The rest of the submissions and the backlog: turn and turn about.
    for two in rig.dispatches(2 * (submissions - events)).chunks(2) {
        assert_ne!(two[0].lane, two[1].lane);
    }
    let rest = rig.dispatches(100);
    assert!(rest.iter().all(|step| step.lane == Lane::Local), "every submission has run");
}

#[test]
fn a_submission_and_an_event_pass_a_flood_of_each_other() {
    for flood in [Lane::Remote, Lane::Io] {
        let mut rig = Rig::with(Sight::Knowing, room_for(601), |reactor| reactor);
        waiters(&mut rig, 601);
        rig.backlog(100);
        for event in 0..600 {
            match flood {
                Lane::Io => assert!(rig.sim.fire(event, 0)),
                _ => drop(rig.remote.spawn(async {})),
            }
        }
        for gap in 0..20 {
            let wanted = if flood == Lane::Io {
                drop(rig.remote.spawn(async {}));
                Lane::Remote
            } else {
                assert!(rig.sim.fire(gap, 0));
                Lane::Io
            };
            let steps = rig.dispatches(3);
            assert!(steps.iter().any(|step| step.lane == wanted), "{wanted:?} in {steps:?}");
            rig.dispatches(gap as usize);
        }
    }
}

/// What stood in each lane at a point in time, and what was dispatched from then on.
struct Mixture {
    rig: Rig,
    local: usize,
    remote: usize,
    io: usize,
    /// In the order in which they became visible.
    expected_remote: Vec<usize>,
    expected_io: Vec<usize>,
    ran_remote: Arc<std::sync::Mutex<Vec<usize>>>,
    ran_io: Rc<RefCell<Vec<usize>>>,
}

/// Fills the three lanes from a seed, at any point of their turns. The lanes may hold something
/// already when the last of it becomes visible.
fn mixture(sight: Sight, cost: Duration, random: &mut Random) -> Mixture {
    let mut rig = Rig::with(sight, room_for(310), |reactor| reactor);
    rig.cost = cost;
    let (mut expected_io, mut expected_remote): (Vec<usize>, Vec<usize>) = Default::default();
    let ran_io = waiters(&mut rig, 310);
    let ran_remote: Arc<std::sync::Mutex<Vec<usize>>> = Arc::default();
    let local = 1 + random.below(400);
    rig.backlog(local);
    rig.dispatches(local + random.below(1_000));
    let mut unfired: Vec<usize> = (0..310).collect();
    let (mut remote, mut io) = (0, 0);
    // A first wave that is only begun, so that the second finds the turns anywhere.
    for wave in [random.below(4), 1 + random.below(300)] {
        for _ in 0..wave {
            let id = expected_remote.len();
            expected_remote.push(id);
            let ran = Arc::clone(&ran_remote);
            drop(rig.remote.spawn(async move { ran.lock().unwrap().push(id) }));
            remote += 1;
        }
        for _ in 0..if wave < 4 { random.below(4) } else { 1 + random.below(300) } {
            let event = unfired.swap_remove(random.below(unfired.len()));
            expected_io.push(event);
            assert!(rig.sim.fire(u32::try_from(event).unwrap(), 0));
            io += 1;
        }
        if wave < 4 {
            for step in rig.dispatches(random.below(12)) {
                match step.lane {
                    Lane::Local => {}
                    Lane::Remote => remote -= 1,
                    Lane::Io => io -= 1,
                }
            }
        }
    }
    Mixture { rig, local, remote, io, expected_remote, expected_io, ran_remote, ran_io }
}

/// Where in the trace the m-th dispatch of a lane is, and how many polls came before it; from 1.
fn places(steps: &[Step], lane: Lane) -> Vec<(usize, usize)> {
    let mut polls = 0;
    let with_polls = steps.iter().enumerate().map(|(place, step)| {
        polls += step.polls as usize;
        (place + 1, polls, step.lane)
    });
    let of_lane = with_polls.filter(|&(.., found)| found == lane);
    of_lane.map(|(place, polls, _)| (place, polls)).collect()
}

#[test]
fn the_mth_task_of_each_lane_comes_within_3m_dispatches_and_m_by_b_polls() {
    for seed in seeds(150) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let mut mixed = mixture(Sight::Knowing, DISPATCH, &mut random);
        let most = 3 * mixed.local.max(mixed.remote).max(mixed.io);
        let steps = mixed.rig.dispatches(most);
        for (lane, count) in
            [(Lane::Local, mixed.local), (Lane::Remote, mixed.remote), (Lane::Io, mixed.io)]
        {
            let places = places(&steps, lane);
            for m in 1..=count {
                let (place, polls) = places[m - 1];
                assert!(place <= 3 * m, "{lane:?}, m = {m}: dispatch {place}");
                let most = m.div_ceil(POLL_BATCH);
                assert!(polls <= most, "{lane:?}, m = {m}: {polls} polls");
            }
        }
        assert_eq!(*mixed.ran_remote.lock().unwrap(), mixed.expected_remote, "first in, first out");
        assert_eq!(*mixed.ran_io.borrow(), mixed.expected_io, "in the order of the events");
    }
}

#[test]
fn for_a_blind_reactor_the_mth_task_comes_one_poll_interval_later_at_most() {
    for seed in seeds(60) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let cost = Duration::from_nanos([10, 30, 100, 1_000][random.below(4)]);
        let mut mixed = mixture(Sight::Blind, cost, &mut random);
        let start = mixed.rig.clock.now();
        let mut served = [0; 3];
        let mut polls = 0;
        while served[0] < mixed.local || served[1] < mixed.remote || served[2] < mixed.io {
            let before = mixed.rig.clock.now();
            let step = mixed.rig.dispatch().unwrap();
            polls += step.polls;
            let lane = step.lane as usize;
            served[lane] += 1;
            assert!(served[lane] < 1_000_000, "{served:?}");
            if served[lane] > [mixed.local, mixed.remote, mixed.io][lane] {
                continue;
            }
            let m = u32::try_from(served[lane]).unwrap();
            // When it began: what `before` does not know is the time of the polls in between.
            let began = before - start + POLL_COST * step.polls;
            let most = cost * 3 * m + POLL_COST * polls + POLL_INTERVAL + cost;
            assert!(began <= most, "{:?}, m = {m}: after {began:?}, of {most:?}", step.lane);
        }
        assert_eq!(*mixed.ran_io.borrow(), mixed.expected_io, "in the order of the events");
    }
}

#[test]
fn a_poll_delivers_one_batch_and_the_next_comes_when_that_is_served() {
    let mut rig = Rig::knowing();
    waiters(&mut rig, 100);
    rig.backlog(3);
    rig.dispatches(3);
    for event in 0..100 {
        assert!(rig.sim.fire(event, 0));
    }
    let polled: Vec<u32> =
        rig.dispatches(300).iter().filter(|step| step.polls > 0).map(|s| s.completions).collect();
    assert_eq!(polled, [32, 32, 32, 4]);
}

#[test]
fn what_a_task_submits_is_armed_when_the_batch_before_it_is_served() {
    let mut rig = Rig::knowing();
    waiters(&mut rig, POLL_BATCH);
    rig.backlog(5);
    for event in 0..u32::try_from(POLL_BATCH).unwrap() {
        assert!(rig.sim.fire(event, 0));
    }
    for _ in 0..1_000 {
        drop(rig.remote.spawn(async {}));
    }
    rig.dispatches(3);
    let operation = rig.handle.submit(SimOperation::Event(99)).unwrap();
    let steps = rig.dispatches(3 * POLL_BATCH);
    assert_eq!(rig.remote.armed(), 1, "{} polls", steps.iter().map(|s| s.polls).sum::<u32>());
    drop(operation);
}

#[test]
fn an_inbox_entry_that_is_settled_costs_its_lane_a_turn_and_no_more() {
    let mut rig = Rig::knowing();
    let cancels = 50;
    let operations: Vec<_> =
        (0..cancels).map(|event| rig.handle.submit(SimOperation::Event(event)).unwrap()).collect();
    rig.settle();
    rig.backlog(7);
    rig.dispatches(10);
    elsewhere(move || drop(operations));
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    drop(rig.remote.spawn(async move { count.fetch_add(1, Ordering::SeqCst) }));
    let steps = dispatches_until(&mut rig, || served.load(Ordering::SeqCst));
    assert!(steps.len() <= 3 * (cancels as usize + 1), "{} dispatches", steps.len());
    assert!(steps.iter().map(|step| step.settled).sum::<u32>() >= cancels);
}

#[test]
fn yields_go_round() {
    let mut rig = Rig::knowing();
    let order = Rc::new(RefCell::new(String::new()));
    for name in ['a', 'b', 'c'] {
        let order = Rc::clone(&order);
        drop(rig.handle.spawn(async move {
            for _ in 0..4 {
                order.borrow_mut().push(name);
                yield_now().await;
            }
        }));
    }
    rig.settle();
    assert_eq!(*order.borrow(), "abcabcabcabc");
}

#[test]
fn a_task_that_yields_goes_to_the_local_lane_whatever_lane_it_came_from() {
    let mut rig = Rig::knowing();
    let handle = rig.handle.clone();
    drop(rig.handle.spawn(async move {
        handle.submit(SimOperation::Event(0)).unwrap().await.unwrap();
        yield_now().await;
    }));
    rig.settle();
    drop(rig.remote.spawn(yield_now()));
    assert!(rig.sim.fire(0, 0));
    let lanes: Vec<Lane> = rig.dispatches(4).iter().map(|step| step.lane).collect();
    let counted = |lane| lanes.iter().filter(|&&found| found == lane).count();
    assert_eq!((counted(Lane::Remote), counted(Lane::Io), counted(Lane::Local)), (1, 1, 2));
    assert_eq!(rig.tick().rest, Rest::Idle);
}

#[test]
fn a_pair_that_wakes_each_other_does_not_starve_the_queue() {
    let mut rig = Rig::knowing();
    let wakers: Rc<RefCell<[Option<Waker>; 2]>> = Rc::default();
    for me in 0..2 {
        let wakers = Rc::clone(&wakers);
        drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
            wakers.borrow_mut()[me] = Some(context.waker().clone());
            // The first of them finds nobody at its first poll.
            wakers.borrow()[1 - me].iter().for_each(Waker::wake_by_ref);
            Poll::Pending
        })));
    }
    let polls = Rc::new(Cell::new(0));
    let count = Rc::clone(&polls);
    drop(rig.handle.spawn(async move {
        loop {
            count.set(count.get() + 1);
            yield_now().await;
        }
    }));
    rig.dispatches(3_000);
    assert!(polls.get() >= 900, "{} of 3,000 dispatches", polls.get());
}
