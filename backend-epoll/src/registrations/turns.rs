#![forbid(unsafe_code)]
//! Whose turn it is to be tried.

use std::os::fd::RawFd;

use evenkeel::io::Interest;

use super::{Registrations, index};
use crate::attempt::Attempt;
use crate::paged::Paged;
use crate::registration::{Registration, Turn};
use crate::set::Set;

/// The sides whose turn it is, linked through the registrations.
#[derive(Debug, Default)]
pub(super) struct Turns {
    first: Option<(RawFd, Interest)>,
    last: Option<(RawFd, Interest)>,
}

impl Turns {
    pub(super) fn push(&mut self, table: &mut Paged<Registration>, fd: RawFd, interest: Interest) {
        let side = table.entry(index(fd)).side(interest);
        if side.turn == Turn::Queued {
            return;
        }
        side.turn = Turn::Queued;
        match self.last.replace((fd, interest)) {
            Some((last, of)) => {
                table.entry(index(last)).side(of).following = Some((fd, interest));
            }
            None => self.first = Some((fd, interest)),
        }
    }

    fn pop(&mut self, table: &mut Paged<Registration>) -> Option<(RawFd, Interest)> {
        let (fd, interest) = self.first?;
        let side = table.entry(index(fd)).side(interest);
        side.turn = Turn::None;
        self.first = side.following.take();
        if self.first.is_none() {
            self.last = None;
        }
        Some((fd, interest))
    }
}

impl Registrations {
    /// Whether some may be tried without a look before.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        self.turns.first.is_some()
    }

    /// Makes one attempt for each of the first `most` sides whose turn it is; how many there were.
    pub(crate) fn take_turns(&mut self, set: &Set, most: usize) -> usize {
        for taken in 0..most {
            let Some((fd, interest)) = self.turns.pop(&mut self.table) else { return taken };
            let side = self.table.entry(index(fd)).side(interest);
            let attempt = if let Some(first) = side.transfers.first() {
                self.transfer_in_turn(set, first, fd, interest)
            } else if let Some(first) = side.flows.first() {
                self.flow_in_turn(first, fd, interest)
            } else {
                continue;
            };
            let Self { table, waiters, turns, .. } = self;
            let registration = table.entry(index(fd));
            if attempt == Attempt::NotYet {
                registration.arm_for_edges(set, waiters, fd);
            } else if registration.side(interest).wants_turns() {
                turns.push(table, fd, interest);
            } else if registration.reports_edges() && registration.is_idle() {
                registration.remove(set, fd);
            }
        }
        most
    }
}
