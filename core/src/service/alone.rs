//! Without threads a worker has nobody to share its tasks with: what `stealable` and `slot_timer` do
//! is nothing. But without a thread's identity a future leaves its operation through the inbox, even
//! on the worker's own side, and so its slot has to be looked for there when it is wanted.

use crate::inbox::Take;
use crate::operation::Left;
use crate::reactor::{POLL_BATCH, Token};
use crate::run_queue::Fifo;
use crate::service::home::Home;
use crate::sync::const_but_under_loom;
use crate::task::TaskRef;
use crate::task::node::{Entry, Kind};

/// Entries of the inbox that were taken before their turn: what stood before a slot that was wanted.
/// They keep their turn, ahead of what is in the inbox still.
pub(super) struct Early(Fifo<Entry>);

impl Early {
    const_but_under_loom! {
        pub(super) const fn new() -> Self {
            Self(Fifo::new())
        }
    }
}

/// The owner's part.
impl Home {
    #[inline]
    pub(super) fn has_early(&self) -> bool {
        !self.mine.early.0.is_empty()
    }

    pub(super) fn take_early(&self) -> Option<Entry> {
        self.mine.early.0.pop()
    }

    /// Looks through the inbox, no further than a batch, for the slot of an operation that has ended
    /// and that its future has left. On the way it asks for the cancels that are due.
    pub(crate) fn reclaim(&self) {
        for _ in 0..POLL_BATCH {
            // SAFETY: the owner is the one consumer.
            let Take::Item(entry) = (unsafe { self.inbox.take() }) else { return };
            let node = entry.node();
            // SAFETY: a node that was just taken is alive.
            match unsafe { node.as_ref() }.kind() {
                // SAFETY: alive, as above; it stands nowhere now, and nobody pushes it before its
                // task's `SCHEDULED` is cleared, which it is when it is taken from here.
                Kind::Task(_) => self.mine.early.0.push(unsafe { Entry::new(node) }),
                Kind::Operation => {
                    // SAFETY: only this worker's slots are pushed into its inbox.
                    match unsafe { self.operations.take_routed(node) } {
                        Left::Cancel(token) => _ = self.cancel_here(token),
                        Left::Nothing => return,
                    }
                }
            }
        }
    }
}

/// What a worker that is in a team keeps for itself.
pub(super) struct Sharing;

#[allow(clippy::unused_self)] // the shape of what it stands in for
impl Sharing {
    pub(super) fn new() -> Self {
        Self
    }

    #[inline]
    pub(super) fn stamp(&self, _: TaskRef) {}

    pub(super) fn has_work(&self) -> bool {
        false
    }
}

#[allow(clippy::unused_self)] // as above
impl Home {
    #[inline]
    pub(crate) fn is_in_team(&self) -> bool {
        false
    }

    pub(super) fn leave_team(&self) {}

    pub(crate) fn decline_call(&self) {}

    #[inline]
    pub(super) fn next_shared(&self) -> Option<TaskRef> {
        None
    }

    pub(crate) fn keep_up_with_team(&self) {}

    pub(crate) fn steal(&self) -> usize {
        0
    }

    /// There is nobody to whom a future could move, so no timer stands in a slot.
    pub(super) fn is_timer(&self, _: Token) -> bool {
        false
    }

    /// As above.
    pub(crate) fn cancels_timer(&self, _: Token) -> bool {
        false
    }

    pub(super) fn announce_idle(&self) {}

    pub(super) fn retract_idle(&self) {}

    pub(crate) fn could_steal(&self) -> bool {
        false
    }
}
