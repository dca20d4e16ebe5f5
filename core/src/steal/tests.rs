#[cfg(not(feature = "std"))]
extern crate std; // that of the test harness

use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::vec::Vec;

use super::{Haul, Owner, StealQueue, Stolen};
use crate::link::{Link, Linked};

/// Just below 2^32, where tickets start over, and where numbers do.
const BELOW_A_WRAP: [usize; 2] = [u32::MAX as usize - 5, usize::MAX - 5];

#[repr(C)]
struct Item {
    link: Link,
    payload: usize,
    dropped: Option<Arc<AtomicUsize>>,
}

struct Handle(Box<Item>);

impl Handle {
    fn new(payload: usize) -> Self {
        Self(Box::new(Item { link: Link::new(), payload, dropped: None }))
    }

    fn counted(dropped: &Arc<AtomicUsize>) -> Self {
        let dropped = Some(Arc::clone(dropped));
        Self(Box::new(Item { link: Link::new(), payload: 0, dropped }))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(dropped) = &self.0.dropped {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: a box is the only handle on what it holds, which stays where it is.
unsafe impl Linked for Handle {
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(&*core::mem::ManuallyDrop::new(self).0).cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: made by `into_link`, and given back once.
        Self(unsafe { Box::from_raw(link.cast().as_ptr()) })
    }
}

type Queue<const CAPACITY: usize> = StealQueue<Handle, CAPACITY>;

fn push<const CAPACITY: usize>(
    owner: &Owner<'_, Handle, CAPACITY>,
    payloads: impl Iterator<Item = usize>,
) {
    payloads.for_each(|payload| owner.push(Handle::new(payload)));
}

fn pop<const CAPACITY: usize>(owner: &Owner<'_, Handle, CAPACITY>) -> Option<usize> {
    owner.pop().map(|item| item.0.payload)
}

fn drain<const CAPACITY: usize>(owner: &Owner<'_, Handle, CAPACITY>) -> Vec<usize> {
    core::iter::from_fn(|| pop(owner)).collect()
}

fn steal<const CAPACITY: usize>(queue: &Queue<CAPACITY>) -> Option<usize> {
    match queue.steal() {
        Stolen::Item(item) => Some(item.0.payload),
        Stolen::Empty => None,
        Stolen::Contended => panic!("nobody else is here"),
    }
}

fn steal_all<const CAPACITY: usize>(queue: &Queue<CAPACITY>) -> Vec<usize> {
    core::iter::from_fn(|| steal(queue)).collect()
}

fn moved(haul: Haul) -> usize {
    match haul {
        Haul::Moved(count) => count.get(),
        Haul::Empty => 0,
        Haul::Contended => panic!("nobody else is here"),
    }
}

fn range(range: core::ops::Range<usize>) -> Vec<usize> {
    range.collect()
}

#[test]
fn it_is_fifo_for_its_owner() {
    let queue = Queue::<8>::new();
    let owner = queue.claim().unwrap();
    assert!(owner.is_empty());
    push(&owner, 0..5);
    assert_eq!((pop(&owner), pop(&owner)), (Some(0), Some(1)));
    push(&owner, 5..8);
    assert!(!owner.is_empty());
    assert_eq!(drain(&owner), range(2..8));
    assert!(owner.is_empty());
    assert_eq!(pop(&owner), None);
}

#[test]
fn it_may_be_a_static() {
    static QUEUE: Queue<4> = Queue::new();
    let owner = QUEUE.claim().unwrap();
    push(&owner, 0..2);
    assert_eq!(thread::spawn(|| steal(&QUEUE)).join().unwrap(), Some(0));
    assert_eq!(drain(&owner), [1]);
}

#[test]
fn ten_thousand_pass_through_a_ring_of_four_in_order() {
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..10_000);
    for payload in 0..5_000 {
        assert_eq!(owner.oldest(), u32::try_from(payload).ok());
        assert_eq!(pop(&owner), Some(payload));
        // Behind all that waits.
        owner.push(Handle::new(10_000 + payload));
    }
    assert_eq!(owner.pushed(), 15_000);
    assert_eq!(drain(&owner), range(5_000..15_000));
    assert_eq!((owner.oldest(), owner.is_empty()), (None, true));
}

#[test]
fn a_ring_of_one_will_do() {
    let queue = Queue::<1>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..10);
    assert_eq!(steal(&queue), Some(0));
    assert_eq!(steal(&queue), None);
    assert_eq!(drain(&owner), range(1..10));
}

#[test]
fn tickets_count_pushes_across_every_wrap() {
    for first in BELOW_A_WRAP {
        let queue = Queue::<4>::starting_at(first);
        let owner = queue.claim().unwrap();
        let ticket = |nth: usize| u32::try_from(first.wrapping_add(nth) & 0xFFFF_FFFF).ok();
        for nth in 0..20 {
            assert_eq!(Some(owner.pushed()), ticket(nth));
            owner.push(Handle::new(nth));
            assert_eq!(owner.oldest(), ticket(0));
        }
        for nth in 0..20 {
            assert_eq!(owner.oldest(), ticket(nth));
            assert_eq!(pop(&owner), Some(nth));
        }
        assert_eq!(owner.oldest(), None);
    }
}

#[test]
fn what_is_stolen_across_every_wrap_is_in_order() {
    for first in BELOW_A_WRAP {
        let queue = Queue::<4>::starting_at(first);
        let owner = queue.claim().unwrap();
        let hoard = Queue::<4>::starting_at(first.wrapping_add(1));
        let thief = hoard.claim().unwrap();
        let mut pushed = 0;
        let mut taken = Vec::new();
        for _ in 0..10 {
            push(&owner, pushed..pushed + 3);
            pushed += 3;
            taken.extend(steal(&queue));
            assert_eq!(moved(thief.steal_from(&queue)), 1);
            taken.extend(drain(&thief));
            taken.extend(pop(&owner));
        }
        assert_eq!(taken, range(0..pushed));
    }
}

#[test]
fn the_oldest_after_a_theft_is_the_next() {
    let queue = Queue::<8>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..3);
    assert_eq!(steal(&queue), Some(0));
    assert_eq!(owner.oldest(), Some(1));
    assert_eq!(steal(&queue), Some(1));
    assert_eq!(steal(&queue), Some(2));
    assert_eq!((owner.oldest(), owner.is_empty()), (None, true));
    assert_eq!(owner.pushed(), 3);
}

#[test]
fn what_is_younger_than_the_ticket_stays() {
    for first in BELOW_A_WRAP {
        let queue = Queue::<4>::starting_at(first);
        let owner = queue.claim().unwrap();
        push(&owner, 0..6);
        let ticket = owner.pushed();
        push(&owner, 6..12);
        let before: Vec<_> =
            core::iter::from_fn(|| owner.pop_before(ticket)).map(|item| item.0.payload).collect();
        assert_eq!(before, range(0..6));
        assert_eq!(drain(&owner), range(6..12));
        assert!(owner.pop_before(owner.pushed()).is_none());
    }
}

#[test]
fn the_overflow_is_not_stolen_before_it_flows_back() {
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..7);
    assert_eq!(steal_all(&queue), range(0..4));
    assert!(!queue.has_stealable() && !owner.is_empty());
    assert_eq!(owner.oldest(), Some(4));
    assert_eq!(pop(&owner), Some(4));
    assert_eq!(steal_all(&queue), range(5..7));
    assert!(owner.is_empty());
}

#[test]
fn the_overflow_flows_back_at_a_push_too() {
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..7);
    assert_eq!(steal_all(&queue), range(0..4));
    push(&owner, 7..8);
    assert_eq!(steal_all(&queue), range(4..8));
}

#[test]
fn no_step_brings_more_than_sixteen_back() {
    let queue = Queue::<256>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..1000);
    assert_eq!(steal_all(&queue).len(), 256);
    assert_eq!(pop(&owner), Some(256));
    assert_eq!(steal_all(&queue), range(257..272));
    push(&owner, 1000..1001);
    assert_eq!(steal_all(&queue), range(272..288));
    assert_eq!(drain(&owner), range(288..1001));
}

#[test]
fn the_owner_reserves_half_and_at_most_eight() {
    for (waiting, reserved) in [(1, 1), (2, 1), (3, 1), (4, 2), (10, 5), (16, 8), (200, 8)] {
        let queue = Queue::<256>::new();
        let owner = queue.claim().unwrap();
        push(&owner, 0..waiting);
        assert_eq!(pop(&owner), Some(0));
        assert_eq!(steal_all(&queue), range(reserved..waiting));
        assert_eq!(drain(&owner), range(1..reserved));
    }
}

#[test]
fn the_owner_reserves_one_while_thieves_are_about() {
    let queue = Queue::<256>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..200);
    assert_eq!(steal(&queue), Some(0));
    assert_eq!(pop(&owner), Some(1));
    assert_eq!(steal(&queue), Some(2));
    assert_eq!(pop(&owner), Some(3));
    assert_eq!(steal_all(&queue), range(4..200));
}

#[test]
fn half_is_stolen_rounded_up() {
    for (waiting, half) in [(1, 1), (2, 1), (3, 2), (10, 5), (63, 32), (64, 32), (200, 32)] {
        let (queue, hoard) = (Queue::<256>::new(), Queue::<256>::new());
        let (owner, thief) = (queue.claim().unwrap(), hoard.claim().unwrap());
        push(&owner, 0..waiting);
        assert_eq!(moved(queue.steal_half_into(&thief)), half);
        assert_eq!(drain(&thief), range(0..half));
        assert_eq!(drain(&owner), range(half..waiting));
    }
}

#[test]
fn a_thief_takes_what_it_has_room_for_and_one_at_least() {
    let (queue, hoard) = (Queue::<8>::new(), Queue::<8>::new());
    let (owner, thief) = (queue.claim().unwrap(), hoard.claim().unwrap());
    push(&owner, 0..8);
    push(&thief, 100..107);
    assert_eq!(moved(thief.steal_from(&queue)), 1);
    assert_eq!(moved(thief.steal_from(&queue)), 1);
    assert_eq!(moved(thief.steal_from(&queue)), 1);
    assert_eq!(drain(&thief), [range(100..107), range(0..3)].concat());
    assert_eq!(moved(thief.steal_from(&queue)), 3);
    assert_eq!(drain(&thief), range(3..6));
    assert_eq!(drain(&owner), range(6..8));
}

#[test]
fn a_queue_has_nothing_to_steal_from_itself() {
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..3);
    assert_eq!(owner.steal_from(&queue), Haul::Empty);
    assert_eq!(drain(&owner), range(0..3));
}

#[test]
fn from_an_empty_queue_nothing_is_stolen() {
    let (queue, hoard) = (Queue::<4>::new(), Queue::<4>::new());
    let thief = hoard.claim().unwrap();
    assert!(!queue.has_stealable());
    assert!(matches!(queue.steal(), Stolen::Empty));
    assert_eq!(thief.steal_from(&queue), Haul::Empty);
}

#[test]
fn there_is_one_owner_at_a_time() {
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    push(&owner, 0..6);
    assert_eq!(pop(&owner), Some(0));
    assert!(queue.claim().is_none());
    drop(owner);
    let owner = queue.claim().unwrap();
    let rest = thread::scope(|scope| scope.spawn(move || drain(&owner)).join().unwrap());
    assert_eq!(rest, range(1..6));
    assert!(queue.claim().is_some());
}

#[test]
fn what_is_left_is_dropped_with_the_queue() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let queue = Queue::<4>::new();
    let owner = queue.claim().unwrap();
    (0..10).for_each(|_| owner.push(Handle::counted(&dropped)));
    drop(owner.pop());
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
    drop(owner);
    drop(queue);
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
}

/// Every item is taken once, with thieves on other threads, through rings that overflow.
fn taken_once<const CAPACITY: usize>(first: usize) {
    const ITEMS: usize = 20_000;
    let queue = Queue::<CAPACITY>::starting_at(first);
    let times: Vec<AtomicUsize> = (0..ITEMS).map(|_| AtomicUsize::new(0)).collect();
    let left = AtomicUsize::new(ITEMS);
    let take = |payload: usize| {
        times[payload].fetch_add(1, Ordering::Relaxed);
        left.fetch_sub(1, Ordering::Relaxed);
    };
    let is_over = || left.load(Ordering::Relaxed) == 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = None;
            while !is_over() {
                match queue.steal() {
                    Stolen::Item(item) => {
                        assert!(last < Some(item.0.payload));
                        last = Some(item.0.payload);
                        take(item.0.payload);
                    }
                    Stolen::Empty | Stolen::Contended => thread::yield_now(),
                }
            }
        });
        scope.spawn(|| {
            let hoard = Queue::<CAPACITY>::starting_at(first);
            let thief = hoard.claim().unwrap();
            let mut last = None;
            while !is_over() {
                match thief.steal_from(&queue) {
                    Haul::Moved(_) => drain(&thief).into_iter().for_each(|payload| {
                        assert!(last < Some(payload));
                        last = Some(payload);
                        take(payload);
                    }),
                    Haul::Empty | Haul::Contended => thread::yield_now(),
                }
            }
        });
        let owner = queue.claim().unwrap();
        let mut last = None;
        let mut payloads = 0..ITEMS;
        for round in 0.. {
            push(&owner, payloads.by_ref().take(round % (2 * CAPACITY)));
            for _ in 0..round % (CAPACITY + 1) {
                let Some(payload) = pop(&owner) else { break };
                assert!(last < Some(payload));
                last = Some(payload);
                take(payload);
            }
            if is_over() {
                break;
            }
        }
    });
    assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
}

#[test]
fn threads_take_each_item_once() {
    for first in BELOW_A_WRAP {
        taken_once::<2>(first.wrapping_sub(5_000));
        taken_once::<16>(first.wrapping_sub(5_000));
        taken_once::<256>(first.wrapping_sub(5_000));
    }
}
