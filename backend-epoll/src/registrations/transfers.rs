#![forbid(unsafe_code)]
//! Operations that transfer something, from one attempt to the next: in their descriptor's line, or
//! with a thread that may wait.

use std::os::fd::RawFd;
use std::sync::Arc;

use evenkeel::Token;
use evenkeel::io::{Interest, Operation};
use rustix::io::Errno;

use super::{Registrations, failure, index, number};
use crate::attempt::{Attempt, Work, needs};
use crate::blocking::{Blocking, Done};
use crate::registration::asked;
use crate::set::Set;
use crate::waiters::{LineOf, Queue};

impl Registrations {
    /// Takes in one that transfers something: it has ended at once, or waits.
    ///
    /// An error means that there is no room for it.
    pub(crate) fn transfer(
        &mut self,
        set: &Set,
        token: Token,
        operation: Operation,
    ) -> Result<(), (Operation, Errno)> {
        let work = Work::new(operation);
        let first = match needs(work.operation()) {
            Some((fd, interest)) if !set.owns(fd) => {
                let side = number(fd).ok().and_then(|number| self.table.get_mut(number));
                side.is_none_or(|registration| registration.side(interest).tries_first())
                    || work.begins_something()
            }
            _ => {
                self.waiters.end_at_once(token, failure(Errno::INVAL));
                return Ok(());
            }
        };
        if first { self.try_first(set, token, work) } else { self.settle(set, token, work) }
    }

    /// Makes an attempt; if it is in vain the operation waits.
    fn try_first(
        &mut self,
        set: &Set,
        token: Token,
        mut work: Work,
    ) -> Result<(), (Operation, Errno)> {
        match work.attempt(&mut self.kernel) {
            Attempt::Ended(result) => {
                self.waiters.end_at_once(token, result);
                self.waiters.has_brought(token, work.brings());
            }
            Attempt::NotYet => return self.settle(set, token, work),
            Attempt::Blocks => self.block(set, token, work),
        }
        Ok(())
    }

    /// Has an operation wait for its descriptor.
    fn settle(&mut self, set: &Set, token: Token, work: Work) -> Result<(), (Operation, Errno)> {
        let Some((fd, interest)) = needs(work.operation()) else {
            unreachable!("what transfers something needs a descriptor")
        };
        match self.arm(set, fd, asked(interest, Queue::Transfers)) {
            Ok(number) => {
                let side = self.table.entry(number).side(interest);
                if work.was_in_vain() {
                    side.was_in_vain();
                }
                let of = LineOf::Side { fd, interest, queue: Queue::Transfers };
                self.waiters.join(&mut side.transfers, token, of, Some(work));
            }
            Err(errno @ (Errno::NOMEM | Errno::NOSPC)) => {
                return Err((work.into_operation(), errno));
            }
            // It can't be watched: a file, which is for a thread to wait for. Where the number was
            // another's before, and it was not tried, the attempt says whether it is that.
            Err(Errno::PERM) if work.was_in_vain() => self.block(set, token, work),
            Err(Errno::PERM) => return self.try_first(set, token, work),
            Err(errno) => self.waiters.end_at_once(token, failure(errno)),
        }
        Ok(())
    }

    /// Gives an operation to a thread that may wait.
    pub(crate) fn block(&mut self, set: &Set, token: Token, work: Work) {
        let blocking =
            self.blocking.get_or_insert_with(|| Blocking::new(Arc::clone(&set.notifier)));
        match blocking.submit(token, work) {
            Ok(()) => self.waiters.hold(token),
            Err(errno) => self.waiters.end_at_once(token, failure(errno)),
        }
    }

    /// Whether threads are done with something.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        self.blocking.as_ref().is_some_and(Blocking::has_finished)
    }

    /// One attempt for the first of a side's transfers.
    pub(super) fn transfer_in_turn(
        &mut self,
        set: &Set,
        first: usize,
        fd: RawFd,
        interest: Interest,
    ) -> Attempt {
        let Self { table, waiters, kernel, .. } = self;
        let (token, work) = waiters.work(first);
        let attempt = work.attempt(kernel);
        let brings = work.brings();
        let line = &mut table.entry(index(fd)).side(interest).transfers;
        match attempt {
            Attempt::Ended(result) => {
                waiters.end_one(line, token, result);
                waiters.has_brought(token, brings);
            }
            Attempt::NotYet => {}
            Attempt::Blocks => {
                if let Some(work) = waiters.leave(line, token) {
                    self.block(set, token, work);
                }
            }
        }
        attempt
    }

    /// The worker is about to wait; false if threads are done with something.
    pub(crate) fn announce_wait(&self) -> bool {
        self.blocking.as_ref().is_none_or(Blocking::announce_wait)
    }

    /// The wait is over.
    pub(crate) fn retract_wait(&self) {
        if let Some(blocking) = &self.blocking {
            blocking.retract_wait();
        }
    }

    /// Takes in at most so many of those that threads are done with; how many.
    pub(crate) fn take_finished(&mut self, set: &Set, most: usize) -> usize {
        for taken in 0..most {
            let Some((token, done)) = self.blocking.as_mut().and_then(Blocking::take) else {
                return taken;
            };
            match done {
                Done::Ended(result) => self.waiters.end_at_once(token, result),
                Done::Again(work) => {
                    if let Err((_, errno)) = self.try_first(set, token, work) {
                        self.waiters.end_at_once(token, failure(errno));
                    }
                }
            }
        }
        most
    }
}
