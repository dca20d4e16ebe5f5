//! The run queue: a worker's own runnable tasks, first in, first out.

use crate::sync::{Cell, const_but_under_loom};
use crate::task::TaskRef;

/// An intrusive FIFO for one owner: the tasks carry the links, so it never fills and never
/// allocates, and no operation is an atomic one.
pub(crate) struct RunQueue {
    first: Cell<Option<TaskRef>>,
    /// Meaningful while `first` is there.
    last: Cell<Option<TaskRef>>,
}

impl RunQueue {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self { first: Cell::new(None), last: Cell::new(None) }
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get().is_none()
    }

    /// Puts a task at the back. It must not stand in a queue: its `QUEUED` mark says so.
    #[inline]
    pub(crate) fn push(&self, task: TaskRef) {
        task.header().next.set(None);
        if self.is_empty() {
            self.first.set(Some(task));
        } else {
            // SAFETY: the queue is not empty, so it has a last task since it had its first.
            unsafe { self.last.get().unwrap_unchecked() }.header().next.set(Some(task));
        }
        self.last.set(Some(task));
    }

    /// Takes the task at the front.
    #[inline]
    pub(crate) fn pop(&self) -> Option<TaskRef> {
        let task = self.first.get()?;
        self.first.set(task.header().next.get());
        Some(task)
    }
}
