//! The table of operations by itself: no worker, no reactor.
#![cfg(feature = "std")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use evenkeel::operation::{Arrival, OperationStorage, Operations, Pending};
use evenkeel::{Orphaned, Token};

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn new() -> (Arc<Self>, Waker) {
        let bell = Arc::<Self>::default();
        (Arc::clone(&bell), Waker::from(bell))
    }

    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn unheard(capacity: usize) -> Operations {
    Operations::new(capacity, Waker::noop().clone())
}

fn poll(pending: &mut Pending, waker: &Waker) -> Poll<Result<i32, Orphaned>> {
    Pin::new(pending).poll(&mut Context::from_waker(waker))
}

fn elsewhere<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(run).join().unwrap()
}

#[test]
fn a_result_reaches_its_future_and_nobody_else() {
    let operations = unheard(2);
    let (first, mut one) = operations.start().unwrap();
    let (_, mut two) = operations.start().unwrap();
    assert_eq!(operations.complete(first, -7), Arrival::Ended);
    assert_eq!(poll(&mut one, Waker::noop()), Poll::Ready(Ok(-7)));
    assert!(poll(&mut two, Waker::noop()).is_pending());
    assert_eq!((one.token(), two.token().is_some()), (None, true));
}

#[test]
fn a_late_completion_is_stale_and_does_not_reach_the_next_tenant() {
    let operations = unheard(1);
    let (first, one) = operations.start().unwrap();
    assert_eq!(operations.complete(first, 1), Arrival::Ended);
    assert_eq!(operations.complete(first, 2), Arrival::Stale);
    drop(one);
    let (second, mut two) = operations.start().unwrap();
    assert_eq!(operations.complete(first, 3), Arrival::Stale);
    assert!(poll(&mut two, Waker::noop()).is_pending());
    assert_eq!(operations.complete(second, 4), Arrival::Ended);
    assert_eq!(poll(&mut two, Waker::noop()), Poll::Ready(Ok(4)));
}

#[test]
fn what_never_was_is_stale() {
    let operations = unheard(1);
    for token in [Token::new(0, 0), Token::new(1, 0), Token::new(u32::MAX, u32::MAX)] {
        assert_eq!(operations.complete(token, 0), Arrival::Stale);
    }
}

#[test]
fn each_tenant_of_a_slot_has_a_generation_of_its_own() {
    let operations = unheard(1);
    for generation in 0..100 {
        let (token, pending) = operations.start().unwrap();
        assert_eq!((token.index(), token.generation()), (0, generation));
        operations.complete(token, 0);
        drop(pending);
    }
}

#[test]
fn a_drop_on_another_thread_routes_exactly_one_cancel() {
    let operations = unheard(2);
    let (token, mut pending) = operations.start().unwrap();
    let (_, _kept) = operations.start().unwrap();
    let (bell, waker) = Bell::new();
    assert!(poll(&mut pending, &waker).is_pending());
    elsewhere(move || drop(pending));
    assert_eq!(operations.next_cancel(), Some(token));
    assert_eq!(operations.next_cancel(), None);
    assert!(operations.start().is_err(), "the slot is held until the completion");
    drop(waker);
    assert_eq!(operations.complete(token, -125), Arrival::Ended);
    assert_eq!((bell.rings(), Arc::strong_count(&bell)), (0, 1));
    assert_eq!(operations.next_cancel(), None);
    assert_eq!(operations.start().unwrap().0.index(), token.index());
}

#[test]
fn what_has_ended_is_not_cancelled() {
    let operations = unheard(1);
    let (token, pending) = operations.start().unwrap();
    operations.complete(token, 0);
    elsewhere(move || drop(pending));
    assert_eq!(operations.next_cancel(), None);
}

#[test]
fn cancels_come_in_the_order_of_the_drops() {
    let operations = unheard(3);
    let (tokens, pending): (Vec<_>, Vec<_>) = (0..3).map(|_| operations.start().unwrap()).unzip();
    pending.into_iter().rev().for_each(drop);
    // What `start` comes across is kept for whoever asks next.
    assert!(operations.start().is_err());
    assert!(operations.start().is_err());
    for token in tokens.into_iter().rev() {
        assert_eq!(operations.next_cancel(), Some(token));
    }
    assert_eq!(operations.next_cancel(), None);
}

#[test]
fn whoever_leaves_a_waiting_owner_wakes_it_once() {
    let (bell, notifier) = Bell::new();
    let operations = Operations::new(4, notifier);
    let started: [_; 4] = std::array::from_fn(|_| operations.start().unwrap());
    let [(_, one), (_, two), (_, three), (token, four)] = started;
    elsewhere(move || drop(one));
    assert_eq!(bell.rings(), 0, "the owner has not said that it waits");
    assert!(operations.next_cancel().is_some());
    assert_eq!(operations.next_cancel(), None);
    elsewhere(move || drop((two, three)));
    assert_eq!(bell.rings(), 1);
    assert!(operations.next_cancel().is_some() && operations.next_cancel().is_some());
    assert_eq!(operations.next_cancel(), None);
    assert_eq!(operations.next_cancel(), None);
    // It runs again.
    operations.complete(token, 0);
    drop(four);
    assert_eq!(bell.rings(), 1);
    assert_eq!(operations.next_cancel(), None);
}

#[test]
fn a_full_table_names_its_capacity() {
    for capacity in [0, 1, 7] {
        let operations = unheard(capacity);
        let kept: Vec<_> = (0..capacity).map(|_| operations.start().unwrap()).collect();
        let full = operations.start().unwrap_err();
        assert_eq!((full.capacity(), operations.capacity()), (capacity, capacity));
        assert!(full.to_string().contains(&format!("all {capacity} operations")), "{full}");
        drop(kept);
    }
}

#[test]
fn the_end_of_the_owner_is_told_to_those_who_wait() {
    let operations = unheard(3);
    let (bell, waker) = Bell::new();
    let (ended, mut one) = operations.start().unwrap();
    let (_, mut two) = operations.start().unwrap();
    let (_, three) = operations.start().unwrap();
    operations.complete(ended, 5);
    assert!(poll(&mut two, &waker).is_pending());
    drop(operations);
    assert_eq!(bell.rings(), 1);
    elsewhere(move || {
        assert_eq!(poll(&mut one, Waker::noop()), Poll::Ready(Ok(5)), "it ended before");
        assert_eq!(poll(&mut two, Waker::noop()), Poll::Ready(Err(Orphaned)));
        drop(three);
    });
}

#[test]
fn nobody_wakes_an_owner_that_is_gone() {
    let (bell, notifier) = Bell::new();
    let operations = Operations::new(1, notifier);
    let (_, pending) = operations.start().unwrap();
    assert_eq!(operations.next_cancel(), None);
    drop(operations);
    elsewhere(move || drop(pending));
    assert_eq!((bell.rings(), Arc::strong_count(&bell)), (0, 1));
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_woken() {
    let operations = unheard(1);
    let (token, mut pending) = operations.start().unwrap();
    let bells = [Bell::new(), Bell::new(), Bell::new()];
    for (_, waker) in &bells {
        assert!(poll(&mut pending, waker).is_pending());
    }
    operations.complete(token, 0);
    assert_eq!(bells.each_ref().map(|(bell, _)| bell.rings()), [0, 0, 1]);
    assert_eq!(poll(&mut pending, Waker::noop()), Poll::Ready(Ok(0)));
    drop(pending);
    for (bell, waker) in bells {
        drop(waker);
        assert_eq!(Arc::strong_count(&bell), 1);
    }
}

#[test]
fn what_the_reactor_refused_is_withdrawn() {
    let operations = unheard(1);
    let (token, mut pending) = operations.start().unwrap();
    let (bell, waker) = Bell::new();
    assert!(poll(&mut pending, &waker).is_pending());
    operations.withdraw(pending);
    drop(waker);
    assert_eq!(Arc::strong_count(&bell), 1, "its waker is dropped");
    assert_eq!(operations.next_cancel(), None);
    assert_eq!(operations.complete(token, 0), Arrival::Stale);
    let (_, pending) = operations.start().unwrap();
    drop(pending);
    assert!(operations.next_cancel().is_some());
}

#[test]
#[should_panic(expected = "withdrawn from the table in which it was started")]
fn an_operation_is_not_withdrawn_from_another_table() {
    let (ours, theirs) = (unheard(1), unheard(1));
    ours.withdraw(theirs.start().unwrap().1);
}

#[test]
#[should_panic(expected = "polled after it had given its result")]
fn a_result_is_given_once() {
    let operations = unheard(1);
    let (token, mut pending) = operations.start().unwrap();
    operations.complete(token, 0);
    let _ = poll(&mut pending, Waker::noop());
    let _ = poll(&mut pending, Waker::noop());
}

#[test]
fn a_storage_serves_once_and_its_futures_are_valid_for_ever() {
    static STORAGE: OperationStorage<2> = OperationStorage::new();
    let operations = Operations::new_in(&STORAGE, Waker::noop().clone()).unwrap();
    let error = Operations::new_in(&STORAGE, Waker::noop().clone()).unwrap_err();
    assert!(error.to_string().contains("serves once"), "{error}");
    let (token, mut one) = operations.start().unwrap();
    let (_, mut two) = operations.start().unwrap();
    assert_eq!(operations.start().unwrap_err().capacity(), 2);
    operations.complete(token, 1);
    drop(operations);
    assert!(Operations::new_in(&STORAGE, Waker::noop().clone()).is_err());
    assert_eq!(poll(&mut one, Waker::noop()), Poll::Ready(Ok(1)));
    assert_eq!(poll(&mut two, Waker::noop()), Poll::Ready(Err(Orphaned)));
}

#[test]
fn a_waker_that_panics_is_not_the_owners_trouble() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let operations = unheard(1);
    let (token, mut pending) = operations.start().unwrap();
    assert!(poll(&mut pending, &Waker::from(Arc::new(Panics))).is_pending());
    assert_eq!(operations.complete(token, 3), Arrival::Ended);
    assert_eq!(poll(&mut pending, Waker::noop()), Poll::Ready(Ok(3)));
}

/// Futures everywhere, an owner that waits for its notifier: nothing is lost, and every slot comes
/// back.
#[test]
fn a_storm_from_several_threads_leaves_every_slot_vacant() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2_000;
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let notifier = Waker::from(Arc::new(Unpark(thread::current())));
    let operations = Operations::new(THREADS, notifier);
    let (to, from): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| std::sync::mpsc::sync_channel::<Pending>(1)).unzip();
    let threads: Vec<_> = from
        .into_iter()
        .map(|from| {
            thread::spawn(move || {
                for mut pending in from {
                    let _ = poll(&mut pending, Waker::noop());
                }
            })
        })
        .collect();
    let mut cancelled = 0;
    let mut settle = |operations: &Operations| {
        let before = cancelled;
        while let Some(token) = operations.next_cancel() {
            cancelled += 1;
            assert_eq!(operations.complete(token, -125), Arrival::Ended);
        }
        cancelled > before
    };
    for round in 0..ROUNDS {
        let (_, pending) = loop {
            match operations.start() {
                Ok(started) => break started,
                Err(_) if settle(&operations) => {}
                Err(_) => thread::park(),
            }
        };
        to[round % THREADS].send(pending).unwrap();
    }
    drop(to);
    for thread in threads {
        thread.join().unwrap();
    }
    settle(&operations);
    assert_eq!(cancelled, ROUNDS);
    let all: Vec<_> = (0..THREADS).map(|_| operations.start().unwrap()).collect();
    assert!(operations.start().is_err());
    drop(all);
}
