//! Timers of tasks that may be stolen: they stand in a worker's slots, and follow their futures.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::testing::{SimError, SimReactor, VirtualClock};
use evenkeel::timers::MissedTicks;
use evenkeel::{
    Completion, JoinHandle, Rest, SleepError, StealableSleep, Team, TimeoutError, Token, Wait,
    Worker, WorkerConfig, interval, sleep, sleep_until, timeout, yield_now,
};

type SimWorker = Worker<SimReactor, VirtualClock>;

const MILLI: Duration = Duration::from_millis(1);

fn worker_with_room(clock: &VirtualClock, operations: usize) -> SimWorker {
    let config = WorkerConfig::default().operations(operations);
    Worker::new(SimReactor::new(clock), clock.clone(), config)
}

fn worker(clock: &VirtualClock) -> SimWorker {
    worker_with_room(clock, 8)
}

/// Ticks and parks until the task has ended; virtual time moves while the worker is parked.
fn run<T>(worker: &mut SimWorker, task: JoinHandle<T>) -> T {
    for _ in 0..10_000 {
        if task.is_finished() {
            return output(task);
        }
        if worker.tick().unwrap().rest == Rest::Idle && !task.is_finished() {
            worker.park(Wait::Forever).unwrap();
        }
    }
    panic!("the task does not end")
}

fn output<T>(task: JoinHandle<T>) -> T {
    match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output.unwrap(),
        Poll::Pending => panic!("it has not ended"),
    }
}

fn idle(worker: &mut SimWorker) {
    while worker.tick().unwrap().rest != Rest::Idle {}
}

/// Polls a sleep once, on the worker, and gives it out of the task.
fn set_on(worker: &mut SimWorker, span: Duration) -> StealableSleep {
    let task = worker.handle().spawn(poll_fn(move |context| {
        let mut sleep = sleep(span);
        assert!(Pin::new(&mut sleep).poll(context).is_pending());
        Poll::Ready(sleep)
    }));
    idle(worker);
    output(task)
}

#[test]
fn a_sleep_is_over_when_its_time_is_and_not_before() {
    let clock = VirtualClock::new();
    let mut worker = worker(&clock);
    let handle = worker.handle();
    let task = worker.handle().spawn(async move {
        let start = handle.now();
        sleep(3 * MILLI).await.unwrap();
        handle.now() - start
    });
    let slept = run(&mut worker, task);
    assert!(slept >= 3 * MILLI && slept < 4 * MILLI, "{slept:?}");
}

#[test]
fn sleeps_are_over_in_the_order_of_their_deadlines() {
    let clock = VirtualClock::new();
    let mut worker = worker(&clock);
    let task = worker.handle().spawn(async {
        let mut sleeps = [3, 1, 2].map(|millis| (millis, sleep(millis * MILLI)));
        let mut over = Vec::new();
        poll_fn(|context| {
            for (millis, sleep) in &mut sleeps {
                if !over.contains(millis) && Pin::new(sleep).poll(context).is_ready() {
                    over.push(*millis);
                }
            }
            if over.len() == 3 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        over
    });
    assert_eq!(run(&mut worker, task), [1, 2, 3]);
}

#[test]
fn a_sleep_that_is_over_already_gives_way_once() {
    let clock = VirtualClock::new();
    let mut worker = worker(&clock);
    let task = worker.handle().spawn(async {
        let mut sleep = sleep(Duration::ZERO);
        poll_fn(|context| {
            assert!(Pin::new(&mut sleep).poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep.await
    });
    assert_eq!(run(&mut worker, task), Ok(()));
}

#[test]
fn a_sleep_that_is_dropped_on_its_own_worker_leaves_its_slot_at_once() {
    let clock = VirtualClock::new();
    let mut worker = worker_with_room(&clock, 1);
    let task = worker.handle().spawn(async {
        for _ in 0..100 {
            let mut sleep = sleep(Duration::from_secs(1));
            poll_fn(|context| {
                assert!(Pin::new(&mut sleep).poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
    });
    run(&mut worker, task);
}

#[test]
fn a_sleep_that_is_dropped_on_another_thread_gives_its_slot_back() {
    let clock = VirtualClock::new();
    let mut worker = worker_with_room(&clock, 1);
    for _ in 0..3 {
        let sleep = set_on(&mut worker, Duration::from_secs(1));
        thread::spawn(move || drop(sleep)).join().unwrap();
        idle(&mut worker);
    }
    // Nothing is left that would end this wait.
    assert_eq!(worker.park(Wait::Forever), Err(SimError::Hang));
}

#[test]
fn a_sleep_that_fired_before_it_is_dropped_elsewhere_gives_its_slot_back() {
    let clock = VirtualClock::new();
    let mut worker = worker_with_room(&clock, 1);
    let sleep = set_on(&mut worker, MILLI);
    clock.advance(MILLI);
    idle(&mut worker);
    thread::spawn(move || drop(sleep)).join().unwrap();
    idle(&mut worker);
    drop(set_on(&mut worker, MILLI));
}

#[test]
fn who_sleeps_without_room_is_told_so() {
    let clock = VirtualClock::new();
    let mut worker = worker_with_room(&clock, 1);
    let first = set_on(&mut worker, MILLI);
    let task = worker.handle().spawn(sleep_until(first.deadline()));
    let error = run(&mut worker, task).unwrap_err();
    assert_eq!(error, SleepError::NoRoom { capacity: 1 });
    assert!(error.to_string().contains("all 1 operations and timers"), "{error}");
}

#[test]
fn who_sleeps_outside_of_a_worker_is_told_so() {
    let mut sleep = sleep_until(evenkeel::Instant::ZERO);
    let polled = Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(Err(SleepError::NoWorker)));
}

#[test]
#[should_panic(expected = "no worker ticks on this thread")]
fn a_span_needs_a_worker_whose_clock_tells_the_time() {
    drop(sleep(MILLI));
}

#[test]
fn a_sleep_whose_worker_ends_goes_on_where_its_task_does() {
    let clock = VirtualClock::new();
    let team = Team::new(2).unwrap();
    let (mut one, mut other) = (worker(&clock), worker(&clock));
    one.join(&team).unwrap();
    other.join(&team).unwrap();
    let task = one.handle().spawn_stealable(async { sleep(5 * MILLI).await });
    idle(&mut one);
    drop(one);
    idle(&mut other);
    assert!(!task.is_finished());
    assert_eq!(run(&mut other, task), Ok(()));
    assert!(evenkeel::Clock::now(&clock).as_nanos() >= 5_000_000);
}

#[test]
fn a_task_that_was_stolen_is_woken_where_it_set_its_timer() {
    let clock = VirtualClock::new();
    let team = Team::new(2).unwrap();
    let (mut one, mut other) = (worker(&clock), worker(&clock));
    one.join(&team).unwrap();
    other.join(&team).unwrap();
    let task = one.handle().spawn_stealable(async {
        sleep(MILLI).await.unwrap();
        yield_now().await;
        thread::current().id()
    });
    // The thief polls it first, so that the timer is the thief's.
    idle(&mut other);
    assert_eq!(other.remote().stats().steals, 1);
    clock.advance(MILLI);
    assert_eq!(one.tick().unwrap().timers, 0);
    assert_eq!(other.tick().unwrap().timers, 1);
    run(&mut other, task);
}

#[test]
fn a_reactor_has_nothing_to_say_of_a_timer() {
    let clock = VirtualClock::new();
    let reactor = SimReactor::new(&clock);
    let sim = reactor.control();
    let config = WorkerConfig::default().operations(1);
    let mut worker = Worker::new(reactor, clock.clone(), config);
    let sleep = set_on(&mut worker, MILLI);
    sim.report(Completion { token: Token::new(0, 0), result: 0 });
    idle(&mut worker);
    let task = worker.handle().spawn(sleep);
    idle(&mut worker);
    assert!(!task.is_finished(), "it would be early, and its slot somebody else's");
    assert_eq!(run(&mut worker, task), Ok(()));
}

#[test]
fn a_timeout_asks_the_future_first() {
    let clock = VirtualClock::new();
    let mut worker = worker(&clock);
    let task = worker.handle().spawn(async {
        let late = timeout(Duration::ZERO, async { 7 }).await;
        let never = timeout(2 * MILLI, std::future::pending::<()>()).await;
        (late, never)
    });
    assert_eq!(run(&mut worker, task), (Ok(7), Err(TimeoutError::Elapsed)));
}

#[test]
fn an_interval_does_not_drift() {
    let clock = VirtualClock::new();
    let mut worker = worker(&clock);
    let task = worker.handle().spawn(async {
        assert!(interval(Duration::ZERO).is_err());
        let mut interval = interval(MILLI).unwrap().missed_ticks(MissedTicks::Skip);
        let first = interval.tick().await.unwrap();
        for tick in 1..100 {
            assert_eq!(interval.tick().await.unwrap() - first, tick * MILLI);
        }
    });
    run(&mut worker, task);
}
