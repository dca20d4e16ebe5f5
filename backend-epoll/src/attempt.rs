#![forbid(unsafe_code)]
//! Attempts at an operation: never more than one at a time, and none waits but on a thread that may.

use std::os::fd::{BorrowedFd, RawFd};
use std::slice;

use evenkeel::io::{Address, Interest, KernelAddress, Operation, SyncExtent};
use rustix::fs::{fdatasync, fsync};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use crate::calls::{Kernel, RECEIVE, SEND, Stage, accept, count, not_blocking, read, write};
use crate::descriptor;
use crate::lent;

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

/// An operation that transfers something, or makes a connection, in several attempts if need be.
#[derive(Debug)]
pub(crate) struct Work {
    operation: Operation,
    stage: Stage,
}

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
