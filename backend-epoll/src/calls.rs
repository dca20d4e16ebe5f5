#![forbid(unsafe_code)]
//! The calls that operations are made of, so that none waits.
//!
//! Each operation means what its call means on a descriptor that blocks, and here none may block. So:
//! - On sockets the call itself says so: `MSG_DONTWAIT`.
//! - `read` and `write` are `preadv2` and `pwritev2` with `RWF_NOWAIT`, which works on sockets, pipes and
//!   most files. What refuses that (a terminal, old kernels' sockets) is waited for first, and then the
//!   call is made with `O_NONBLOCK` set for its duration, if it is not set anyway.
//! - `accept` and `connect` know no such flag, so they are made like that at once.
//!
//! `O_NONBLOCK` belongs to the open description. Workers that share one, as a listener, take turns by a
//! lock: or one would find it set by another, take it for the descriptor's own, and be in the call when
//! the other has put it back. Who shares it otherwise, in another process or by calls of one's own,
//! may find it set for a microsecond. To be spared that, the lock, and three system calls, set it oneself.
//!
//! No `SIGPIPE`: on sockets `MSG_NOSIGNAL` says so, on pipes `RWF_NOSIGNAL` (Linux 6.18), and where that
//! is not known the signal is blocked meanwhile.

use std::net::Shutdown;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::{Mutex, PoisonError};

use evenkeel::io::{Memory, Offset};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};

use crate::descriptor;
use crate::lent;
use crate::signals::without_sigpipe;

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
pub(crate) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// How far an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    New,
    /// An attempt was in vain, and the descriptor has been waited for since.
    Waited,
}

/// As a result; no transfer is larger than `MOST_BYTES`.
pub(crate) fn count(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// Whether it is the flags that were refused.
fn refused_flags(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS)
}

pub(crate) fn read(
    fd: BorrowedFd<'_>,
    into: &mut [Memory],
    at: Offset,
    stage: Stage,
) -> Result<i32, Errno> {
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

pub(crate) fn write(
    fd: BorrowedFd<'_>,
    from: &[Memory],
    at: Offset,
    stage: Stage,
    kernel: &mut Kernel,
) -> Result<i32, Errno> {
    let empty = from.iter().all(|piece| piece.len() == 0);
    let flags = ReadWriteFlags::NOWAIT;
    // Of no bytes `pwritev2` asks no driver, and a socket of datagrams has one to send.
    if kernel.no_signal != Flag::Unknown && !empty {
        let result = lent::write(fd, from, at, flags | NO_SIGNAL);
        if !result.is_err_and(refused_flags) {
            kernel.no_signal = Flag::Known;
            return result.map(count);
        }
    }
    // Where the one flag is known, it is the other one that this descriptor refuses.
    if kernel.no_signal != Flag::Known || empty {
        if at == Offset::CURRENT {
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
pub(crate) fn not_blocking<T>(
    fd: BorrowedFd<'_>,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // Nothing waits under it, and nothing panics.
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = fcntl_getfl(fd)?;
    if flags.contains(OFlags::NONBLOCK) {
        drop(turn);
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
