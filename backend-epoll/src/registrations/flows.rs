#![forbid(unsafe_code)]
//! Flows: operations of which many results are taken one by one.
//!
//! epoll brings nothing ahead, so a flow is a record of what to ask for, and whoever takes its next
//! item asks. It waits in its descriptor's line as long as somebody waits for an item, on behalf of
//! all who do. As it is in flight its descriptor stays open, so who joins them costs no system call.

use std::os::fd::RawFd;

use evenkeel::Token;
use evenkeel::io::{BufferPool, Interest, Operation};
use rustix::io::{Errno, retry_on_intr};

use super::{Registrations, failure, index, number};
use crate::attempt::{Attempt, Brings, Work};
use crate::calls::{RECEIVE, accept, count};
use crate::descriptor;
use crate::lent;
use crate::paged::Paged;
use crate::registration::asked;
use crate::set::Set;
use crate::waiters::{Line, LineOf, Place, Queue};

/// The open flows, by the index of their token.
#[derive(Debug)]
pub(super) struct Flows {
    table: Paged<Option<Flow>>,
    open: usize,
}

#[derive(Debug)]
struct Flow {
    token: Token,
    fd: RawFd,
    items: Items,
    takers: Line,
}

/// What its items are.
#[derive(Debug)]
pub(crate) enum Items {
    Connections,
    Pieces(BufferPool),
}

impl Flows {
    pub(super) fn new() -> Self {
        Self { table: Paged::new(), open: 0 }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.open > 0
    }

    pub(super) fn is_open(&self, token: Token) -> bool {
        self.any() && self.get(token).is_some()
    }

    fn get(&self, token: Token) -> Option<&Flow> {
        self.table.get(token.index())?.as_ref().filter(|flow| flow.token == token)
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Flow> {
        self.table.get_mut(token.index())?.as_mut().filter(|flow| flow.token == token)
    }

    fn open(&mut self, flow: Flow) {
        self.open += 1;
        let index = flow.token.index();
        *self.table.entry(index) = Some(flow);
    }

    fn take(&mut self, token: Token) -> Option<Flow> {
        self.get(token)?;
        self.open -= 1;
        self.table.get_mut(token.index())?.take()
    }

    /// One that a link leads to.
    fn linked(&mut self, index: usize) -> &mut Flow {
        self.table.get_mut(index).and_then(Option::as_mut).expect("a link leads to a flow")
    }
}

impl Flow {
    fn brings(&self) -> Brings {
        match self.items {
            Items::Connections => Brings::Descriptor,
            Items::Pieces(_) => Brings::Nothing,
        }
    }

    /// One attempt to have an item for whoever asks.
    fn attempt(&self, operation: &mut Operation) -> Attempt {
        let Some(fd) = descriptor::borrow(self.fd) else { return Attempt::of(Err(Errno::BADF)) };
        Attempt::of(retry_on_intr(|| match &self.items {
            Items::Connections => accept(fd),
            Items::Pieces(pool) => {
                let (bytes, buffer) = lent::receive_piece(fd, pool, RECEIVE)?;
                if let Operation::Next { buffer: place, .. } = operation {
                    place.put(buffer);
                }
                Ok(count(bytes))
            }
        }))
    }
}

impl Registrations {
    /// Opens a flow. No system call: who takes an item is told of errors.
    pub(crate) fn open_flow(&mut self, set: &Set, token: Token, fd: RawFd, items: Items) {
        if set.owns(fd) {
            self.waiters.end_at_once(token, failure(Errno::INVAL));
        } else {
            self.flows.open(Flow { token, fd, items, takers: Line::default() });
            self.waiters.hold(token);
        }
    }

    /// Takes the next item of a flow, or waits for it.
    ///
    /// An error means that there is no room for it.
    pub(crate) fn next(
        &mut self,
        set: &Set,
        token: Token,
        operation: Operation,
    ) -> Result<(), (Operation, Errno)> {
        let Operation::Next { flow: of, .. } = operation else {
            return Err((operation, Errno::INVAL));
        };
        let (waits, fd) = match (self.flows.get(of), self.waiters.place(of)) {
            (Some(flow), None) => (false, flow.fd),
            (Some(flow), Some(place)) if self.still_waits(flow.fd, place) => (true, flow.fd),
            // It is not open, or its descriptor was closed.
            _ => {
                self.waiters.end_at_once(token, failure(Errno::BADF));
                return Ok(());
            }
        };
        let mut work = Work::new(operation);
        if !waits {
            let side = number(fd).ok().and_then(|number| self.table.get_mut(number));
            let mut tries =
                side.is_none_or(|registration| registration.side(INTEREST).tries_first());
            let mut was_in_vain = false;
            loop {
                if tries {
                    match self.flows.linked(of.index()).attempt(work.operation_mut()) {
                        Attempt::Ended(result) => {
                            self.waiters.end_at_once(token, result);
                            self.waiters.has_brought(token, self.flows.linked(of.index()).brings());
                            return Ok(());
                        }
                        Attempt::NotYet | Attempt::Blocks => was_in_vain = true,
                    }
                }
                match self.arm(set, fd, asked(INTEREST, Queue::Flows)) {
                    Ok(number) => {
                        let side = self.table.entry(number).side(INTEREST);
                        if was_in_vain {
                            side.was_in_vain();
                        }
                        let line = LineOf::Side { fd, interest: INTEREST, queue: Queue::Flows };
                        self.waiters.join(&mut side.flows, of, line, None);
                        break;
                    }
                    Err(errno @ (Errno::NOMEM | Errno::NOSPC)) => {
                        return Err((work.into_operation(), errno));
                    }
                    // A file: the attempt says what is wrong with it.
                    Err(Errno::PERM) if !tries => tries = true,
                    Err(errno) => {
                        self.waiters.end_at_once(token, failure(errno));
                        return Ok(());
                    }
                }
            }
        }
        let flow = self.flows.linked(of.index());
        let line = LineOf::Flow(of);
        self.waiters.join(&mut flow.takers, token, line, Some(work));
        Ok(())
    }

    /// Whether a flow is in its descriptor's line, and the line has not ended without it.
    fn still_waits(&self, fd: RawFd, place: Place) -> bool {
        let registration = number(fd).ok().and_then(|number| self.table.get(number));
        registration.is_some_and(|registration| place.is_still_in(registration.flows(INTEREST)))
    }

    /// One attempt for the first who takes from the first of a side's flows.
    pub(super) fn flow_in_turn(&mut self, first: usize, fd: RawFd, interest: Interest) -> Attempt {
        let Self { table, waiters, flows, .. } = self;
        let flow = flows.linked(first);
        let Some(taker) = flow.takers.first() else {
            unreachable!("a flow waits while somebody waits for it")
        };
        let (token, work) = waiters.work(taker);
        let attempt = flow.attempt(work.operation_mut());
        if let Attempt::Ended(result) = attempt {
            waiters.end_one(&mut flow.takers, token, result);
            waiters.has_brought(token, flow.brings());
            if flow.takers.is_empty() {
                let line = &mut table.entry(index(fd)).side(interest).flows;
                let _none = waiters.leave(line, flow.token);
            }
        }
        attempt
    }

    /// Ends one who takes from a flow, which waits no more if that was the last one.
    pub(super) fn cancel_taker(&mut self, set: &Set, token: Token, place: Place, of: Token) {
        let Self { table, waiters, flows, .. } = self;
        // It may have ended, and the index have another tenant.
        let Some(flow) = flows.get_mut(of) else { return };
        if !place.is_still_in(&flow.takers) {
            return;
        }
        waiters.end_one(&mut flow.takers, token, failure(Errno::CANCELED));
        if !flow.takers.is_empty() {
            return;
        }
        let waits = waiters.place(flow.token);
        let registration = table.entry(index(flow.fd));
        let line = &mut registration.side(INTEREST).flows;
        if waits.is_some_and(|place| place.is_still_in(line)) {
            let _none = waiters.leave(line, flow.token);
            registration.after_a_cancel(set, waiters, flow.fd, INTEREST, Queue::Flows);
        }
    }

    /// Ends a flow, and before it all who wait for an item.
    pub(super) fn close_flow(&mut self, set: &Set, token: Token) {
        let cancelled = failure(Errno::CANCELED);
        let Some(fd) = self.flows.get(token).map(|flow| flow.fd) else { return };
        let place = self.waiters.place(token);
        let waits = place.is_some_and(|place| self.still_waits(fd, place));
        if place.is_some() && !waits {
            // It has ended with its descriptor, and is about to be reported.
            return;
        }
        let Some(mut flow) = self.flows.take(token) else { return };
        let Self { table, waiters, .. } = self;
        waiters.end_line(&mut flow.takers, cancelled);
        let Some(registration) = number(fd).ok().and_then(|number| table.get_mut(number)) else {
            waiters.end_at_once(token, cancelled);
            return;
        };
        if waits {
            waiters.end_one(&mut registration.side(INTEREST).flows, token, cancelled);
        } else {
            waiters.end_at_once(token, cancelled);
        }
        registration.after_a_cancel(set, waiters, fd, INTEREST, Queue::Flows);
    }

    /// A flow that was reported to have ended, with its descriptor: who waited for it ends too.
    pub(super) fn forget_flow(&mut self, token: Token) {
        if let Some(mut flow) = self.flows.take(token) {
            self.waiters.end_line(&mut flow.takers, failure(Errno::CANCELED));
        }
    }
}

/// What flows wait for.
const INTEREST: Interest = Interest::Readable;
