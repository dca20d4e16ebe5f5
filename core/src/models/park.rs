//! Announcement and notification, over the real inbox: a worker that takes nodes and parks when it
//! finds none. A lost wake is a deadlock, which loom reports.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::task::Waker;

use loom::thread;

use super::{Bell, explore, join_all};
use crate::inbox::{MpscQueue, Take};
use crate::park::{Owed, Park};
use crate::sync::SharedCell;
use crate::task::node::{Entry, Kind, Node};

struct Worker {
    inbox: MpscQueue<Entry>,
    park: Park,
    bell: Arc<Bell>,
    /// What the worker leaves behind.
    testament: SharedCell<usize>,
}

// SAFETY: `testament` is written before the worker closes and read by who finds it closed; loom
// sees to it. The rest is `Sync`.
unsafe impl Send for Worker {}
// SAFETY: as above.
unsafe impl Sync for Worker {}

impl Worker {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inbox: MpscQueue::new(),
            park: Park::new(),
            bell: Bell::new(),
            testament: SharedCell::new(0),
        })
    }

    /// A producer's part.
    fn hand_over(&self) -> Owed {
        let node = NonNull::from(Box::leak(Box::new(Node::new(Kind::Operation))));
        // SAFETY: just made.
        self.inbox.push(unsafe { Entry::new(node) });
        let owed = self.park.handed_over();
        if owed == Owed::Notification {
            Waker::from(Arc::clone(&self.bell)).wake();
        }
        owed
    }

    fn take(&self) -> Take<()> {
        // SAFETY: each model has one thread that takes.
        match unsafe { self.inbox.take() } {
            Take::Item(entry) => {
                // SAFETY: it came out of a box, and is the taker's.
                drop(unsafe { Box::from_raw(entry.node().as_ptr()) });
                Take::Item(())
            }
            Take::Empty => Take::Empty,
            Take::Busy => Take::Busy,
        }
    }

    /// Takes so many nodes, parking meanwhile.
    fn run(&self, mut count: usize, mut announcements: usize) {
        while count > 0 {
            match self.take() {
                Take::Item(()) => count -= 1,
                Take::Busy => thread::yield_now(),
                Take::Empty => {
                    self.park.announce();
                    announcements += 1;
                    if self.inbox.is_drained() {
                        self.bell.wait();
                    }
                    self.park.resume();
                }
            }
        }
        assert!(self.bell.rings() <= announcements, "at most one notification per announcement");
    }
}

fn no_wake_is_lost(pushes: &'static [usize], preemptions: usize) {
    explore(preemptions, move || {
        let worker = Worker::new();
        let spawn = |&turns| {
            let worker = Arc::clone(&worker);
            thread::spawn(move || {
                for _ in 0..turns {
                    worker.hand_over();
                }
            })
        };
        let threads: Vec<_> = pushes.iter().map(spawn).collect();
        worker.run(pushes.iter().sum(), 0);
        join_all(threads);
    });
}

#[test]
fn one_producer_and_a_worker_that_parks() {
    no_wake_is_lost(&[2], 5);
}

#[test]
fn two_producers_and_a_worker_that_parks() {
    no_wake_is_lost(&[1, 1], 3);
}

#[test]
fn deep_two_producers_and_a_worker_that_parks() {
    no_wake_is_lost(&[1, 1], 4);
}

#[test]
fn an_announcement_is_claimed_once() {
    explore(6, || {
        let worker = Worker::new();
        worker.park.announce();
        assert!(worker.inbox.is_drained() && worker.park.is_parked());
        let spawn = |()| {
            let worker = Arc::clone(&worker);
            thread::spawn(move || worker.hand_over())
        };
        let threads = [(), ()].map(spawn);
        let owed = threads.map(|thread| thread.join().unwrap());
        assert_eq!(owed.iter().filter(|&&owed| owed == Owed::Notification).count(), 1);
        assert_eq!(worker.bell.rings(), 1);
        worker.bell.wait();
        worker.park.resume();
        worker.run(2, 1);
    });
}

/// Whoever pushes while the worker closes: one of the two knows of what was pushed, and a producer
/// that finds the worker gone finds what it left.
#[test]
fn closed_or_found() {
    explore(6, || {
        let worker = Worker::new();
        let producer = {
            let worker = Arc::clone(&worker);
            thread::spawn(move || {
                let owed = worker.hand_over();
                if owed == Owed::Clearing {
                    // SAFETY: loom has seen to it that nobody writes meanwhile.
                    assert_eq!(worker.testament.with(|place| unsafe { *place }), 1);
                }
                owed
            })
        };
        // SAFETY: loom has seen to it that nobody else is at it.
        worker.testament.with_mut(|place| unsafe { *place = 1 });
        worker.park.close();
        let found = !worker.inbox.is_drained();
        let owed = producer.join().unwrap();
        assert!(found || owed == Owed::Clearing, "pushed, and nobody knows");
        assert!(worker.park.is_closed());
        assert_ne!(worker.take(), Take::Empty);
    });
}
