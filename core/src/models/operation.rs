//! Operations: the real table in a worker's real shared half. The first thread is the owner and
//! the kernel; the future is polled and dropped on another.

use alloc::sync::Arc;
use core::task::{Poll, Waker};

use loom::thread;

use super::{Bell, Bench, explore, poll, wait_for};
use crate::operation::Orphaned;
use crate::reactor::{Completion, Token};
use crate::service::context::Ticking;
use crate::service::in_flight::InFlight;

/// An operation, and its future.
fn submit(bench: &Bench) -> (Token, InFlight) {
    // SAFETY: by the owner; just allocated.
    unsafe {
        let token = bench.home.operations().allocate().expect("there is room for one");
        (token, InFlight::new(bench.remote(), token))
    }
}

/// The kernel reports the end. Whether there was such an operation.
fn complete(bench: &Bench, token: Token, result: i32) -> bool {
    let _ticking = Ticking::enter(&bench.home);
    bench.home.complete(Completion { token, result })
}

fn is_vacant(bench: &Bench) -> bool {
    let operations = bench.home.operations();
    // SAFETY: by the owner; the token goes nowhere.
    unsafe { operations.allocate().map(|token| operations.give_back(token)).is_some() }
}

/// The worker goes on until the one slot is vacant again.
fn run_until_vacant(bench: &Bench) {
    bench.run_until(|| is_vacant(bench));
    // SAFETY: by the owner; the worker does nothing more.
    unsafe {
        let operations = bench.home.operations();
        let token = operations.allocate().expect("the slot is vacant");
        assert!(operations.allocate().is_none(), "the slot was vacated twice");
        operations.give_back(token);
    }
}

/// The result reaches a future that waits elsewhere, having changed its waker once.
#[test]
fn a_result_is_awaited_elsewhere() {
    explore(5, || {
        let bench = Bench::new(1);
        let (token, mut future) = submit(&bench);
        let awaiting = thread::spawn(move || {
            let other = Bell::new();
            let result = match poll(&mut future, &Waker::from(Arc::clone(&other))) {
                Poll::Ready(result) => result,
                Poll::Pending => wait_for(&mut future),
            };
            assert_eq!(result, Ok(7));
            other
        });
        assert!(complete(&bench, token, 7));
        assert!(!complete(&bench, token, 8), "an operation ends once");
        run_until_vacant(&bench);
        let other = awaiting.join().unwrap();
        bench.end();
        assert_eq!(Arc::strong_count(&other), 1, "each waker is dropped");
    });
}

/// The future looks once, or not at all, and goes away.
fn left(polled: bool, preemptions: usize) {
    explore(preemptions, move || {
        let bench = Bench::new(1);
        let (token, mut future) = submit(&bench);
        let bell = Bell::new();
        let waker = Waker::from(Arc::clone(&bell));
        let leaving = thread::spawn(move || {
            if polled && let Poll::Ready(result) = poll(&mut future, &waker) {
                assert_eq!(result, Ok(7));
            }
            drop(future);
        });
        // The kernel was faster than any cancel.
        assert!(complete(&bench, token, 7));
        run_until_vacant(&bench);
        leaving.join().unwrap();
        bench.end();
        assert_eq!(Arc::strong_count(&bell), 1, "each waker is dropped");
    });
}

#[test]
fn a_future_leaves() {
    left(false, 6);
}

#[test]
fn a_future_looks_and_leaves() {
    left(true, 5);
}

/// As above, but the kernel waits for the cancel.
#[test]
fn a_cancel_is_routed() {
    explore(6, || {
        let bench = Bench::new(1);
        let (token, mut future) = submit(&bench);
        let bell = Bell::new();
        let waker = Waker::from(Arc::clone(&bell));
        let leaving = thread::spawn(move || {
            assert!(poll(&mut future, &waker).is_pending());
            drop(future);
        });
        run_until_vacant(&bench);
        assert!(!complete(&bench, token, 7), "it has ended, cancelled");
        leaving.join().unwrap();
        bench.end();
        assert_eq!((bell.rings(), Arc::strong_count(&bell)), (0, 1));
    });
}

/// A slot's next tenant, on another thread than the one before.
fn reused(preemptions: usize) {
    explore(preemptions, || {
        let bench = Bench::new(1);
        let (first, mut future) = submit(&bench);
        let leaving = thread::spawn(move || {
            let _ = poll(&mut future, Waker::noop());
            drop(future);
        });
        complete(&bench, first, 1);
        run_until_vacant(&bench);
        let (second, mut future) = submit(&bench);
        assert!(second.index() == first.index() && second != first);
        let awaiting = thread::spawn(move || assert_eq!(wait_for(&mut future), Ok(2)));
        assert!(!complete(&bench, first, 3), "a late completion is not the next tenant's");
        assert!(complete(&bench, second, 2));
        run_until_vacant(&bench);
        leaving.join().unwrap();
        awaiting.join().unwrap();
        bench.end();
    });
}

#[test]
fn a_slot_is_used_again() {
    reused(3);
}

#[test]
fn deep_a_slot_is_used_again() {
    reused(4);
}

/// The future looks elsewhere, comes back, and leaves on its owner's own thread.
#[test]
fn a_future_comes_home() {
    explore(6, || {
        let bench = Bench::new(1);
        let (token, mut future) = submit(&bench);
        let bell = Bell::new();
        let waker = Waker::from(Arc::clone(&bell));
        let looking = thread::spawn(move || {
            let _ = poll(&mut future, &waker);
            future
        });
        complete(&bench, token, 7);
        let future = looking.join().unwrap();
        {
            let _ticking = Ticking::enter(&bench.home);
            drop(future);
        }
        run_until_vacant(&bench);
        bench.end();
        assert_eq!(Arc::strong_count(&bell), 1, "each waker is dropped");
    });
}

/// The worker ends before the operation does.
#[test]
fn an_orphan_is_told_elsewhere() {
    explore(5, || {
        let bench = Bench::new(1);
        let (_, mut future) = submit(&bench);
        let awaiting = thread::spawn(move || assert_eq!(wait_for(&mut future), Err(Orphaned)));
        bench.close();
        awaiting.join().unwrap();
        bench.end();
    });
}
