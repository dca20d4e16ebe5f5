#![forbid(unsafe_code)]
//! One attempt at an operation, which never waits.
//!
//! Each operation means what its call means on a descriptor that blocks, and here none may block. So:
//! - On sockets the call itself says so: `MSG_DONTWAIT`.
//! - `read` and `write` are `preadv2` and `pwritev2` with `RWF_NOWAIT`, which works on sockets, pipes and
//!   most files. What refuses that (a terminal, old kernels' sockets) is waited for first, and then the
//!   call is made with `O_NONBLOCK` set for its duration, if it is not set anyway.
//! - `accept` and `connect` know no such flag, so they are made like that at once.
//!
//! `O_NONBLOCK` belongs to the open description, so who shares that with another process may find it
//! set there for a microsecond. To be spared that, and three system calls, set it oneself.
//!
//! No `SIGPIPE`: on sockets `MSG_NOSIGNAL` says so, on pipes `RWF_NOSIGNAL` (Linux 6.18), and where that
//! is not known the signal is blocked meanwhile.

use std::net::Shutdown;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::slice;

use evenkeel::io::{Address, Interest, KernelAddress, Memory, Offset, Operation, SyncExtent};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fdatasync, fsync};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};

use crate::descriptor;
use crate::lent;
use crate::signals::without_sigpipe;

/// What an attempt came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// The operation is done, or has failed.
    Ended(i32),
    /// It has to wait until its descriptor is ready.
    NotYet,
    /// It has to wait for what no descriptor's readiness tells: room in another Unix socket, whose
    /// queue is full.
    Blocks,
}

impl Attempt {
    pub(crate) fn of(result: Result<i32, Errno>) -> Self {
        match result {
            Ok(number) => Self::Ended(number),
            Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => Self::NotYet,
            Err(errno) => Self::Ended(-errno.raw_os_error()),
        }
    }
}

/// What the result of an operation that has ended well is besides a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brings {
    Nothing,
    /// A descriptor, which is nobody's until it is reported.
    Descriptor,
}

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    New,
    /// An attempt was in vain, and the descriptor has been waited for since.
    Waited,
}

/// An operation that transfers something, or makes a connection, in several attempts if need be.
#[derive(Debug)]
pub(crate) struct Work {
    operation: Operation,
    stage: Stage,
}

/// What is known of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    no_signal: Flag,
}

/// Whether a flag is known there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flag {
    Untried,
    Known,
    Unknown,
}

impl Kernel {
    pub(crate) fn new() -> Self {
        Self { no_signal: Flag::Untried }
    }
}

const NO_SIGNAL: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x100);
pub(crate) const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The descriptor of an operation and what it has to be ready for; none of those that never wait for
/// one.
pub(crate) fn needs(operation: &Operation) -> Option<(RawFd, Interest)> {
    match *operation {
        Operation::Read { fd, .. }
        | Operation::ReadVectored { fd, .. }
        | Operation::Receive { fd, .. }
        | Operation::ReceiveFrom { fd, .. }
        | Operation::Accept { fd } => Some((fd, Interest::Readable)),
        Operation::Write { fd, .. }
        | Operation::WriteVectored { fd, .. }
        | Operation::Send { fd, .. }
        | Operation::SendTo { fd, .. }
        | Operation::Connect { fd, .. } => Some((fd, Interest::Writable)),
        _ => None,
    }
}

impl Work {
    pub(crate) fn new(operation: Operation) -> Self {
        Self { operation, stage: Stage::New }
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn operation_mut(&mut self) -> &mut Operation {
        &mut self.operation
    }

    pub(crate) fn into_operation(self) -> Operation {
        self.operation
    }

    /// Makes an attempt: one system call where the descriptor does not block, and a few where it does.
    pub(crate) fn attempt(&mut self, kernel: &mut Kernel) -> Attempt {
        let result = needs(&self.operation)
            .and_then(|(fd, _)| descriptor::borrow(fd))
            .ok_or(Errno::BADF)
            .and_then(|fd| retry_on_intr(|| self.call(fd, kernel)));
        let attempt = match result {
            Err(Errno::AGAIN) if self.waits_for_another() => Attempt::Blocks,
            result => Attempt::of(result),
        };
        if attempt == Attempt::NotYet {
            self.stage = Stage::Waited;
        }
        attempt
    }

    /// Makes the call on a thread that may wait and takes no signals. `EAGAIN` of one that is to be
    /// tried again after a while.
    pub(crate) fn block(&mut self, fd: Option<BorrowedFd<'_>>) -> Result<i32, Errno> {
        if let Operation::Close { fd } = self.operation {
            return Ok(descriptor::close(fd));
        }
        let Some(fd) = fd else { return Err(Errno::AGAIN) };
        let none = ReadWriteFlags::empty();
        retry_on_intr(|| match &mut self.operation {
            Operation::Read { into, at, .. } => {
                lent::read(fd, slice::from_mut(into), *at, none).map(count)
            }
            Operation::ReadVectored { into, at, .. } => {
                lent::read(fd, into.pieces_mut(), *at, none).map(count)
            }
            Operation::Write { from, at, .. } => {
                lent::write(fd, slice::from_ref(from), *at, none).map(count)
            }
            Operation::WriteVectored { from, at, .. } => {
                lent::write(fd, from.pieces(), *at, none).map(count)
            }
            Operation::Sync { extent: SyncExtent::All, .. } => fsync(fd).map(|()| 0),
            Operation::Sync { extent: SyncExtent::Data, .. } => fdatasync(fd).map(|()| 0),
            _ => Err(Errno::AGAIN),
        })
    }

    /// What it brings when it ends well.
    pub(crate) fn brings(&self) -> Brings {
        match self.operation {
            Operation::Accept { .. } => Brings::Descriptor,
            _ => Brings::Nothing,
        }
    }

    pub(crate) fn was_in_vain(&self) -> bool {
        self.stage == Stage::Waited
    }

    /// Whether it is to be tried even where others were tried in vain: until it was, there is nothing
    /// to wait for.
    pub(crate) fn begins_something(&self) -> bool {
        matches!(self.operation, Operation::Connect { .. })
    }

    /// What another Unix socket has no room for makes that one's descriptor wait, not this one's.
    fn waits_for_another(&self) -> bool {
        match &self.operation {
            Operation::Connect { .. } => true,
            Operation::SendTo { to, .. } => matches!(to.get(), Address::Unix(_)),
            _ => false,
        }
    }

    fn call(&mut self, fd: BorrowedFd<'_>, kernel: &mut Kernel) -> Result<i32, Errno> {
        let stage = self.stage;
        match &mut self.operation {
            Operation::Read { into, at, .. } => read(fd, slice::from_mut(into), *at, stage),
            Operation::ReadVectored { into, at, .. } => read(fd, into.pieces_mut(), *at, stage),
            Operation::Write { from, at, .. } => {
                write(fd, slice::from_ref(from), *at, stage, kernel)
            }
            Operation::WriteVectored { from, at, .. } => {
                write(fd, from.pieces(), *at, stage, kernel)
            }
            Operation::Receive { into, .. } => lent::receive(fd, into, RECEIVE).map(count),
            Operation::Send { from, .. } => lent::send(fd, from, SEND).map(count),
            Operation::ReceiveFrom { into, sender, .. } => {
                let (received, address) = lent::receive_from(fd, into, RECEIVE)?;
                if let Some(address) = address.and_then(|address| address.decode()) {
                    sender.put(Some(address));
                }
                Ok(count(received))
            }
            Operation::SendTo { from, to, .. } => {
                lent::send_to(fd, from, SEND, &KernelAddress::from(to.get())).map(count)
            }
            Operation::Accept { .. } => accept(fd),
            Operation::Connect { to, .. } => {
                let to = KernelAddress::from(to.get());
                match not_blocking(fd, || lent::connect(fd, &to)) {
                    // The first call has begun it, and this one is told how it went.
                    Err(Errno::ISCONN) if stage == Stage::Waited => Ok(0),
                    connected => connected.map(|()| 0),
                }
            }
            _ => unreachable!("these never wait for a descriptor"),
        }
    }
}

/// As a result; no transfer is larger than `MOST_BYTES`.
pub(crate) fn count(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Whether it is the flags that were refused.
fn refused_flags(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

fn read(fd: BorrowedFd<'_>, into: &mut [Memory], at: Offset, stage: Stage) -> Result<i32, Errno> {
    let mut result = lent::read(fd, into, at, ReadWriteFlags::NOWAIT);
    if result.is_err_and(refused_flags) {
        result = lent::receive_vectored(fd, into, RECEIVE);
        if result == Err(Errno::NOTSOCK) {
            result = match stage {
                Stage::New => Err(Errno::AGAIN),
                Stage::Waited => {
                    not_blocking(fd, || lent::read(fd, into, at, ReadWriteFlags::empty()))
                }
            };
        }
    }
    result.map(count)
}

fn write(
    fd: BorrowedFd<'_>,
    from: &[Memory],
    at: Offset,
    stage: Stage,
    kernel: &mut Kernel,
) -> Result<i32, Errno> {
    let empty = from.iter().all(|piece| piece.len() == 0);
    let current = at == Offset::CURRENT;
    let flags = ReadWriteFlags::NOWAIT;
    // Of no bytes `pwritev2` asks no driver, and a socket of datagrams has one to send.
    if kernel.no_signal != Flag::Unknown && !empty {
        let result = lent::write(fd, from, at, flags | NO_SIGNAL);
        if !result.is_err_and(refused_flags) {
            kernel.no_signal = Flag::Known;
            return result.map(count);
        }
    }
    if current {
        let result = lent::send_vectored(fd, from, SEND);
        if result != Err(Errno::NOTSOCK) {
            return result.map(count);
        }
    }
    let result = without_sigpipe(|| lent::write(fd, from, at, flags));
    if !result.is_err_and(refused_flags) {
        if kernel.no_signal == Flag::Untried && !empty {
            kernel.no_signal = Flag::Unknown;
        }
        return result.map(count);
    }
    match stage {
        Stage::New => Err(Errno::AGAIN),
        Stage::Waited => not_blocking(fd, || {
            without_sigpipe(|| lent::write(fd, from, at, ReadWriteFlags::empty()))
        })
        .map(count),
    }
}

pub(crate) fn accept(fd: BorrowedFd<'_>) -> Result<i32, Errno> {
    not_blocking(fd, || accept_with(fd, SocketFlags::CLOEXEC)).map(IntoRawFd::into_raw_fd)
}

/// Makes a call that waits only on a descriptor that blocks, and lets this one not block meanwhile.
fn not_blocking<T>(
    fd: BorrowedFd<'_>,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let flags = fcntl_getfl(fd)?;
    if flags.contains(OFlags::NONBLOCK) {
        return call();
    }
    fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    let result = call();
    // It has worked just now.
    let _ = fcntl_setfl(fd, flags);
    result
}

/// shutdown(2), which never waits.
pub(crate) fn shutdown(fd: RawFd, how: Shutdown) -> i32 {
    let how = match how {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    let done =
        descriptor::borrow(fd).ok_or(Errno::BADF).and_then(|fd| rustix::net::shutdown(fd, how));
    result_of(done)
}

/// As a result.
pub(crate) fn result_of(done: Result<(), Errno>) -> i32 {
    done.map_or_else(|errno| -errno.raw_os_error(), |()| 0)
}
