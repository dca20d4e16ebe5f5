#![forbid(unsafe_code)]
//! The jobs of the blocking pool: a queue by the index of their tokens, so that one is taken back in
//! one step, and nothing is allocated to queue one.

use std::mem;
use std::os::fd::OwnedFd;

use evenkeel::Token;

use crate::attempt::Work;
use crate::paged::Paged;

/// An operation, and what its call is made on.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) token: Token,
    /// None for a job that has no call to make.
    pub(super) descriptor: Option<OwnedFd>,
    pub(super) work: Work,
}

/// A job's place, by the index of its token.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Vacant,
    Queued {
        job: Job,
        prev: Option<usize>,
        next: Option<usize>,
    },
    Begun {
        token: Token,
        wanted: Wanted,
    },
}

/// Whether a job that is begun was not cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    Still,
    NoMore,
}

/// The jobs that wait for a thread, first come first, and those that have one.
#[derive(Debug)]
pub(super) struct Jobs {
    slots: Paged<Slot>,
    first: Option<usize>,
    last: Option<usize>,
    queued: usize,
}

impl Jobs {
    pub(super) fn new() -> Self {
        Self { slots: Paged::new(), first: None, last: None, queued: 0 }
    }

    /// How many wait for a thread.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn push(&mut self, job: Job) {
        let index = job.token.index();
        self.queued += 1;
        let prev = self.last.replace(index);
        *self.slots.entry(index) = Slot::Queued { job, prev, next: None };
        match prev {
            Some(prev) => *self.links(prev).1 = Some(index),
            None => self.first = Some(index),
        }
    }

    /// Takes the job that has waited longest.
    pub(super) fn begin(&mut self) -> Option<Job> {
        let job = self.unlink(self.first?);
        let begun = Slot::Begun { token: job.token, wanted: Wanted::Still };
        *self.slots.entry(job.token.index()) = begun;
        Some(job)
    }

    /// A job that was begun is taken back by the worker. Whether it was wanted still.
    pub(super) fn end(&mut self, token: Token) -> Wanted {
        match mem::take(self.slots.entry(token.index())) {
            Slot::Begun { wanted, .. } => wanted,
            _ => unreachable!("it has been begun"),
        }
    }

    /// Takes a job back, or notes that it is not wanted any more if it is begun.
    pub(super) fn take_back(&mut self, of: Token) -> Option<Job> {
        match self.slots.get_mut(of.index())? {
            Slot::Queued { job, .. } if job.token == of => Some(self.unlink(of.index())),
            Slot::Begun { token, wanted } if *token == of => {
                *wanted = Wanted::NoMore;
                None
            }
            _ => None,
        }
    }

    fn unlink(&mut self, index: usize) -> Job {
        let Slot::Queued { job, prev, next } = mem::take(self.slots.entry(index)) else {
            unreachable!("a link leads to a queued job")
        };
        self.queued -= 1;
        match prev {
            Some(prev) => *self.links(prev).1 = next,
            None => self.first = next,
        }
        match next {
            Some(next) => *self.links(next).0 = prev,
            None => self.last = prev,
        }
        job
    }

    /// The links of a queued job: the one before, the one after.
    fn links(&mut self, index: usize) -> (&mut Option<usize>, &mut Option<usize>) {
        match self.slots.entry(index) {
            Slot::Queued { prev, next, .. } => (prev, next),
            _ => unreachable!("a link leads to a queued job"),
        }
    }
}
