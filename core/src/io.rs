#![allow(unsafe_code)] // the promise of `IoReactor`
//! The operations on file descriptors that the Linux reactors share, and mean the same by.
//!
//! - A worker's [`Handle`](crate::Handle) offers them, on anything that is
//!   [`AsFd`](std::os::fd::AsFd): sockets, files and pipes of the standard library or of any other.
//!   Each gives an [`Io`], which says how it ends and how it is cancelled.
//! - A [`Buffer`] moves into the operation and comes back with the result, whatever becomes of it.
//!   Nothing is allocated for an operation.
//! - A [flow](Accepts) is one operation for many connections, or many [pieces](Receives) in buffers of
//!   a [`BufferPool`].
//! - [`Operation`] is what a reactor is asked for: for who writes one, and vouches for it by
//!   [`IoReactor`].
//!
//! ```
//! use std::io;
//! use std::net::{TcpListener, TcpStream};
//! use evenkeel::Handle;
//! use evenkeel::io::{Buffer, IoReactor};
//!
//! /// Sends back what comes, to everybody, until it is dropped.
//! async fn echo<R: IoReactor>(handle: Handle<R>, listener: TcpListener) -> io::Result<()> {
//!     let mut connections = handle.accept_many(&listener)?;
//!     loop {
//!         let peer = TcpStream::from(connections.next_connection().await?);
//!         let (inner, spawner) = (handle.clone(), &handle);
//!         drop(spawner.spawn(async move {
//!             let mut buffer = Vec::with_capacity(4096);
//!             loop {
//!                 let (received, filled) = inner.recv(&peer, buffer).await;
//!                 let bytes = received?;
//!                 if bytes == 0 {
//!                     return Ok::<(), io::Error>(());
//!                 }
//!                 let (sent, answered) = inner.send_all(&peer, filled.slice(..bytes)).await;
//!                 sent?;
//!                 buffer = answered.into_inner();
//!             }
//!         }));
//!     }
//! }
//! ```

mod address;
#[allow(unsafe_code)]
mod buffer;
mod flow;
#[allow(unsafe_code)]
mod future;
mod handle;
#[allow(unsafe_code)]
mod memory;
mod operation;
#[allow(unsafe_code)]
mod pool;
#[allow(unsafe_code)]
mod requests;
mod whole;

use std::io;

pub use address::{Address, KernelAddress};
pub use buffer::{Buffer, BufferMut, Slice};
pub use flow::{Accepts, Receives};
pub use future::{Io, Request};
pub use memory::{MOST_BYTES, Memory, MemoryList, Place};
pub use operation::{Interest, Offset, Operation, SyncExtent};
pub use pool::{BufferPool, Received};

use crate::reactor::Reactor;

/// What can be asked for, each with what the kernel needs for it. They have names for who keeps an
/// [`Io`] in a type of their own.
pub mod request {
    pub use super::requests::{
        Accept, AcceptMany, Close, Connect, Effect, NextAccepted, NextReceived, Read, ReadVectored,
        Receive, ReceiveFrom, ReceiveMany, Send, SendTo, Write, WriteVectored,
    };
}

/// The most bytes that one operation may have kept in the worker, in its slot: the buffer's handle,
/// an address and so on. A buffer that is itself too large does not compile: box it.
pub const HELD_BYTES: usize = crate::operation::HELD_BYTES;

/// A reactor of the operations on descriptors, whose word is relied upon.
///
/// # Safety
/// It means by each [`Operation`] what is said there. In particular:
/// - If a completion says that so many bytes were read, so many bytes of the memory that was lent have
///   been written, from its start; and no more than it has room for. A buffer's number in a
///   [`Place`] was taken from the pool of its flow, and nobody else has it.
/// - A descriptor that a completion brings is open, and nobody else's.
/// - Once a completion is reported nobody touches what was lent for it. Until then, or for ever, it is
///   lent.
pub unsafe trait IoReactor: Reactor<Operation = Operation, Error = io::Error> {}
