//! The inbox: where other threads, and interrupt handlers, hand work to a worker.
//!
//! Vyukov's intrusive queue of many producers and one consumer ("Intrusive MPSC node-based queue",
//! 1024cores.net): a push is one swap and one store, the order is that of the swaps, and a take is
//! O(1). It differs from the original in one thing. There the consumer puts its stub node back
//! whenever it takes the last one; here the stub is only the link `first`, and the consumer takes
//! the last node by a compare-and-swap of `last` from it to null. So the queue holds no pointer to
//! itself, may be moved while nobody pushes, and needs no initialisation.
//!
//! # Its inconsistent state
//! Between the swap and the store of a push the chain is cut: the node, and all that are pushed
//! behind it, can't be reached. A take that comes to the cut says [`Take::Busy`], never
//! [`Take::Empty`]; the rest becomes visible all at once by the store. A producer that is
//! descheduled there holds back what is behind it, and nothing that is before it.
//!
//! # What it costs to look
//! [`has_visible`](Inbox::has_visible) is one load of a word that no producer writes while anything
//! waits to be taken.

use core::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicPtr, Cell, Ordering};
use crate::task::node::Node;

/// A queue of nodes that belong to whoever takes them.
pub(crate) struct Inbox {
    /// The youngest node, or null: nothing was pushed since the last one was taken. Producers meet
    /// here, so it has a cache line of its own.
    last: CachePadded<AtomicPtr<Node>>,
    /// The oldest node if it was pushed onto an empty queue and not seen yet by the consumer.
    first: CachePadded<AtomicPtr<Node>>,
    /// The consumer's: the node that it will take next, or null: `first` says.
    next: Cell<*mut Node>,
}

/// What a take found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Node(NonNull<Node>),
    /// Nothing has been pushed that was not taken.
    Empty,
    /// Something has been pushed, but a push at or before it is half done.
    Busy,
}

// SAFETY: producers reach only the atomics; `next` is the consumer's, of which there is one at a
// time by the contract of `take`.
unsafe impl Send for Inbox {}
// SAFETY: as above.
unsafe impl Sync for Inbox {}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            last: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            first: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            next: Cell::new(ptr::null_mut()),
        }
    }

    /// Hands a node over. Any thread, any interrupt handler; wait-free, allocates nothing.
    ///
    /// # Safety
    /// `node` is alive until it is taken, stands in no inbox, and may reach all that the taker
    /// wants of it.
    #[inline]
    pub(crate) unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: the node is alive, and nobody else has it until the store below.
        let link = unsafe { (*node.as_ptr()).next() };
        // Ordering: Relaxed, published by the Release store below or by the next producer's.
        link.store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire of the next producer's swap: our null above
        // comes before its store into the same link. Acquire, pairs with the Release of the
        // previous producer's swap, for the same reason, and of the consumer's compare-and-swap in
        // `take`: it is done with `first`.
        let before = self.last.swap(node.as_ptr(), Ordering::AcqRel);
        let link = match NonNull::new(before) {
            // SAFETY: the consumer does not take the youngest node of which `last` tells without
            // changing `last`; `before` is behind the cut until the store below, so it is alive.
            Some(before) => unsafe { (*before.as_ptr()).next() },
            None => &*self.first,
        };
        // Ordering: Release, pairs with the Acquire loads of the consumer: the node and what it is
        // the first field of are visible to the taker.
        link.store(node.as_ptr(), Ordering::Release);
    }

    /// Whether the next take finds a node. The consumer only.
    #[inline]
    pub(crate) fn has_visible(&self) -> bool {
        // Ordering: Relaxed, pairs with nothing: `take` acquires.
        !self.next.get().is_null() || !self.first.load(Ordering::Relaxed).is_null()
    }

    /// Whether everything that was pushed has been taken: no node waits, no push is half done.
    /// The consumer only.
    pub(crate) fn is_drained(&self) -> bool {
        // Ordering: Relaxed; it is the fence of the park protocol, before it, that orders it
        // against the producers' swaps.
        self.last.load(Ordering::Relaxed).is_null()
    }

    /// Takes the oldest node.
    ///
    /// # Safety
    /// One consumer at a time, each seeing what the one before it did.
    pub(crate) unsafe fn take(&self) -> Take {
        let Some(node) = NonNull::new(self.next.get()).or_else(|| self.take_first()) else {
            return if self.is_drained() { Take::Empty } else { Take::Busy };
        };
        // SAFETY: what was pushed and not taken is alive.
        let link = unsafe { (*node.as_ptr()).next() };
        // Ordering: Acquire, pairs with the Release store of the push behind it.
        let mut younger = link.load(Ordering::Acquire);
        if younger.is_null() {
            // Ordering: Release, pairs with the Acquire of a producer's swap: `first` is empty
            // before one stores into it again. Failure needs nothing: the link is loaded anew.
            let detached = self.last.compare_exchange(
                node.as_ptr(),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if detached.is_err() {
                // Ordering: Acquire, as above.
                younger = link.load(Ordering::Acquire);
                if younger.is_null() {
                    self.next.set(node.as_ptr());
                    return Take::Busy;
                }
            }
        }
        self.next.set(younger);
        Take::Node(node)
    }

    /// Moves on from the stub to the first node behind it.
    fn take_first(&self) -> Option<NonNull<Node>> {
        // Ordering: Acquire, pairs with the Release store of the push onto an empty queue.
        let first = NonNull::new(self.first.load(Ordering::Acquire))?;
        // Ordering: Relaxed, published by the Release of the compare-and-swap that makes the queue
        // empty again; until then no producer stores here.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        Some(first)
    }
}
