//! What found no room in the ring: a list through the links of the items themselves.

use core::ptr::{self, NonNull};

use crate::link::Link;
use crate::sync::{Cell, Ordering, const_but_under_loom};

/// An intrusive FIFO of the queue's owner. It never fills.
pub(super) struct Overflow {
    first: Cell<*mut Link>,
    /// Meaningful while `count` is not zero.
    last: Cell<*mut Link>,
    count: Cell<usize>,
}

impl Overflow {
    const_but_under_loom! {
        pub(super) const fn new() -> Self {
            Self {
                first: Cell::new(ptr::null_mut()),
                last: Cell::new(ptr::null_mut()),
                count: Cell::new(0),
            }
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// # Safety
    /// The link is the caller's, who leaves it to this list until it is popped.
    pub(super) unsafe fn push(&self, link: NonNull<Link>) {
        if self.is_empty() {
            self.first.set(link.as_ptr());
        } else {
            // SAFETY: the list is not empty, so `last` is in it, and thus this list's.
            let last = unsafe { &*self.last.get() };
            // Ordering: Relaxed, read by this list alone, which has one owner.
            last.next().store(link.as_ptr(), Ordering::Relaxed);
        }
        self.last.set(link.as_ptr());
        self.count.set(self.len() + 1);
    }

    pub(super) fn pop(&self) -> Option<NonNull<Link>> {
        let left = self.len().checked_sub(1)?;
        // SAFETY: the list is not empty, so `first` is in it, and thus this list's.
        let first = unsafe { NonNull::new_unchecked(self.first.get()) };
        if left > 0 {
            // SAFETY: as above.
            // Ordering: Relaxed, as it was stored.
            self.first.set(unsafe { first.as_ref() }.next().load(Ordering::Relaxed));
        }
        self.count.set(left);
        Some(first)
    }
}
