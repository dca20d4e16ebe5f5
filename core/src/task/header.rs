//! What every task carries, whatever its future: eight words, nine with std where they have 32 bits.

use core::hint::unreachable_unchecked;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::task::{Context, Poll};

use crate::link::{Link, Linked};
use crate::sync::{Cell, Life};
use crate::task::node::{Kind, Node};
use crate::task::state::{Marks, State};

/// The first field of every task's allocation.
#[repr(C)]
pub(crate) struct Header {
    /// The inbox's link, and what to call.
    node: Node,
    /// The shared marks and the reference count.
    pub(crate) state: State,
    /// The shared half of the task's worker, of which the task holds a reference. Opaque here:
    /// only what lies above this module knows its type.
    pub(crate) home: NonNull<()>,
    /// The lane's link. Owner only; meaningful while `QUEUED`, or `ACTIVE`.
    lane: Link,
    /// The links of the worker's list of tasks. Owner only; meaningful from `ADOPTED` to `ENDED`.
    pub(crate) kin: Kin,
    /// The owner's marks.
    pub(crate) marks: Marks,
    /// Of a pinned task that stands in a local lane: how many stealable ones had been pushed
    /// before it. Owner only.
    #[cfg(feature = "std")]
    pub(crate) ticket: Cell<u32>,
}

/// A task's neighbours in its worker's list.
pub(crate) struct Kin {
    pub(crate) previous: Cell<Option<TaskRef>>,
    pub(crate) next: Cell<Option<TaskRef>>,
}

/// Who may poll a task.
#[cfg(feature = "std")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Custody {
    /// Its worker alone.
    Pinned,
    /// Whichever worker of a team has taken it.
    Stealable,
}

/// What differs from future to future.
pub(crate) struct VTable {
    #[cfg(feature = "std")]
    pub(crate) custody: Custody,
    /// Polls the future. `Ready`: the future is gone and the output in place.
    pub(crate) poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> Poll<()>,
    /// Drops the future and puts "cancelled" in the output's place.
    pub(crate) cancel: unsafe fn(NonNull<Header>),
    /// Moves the output to where the pointer says.
    pub(crate) take_output: unsafe fn(NonNull<Header>, NonNull<()>),
    /// Drops the output, if it was not taken.
    pub(crate) drop_output: unsafe fn(NonNull<Header>),
    /// Frees the memory.
    pub(crate) free: unsafe fn(NonNull<Header>),
}

impl Header {
    pub(crate) fn new(vtable: &'static VTable, state: State, home: NonNull<()>) -> Self {
        Self {
            node: Node::new(Kind::Task(vtable)),
            state,
            home,
            lane: Link::new(),
            kin: Kin { previous: Cell::new(None), next: Cell::new(None) },
            marks: Marks::new(),
            #[cfg(feature = "std")]
            ticket: Cell::new(0),
        }
    }

    /// Who may poll the task. It does not change.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn custody(&self) -> Custody {
        self.vtable().custody
    }

    /// Of the task's allocation.
    #[inline]
    pub(crate) fn life(&self) -> &Life {
        self.node.life()
    }

    #[inline]
    fn vtable(&self) -> &'static VTable {
        match self.node.kind() {
            Kind::Task(vtable) => vtable,
            // SAFETY: `new` makes every header with a task's node, and the kind does not change.
            Kind::Operation => unsafe { unreachable_unchecked() },
        }
    }
}

/// A pointer to a task that is known to be alive: whoever holds one holds, or stands inside, one of
/// the task's references. Copying it counts nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskRef(NonNull<Header>);

impl TaskRef {
    /// # Safety
    /// `header` points to the whole of a live task's allocation and stays so as long as this value
    /// and its copies are used.
    #[inline]
    pub(crate) unsafe fn new(header: NonNull<Header>) -> Self {
        Self(header)
    }

    /// As a waker carries it.
    #[inline]
    pub(crate) fn to_data(self) -> *const () {
        self.0.as_ptr().cast_const().cast()
    }

    /// The reverse of [`to_data`](Self::to_data).
    ///
    /// # Safety
    /// The data came from there, and the task is alive as [`new`](Self::new) wants it.
    #[inline]
    pub(crate) unsafe fn of_data(data: *const ()) -> Self {
        // SAFETY: it was made from a pointer that is not null and reaches the whole task.
        Self(unsafe { NonNull::new_unchecked(data.cast_mut().cast()) })
    }

    #[inline]
    pub(crate) fn as_ptr(self) -> NonNull<Header> {
        self.0
    }

    /// The node as the inbox wants it: a pointer that may reach the whole task.
    #[inline]
    pub(crate) fn node(self) -> NonNull<Node> {
        self.0.cast()
    }

    #[inline]
    pub(crate) fn header<'a>(self) -> &'a Header {
        // SAFETY: the task is alive by the contract of `new`, and a header is only ever reached by
        // shared references: all its fields are cells or atomics.
        let header: &Header = unsafe { self.0.as_ref() };
        header.life().check();
        header
    }

    /// # Safety
    /// By the owner; the future is there (not `ENDED`) and is not being polled.
    #[inline]
    pub(crate) unsafe fn poll(self, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable().poll)(self.0, context) }
    }

    /// # Safety
    /// As [`poll`](Self::poll).
    pub(crate) unsafe fn cancel(self) {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable().cancel)(self.0) }
    }

    /// # Safety
    /// The output is there (`COMPLETE`), not taken, and the caller's by the rules of `JOINED`; `to`
    /// has room for it.
    pub(crate) unsafe fn take_output(self, to: NonNull<()>) {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable().take_output)(self.0, to) }
    }

    /// # Safety
    /// The task is `COMPLETE` and its output the caller's by the rules of `JOINED`.
    pub(crate) unsafe fn drop_output(self) {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable().drop_output)(self.0) }
    }

    /// # Safety
    /// No reference is left.
    pub(crate) unsafe fn free(self) {
        // SAFETY: passed on to the caller.
        unsafe { (self.header().vtable().free)(self.0) }
    }
}

/// A task's place in a lane.
// SAFETY: the scheduler's reference keeps the task alive while it is `QUEUED`, or `ACTIVE`, and
// whoever sets that mark pushes the task, so there is one handle that counts; a header stays where
// it is.
unsafe impl Linked for TaskRef {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        // SAFETY: the task is alive. No reference is made: the pointer goes on reaching all of it.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).lane) }
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: `into_link` made it from the pointer to the header, by the contract.
        Self(unsafe { link.byte_sub(offset_of!(Header, lane)) }.cast())
    }
}

// SAFETY: a header is made to be reached from several threads; who may do what with the task that
// it is part of is the business of the queue in which it stands.
unsafe impl Send for TaskRef {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_eight_words() {
        // Where a word has 64 bits, the ticket shares one with the marks.
        let ticket = cfg!(all(feature = "std", target_pointer_width = "32"));
        assert_eq!(size_of::<Header>(), size_of::<usize>() * (8 + usize::from(ticket)));
    }
}
