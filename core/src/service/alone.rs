#![forbid(unsafe_code)]
//! Without threads a worker has nobody to share its tasks with: what `stealable` and `slot_timer` do
//! is nothing.

use crate::reactor::Token;
use crate::service::home::Home;
use crate::task::TaskRef;

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
    pub(crate) fn cancels_timer(&self, _: Token) -> bool {
        false
    }

    pub(super) fn announce_idle(&self) {}

    pub(super) fn retract_idle(&self) {}

    pub(crate) fn could_steal(&self) -> bool {
        false
    }
}
