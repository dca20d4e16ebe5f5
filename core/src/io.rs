#![allow(unsafe_code)] // the promise of `IoReactor`
//! The operations on file descriptors that the Linux reactors share, and mean the same by.

mod address;
#[allow(unsafe_code)]
mod memory;
mod operation;
#[allow(unsafe_code)]
mod pool;

use std::io;

pub use address::Address;
pub use memory::{MOST_BYTES, Memory, MemoryList, Place};
pub use operation::{Interest, Offset, Operation, SyncExtent};
pub use pool::{BufferPool, Received};

use crate::reactor::Reactor;

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
