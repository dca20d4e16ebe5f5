//! A timer outside of a future: in a slot, whose owner says what is to happen.

use core::ptr::NonNull;
use core::task::Waker;

use super::queue::{TimerQueue, Waiting};
use super::tree::Node;
use crate::sync::{Cell, const_but_under_loom};
use crate::time::Instant;

/// A timer that whoever owns the queue sets and clears, where it stands.
pub(crate) struct Alarm(Node<Waiting>);

impl Alarm {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self(Node::new(Waiting { waker: Cell::new(None) }))
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_queued()
    }

    /// Has the waker given to [`TimerQueue::expire`]'s `each` when the deadline has passed.
    ///
    /// # Safety
    /// By the queue's owner. It is not set, and stays in place until it is cleared, or has fired,
    /// or the queue is gone.
    pub(crate) unsafe fn set(&self, queue: &TimerQueue, deadline: Instant, waker: Waker) {
        self.0.payload().waker.set(Some(waker));
        // SAFETY: passed on to the caller.
        unsafe { queue.tree().insert(NonNull::from(&self.0), deadline) };
    }

    /// # Safety
    /// By the queue's owner; it is set, in this queue.
    pub(crate) unsafe fn clear(&self, queue: &TimerQueue) {
        // SAFETY: passed on to the caller.
        unsafe { queue.tree().remove(NonNull::from(&self.0)) };
        self.0.payload().waker.set(None);
    }
}
