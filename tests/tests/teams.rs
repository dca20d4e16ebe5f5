//! Teams: who runs which task and in which order, who is woken for it, and what becomes of tasks
//! whose worker ends. Several workers are ticked by hand on one thread, in counts; then threads of
//! their own run them, where nothing is decided by time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::testing::{Sim, SimOperation, SimReactor, VirtualClock};
use evenkeel::{
    JoinError, JoinHandle, Lane, NoWorker, Parked, Reactor, Rest, Stats, Team, TeamConfig,
    TeamError, TeamStartError, TeamThreads, ThreadConfig, Wait, WorkerConfig, yield_now,
};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::{
    DEADLINE, Live, Random, Rig, Seed, SetupError, Sight, Tally, WakerSlot, elsewhere, poll_once,
    ready, seen, team_of, wait_for, wait_until,
};
use evenkeel_uring::UringReactor;

/// Who ran, in order, on any thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    fn note(&self, id: usize) {
        self.0.lock().unwrap().push(id);
    }

    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A future that notes its name and ends.
fn noting(log: &Log, id: usize) -> impl Future<Output = usize> + Send + 'static {
    let log = log.clone();
    async move {
        log.note(id);
        id
    }
}

/// Spawns stealable tasks that note their names and end.
fn spawn_noting(rig: &Rig, log: &Log, ids: std::ops::Range<usize>) {
    for id in ids {
        drop(rig.handle.spawn_stealable(noting(log, id)));
    }
}

/// A future that leaves its waker, counts its polls in the tally, and never ends.
fn leaving(slot: &WakerSlot, tally: &Tally) -> impl Future<Output = ()> + Send + 'static {
    let slot = slot.clone();
    tally.future(move |context| {
        slot.put(context.waker());
        Poll::Pending
    })
}

fn pair() -> (Team, Rig, Rig) {
    let (team, rigs) = team_of(2, Sight::Knowing);
    let [one, other] = rigs.try_into().ok().expect("two");
    (team, one, other)
}

fn one_dispatch(rig: &mut Rig) {
    assert!(rig.dispatch().is_some(), "there is something to run");
}

// Order.

#[test]
fn pinned_and_stealable_tasks_go_by_age_in_one_lane_beyond_the_queues_capacity() {
    for sight in Sight::BOTH {
        let (_team, mut rigs) = team_of(2, sight);
        let (rig, log) = (&mut rigs[0], Log::default());
        let mut random = Random::new(3);
        for id in 0..2_000 {
            if random.once_in(2) {
                drop(rig.handle.spawn(noting(&log, id)));
            } else {
                drop(rig.handle.spawn_stealable(noting(&log, id)));
            }
        }
        rig.settle();
        assert!(log.take().into_iter().eq(0..2_000), "{sight:?}");
    }
}

#[test]
fn yields_of_pinned_and_stealable_tasks_go_round() {
    let (_team, mut rig, _other) = pair();
    let (log, rounds, count) = (Log::default(), 5, 700);
    for id in 0..count {
        let log = log.clone();
        let task = async move {
            for _ in 0..rounds {
                log.note(id);
                yield_now().await;
            }
        };
        // Stretches of each kind, of different lengths.
        if id % 7 < 3 {
            drop(rig.handle.spawn(task));
        } else {
            drop(rig.handle.spawn_stealable(task));
        }
    }
    rig.settle();
    assert!(log.take().into_iter().eq((0..rounds).flat_map(|_| 0..count)));
}

#[test]
fn what_a_theft_leaves_and_what_it_takes_both_keep_their_order() {
    let (_team, mut rig, mut thief) = pair();
    let log = Log::default();
    let mut random = Random::new(9);
    for id in 0..1_500 {
        if random.once_in(4) {
            drop(rig.handle.spawn(noting(&log, id)));
        } else {
            drop(rig.handle.spawn_stealable(noting(&log, id)));
        }
    }
    let (mut own, mut stolen) = (Vec::new(), Vec::new());
    while own.len() + stolen.len() < 1_500 {
        for _ in 0..random.below(40) {
            rig.dispatch();
        }
        own.extend(log.take());
        for _ in 0..random.below(40) {
            thief.dispatch();
        }
        stolen.extend(log.take());
    }
    assert!(own.is_sorted(), "{own:?}");
    // Each haul is in order, and each is younger than the one before.
    assert!(stolen.is_sorted(), "{stolen:?}");
    assert!(stolen.len() > 100, "{} were stolen", stolen.len());
    assert_eq!(thief.remote.stats().steals, stolen.len());
}

#[test]
fn a_worker_with_a_team_and_nothing_to_share_keeps_the_order_of_one_without() {
    let trace = |mut rig: Rig| {
        let log = Log::default();
        for id in 0..50 {
            let log = log.clone();
            drop(rig.handle.spawn(async move {
                for _ in 0..id % 5 {
                    log.note(id);
                    yield_now().await;
                }
            }));
        }
        rig.settle();
        log.take()
    };
    let (_team, rig, _other) = pair();
    assert_eq!(trace(rig), trace(Rig::knowing()));
}

// Stealing.

#[test]
fn a_worker_with_nothing_to_do_takes_half_and_32_at_most() {
    for (tasks, half) in [(1, 1), (2, 1), (41, 21), (64, 32), (100, 32), (400, 32)] {
        let (_team, mut rig, mut thief) = pair();
        let log = Log::default();
        spawn_noting(&rig, &log, 0..tasks);
        one_dispatch(&mut thief);
        assert_eq!(thief.remote.stats().steals, half, "of {tasks}");
        assert_eq!(log.take(), [0], "the oldest first");
        assert_eq!(rig.settle() + thief.settle(), tasks - 1);
    }
}

#[test]
fn a_worker_with_something_to_do_takes_nothing() {
    let (_team, rig, mut other) = pair();
    spawn_noting(&rig, &Log::default(), 0..100);
    let stop = other.backlog(1);
    other.dispatches(100);
    assert_eq!(other.remote.stats().steals, 0);
    stop.set(true);
    other.settle();
    assert_eq!(other.remote.stats().steals, 100, "now it does all, since nobody else does");
}

#[test]
fn pinned_tasks_are_not_stolen() {
    let (_team, mut rig, mut thief) = pair();
    for _ in 0..10 {
        drop(rig.handle.spawn(async {}));
    }
    assert_eq!(thief.settle(), 0);
    assert_eq!(thief.worker.park(Wait::Never), Ok(Parked::Waited), "and keep nobody awake");
    assert_eq!(rig.settle(), 10);
}

#[test]
fn a_worker_of_another_team_and_one_of_none_take_nothing() {
    let (_team, mut rig, _) = pair();
    let (_other_team, mut stranger, _) = pair();
    let mut loner = Rig::knowing();
    spawn_noting(&rig, &Log::default(), 0..10);
    assert_eq!((stranger.settle(), loner.settle()), (0, 0));
    assert_eq!(rig.settle(), 10);
}

#[test]
fn a_stealable_task_of_a_worker_without_a_team_stays_there() {
    let mut loner = Rig::knowing();
    let log = Log::default();
    let task = loner.handle.spawn_stealable(noting(&log, 7));
    loner.settle();
    assert_eq!((ready(task).unwrap(), log.take()), (7, vec![7]));
}

#[test]
fn something_to_steal_keeps_a_worker_from_its_park() {
    let (_team, rig, mut other) = pair();
    assert_eq!(other.settle(), 0);
    spawn_noting(&rig, &Log::default(), 0..1);
    assert_eq!(other.worker.park(Wait::Forever), Ok(Parked::Retracted));
    assert_eq!((other.sim.waits(), other.settle()), (0, 1));
}

#[test]
fn a_stolen_task_goes_on_where_it_was_taken() {
    let (_team, rig, mut thief) = pair();
    let rounds = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let rounds = Arc::clone(&rounds);
        drop(rig.handle.spawn_stealable(async move {
            for _ in 0..10 {
                rounds.fetch_add(1, Ordering::SeqCst);
                yield_now().await;
            }
        }));
    }
    // It alone is ticked: it takes one, runs it to its end, and takes the other.
    thief.settle();
    assert_eq!(rounds.load(Ordering::SeqCst), 20);
    assert_eq!(rig.remote.stats().dispatches, 0);
}

// Who is woken.

/// A worker that is ticked by hand, and what is done while it is held in its park.
struct Member {
    rig: RefCell<Rig>,
    meanwhile: Meanwhile,
}

type Meanwhile = Rc<RefCell<Option<Box<dyn FnOnce()>>>>;

fn members(count: usize) -> Rc<Vec<Member>> {
    let (team, clock) = (Team::new(count).unwrap(), VirtualClock::new());
    let member = |_| {
        let meanwhile: Meanwhile = Rc::default();
        let act = Rc::clone(&meanwhile);
        let change = move |reactor: SimReactor| {
            reactor.while_waiting(move || {
                let act = act.borrow_mut().take();
                if let Some(act) = act {
                    act();
                }
            })
        };
        let config = WorkerConfig::default().operations(8);
        let mut rig = Rig::on(clock.clone(), Sight::Knowing, config, change);
        rig.worker.join(&team).unwrap();
        Member { rig: RefCell::new(rig), meanwhile }
    };
    let members: Vec<Member> = (0..count).map(member).collect();
    SIMS.set(members.iter().map(|member| member.rig.borrow().sim.clone()).collect());
    Rc::new(members)
}

/// Parks these workers, each in the wait of the one before, does something while all are parked,
/// and something else after each park, with the others before it still parked.
fn while_parked(
    members: &Rc<Vec<Member>>,
    which: &[usize],
    act: impl FnOnce() + 'static,
    after: impl Fn(usize) + Clone + 'static,
) {
    let Some((&first, rest)) = which.split_first() else { return act() };
    let (rest, inner, then) = (rest.to_vec(), Rc::clone(members), after.clone());
    let meanwhile = move || while_parked(&inner, &rest, act, then);
    *members[first].meanwhile.borrow_mut() = Some(Box::new(meanwhile));
    let parked = members[first].rig.borrow_mut().worker.park(Wait::Forever);
    assert_eq!(parked, Ok(Parked::Waited), "worker {first}");
    assert!(members[first].meanwhile.borrow().is_none(), "it was held in its wait");
    after(first);
}

thread_local! {
    /// Of each member: asked while its worker is parked, and so is borrowed.
    static SIMS: RefCell<Vec<Sim>> = const { RefCell::new(Vec::new()) };
}

/// How often each of these was notified.
fn notifications(members: &[usize]) -> Vec<usize> {
    SIMS.with_borrow(|sims| members.iter().map(|&member| sims[member].notifications()).collect())
}

#[test]
fn a_parked_worker_is_woken_once_when_there_is_something_to_share() {
    let team = members(2);
    let inner = Rc::clone(&team);
    let act = move || {
        let mut rig = inner[0].rig.borrow_mut();
        let handle = rig.handle.clone();
        // From inside of a task.
        drop(rig.handle.spawn(async move {
            for _ in 0..10 {
                drop(handle.spawn_stealable(async {}));
            }
        }));
        rig.dispatches(3);
        assert_eq!(notifications(&[0, 1]), [0, 1]);
    };
    let inner = Rc::clone(&team);
    while_parked(&team, &[1], act, move |member| {
        assert!(inner[member].rig.borrow_mut().settle() > 0, "it helps");
        assert_eq!(inner[member].rig.borrow().remote.stats().notifications, 1);
    });
}

#[test]
fn tasks_that_came_through_the_inbox_and_yield_are_shared_at_the_next_look() {
    let team = members(2);
    let slots = [(); 3].map(|()| WakerSlot::new());
    for slot in &slots {
        let (slot, mut polls) = (slot.clone(), 0);
        let home = team[0].rig.borrow();
        drop(home.handle.spawn_stealable(poll_fn(move |context: &mut Context<'_>| -> Poll<()> {
            slot.put(context.waker());
            polls += 1;
            if polls > 1 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })));
    }
    team[0].rig.borrow_mut().settle();
    let inner = Rc::clone(&team);
    let act = move || {
        for slot in &slots {
            slot.take().wake();
        }
        let mut rig = inner[0].rig.borrow_mut();
        rig.dispatches(2);
        assert_eq!(notifications(&[1]), [0], "there is one for the worker itself");
        rig.dispatches(2);
        assert_eq!(notifications(&[1]), [1]);
    };
    let inner = Rc::clone(&team);
    while_parked(&team, &[1], act, move |member| {
        let mut rig = inner[member].rig.borrow_mut();
        rig.dispatches(1);
        assert!(rig.remote.stats().steals > 0);
    });
}

#[test]
fn a_thousand_spawns_wake_one_of_three_that_idle_and_each_wakes_the_next() {
    let team = members(4);
    let inner = Rc::clone(&team);
    let act = move || {
        let rig = inner[0].rig.borrow();
        for _ in 0..1_000 {
            drop(rig.handle.spawn_stealable(yield_now()));
        }
        assert_eq!(notifications(&[1, 2, 3]), [1, 0, 0], "no storm");
    };
    let inner = Rc::clone(&team);
    while_parked(&team, &[3, 2, 1], act, move |member| {
        let woken = |upto| (1..=3).map(|it| usize::from(it <= upto)).collect::<Vec<_>>();
        assert_eq!(notifications(&[1, 2, 3]), woken(member), "before it has searched");
        let mut rig = inner[member].rig.borrow_mut();
        rig.dispatches(1);
        assert!(rig.remote.stats().steals > 0);
        assert_eq!(notifications(&[1, 2, 3]), woken(member + 1), "then it calls the next");
    });
}

#[test]
fn a_search_that_finds_everything_done_wakes_nobody_else() {
    let team = members(3);
    let inner = Rc::clone(&team);
    let act = move || {
        let mut rig = inner[0].rig.borrow_mut();
        drop(rig.handle.spawn_stealable(async {}));
        assert_eq!(notifications(&[1, 2]), [1, 0]);
        rig.settle();
    };
    let inner = Rc::clone(&team);
    while_parked(&team, &[2, 1], act, move |member| {
        let mut rig = inner[member].rig.borrow_mut();
        assert_eq!(rig.settle(), 0);
        assert_eq!(notifications(&[1, 2]), [1, 0]);
    });
}

#[test]
fn a_worker_that_was_called_does_not_park_again_before_it_has_searched() {
    let team = members(2);
    let inner = Rc::clone(&team);
    let act = move || {
        let mut rig = inner[0].rig.borrow_mut();
        drop(rig.handle.spawn_stealable(async {}));
        rig.settle();
    };
    let inner = Rc::clone(&team);
    while_parked(&team, &[1], act, move |member| {
        let mut rig = inner[member].rig.borrow_mut();
        // Parked, it would keep the others from being called for as long as nobody wakes it.
        assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Retracted));
        assert_eq!(rig.settle(), 0);
        assert_eq!(rig.worker.park(Wait::Never), Ok(Parked::Waited));
    });
}

#[test]
fn a_worker_that_was_called_and_left_searches_no_more_and_others_can_be_called() {
    let team = members(3);
    let (inner, outer) = (Rc::clone(&team), Rc::clone(&team));
    let act = move || drop(inner[0].rig.borrow().handle.spawn_stealable(pending::<()>()));
    while_parked(&team, &[2, 1], act, move |member| {
        if member == 1 {
            assert_eq!(notifications(&[1, 2]), [1, 0]);
            // It ends, in the place of its search. Worker 2 is parked still.
            drop(outer[1].rig.replace(Rig::knowing()));
            assert_eq!(notifications(&[1, 2]), [1, 1], "the task is there still");
        }
    });
}

#[test]
fn a_worker_that_runs_is_not_notified_by_its_team() {
    let (_team, rig, other) = pair();
    spawn_noting(&rig, &Log::default(), 0..100);
    assert_eq!((rig.sim.notifications(), other.sim.notifications()), (0, 0));
}

#[test]
fn work_from_outside_goes_to_one_that_idles() {
    let (team, clock) = (Team::new(2).unwrap(), VirtualClock::new());
    let config = WorkerConfig::default().operations(1);
    let meanwhile: Meanwhile = Rc::default();
    let act = Rc::clone(&meanwhile);
    let mut busy = Rig::on(clock.clone(), Sight::Knowing, config, |it| it);
    let mut idle = Rig::on(clock, Sight::Knowing, config, |reactor| {
        reactor.while_waiting(move || {
            let act = act.borrow_mut().take();
            if let Some(act) = act {
                act();
            }
        })
    });
    busy.worker.join(&team).unwrap();
    idle.worker.join(&team).unwrap();
    let log = Log::default();
    let (submits, notes) = (team.clone(), log.clone());
    *meanwhile.borrow_mut() = Some(Box::new(move || {
        for id in 0..10 {
            drop(submits.spawn(noting(&notes, id)).unwrap());
        }
    }));
    assert_eq!(idle.worker.park(Wait::Forever), Ok(Parked::Waited));
    assert_eq!(idle.sim.notifications(), 1, "once for all");
    assert_eq!((busy.settle(), idle.settle()), (0, 10));
    assert!(log.take().into_iter().eq(0..10), "in the order of submission");
    // Nobody idles: each in turn.
    for id in 0..10 {
        drop(team.spawn(noting(&log, id)).unwrap());
    }
    assert_eq!((busy.settle(), idle.settle()), (5, 5));
}

// The promise.

#[test]
fn the_lanes_take_turns_with_stealable_tasks_in_each() {
    for sight in Sight::BOTH {
        let (team, mut rigs) = team_of(1, sight);
        let rig = &mut rigs[0];
        for _ in 0..10 {
            drop(rig.handle.spawn(async {
                loop {
                    yield_now().await;
                }
            }));
            drop(rig.handle.spawn_stealable(async {
                loop {
                    yield_now().await;
                }
            }));
        }
        rig.cost = Duration::from_micros(3);
        rig.dispatches(40);
        for event in 0..60 {
            let operation = rig.handle.submit(SimOperation::Event(event)).unwrap();
            if event % 2 == 0 {
                drop(rig.handle.spawn(operation));
            } else {
                drop(rig.handle.spawn_stealable(operation));
            }
        }
        rig.dispatches(200);
        for number in 0..60 {
            match number % 3 {
                0 => drop(rig.remote.spawn(async {})),
                _ => drop(team.spawn(async {}).unwrap()),
            }
        }
        for event in 0..60 {
            assert!(rig.sim.fire(event, 0));
        }
        let steps = rig.dispatches(3 * 60 + 3);
        for lane in [Lane::Local, Lane::Remote, Lane::Io] {
            let places = steps.iter().enumerate().filter(|(_, step)| step.lane == lane);
            for (m, (place, _)) in (1..=60).zip(places) {
                // One poll interval more, at most, of 3 us dispatches, for who can't tell.
                let late = usize::from(sight == Sight::Blind);
                assert!(
                    place < 3 * m + late,
                    "{sight:?}, {lane:?}, m = {m}: dispatch {}",
                    place + 1
                );
            }
        }
    }
}

#[test]
fn completions_and_timers_wake_stealable_tasks_into_the_io_lane() {
    let (_team, mut rig, mut other) = pair();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    let operation = rig.handle.submit(SimOperation::Event(0)).unwrap();
    let answer = rig.handle.spawn_stealable(async move { operation.await.unwrap() });
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    let mut sleep = Box::pin(rig.handle.sleep(Duration::from_nanos(500)));
    let waker = slot.take();
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    rig.backlog(50);
    rig.dispatches(50);
    rig.clock.advance(Duration::from_nanos(500));
    assert!(rig.sim.fire(0, 42));
    let steps = rig.dispatches(6);
    assert_eq!(steps.iter().filter(|step| step.lane == Lane::Io).count(), 2, "{steps:?}");
    assert_eq!((ready(answer).unwrap(), tally.seen()), (42, seen(2, 0, 0)));
    assert_eq!(other.settle(), 0, "from there nobody steals");
}

#[test]
fn a_wake_by_a_running_task_goes_to_the_lane_of_the_worker_that_runs_it() {
    let (_team, mut rig, mut other) = pair();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    let waker = slot.get();
    drop(other.handle.spawn(async move { waker.wake() }));
    let lanes: Vec<Lane> = other.dispatches(2).iter().map(|step| step.lane).collect();
    assert_eq!(lanes, [Lane::Local, Lane::Local]);
    assert_eq!(tally.seen(), seen(2, 0, 0));
    // From outside it goes to the inbox of the one that it was spawned to.
    let waker = slot.take();
    elsewhere(move || waker.wake());
    assert_eq!(other.settle(), 0);
    assert_eq!(rig.dispatch().unwrap().lane, Lane::Remote);
}

#[test]
fn a_wake_by_a_worker_that_is_not_of_the_team_goes_to_the_tasks_own() {
    let (_team, mut rig, _) = pair();
    let (_other_team, mut stranger, _) = pair();
    let mut loner = Rig::knowing();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    for outsider in [&mut stranger, &mut loner] {
        let waker = slot.take();
        drop(outsider.handle.spawn(async move { waker.wake() }));
        assert_eq!(outsider.settle(), 1);
        assert_eq!(rig.dispatch().unwrap().lane, Lane::Remote);
    }
    assert_eq!(tally.seen(), seen(3, 0, 0));
}

// Lives of stealable tasks.

#[test]
fn a_stealable_task_gives_its_output_wherever_it_ends() {
    let (_team, mut rig, mut thief) = pair();
    let tally = Tally::new();
    let [here, there] = [3, 3].map(|times| rig.handle.spawn_stealable(tally.yielding(times)));
    one_dispatch(&mut thief);
    thief.settle();
    rig.settle();
    assert_eq!(tally.seen(), seen(8, 2, 0));
    drop((ready(here).unwrap(), ready(there).unwrap()));
    assert_eq!(tally.seen(), seen(8, 2, 2));
}

#[test]
fn a_stealable_tasks_wakes_make_one_poll() {
    let (_team, mut rig, _other) = pair();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    let waker = slot.take();
    for _ in 0..3 {
        waker.wake_by_ref();
        let waker = waker.clone();
        elsewhere(move || waker.wake());
    }
    assert_eq!((rig.settle(), tally.seen()), (1, seen(2, 0, 0)));
}

#[test]
fn a_stealable_task_that_wakes_itself_in_every_way_is_polled_once_more() {
    let (_team, mut rig, mut other) = pair();
    let mut first = true;
    let tally = Tally::new();
    drop(rig.handle.spawn_stealable(tally.future(move |context| -> Poll<()> {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            let (here, there) = (context.waker().clone(), context.waker().clone());
            elsewhere(move || there.wake());
            here.wake();
        }
        Poll::Pending
    })));
    one_dispatch(&mut rig);
    assert_eq!(other.settle() + rig.settle(), 1);
    assert_eq!(tally.seen(), seen(2, 0, 0));
}

#[test]
fn a_stealable_task_that_waits_is_dropped_when_it_is_aborted() {
    let (_team, mut rig, _other) = pair();
    let tally = Tally::new();
    let task = rig.handle.spawn_stealable(tally.pending());
    rig.settle();
    elsewhere(move || task.abort());
    assert_eq!(tally.seen(), seen(1, 0, 0), "not on that thread");
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0));
    assert_eq!(tally.dropped_on(), Some(thread::current().id()));
}

#[test]
fn a_stealable_task_that_is_queued_is_not_polled_after_its_abort_even_if_it_is_stolen() {
    let (_team, rig, mut thief) = pair();
    let tallies = [(); 4].map(|()| Tally::new());
    let tasks = tallies.each_ref().map(|tally| rig.handle.spawn_stealable(tally.yielding(1)));
    tasks[0].abort();
    tasks[3].abort();
    thief.settle();
    let seen_now = tallies.each_ref().map(Tally::seen);
    assert_eq!(seen_now, [seen(0, 1, 0), seen(2, 1, 0), seen(2, 1, 0), seen(0, 1, 0)]);
    let [one, two, ..] = tasks;
    assert!(matches!(ready(one), Err(JoinError::Cancelled)));
    assert!(ready(two).is_ok());
}

#[test]
fn a_stealable_task_that_aborts_itself_finishes_its_poll() {
    let (_team, mut rig, _other) = pair();
    let own: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
    let (reached, tally) = (Arc::clone(&own), Tally::new());
    let task = rig.handle.spawn_stealable(tally.future(move |context| -> Poll<()> {
        reached.lock().unwrap().as_ref().unwrap().abort();
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    *own.lock().unwrap() = Some(task);
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0));
    let task = own.lock().unwrap().take().unwrap();
    assert!(matches!(ready(task), Err(JoinError::Cancelled)));
}

#[test]
fn a_panic_in_a_stealable_task_reaches_the_handle_and_both_workers_live_on() {
    let (_team, rig, mut thief) = pair();
    let tasks = [5, 6].map(|payload| {
        rig.handle.spawn_stealable(async move {
            yield_now().await;
            if payload == 5 {
                resume_unwind(Box::new(payload));
            }
            payload
        })
    });
    thief.settle();
    let [panics, lives] = tasks.map(ready);
    let Err(JoinError::Panicked(payload)) = panics else { panic!("{panics:?}") };
    assert_eq!((payload.downcast_ref(), lives.unwrap()), (Some(&5), 6));
}

#[test]
fn a_detached_stealable_task_goes_on_and_its_output_is_dropped() {
    let (_team, mut rig, mut thief) = pair();
    let tally = Tally::new();
    for _ in 0..4 {
        drop(rig.handle.spawn_stealable(tally.yielding(1)));
    }
    one_dispatch(&mut thief);
    rig.settle();
    thief.settle();
    assert_eq!(tally.seen(), seen(8, 4, 4));
}

#[test]
fn a_stealable_task_awaits_another_and_is_polled_once_for_it() {
    let (_team, mut rig, mut thief) = pair();
    let polls = Tally::new();
    let mut awaited = rig.handle.spawn_stealable(Tally::new().yielding(4));
    let task =
        rig.handle.spawn_stealable(polls.future(move |context| {
            Pin::new(&mut awaited).poll(context).map(|output| output.is_ok())
        }));
    one_dispatch(&mut thief);
    rig.settle();
    thief.settle();
    assert!(ready(task).unwrap());
    assert!(polls.seen().polls <= 2, "{:?}", polls.seen());
}

// Ends.

#[test]
fn a_member_that_ends_leaves_its_stealable_tasks_to_the_others() {
    let (team, mut rig, mut other) = pair();
    let (log, slot, tally) = (Log::default(), WakerSlot::new(), Tally::new());
    // One waits, two have been woken into the io lane, some are in the inbox, some queued, of
    // which some don't fit. And a pinned one, which ends.
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    let answers = [0, 1, 2].map(|event| {
        let operation = rig.handle.submit(SimOperation::Event(event)).unwrap();
        rig.handle.spawn_stealable(async move { operation.await.unwrap() })
    });
    rig.settle();
    assert!((0..3).all(|event| rig.sim.fire(event, 42)));
    one_dispatch(&mut rig);
    let ended = answers.each_ref().map(JoinHandle::is_finished);
    assert_eq!(ended, [true, false, false], "two are left in the io lane");
    let pinned = rig.handle.spawn(noting(&log, usize::MAX));
    spawn_noting(&rig, &log, 0..700);
    for id in 700..710 {
        drop(team.spawn(noting(&log, id)).unwrap());
    }
    drop(rig.worker);
    assert!(matches!(ready(pinned), Err(JoinError::Cancelled)));
    other.settle();
    let mut ran = log.take();
    ran.sort_unstable();
    assert!(ran.into_iter().eq(0..710));
    assert_eq!(answers.map(|answer| ready(answer).unwrap()), [42; 3]);
    // What waits is woken there, too.
    assert_eq!(tally.seen(), seen(1, 0, 0));
    let waker = slot.take();
    elsewhere(move || waker.wake());
    assert_eq!(other.dispatch().unwrap().lane, Lane::Remote);
    assert_eq!(tally.seen(), seen(2, 0, 0));
}

#[test]
fn a_member_that_is_asked_to_stop_leaves_them_as_well() {
    let (_team, mut rig, mut other) = pair();
    let log = Log::default();
    spawn_noting(&rig, &log, 0..20);
    rig.remote.stop();
    assert_eq!(rig.tick().rest, Rest::Stopped);
    drop(rig.worker);
    assert_eq!(other.settle(), 20);
}

#[test]
fn the_last_member_ends_every_stealable_task_once() {
    let (team, mut rig, mut other) = pair();
    let (waits, queued, slot) = (Tally::new(), Tally::new(), WakerSlot::new());
    let waiting = rig.handle.spawn_stealable(leaving(&slot, &waits));
    rig.settle();
    let mut tasks: Vec<_> =
        (0..600).map(|_| rig.handle.spawn_stealable(queued.yielding(3))).collect();
    tasks.extend((0..5).map(|_| team.spawn(queued.yielding(3)).unwrap()));
    other.dispatches(100);
    drop(other.worker);
    let ended = tasks.iter().filter(|task| task.is_finished()).count();
    drop(rig.worker);
    assert_eq!((waits.seen().future_drops, queued.seen().future_drops), (1, 605));
    assert_eq!(waits.dropped_on(), Some(thread::current().id()));
    let cancelled = tasks.into_iter().map(ready).filter(Result::is_err).count();
    assert_eq!(cancelled, 605 - ended);
    assert!(matches!(ready(waiting), Err(JoinError::Cancelled)));
    slot.take().wake();
    assert_eq!(waits.seen(), seen(1, 1, 0));
}

#[test]
fn futures_that_spawn_and_wake_in_their_drops_at_the_teams_end_are_harmless() {
    struct Bomb {
        team: Team,
        slot: WakerSlot,
        spawned: Arc<AtomicUsize>,
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.team.spawn(pending::<()>()).is_ok() {
                self.spawned.fetch_add(1, Ordering::SeqCst);
            }
            self.slot.get().wake();
        }
    }
    let (team, mut rig, mut other) = pair();
    let (slot, tally, spawned) = (WakerSlot::new(), Tally::new(), Arc::default());
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    for pinned in [true, false] {
        for home in [&rig, &other] {
            let bomb =
                Bomb { team: team.clone(), slot: slot.clone(), spawned: Arc::clone(&spawned) };
            let waits = async move {
                let _bomb = bomb;
                pending::<()>().await;
            };
            if pinned {
                drop(home.handle.spawn(waits));
            } else {
                drop(home.handle.spawn_stealable(waits));
            }
        }
    }
    rig.settle();
    other.settle();
    drop(rig.worker);
    assert_eq!(spawned.load(Ordering::SeqCst), 1, "by the pinned one, to the other worker");
    drop(other.worker);
    assert_eq!(tally.seen().future_drops, 1);
    assert!(team.spawn(async {}).is_err());
}

#[test]
fn a_task_of_a_worker_that_has_ended_may_be_spawned_to_the_others() {
    let (_team, rig, mut other) = pair();
    let handle = rig.handle.clone();
    drop(rig.worker);
    let log = Log::default();
    let task = handle.spawn_stealable(noting(&log, 5));
    assert_eq!((other.settle(), ready(task).unwrap()), (1, 5));
    drop(other.worker);
    let tally = Tally::new();
    let task = handle.spawn_stealable(tally.pending());
    assert_eq!(tally.seen(), seen(0, 1, 0));
    assert!(matches!(ready(task), Err(JoinError::Cancelled)));
}

// What can't be.

#[test]
fn a_team_without_workers_gives_the_future_back() {
    let (team, tally) = (Team::new(2).unwrap(), Tally::new());
    let Err(NoWorker(future)) = team.spawn(tally.yielding(0)) else { panic!("nobody has joined") };
    assert_eq!(tally.seen(), seen(0, 0, 0));
    let mut rig = Rig::knowing();
    rig.worker.join(&team).unwrap();
    let task = team.spawn(future).unwrap();
    rig.settle();
    assert!(ready(task).is_ok());
    drop(rig.worker);
    let Err(error) = team.spawn(tally.pending()) else { panic!("all have ended") };
    assert!(error.to_string().contains("no worker"), "{error}");
    assert_eq!(tally.seen(), seen(1, 1, 1));
}

#[test]
fn a_team_has_a_size_and_each_worker_one_team() {
    for size in [0, Team::MOST_WORKERS + 1, usize::MAX] {
        let error = Team::new(size).unwrap_err();
        assert_eq!(error, TeamError::Size(size));
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
    assert!(Team::new(Team::MOST_WORKERS).is_ok());
    let (one, two) = (Team::new(1).unwrap(), Team::new(2).unwrap());
    let [mut first, mut second, mut third] = [(); 3].map(|()| Rig::knowing());
    first.worker.join(&one).unwrap();
    assert_eq!(first.worker.join(&one), Err(TeamError::InATeam));
    assert_eq!(first.worker.join(&two), Err(TeamError::InATeam));
    assert_eq!(second.worker.join(&one), Err(TeamError::Full));
    second.worker.join(&two).unwrap();
    drop(second.worker);
    assert_eq!(third.worker.join(&two), Err(TeamError::Full), "its last worker has ended");
    drop(first.worker);
    assert_eq!(third.worker.join(&one), Err(TeamError::Full), "a seat is taken for good");
}

#[test]
fn a_seat_is_taken_for_good() {
    let (team, one, mut other) = pair();
    let mut third = Rig::knowing();
    drop(one.worker);
    assert_eq!(third.worker.join(&team), Err(TeamError::Full));
    let task = team.spawn(async { 5 }).unwrap();
    other.settle();
    assert_eq!((third.settle(), ready(task).unwrap()), (0, 5));
}

#[test]
fn a_worker_that_has_tasks_may_join() {
    let (team, mut rig, log) = (Team::new(1).unwrap(), Rig::knowing(), Log::default());
    drop(rig.handle.spawn(noting(&log, 0)));
    drop(rig.handle.spawn_stealable(noting(&log, 1)));
    drop(rig.handle.spawn(noting(&log, 2)));
    rig.worker.join(&team).unwrap();
    drop(rig.handle.spawn_stealable(noting(&log, 3)));
    drop(rig.handle.spawn(noting(&log, 4)));
    rig.settle();
    assert_eq!(log.take(), [0, 1, 2, 3, 4]);
}

// Several on one thread.

#[test]
fn two_members_ticked_in_turn_on_one_thread_share_and_lose_nothing() {
    let (_team, mut one, mut other) = pair();
    let tallies: Vec<_> = (0..50).map(|_| Tally::new()).collect();
    for (number, tally) in tallies.iter().enumerate() {
        let home = if number % 3 == 0 { &other } else { &one };
        drop(home.handle.spawn_stealable(tally.yielding(20)));
    }
    loop {
        let rests = [&mut one, &mut other]
            .map(|rig| rig.worker.tick_at_most(NonZeroU32::new(7).unwrap()).unwrap().rest);
        if rests == [Rest::Idle; 2] {
            break;
        }
    }
    assert!(tallies.iter().all(|tally| tally.seen() == seen(21, 1, 1)));
}

#[test]
fn a_member_ticked_inside_a_task_of_another_takes_what_is_queued_and_not_what_runs() {
    let (_team, mut rig, inner) = pair();
    let (slot, tally, log) = (WakerSlot::new(), Tally::new(), Log::default());
    let inner = Rc::new(RefCell::new(inner));
    // A stealable task whose poll lets the other worker run: by a thread-local, as it is `Send`.
    thread_local! {
        static INNER: RefCell<Option<Rc<RefCell<Rig>>>> = const { RefCell::new(None) };
    }
    INNER.set(Some(Rc::clone(&inner)));
    let (leave, mut polls) = (slot.clone(), 0);
    drop(rig.handle.spawn_stealable(tally.future(move |context| -> Poll<()> {
        leave.put(context.waker());
        polls += 1;
        if polls == 1 {
            let inner = INNER.with_borrow(|inner| Rc::clone(inner.as_ref().unwrap()));
            let mut inner = inner.borrow_mut();
            // A task of the other wakes the one that is being polled.
            let waker = leave.take();
            drop(inner.handle.spawn(async move { waker.wake() }));
            inner.settle();
        }
        Poll::Pending
    })));
    spawn_noting(&rig, &log, 0..4);
    one_dispatch(&mut rig);
    assert_eq!(log.take(), [1, 2, 3], "the inner one took what was not reserved");
    assert_eq!(tally.seen(), seen(1, 0, 0), "and not the one that was being polled");
    one_dispatch(&mut rig);
    assert_eq!(log.take(), [0]);
    assert_eq!(rig.dispatch().unwrap().lane, Lane::Local, "whose wake was not lost");
    assert_eq!(tally.seen(), seen(2, 0, 0));
    assert_eq!(rig.settle() + inner.borrow_mut().settle(), 0);
    INNER.set(None);
}

#[test]
fn a_wake_between_two_ticks_goes_through_the_inbox() {
    let (_team, mut rig, mut other) = pair();
    let (slot, tally) = (WakerSlot::new(), Tally::new());
    drop(rig.handle.spawn_stealable(leaving(&slot, &tally)));
    rig.settle();
    slot.take().wake();
    assert_eq!(other.settle(), 0);
    assert_eq!(rig.dispatch().unwrap().lane, Lane::Remote);
}

// On threads of their own.

const TASKS: usize = 10_000;
const WORKERS: usize = 4;
/// How many tokens each task gives and gets.
const ROUNDS: usize = 4;

/// A ring of tasks, changing with each round, in which each wakes the next.
struct Ring {
    strides: [usize; ROUNDS],
    got: Vec<AtomicUsize>,
    wakers: Vec<Mutex<Option<Waker>>>,
    polled: Vec<AtomicBool>,
    polls: AtomicUsize,
}

impl Ring {
    fn new(random: &mut Random) -> Arc<Self> {
        let each = || 0..TASKS;
        Arc::new(Self {
            strides: [(); ROUNDS].map(|()| 1 + random.below(TASKS - 1)),
            got: each().map(|_| AtomicUsize::new(0)).collect(),
            wakers: each().map(|_| Mutex::new(None)).collect(),
            polled: each().map(|_| AtomicBool::new(false)).collect(),
            polls: AtomicUsize::new(0),
        })
    }

    /// In each round: gives a token to another task, wakes it, and waits for one.
    fn task(self: Arc<Self>, id: usize) -> impl Future<Output = usize> + Send + 'static {
        let (mut given, mut yields) = (0, 0);
        poll_fn(move |context| {
            assert!(
                !self.polled[id].swap(true, Ordering::SeqCst),
                "task {id} is polled twice at once"
            );
            self.polls.fetch_add(1, Ordering::SeqCst);
            let polled = self.poll(id, &mut given, &mut yields, context);
            assert!(
                self.polled[id].swap(false, Ordering::SeqCst),
                "task {id} was polled meanwhile"
            );
            polled
        })
    }

    fn poll(
        &self,
        id: usize,
        given: &mut usize,
        yields: &mut usize,
        context: &Context<'_>,
    ) -> Poll<usize> {
        let waker = self.wakers[id].lock().unwrap().replace(context.waker().clone());
        drop(waker);
        while *given <= self.got[id].load(Ordering::SeqCst) {
            if *given == ROUNDS {
                return Poll::Ready(id);
            }
            let other = (id + self.strides[*given]) % TASKS;
            *given += 1;
            self.got[other].fetch_add(1, Ordering::SeqCst);
            let waker = self.wakers[other].lock().unwrap().clone();
            waker.into_iter().for_each(Waker::wake);
            // Some give way in between, so that there is something to steal.
            if id.is_multiple_of(5) && *yields < 3 {
                *yields += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Pending
    }
}

fn config(workers: usize) -> TeamConfig {
    let worker = WorkerConfig::default().operations(16);
    let thread = ThreadConfig { worker, timeout: DEADLINE, ..ThreadConfig::default() };
    TeamConfig { workers, thread }
}

fn a_ring_of_ten_thousand_tasks_on_four_threads_ends<R, E>(
    make: impl Fn(usize) -> Result<R, E> + Clone + Send + 'static,
) where
    R: Reactor<Error: Send + std::fmt::Debug + std::fmt::Display> + 'static,
    E: Send + std::fmt::Debug + std::fmt::Display + 'static,
{
    for seed in 0..2 {
        let _seed = Seed(seed);
        let ring = Ring::new(&mut Random::new(seed));
        let team = match TeamThreads::start(&config(WORKERS), make.clone()) {
            Ok(team) => team,
            Err(refused) => {
                eprintln!("skipped, for there is no such reactor here: {refused}");
                return;
            }
        };
        // Half of them from here, half from the workers themselves.
        let mut tasks: Vec<JoinHandle<usize>> =
            (0..TASKS / 2).map(|id| team.spawn(Arc::clone(&ring).task(id)).unwrap()).collect();
        let spawners: Vec<_> = team
            .remotes()
            .enumerate()
            .map(|(number, remote)| {
                let (from, ring) = (TASKS / 2 + number * TASKS / 8, Arc::clone(&ring));
                remote.spawn_with(move |handle| async move {
                    let spawn = |id| handle.spawn_stealable(Arc::clone(&ring).task(id));
                    (from..from + TASKS / 8).map(spawn).collect::<Vec<_>>()
                })
            })
            .collect();
        let spawned = spawners.len();
        for spawner in spawners {
            tasks.extend(wait_for("the spawners", spawner).unwrap());
        }
        for (id, task) in tasks.into_iter().enumerate() {
            assert_eq!(wait_for("each task", task).unwrap(), id);
        }
        let remotes: Vec<_> = team.remotes().cloned().collect();
        team.stop_within(DEADLINE).unwrap();
        let stats: Vec<Stats> = remotes.iter().map(evenkeel::Remote::stats).collect();
        let dispatches: usize = stats.iter().map(|stats| stats.dispatches).sum();
        assert_eq!(dispatches, ring.polls.load(Ordering::SeqCst) + spawned, "{stats:?}");
        assert!(ring.got.iter().all(|got| got.load(Ordering::SeqCst) == ROUNDS));
        for stats in &stats {
            let announced = stats.parks + stats.retractions;
            assert!(stats.notifications <= announced + 1, "no storm: {stats:?}");
        }
    }
}

#[test]
fn a_ring_of_tasks_on_four_simulated_reactors_ends() {
    a_ring_of_ten_thousand_tasks_on_four_threads_ends(|_| {
        Ok::<_, Infallible>(SimReactor::new(&VirtualClock::new()).waits_for_real())
    });
}

#[test]
fn a_ring_of_tasks_over_epoll_ends() {
    a_ring_of_ten_thousand_tasks_on_four_threads_ends(|_| EpollReactor::make());
}

#[test]
fn a_ring_of_tasks_over_uring_ends() {
    a_ring_of_ten_thousand_tasks_on_four_threads_ends(|_| UringReactor::make());
}

#[test]
fn a_team_of_threads_that_parks_is_woken_by_one_submission_at_a_time() {
    let team = TeamThreads::start(&config(3), |_| EpollReactor::make()).unwrap();
    let all_parked = || team.remotes().all(evenkeel::Remote::is_parked);
    let notified = || team.remotes().map(|it| it.stats().notifications).sum::<usize>();
    for round in 0..50 {
        wait_until("all park", all_parked);
        let before = notified();
        assert_eq!(wait_for("the task", team.spawn(async move { round }).unwrap()).unwrap(), round);
        wait_until("all park again", all_parked);
        assert_eq!(notified() - before, 1, "one task wakes one worker");
    }
    team.stop_within(DEADLINE).unwrap();
}

#[test]
fn a_member_thread_that_stops_leaves_its_tasks_to_the_others() {
    let team = TeamThreads::start(&config(2), |_| EpollReactor::make()).unwrap();
    let slots: Vec<WakerSlot> = (0..100).map(|_| WakerSlot::new()).collect();
    let started = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = slots
        .iter()
        .map(|slot| {
            let (slot, started, mut polls) = (slot.clone(), Arc::clone(&started), 0);
            let future = poll_fn(move |context: &mut Context<'_>| {
                slot.put(context.waker());
                polls += 1;
                started.fetch_add(usize::from(polls == 1), Ordering::SeqCst);
                if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
            });
            team.spawn(future).unwrap()
        })
        .collect();
    wait_until("all have started", || started.load(Ordering::SeqCst) == tasks.len());
    let first = team.remotes().next().unwrap().clone();
    first.stop();
    wait_until("the first has ended", || first.is_ended());
    for slot in &slots {
        slot.take().wake();
    }
    for task in tasks {
        wait_for("each task", task).unwrap();
    }
    team.stop_within(DEADLINE).unwrap();
}

#[test]
fn spawns_that_race_the_teams_end_all_resolve() {
    for seed in 0..20 {
        let _seed = Seed(seed);
        let team = TeamThreads::start(&config(3), |_| EpollReactor::make()).unwrap();
        let (spawns, drops) = (team.team().clone(), Tally::new());
        let counted = drops.clone();
        let spawner = thread::spawn(move || {
            let mut tasks = Vec::new();
            while let Ok(task) = spawns.spawn(counted.yielding(2)) {
                tasks.push(task);
                if tasks.len() == 2_000 {
                    break;
                }
            }
            tasks
        });
        wait_until("some have run", || drops.seen().polls > 10 * usize::try_from(seed).unwrap());
        team.stop_within(DEADLINE).unwrap();
        let tasks = spawner.join().unwrap();
        let count = tasks.len();
        for mut task in tasks {
            assert!(poll_once(&mut task).is_ready(), "everybody has ended");
        }
        let seen = drops.seen();
        assert!(seen.future_drops == count || seen.future_drops == count + 1, "{count}: {seen:?}");
    }
}

#[test]
fn a_team_of_threads_that_can_not_start_says_why() {
    let size = TeamThreads::<EpollReactor>::start(&config(0), |_| EpollReactor::make());
    assert!(matches!(size, Err(TeamStartError::Team(TeamError::Size(0)))));
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let refused = TeamThreads::<EpollReactor>::start(&config(3), move |number| {
        if number == 2 {
            return Err::<_, SetupError>("the third is refused".into());
        }
        count.fetch_add(1, Ordering::SeqCst);
        EpollReactor::make()
    });
    let error = refused.err().unwrap();
    assert!(error.to_string().contains("the third is refused"), "{error}");
    assert_eq!(made.load(Ordering::SeqCst), 2);
}
