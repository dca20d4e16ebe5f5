//! System calls on lent memory.
//!
//! A [`Memory`] reaches this module inside an operation that is in flight: an operation is dropped
//! with its report, or handed back if it was refused. So what is lent may be touched here.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::slice;

use evenkeel::io::{BufferPool, KernelAddress, Memory, Offset};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny};

/// Memory to be read into, as the kernel's vectors have it.
#[inline]
fn room(pieces: &mut [Memory]) -> &mut [IoSliceMut<'_>] {
    let count = pieces.len();
    // SAFETY: a `Memory` is laid out like an `iovec`, and so is an `IoSliceMut`. The memory is the
    // operation's alone. It may be uninitialised, but nobody here looks at it: the slices go to the
    // kernel, which writes.
    unsafe { slice::from_raw_parts_mut(pieces.as_mut_ptr().cast(), count) }
}

/// Memory to be written from, as the kernel's vectors have it.
#[inline]
fn bytes(pieces: &[Memory]) -> &[IoSlice<'_>] {
    // SAFETY: as above; it is initialised, by the promise of `Memory::new`.
    unsafe { slice::from_raw_parts(pieces.as_ptr().cast(), pieces.len()) }
}

/// An offset as `preadv2` takes it.
#[inline]
fn offset(at: Offset) -> u64 {
    at.bytes().unwrap_or(u64::MAX)
}

#[inline]
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    into: &mut [Memory],
    at: Offset,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    preadv2(fd, room(into), offset(at), flags)
}

#[inline]
pub(crate) fn write(
    fd: BorrowedFd<'_>,
    from: &[Memory],
    at: Offset,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    pwritev2(fd, bytes(from), offset(at), flags)
}

/// The first pieces in one message.
pub(crate) fn receive_vectored(
    fd: BorrowedFd<'_>,
    into: &mut [Memory],
    flags: RecvFlags,
) -> Result<usize, Errno> {
    let mut nothing = RecvAncillaryBuffer::default();
    rustix::net::recvmsg(fd, room(into), &mut nothing, flags).map(|message| message.bytes)
}

pub(crate) fn send_vectored(
    fd: BorrowedFd<'_>,
    from: &[Memory],
    flags: SendFlags,
) -> Result<usize, Errno> {
    rustix::net::sendmsg(fd, bytes(from), &mut SendAncillaryBuffer::default(), flags)
}

#[inline]
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    into: &mut Memory,
    flags: RecvFlags,
) -> Result<usize, Errno> {
    // SAFETY: the operation is in flight, and was given this to be written to.
    let room = unsafe { into.room() };
    rustix::net::recv(fd, room, flags).map(|(_, received)| received)
}

#[inline]
pub(crate) fn send(fd: BorrowedFd<'_>, from: &Memory, flags: SendFlags) -> Result<usize, Errno> {
    // SAFETY: the operation is in flight, and was given this to be read from.
    rustix::net::send(fd, unsafe { from.bytes() }, flags)
}

/// Into a buffer of the pool, which is taken for it, and kept if something was received.
pub(crate) fn receive_piece(
    fd: BorrowedFd<'_>,
    pool: &BufferPool,
    flags: RecvFlags,
) -> Result<(usize, Option<u16>), Errno> {
    let Some((number, mut memory)) = pool.take() else {
        // To say that there is none is the answer to a piece, not to its absence.
        let mut byte = [0];
        return match rustix::net::recv(fd, &mut byte, flags | RecvFlags::PEEK)? {
            (_, 0) => Ok((0, None)),
            _ => Err(Errno::NOBUFS),
        };
    };
    let received = receive(fd, &mut memory, flags);
    if received.is_ok_and(|bytes| bytes > 0) {
        return received.map(|bytes| (bytes, Some(number)));
    }
    // SAFETY: it was taken just now, and the call is over.
    unsafe { pool.give_back(number) };
    received.map(|bytes| (bytes, None))
}

/// With the sender's address, if it has one.
pub(crate) fn receive_from(
    fd: BorrowedFd<'_>,
    into: &mut Memory,
    flags: RecvFlags,
) -> Result<(usize, Option<KernelAddress>), Errno> {
    // SAFETY: the operation is in flight, and was given this to be written to.
    let room = unsafe { into.room() };
    rustix::net::recvfrom(fd, room, flags)
        .map(|(_, received, sender)| (received, sender.map(|sender| as_the_kernel_has_it(&sender))))
}

pub(crate) fn send_to(
    fd: BorrowedFd<'_>,
    from: &Memory,
    flags: SendFlags,
    to: &KernelAddress,
) -> Result<usize, Errno> {
    // SAFETY: the operation is in flight, and was given this to be read from.
    rustix::net::sendto(fd, unsafe { from.bytes() }, flags, &Target(to))
}

pub(crate) fn connect(fd: BorrowedFd<'_>, to: &KernelAddress) -> Result<(), Errno> {
    rustix::net::connect(fd, &Target(to))
}

/// An address as rustix wants it.
struct Target<'a>(&'a KernelAddress);

// SAFETY: it gives a pointer to as many bytes as it says, which last as long as the call.
unsafe impl SocketAddrArg for Target<'_> {
    unsafe fn with_sockaddr<R>(
        &self,
        call: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let bytes = self.0.as_bytes();
        let length = SocketAddrLen::try_from(bytes.len()).expect("an address is short");
        call(bytes.as_ptr().cast(), length)
    }
}

fn as_the_kernel_has_it(address: &SocketAddrAny) -> KernelAddress {
    let mut kernel = KernelAddress::room();
    let length = (address.addr_len() as usize).min(KernelAddress::ROOM);
    // SAFETY: so many bytes are initialised there, and there is room for them here.
    unsafe { address.as_ptr().cast::<u8>().copy_to_nonoverlapping(kernel.as_mut_ptr(), length) };
    kernel.set_length(length);
    kernel
}
