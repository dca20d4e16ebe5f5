#![forbid(unsafe_code)]
//! Tasks: the real ones, in a worker's real shared half. What is lost is a deadlock; what is freed
//! too early, twice or never is found by the tasks' [`Life`](crate::sync::Life) and by counts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{self, Future};
use core::task::{Poll, Waker};

use loom::thread;

use super::{Bell, Bench, Dropped, Sealed, Tally, explore, join_all, poll, wait_for, waker_of};
use crate::sync::{AtomicUsize, Ordering};
use crate::task::cell::JoinError;

/// What a task waits for: each must be seen by the poll that answers the wake after it.
struct Events(Vec<AtomicUsize>);

impl Events {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| AtomicUsize::new(0)).collect()))
    }

    fn happens(&self, which: usize) {
        // Ordering: Relaxed: it is the wake that has to carry it over.
        self.0[which].store(1, Ordering::Relaxed);
    }

    fn all_happened(&self) -> bool {
        self.0.iter().all(|event| event.load(Ordering::Relaxed) == 1)
    }
}

/// Ready when all events have happened; first it yields so often.
fn waiting(events: Arc<Events>, mut yields: usize, end: Dropped) -> impl Future<Output = ()> {
    future::poll_fn(move |context| {
        let _ = &end;
        if yields > 0 {
            yields -= 1;
            context.waker().wake_by_ref();
        }
        if events.all_happened() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// Threads that wake a task, each after so many events, one by one.
fn no_wake_is_lost(events_of: &'static [usize], yields: usize, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(0);
        let events = Events::new(events_of.iter().sum());
        let ended = Tally::default();
        let (task, handle) =
            bench.spawn(waiting(Arc::clone(&events), yields, Dropped(ended.clone())));
        drop(handle);
        let mut first = 0;
        let spawn = |&count| {
            let (events, waker) = (Arc::clone(&events), waker_of(task));
            let mine = first..first + count;
            first += count;
            thread::spawn(move || {
                for event in mine {
                    events.happens(event);
                    waker.wake_by_ref();
                }
            })
        };
        let threads: Vec<_> = events_of.iter().map(spawn).collect();
        bench.run_until(|| ended.get() == 1);
        join_all(threads);
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

#[test]
fn one_wakes_twice() {
    no_wake_is_lost(&[2], 0, 4);
}

#[test]
fn one_wakes_what_yields() {
    no_wake_is_lost(&[1], 1, 5);
}

#[test]
fn two_wake() {
    no_wake_is_lost(&[1, 1], 0, 3);
}

#[test]
fn deep_two_wake_what_yields() {
    no_wake_is_lost(&[1, 1], 1, 3);
}

#[test]
fn one_wakes_three_times() {
    no_wake_is_lost(&[3], 0, 3);
}

/// A wake, and the end of the task at its first poll.
#[test]
fn a_wake_meets_the_end() {
    explore(6, || {
        let bench = Bench::new(0);
        let ended = Tally::default();
        let end = Dropped(ended.clone());
        let (task, handle) = bench.spawn(async move { drop(end) });
        let waker = waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        drop(handle);
        bench.run_until(|| ended.get() == 1);
        waking.join().unwrap();
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

/// As above, but the worker closes at once.
#[test]
fn a_wake_meets_the_close() {
    explore(6, || {
        let bench = Bench::new(0);
        let ended = Tally::default();
        let (task, handle) = bench.spawn(waiting(Events::new(1), 0, Dropped(ended.clone())));
        let waker = waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        drop(handle);
        bench.close();
        assert_eq!(ended.get(), 1);
        waking.join().unwrap();
        bench.end();
    });
}

/// References come and go on two threads while the task ends: it is freed once, by the last.
#[test]
fn the_last_reference_frees() {
    explore(6, || {
        let bench = Bench::new(0);
        let (task, handle) = bench.spawn(async {});
        let waker = waker_of(task);
        let others = thread::spawn(move || drop(waker.clone()));
        let handles = thread::spawn(move || drop(handle));
        bench.run_until(|| true);
        others.join().unwrap();
        handles.join().unwrap();
        bench.end();
    });
}

/// What a future holds that only an abort ends: it sees what was done before the abort.
struct Aborted(Arc<Events>);

impl Drop for Aborted {
    fn drop(&mut self) {
        assert!(self.0.all_happened());
    }
}

/// An abort races with the poll that would end the task by itself, and with a wake.
fn aborted(ends_by_itself: bool, woken: bool, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(0);
        let ended = Tally::default();
        let events = Events::new(usize::from(!ends_by_itself));
        let future = waiting(events, 0, Dropped(ended.clone()));
        let before = Events::new(1);
        let aborted = (!ends_by_itself).then(|| Aborted(Arc::clone(&before)));
        let (task, handle) = bench.spawn(async move {
            let _aborted = aborted;
            future.await;
        });
        let waking = woken.then(|| {
            let waker = waker_of(task);
            thread::spawn(move || waker.wake())
        });
        let aborting = thread::spawn(move || {
            before.happens(0);
            handle.abort();
            handle
        });
        bench.run_until(|| ended.get() == 1);
        join_all(waking);
        let mut handle = aborting.join().unwrap();
        match poll(&mut handle, Waker::noop()) {
            Poll::Ready(Ok(())) => assert!(ends_by_itself),
            Poll::Ready(Err(JoinError::Cancelled)) => {}
            _ => panic!("an ended task has its output"),
        }
        drop(handle);
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

#[test]
fn an_abort_ends_what_waits() {
    aborted(false, false, 6);
}

#[test]
fn an_abort_and_a_wake_end_what_waits() {
    aborted(false, true, 3);
}

#[test]
fn an_abort_meets_the_end() {
    aborted(true, false, 6);
}

#[test]
fn an_abort_and_a_wake_meet_the_end() {
    aborted(true, true, 3);
}

/// A handle is polled on another thread, with one waker and then another, until the task's end
/// wakes it.
#[test]
fn an_output_is_awaited_elsewhere() {
    explore(6, || {
        let bench = Bench::new(0);
        let ended = Tally::default();
        let end = Dropped(ended.clone());
        let (_, mut handle) = bench.spawn(async move {
            drop(end);
            Sealed::new(7)
        });
        let awaiting = thread::spawn(move || {
            let other = Bell::new();
            let output = match poll(&mut handle, &Waker::from(Arc::clone(&other))) {
                Poll::Ready(output) => output,
                Poll::Pending => wait_for(&mut handle),
            };
            assert_eq!(output.unwrap().open(), 7);
            drop(handle);
            other
        });
        bench.run_until(|| ended.get() == 1);
        let other = awaiting.join().unwrap();
        bench.end();
        assert_eq!(Arc::strong_count(&other), 1, "each waker is dropped");
    });
}

/// As above, but the worker ends before the task does.
#[test]
fn a_cancelled_output_is_awaited_elsewhere() {
    explore(6, || {
        let bench = Bench::new(0);
        let (_, mut handle) = bench.spawn(future::pending::<()>());
        let awaiting = thread::spawn(move || {
            assert!(matches!(wait_for(&mut handle), Err(JoinError::Cancelled)));
        });
        bench.close();
        awaiting.join().unwrap();
        bench.end();
    });
}

/// The output of a task whose handle goes away is dropped once, whoever comes last.
fn detached(polled: bool, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(0);
        let dropped = Tally::default();
        let output = Dropped(dropped.clone());
        let ended = Tally::default();
        let end = Dropped(ended.clone());
        let (task, mut handle) = bench.spawn(async move {
            drop(end);
            (Sealed::new(7), output)
        });
        let waker = waker_of(task);
        let detaching = thread::spawn(move || {
            let polled = polled && poll(&mut handle, Waker::noop()).is_ready();
            drop(handle);
            polled
        });
        bench.run_until(|| ended.get() == 1);
        detaching.join().unwrap();
        assert_eq!(dropped.get(), 1, "it does not wait for the last waker");
        drop(waker);
        bench.end();
        assert_eq!(dropped.get(), 1);
    });
}

#[test]
fn a_handle_leaves() {
    detached(false, 6);
}

#[test]
fn a_handle_looks_and_leaves() {
    detached(true, 6);
}
