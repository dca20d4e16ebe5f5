#![forbid(unsafe_code)]
//! The table of operations that stands alone. The first thread is the owner, the kernel, and who
//! waits for the notifier; the future is polled and dropped on another.

use alloc::sync::Arc;
use core::task::Waker;

use loom::thread;

use super::{Bell, explore, join_all, poll, wait_for};
use crate::operation::{Arrival, Operations, Orphaned};
use crate::reactor::Token;

/// An owner and what it is notified by.
fn operations(capacity: usize) -> (Operations, Arc<Bell>) {
    let bell = Bell::new();
    (Operations::new(capacity, Waker::from(Arc::clone(&bell))), bell)
}

/// Waits as an owner does until there is a cancel.
fn wait_for_cancel(operations: &Operations, bell: &Bell) -> Token {
    loop {
        match operations.next_cancel() {
            Some(token) => return token,
            None => bell.wait(),
        }
    }
}

/// An owner that waits is told of a future that leaves elsewhere.
#[test]
fn a_cancel_ends_the_wait_of_the_owner() {
    explore(4, || {
        let (operations, bell) = operations(1);
        let (token, pending) = operations.start().unwrap();
        let leaving = thread::spawn(move || drop(pending));
        assert_eq!(wait_for_cancel(&operations, &bell), token);
        assert_eq!(operations.complete(token, -125), Arrival::Ended);
        leaving.join().unwrap();
        assert_eq!(operations.next_cancel(), None);
        assert!(bell.rings() <= 1);
        assert!(operations.start().is_ok(), "the slot is vacant");
    });
}

/// Two leave at once: the owner hears of both, though one alone may have told it.
#[test]
fn two_cancels_reach_a_waiting_owner() {
    explore(3, || {
        let (operations, bell) = operations(2);
        let threads = [(); 2].map(|()| {
            let (_, pending) = operations.start().unwrap();
            thread::spawn(move || drop(pending))
        });
        let first = wait_for_cancel(&operations, &bell);
        let second = wait_for_cancel(&operations, &bell);
        assert_ne!(first, second);
        join_all(threads);
        assert_eq!(operations.next_cancel(), None);
    });
}

/// A slot whose future leaves with its result is vacant again when the owner has heard of it.
#[test]
fn a_slot_comes_back_with_its_result_taken() {
    explore(4, || {
        let (operations, bell) = operations(1);
        let (token, mut pending) = operations.start().unwrap();
        let awaiting = thread::spawn(move || assert_eq!(wait_for(&mut pending), Ok(7)));
        assert_eq!(operations.complete(token, 7), Arrival::Ended);
        let (next, pending) = loop {
            match operations.start() {
                Ok(started) => break started,
                Err(_) => assert_eq!(operations.next_cancel(), None, "it has ended"),
            }
            // Not the first time, or else it was taken just now.
            match operations.start() {
                Ok(started) => break started,
                Err(_) => thread::yield_now(),
            }
        };
        assert!(next != token && next.index() == token.index());
        drop(pending);
        awaiting.join().unwrap();
        assert!(bell.rings() <= 1);
    });
}

/// The owner ends while a future looks and leaves; the last of them frees what they share.
#[test]
fn the_owner_and_a_future_end() {
    explore(4, || {
        let (operations, bell) = operations(1);
        let (_, mut pending) = operations.start().unwrap();
        let other = Bell::new();
        let waker = Waker::from(Arc::clone(&other));
        let leaving = thread::spawn(move || {
            if let core::task::Poll::Ready(result) = poll(&mut pending, &waker) {
                assert_eq!(result, Err(Orphaned));
            }
            drop(pending);
        });
        drop(operations);
        leaving.join().unwrap();
        assert_eq!(Arc::strong_count(&other), 1, "each waker is dropped");
        assert_eq!(Arc::strong_count(&bell), 1, "what they shared is freed");
    });
}
