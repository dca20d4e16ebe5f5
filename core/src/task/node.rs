//! The link by which a thing stands in an inbox.

use core::ptr;

use crate::sync::{AtomicPtr, Life, const_but_under_loom};
use crate::task::header::VTable;

/// What an inbox hands over. It is the first field of everything that may stand in one, so that a
/// pointer to the node is a pointer to the thing.
#[repr(C)]
pub(crate) struct Node {
    /// The next younger node, or null: this is the youngest, or the push behind it is half done.
    next: AtomicPtr<Node>,
    kind: Kind,
    life: Life,
}

/// What a node is the first field of. One word: the reference's niche holds the other case.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A task's header.
    Task(&'static VTable),
    /// An operation's slot, on its way to the worker whose reactor has the operation.
    Operation,
}

impl Node {
    const_but_under_loom! {
        pub(crate) const fn new(kind: Kind) -> Self {
            Self { next: AtomicPtr::new(ptr::null_mut()), kind, life: Life::new() }
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> &AtomicPtr<Node> {
        self.life.check();
        &self.next
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.life.check();
        self.kind
    }

    /// Of the allocation that it is the first field of.
    #[inline]
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }
}
