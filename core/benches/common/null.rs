//! A reactor that has nothing to do: what is left is the worker.

use std::convert::Infallible;
use std::task::Waker;

use evenkeel::{Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait};

pub(crate) struct Null;

impl Reactor for Null {
    type Operation = Infallible;
    type Error = Infallible;

    fn name(&self) -> &'static str {
        "null"
    }

    #[inline]
    fn readiness(&mut self) -> Readiness {
        Readiness::Quiet
    }

    fn submit(
        &mut self,
        _: Token,
        operation: Infallible,
    ) -> Result<Submitted, Refused<Infallible, Infallible>> {
        match operation {}
    }

    fn cancel(&mut self, _: Token) {}

    fn poll(&mut self, _: Wait, _: &mut Completions) -> Result<Polled, Infallible> {
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        Waker::noop().clone()
    }
}
