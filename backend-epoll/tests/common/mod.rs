//! What the tests share.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::Command;
use std::time::Duration;

use evenkeel::io::{Interest, Operation};
use evenkeel::{Clock, Completions, Instant, MonotonicClock, Reactor, Submitted, Token, Wait};
use evenkeel_epoll::{EpollReactor, Looks};
use rustix::event::{EventfdFlags, eventfd};

pub(crate) const POLLIN: i32 = 1;
pub(crate) const POLLOUT: i32 = 4;
pub(crate) const POLLERR: i32 = 8;
pub(crate) const POLLHUP: i32 = 16;
pub(crate) const POLLRDHUP: i32 = 0x2000;
pub(crate) const EBADF: i32 = 9;
pub(crate) const ECANCELED: i32 = 125;

pub(crate) fn reactor() -> EpollReactor {
    EpollReactor::new().expect("epoll is there")
}

/// One that knows of events by a look alone.
pub(crate) fn without_memory() -> EpollReactor {
    EpollReactor::builder().at_most(Looks::BySystemCall).build().expect("epoll is there")
}

pub(crate) fn token(index: u32) -> Token {
    Token::new(index, 1)
}

/// An eventfd with this count: readable unless it is 0, and always writable.
pub(crate) fn event(count: u32) -> OwnedFd {
    eventfd(count, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd")
}

pub(crate) fn signal(event: &OwnedFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).expect("its count is not full");
}

/// A duplicate at exactly this number, which is the caller's own among the tests of one file.
pub(crate) fn at(number: RawFd, descriptor: &OwnedFd) -> OwnedFd {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(descriptor, number).expect("it is open");
    assert_eq!(duplicate.as_raw_fd(), number, "the number is free");
    duplicate
}

/// Submits a poll, which is armed or ends at once.
pub(crate) fn submit(reactor: &mut EpollReactor, index: u32, fd: RawFd, interest: Interest) {
    let submitted = reactor.submit(token(index), Operation::Poll { fd, interest });
    assert_eq!(submitted.expect("there is room"), Submitted::Armed);
}

pub(crate) fn watch(reactor: &mut EpollReactor, index: u32, fd: &impl AsRawFd, interest: Interest) {
    submit(reactor, index, fd.as_raw_fd(), interest);
}

/// What one poll finds: the tokens' indices and the results.
pub(crate) fn poll(reactor: &mut EpollReactor, wait: Wait) -> Vec<(usize, i32)> {
    let mut found = Completions::new();
    reactor.poll(wait, &mut found).expect("the wait works");
    found.as_slice().iter().map(|found| (found.token.index(), found.result)).collect()
}

pub(crate) fn look(reactor: &mut EpollReactor) -> Vec<(usize, i32)> {
    poll(reactor, Wait::Never)
}

/// Runs one test of this file again, in a process of its own which finds `role` in its environment.
pub(crate) fn child(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it has a name"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// The role that [`child`] gave this process.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

const ROLE: &str = "EVENKEEL_EPOLL_TEST_ROLE";

/// A deadline: this long from now.
pub(crate) fn after(span: Duration) -> Instant {
    now() + span
}

pub(crate) fn now() -> Instant {
    MonotonicClock::new().now()
}
