//! The future of an operation, whoever owns its table.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::operation::{Orphaned, Table};
use crate::reactor::Token;

/// How a future reaches the table that has its slot.
pub(crate) trait Reach {
    /// The table: always the same, as long as this or anything cloned from it lives.
    fn table(&self) -> &Table;

    /// The future leaves its slot: transition 5 or 6.
    ///
    /// # Safety
    /// By the one who has the token's future, which does not come back.
    unsafe fn leave(&self, token: Token);
}

/// Waits for an operation's result, and leaves the slot with it, or without it when dropped.
pub(crate) struct Waiting<R: Reach> {
    reach: R,
    /// None: the slot is left.
    token: Option<Token>,
}

impl<R: Reach> Waiting<R> {
    /// # Safety
    /// The token was just allocated from the table that is reached, and has no other future.
    pub(crate) unsafe fn new(reach: R, token: Token) -> Self {
        Self { reach, token: Some(token) }
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token
    }

    pub(crate) fn reach(&self) -> &R {
        &self.reach
    }

    /// Takes the token out: the caller is the token's future from now on.
    pub(crate) fn take_token(&mut self) -> Option<Token> {
        self.token.take()
    }

    fn leave(&mut self) {
        if let Some(token) = self.take_token() {
            // SAFETY: this is the token's future, and the token is gone from it.
            unsafe { self.reach.leave(token) };
        }
    }
}

impl<R: Reach + Unpin> Future for Waiting<R> {
    type Output = Result<i32, Orphaned>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let token = self.token.expect("an operation was polled after it had given its result");
        // SAFETY: this is the token's future, and it has neither been given the result nor left.
        let polled = unsafe { self.reach.table().poll(token, context.waker()) };
        if polled.is_ready() {
            self.leave();
        }
        polled
    }
}

impl<R: Reach> Drop for Waiting<R> {
    fn drop(&mut self) {
        self.leave();
    }
}
