//! Operations of a worker, over a reactor that completes each at its next poll.

use std::convert::Infallible;
use std::task::Waker;

use evenkeel::{
    Completion, Completions, POLL_BATCH, Polled, Reactor, Readiness, Refused, Submitted, Token,
    Wait,
};

use crate::workers::{tick, warm_up, worker};

/// What was submitted since the last poll.
struct Echo {
    submitted: Vec<Token>,
}

impl Reactor for Echo {
    type Operation = ();
    type Error = Infallible;

    fn name(&self) -> &'static str {
        "echo"
    }

    #[inline]
    fn readiness(&mut self) -> Readiness {
        if self.submitted.is_empty() { Readiness::Quiet } else { Readiness::Ready }
    }

    #[inline]
    fn submit(&mut self, token: Token, (): ()) -> Result<Submitted, Refused<(), Infallible>> {
        self.submitted.push(token);
        Ok(Submitted::Armed)
    }

    fn cancel(&mut self, _: Token) {}

    fn poll(&mut self, _: Wait, found: &mut Completions) -> Result<Polled, Infallible> {
        for token in self.submitted.drain(..) {
            found.push(Completion { token, result: 0 });
        }
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        Waker::noop().clone()
    }
}

/// As many tasks as a poll completes operations submit one, await it, and submit the next: what is
/// counted is submission, completion, the wake, and the dispatch in the `io` lane.
pub(crate) fn submit_to_dispatch(operations: usize) {
    let mut worker = worker(Echo { submitted: Vec::with_capacity(POLL_BATCH) });
    for _ in 0..POLL_BATCH {
        let handle = worker.handle();
        drop(worker.handle().spawn(async move {
            loop {
                let in_flight = handle.submit(()).expect("there is room");
                in_flight.await.expect("the worker goes on");
            }
        }));
    }
    warm_up(&mut worker);
    tick(&mut worker, operations);
}
