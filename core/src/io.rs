#![forbid(unsafe_code)]
//! The operations on file descriptors that the Linux reactors share, and mean the same by.

use std::os::fd::RawFd;

/// What can be asked of a reactor on Linux.
///
/// The descriptor is a number here, as in the kernel's own interface: a closed or wrong one is an
/// error when the operation is submitted or completes, never undefined behaviour. One that is closed
/// while an operation waits for it may end the operation or not, as the reactor says; the futures of
/// [`Handle`](crate::Handle) hold on to what they are given, so it does not happen to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

/// What a descriptor is to be ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Interest {
    /// A read would not block.
    Readable,
    /// A write would not block.
    Writable,
}
