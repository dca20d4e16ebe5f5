#![forbid(unsafe_code)]
//! A list of tasks, linked through their headers, from which each can be taken wherever it stands.

use crate::sync::{Cell, const_but_under_loom};
use crate::task::TaskRef;

/// The tasks that somebody has to end if nothing else does. Adding and removing are O(1).
pub(crate) struct TaskList {
    first: Cell<Option<TaskRef>>,
}

impl TaskList {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self { first: Cell::new(None) }
        }
    }

    /// The one that was added last.
    pub(crate) fn first(&self) -> Option<TaskRef> {
        self.first.get()
    }

    /// Adds a task that is in no list.
    pub(crate) fn add(&self, task: TaskRef) {
        let first = self.first.replace(Some(task));
        task.header().kin.next.set(first);
        if let Some(first) = first {
            first.header().kin.previous.set(Some(task));
        }
    }

    /// Takes a task out, if it is in.
    pub(crate) fn remove(&self, task: TaskRef) {
        let kin = &task.header().kin;
        let (previous, next) = (kin.previous.take(), kin.next.take());
        match previous {
            Some(previous) => previous.header().kin.next.set(next),
            None if self.first.get() == Some(task) => self.first.set(next),
            None => return,
        }
        if let Some(next) = next {
            next.header().kin.previous.set(previous);
        }
    }
}
