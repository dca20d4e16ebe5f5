#![forbid(unsafe_code)]
//! The reactor.

use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use evenkeel::io::Operation;
use evenkeel::{
    Clock, Completions, Instant, MonotonicClock, POLL_BATCH, Polled, Reactor, Readiness, Refused,
    Submitted, Token, Wait,
};

use rustix::event::epoll::Event;
use rustix::io::Errno;
use rustix::net::sockopt::socket_linger;

use crate::attempt::Work;
use crate::builder::Looks;
use crate::calls::shutdown;
use crate::descriptor;
use crate::registrations::{Items, Registrations};
use crate::set::{Set, Sight, Source};
use crate::setup::SetupError;
use crate::wait::until_over;

/// The reactor over epoll.
///
/// It may be made on one thread and used on another. It holds three descriptors (the set, the
/// notifier, a timer), none of which an `exec` passes on. It allocates when it is made, when the
/// index of a token or the number of a descriptor is the first in a page of 256, and when it starts a
/// thread. Otherwise not.
///
/// # What it means by an operation
/// The same as the reactor over `io_uring`:
/// - The result of an [`Operation::Poll`] is what is there of the bits that were asked for, and of
///   `POLLERR`, `POLLHUP` and `POLLRDHUP`, which need not be asked for.
/// - What never blocks (a regular file, `/dev/null`) is ready at once, to a poll.
/// - A number that is closed, or can't be waited for, ends in a completion with the negative error
///   number, like `-EBADF`.
/// - Any number of operations may wait for the same descriptor, and each gets its completion.
/// - A cancelled operation ends with `-ECANCELED`, at the next poll.
///
/// One thing is epoll's own. If a descriptor is closed while an operation waits for it, the operation
/// ends with `-EBADF` when another operation meets the number, and till then not at all; an
/// [`Operation::Close`] ends it at once. The futures of the scheduler keep their descriptor open, so it
/// does not happen to them.
///
/// # Who does it, and when
/// - An operation is tried when it is submitted, and if it has to wait, its descriptor is watched.
///   Where the last one had to wait the next few are not tried first. A poll makes at most 8 attempts,
///   in turns of the descriptors that are ready, so none starves another.
/// - On a descriptor that blocks `accept`, `connect` and what refuses `RWF_NOWAIT` (a terminal) have
///   `O_NONBLOCK` set while the call is made: whoever shares the open description may see it. Reactors
///   may share it; they take turns by a lock, so a listener of many workers better does not block.
///   `SO_RCVTIMEO` and `SO_SNDTIMEO` have no effect.
/// - Files are read at once where they are in memory (`RWF_NOWAIT`). Otherwise, and to be written where
///   the file system knows no `RWF_NOWAIT`, and for `fsync`, a thread of the reactor's own waits: one of at
///   most 4, which are started when they are needed, handle no signals, and end after 10 seconds
///   without work. They work on a duplicate of the descriptor. An operation that a thread has begun
///   is not cancelled, it ends.
/// - A close is made at once, by a thread if the socket lingers (`SO_LINGER`). On a network file
///   system it may take a while, as everywhere.
/// - A Unix socket whose peer has no room (a full backlog, a full queue of a datagram socket) is tried
///   again each millisecond: no descriptor tells when it has.
/// - Dropping it waits 100 ms at most for calls that threads have begun. What takes longer goes on
///   with what was lent to it.
///
/// Transfers need Linux 4.14.
///
/// # Time
/// Deadlines are points of [`MonotonicClock`]. A wait that nothing ends never ends before its
/// deadline, even if it is interrupted. It ends by a timer, within tens of microseconds after it.
///
/// # Example
/// ```
/// use evenkeel::{Clock, Completions, MonotonicClock, Reactor, Readiness, Wait};
/// use evenkeel_epoll::EpollReactor;
/// use std::time::Duration;
///
/// let mut reactor = EpollReactor::new()?;
/// assert_eq!(reactor.readiness(), Readiness::Quiet); // nothing is in flight
///
/// let deadline = MonotonicClock::new().now() + Duration::from_micros(300);
/// reactor.poll(Wait::Until(deadline), &mut Completions::new())?;
/// assert!(MonotonicClock::new().now() >= deadline);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EpollReactor {
    set: Set,
    registrations: Registrations,
    clock: MonotonicClock,
    /// A look that did not wait met a wake, which is owed to the next wait.
    woken: bool,
    /// What was done since the last look at the kernel.
    unlooked: Unlooked,
    /// What the worker did between the last two waits.
    habit: Habit,
}

/// What the worker does between two waits, which tells whether it pays to have the memory tell of
/// events: that costs a system call for each time that it has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    /// It runs for a while, and looks.
    Runs,
    /// It waits again without having looked.
    Waits,
}

impl EpollReactor {
    pub(crate) fn over(looks: Looks) -> Result<Self, SetupError> {
        Ok(Self {
            set: Set::new(looks)?,
            registrations: Registrations::new(),
            clock: MonotonicClock::new(),
            woken: false,
            unlooked: Unlooked::default(),
            habit: Habit::Runs,
        })
    }

    /// How it looks for events: what was granted.
    #[must_use]
    pub fn looks(&self) -> Looks {
        self.set.looks()
    }

    /// Which calls it waits with, for reports: `epoll_pwait + timerfd`, or `epoll_pwait + ppoll`
    /// where a sandbox refuses timers. That may be found out as late as at the first wait. Then
    /// `+ aio`, if it [looks](Self::looks) from memory.
    ///
    /// ```
    /// let reactor = evenkeel_epoll::EpollReactor::new()?;
    /// assert!(reactor.detail().starts_with("epoll_pwait"));
    /// # Ok::<(), evenkeel_epoll::SetupError>(())
    /// ```
    #[must_use]
    pub fn detail(&self) -> &'static str {
        self.set.detail()
    }

    /// close(2), after the set has forgotten the number. One that lingers is for a thread: whether
    /// or not the descriptor blocks, it waits until the peer has taken what was sent.
    fn close(&mut self, token: Token, fd: RawFd) {
        if self.set.owns(fd) {
            self.registrations.waiters.end_at_once(token, -Errno::INVAL.raw_os_error());
            return;
        }
        self.registrations.forget(&self.set, fd);
        let lingers = descriptor::borrow(fd).map(socket_linger);
        if lingers
            .is_some_and(|span| span.is_ok_and(|span| span.is_some_and(|span| !span.is_zero())))
        {
            self.registrations.block(&self.set, token, Work::new(Operation::Close { fd }));
        } else {
            self.registrations.waiters.end_at_once(token, descriptor::close(fd));
        }
    }

    /// Takes in what events there are.
    #[inline]
    fn look(&mut self) -> Result<Looked, Errno> {
        self.habit = Habit::Runs;
        if self.set.aio.is_none() {
            return self.look_at_kernel();
        }
        if self.set.sight() == Sight::Nothing {
            return Ok(Looked::Dry);
        }
        self.set.before_look();
        let looked = self.look_at_kernel()?;
        // If there are more events it tells at once.
        self.set.watch_from_memory();
        Ok(looked)
    }

    #[inline]
    fn look_at_kernel(&mut self) -> Result<Looked, Errno> {
        let mut room = [MaybeUninit::uninit(); POLL_BATCH];
        let events = match self.set.look(&mut room) {
            Err(Errno::INTR) => return Ok(Looked::Dry),
            looked => looked?,
        };
        // Apart, so that a dry look is the system call and next to nothing besides.
        if events.is_empty() {
            return Ok(Looked::Dry);
        }
        self.take_in(events);
        Ok(Looked::Found)
    }

    /// A wait, unless something is known; then a look at the kernel, if it is due. How many attempts
    /// were made.
    #[inline(never)]
    fn wait_or_go_on(&mut self, wait: Wait) -> Result<usize, Errno> {
        let waits = wait != Wait::Never;
        let mut attempts = 0;
        if !self.has_work() && !self.woken {
            if self.registrations.announce_wait() {
                let waited = self.wait(wait);
                self.registrations.retract_wait();
                attempts = waited?;
            }
        } else if self.registrations.waiters.waiting() > 0 && self.look_is_due() {
            self.unlooked = Unlooked::default();
            self.look()?;
        }
        if waits {
            self.woken = false;
        }
        Ok(attempts)
    }

    /// Goes on with what there is to do without the kernel's events, with so many attempts at most,
    /// and reports what has ended.
    #[inline(never)]
    fn serve(&mut self, attempts: usize, found: &mut Completions) {
        if self.registrations.has_turns() {
            self.take_turns(attempts);
        }
        if self.registrations.has_finished() {
            self.unlooked.count += self.registrations.take_finished(&self.set, ATTEMPTS);
        }
        self.report(found);
    }

    /// Takes in events as they come, until there is something to report or the time is over. How many
    /// attempts were made since the last call.
    fn wait(&mut self, wait: Wait) -> Result<usize, Errno> {
        self.unlooked = Unlooked::default();
        if mem::replace(&mut self.habit, Habit::Waits) == Habit::Runs {
            self.set.watch_from_memory();
        }
        let clock = self.clock;
        let mut made = 0;
        until_over(wait, &clock, |pause| {
            let mut room = [MaybeUninit::uninit(); POLL_BATCH];
            let events = self.set.wait(pause, &mut room)?;
            self.set.before_look();
            self.take_in(events);
            // An event may let nobody on, and then the wait goes on.
            made = self.take_turns(ATTEMPTS);
            Ok(self.woken || self.has_work())
        })?;
        Ok(made)
    }

    /// Reports as many of those that have ended as there is room for.
    fn report(&mut self, found: &mut Completions) {
        while found.room() > 0
            && let Some(completion) = self.registrations.take_ended()
        {
            found.push(completion);
            self.unlooked.count += 1;
        }
    }

    /// Makes so many attempts for whose turn it is, at most; how many there were.
    fn take_turns(&mut self, most: usize) -> usize {
        let made = self.registrations.take_turns(&self.set, most);
        self.unlooked.count += made;
        made
    }

    /// Whether a poll has something to do without a look at the kernel.
    #[inline]
    fn has_work(&self) -> bool {
        let registrations = &self.registrations;
        registrations.waiters.has_ended()
            || registrations.has_turns()
            || registrations.has_finished()
    }

    /// Whether the kernel is to be looked at although there is work without: a look is a system
    /// call, and one for each operation would double those that end at once.
    fn look_is_due(&mut self) -> bool {
        let now = self.clock.now();
        let since = *self.unlooked.since.get_or_insert(now);
        self.unlooked.count >= POLL_BATCH || now - since >= UNLOOKED
    }

    /// Takes in events: at most one more system call for each.
    #[inline(never)]
    fn take_in(&mut self, events: &[Event]) {
        for event in events {
            match Source::of(event) {
                Source::Notifier => self.woken = true,
                Source::Timer => self.set.timer_reported(),
                Source::Descriptor { fd, generation } => {
                    self.registrations.event(&self.set, fd, generation, event.flags);
                }
            }
        }
    }
}

/// The most attempts that one poll makes.
const ATTEMPTS: usize = 8;

/// How long polls may go without a look while they have work without. It is what the worker aims at
/// where it can know only by a poll; a clock read is a sixth of a look.
const UNLOOKED: Duration = Duration::from_micros(20);

/// What a look has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    Dry,
    Found,
}

/// What polls have done since the last look at the kernel.
#[derive(Debug, Default)]
struct Unlooked {
    /// How many completions were reported and attempts made.
    count: usize,
    /// When the first poll did without a look.
    since: Option<Instant>,
}

impl Reactor for EpollReactor {
    type Operation = Operation;
    type Error = io::Error;

    fn name(&self) -> &'static str {
        "epoll"
    }

    /// `Ready` while completions are known that no poll has reported yet, or attempts are due. While
    /// operations wait for a descriptor it is `Ready` or `Quiet` as the memory says, and `Unknown`
    /// where that does not tell: see [`Looks`]. `Quiet` otherwise, also while threads
    /// are at work: that they are done is known without a system call. Then only the notifier could have an event, which
    /// concerns nobody but a wait. Who wakes has put work into the inbox before, or raised a flag,
    /// and a worker that runs looks at these anyway.
    #[inline]
    fn readiness(&mut self) -> Readiness {
        if self.has_work() {
            Readiness::Ready
        } else if self.registrations.waiters.waiting() > 0 {
            match self.set.sight() {
                Sight::Events => Readiness::Ready,
                Sight::Nothing => Readiness::Quiet,
                Sight::Blind => Readiness::Unknown,
            }
        } else {
            Readiness::Quiet
        }
    }

    /// One attempt, or one `epoll_ctl`, or both if the attempt was in vain; a second `epoll_ctl` if the
    /// descriptor's number has changed hands since its last operation. More only on descriptors that
    /// block, for `accept` and `connect`, and for what goes to a thread. What ends at once is reported
    /// by the next poll.
    ///
    /// # Errors
    /// `ENOMEM` and `ENOSPC` (the sysctl `fs.epoll.max_user_watches`) if the kernel has no room for
    /// a registration; `EEXIST` if an operation with this token's index has not been reported yet.
    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
    ) -> Result<Submitted, Refused<Operation, io::Error>> {
        if self.registrations.waiters.holds(token) {
            return Err(Refused { operation, error: Errno::EXIST.into() });
        }
        let submitted = match operation {
            Operation::Poll { fd, interest } => self
                .registrations
                .watch(&self.set, token, fd, interest)
                .map_err(|errno| (operation, errno)),
            Operation::Shutdown { fd, how } => {
                self.registrations.waiters.end_at_once(token, shutdown(fd, how));
                Ok(())
            }
            Operation::Close { fd } => {
                self.close(token, fd);
                Ok(())
            }
            Operation::Sync { fd, .. } => {
                if self.set.owns(fd) {
                    self.registrations.waiters.end_at_once(token, -Errno::INVAL.raw_os_error());
                } else {
                    self.registrations.block(&self.set, token, Work::new(operation));
                }
                Ok(())
            }
            Operation::AcceptMany { fd } => {
                self.registrations.open_flow(&self.set, token, fd, Items::Connections);
                Ok(())
            }
            Operation::ReceiveMany { fd, pool } => {
                self.registrations.open_flow(&self.set, token, fd, Items::Pieces(pool));
                Ok(())
            }
            Operation::Next { .. } => self.registrations.next(&self.set, token, operation),
            transfer => self.registrations.transfer(&self.set, token, transfer),
        };
        match submitted {
            Ok(()) => Ok(Submitted::Armed),
            Err((operation, errno)) => Err(Refused { operation, error: errno.into() }),
        }
    }

    /// One `epoll_ctl` if nobody else waits for the same. The descriptor may be closed as soon as
    /// this has returned.
    fn cancel(&mut self, token: Token) {
        self.registrations.cancel(&self.set, token);
    }

    /// One `epoll_pwait`, and one `epoll_ctl` for each event that leaves others waiting for the same
    /// descriptor. One `io_submit` after a look, and before a wait if the worker has looked since the
    /// last, if it looks from memory; no look where the memory says that there is nothing. Then at most 8 attempts, each with an `epoll_ctl` if it was in vain. A wait with a new deadline sets the timer first; one that is interrupted, or meets
    /// an event that concerns nobody, is made again for the time that is left. No call at all if
    /// nothing is in flight and nothing is to be waited for.
    ///
    /// It does not wait if completions are known already, or attempts are due. Then it does not look
    /// at the kernel either, but after 32 of them, or 20 µs, so that what ends at once costs no look
    /// and yet can't keep the reactor from it. Completions are reported in the order in which they
    /// became known.
    ///
    /// # Errors
    /// If the kernel refuses the wait, which it did not when the reactor was made.
    // Inlined: a dry look measured 118 ns so, as the bare system call, and 154 ns as a call, though
    // it is only 40 instructions. A return straight after a system call is dear; probably the kernel
    // has cleared the return predictor.
    #[inline]
    fn poll(&mut self, wait: Wait, found: &mut Completions) -> Result<Polled, io::Error> {
        if wait == Wait::Never && !self.has_work() {
            if self.registrations.waiters.waiting() == 0 || self.look()? == Looked::Dry {
                return Ok(Polled::default());
            }
            self.serve(ATTEMPTS, found);
        } else {
            let made = self.wait_or_go_on(wait)?;
            self.serve(ATTEMPTS - made, found);
        }
        Ok(Polled::default())
    }

    /// An eventfd, which the waker keeps open. A wake is one `write` of 8 bytes, and any number of
    /// them before a wait end it once.
    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.set.notifier))
    }
}

impl fmt::Debug for EpollReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpollReactor")
            .field("detail", &self.detail())
            .field("waiting", &self.registrations.waiters.waiting())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use evenkeel::io::Interest::{self, Readable, Writable};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn submit(reactor: &mut EpollReactor, index: u32, fd: RawFd, interest: Interest) {
        reactor
            .submit(Token::new(index, 0), Operation::Poll { fd, interest })
            .expect("there is room");
    }

    fn look(reactor: &mut EpollReactor) -> Vec<i32> {
        let mut found = Completions::new();
        reactor.poll(Wait::Never, &mut found).expect("the wait works");
        found.as_slice().iter().map(|completion| completion.result).collect()
    }

    fn event(count: u32) -> OwnedFd {
        eventfd(count, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd")
    }

    /// What the kernel watches this descriptor for, if it is in the set.
    fn watched_for(reactor: &EpollReactor, fd: &OwnedFd) -> Option<u32> {
        let info = format!("/proc/self/fdinfo/{}", reactor.set.epoll.as_raw_fd());
        let number = fd.as_raw_fd().to_string();
        fs::read_to_string(info).expect("it is readable").lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let named = words.next() == Some("tfd:") && words.next() == Some(&number);
            let events = words.nth(1).filter(|_| named)?;
            Some(u32::from_str_radix(events, 16).expect("it is hexadecimal") & 0x8000_ffff)
        })
    }

    #[test]
    fn numbers_of_its_own_are_not_watched_and_it_can_still_be_woken() {
        let mut reactor = EpollReactor::new().expect("epoll is there");
        let timer = watched_timer(&reactor);
        for number in
            [reactor.set.epoll.as_raw_fd(), reactor.set.notifier.eventfd.as_raw_fd(), timer]
        {
            submit(&mut reactor, 0, number, Readable);
            assert_eq!(look(&mut reactor), [-22], "EINVAL, as for the set itself");
            for operation in [Operation::Close { fd: number }, Operation::Accept { fd: number }] {
                reactor.submit(Token::new(0, 0), operation).expect("there is room");
                assert_eq!(look(&mut reactor), [-22], "nor used for anything else");
            }
        }
        reactor.notifier().wake();
        reactor.poll(Wait::Forever, &mut Completions::new()).expect("the wait works");
    }

    /// The number that is in a new set besides the notifier's.
    fn watched_timer(reactor: &EpollReactor) -> RawFd {
        let info = format!("/proc/self/fdinfo/{}", reactor.set.epoll.as_raw_fd());
        let text = fs::read_to_string(info).expect("it is readable");
        let mut words = text.lines().filter(|line| line.starts_with("tfd:")).map(|line| {
            line.split_whitespace().nth(1).expect("it is there").parse().expect("it is a number")
        });
        words.find(|&fd| fd != reactor.set.notifier.eventfd.as_raw_fd()).expect("there is a timer")
    }

    #[test]
    fn after_its_event_a_registration_is_silent() {
        let mut reactor = EpollReactor::new().expect("epoll is there");
        let event = event(1);
        submit(&mut reactor, 0, event.as_raw_fd(), Readable);
        assert_eq!(watched_for(&reactor, &event), Some(0x2019), "IN, RDHUP, ERR and HUP");
        assert_eq!(look(&mut reactor), [1]);
        assert_eq!(watched_for(&reactor, &event), Some(0));
    }

    /// An event that was not enough for all is followed by edges, and these concern nobody when the
    /// wait is over.
    #[test]
    fn after_edges_the_registration_is_gone() {
        let mut reactor = EpollReactor::new().expect("epoll is there");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let listener = OwnedFd::from(listener);
        let fd = listener.as_raw_fd();
        for index in 0..2 {
            let accept = Operation::Accept { fd };
            reactor.submit(Token::new(index, 0), accept).expect("there is room");
        }
        for watched in [Some(0x8000_0019), None] {
            let _peer = TcpStream::connect(address).expect("it listens");
            let accepted = look(&mut reactor);
            assert_eq!((accepted.len(), descriptor::close(accepted[0])), (1, 0));
            let now = watched_for(&reactor, &listener);
            assert_eq!(now, watched, "IN, ERR, HUP and edges while the second one waits");
        }
    }

    #[test]
    fn while_one_still_waits_it_is_armed_for_that_one() {
        let mut reactor = EpollReactor::new().expect("epoll is there");
        let event = event(0);
        submit(&mut reactor, 0, event.as_raw_fd(), Readable);
        submit(&mut reactor, 1, event.as_raw_fd(), Writable);
        assert_eq!(watched_for(&reactor, &event), Some(0x201d), "IN, OUT, RDHUP, ERR and HUP");
        assert_eq!(look(&mut reactor), [4]);
        assert_eq!(watched_for(&reactor, &event), Some(0x2019), "IN, RDHUP, ERR and HUP");
    }

    #[test]
    fn when_the_last_one_is_cancelled_the_registration_is_gone() {
        let mut reactor = EpollReactor::new().expect("epoll is there");
        let event = event(0);
        submit(&mut reactor, 0, event.as_raw_fd(), Readable);
        submit(&mut reactor, 1, event.as_raw_fd(), Writable);
        reactor.cancel(Token::new(1, 0));
        assert_eq!(watched_for(&reactor, &event), Some(0x2019), "IN, RDHUP, ERR and HUP");
        reactor.cancel(Token::new(0, 0));
        assert_eq!(watched_for(&reactor, &event), None);
        assert_eq!(look(&mut reactor), [-125, -125]);
    }
}
