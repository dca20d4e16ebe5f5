//! The queues by themselves.

use std::hint::black_box;
use std::ptr::NonNull;

use evenkeel::inbox::{MpscQueue, Take};
use evenkeel::link::{Link, Linked};
use evenkeel::run_queue::Fifo;
use evenkeel::steal::{Haul, Owner, StealQueue, Stolen};

use crate::MOST;

#[derive(Clone, Copy)]
struct Item(&'static Link);

// SAFETY: it is a link that is never freed. Each function below puts it into one queue, and does
// not put it there again before it has been taken out.
unsafe impl Linked for Item {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(self.0)
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: made by `into_link`, from a static.
        Self(unsafe { link.as_ref() })
    }
}

static LINKS: [Link; MOST] = [const { Link::new() }; MOST];
static INBOX: MpscQueue<Item> = MpscQueue::new();
static QUEUE: StealQueue<Item, MOST> = StealQueue::new();
static THIEF: StealQueue<Item, MOST> = StealQueue::new();

fn items() -> impl Iterator<Item = Item> {
    LINKS.iter().map(Item)
}

pub(crate) fn inbox_push(pushes: usize) {
    items().take(pushes).for_each(|item| INBOX.push(black_box(item)));
}

pub(crate) fn inbox_take(takes: usize) {
    items().for_each(|item| INBOX.push(item));
    let mut consumer = INBOX.consumer().expect("there is no other");
    for _ in 0..takes {
        let Take::Item(item) = consumer.take() else { unreachable!("it holds more") };
        black_box(item);
    }
}

/// Sixteen wait; the oldest goes to the back.
pub(crate) fn fifo(rounds: usize) {
    let queue = Fifo::new();
    items().take(16).for_each(|item| queue.push(item));
    let queue = black_box(&queue);
    for _ in 0..rounds {
        let item = queue.pop().expect("it holds more");
        queue.push(black_box(item));
    }
}

fn owner(queue: &'static StealQueue<Item, MOST>) -> Owner<'static, Item, MOST> {
    queue.claim().expect("nobody else has claimed it")
}

fn fill() -> Owner<'static, Item, MOST> {
    let owner = owner(&QUEUE);
    items().for_each(|item| owner.push(item));
    owner
}

pub(crate) fn steal_queue_push(pushes: usize) {
    let owner = owner(&QUEUE);
    items().take(pushes).for_each(|item| owner.push(black_box(item)));
}

pub(crate) fn steal_queue_pop(pops: usize) {
    let owner = fill();
    for _ in 0..pops {
        black_box(owner.pop().expect("it holds more"));
    }
}

/// One item, which can't be popped but by a read-modify-write: a thief may want it.
pub(crate) fn steal_queue_lone(rounds: usize) {
    let owner = owner(&QUEUE);
    items().take(1).for_each(|item| owner.push(item));
    for _ in 0..rounds {
        let item = owner.pop().expect("it holds one");
        owner.push(black_box(item));
    }
}

pub(crate) fn steal_one(steals: usize) {
    let _owner = fill();
    for _ in 0..steals {
        let Stolen::Item(item) = QUEUE.steal() else { unreachable!("it holds more") };
        black_box(item);
    }
}

/// As many at a time as there may be.
pub(crate) fn steal_half(items: usize) {
    let _owner = fill();
    let thief = owner(&THIEF);
    let mut stolen = 0;
    while stolen < items {
        let Haul::Moved(count) = thief.steal_from(&QUEUE) else { unreachable!("it holds more") };
        stolen += count.get();
    }
    assert_eq!(stolen, items, "hauls are of 32 as long as 64 wait");
}
