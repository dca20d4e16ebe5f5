//! What is compared, behind one face.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use evenkeel::link::{Link, Linked};
use evenkeel::steal::{Haul, Owner, StealQueue, Stolen};

use super::CAPACITY;

#[derive(Default)]
pub(crate) struct Item(Link);

/// A word that says where an item is.
pub(crate) struct Handle(NonNull<Link>);

impl Handle {
    pub(crate) fn of(item: &Item) -> Self {
        Self(NonNull::from(&item.0))
    }
}

// SAFETY: all threads may reach an item.
unsafe impl Send for Handle {}

// SAFETY: items are never freed, and each stands in one queue at a time.
unsafe impl Linked for Handle {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        self.0
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link)
    }
}

/// The owner's side of a queue.
pub(crate) trait Contender: Sized {
    const NAME: &'static str;
    type Thief: Clone + Send;

    fn make() -> (Self, Self::Thief);
    fn push(&self, handle: Handle) -> Result<(), Handle>;
    fn pop(&self) -> Option<Handle>;
    /// One try.
    fn steal(thief: &Self::Thief) -> Option<Handle>;
    /// One try, by the owner of `to`: how many came over.
    fn steal_many(thief: &Self::Thief, to: &Self) -> usize;
    /// Frees what was leaked, if anything.
    fn retire(self, _thief: Self::Thief) {}
}

pub(crate) type Evenkeel = Owner<'static, Handle, CAPACITY>;

impl Contender for Evenkeel {
    const NAME: &'static str = "evenkeel";
    type Thief = &'static StealQueue<Handle, CAPACITY>;

    fn make() -> (Self, Self::Thief) {
        let queue: &StealQueue<_, CAPACITY> = Box::leak(Box::default());
        (queue.claim().unwrap(), queue)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        Owner::push(self, handle);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        Owner::pop(self)
    }

    #[inline]
    fn steal(thief: &Self::Thief) -> Option<Handle> {
        match thief.steal() {
            Stolen::Item(handle) => Some(handle),
            Stolen::Empty | Stolen::Contended => None,
        }
    }

    #[inline]
    fn steal_many(thief: &Self::Thief, to: &Self) -> usize {
        match thief.steal_half_into(to) {
            Haul::Moved(count) => count.get(),
            Haul::Empty | Haul::Contended => 0,
        }
    }

    fn retire(self, thief: Self::Thief) {
        drop(self);
        // SAFETY: it was leaked by `make`, and nobody else has it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(thief).cast_mut()) });
    }
}

pub(crate) type Crossbeam = crossbeam_deque::Worker<Handle>;

impl Contender for Crossbeam {
    const NAME: &'static str = "crossbeam-deque";
    type Thief = crossbeam_deque::Stealer<Handle>;

    fn make() -> (Self, Self::Thief) {
        let owner = Self::new_fifo();
        let thief = owner.stealer();
        (owner, thief)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        Self::push(self, handle);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        Self::pop(self)
    }

    #[inline]
    fn steal(thief: &Self::Thief) -> Option<Handle> {
        thief.steal().success()
    }

    #[inline]
    fn steal_many(thief: &Self::Thief, to: &Self) -> usize {
        let before = to.len();
        match thief.steal_batch(to) {
            crossbeam_deque::Steal::Success(()) => to.len() - before,
            crossbeam_deque::Steal::Empty | crossbeam_deque::Steal::Retry => 0,
        }
    }
}

pub(crate) type St3 = st3::fifo::Worker<Handle>;

impl Contender for St3 {
    const NAME: &'static str = "st3";
    type Thief = st3::fifo::Stealer<Handle>;

    fn make() -> (Self, Self::Thief) {
        let owner = Self::new(CAPACITY);
        let thief = owner.stealer();
        (owner, thief)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        Self::push(self, handle)
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        Self::pop(self)
    }

    #[inline]
    fn steal(thief: &Self::Thief) -> Option<Handle> {
        // It has no way to steal one but through another queue.
        thread_local! {
            static NOWHERE: St3 = St3::new(1);
        }
        NOWHERE.with(|nowhere| thief.steal_and_pop(nowhere, |_| 1).ok()).map(|(handle, _)| handle)
    }

    #[inline]
    fn steal_many(thief: &Self::Thief, to: &Self) -> usize {
        thief.steal(to, |waiting| waiting - waiting / 2).unwrap_or(0)
    }
}

pub(crate) type Mutexed = Arc<Mutex<VecDeque<Handle>>>;

impl Contender for Mutexed {
    const NAME: &'static str = "mutex";
    type Thief = Self;

    fn make() -> (Self, Self) {
        let queue = Arc::new(Mutex::new(VecDeque::with_capacity(CAPACITY)));
        (Arc::clone(&queue), queue)
    }

    #[inline]
    fn push(&self, handle: Handle) -> Result<(), Handle> {
        self.lock().unwrap().push_back(handle);
        Ok(())
    }

    #[inline]
    fn pop(&self) -> Option<Handle> {
        self.lock().unwrap().pop_front()
    }

    #[inline]
    fn steal(thief: &Self) -> Option<Handle> {
        thief.lock().unwrap().pop_front()
    }

    #[inline]
    fn steal_many(thief: &Self, to: &Self) -> usize {
        let mut from = thief.lock().unwrap();
        let half = (from.len() - from.len() / 2).min(32);
        to.lock().unwrap().extend(from.drain(..half));
        half
    }
}
