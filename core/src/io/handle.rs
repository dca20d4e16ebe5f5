#![forbid(unsafe_code)]
//! The operations that a worker's handle offers.

use core::mem::MaybeUninit;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::IoReactor;
use super::address::Address;
use super::buffer::{Buffer, BufferMut};
use super::flow::{Accepts, Receives};
use super::future::Io;
use super::operation::{Interest, Offset, Operation, SyncExtent};
use super::pool::BufferPool;
use super::requests::{
    Accept, Begun, Close, Connect, Effect, EffectKind, Read, ReadVectored, Receive, ReceiveFrom,
    Send, SendTo, Write, WriteVectored,
};
use crate::handle::{Handle, SubmitError};
use crate::operation::Orphaned;
use crate::reactor::Reactor;

impl<R: Reactor<Operation = Operation, Error = io::Error> + 'static> Handle<R> {
    /// Waits until a descriptor is ready, once; gives poll(2)'s `POLL*` bits that are there. An
    /// error, a hang-up or the peer's half-close counts as ready.
    ///
    /// The descriptor is held until the wait ends or is dropped, so it can't be closed under
    /// the operation. Allocates nothing; at most one system call, when first polled.
    ///
    /// # Errors
    /// What the reactor says: a descriptor that is none, no room for another operation, a
    /// worker that has ended.
    pub async fn ready(&self, fd: impl AsFd, interest: Interest) -> io::Result<u32> {
        let operation = Operation::Poll { fd: fd.as_fd().as_raw_fd(), interest };
        let result = self.submit(operation).map_err(into_io)?.await.map_err(orphaned)?;
        u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }

    /// Waits until a read would not block: [`ready`](Self::ready).
    ///
    /// # Errors
    /// As `ready`.
    pub async fn readable(&self, fd: impl AsFd) -> io::Result<u32> {
        self.ready(fd, Interest::Readable).await
    }

    /// Waits until a write would not block: [`ready`](Self::ready).
    ///
    /// # Errors
    /// As `ready`.
    pub async fn writable(&self, fd: impl AsFd) -> io::Result<u32> {
        self.ready(fd, Interest::Writable).await
    }
}

fn into_io(error: SubmitError<Operation, io::Error>) -> io::Error {
    match error {
        SubmitError::Refused { error, .. } => error,
        SubmitError::Full { .. } => io::Error::new(io::ErrorKind::QuotaExceeded, error.to_string()),
        SubmitError::Ended(_) => io::Error::new(io::ErrorKind::NotConnected, error.to_string()),
    }
}

fn orphaned(error: Orphaned) -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, error)
}

/// Operations on descriptors: of anything that is [`AsFd`], of the standard library or not, whether it
/// blocks or not. What is given by reference is borrowed, what is given by value is held and dropped
/// with the future.
///
/// Each method gives an [`Io`], which says how it is cancelled and what may go wrong. Buffers move in
/// and come back with the result: a [`Buffer`] or [`BufferMut`] such as a `Vec`, or a
/// [slice](Buffer::slice) of one. A transfer may be partial, as in POSIX: the result is the number of
/// bytes, and 0 from a read is the end, unless there was no room.
impl<R: IoReactor + 'static> Handle<R> {
    /// Reads from where the descriptor stands: read(2).
    pub fn read<F: AsFd, B: BufferMut>(&self, fd: F, buffer: B) -> Io<'_, R, F, Read<B>> {
        let number = fd.as_fd().as_raw_fd();
        Io::new(self, fd, Read { fd: number, buffer, at: Some(Offset::CURRENT) })
    }

    /// Reads from `offset` bytes after the start of a file: pread(2). `EINVAL` from 2^63 on.
    pub fn read_at<F: AsFd, B: BufferMut>(
        &self,
        fd: F,
        buffer: B,
        offset: u64,
    ) -> Io<'_, R, F, Read<B>> {
        let number = fd.as_fd().as_raw_fd();
        Io::new(self, fd, Read { fd: number, buffer, at: Offset::at(offset) })
    }

    /// Writes to where the descriptor stands: write(2).
    pub fn write<F: AsFd, B: Buffer>(&self, fd: F, buffer: B) -> Io<'_, R, F, Write<B>> {
        let number = fd.as_fd().as_raw_fd();
        Io::new(self, fd, Write { fd: number, buffer, at: Some(Offset::CURRENT) })
    }

    /// Writes to `offset` bytes after the start of a file: pwrite(2). `EINVAL` from 2^63 on.
    pub fn write_at<F: AsFd, B: Buffer>(
        &self,
        fd: F,
        buffer: B,
        offset: u64,
    ) -> Io<'_, R, F, Write<B>> {
        let number = fd.as_fd().as_raw_fd();
        Io::new(self, fd, Write { fd: number, buffer, at: Offset::at(offset) })
    }

    /// Reads into several buffers, one after the other: readv(2).
    pub fn read_vectored<F: AsFd, B: BufferMut, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
    ) -> Io<'_, R, F, ReadVectored<B, N>> {
        self.read_vectored_from(fd, buffers, Some(Offset::CURRENT))
    }

    /// The same from `offset` bytes after the start of a file: preadv(2).
    pub fn read_vectored_at<F: AsFd, B: BufferMut, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
        offset: u64,
    ) -> Io<'_, R, F, ReadVectored<B, N>> {
        self.read_vectored_from(fd, buffers, Offset::at(offset))
    }

    fn read_vectored_from<F: AsFd, B: BufferMut, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
        at: Option<Offset>,
    ) -> Io<'_, R, F, ReadVectored<B, N>> {
        let number = fd.as_fd().as_raw_fd();
        let pieces = [const { MaybeUninit::uninit() }; N];
        Io::new(self, fd, ReadVectored { fd: number, buffers, at, pieces })
    }

    /// Writes from several buffers, one after the other: writev(2).
    pub fn write_vectored<F: AsFd, B: Buffer, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
    ) -> Io<'_, R, F, WriteVectored<B, N>> {
        self.write_vectored_to(fd, buffers, Some(Offset::CURRENT))
    }

    /// The same to `offset` bytes after the start of a file: pwritev(2).
    pub fn write_vectored_at<F: AsFd, B: Buffer, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
        offset: u64,
    ) -> Io<'_, R, F, WriteVectored<B, N>> {
        self.write_vectored_to(fd, buffers, Offset::at(offset))
    }

    fn write_vectored_to<F: AsFd, B: Buffer, const N: usize>(
        &self,
        fd: F,
        buffers: [B; N],
        at: Option<Offset>,
    ) -> Io<'_, R, F, WriteVectored<B, N>> {
        let number = fd.as_fd().as_raw_fd();
        let pieces = [const { MaybeUninit::uninit() }; N];
        Io::new(self, fd, WriteVectored { fd: number, buffers, at, pieces })
    }

    /// Receives from a connected socket: recv(2).
    pub fn recv<F: AsFd, B: BufferMut>(&self, socket: F, buffer: B) -> Io<'_, R, F, Receive<B>> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, Receive { fd: number, buffer })
    }

    /// Sends to a connected socket: send(2).
    pub fn send<F: AsFd, B: Buffer>(&self, socket: F, buffer: B) -> Io<'_, R, F, Send<B>> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, Send { fd: number, buffer })
    }

    /// Receives, and says from whom, if that has an address: recvfrom(2).
    pub fn recv_from<F: AsFd, B: BufferMut>(
        &self,
        socket: F,
        buffer: B,
    ) -> Io<'_, R, F, ReceiveFrom<B>> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, ReceiveFrom { fd: number, buffer, sender: None })
    }

    /// Sends to an address: sendto(2).
    pub fn send_to<F: AsFd, B: Buffer>(
        &self,
        socket: F,
        buffer: B,
        to: impl Into<Address>,
    ) -> Io<'_, R, F, SendTo<B>> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, SendTo { fd: number, buffer, to: to.into() })
    }

    /// Takes a connection from a listener: accept4(2). The new descriptor blocks, as far as other
    /// calls are concerned, and is not inherited by a program that is started.
    ///
    /// Where the process has no descriptor left (`EMFILE`) it fails, and the connection waits on:
    /// try again when there is one.
    pub fn accept<F: AsFd>(&self, listener: F) -> Io<'_, R, F, Accept> {
        let number = listener.as_fd().as_raw_fd();
        Io::new(self, listener, Accept { fd: number })
    }

    /// Connects a socket: connect(2).
    pub fn connect<F: AsFd>(&self, socket: F, to: impl Into<Address>) -> Io<'_, R, F, Connect> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, Connect { fd: number, to: to.into() })
    }

    /// Ends one direction of a connection, or both: shutdown(2).
    pub fn shutdown<F: AsFd>(&self, socket: F, how: Shutdown) -> Io<'_, R, F, Effect> {
        let number = socket.as_fd().as_raw_fd();
        Io::new(self, socket, Effect { fd: number, kind: EffectKind::Shutdown(how) })
    }

    /// Has all that is known of a file written to its storage: fsync(2).
    pub fn sync_all<F: AsFd>(&self, file: F) -> Io<'_, R, F, Effect> {
        let number = file.as_fd().as_raw_fd();
        Io::new(self, file, Effect { fd: number, kind: EffectKind::Sync(SyncExtent::All) })
    }

    /// Has a file's bytes written to its storage: fdatasync(2).
    pub fn sync_data<F: AsFd>(&self, file: F) -> Io<'_, R, F, Effect> {
        let number = file.as_fd().as_raw_fd();
        Io::new(self, file, Effect { fd: number, kind: EffectKind::Sync(SyncExtent::Data) })
    }

    /// Closes a descriptor, and says how that went, which a drop does not: close(2). It is closed
    /// whatever is said, and also when this is cancelled or dropped.
    pub fn close(&self, fd: impl Into<OwnedFd>) -> Io<'_, R, (), Close> {
        Io::new(self, (), Close { fd: Some(fd.into()), begun: Begun::No })
    }

    /// Opens a flow of connections: the reactor may accept ahead of who takes them, by one
    /// operation for many connections. It takes up one of the worker's operations as long as it
    /// lives.
    ///
    /// # Errors
    /// As an operation that is not begun. What is wrong with the listener is said by the flow.
    pub fn accept_many<F: AsFd>(&self, listener: F) -> io::Result<Accepts<'_, R, F>> {
        Accepts::open(self, listener)
    }

    /// Opens a flow of received pieces, each in a buffer of the pool that is taken when there is
    /// something, not before. It takes up one of the worker's operations as long as it lives.
    ///
    /// # Errors
    /// As an operation that is not begun. What is wrong with the socket is said by the flow.
    pub fn receive_many<F: AsFd>(
        &self,
        socket: F,
        pool: &BufferPool,
    ) -> io::Result<Receives<'_, R, F>> {
        Receives::open(self, socket, pool)
    }
}
