#![forbid(unsafe_code)]
//! The operations that the Linux reactors share, and mean the same by.

use core::fmt;
use std::net::Shutdown;
use std::os::fd::RawFd;

use super::address::Address;
use super::memory::{Memory, MemoryList, Place};
use super::pool::BufferPool;
use crate::reactor::Token;

/// What can be asked of a reactor on Linux.
///
/// Each means what the system call of that name means on a *blocking* descriptor, whether this one
/// blocks or not: the operation ends when it is done, or has failed, and until then the worker goes on.
/// The result is the call's: a number of bytes, a descriptor, 0, or a negative error number. A
/// transfer may be partial, and one of no bytes at all is made all the same. No operation raises
/// `SIGPIPE`, except a write over `io_uring` before Linux 6.18, in a program that does not ignore it as
/// Rust's do. One that a signal interrupts goes on.
///
/// The descriptor is a number here, as in the kernel's own interface: a closed or wrong one is an
/// error when the operation is submitted or completes, never undefined behaviour. It has to stay open
/// while the operation is in flight; when [`Reactor::cancel`](crate::Reactor::cancel) has returned,
/// or the completion was reported, the reactor doesn't use the number any more, so it may be closed.
/// The futures of [`Handle`](crate::Handle) hold on to what they are given, and see to it.
///
/// Memory is lent, by the promise made with [`Memory::new`]. A reactor that is dropped while the
/// kernel may still write to some keeps whatever of its own the kernel needs for it.
#[derive(Debug)]
pub enum Operation {
    /// Waits until the descriptor is ready, once. The result is the set of poll(2)'s `POLL*` bits
    /// that are there, or a negative error number. An error (`POLLERR`), a hang-up (`POLLHUP`) and
    /// the peer's half-close (`POLLRDHUP`) count as ready in both directions.
    Poll {
        /// The descriptor.
        fd: RawFd,
        /// Ready for what.
        interest: Interest,
    },
    /// read(2), pread(2).
    Read {
        /// The descriptor, of anything.
        fd: RawFd,
        /// Where the bytes go.
        into: Memory,
        /// From where in the file.
        at: Offset,
    },
    /// write(2), pwrite(2).
    Write {
        /// The descriptor, of anything.
        fd: RawFd,
        /// The bytes.
        from: Memory,
        /// To where in the file.
        at: Offset,
    },
    /// readv(2), preadv(2).
    ReadVectored {
        /// The descriptor, of anything.
        fd: RawFd,
        /// Where the bytes go, one piece after the other.
        into: MemoryList,
        /// From where in the file.
        at: Offset,
    },
    /// writev(2), pwritev(2).
    WriteVectored {
        /// The descriptor, of anything.
        fd: RawFd,
        /// The bytes.
        from: MemoryList,
        /// To where in the file.
        at: Offset,
    },
    /// recv(2).
    Receive {
        /// The socket.
        fd: RawFd,
        /// Where the bytes go.
        into: Memory,
    },
    /// send(2).
    Send {
        /// The socket.
        fd: RawFd,
        /// The bytes.
        from: Memory,
    },
    /// recvfrom(2).
    ReceiveFrom {
        /// The socket.
        fd: RawFd,
        /// Where the bytes go.
        into: Memory,
        /// Where the sender's address goes; `None` stays if it has none, or one of a kind that
        /// [`Address`] does not know.
        sender: Place<Option<Address>>,
    },
    /// sendto(2).
    SendTo {
        /// The socket.
        fd: RawFd,
        /// The bytes.
        from: Memory,
        /// The receiver.
        to: Place<Address>,
    },
    /// accept4(2). The new descriptor blocks, and is not inherited by a program that is started.
    Accept {
        /// The listener.
        fd: RawFd,
    },
    /// connect(2).
    Connect {
        /// The socket.
        fd: RawFd,
        /// The peer.
        to: Place<Address>,
    },
    /// shutdown(2).
    Shutdown {
        /// The socket.
        fd: RawFd,
        /// Which direction.
        how: Shutdown,
    },
    /// fsync(2), fdatasync(2).
    Sync {
        /// The file.
        fd: RawFd,
        /// How much of it.
        extent: SyncExtent,
    },
    /// close(2). When it ends, other than by a cancel, the number is free.
    Close {
        /// The descriptor.
        fd: RawFd,
    },
    /// Opens a *flow* of connections: from now on the reactor may accept ahead of who takes them. It
    /// ends, with `-ECANCELED`, when it is cancelled, and what was not taken is closed. Each of the
    /// flow's items is taken by a [`Next`](Self::Next) with this operation's token.
    AcceptMany {
        /// The listener.
        fd: RawFd,
    },
    /// Opens a *flow* of received pieces, each in a buffer of the pool: from now on the reactor may
    /// receive ahead of who takes them. It ends, with `-ECANCELED`, when it is cancelled, and what was
    /// not taken is lost.
    ReceiveMany {
        /// The socket.
        fd: RawFd,
        /// Where buffers are taken from.
        pool: BufferPool,
    },
    /// Takes the next item of a flow, when there is one: the result is what the single operation
    /// would have had. After an error or, of a flow of received pieces, the end of the stream (0), the
    /// next one tries anew. When its flow ends it ends with `-ECANCELED`; `-EBADF` if there is no such
    /// flow. Cancelled, it leaves the item to the next one.
    Next {
        /// The flow.
        flow: Token,
        /// Of a flow of received pieces: where the number of the buffer goes, which is then the
        /// taker's. `None` stays if the result is 0 or an error.
        buffer: Place<Option<u16>>,
    },
}

/// What a descriptor is to be ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Interest {
    /// A read would not block.
    Readable,
    /// A write would not block.
    Writable,
}

/// How much of a file is to be on its storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SyncExtent {
    /// All that is known of it: fsync(2).
    All,
    /// The bytes, and what is needed to read them again: fdatasync(2).
    Data,
}

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Offset(i64);

impl Offset {
    /// Where the descriptor stands, and moves on by what is transferred. For what has no offset, as a
    /// socket or a pipe, there is no other.
    pub const CURRENT: Self = Self(-1);

    /// So many bytes from the start; the descriptor's own place is left alone. None if the kernel
    /// has no such offset: above 2^63 - 1.
    #[must_use]
    pub fn at(bytes: u64) -> Option<Self> {
        i64::try_from(bytes).ok().map(Self)
    }

    /// So many bytes from the start, unless it is the current place.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        u64::try_from(self.0).ok()
    }

    /// As the kernel's rings take it: -1 is the current place.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "Offset({bytes})"),
            None => f.write_str("Offset::CURRENT"),
        }
    }
}
