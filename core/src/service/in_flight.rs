//! The future of an operation.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::operation::Orphaned;
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
pub struct InFlight {
    home: HomeRef,
    /// None: the result was given, and the slot left.
    token: Option<Token>,
}

impl InFlight {
    /// # Safety
    /// The token was just allocated from this home's table, and has no other future.
    pub(crate) unsafe fn new(home: HomeRef, token: Token) -> Self {
        Self { home, token: Some(token) }
    }

    /// The operation's token, until the result is given.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    fn leave(&mut self) {
        if let Some(token) = self.token.take() {
            // SAFETY: this is the token's future, and the token is gone from it.
            unsafe { self.home.leave(token) };
        }
    }
}

impl Future for InFlight {
    type Output = Result<i32, Orphaned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let token = self.token.expect("an operation was polled after it had given its result");
        // SAFETY: this is the token's future, and it has neither been given the result nor left.
        let polled = unsafe { self.home.operations().poll(token, context.waker()) };
        if polled.is_ready() {
            self.leave();
        }
        polled
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.leave();
    }
}

impl core::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InFlight").field("token", &self.token).finish_non_exhaustive()
    }
}
