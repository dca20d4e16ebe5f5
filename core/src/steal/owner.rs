//! The safe way to be a queue's owner.

use core::fmt;
use core::marker::PhantomData;

use super::queue::{Haul, StealQueue};
use crate::link::Linked;
use crate::sync::Cell;

/// The right to push to a queue and to pop from it: who [claimed](StealQueue::claim) it has it
/// until this is dropped. It may be sent to another thread, but not shared.
pub struct Owner<'q, T: Linked, const CAPACITY: usize> {
    queue: &'q StealQueue<T, CAPACITY>,
    not_sync: PhantomData<Cell<()>>,
}

impl<'q, T: Linked, const CAPACITY: usize> Owner<'q, T, CAPACITY> {
    /// # Safety
    /// There is no other owner of the queue as long as this is there, and what the last one did is
    /// visible here.
    pub(super) unsafe fn new(queue: &'q StealQueue<T, CAPACITY>) -> Self {
        Self { queue, not_sync: PhantomData }
    }

    /// Puts an item at the back. Never fails, never allocates: what finds no room in the ring waits
    /// in the overflow, where no thief can take it.
    #[inline]
    pub fn push(&self, item: T) {
        // SAFETY: this is the owner.
        unsafe { self.queue.push(item) };
    }

    /// Takes the oldest item.
    #[inline]
    #[must_use]
    pub fn pop(&self) -> Option<T> {
        // SAFETY: this is the owner.
        unsafe { self.queue.pop() }
    }

    /// Takes the oldest item if it was pushed before [`pushed`](Self::pushed) was `ticket`.
    #[inline]
    #[must_use]
    pub fn pop_before(&self, ticket: u32) -> Option<T> {
        // SAFETY: this is the owner.
        unsafe { self.queue.pop_before(ticket) }
    }

    /// How many items have been pushed so far, wrapping: the ticket of the next.
    #[inline]
    #[must_use]
    pub fn pushed(&self) -> u32 {
        // SAFETY: this is the owner.
        unsafe { self.queue.pushed() }
    }

    /// The ticket of the item that the next [`pop`](Self::pop) gives, unless a thief is first.
    #[inline]
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        // SAFETY: this is the owner.
        unsafe { self.queue.oldest() }
    }

    /// Whether there is nothing to pop.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // SAFETY: this is the owner.
        unsafe { self.queue.is_empty() }
    }

    /// The queue.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> &'q StealQueue<T, CAPACITY> {
        self.queue
    }

    /// Steals up to half of what thieves can have of `victim`, oldest first, at most 32, and puts
    /// it at the back of this one: [`StealQueue::steal_half_into`], seen from here.
    #[inline]
    pub fn steal_from(&self, victim: &StealQueue<T, CAPACITY>) -> Haul {
        victim.steal_half_into(self)
    }
}

impl<T: Linked, const CAPACITY: usize> Drop for Owner<'_, T, CAPACITY> {
    fn drop(&mut self) {
        // SAFETY: this was the owner, by the claim, and does nothing more.
        unsafe { self.queue.give_up() };
    }
}

impl<T: Linked, const CAPACITY: usize> fmt::Debug for Owner<'_, T, CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("oldest", &self.oldest())
            .field("pushed", &self.pushed())
            .finish_non_exhaustive()
    }
}
