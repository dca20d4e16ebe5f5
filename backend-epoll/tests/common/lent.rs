//! Operations on memory that a test lends.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use evenkeel::io::{Address, Memory, MemoryList, Offset, Operation, Place};
use evenkeel::{Reactor, Submitted, Wait};
use evenkeel_epoll::EpollReactor;

use super::common::{after, now, poll, token};

/// Lends it to an operation. The test keeps it in place, and untouched, until that has ended.
pub(crate) fn memory(bytes: &mut [u8]) -> Memory {
    // SAFETY: by the test, as said above.
    unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len()) }
}

/// Lends bytes that are only read.
pub(crate) fn text(bytes: &'static [u8]) -> Memory {
    // SAFETY: they are there for ever, and nobody writes to them.
    unsafe { Memory::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

pub(crate) fn list(pieces: &mut [Memory]) -> MemoryList {
    // SAFETY: by the test, as for `memory`.
    unsafe { MemoryList::new(NonNull::new(pieces.as_mut_ptr()).expect("a place"), pieces.len()) }
}

pub(crate) fn place<T>(value: &mut T) -> Place<T> {
    // SAFETY: by the test, as for `memory`.
    unsafe { Place::new(NonNull::from(value)) }
}

pub(crate) fn receive(fd: &impl AsRawFd, into: &mut [u8]) -> Operation {
    Operation::Receive { fd: fd.as_raw_fd(), into: memory(into) }
}

pub(crate) fn send(fd: &impl AsRawFd, from: &'static [u8]) -> Operation {
    Operation::Send { fd: fd.as_raw_fd(), from: text(from) }
}

pub(crate) fn read(fd: &impl AsRawFd, into: &mut [u8]) -> Operation {
    Operation::Read { fd: fd.as_raw_fd(), into: memory(into), at: Offset::CURRENT }
}

pub(crate) fn write(fd: &impl AsRawFd, from: &'static [u8]) -> Operation {
    Operation::Write { fd: fd.as_raw_fd(), from: text(from), at: Offset::CURRENT }
}

pub(crate) fn connect(fd: RawFd, to: &mut Address) -> Operation {
    Operation::Connect { fd, to: place(to) }
}

pub(crate) fn start(reactor: &mut EpollReactor, index: u32, operation: Operation) {
    let submitted = reactor.submit(token(index), operation);
    assert_eq!(submitted.expect("there is room"), Submitted::Armed);
}

/// Long enough for what comes.
pub(crate) fn in_time() -> Wait {
    Wait::Until(after(Duration::from_secs(10)))
}

/// What a wait finds, which ends by that and not by its deadline.
pub(crate) fn ended(reactor: &mut EpollReactor) -> Vec<(usize, i32)> {
    let wait = in_time();
    let found = poll(reactor, wait);
    let Wait::Until(deadline) = wait else { unreachable!("it has one") };
    assert!(now() < deadline, "the time is over, with {found:?}");
    found
}

/// Submits one operation and waits for its end, while no other ends.
pub(crate) fn run(reactor: &mut EpollReactor, operation: Operation) -> i32 {
    start(reactor, 99, operation);
    match ended(reactor)[..] {
        [(99, result)] => result,
        ref found => panic!("one ends: {found:?}"),
    }
}
