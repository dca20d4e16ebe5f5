//! The operations that are kept until their last completion: with the memory that they lend, and
//! with the structures by which the kernel reaches it.
//!
//! ```text
//!   ask ──► Asked ──ended──► reported, and gone from here
//!            │  ▲
//!    EAGAIN  │  │ ready          (a descriptor that does not block; a piece that is waited for)
//!            ▼  │
//!           Waits ──failed, or cancelled──► reported, and gone from here
//! ```
//! At any time the kernel has one request of an operation: itself, or a poll. Both carry its token.

use std::mem;
use std::net::Shutdown;
use std::os::fd::RawFd;

use evenkeel::Token;
use evenkeel::io::{
    Address, BufferPool, Interest, KernelAddress, Memory, Operation, Place, SyncExtent,
};
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use crate::ring::Sqe;

/// `MSG_DONTWAIT` and `MSG_NOSIGNAL`, `SOCK_CLOEXEC` of Linux, the same everywhere.
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;
const SOCK_CLOEXEC: i32 = 0o2_000_000;

/// `POLLIN` and `POLLOUT`.
const POLL_IN: u32 = 1;
const POLL_OUT: u32 = 4;

/// `struct msghdr`.
#[repr(C)]
struct Header {
    name: *mut u8,
    name_length: u32,
    pieces: *mut Memory,
    count: usize,
    control: *mut u8,
    control_length: usize,
    flags: i32,
}

/// What the kernel reads and writes of ours while it has an operation. It stays in its box.
struct Message {
    header: Header,
    piece: Memory,
    address: KernelAddress,
}

impl Message {
    fn new() -> Self {
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
enum Stage {
    /// It is asked for, by the request with this number in the order of the queue.
    Asked(u64),
    /// A poll is asked for, after which it is tried again.
    Waits,
    /// It was cancelled while it was not asked for: nothing is.
    Dropped,
}

/// Whether its end is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Will {
    Done,
    Cancelled,
}

/// What is asked of the kernel.
enum Call {
    Operation(Operation),
    /// The next piece of a flow: it waits first, and then takes a buffer.
    Piece {
        fd: RawFd,
        pool: BufferPool,
        place: Place<Option<u16>>,
        lent: Option<(u16, Memory)>,
    },
}

/// Where the items of a flow come from.
enum Source {
    Listener(RawFd),
    Socket(RawFd, BufferPool),
}

enum Work {
    Call {
        call: Call,
        stage: Stage,
        will: Will,
    },
    Flow(Source),
    /// A flow that was cancelled: its end is told by a request of nothing.
    Over,
}

/// A place for one operation at a time. It never moves.
struct Entry {
    token: Token,
    work: Option<Work>,
    message: Message,
}

/// The operations that are kept, by the index of their token.
///
/// It grows to the highest index that was used, by an allocation for each, and never shrinks.
#[derive(Default)]
pub(crate) struct Kept {
    entries: Vec<Option<Box<Entry>>>,
    calls: usize,
}

/// Why an operation is not kept.
pub(crate) struct NotKept(pub(crate) Operation, pub(crate) Errno);

/// What is to be done about one that is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its [request](Kept::request) is to be queued.
    ToBeAsked,
    /// It is a flow: its items are asked for.
    Flow,
}

/// What is to be done after an event.
pub(crate) enum After {
    /// It is none of these: the event is the operation's end.
    NotKept,
    /// The operation, or a poll, is to be asked for: [`Kept::request`] has it.
    Ask,
    /// It has ended with this result.
    Ended(i32),
}

/// What a cancel met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nothing that is kept here.
    NotKept,
    /// A flow: its [request](Kept::request) is to be queued.
    Flow,
    /// An operation whose request is the one with this number in the order of the queue.
    Asked(u64),
    /// An operation that waits.
    Waits,
    /// A flow that was cancelled before.
    Over,
}

impl Kept {
    /// How many operations the kernel has, or is to get.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes one in that is to be asked for. A flow has nothing to be asked for.
    pub(crate) fn keep(&mut self, token: Token, operation: Operation) -> Result<Taken, NotKept> {
        let work = match operation {
            Operation::AcceptMany { fd } => Work::Flow(Source::Listener(fd)),
            Operation::ReceiveMany { fd, pool } => Work::Flow(Source::Socket(fd, pool)),
            Operation::Next { flow, buffer } => match self.source(flow) {
                Some(&Source::Listener(fd)) => {
                    let call = Call::Operation(Operation::Accept { fd });
                    Work::Call { call, stage: Stage::Asked(0), will: Will::Done }
                }
                Some(Source::Socket(fd, pool)) => {
                    let (fd, pool) = (*fd, pool.clone());
                    let call = Call::Piece { fd, pool, place: buffer, lent: None };
                    Work::Call { call, stage: Stage::Waits, will: Will::Done }
                }
                None => return Err(NotKept(Operation::Next { flow, buffer }, Errno::BADF)),
            },
            operation => {
                let call = Call::Operation(operation);
                Work::Call { call, stage: Stage::Asked(0), will: Will::Done }
            }
        };
        let index = token.index();
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let entry = self.entries[index]
            .get_or_insert_with(|| Box::new(Entry { token, work: None, message: Message::new() }));
        assert!(entry.work.is_none(), "a token has one operation at a time");
        entry.token = token;
        let becomes = match work {
            Work::Call { .. } => {
                self.calls += 1;
                Taken::ToBeAsked
            }
            Work::Flow(_) | Work::Over => Taken::Flow,
        };
        entry.work = Some(work);
        Ok(becomes)
    }

    /// The request of an operation, to be queued as the one with this number.
    pub(crate) fn request(&mut self, token: Token, number: u64) -> Sqe {
        let Entry { work, message, .. } = self.find(token).expect("it is kept");
        let entry = match work {
            Some(Work::Call { stage, will: Will::Cancelled, .. }) => {
                *stage = Stage::Dropped;
                opcode::Nop::new().build()
            }
            Some(Work::Call { stage: Stage::Dropped, .. }) => unreachable!("it is cancelled"),
            Some(Work::Call { call, stage: Stage::Waits, .. }) => poll(call),
            Some(Work::Call { call, stage: Stage::Asked(asked), .. }) => {
                *asked = number;
                ask(call, message)
            }
            Some(Work::Over) => opcode::Nop::new().build(),
            Some(Work::Flow(_)) | None => unreachable!("there is nothing to ask for"),
        };
        // SAFETY: what the entry refers to is lent by the operation until its completion is
        // reported, or is the message, which stays in its box until then, or for ever.
        unsafe { Sqe::new(entry.user_data(token.as_u64())) }
    }

    /// An event of this token, with its result.
    pub(crate) fn event(&mut self, token: Token, result: i32) -> After {
        let Some(entry) = self.find(token) else { return After::NotKept };
        let (call, stage, will) = match &mut entry.work {
            Some(Work::Call { call, stage, will }) => (call, stage, will),
            Some(Work::Over) => {
                entry.work = None;
                return After::Ended(failure(Errno::CANCELED));
            }
            Some(Work::Flow(_)) | None => return After::NotKept,
        };
        let after = match *stage {
            Stage::Asked(_) => after_call(call, stage, result),
            Stage::Waits => after_wait(call, stage, result),
            Stage::Dropped => After::Ended(failure(Errno::CANCELED)),
        };
        let ended = match after {
            After::Ask if *will == Will::Cancelled => failure(Errno::CANCELED),
            After::Ended(result) => result,
            After::Ask | After::NotKept => return after,
        };
        call.finish(&entry.message, ended);
        entry.work = None;
        self.calls -= 1;
        After::Ended(ended)
    }

    /// Asks for the end of an operation.
    pub(crate) fn cancel(&mut self, token: Token) -> Met {
        let Some(entry) = self.find(token) else { return Met::NotKept };
        match &mut entry.work {
            Some(Work::Call { stage, will, .. }) => {
                *will = Will::Cancelled;
                match *stage {
                    Stage::Asked(number) => Met::Asked(number),
                    Stage::Waits | Stage::Dropped => Met::Waits,
                }
            }
            Some(work @ Work::Flow(_)) => {
                *work = Work::Over;
                Met::Flow
            }
            Some(Work::Over) => Met::Over,
            None => Met::NotKept,
        }
    }

    /// Those that the kernel has, or is to get.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.entries.iter().flatten().filter_map(|entry| {
            matches!(entry.work, Some(Work::Call { .. })).then_some(entry.token)
        })
    }

    fn find(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(token.index())?.as_deref_mut()?;
        (entry.token == token && entry.work.is_some()).then_some(entry)
    }

    fn source(&self, flow: Token) -> Option<&Source> {
        let entry = self.entries.get(flow.index())?.as_deref()?;
        match &entry.work {
            Some(Work::Flow(source)) if entry.token == flow => Some(source),
            _ => None,
        }
    }
}

/// The call itself has ended, or has to be made again.
fn after_call(call: &mut Call, stage: &mut Stage, result: i32) -> After {
    if result == failure(Errno::AGAIN) {
        *stage = Stage::Waits;
        call.give_back();
        After::Ask
    } else if result == failure(Errno::INTR) {
        After::Ask
    } else {
        After::Ended(result)
    }
}

/// The descriptor is ready, or never will be.
fn after_wait(call: &mut Call, stage: &mut Stage, result: i32) -> After {
    if result < 0 {
        return After::Ended(result);
    }
    if let Call::Piece { pool, lent, .. } = call {
        *lent = pool.take();
        if lent.is_none() {
            return After::Ended(failure(Errno::NOBUFS));
        }
    }
    *stage = Stage::Asked(0);
    After::Ask
}

pub(crate) fn failure(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

impl Call {
    /// The descriptor, and what it is waited for.
    fn waits_for(&self) -> (RawFd, Interest) {
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
    fn give_back(&mut self) {
        if let Self::Piece { pool, lent, .. } = self
            && let Some((number, _)) = lent.take()
        {
            // SAFETY: it was taken for this call, which has ended.
            unsafe { pool.give_back(number) };
        }
    }

    /// What there is besides the result goes to its place.
    fn finish(&mut self, message: &Message, result: i32) {
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

fn poll(call: &Call) -> squeue::Entry {
    let (fd, interest) = call.waits_for();
    let events = match interest {
        Interest::Readable => POLL_IN,
        Interest::Writable => POLL_OUT,
    };
    opcode::PollAdd::new(types::Fd(fd), events).build()
}

fn length(memory: &Memory) -> u32 {
    u32::try_from(memory.len()).expect("a call moves less than 2^31 bytes")
}

fn count(pieces: &[Memory]) -> u32 {
    u32::try_from(pieces.len()).unwrap_or(u32::MAX)
}

fn name(address: &Address, message: &mut Message) -> (*const u8, u32) {
    message.address = address.into();
    let bytes = message.address.as_bytes();
    (bytes.as_ptr(), u32::try_from(bytes.len()).expect("128 are few"))
}

fn ask(call: &mut Call, message: &mut Message) -> squeue::Entry {
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

/// A reactor that ends while the kernel has some of these leaves them to it, with their pools and
/// messages, for good.
impl Drop for Kept {
    fn drop(&mut self) {
        if self.calls > 0 {
            mem::forget(mem::take(&mut self.entries));
        }
    }
}

// SAFETY: the pointers in a message are into its own box, and what the operations point to is
// theirs, whatever thread they are on.
unsafe impl Send for Kept {}

// SAFETY: a result is the kernel's own. What is lent is touched by the kernel and by this module
// alone, and by neither when the completion was reported: then the kernel has no request of that token,
// and the entry is vacant.
unsafe impl evenkeel::io::IoReactor for crate::reactor::UringReactor {}
