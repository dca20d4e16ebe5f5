#![forbid(unsafe_code)]
//! The registrations by descriptor number, and everything that waits on them.
//!
//! epoll knows one registration per descriptor, so readers and writers share it, armed for what
//! either wants.
//!
//! # Try first
//! An operation that transfers something is tried when it is submitted, and only if that is in vain
//! is the descriptor armed, in the same submission: the kernel has it then, and no poll is needed to
//! bring it there. On a descriptor where the last first attempt was in vain the next 7 operations are
//! armed without one, which saves a call for who waits for each request anyway (measured: a tenth of
//! such a receive); the eighth finds out whether that is still so.
//!
//! # Turns
//! An event that transfers wait for gives their side of the descriptor a turn: one attempt, for who
//! has waited longest. If that succeeds and others wait, the side goes to the back of the queue. So a
//! descriptor that is always ready takes one turn in as many as there are ready sides.
//!
//! # One event per arming, and kept
//! A registration is armed for one event (`EPOLLONESHOT`). When that has come the kernel keeps the
//! registration and is silent about it, hang-ups and errors included, until it is armed again. The
//! next operation on the same descriptor arms it by one `EPOLL_CTL_MOD`: 0.2 µs, against 1.0 µs for
//! a removal and an addition (measured for eventfds, Unix and TCP sockets alike), and nothing at all
//! while completions are reported. Level-triggered registrations would have to be removed there, or
//! report the same event at each look; edge-triggered ones go on reporting to nobody, and would save
//! nothing: that the number still means the same only a system call can tell.
//!
//! But while somebody waits the number can't change, and there edges have their use. An event may let
//! nobody on: another process was faster, or the error queue of a socket holds something that is not
//! for its reader. Armed for one event again it might report the same at once, without end. So after an attempt
//! in vain it is armed for edges, until nobody waits any more, and is removed then.
//!
//! # What may happen to a number
//! A closed descriptor takes its registration with it. The number's next owner is found out by
//! `ENOENT`, and added. If a duplicate keeps the description open, the registration outlives its
//! descriptor, out of reach; it is silent, or, if it was still armed, reports once and is recognised
//! as stale: each arming has a generation of its own, which the event brings back. If the old
//! descriptor returns to its number, `EEXIST` tells, and it is armed.
//!
//! A cancelled operation may have been the reason why its descriptor was kept open. So when the last
//! one who waits is cancelled the registration, which is armed, is removed at once.

mod flows;
mod transfers;
mod turns;

use std::os::fd::RawFd;

use evenkeel::io::Interest;
use evenkeel::{Completion, Token};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::blocking::Blocking;
use crate::calls::Kernel;
use crate::paged::Paged;
use crate::registration::{Registration, asked, flag};
use crate::registrations::flows::Flows;
pub(crate) use crate::registrations::flows::Items;
use crate::registrations::turns::Turns;
use crate::set::{Set, UNASKED};
use crate::waiters::{LineOf, Queue, Waiters};

/// The part of an event that concerns who waits for this interest: what was asked, and what ends
/// every wait. The numbers are those of `POLL*`.
fn result(event: EventFlags, interest: Interest) -> i32 {
    (event & (flag(interest) | UNASKED)).bits().cast_signed()
}

fn failure(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

/// The registrations, by descriptor number, and everything that waits on them. The table's size
/// follows the largest number that was ever open, not the numbers that are asked for.
#[derive(Debug)]
pub(crate) struct Registrations {
    table: Paged<Registration>,
    pub(crate) waiters: Waiters,
    turns: Turns,
    kernel: Kernel,
    flows: Flows,
    /// None until it is needed.
    blocking: Option<Blocking>,
}

impl Registrations {
    pub(crate) fn new() -> Self {
        Self {
            table: Paged::new(),
            waiters: Waiters::new(),
            turns: Turns::default(),
            kernel: Kernel::new(),
            flows: Flows::new(),
            blocking: None,
        }
    }

    /// Takes in one who waits until the descriptor is ready.
    ///
    /// An error means that there is no room for it.
    pub(crate) fn watch(
        &mut self,
        set: &Set,
        token: Token,
        fd: RawFd,
        interest: Interest,
    ) -> Result<(), Errno> {
        match self.arm(set, fd, asked(interest, Queue::Polls)) {
            Ok(number) => {
                let line = &mut self.table.entry(number).side(interest).polls;
                let of = LineOf::Side { fd, interest, queue: Queue::Polls };
                self.waiters.join(line, token, of, None);
            }
            Err(errno @ (Errno::NOMEM | Errno::NOSPC)) => return Err(errno),
            // It can't be watched because it never blocks, like a file: always ready, says poll(2).
            Err(Errno::PERM) => {
                self.waiters.end_at_once(token, result(flag(interest), interest));
            }
            Err(errno) => self.waiters.end_at_once(token, failure(errno)),
        }
        Ok(())
    }

    /// Arms the descriptor's registration for this besides what others want; returns its index.
    /// Always a system call, because only the kernel knows whether the number still means the same.
    fn arm(&mut self, set: &Set, fd: RawFd, asked: EventFlags) -> Result<usize, Errno> {
        let number = number(fd)?;
        if set.owns(fd) {
            return Err(Errno::INVAL);
        }
        if let Some(registration) = self.table.get_mut(number).filter(|entry| entry.known) {
            let wanted = registration.wanted() | asked;
            let Err(errno) = registration.arm_once(set, fd, wanted) else { return Ok(number) };
            registration.lose(&mut self.waiters);
            if errno != Errno::NOENT {
                return Err(errno);
            }
        }
        let generation = self.table.get(number).map_or(0, |entry| entry.generation.wrapping_add(1));
        match set.add(fd, generation, asked | EventFlags::ONESHOT) {
            Err(Errno::EXIST) => set.arm(fd, generation, asked | EventFlags::ONESHOT)?,
            added => added?,
        }
        let registration = self.table.entry(number);
        registration.generation = generation;
        registration.known = true;
        Ok(number)
    }

    /// Ends an operation that waits, and stops watching what nobody else waits for. Others are
    /// ignored.
    pub(crate) fn cancel(&mut self, set: &Set, token: Token) {
        let cancelled = failure(Errno::CANCELED);
        match self.waiters.place(token).map(|place| (place, place.line)) {
            _ if self.flows.is_open(token) => self.close_flow(set, token),
            Some((place, LineOf::Flow(flow))) => self.cancel_taker(set, token, place, flow),
            Some((place, LineOf::Side { fd, interest, queue })) => {
                let Self { table, waiters, .. } = self;
                let registration = table.entry(index(fd));
                let line = registration.side(interest).line(queue);
                if place.is_still_in(line) {
                    waiters.end_one(line, token, cancelled);
                    registration.after_a_cancel(set, waiters, fd, interest, queue);
                }
            }
            None => {
                if self.blocking.as_mut().is_some_and(|blocking| blocking.cancel(token)) {
                    self.waiters.end_at_once(token, cancelled);
                }
            }
        }
    }

    /// The number is about to be free: nobody watches it, and who waits on it ends.
    pub(crate) fn forget(&mut self, set: &Set, fd: RawFd) {
        let Self { table, waiters, .. } = self;
        if let Some(registration) = number(fd).ok().and_then(|number| table.get_mut(number)) {
            registration.remove(set, fd);
            registration.lose(waiters);
        }
    }

    /// Takes in an event: ends those who only waited for it, gives the others a turn, and arms the
    /// registration again for those whom it does not concern.
    pub(crate) fn event(&mut self, set: &Set, fd: RawFd, generation: u32, event: EventFlags) {
        let Self { table, waiters, turns, .. } = self;
        let Some(registration) = number(fd)
            .ok()
            .and_then(|number| table.get_mut(number))
            .filter(|registration| registration.generation == generation)
        else {
            return;
        };
        let mut ready = [false; 2];
        for (ready, interest) in ready.iter_mut().zip(BOTH) {
            let result = result(event, interest);
            let side = registration.side(interest);
            if result != 0 {
                waiters.end_line(&mut side.polls, result);
            }
            let transfers = flag(interest) | EventFlags::ERR | EventFlags::HUP;
            *ready = event.intersects(transfers) && side.wants_turns();
        }
        for (ready, interest) in ready.into_iter().zip(BOTH) {
            if ready {
                turns.push(table, fd, interest);
            }
        }
        let registration = table.entry(index(fd));
        if !registration.reports_edges() {
            registration.arm_again(set, waiters, fd);
        } else if registration.is_idle() {
            registration.remove(set, fd);
        }
    }

    /// Takes what ended first.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Option<Completion> {
        let ended = self.waiters.take_ended()?;
        if self.flows.any() {
            self.forget_flow(ended.token);
        }
        Some(ended)
    }
}

const BOTH: [Interest; 2] = [Interest::Readable, Interest::Writable];

/// A descriptor's number as an index; none is negative.
#[inline]
fn number(fd: RawFd) -> Result<usize, Errno> {
    usize::try_from(fd).map_err(|_| Errno::BADF)
}

/// The index of a descriptor that has a registration.
#[inline]
fn index(fd: RawFd) -> usize {
    number(fd).expect("a negative number has no registration")
}
