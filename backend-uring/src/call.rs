//! What is asked of the kernel for an operation: its requests, and what their answers lead to.

use std::net::Shutdown;
use std::os::fd::RawFd;

use evenkeel::io::{
    Address, BufferPool, Interest, KernelAddress, Memory, Operation, Place, SyncExtent,
};
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use crate::flow::Source;

/// `MSG_DONTWAIT` and `MSG_NOSIGNAL`, `SOCK_CLOEXEC` of Linux, the same everywhere.
pub(crate) const MSG_DONTWAIT: i32 = 0x40;
pub(crate) const MSG_NOSIGNAL: i32 = 0x4000;
pub(crate) const SOCK_CLOEXEC: i32 = 0o2_000_000;

/// `RWF_NOSIGNAL` of Linux 6.18.
const RWF_NOSIGNAL: i32 = 0x100;

/// What a write to who is gone leads to, beside its error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BrokenPipes {
    /// Nothing.
    Errors,
    /// A signal, which the kernel can't be asked to leave out.
    Signals,
}

impl BrokenPipes {
    /// Those of this kernel: it says what it does not know only when asked for a write.
    pub(crate) fn here() -> Self {
        Self::of(&rustix::system::uname().release().to_string_lossy())
    }

    fn of(release: &str) -> Self {
        let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 18) => Self::Errors,
            _ => Self::Signals,
        }
    }

    fn flag(self) -> i32 {
        match self {
            Self::Errors => RWF_NOSIGNAL,
            Self::Signals => 0,
        }
    }
}

/// `POLLIN` and `POLLOUT`.
pub(crate) const POLL_IN: u32 = 1;
pub(crate) const POLL_OUT: u32 = 4;

/// `struct msghdr`.
#[repr(C)]
pub(crate) struct Header {
    name: *mut u8,
    name_length: u32,
    pieces: *mut Memory,
    count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

/// What the kernel reads and writes of ours while it has an operation. It stays in its box.
pub(crate) struct Message {
    header: Header,
    piece: Memory,
    address: KernelAddress,
}

impl Message {
    pub(crate) fn new() -> Self {
        let header = Header {
            name: std::ptr::null_mut(),
            name_length: 0,
            pieces: std::ptr::null_mut(),
            count: 0,
            control: std::ptr::null_mut(),
            control_length: 0,
            flags: 0,
        };
        // SAFETY: of no bytes at all.
        let piece = unsafe { Memory::new(std::ptr::NonNull::dangling().as_ptr(), 0) };
        Self { header, piece, address: KernelAddress::room() }
    }

    /// A message of one piece, with an address or room for one.
    fn of(&mut self, memory: &Memory, address: KernelAddress) -> *mut Header {
        self.address = address;
        // SAFETY: the same memory, for the same operation.
        self.piece = unsafe { Memory::new(memory.start(), memory.len()) };
        let length = self.address.as_bytes().len();
        self.header.name = self.address.as_mut_ptr();
        self.header.name_length =
            u32::try_from(if length == 0 { KernelAddress::ROOM } else { length })
                .expect("128 are few");
        self.header.pieces = &raw mut self.piece;
        self.header.count = 1;
        self.header.flags = 0;
        &raw mut self.header
    }
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is asked for, by the request with this number in the order of the queue.
    Asked(u64),
    /// A poll is asked for, after which it is tried again.
    Waits,
    /// It was cancelled while it was not asked for: nothing is.
    Dropped,
}

/// What is asked of the kernel.
pub(crate) enum Call {
    Operation(Operation),
    /// The next piece of a flow: it waits first, and then takes a buffer.
    Piece {
        fd: RawFd,
        pool: BufferPool,
        place: Place<Option<u16>>,
        lent: Option<(u16, Memory)>,
    },
}

/// What becomes of a call.
pub(crate) enum Then {
    /// It, or a poll, is to be asked for.
    Ask,
    /// It has ended with this result.
    Ended(i32),
}

/// One item, asked for by itself.
pub(crate) fn single(source: &Source, place: Place<Option<u16>>) -> (Call, Stage) {
    match source {
        Source::Listener(fd) => (Call::Operation(Operation::Accept { fd: *fd }), Stage::Asked(0)),
        Source::Socket(fd, pool, _) => {
            let (fd, pool) = (*fd, pool.clone());
            (Call::Piece { fd, pool, place, lent: None }, Stage::Waits)
        }
    }
}

/// The request of all items.
pub(crate) fn many(source: &Source) -> squeue::Entry {
    match source {
        Source::Listener(fd) => {
            opcode::AcceptMulti::new(types::Fd(*fd)).flags(SOCK_CLOEXEC).build()
        }
        Source::Socket(fd, _, group) => {
            let group = group.expect("without a group items are asked for singly");
            opcode::RecvMulti::new(types::Fd(*fd), group).build()
        }
    }
}

/// The call itself has ended, or has to be made again.
pub(crate) fn after_call(call: &mut Call, stage: &mut Stage, result: i32) -> Then {
    if result == failure(Errno::AGAIN) {
        *stage = Stage::Waits;
        call.give_back();
        Then::Ask
    } else if result == failure(Errno::INTR) {
        Then::Ask
    } else {
        Then::Ended(result)
    }
}

/// The descriptor is ready, or never will be.
pub(crate) fn after_wait(call: &mut Call, stage: &mut Stage, result: i32) -> Then {
    if result < 0 {
        return Then::Ended(result);
    }
    if let Call::Piece { pool, lent, .. } = call {
        *lent = pool.take();
        if lent.is_none() {
            return Then::Ended(failure(Errno::NOBUFS));
        }
    }
    *stage = Stage::Asked(0);
    Then::Ask
}

pub(crate) fn failure(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

impl Call {
    /// The descriptor, and what it is waited for.
    pub(crate) fn waits_for(&self) -> (RawFd, Interest) {
        match *self {
            Self::Piece { fd, .. }
            | Self::Operation(
                Operation::Read { fd, .. }
                | Operation::ReadVectored { fd, .. }
                | Operation::Receive { fd, .. }
                | Operation::ReceiveFrom { fd, .. }
                | Operation::Accept { fd },
            ) => (fd, Interest::Readable),
            Self::Operation(
                Operation::Write { fd, .. }
                | Operation::WriteVectored { fd, .. }
                | Operation::Send { fd, .. }
                | Operation::SendTo { fd, .. }
                | Operation::Connect { fd, .. }
                | Operation::Shutdown { fd, .. }
                | Operation::Sync { fd, .. }
                | Operation::Close { fd },
            ) => (fd, Interest::Writable),
            Self::Operation(Operation::Poll { fd, interest }) => (fd, interest),
            Self::Operation(
                Operation::AcceptMany { .. }
                | Operation::ReceiveMany { .. }
                | Operation::Next { .. },
            ) => unreachable!("flows are not asked for"),
        }
    }

    /// The buffer of a piece goes back to its pool, unwritten.
    pub(crate) fn give_back(&mut self) {
        if let Self::Piece { pool, lent, .. } = self
            && let Some((number, _)) = lent.take()
        {
            // SAFETY: it was taken for this call, which has ended.
            unsafe { pool.give_back(number) };
        }
    }

    /// What there is besides the result goes to its place.
    pub(crate) fn finish(&mut self, message: &Message, result: i32) {
        match self {
            Self::Piece { place, lent, .. } if result > 0 => {
                place.put(lent.take().map(|(number, _)| number));
            }
            Self::Operation(Operation::ReceiveFrom { sender, .. }) if result >= 0 => {
                let mut address = message.address;
                address.set_length(message.header.name_length as usize);
                sender.put(address.decode());
            }
            Self::Piece { .. } | Self::Operation(_) => self.give_back(),
        }
    }
}

pub(crate) fn poll(call: &Call) -> squeue::Entry {
    let (fd, interest) = call.waits_for();
    let events = match interest {
        Interest::Readable => POLL_IN,
        Interest::Writable => POLL_OUT,
    };
    opcode::PollAdd::new(types::Fd(fd), events).build()
}

pub(crate) fn length(memory: &Memory) -> u32 {
    u32::try_from(memory.len()).expect("a call moves less than 2^31 bytes")
}

pub(crate) fn count(pieces: &[Memory]) -> u32 {
    u32::try_from(pieces.len()).unwrap_or(u32::MAX)
}

pub(crate) fn name(address: &Address, message: &mut Message) -> (*const u8, u32) {
    message.address = address.into();
    let bytes = message.address.as_bytes();
    (bytes.as_ptr(), u32::try_from(bytes.len()).expect("128 are few"))
}

pub(crate) fn ask(call: &mut Call, message: &mut Message, pipes: BrokenPipes) -> squeue::Entry {
    let operation = match call {
        Call::Operation(operation) => operation,
        Call::Piece { fd, lent, .. } => {
            let (_, memory) = lent.as_ref().expect("a piece is asked for with a buffer");
            return opcode::Recv::new(types::Fd(*fd), memory.start(), length(memory))
                .flags(MSG_DONTWAIT)
                .build();
        }
    };
    match operation {
        &mut Operation::Read { fd, ref into, at } => {
            opcode::Read::new(types::Fd(fd), into.start(), length(into))
                .offset(at.as_i64().cast_unsigned())
                .build()
        }
        &mut Operation::Write { fd, ref from, at } => {
            opcode::Write::new(types::Fd(fd), from.start(), length(from))
                .offset(at.as_i64().cast_unsigned())
                .rw_flags(pipes.flag())
                .build()
        }
        &mut Operation::ReadVectored { fd, ref into, at } => {
            let pieces = into.pieces();
            opcode::Readv::new(types::Fd(fd), pieces.as_ptr().cast(), count(pieces))
                .offset(at.as_i64().cast_unsigned())
                .build()
        }
        &mut Operation::WriteVectored { fd, ref from, at } => {
            let pieces = from.pieces();
            opcode::Writev::new(types::Fd(fd), pieces.as_ptr().cast(), count(pieces))
                .offset(at.as_i64().cast_unsigned())
                .rw_flags(pipes.flag())
                .build()
        }
        &mut Operation::Receive { fd, ref into } => {
            opcode::Recv::new(types::Fd(fd), into.start(), length(into)).build()
        }
        &mut Operation::Send { fd, ref from } => {
            opcode::Send::new(types::Fd(fd), from.start(), length(from)).flags(MSG_NOSIGNAL).build()
        }
        &mut Operation::ReceiveFrom { fd, ref into, .. } => {
            let header = message.of(into, KernelAddress::room());
            opcode::RecvMsg::new(types::Fd(fd), header.cast()).build()
        }
        &mut Operation::SendTo { fd, ref from, ref to } => {
            let header = message.of(from, to.get().into());
            opcode::SendMsg::new(types::Fd(fd), header.cast())
                .flags(MSG_NOSIGNAL.cast_unsigned())
                .build()
        }
        &mut Operation::Accept { fd } => {
            let (none, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            opcode::Accept::new(types::Fd(fd), none, length).flags(SOCK_CLOEXEC).build()
        }
        &mut Operation::Connect { fd, ref to } => {
            let (name, length) = name(to.get(), message);
            opcode::Connect::new(types::Fd(fd), name.cast(), length).build()
        }
        &mut Operation::Shutdown { fd, how } => {
            let how = match how {
                Shutdown::Read => 0,
                Shutdown::Write => 1,
                Shutdown::Both => 2,
            };
            opcode::Shutdown::new(types::Fd(fd), how).build()
        }
        &mut Operation::Sync { fd, extent } => {
            let flags = match extent {
                SyncExtent::All => types::FsyncFlags::empty(),
                SyncExtent::Data => types::FsyncFlags::DATASYNC,
            };
            opcode::Fsync::new(types::Fd(fd)).flags(flags).build()
        }
        &mut Operation::Close { fd } => opcode::Close::new(types::Fd(fd)).build(),
        Operation::Poll { .. } => poll(call),
        Operation::AcceptMany { .. } | Operation::ReceiveMany { .. } | Operation::Next { .. } => {
            unreachable!("flows are not asked for")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_known_by_its_release() {
        for (release, pipes) in [
            ("6.18.44-fc-v1045", BrokenPipes::Errors),
            ("6.18.0", BrokenPipes::Errors),
            ("7.0-rc1", BrokenPipes::Errors),
            ("6.17.9", BrokenPipes::Signals),
            ("5.10.0-28-amd64", BrokenPipes::Signals),
            ("", BrokenPipes::Signals),
            ("unknown", BrokenPipes::Signals),
        ] {
            assert_eq!(BrokenPipes::of(release), pipes, "{release}");
        }
    }
}
