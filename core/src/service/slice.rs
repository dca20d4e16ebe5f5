#![forbid(unsafe_code)]
//! Whether a task that does not give way keeps somebody waiting: what only the clock can tell.
//!
//! A look at the clock costs about 20 ns, and such a task may ask after every few. So the clock is
//! read at the first question after the worker's own look, and then once in [`STRIDE`].

use crate::sync::{Cell, const_but_under_loom};
use crate::time::Instant;

/// How many questions one look at the clock answers.
const STRIDE: u32 = 64;

pub(crate) struct Slice {
    /// When a reactor is to be polled that can't tell whether it has something.
    poll_due: Cell<Instant>,
    asked: Cell<u32>,
    over: Cell<bool>,
}

impl Slice {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self { poll_due: Cell::new(Instant::ZERO), asked: Cell::new(0), over: Cell::new(false) }
        }
    }

    /// At the worker's look at the clock.
    #[inline]
    pub(crate) fn begin(&self, poll_due: Instant) {
        self.poll_due.set(poll_due);
        self.asked.set(0);
        self.over.set(false);
    }

    /// When a poll is due.
    pub(crate) fn poll_due(&self) -> Instant {
        self.poll_due.get()
    }

    /// Whether this time is reached, as far as is known.
    pub(crate) fn is_over(&self, end: Instant, clock: impl FnOnce() -> Instant) -> bool {
        let asked = self.asked.replace(self.asked.get().wrapping_add(1));
        if !self.over.get() && asked.is_multiple_of(STRIDE) {
            self.over.set(clock() >= end);
        }
        self.over.get()
    }
}
