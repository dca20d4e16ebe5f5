//! The future of an operation of a worker.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::operation::{Orphaned, Reach, Table, Waiting};
use crate::reactor::Token;
use crate::service::home_ref::HomeRef;

/// Waits for an operation's result. Dropping it cancels the operation, and never blocks.
///
/// It may be polled and dropped on any thread. Its output is the number that the reactor reported.
///
/// # Errors
/// The output is [`Orphaned`] if the worker ended first.
///
/// # Panics
/// If it is polled again after it has given its output.
#[must_use = "dropping it cancels the operation"]
pub struct InFlight(Waiting<HomeRef>);

impl InFlight {
    /// # Safety
    /// The token was just allocated from this home's table, and has no other future.
    pub(crate) unsafe fn new(home: HomeRef, token: Token) -> Self {
        // SAFETY: passed on to the caller.
        Self(unsafe { Waiting::new(home, token) })
    }

    /// The operation's token, until the result is given.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.0.token()
    }
}

impl Reach for HomeRef {
    fn table(&self) -> &Table {
        self.operations()
    }

    unsafe fn leave(&self, token: Token) {
        // SAFETY: passed on to the caller.
        unsafe { (**self).leave(token) };
    }
}

impl Future for InFlight {
    type Output = Result<i32, Orphaned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl core::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InFlight").field("token", &self.token()).finish_non_exhaustive()
    }
}
