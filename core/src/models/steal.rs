//! The stealable queue alone: its owner, which is the model's first thread, and thieves.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::NonNull;

use loom::thread;

use super::explore;
use crate::link::{Link, Linked};
use crate::steal::{Haul, Owner, StealQueue, Stolen};
use crate::sync::{self, SharedCell};

/// What stands in the queue.
#[repr(C)]
struct Item {
    link: Link,
    payload: SharedCell<usize>,
}

/// An item of which this is the only handle.
struct Handle(NonNull<Item>);

// SAFETY: it is the only handle.
unsafe impl Send for Handle {}

// SAFETY: the link comes first, and an item stays where it is until it is opened.
unsafe impl Linked for Handle {
    fn into_link(self) -> NonNull<Link> {
        self.0.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

impl Handle {
    fn new(payload: usize) -> Self {
        let item = Item { link: Link::new(), payload: SharedCell::new(0) };
        let item = Box::leak(Box::new(item));
        // SAFETY: just made.
        item.payload.with_mut(|place| unsafe { *place = payload });
        Self(NonNull::from(item))
    }

    /// The payload. The item is freed: who touches it afterwards is found out.
    fn open(self) -> usize {
        // SAFETY: this is the only handle.
        let item = unsafe { Box::from_raw(self.0.as_ptr()) };
        // SAFETY: loom has seen to it that nobody writes meanwhile.
        let payload = item.payload.with(|place| unsafe { *place });
        item.link.life().end();
        sync::free(item);
        payload
    }
}

type Queue<const CAPACITY: usize> = StealQueue<Handle, CAPACITY>;

/// Tries so many times to steal one.
fn steals<const CAPACITY: usize>(queue: &Queue<CAPACITY>, tries: usize) -> Vec<usize> {
    let steal = |_| match queue.steal() {
        Stolen::Item(item) => Some(item.open()),
        Stolen::Empty | Stolen::Contended => None,
    };
    (0..tries).filter_map(steal).collect()
}

/// Tries so many times to steal half into a queue of its own, and pops what it got.
fn steals_half<const CAPACITY: usize>(queue: &Queue<CAPACITY>, tries: usize) -> Vec<usize> {
    let hoard = Queue::<CAPACITY>::new();
    let owner = hoard.claim().unwrap();
    let mut taken = Vec::new();
    for _ in 0..tries {
        if let Haul::Moved(count) = queue.steal_half_into(&owner) {
            let before = taken.len();
            taken.extend(drain(&owner));
            assert_eq!(taken.len() - before, count.get());
        }
    }
    taken
}

fn drain<const CAPACITY: usize>(
    owner: &Owner<'_, Handle, CAPACITY>,
) -> impl Iterator<Item = usize> {
    core::iter::from_fn(|| owner.pop()).map(Handle::open)
}

/// What the owner does: so many pushes, or pops.
#[derive(Clone, Copy)]
enum Step {
    Push(usize),
    Pop(usize),
}
use Step::{Pop, Push};

type Thief<const CAPACITY: usize> = fn(&Queue<CAPACITY>) -> Vec<usize>;

/// Everything that is pushed is taken once, by each in order. The `n`-th item has the payload `n`,
/// and the ticket `first + n`. What the owner does `before` the thieves are there is not explored.
fn taken_once<const CAPACITY: usize>(
    preemptions: usize,
    first: usize,
    before: &'static [Step],
    meanwhile: &'static [Step],
    thieves: &'static [Thief<CAPACITY>],
) {
    explore(preemptions, move || {
        let queue = Arc::new(Queue::<CAPACITY>::starting_at(first));
        let owner = queue.claim().unwrap();
        let (mut pushed, mut popped) = (0, Vec::new());
        let mut act = |step: &Step| match *step {
            Push(count) => {
                for _ in 0..count {
                    assert_eq!(owner.pushed(), ticket(first, pushed));
                    owner.push(Handle::new(pushed));
                    pushed += 1;
                }
            }
            Pop(count) => {
                for _ in 0..count {
                    popped.extend(pop(&owner, first));
                }
            }
        };
        before.iter().for_each(&mut act);
        let spawn = |&thief: &Thief<CAPACITY>| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || thief(&queue))
        };
        let threads: Vec<_> = thieves.iter().map(spawn).collect();
        meanwhile.iter().for_each(&mut act);
        popped.extend(core::iter::from_fn(|| pop(&owner, first)));
        assert!(owner.is_empty());
        let mut taken = popped;
        assert!(taken.is_sorted());
        for thread in threads {
            let stolen = thread.join().unwrap();
            assert!(stolen.is_sorted());
            taken.extend(stolen);
        }
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..pushed), "lost, or taken twice");
    });
}

fn ticket(first: usize, nth: usize) -> u32 {
    u32::try_from(first.wrapping_add(nth) & 0xFFFF_FFFF).unwrap()
}

/// Pops one, and sees that it is not older than what was said to be the oldest.
fn pop<const CAPACITY: usize>(owner: &Owner<'_, Handle, CAPACITY>, first: usize) -> Option<usize> {
    let oldest = owner.oldest();
    let popped = owner.pop().map(Handle::open);
    if let Some(popped) = popped {
        let oldest = oldest.expect("there was one");
        assert!(ticket(first, popped).wrapping_sub(oldest).cast_signed() >= 0);
    }
    popped
}

#[test]
fn the_last_item_is_taken_once() {
    taken_once::<2>(6, 0, &[Push(1)], &[Pop(1)], &[|queue| steals(queue, 1)]);
}

#[test]
fn two_thieves_want_the_last_item() {
    let thief: Thief<2> = |queue| steals(queue, 1);
    taken_once(4, 0, &[Push(1)], &[Pop(1)], Vec::leak(alloc::vec![thief, thief]));
}

#[test]
fn one_thief() {
    taken_once::<4>(4, 0, &[], &[Push(2), Pop(1), Push(1), Pop(1)], &[|queue| steals(queue, 2)]);
}

fn two_race_the_owner(preemptions: usize) {
    taken_once::<4>(
        preemptions,
        0,
        &[Push(1)],
        &[Push(1), Pop(1), Push(1)],
        &[|queue| steals(queue, 1), |queue| steals(queue, 2)],
    );
}

#[test]
fn two_thieves() {
    two_race_the_owner(2);
}

#[test]
fn deep_two_thieves() {
    two_race_the_owner(3);
}

/// With four waiting the owner reserves two.
#[test]
fn what_is_reserved_is_the_owners() {
    taken_once::<4>(4, 0, &[Push(4)], &[Pop(2), Push(1)], &[|queue| steals(queue, 3)]);
}

#[test]
fn slots_are_used_again() {
    taken_once::<1>(4, 0, &[Push(1)], &[Push(1), Pop(1), Push(1)], &[|queue| steals(queue, 2)]);
}

/// It comes back after eight rounds: numbers of three bits would be the same again.
#[test]
fn a_thief_is_slow() {
    const ROUND: [Step; 2] = [Pop(1), Push(1)];
    taken_once::<1>(
        2,
        0,
        &[Push(1)],
        const { [ROUND; 8].as_flattened() },
        &[|queue| steals(queue, 1)],
    );
}

fn two_race_while_slots_are_used_again(preemptions: usize) {
    taken_once::<2>(
        preemptions,
        0,
        &[Push(2)],
        &[Pop(1), Push(2)],
        &[|queue| steals(queue, 1), |queue| steals(queue, 1)],
    );
}

#[test]
fn two_thieves_while_slots_are_used_again() {
    two_race_while_slots_are_used_again(2);
}

#[test]
fn deep_two_thieves_while_slots_are_used_again() {
    two_race_while_slots_are_used_again(3);
}

#[test]
fn half_is_stolen() {
    taken_once::<4>(4, 0, &[Push(3)], &[Push(1), Pop(1)], &[|queue| steals_half(queue, 1)]);
}

#[test]
fn half_is_stolen_twice() {
    taken_once::<4>(4, 0, &[Push(4)], &[Pop(1), Push(2)], &[|queue| steals_half(queue, 2)]);
}

#[test]
fn two_steal_half() {
    taken_once::<4>(
        3,
        0,
        &[Push(3)],
        &[Pop(1)],
        &[|queue| steals_half(queue, 1), |queue| steals_half(queue, 1)],
    );
}

#[test]
fn numbers_wrap() {
    taken_once::<2>(
        4,
        usize::MAX,
        &[Push(1)],
        &[Push(1), Pop(1), Push(1)],
        &[|queue| steals(queue, 2)],
    );
}

#[test]
fn numbers_wrap_while_half_is_stolen() {
    taken_once::<4>(
        4,
        usize::MAX - 1,
        &[Push(3)],
        &[Pop(1), Push(1)],
        &[|queue| steals_half(queue, 1)],
    );
}

fn flows_back(preemptions: usize) {
    taken_once::<2>(preemptions, 0, &[Push(4)], &[Pop(1), Push(1)], &[|queue| steals(queue, 3)]);
}

#[test]
fn the_overflow_flows_back() {
    flows_back(3);
}

#[test]
fn deep_the_overflow_flows_back() {
    flows_back(4);
}

/// The ring may be empty when the owner comes, and what it reserves still be in the overflow.
#[test]
fn what_is_reserved_flows_back() {
    taken_once::<1>(4, 0, &[Push(3)], &[Pop(2)], &[|queue| steals(queue, 2)]);
}

#[test]
fn the_overflow_flows_back_while_half_is_stolen() {
    taken_once::<2>(4, 0, &[Push(4)], &[Pop(2)], &[|queue| steals_half(queue, 2)]);
}

/// A thief whose own queue overflows gets one at a time.
#[test]
fn a_full_thief_steals() {
    explore(4, || {
        let queue = Arc::new(Queue::<1>::new());
        let owner = queue.claim().unwrap();
        owner.push(Handle::new(0));
        let thief = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let hoard = Queue::<1>::new();
                let thief = hoard.claim().unwrap();
                thief.push(Handle::new(10));
                let _ = thief.steal_from(&queue);
                drain(&thief).collect::<Vec<_>>()
            })
        };
        owner.push(Handle::new(1));
        let mut taken: Vec<_> = drain(&owner).collect();
        taken.extend(thief.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 10]);
    });
}

/// What has a thief in the midst of its steal when it is stolen from again, through two hands.
#[test]
fn what_was_stolen_is_stolen_back() {
    explore(3, || {
        let queue = Arc::new(Queue::<2>::new());
        let hoard = Arc::new(Queue::<2>::new());
        let owner = queue.claim().unwrap();
        owner.push(Handle::new(0));
        owner.push(Handle::new(1));
        let thread = {
            let (queue, hoard) = (Arc::clone(&queue), Arc::clone(&hoard));
            thread::spawn(move || {
                let thief = hoard.claim().unwrap();
                let _ = thief.steal_from(&queue);
                drain(&thief).collect::<Vec<_>>()
            })
        };
        let mut taken: Vec<_> = steals(&hoard, 2);
        taken.extend(drain(&owner));
        taken.extend(thread.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// Nothing younger than the ticket is taken, though a thief takes what was oldest.
#[test]
fn what_is_popped_is_older_than_the_ticket() {
    explore(6, || {
        let queue = Arc::new(Queue::<2>::new());
        let owner = queue.claim().unwrap();
        owner.push(Handle::new(0));
        let ticket = owner.pushed();
        owner.push(Handle::new(1));
        let thief = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || steals(&queue, 2))
        };
        let mut taken: Vec<_> = owner.pop_before(ticket).map(Handle::open).into_iter().collect();
        assert!(taken.iter().all(|&taken| taken == 0));
        taken.extend(drain(&owner));
        taken.extend(thief.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// One owner at a time, and each sees what the one before did.
#[test]
fn owners_take_turns() {
    explore(6, || {
        let queue = Arc::new(Queue::<2>::new());
        let act = |queue: &Queue<2>, payload| {
            let owner = queue.claim()?;
            owner.push(Handle::new(payload));
            assert!(owner.pop().is_some_and(|item| item.open() == payload));
            Some(())
        };
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || act(&queue, 1))
        };
        let here = act(&queue, 0);
        let there = other.join().unwrap();
        assert!(here.or(there).is_some());
        assert!(queue.claim().is_some_and(|owner| owner.is_empty()));
    });
}

/// What is left in a queue is dropped with it, whoever brought it there.
#[test]
fn what_is_left_is_dropped() {
    explore(4, || {
        let queue = Arc::new(StealQueue::<Kept, 2>::new());
        let owner = queue.claim().unwrap();
        let kept = Arc::new(());
        (0..4).for_each(|_| owner.push(Kept::new(&kept)));
        drop(owner);
        let thief = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || drop(queue.steal()))
        };
        drop(queue);
        thief.join().unwrap();
        assert_eq!(Arc::strong_count(&kept), 1);
    });
}

/// An item that has a part in something.
#[repr(C)]
struct Part {
    link: Link,
    _whole: Arc<()>,
}

struct Kept(Box<Part>);

impl Kept {
    fn new(whole: &Arc<()>) -> Self {
        Self(Box::new(Part { link: Link::new(), _whole: Arc::clone(whole) }))
    }
}

// SAFETY: a box is the only handle on what it holds, which stays where it is.
unsafe impl Linked for Kept {
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: made by `into_link`, and given back once.
        Self(unsafe { Box::from_raw(link.cast::<Part>().as_ptr()) })
    }
}

// SAFETY: a part may be dropped by any thread.
unsafe impl Send for Kept {}
