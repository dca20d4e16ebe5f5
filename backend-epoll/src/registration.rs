#![forbid(unsafe_code)]
//! One descriptor number: what the kernel watches it for, and who waits on it.

use std::os::fd::RawFd;

use evenkeel::io::Interest;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::set::{Set, UNASKED};
use crate::waiters::{Line, Queue, Waiters};

/// After an attempt in vain so many operations wait for an event at once, before one is tried first
/// again.
const UNTRIED: u8 = 7;

/// One interest in a descriptor.
#[derive(Debug, Default)]
pub(crate) struct Side {
    pub(crate) polls: Line,
    pub(crate) transfers: Line,
    pub(crate) flows: Line,
    /// Whether it waits for its turn among those that are ready, and not for an event.
    pub(crate) turn: Turn,
    /// The next one whose turn it is.
    pub(crate) following: Option<(RawFd, Interest)>,
    /// How many operations are to wait for an event without an attempt before.
    untried: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Turn {
    #[default]
    None,
    Queued,
}

impl Side {
    pub(crate) fn line(&mut self, queue: Queue) -> &mut Line {
        match queue {
            Queue::Polls => &mut self.polls,
            Queue::Transfers => &mut self.transfers,
            Queue::Flows => &mut self.flows,
        }
    }

    /// Whether somebody waits for a turn, or for an event that gives one.
    pub(crate) fn wants_turns(&self) -> bool {
        !(self.transfers.is_empty() && self.flows.is_empty())
    }

    /// Whether a new operation is worth an attempt before it waits. Where the last one was in vain
    /// the next ones hardly fare better: a client that answers requests waits for each.
    pub(crate) fn tries_first(&mut self) -> bool {
        !self.wants_turns()
            && match self.untried.checked_sub(1) {
                Some(left) => {
                    self.untried = left;
                    false
                }
                None => true,
            }
    }

    /// A first attempt was in vain.
    pub(crate) fn was_in_vain(&mut self) {
        self.untried = UNTRIED;
    }

    fn is_idle(&self) -> bool {
        self.polls.is_empty() && !self.wants_turns()
    }

    /// What those who wait for an event want.
    fn wanted(&self, interest: Interest) -> EventFlags {
        let mut wanted = EventFlags::empty();
        if !self.polls.is_empty() {
            wanted |= asked(interest, Queue::Polls);
        }
        if self.turn == Turn::None && self.wants_turns() {
            wanted |= asked(interest, Queue::Transfers);
        }
        wanted
    }
}

/// What to ask the kernel for. A transfer does not ask for the peer's half-close: to a reader it is
/// readable, and a writer can do nothing about it, so it would be told the same again and again.
pub(crate) fn asked(interest: Interest, queue: Queue) -> EventFlags {
    match queue {
        Queue::Polls => flag(interest) | UNASKED,
        Queue::Transfers | Queue::Flows => flag(interest),
    }
}

pub(crate) fn flag(interest: Interest) -> EventFlags {
    match interest {
        Interest::Readable => EventFlags::IN,
        Interest::Writable => EventFlags::OUT,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// Of the last arming. 32 bits: a stale event would have to stay unseen for 4 billion armings
    /// of one number to be taken for a new one.
    pub(crate) generation: u32,
    /// Whether the kernel has it, as far as is known. While someone waits it is true.
    pub(crate) known: bool,
    /// What it is armed for until further notice, edge-triggered; nothing if it is for one event.
    edges: Option<EventFlags>,
    read: Side,
    write: Side,
}

impl Registration {
    pub(crate) fn side(&mut self, interest: Interest) -> &mut Side {
        match interest {
            Interest::Readable => &mut self.read,
            Interest::Writable => &mut self.write,
        }
    }

    pub(crate) fn flows(&self, interest: Interest) -> &Line {
        match interest {
            Interest::Readable => &self.read.flows,
            Interest::Writable => &self.write.flows,
        }
    }

    /// Nobody waits, neither for an event nor for a turn.
    pub(crate) fn is_idle(&self) -> bool {
        self.read.is_idle() && self.write.is_idle()
    }

    /// What those who wait for an event want.
    pub(crate) fn wanted(&self) -> EventFlags {
        self.read.wanted(Interest::Readable) | self.write.wanted(Interest::Writable)
    }

    /// It goes on reporting events though some have come.
    pub(crate) fn reports_edges(&self) -> bool {
        self.edges.is_some()
    }

    /// Arms it, known or not, for one event.
    pub(crate) fn arm_once(
        &mut self,
        set: &Set,
        fd: RawFd,
        wanted: EventFlags,
    ) -> Result<(), Errno> {
        self.generation = self.generation.wrapping_add(1);
        self.edges = None;
        set.arm(fd, self.generation, wanted | EventFlags::ONESHOT)
    }

    /// Arms it for those who still wait, if any. If the descriptor was closed they end.
    pub(crate) fn arm_again(&mut self, set: &Set, waiters: &mut Waiters, fd: RawFd) {
        let wanted = self.wanted();
        if !wanted.is_empty() && self.arm_once(set, fd, wanted).is_err() {
            self.lose(waiters);
        }
    }

    /// Arms it until further notice, for those who still wait: an event has come, and an attempt was
    /// in vain all the same. If the descriptor was closed they end.
    pub(crate) fn arm_for_edges(&mut self, set: &Set, waiters: &mut Waiters, fd: RawFd) {
        let wanted = self.wanted();
        if self.edges.is_some_and(|edges| edges.contains(wanted)) {
            return;
        }
        self.generation = self.generation.wrapping_add(1);
        self.edges = Some(wanted);
        if set.arm(fd, self.generation, wanted | EventFlags::ET).is_err() {
            self.lose(waiters);
        }
    }

    /// One who waited has ended early: what nobody else waits for is watched no more.
    pub(crate) fn after_a_cancel(
        &mut self,
        set: &Set,
        waiters: &mut Waiters,
        fd: RawFd,
        interest: Interest,
        queue: Queue,
    ) {
        if self.is_idle() {
            self.remove(set, fd);
        } else if self.side(interest).line(queue).is_empty() {
            self.arm_again(set, waiters, fd);
        }
    }

    /// Has the kernel forget it.
    pub(crate) fn remove(&mut self, set: &Set, fd: RawFd) {
        if self.known {
            self.known = false;
            self.edges = None;
            // It fails if the descriptor was closed, and then there is nothing to remove, or
            // nothing that can be.
            let _ = set.remove(fd);
        }
    }

    /// The kernel does not have it any more: its descriptor was closed.
    pub(crate) fn lose(&mut self, waiters: &mut Waiters) {
        self.known = false;
        self.edges = None;
        let closed = -Errno::BADF.raw_os_error();
        for side in [&mut self.read, &mut self.write] {
            waiters.end_line(&mut side.polls, closed);
            waiters.end_line(&mut side.transfers, closed);
            waiters.end_line(&mut side.flows, closed);
        }
    }
}
