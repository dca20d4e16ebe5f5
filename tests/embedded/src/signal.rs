#![forbid(unsafe_code)]
//! A signal from an interrupt handler to one task, by the task's own waker.

use core::cell::Cell;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};

use critical_section::Mutex;

/// Raised by handlers, awaited by one task at a time. It stays raised until it is awaited.
pub struct Signal(Mutex<Cell<State>>);

enum State {
    Quiet,
    Awaited(Waker),
    Raised,
}

impl Signal {
    /// One that is not raised.
    pub const fn new() -> Self {
        Self(Mutex::new(Cell::new(State::Quiet)))
    }

    /// Raises it. From any context. The waker goes through the worker's inbox: the handler neither
    /// waits nor allocates.
    pub fn raise(&self) {
        let before = critical_section::with(|cs| self.0.borrow(cs).replace(State::Raised));
        if let State::Awaited(waker) = before {
            waker.wake();
        }
    }

    /// Waits until it is raised, and takes that back.
    pub async fn raised(&self) {
        poll_fn(|context| self.poll(context)).await;
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        // Cloned outside: the shorter interrupts are masked, the better.
        let waker = context.waker().clone();
        let before = critical_section::with(|cs| {
            let state = self.0.borrow(cs);
            match state.replace(State::Quiet) {
                State::Raised => State::Raised,
                other => {
                    state.set(State::Awaited(waker));
                    other
                }
            }
        });
        if let State::Raised = before { Poll::Ready(()) } else { Poll::Pending }
    }
}
