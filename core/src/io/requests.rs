//! What can be asked for: each request holds what the kernel needs, and says what comes of it.

use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::address::Address;
use super::buffer::{Buffer, BufferMut};
use super::flow::Ticket;
use super::future::sealed::Request;
use super::memory::{Memory, MemoryList, Place};
use super::operation::{Offset, Operation, SyncExtent};
use super::pool::{BufferPool, Received};
use crate::reactor::Token;

/// `EINVAL` of Linux.
const INVALID: i32 = 22;
/// `ECANCELED` of Linux.
const CANCELED: i32 = 125;

/// Memory to be written from.
///
/// # Safety
/// The buffer stays where it is, and untouched, until the operation has ended.
unsafe fn lend<B: Buffer>(buffer: &B) -> Memory {
    // SAFETY: by the promise of `Buffer`; it is only read from.
    unsafe { Memory::new(buffer.start().cast_mut(), buffer.filled()) }
}

/// Memory to be read into.
///
/// # Safety
/// The buffer stays where it is, and untouched, until the operation has ended.
unsafe fn lend_mut<B: BufferMut>(buffer: &mut B) -> Memory {
    let capacity = buffer.capacity();
    // SAFETY: by the promise of `BufferMut`.
    unsafe { Memory::new(buffer.start_mut(), capacity) }
}

fn count(result: i32) -> usize {
    usize::try_from(result).expect("a count is not negative")
}

/// The offset that was asked for; an error if the kernel has none like it.
fn known(at: Option<Offset>) -> io::Result<Offset> {
    at.ok_or_else(|| io::Error::from_raw_os_error(INVALID))
}

/// What was read into a buffer counts as filled.
fn filled<B: BufferMut>(mut buffer: B, result: io::Result<i32>) -> (io::Result<usize>, B) {
    let result = result.map(count);
    if let Ok(read) = result {
        assert!(read <= buffer.capacity(), "a reactor reads no more than there is room for");
        // SAFETY: so many bytes were written, by the promise of `IoReactor`.
        unsafe { buffer.set_filled(read) };
    }
    (result, buffer)
}

/// read(2), pread(2).
#[derive(Debug)]
pub struct Read<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
    pub(super) at: Option<Offset>,
}

impl<B: BufferMut> Request for Read<B> {
    type Output = (io::Result<usize>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        let at = known(self.at)?;
        // SAFETY: it stays in its slot until the operation has ended.
        let into = unsafe { lend_mut(&mut self.buffer) };
        Ok(Operation::Read { fd: self.fd, into, at })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        filled(self.buffer, result)
    }
}

/// write(2), pwrite(2).
#[derive(Debug)]
pub struct Write<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
    pub(super) at: Option<Offset>,
}

impl<B: Buffer> Request for Write<B> {
    type Output = (io::Result<usize>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        let at = known(self.at)?;
        // SAFETY: it stays in its slot until the operation has ended.
        let from = unsafe { lend(&self.buffer) };
        Ok(Operation::Write { fd: self.fd, from, at })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        (result.map(count), self.buffer)
    }
}

/// recv(2).
#[derive(Debug)]
pub struct Receive<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
}

impl<B: BufferMut> Request for Receive<B> {
    type Output = (io::Result<usize>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: it stays in its slot until the operation has ended.
        let into = unsafe { lend_mut(&mut self.buffer) };
        Ok(Operation::Receive { fd: self.fd, into })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        filled(self.buffer, result)
    }
}

/// send(2).
#[derive(Debug)]
pub struct Send<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
}

impl<B: Buffer> Request for Send<B> {
    type Output = (io::Result<usize>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: it stays in its slot until the operation has ended.
        let from = unsafe { lend(&self.buffer) };
        Ok(Operation::Send { fd: self.fd, from })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        (result.map(count), self.buffer)
    }
}

/// recvfrom(2).
#[derive(Debug)]
pub struct ReceiveFrom<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
    pub(super) sender: Option<Address>,
}

impl<B: BufferMut> Request for ReceiveFrom<B> {
    type Output = (io::Result<(usize, Option<Address>)>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: both stay in their slot, untouched, until the operation has ended.
        let (into, sender) =
            unsafe { (lend_mut(&mut self.buffer), Place::new(NonNull::from(&mut self.sender))) };
        Ok(Operation::ReceiveFrom { fd: self.fd, into, sender })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        let (result, buffer) = filled(self.buffer, result);
        (result.map(|read| (read, self.sender)), buffer)
    }
}

/// sendto(2).
#[derive(Debug)]
pub struct SendTo<B> {
    pub(super) fd: RawFd,
    pub(super) buffer: B,
    pub(super) to: Address,
}

impl<B: Buffer> Request for SendTo<B> {
    type Output = (io::Result<usize>, B);

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: both stay in their slot, untouched, until the operation has ended.
        let (from, to) = unsafe { (lend(&self.buffer), Place::new(NonNull::from(&mut self.to))) };
        Ok(Operation::SendTo { fd: self.fd, from, to })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        (result.map(count), self.buffer)
    }
}

/// readv(2), preadv(2).
pub struct ReadVectored<B, const N: usize> {
    pub(super) fd: RawFd,
    pub(super) buffers: [B; N],
    pub(super) at: Option<Offset>,
    pub(super) pieces: [MaybeUninit<Memory>; N],
}

impl<B: BufferMut, const N: usize> Request for ReadVectored<B, N> {
    type Output = (io::Result<usize>, [B; N]);

    fn operation(&mut self) -> io::Result<Operation> {
        let at = known(self.at)?;
        for (piece, buffer) in self.pieces.iter_mut().zip(&mut self.buffers) {
            // SAFETY: it stays in its slot until the operation has ended.
            piece.write(unsafe { lend_mut(buffer) });
        }
        let first = NonNull::from(&mut self.pieces).cast();
        // SAFETY: all of them were written just now; they stay too.
        let into = unsafe { MemoryList::new(first, N) };
        Ok(Operation::ReadVectored { fd: self.fd, into, at })
    }

    fn finish(mut self, result: io::Result<i32>) -> Self::Output {
        let result = result.map(count);
        let mut left = *result.as_ref().unwrap_or(&0);
        for buffer in &mut self.buffers {
            let here = left.min(buffer.capacity());
            // SAFETY: by the promise of `IoReactor` so many bytes were written in all, and one buffer
            // is full before the next is begun.
            unsafe { buffer.set_filled(here) };
            left -= here;
        }
        assert!(left == 0, "a reactor reads no more than there is room for");
        (result, self.buffers)
    }
}

/// writev(2), pwritev(2).
pub struct WriteVectored<B, const N: usize> {
    pub(super) fd: RawFd,
    pub(super) buffers: [B; N],
    pub(super) at: Option<Offset>,
    pub(super) pieces: [MaybeUninit<Memory>; N],
}

impl<B: Buffer, const N: usize> Request for WriteVectored<B, N> {
    type Output = (io::Result<usize>, [B; N]);

    fn operation(&mut self) -> io::Result<Operation> {
        let at = known(self.at)?;
        for (piece, buffer) in self.pieces.iter_mut().zip(&self.buffers) {
            // SAFETY: it stays in its slot until the operation has ended.
            piece.write(unsafe { lend(buffer) });
        }
        let first = NonNull::from(&mut self.pieces).cast();
        // SAFETY: all of them were written just now; they stay too.
        let from = unsafe { MemoryList::new(first, N) };
        Ok(Operation::WriteVectored { fd: self.fd, from, at })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        (result.map(count), self.buffers)
    }
}

/// accept(2). A connection that nobody waits for any more is closed.
#[derive(Debug)]
pub struct Accept {
    pub(super) fd: RawFd,
}

/// The descriptor that an operation has brought.
fn brought(result: io::Result<i32>) -> io::Result<OwnedFd> {
    // SAFETY: it is open and nobody else's, by the promise of `IoReactor`.
    result.map(|number| unsafe { OwnedFd::from_raw_fd(number) })
}

impl Request for Accept {
    type Output = io::Result<OwnedFd>;

    fn operation(&mut self) -> io::Result<Operation> {
        Ok(Operation::Accept { fd: self.fd })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        brought(result)
    }
}

/// connect(2).
#[derive(Debug)]
pub struct Connect {
    pub(super) fd: RawFd,
    pub(super) to: Address,
}

impl Request for Connect {
    type Output = io::Result<()>;

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: it stays in its slot, untouched, until the operation has ended.
        let to = unsafe { Place::new(NonNull::from(&mut self.to)) };
        Ok(Operation::Connect { fd: self.fd, to })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        result.map(drop)
    }
}

/// shutdown(2), fsync(2), fdatasync(2): what has no result but an error.
#[derive(Debug)]
pub struct Effect {
    pub(super) fd: RawFd,
    pub(super) kind: EffectKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EffectKind {
    Shutdown(Shutdown),
    Sync(SyncExtent),
}

impl Request for Effect {
    type Output = io::Result<()>;

    fn operation(&mut self) -> io::Result<Operation> {
        let fd = self.fd;
        Ok(match self.kind {
            EffectKind::Shutdown(how) => Operation::Shutdown { fd, how },
            EffectKind::Sync(extent) => Operation::Sync { fd, extent },
        })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        result.map(drop)
    }
}

/// close(2). Cancelled, or not begun, the descriptor is closed all the same, by a system call here.
#[derive(Debug)]
pub struct Close {
    pub(super) fd: Option<OwnedFd>,
    /// The reactor has it.
    pub(super) begun: Begun,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    No,
    Yes,
}

impl Request for Close {
    type Output = io::Result<()>;

    fn operation(&mut self) -> io::Result<Operation> {
        let fd = self.fd.as_ref().expect("it is there until the end").as_raw_fd();
        self.begun = Begun::Yes;
        Ok(Operation::Close { fd })
    }

    fn refused(&mut self) {
        self.begun = Begun::No;
    }

    fn finish(mut self, result: io::Result<i32>) -> Self::Output {
        let cancelled = matches!(&result, Err(error) if error.raw_os_error() == Some(CANCELED));
        let fd = self.fd.take().expect("it is there until the end");
        if self.begun == Begun::Yes && !cancelled {
            // The number is free, and may be another's by now.
            let _closed = fd.into_raw_fd();
        }
        result.map(drop)
    }
}

/// A flow of connections: what [`Accepts`](super::Accepts) is over.
#[derive(Debug)]
pub struct AcceptMany {
    pub(super) fd: RawFd,
}

impl Request for AcceptMany {
    type Output = io::Result<()>;

    fn operation(&mut self) -> io::Result<Operation> {
        Ok(Operation::AcceptMany { fd: self.fd })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        result.map(drop)
    }
}

/// A flow of received pieces: what [`Receives`](super::Receives) is over.
#[derive(Debug)]
pub struct ReceiveMany {
    pub(super) fd: RawFd,
    pub(super) pool: BufferPool,
}

impl Request for ReceiveMany {
    type Output = io::Result<()>;

    fn operation(&mut self) -> io::Result<Operation> {
        Ok(Operation::ReceiveMany { fd: self.fd, pool: self.pool.clone() })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        result.map(drop)
    }
}

/// The next connection of a flow.
#[derive(Debug)]
pub struct NextAccepted {
    pub(super) flow: Token,
    pub(super) unused: Option<u16>,
    pub(super) ticket: Ticket<OwnedFd>,
}

impl Request for NextAccepted {
    type Output = io::Result<OwnedFd>;

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: it stays in its slot, untouched, until the operation has ended.
        let buffer = unsafe { Place::new(NonNull::from(&mut self.unused)) };
        Ok(Operation::Next { flow: self.flow, buffer })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        brought(result)
    }

    fn abandon(self, result: io::Result<i32>) {
        if let Ok(connection) = brought(result) {
            self.ticket.leave(connection);
        }
    }
}

/// The next piece of a flow.
#[derive(Debug)]
pub struct NextReceived {
    pub(super) flow: Token,
    pub(super) pool: BufferPool,
    pub(super) buffer: Option<u16>,
    pub(super) ticket: Ticket<Received>,
}

impl NextReceived {
    fn piece(&self, result: io::Result<i32>) -> io::Result<Option<Received>> {
        let length = count(result?);
        // SAFETY: the number came with the completion, by the promise of `IoReactor`, and so many
        // bytes were written. This is called once, at the operation's end.
        Ok(self.buffer.map(|number| unsafe { self.pool.received(number, length) }))
    }
}

impl Request for NextReceived {
    /// None at the end of the stream.
    type Output = io::Result<Option<Received>>;

    fn operation(&mut self) -> io::Result<Operation> {
        // SAFETY: it stays in its slot, untouched, until the operation has ended.
        let buffer = unsafe { Place::new(NonNull::from(&mut self.buffer)) };
        Ok(Operation::Next { flow: self.flow, buffer })
    }

    fn finish(self, result: io::Result<i32>) -> Self::Output {
        self.piece(result)
    }

    fn abandon(self, result: io::Result<i32>) {
        if let Ok(Some(piece)) = self.piece(result) {
            self.ticket.leave(piece);
        }
    }
}
