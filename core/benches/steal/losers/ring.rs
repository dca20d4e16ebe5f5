//! The bounded ring of Go's scheduler: head and tail, and every pop is a compare-and-swap of the
//! head.

use std::array;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use evenkeel::link::{Link, Linked};

use super::super::CAPACITY;
use super::super::contenders::{Contender, Handle};

pub(crate) struct Shared {
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
    slots: [AtomicPtr<Link>; CAPACITY],
}

/// The owner's side. Not to be shared.
pub(crate) struct Ring(Arc<Shared>);

impl Shared {
    fn slot(&self, number: usize) -> &AtomicPtr<Link> {
        &self.slots[number % CAPACITY]
    }

    fn waiting(&self, head: usize) -> usize {
        let waiting = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        if waiting > CAPACITY { 0 } else { waiting }
    }

    fn passes(&self, head: usize, count: usize) -> bool {
        self.head
            .compare_exchange(head, head.wrapping_add(count), Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    fn take_one(&self, head: usize) -> Option<Handle> {
        let link = self.slot(head).load(Ordering::Relaxed);
        // SAFETY: it was pushed, and is taken by who moves the head past it.
        self.passes(head, 1).then(|| unsafe { Handle::from_link(NonNull::new_unchecked(link)) })
    }
}

impl Contender for Ring {
    const NAME: &'static str = "ring (Go)";
    type Thief = Arc<Shared>;

    fn make() -> (Self, Self::Thief) {
        let shared = Arc::new(Shared {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        });
        (Self(Arc::clone(&shared)), shared)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        let tail = self.0.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.0.head.load(Ordering::Acquire)) == CAPACITY {
            return Err(handle);
        }
        self.0.slot(tail).store(handle.into_link().as_ptr(), Ordering::Relaxed);
        self.0.tail.store(tail.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        loop {
            let head = self.0.head.load(Ordering::Acquire);
            if head == self.0.tail.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(handle) = self.0.take_one(head) {
                return Some(handle);
            }
        }
    }

    #[inline]
    fn steal(thief: &Self::Thief) -> Option<Handle> {
        let head = thief.head.load(Ordering::Relaxed);
        if thief.waiting(head) == 0 { None } else { thief.take_one(head) }
    }

    fn steal_many(thief: &Self::Thief, to: &Self) -> usize {
        let head = thief.head.load(Ordering::Relaxed);
        let waiting = thief.waiting(head);
        let tail = to.0.tail.load(Ordering::Relaxed);
        let room = CAPACITY - tail.wrapping_sub(to.0.head.load(Ordering::Acquire));
        let half = (waiting - waiting / 2).min(32).min(room);
        for nth in 0..half {
            let link = thief.slot(head.wrapping_add(nth)).load(Ordering::Relaxed);
            to.0.slot(tail.wrapping_add(nth)).store(link, Ordering::Relaxed);
        }
        if half == 0 || !thief.passes(head, half) {
            return 0;
        }
        to.0.tail.store(tail.wrapping_add(half), Ordering::Release);
        half
    }
}
