//! The link by which a thing stands in its worker's inbox, and what kind of thing it is.

use core::ptr::NonNull;

use crate::link::{Link, Linked};
use crate::sync::{Life, const_but_under_loom};
use crate::task::header::VTable;

/// What an inbox hands over. It is the first field of everything that may stand in one, so that a
/// pointer to the node, or to its link, is a pointer to the thing.
#[repr(C)]
pub(crate) struct Node {
    link: Link,
    kind: Kind,
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
            Self { link: Link::new(), kind }
        }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.life().check();
        self.kind
    }

    /// Of the allocation that it is the first field of.
    #[inline]
    pub(crate) fn life(&self) -> &Life {
        self.link.life()
    }
}

/// A node's place in an inbox.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Entry(NonNull<Node>);

impl Entry {
    /// # Safety
    /// `node` is alive until the entry is taken, has no other entry until then, and may reach all
    /// that the taker wants of it.
    #[inline]
    pub(crate) unsafe fn new(node: NonNull<Node>) -> Self {
        Self(node)
    }

    #[inline]
    pub(crate) fn node(self) -> NonNull<Node> {
        self.0
    }
}

// SAFETY: what has a node is made to be reached from several threads: a task's header, a slot.
unsafe impl Send for Entry {}

// SAFETY: the node is alive and has one entry, by the contract of `new`; the link is its first
// field, which none but an inbox touches.
unsafe impl Linked for Entry {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        self.0.cast()
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}
