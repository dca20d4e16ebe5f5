//! A worker where no thread identity is known: every wake takes the inbox, and every future leaves
//! its operation through it.
#![cfg(all(feature = "testing", not(feature = "std")))]

use std::cell::Cell;
use std::rc::Rc;

use evenkeel::testing::{Sim, SimOperation, SimReactor, VirtualClock};
use evenkeel::{JoinHandle, Rest, Worker, WorkerConfig, yield_now};

type SimWorker = Worker<SimReactor, VirtualClock>;

fn worker(operations: usize) -> (SimWorker, Sim) {
    let clock = VirtualClock::new();
    let reactor = SimReactor::new(&clock);
    let sim = reactor.control();
    (Worker::new(reactor, clock, WorkerConfig::default().operations(operations)), sim)
}

/// Awaits that many operations, one after the other; each is fired by the test.
fn awaits(worker: &SimWorker, event: u32, times: u32) -> JoinHandle<u32> {
    let handle = worker.handle();
    worker.handle().spawn(async move {
        let mut refused = 0;
        for _ in 0..times {
            match handle.submit(SimOperation::Event(event)) {
                Ok(in_flight) => assert_eq!(in_flight.await, Ok(7)),
                Err(_) => refused += 1,
            }
        }
        refused
    })
}

fn run<T>(worker: &mut SimWorker, sim: &Sim, events: u32, tasks: &[JoinHandle<T>]) {
    for _ in 0..10_000 {
        if tasks.iter().all(JoinHandle::is_finished) {
            return;
        }
        worker.tick().unwrap();
        for event in 0..events {
            let _ = sim.fire(event, 7);
        }
    }
    panic!("the tasks do not end");
}

fn output<T>(task: JoinHandle<T>) -> T {
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    match std::future::Future::poll(std::pin::pin!(task), context) {
        std::task::Poll::Ready(output) => output.unwrap(),
        std::task::Poll::Pending => panic!("it has not ended"),
    }
}

#[test]
fn an_operation_that_was_awaited_gives_its_slot_back() {
    let (mut worker, sim) = worker(1);
    let task = [awaits(&worker, 0, 100)];
    run(&mut worker, &sim, 1, &task);
    let [task] = task;
    assert_eq!(output(task), 0, "operations were refused");
}

#[test]
fn as_many_tasks_as_slots_are_never_refused() {
    let (mut worker, sim) = worker(4);
    let tasks = [0, 1, 2, 3].map(|event| awaits(&worker, event, 100));
    run(&mut worker, &sim, 4, &tasks);
    for task in tasks {
        assert_eq!(output(task), 0, "operations were refused");
    }
}

#[test]
fn what_stands_before_a_slot_keeps_its_turn() {
    let (mut worker, sim) = worker(1);
    let order = Rc::new(Cell::new(Vec::new()));
    let log = |order: &Rc<Cell<Vec<u32>>>, entry| {
        let mut entries = order.take();
        entries.push(entry);
        order.set(entries);
    };
    let handle = worker.handle();
    let remote = worker.remote();
    let inner = Rc::clone(&order);
    let first = worker.handle().spawn(async move {
        let in_flight = handle.submit(SimOperation::Event(0)).unwrap();
        yield_now().await;
        // Two submissions come first, then the slot; then it is wanted.
        for number in [1, 2] {
            drop(remote.spawn(async move {
                SEEN.with_borrow_mut(|seen| seen.push(number));
            }));
        }
        drop(in_flight);
        let again = handle.submit(SimOperation::Event(0));
        assert!(again.is_err(), "the cancel has been asked for, and has not ended");
        log(&inner, 0);
    });
    while worker.tick().unwrap().rest != Rest::Idle {}
    assert!(first.is_finished());
    assert_eq!(order.take(), [0]);
    SEEN.with_borrow(|seen| assert_eq!(*seen, [1, 2]));
    assert_eq!(sim.held(), 0, "the cancel has reached the reactor");
}

std::thread_local! {
    static SEEN: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[test]
fn what_was_taken_early_is_dropped_with_the_worker() {
    let (mut worker, _sim) = worker(1);
    let handle = worker.handle();
    let remote = worker.remote();
    let task = worker.handle().spawn(async move {
        let in_flight = handle.submit(SimOperation::Event(0)).unwrap();
        yield_now().await;
        let late = remote.spawn(std::future::pending::<()>());
        drop(in_flight);
        assert!(handle.submit(SimOperation::Event(0)).is_err());
        remote.stop();
        [late]
    });
    while worker.tick().unwrap().rest != Rest::Stopped {}
    drop(worker);
    let [late] = output(task);
    assert!(late.is_finished(), "it was dropped");
}
