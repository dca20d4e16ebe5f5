#![forbid(unsafe_code)]
//! Hand-over to a worker: that parks, that is asked to stop, that ends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::task::Waker;

use loom::thread;

use super::{Bell, Bench, Dropped, Sealed, Tally, explore, join_all, spawn_into, wait_for};
use crate::reactor::{
    Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait as WaitFor,
};
use crate::time::{Clock, Instant};
use crate::worker::{Worker, WorkerConfig};

/// Every task that is submitted runs, on the worker, with what came before its submission.
fn submitted(from: usize, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(0);
        let ran = Tally::default();
        let spawn = |_| {
            let (home, ran) = (bench.remote(), ran.clone());
            thread::spawn(move || {
                let sealed = Sealed::new(7);
                drop(spawn_into(&home, async move {
                    assert_eq!(sealed.open(), 7);
                    ran.add();
                }));
            })
        };
        let threads: Vec<_> = (0..from).map(spawn).collect();
        bench.run_until(|| ran.get() == from);
        join_all(threads);
        bench.end();
        assert_eq!(ran.get(), from);
    });
}

#[test]
fn one_submits() {
    submitted(1, 6);
}

#[test]
fn two_submit() {
    submitted(2, 2);
}

#[test]
fn deep_two_submit() {
    submitted(2, 3);
}

/// What is submitted while the worker ends: each future is dropped once, by whichever thread, and
/// nothing is left in the inbox.
fn submitted_at_the_end(from: usize, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(0);
        let dropped = Tally::default();
        let spawn = |_| {
            let (home, future) = (bench.remote(), Dropped(dropped.clone()));
            thread::spawn(move || drop(spawn_into(&home, async move { drop(future) })))
        };
        let threads: Vec<_> = (0..from).map(spawn).collect();
        bench.close();
        join_all(threads);
        assert!(bench.home.is_drained());
        assert_eq!(dropped.get(), from);
        bench.end();
    });
}

#[test]
fn one_submits_at_the_end() {
    submitted_at_the_end(1, 6);
}

#[test]
fn two_submit_at_the_end() {
    submitted_at_the_end(2, 3);
}

#[test]
fn deep_two_submit_at_the_end() {
    submitted_at_the_end(2, 5);
}

/// Submissions from both sides of a worker that has ended.
#[test]
fn both_sides_submit_after_the_end() {
    explore(6, || {
        let bench = Bench::new(0);
        let dropped = Tally::default();
        let (home, future) = (bench.remote(), Dropped(dropped.clone()));
        bench.close();
        let thread = thread::spawn(move || drop(spawn_into(&home, async move { drop(future) })));
        let future = Dropped(dropped.clone());
        drop(bench.spawn(async move { drop(future) }));
        thread.join().unwrap();
        assert_eq!(dropped.get(), 2);
        bench.end();
    });
}

/// A reactor with nothing in it but a notifier.
pub(super) struct Nothing(Arc<Bell>);

impl Reactor for Nothing {
    type Operation = Infallible;
    type Error = Infallible;

    fn name(&self) -> &'static str {
        "nothing"
    }

    fn readiness(&mut self) -> Readiness {
        Readiness::Quiet
    }

    fn submit(
        &mut self,
        _: Token,
        operation: Infallible,
    ) -> Result<Submitted, Refused<Infallible, Infallible>> {
        match operation {}
    }

    fn cancel(&mut self, _: Token) {}

    fn poll(&mut self, wait: WaitFor, _: &mut Completions) -> Result<Polled, Infallible> {
        if wait != WaitFor::Never {
            self.0.wait();
        }
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }
}

pub(super) struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
}

pub(super) fn worker() -> Worker<Nothing, Stopped> {
    Worker::new(Nothing(Bell::new()), Stopped, WorkerConfig::default().operations(0))
}

/// The real worker: it runs what is submitted, and drops what is submitted when it has been asked
/// to stop.
fn a_worker_runs_and_stops(preemptions: usize) {
    explore(preemptions, || {
        let mut worker = worker();
        let remote = worker.remote();
        let outside = thread::spawn(move || {
            let mut handle = remote.spawn(async { Sealed::new(7) });
            assert_eq!(wait_for(&mut handle).unwrap().open(), 7);
            remote.stop();
            let late = Tally::default();
            let future = Dropped(late.clone());
            drop(remote.spawn(async move { drop(future) }));
            (remote, late)
        });
        let Ok(()) = worker.run();
        drop(worker);
        let (remote, late) = outside.join().unwrap();
        let stats = remote.stats();
        assert!(stats.notifications <= stats.parks + stats.retractions);
        assert_eq!(late.get(), 1);
    });
}

#[test]
fn a_worker_is_stopped() {
    explore(6, || {
        let mut worker = worker();
        let remote = worker.remote();
        let outside = thread::spawn(move || remote.stop());
        let Ok(()) = worker.run();
        outside.join().unwrap();
    });
}

#[test]
fn a_worker_runs_what_is_submitted_and_is_stopped() {
    a_worker_runs_and_stops(3);
}

#[test]
fn deep_a_worker_runs_what_is_submitted_and_is_stopped() {
    a_worker_runs_and_stops(4);
}
