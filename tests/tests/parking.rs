//! Parking without a lost wake, waking without a system call.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use evenkeel::testing::{SimError, SimOperation, SimReactor, VirtualClock};
use evenkeel::{
    Clock, Instant, Parked, Remote, Rest, StartError, StopError, ThreadConfig, Wait, WorkerConfig,
    WorkerThread, yield_now,
};
use evenkeel_tests::{
    DEADLINE, Rig, Sight, Tally, WakerSlot, elsewhere, ready, wait_for, wait_until,
};

const THREADS: usize = 4;
const EACH: usize = 2_500;

/// Submits tasks that count, from several threads at once.
fn storm(remote: &Remote<SimReactor>, ran: &Arc<AtomicUsize>) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let ran = Arc::clone(ran);
                    drop(remote.spawn(async move { ran.fetch_add(1, Ordering::SeqCst) }));
                }
            });
        }
    });
}

/// A rig that does something, once, while its worker is held in its announced park.
fn rig_while_parked(sight: Sight, act: impl FnOnce(&Remote<SimReactor>) + 'static) -> Rig {
    let remote: Rc<OnceCell<Remote<SimReactor>>> = Rc::default();
    let (reached, act) = (Rc::clone(&remote), Cell::new(Some(act)));
    let rig = Rig::with(sight, WorkerConfig::default(), |reactor| {
        reactor.while_waiting(move || {
            if let Some(act) = act.take() {
                act(reached.get().expect("set before the worker parks"));
            }
        })
    });
    remote.set(rig.remote.clone()).expect("set once");
    rig
}

#[test]
fn a_parked_worker_is_notified_once_by_ten_thousand_submissions() {
    for sight in Sight::BOTH {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let mut rig = rig_while_parked(sight, move |remote| {
            assert!(remote.is_parked());
            storm(remote, &count);
            assert!(!remote.is_parked(), "someone has woken it");
        });
        rig.settle();
        assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
        assert_eq!(rig.sim.notifications(), 1);
        assert_eq!(rig.remote.stats().notifications, 1);
        assert_eq!(rig.settle(), THREADS * EACH);
        assert_eq!(ran.load(Ordering::SeqCst), THREADS * EACH, "none is lost");
    }
}

#[test]
fn a_parked_worker_is_notified_once_by_wakes_aborts_cancels_and_a_stop() {
    let slot = WakerSlot::new();
    let (left, operations) = (slot.clone(), Rc::new(RefCell::new(Vec::new())));
    let dropped = Rc::clone(&operations);
    let mut rig = rig_while_parked(Sight::Knowing, move |remote| {
        let waker = left.take();
        elsewhere(move || waker.wake());
        drop(dropped.take());
        remote.spawn(async {}).abort();
        remote.stop();
    });
    let leave = slot.clone();
    drop(rig.handle.spawn(std::future::poll_fn(move |context| {
        leave.put(context.waker());
        Poll::<()>::Pending
    })));
    let operation = rig.handle.submit(SimOperation::Event(0)).unwrap();
    operations.borrow_mut().push(operation);
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
    assert_eq!(rig.sim.notifications(), 1);
    assert_eq!(rig.tick().rest, Rest::Stopped);
}

#[test]
fn a_running_worker_costs_its_producers_no_notification() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let stop = rig.backlog(3);
        let ran = Arc::new(AtomicUsize::new(0));
        let (remote, count) = (rig.remote.clone(), Arc::clone(&ran));
        // At the same time as the worker ticks.
        let producers = thread::spawn(move || storm(&remote, &count));
        wait_until("all submissions have run", || {
            rig.tick();
            ran.load(Ordering::SeqCst) == THREADS * EACH
        });
        producers.join().unwrap();
        // And while it does not.
        storm(&rig.remote, &ran);
        stop.set(true);
        rig.settle();
        assert_eq!(ran.load(Ordering::SeqCst), 2 * THREADS * EACH, "none is lost");
        assert_eq!(rig.sim.notifications(), 0);
        let stats = rig.remote.stats();
        assert_eq!((stats.notifications, stats.parks, stats.retractions), (0, 0, 0));
    }
}

#[test]
fn an_announcement_is_retracted_when_something_waits() {
    type Hand = fn(&mut Rig);
    let cases: [(&str, Hand); 5] = [
        ("a local task", |rig| drop(rig.handle.spawn(async {}))),
        ("a submission", |rig| drop(rig.remote.spawn(async {}))),
        ("a stop", |rig| rig.remote.stop()),
        ("an operation to be armed", |rig| drop(rig.handle.submit(SimOperation::Event(1)))),
        ("a completion", |rig| assert!(rig.sim.fire(0, 0))),
    ];
    for (what, hand_over) in cases {
        let mut rig = Rig::knowing();
        let operation = rig.handle.submit(SimOperation::Event(0)).unwrap();
        rig.settle();
        hand_over(&mut rig);
        assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Retracted), "{what}");
        assert!(!rig.remote.is_parked());
        let stats = rig.remote.stats();
        assert_eq!((stats.parks, stats.retractions, stats.notifications), (0, 1, 0), "{what}");
        drop(operation);
    }
}

#[test]
fn a_wake_before_the_park_is_not_lost() {
    // A notification that nobody waited for ends the next wait at once, at worst: it is never
    // needed to see what was handed over before.
    let mut rig = Rig::knowing();
    rig.settle();
    drop(rig.remote.spawn(async {}));
    assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Retracted));
    assert_eq!(rig.settle(), 1);
    assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang), "nothing is due");
    assert_eq!(rig.sim.notifications(), 0);
    assert_eq!(rig.settle(), 0, "and it can be run again");
}

#[test]
fn a_park_ends_with_a_completion_and_its_task_comes_from_the_io_lane() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let handle = rig.handle.clone();
        let task = rig.handle.spawn(async move {
            handle.submit(SimOperation::After(Duration::from_secs(1))).unwrap().await
        });
        rig.settle();
        assert_eq!(rig.worker.park(Wait::Forever), Ok(Parked::Waited));
        assert!(rig.clock.now() >= Instant::ZERO + Duration::from_secs(1));
        let tick = rig.tick();
        assert_eq!((tick.dispatches.io, tick.dispatches.total()), (1, 1));
        assert_eq!(ready(task).unwrap(), Ok(0));
    }
}

#[test]
fn a_park_with_a_deadline_ends_there() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        rig.settle();
        let deadline = Instant::ZERO + Duration::from_millis(3);
        assert_eq!(rig.worker.park(Wait::Until(deadline)), Ok(Parked::Waited));
        assert_eq!(rig.clock.now(), deadline);
        assert_eq!(rig.tick().rest, Rest::Idle);
    }
}

#[test]
fn a_park_that_does_not_wait_looks_and_returns() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        rig.settle();
        assert_eq!(rig.worker.park(Wait::Never), Ok(Parked::Waited));
        assert!(!rig.remote.is_parked());
    }
}

#[test]
fn a_storm_from_several_threads_on_a_live_worker_loses_nothing_and_notifies_once_a_park() {
    let worker = start_sim();
    let ran = Arc::new(AtomicUsize::new(0));
    for round in 1..=5 {
        storm(worker.remote(), &ran);
        wait_until("all have run", || ran.load(Ordering::SeqCst) == round * THREADS * EACH);
        wait_until("the worker parks", || worker.remote().is_parked());
    }
    // One at a time, each to a worker that is parked or about to be.
    for _ in 0..2_000 {
        assert_eq!(wait_for("a task's end", worker.remote().spawn(async { 7 })).unwrap(), 7);
    }
    let stats = worker.remote().stats();
    assert!(stats.notifications <= stats.parks + stats.retractions + 1, "{stats:?}");
    assert!(stats.notifications > 0, "{stats:?}");
    let remote = worker.remote().clone();
    worker.stop_within(DEADLINE).unwrap();
    assert!(remote.is_ended() && !remote.is_parked());
}

#[test]
fn a_ping_pong_between_two_live_workers_ends() {
    let (server, returner) = (start_sim(), start_sim());
    let remote = returner.remote().clone();
    let game = server.remote().spawn(async move {
        let mut hits = 0;
        for _ in 0..5_000 {
            // Each wait parks one worker and wakes the other.
            hits += u32::from(remote.spawn(async { yield_now().await }).await.is_ok());
        }
        hits
    });
    assert_eq!(wait_for("the game's end", game).unwrap(), 5_000);
    server.stop_within(DEADLINE).unwrap();
    returner.stop_within(DEADLINE).unwrap();
}

fn start_sim() -> WorkerThread<SimReactor> {
    let make = || Ok::<_, Infallible>(SimReactor::new(&VirtualClock::new()).waits_for_real());
    WorkerThread::start(ThreadConfig::default(), make).unwrap()
}

#[test]
fn a_worker_thread_that_is_dropped_ends_its_worker() {
    let worker = start_sim();
    let remote = worker.remote().clone();
    let task = remote.spawn(std::future::pending::<()>());
    wait_until("the worker parks", || remote.is_parked());
    drop(worker);
    assert!(wait_for("the task's end", task).is_err());
    wait_until("the worker's end", || remote.is_ended());
}

#[test]
fn a_worker_thread_drops_its_tasks_on_that_thread() {
    let worker = start_sim();
    let remote = worker.remote().clone();
    let id = wait_for("the thread's id", remote.spawn(async { thread::current().id() })).unwrap();
    let (ran, never_ran) = (Tally::new(), Tally::new());
    let tasks = [remote.spawn(ran.pending()), remote.spawn(never_ran.pending())];
    wait_until("its first poll", || ran.seen().polls == 1);
    worker.stop_within(DEADLINE).unwrap();
    assert_eq!((ran.dropped_on(), never_ran.dropped_on()), (Some(id), Some(id)));
    assert!(tasks.into_iter().all(|task| ready(task).is_err()));
}

#[test]
fn a_worker_thread_whose_reactor_can_not_be_made_says_why() {
    let failed = WorkerThread::<SimReactor>::start(ThreadConfig::default(), || Err("no reactor"));
    assert!(matches!(failed, Err(StartError::Reactor("no reactor"))));
    let panicked = WorkerThread::<SimReactor>::start(ThreadConfig::default(), || {
        std::panic::resume_unwind(Box::new("no reactor")) as Result<_, Infallible>
    });
    assert!(matches!(panicked, Err(StartError::Panicked)));
}

#[test]
fn a_worker_thread_that_takes_too_long_to_start_is_given_up_and_ends() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let config = ThreadConfig { timeout: Duration::from_millis(1), ..ThreadConfig::default() };
    let started = WorkerThread::start(config, move || {
        // Gone when the thread's body is.
        let end = end;
        let _ = held.recv();
        let reactor = SimReactor::new(&VirtualClock::new());
        Ok::<_, Infallible>(reactor.while_waiting(move || end.send(()).expect("the test listens")))
    });
    assert!(matches!(started, Err(StartError::TimedOut(_))));
    drop(release);
    // It ends without having waited for work.
    assert_eq!(ended.recv_timeout(DEADLINE), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_worker_thread_that_does_not_give_way_is_left_to_itself_in_time() {
    let worker = start_sim();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let remote = worker.remote().clone();
    let running = Tally::new();
    let task = remote.spawn(running.future(move |_| {
        let _ = held.recv();
        Poll::Ready(())
    }));
    wait_until("its first poll", || running.seen().polls == 1);
    let bound = Duration::from_millis(1);
    assert!(matches!(worker.stop_within(bound), Err(StopError::TimedOut(given)) if given == bound));
    drop(release);
    assert!(wait_for("the task's end", task).is_ok());
    wait_until("the worker's end", || remote.is_ended());
}
