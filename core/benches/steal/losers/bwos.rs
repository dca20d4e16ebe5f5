//! Block-based work stealing (Wang et al., "`BWoS`: Formally Verified Block-based Work Stealing for
//! Parallel Processing", OSDI '23), the FIFO form: the owner has the block that it takes from for
//! itself, and thieves steal from the blocks after it. Its atomics stand at the borders of blocks.
//!
//! All indices here are numbers that never start over; what the paper packs beside an index to tell
//! one round from the next is their upper part.

use std::array;
use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use evenkeel::link::{Link, Linked};

use super::super::CAPACITY;
use super::super::contenders::{Contender, Handle};

const BLOCK: usize = 32;
/// Twice the others' room, since it is by blocks that it gets its room back.
const BLOCKS: usize = 2 * CAPACITY / BLOCK;
const ROUND: usize = BLOCK * BLOCKS;

struct Block {
    /// Up to here the owner has filled it.
    filled: CachePadded<AtomicUsize>,
    /// From here on it can be stolen.
    front: CachePadded<AtomicUsize>,
    /// How many thieves are done with what they took.
    stolen: AtomicUsize,
    /// How many it was that thieves took, since the owner took the block over.
    owed: Cell<usize>,
    entries: [AtomicPtr<Link>; BLOCK],
}

pub(crate) struct Shared {
    blocks: [Block; BLOCKS],
    /// The owner takes from this one.
    taken_from: CachePadded<AtomicUsize>,
}

// SAFETY: `owed` is the owner's.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// The owner's side. Not to be shared.
pub(crate) struct Bwos {
    shared: Arc<Shared>,
    next: Cell<usize>,
    last: Cell<usize>,
}

impl Shared {
    fn block(&self, number: usize) -> &Block {
        &self.blocks[(number / BLOCK) % BLOCKS]
    }

    /// The block in which thieves find something, where that begins, and how much there is.
    fn stealable(&self) -> Option<(&Block, usize, usize)> {
        let mut at = self.taken_from.load(Ordering::Relaxed) + BLOCK;
        loop {
            let block = self.block(at);
            let front = block.front.load(Ordering::Acquire);
            if front / BLOCK == at / BLOCK {
                let filled = block.filled.load(Ordering::Acquire);
                return (front < filled).then(|| (block, front, filled - front));
            }
            if front != at + BLOCK {
                return None;
            }
            at += BLOCK;
        }
    }
}

impl Block {
    fn passes(&self, front: usize, count: usize) -> bool {
        self.front
            .compare_exchange(front, front + count, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn entry(&self, number: usize) -> &AtomicPtr<Link> {
        &self.entries[number % BLOCK]
    }
}

impl Bwos {
    #[cold]
    fn enter_for_push(&self, number: usize) -> bool {
        let block = self.shared.block(number);
        // The owner takes from it still, or a thief reads there.
        let is_free = number < ROUND
            || self.next.get() / BLOCK > (number - ROUND) / BLOCK
                && block.stolen.load(Ordering::Acquire) == block.owed.get();
        if is_free {
            block.stolen.store(0, Ordering::Relaxed);
            block.owed.set(0);
            block.filled.store(number, Ordering::Release);
            block.front.store(number, Ordering::Release);
            if self.next.get() == number {
                self.enter_for_pop(number);
            }
        }
        is_free
    }

    /// Takes the block over: what thieves have not taken by now is the owner's.
    #[cold]
    fn enter_for_pop(&self, number: usize) {
        let block = self.shared.block(number);
        let front = block.front.swap(number + BLOCK, Ordering::AcqRel);
        block.owed.set(front - number);
        self.next.set(front);
        self.shared.taken_from.store(number, Ordering::Release);
    }
}

impl Contender for Bwos {
    const NAME: &'static str = "BWoS";
    type Thief = Arc<Shared>;

    fn make() -> (Self, Self::Thief) {
        let shared = Arc::new(Shared {
            blocks: array::from_fn(|_| Block {
                filled: CachePadded::default(),
                front: CachePadded::default(),
                stolen: AtomicUsize::new(0),
                owed: Cell::new(0),
                entries: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            }),
            taken_from: CachePadded::default(),
        });
        let owner = Self { shared: Arc::clone(&shared), next: Cell::new(0), last: Cell::new(0) };
        (owner, shared)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        let last = self.last.get();
        if last.is_multiple_of(BLOCK) && !self.enter_for_push(last) {
            return Err(handle);
        }
        let block = self.shared.block(last);
        block.entry(last).store(handle.into_link().as_ptr(), Ordering::Relaxed);
        block.filled.store(last + 1, Ordering::Release);
        self.last.set(last + 1);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        loop {
            let next = self.next.get();
            if next == self.last.get() {
                return None;
            }
            // At the border of a block, unless a push has entered that already.
            if next.is_multiple_of(BLOCK) && self.shared.taken_from.load(Ordering::Relaxed) != next
            {
                self.enter_for_pop(next);
                continue;
            }
            self.next.set(next + 1);
            let link = self.shared.block(next).entry(next).load(Ordering::Relaxed);
            // SAFETY: the block is the owner's.
            return Some(unsafe { Handle::from_link(NonNull::new_unchecked(link)) });
        }
    }

    #[inline]
    fn steal(thief: &Self::Thief) -> Option<Handle> {
        let (block, front, _) = thief.stealable()?;
        if !block.passes(front, 1) {
            return None;
        }
        let link = block.entry(front).load(Ordering::Relaxed);
        block.stolen.fetch_add(1, Ordering::Release);
        // SAFETY: this thread has moved the front past it.
        Some(unsafe { Handle::from_link(NonNull::new_unchecked(link)) })
    }

    fn steal_many(thief: &Self::Thief, to: &Self) -> usize {
        let Some((block, front, waiting)) = thief.stealable() else { return 0 };
        if !block.passes(front, waiting) {
            return 0;
        }
        for number in front..front + waiting {
            let link = block.entry(number).load(Ordering::Relaxed);
            // SAFETY: this thread has moved the front past it.
            let handle = unsafe { Handle::from_link(NonNull::new_unchecked(link)) };
            assert!(to.push(handle).is_ok());
        }
        block.stolen.fetch_add(waiting, Ordering::Release);
        waiting
    }
}
