//! The inbox alone: producers that push nodes, and one consumer that frees what it takes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;

use loom::thread;

use super::{explore, join_all};
use crate::inbox::Take;
use crate::sync::{self, SharedCell};
use crate::task::node::{Entry, Kind, Node};
use crate::task::state::{Snapshot, State};

/// The worker's own.
type Inbox = crate::inbox::MpscQueue<Entry>;

/// What stands in the inbox.
#[repr(C)]
struct Item {
    node: Node,
    /// As a task's, for the item that is pushed more than once.
    state: State,
    payload: SharedCell<usize>,
}

impl Item {
    fn make(payload: usize) -> NonNull<Node> {
        let item = Item {
            node: Node::new(Kind::Operation),
            state: State::spawned_here(),
            payload: SharedCell::new(0),
        };
        let item = Box::leak(Box::new(item));
        // SAFETY: just made.
        item.payload.with_mut(|place| unsafe { *place = payload });
        NonNull::from(item).cast()
    }

    /// # Safety
    /// `node` is the first field of an item that is alive.
    unsafe fn of<'a>(node: NonNull<Node>) -> &'a Self {
        // SAFETY: passed on to the caller.
        unsafe { node.cast().as_ref() }
    }

    fn payload(&self) -> usize {
        // SAFETY: loom has seen to it that nobody writes meanwhile.
        self.payload.with(|place| unsafe { *place })
    }
}

fn push(inbox: &Inbox, payload: usize) {
    // SAFETY: just made; the taker frees it.
    inbox.push(unsafe { Entry::new(Item::make(payload)) });
}

/// Takes a node's payload and frees it: who touches it afterwards is found out.
fn open(node: NonNull<Node>) -> usize {
    // SAFETY: just taken, and thus the taker's.
    let item = unsafe { Box::from_raw(node.cast::<Item>().as_ptr()) };
    let payload = item.payload();
    item.node.life().end();
    sync::free(item);
    payload
}

/// The one consumer.
fn take(inbox: &Inbox) -> Take<NonNull<Node>> {
    // SAFETY: each model has one thread that takes.
    match unsafe { inbox.take() } {
        Take::Item(entry) => Take::Item(entry.node()),
        Take::Empty => Take::Empty,
        Take::Busy => Take::Busy,
    }
}

/// Takes so many payloads, each pushed sooner or later.
fn take_all(inbox: &Inbox, count: usize) -> Vec<usize> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match take(inbox) {
            Take::Item(node) => taken.push(open(node)),
            Take::Empty | Take::Busy => thread::yield_now(),
        }
    }
    assert_eq!(take(inbox), Take::Empty);
    // SAFETY: as in `take`.
    assert!(inbox.is_drained() && !unsafe { inbox.has_visible() });
    taken
}

/// Producers that push `pushes[n]` nodes each: the payload is ten times the producer plus the turn.
fn producers(inbox: &Arc<Inbox>, pushes: &[usize]) -> Vec<thread::JoinHandle<()>> {
    let spawn = |(producer, &turns)| {
        let inbox = Arc::clone(inbox);
        thread::spawn(move || (0..turns).for_each(|turn| push(&inbox, 10 * producer + turn)))
    };
    pushes.iter().enumerate().map(spawn).collect()
}

/// Everything arrives once, in the order of each producer.
fn all_arrive(pushes: &'static [usize], preemptions: usize) {
    explore(preemptions, move || {
        let inbox = Arc::new(Inbox::new());
        let threads = producers(&inbox, pushes);
        let taken = take_all(&inbox, pushes.iter().sum());
        for (producer, &turns) in pushes.iter().enumerate() {
            let of_producer = taken.iter().filter(|&&payload| payload / 10 == producer);
            assert!(of_producer.copied().eq((0..turns).map(|turn| 10 * producer + turn)));
        }
        join_all(threads);
    });
}

#[test]
fn one_producer_empties_and_refills() {
    all_arrive(&[3], 6);
}

#[test]
fn two_producers() {
    all_arrive(&[2, 1], 4);
}

#[test]
fn three_producers() {
    all_arrive(&[1, 1, 1], 2);
}

#[test]
fn deep_two_producers() {
    all_arrive(&[2, 2], 3);
}

#[test]
fn deep_three_producers() {
    all_arrive(&[1, 1, 1], 3);
}

/// What has been pushed for certain is never denied, whatever another producer is in the midst of.
fn never_empty(preemptions: usize) {
    explore(preemptions, || {
        let inbox = Arc::new(Inbox::new());
        let mut threads = producers(&inbox, &[1, 1]);
        threads.remove(0).join().unwrap();
        let mut others = 0;
        loop {
            assert!(!inbox.is_drained());
            match take(&inbox) {
                Take::Item(node) if open(node) == 0 => break,
                Take::Item(_) => others += 1,
                Take::Busy => thread::yield_now(),
                Take::Empty => panic!("a push is complete, and its node not taken"),
            }
        }
        threads.remove(0).join().unwrap();
        assert_eq!(take_all(&inbox, 1 - others).len(), 1 - others);
    });
}

#[test]
fn busy_is_not_empty() {
    never_empty(6);
}

/// A node goes back into the inbox as soon as it was taken: pushed by whoever finds its mark
/// cleared. Each push has written the payload before. Each thread pushes another node first, so that
/// the one may stand before or behind others, or alone.
fn pushed_again(threads: usize, mark: fn(&State) -> Snapshot, preemptions: usize) {
    explore(preemptions, move || {
        let inbox = Arc::new(Inbox::new());
        let node = Item::make(0);
        // SAFETY: freed at the end of the model.
        let item = unsafe { Item::of(node) };
        let wake = move |inbox: &Inbox| {
            let owes_push = mark(&item.state).owes_push();
            if owes_push {
                // SAFETY: the mark is this thread's, so the node stands nowhere.
                unsafe {
                    item.payload.with_mut(|place| *place += 1);
                    inbox.push(Entry::new(node));
                }
            }
            usize::from(owes_push)
        };
        let mut pushed = wake(&inbox);
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    push(&inbox, 0);
                    wake(&inbox)
                })
            })
            .collect();
        let (mut taken, mut others) = (0, 0);
        let look = |taken: &mut usize, others: &mut usize| match take(&inbox) {
            Take::Item(found) if found == node => {
                *taken += 1;
                assert_eq!(item.payload(), *taken);
                item.state.take();
            }
            Take::Item(other) => *others += 1 + open(other),
            Take::Busy | Take::Empty => thread::yield_now(),
        };
        while taken + others < 1 + threads {
            look(&mut taken, &mut others);
        }
        for handle in handles {
            pushed += handle.join().unwrap();
        }
        while taken < pushed || others < threads {
            look(&mut taken, &mut others);
        }
        assert_eq!(take(&inbox), Take::Empty);
        open(node);
    });
}

#[test]
fn a_node_is_pushed_again_right_after_its_take() {
    pushed_again(1, State::schedule, 6);
}

#[test]
fn a_node_is_pushed_again_by_an_abort() {
    pushed_again(1, State::abort, 6);
}

#[test]
fn two_push_a_node_again() {
    pushed_again(2, State::schedule, 3);
}

#[test]
fn deep_two_push_a_node_again() {
    pushed_again(2, State::schedule, 4);
}

/// The right to take goes from one thread to the other: each finds what the one before it left.
#[test]
fn one_consumer_after_the_other() {
    explore(4, || {
        let inbox = Arc::new(Inbox::new());
        (0..3).for_each(|payload| push(&inbox, payload));
        let take_one = |inbox: &Inbox| {
            let mut consumer = loop {
                match inbox.consumer() {
                    Some(consumer) => break consumer,
                    None => thread::yield_now(),
                }
            };
            let Take::Item(entry) = consumer.take() else { panic!("all is there") };
            open(entry.node())
        };
        let other = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || take_one(&inbox))
        };
        let mut taken = [take_one(&inbox), other.join().unwrap(), take_one(&inbox)];
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
    });
}
