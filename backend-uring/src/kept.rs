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
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use evenkeel::Token;
use evenkeel::io::{
    Address, BufferPool, Interest, KernelAddress, Memory, Operation, Place, SyncExtent,
};
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;

use crate::flow::{Flow, Item, Source, State, Turn};
use crate::ring::{Event, Sqe};

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

enum Work {
    Call {
        call: Call,
        stage: Stage,
        will: Will,
    },
    Flow(Flow),
    /// A flow that was cancelled while the kernel had its request, which ends by that.
    Closing(Source),
    /// One that waits for a flow's next item.
    Taker {
        flow: Token,
        place: Place<Option<u16>>,
    },
    /// It has this result, which is told by a request of nothing.
    Over(i32),
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
    /// The request of this flow, for an item of which it waits, is to be queued.
    Flow(Token),
    /// There is nothing to be queued: it is a flow, or waits for an item of one.
    Nothing,
}

/// What is to be done after an event.
#[derive(Default)]
pub(crate) struct After {
    /// This operation has ended, with this result.
    pub(crate) ended: Option<(Token, i32)>,
    /// Of this one there is a [request](Kept::request) to be queued.
    pub(crate) ask: Option<Token>,
    /// The request of this one is to be cancelled.
    pub(crate) cancel: Option<Token>,
    /// A buffer of this group was filled.
    pub(crate) filled: Option<(u16, u16)>,
    /// A flow of this group has ended.
    pub(crate) closed: Option<u16>,
}

/// What becomes of a call.
enum Then {
    /// It, or a poll, is to be asked for.
    Ask,
    /// It has ended with this result.
    Ended(i32),
}

/// What a cancel met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nothing that is kept here.
    NotKept,
    /// One that the kernel has no request of: its [request](Kept::request) is to be queued. If it is
    /// a flow, this is its group.
    Here(Option<u16>),
    /// An operation whose request is the one with this number in the order of the queue.
    Asked(u64),
    /// An operation that waits.
    Waits,
    /// It was cancelled before, or has its end.
    Over,
}

impl Kept {
    /// How many operations the kernel has, or is to get.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes one in. A flow of pieces has the number of its pool's group, if there is one.
    pub(crate) fn keep(
        &mut self,
        token: Token,
        operation: Operation,
        group: Option<u16>,
    ) -> Result<Taken, NotKept> {
        let call = |call, stage| Work::Call { call, stage, will: Will::Done };
        let (work, becomes) = match operation {
            Operation::AcceptMany { fd } => {
                (Work::Flow(Flow::new(Source::Listener(fd))), Taken::Nothing)
            }
            Operation::ReceiveMany { fd, pool } => {
                (Work::Flow(Flow::new(Source::Socket(fd, pool, group))), Taken::Nothing)
            }
            Operation::Next { flow, buffer: mut place } => {
                let Some(Work::Flow(of)) = self.find(flow).and_then(|entry| entry.work.as_mut())
                else {
                    let operation = Operation::Next { flow, buffer: place };
                    return Err(NotKept(operation, Errno::BADF));
                };
                if let Some(item) = of.items.pop_front() {
                    place.put(item.buffer);
                    (Work::Over(item.result), Taken::ToBeAsked)
                } else if of.state == State::Single {
                    let (single, stage) = single(&of.source, place);
                    (call(single, stage), Taken::ToBeAsked)
                } else {
                    of.takers.push_back(token);
                    let becomes =
                        if of.wants_request() { Taken::Flow(flow) } else { Taken::Nothing };
                    (Work::Taker { flow, place }, becomes)
                }
            }
            operation => (call(Call::Operation(operation), Stage::Asked(0)), Taken::ToBeAsked),
        };
        self.calls += usize::from(matches!(work, Work::Call { .. }));
        self.vacant(token).work = Some(work);
        Ok(becomes)
    }

    /// The group of the flow that an operation takes from, if it has one: it is stocked before.
    pub(crate) fn group_of(&mut self, operation: &Operation) -> Option<u16> {
        let Operation::Next { flow, .. } = operation else { return None };
        match &self.find(*flow)?.work {
            Some(Work::Flow(flow)) => flow.source.group(),
            _ => None,
        }
    }

    /// The place for a token's operation.
    fn vacant(&mut self, token: Token) -> &mut Entry {
        let index = token.index();
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let entry = self.entries[index]
            .get_or_insert_with(|| Box::new(Entry { token, work: None, message: Message::new() }));
        assert!(entry.work.is_none(), "a token has one operation at a time");
        entry.token = token;
        entry
    }

    /// The request of an operation, to be queued as the one with this number.
    pub(crate) fn request(&mut self, token: Token, number: u64) -> Sqe {
        let mut asks = 0;
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
            Some(Work::Over(_)) => opcode::Nop::new().build(),
            Some(Work::Flow(flow)) => {
                flow.state = State::Asked(number);
                asks += 1;
                many(&flow.source)
            }
            // It was cancelled while it waited for room.
            Some(Work::Closing(_)) => {
                asks += 1;
                opcode::Nop::new().build()
            }
            Some(Work::Taker { .. }) | None => unreachable!("there is nothing to ask for"),
        };
        self.calls += asks;
        // SAFETY: what the entry refers to is lent by the operation until its completion is
        // reported, or is the message, which stays in its box until then, or for ever.
        unsafe { Sqe::new(entry.user_data(token.as_u64())) }
    }

    /// An event.
    pub(crate) fn event(&mut self, event: &Event) -> After {
        let (token, result) = (Token::from_u64(event.number), event.result);
        let ends = |result| After { ended: Some((token, result)), ..After::default() };
        let Some(entry) = self.find(token) else { return ends(result) };
        match &mut entry.work {
            Some(Work::Call { call, stage, will }) => {
                let then = match *stage {
                    Stage::Asked(_) => after_call(call, stage, result),
                    Stage::Waits => after_wait(call, stage, result),
                    Stage::Dropped => Then::Ended(failure(Errno::CANCELED)),
                };
                let result = match then {
                    Then::Ended(result) => result,
                    Then::Ask if *will == Will::Cancelled => failure(Errno::CANCELED),
                    Then::Ask => return After { ask: Some(token), ..After::default() },
                };
                call.finish(&entry.message, result);
                entry.work = None;
                self.calls -= 1;
                ends(result)
            }
            Some(Work::Over(result)) => {
                let result = *result;
                entry.work = None;
                ends(result)
            }
            Some(Work::Flow(_)) => self.flow_event(token, event),
            Some(Work::Closing(source)) => {
                let group = source.group();
                source.dispose(Item { result, buffer: event.buffer });
                let filled = event.buffer.and_then(|buffer| Some((group?, buffer)));
                if event.more {
                    return After { filled, ..After::default() };
                }
                entry.work = None;
                self.calls -= 1;
                After { filled, closed: group, ..ends(failure(Errno::CANCELED)) }
            }
            Some(Work::Taker { .. }) | None => ends(result),
        }
    }

    /// The kernel has an item of a flow, or the flow's request has ended.
    fn flow_event(&mut self, token: Token, event: &Event) -> After {
        let Event { result, buffer, more, .. } = *event;
        self.calls -= usize::from(!more);
        let Some(Entry { work: Some(Work::Flow(flow)), .. }) = self.find(token) else {
            unreachable!("it is one")
        };
        let group = flow.source.group();
        let filled = buffer.and_then(|buffer| Some((group?, buffer)));
        let mut after = After { filled, ..After::default() };
        let held_back = matches!(flow.state, State::HeldBack(_));
        let unknown = result == failure(Errno::INVAL) && !more;
        if !more {
            flow.state = if unknown { State::Single } else { State::Idle };
        }
        let mut served = None;
        if unknown {
            // Asked for by itself, the item says whether it was that.
            let taker = flow.takers.pop_front();
            if let Some(taker) = taker {
                self.ask_singly(token, taker);
                after.ask = Some(taker);
            }
            return after;
        }
        if !(held_back && result == failure(Errno::CANCELED)) {
            match flow.came(Item { result, buffer }) {
                Turn::Taken(taker, item) => served = Some((taker, item)),
                Turn::Kept => {}
                Turn::HeldBack => after.cancel = Some(token),
            }
        }
        if flow.wants_request() {
            after.ask = Some(token);
        }
        if let Some((taker, item)) = served {
            let entry = self.find(taker).expect("who waits is kept");
            if let Some(Work::Taker { place, .. }) = &mut entry.work {
                place.put(item.buffer);
            }
            entry.work = None;
            after.ended = Some((taker, item.result));
        }
        after
    }

    /// One that waits for an item asks for it by itself.
    fn ask_singly(&mut self, flow: Token, taker: Token) {
        let waits = self.find(taker).and_then(|entry| entry.work.take());
        let Some(Work::Taker { place, .. }) = waits else { unreachable!("it waits for an item") };
        let Some(Entry { work: Some(Work::Flow(of)), .. }) = self.find(flow) else {
            unreachable!("it is a flow")
        };
        let (call, stage) = single(&of.source, place);
        self.vacant(taker).work = Some(Work::Call { call, stage, will: Will::Done });
        self.calls += 1;
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
            Some(Work::Taker { flow, .. }) => {
                let flow = *flow;
                entry.work = Some(Work::Over(failure(Errno::CANCELED)));
                if let Some(Entry { work: Some(Work::Flow(flow)), .. }) = self.find(flow) {
                    flow.takers.retain(|&taker| taker != token);
                }
                Met::Here(None)
            }
            Some(Work::Flow(_)) => self.cancel_flow(token),
            Some(Work::Over(_) | Work::Closing(_)) => Met::Over,
            None => Met::NotKept,
        }
    }

    fn cancel_flow(&mut self, token: Token) -> Met {
        let entry = self.find(token).expect("it was found");
        let Some(Work::Flow(flow)) = entry.work.take() else { unreachable!("it is one") };
        let Flow { source, state, items, .. } = flow;
        for item in items {
            source.dispose(item);
        }
        match state {
            State::Asked(number) | State::HeldBack(number) => {
                entry.work = Some(Work::Closing(source));
                Met::Asked(number)
            }
            State::Idle | State::Single => {
                entry.work = Some(Work::Over(failure(Errno::CANCELED)));
                Met::Here(source.group())
            }
        }
    }

    /// Who waits for an item of a flow, oldest first: to be cancelled before the flow is.
    pub(crate) fn taker_of(&mut self, flow: Token) -> Option<Token> {
        match &self.find(flow)?.work {
            Some(Work::Flow(flow)) => flow.takers.front().copied(),
            _ => None,
        }
    }

    /// Those that the kernel has, or is to get.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.entries.iter().flatten().filter_map(|entry| {
            matches!(entry.work, Some(Work::Call { .. } | Work::Flow(_))).then_some(entry.token)
        })
    }

    fn find(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(token.index())?.as_deref_mut()?;
        (entry.token == token && entry.work.is_some()).then_some(entry)
    }
}

impl Source {
    fn group(&self) -> Option<u16> {
        match self {
            Self::Socket(_, _, group) => *group,
            Self::Listener(_) => None,
        }
    }

    /// What nobody takes is closed, or goes back to its pool.
    fn dispose(&self, item: Item) {
        match self {
            Self::Listener(_) if item.result >= 0 => {
                // SAFETY: the kernel has opened it for nobody but this.
                drop(unsafe { OwnedFd::from_raw_fd(item.result) });
            }
            Self::Socket(_, pool, _) => {
                if let Some(buffer) = item.buffer {
                    // SAFETY: the kernel has filled it, and nobody has taken it.
                    unsafe { pool.give_back(buffer) };
                }
            }
            Self::Listener(_) => {}
        }
    }
}

/// One item, asked for by itself.
fn single(source: &Source, place: Place<Option<u16>>) -> (Call, Stage) {
    match source {
        Source::Listener(fd) => (Call::Operation(Operation::Accept { fd: *fd }), Stage::Asked(0)),
        Source::Socket(fd, pool, _) => {
            let (fd, pool) = (*fd, pool.clone());
            (Call::Piece { fd, pool, place, lent: None }, Stage::Waits)
        }
    }
}

/// The request of all items.
fn many(source: &Source) -> squeue::Entry {
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
fn after_call(call: &mut Call, stage: &mut Stage, result: i32) -> Then {
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
fn after_wait(call: &mut Call, stage: &mut Stage, result: i32) -> Then {
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
