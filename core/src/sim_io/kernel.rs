//! The simulated kernel: descriptors, and what a call on them does.
//!
//! A descriptor's number is a real one, so that it is owned, borrowed and closed like any other; what
//! it leads to is simulated. Each is one end of a pair of real sockets, of which the kernel keeps the
//! other: by that it sees when it was closed, and by whatever.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use super::random::Random;
use crate::io::{Address, Interest, Memory, Operation};

// The numbers of Linux.
pub(super) const EBADF: i32 = 9;
pub(super) const EAGAIN: i32 = 11;
const EINVAL: i32 = 22;
const ESPIPE: i32 = 29;
const EPIPE: i32 = 32;
const ENOTSOCK: i32 = 88;
const EDESTADDRREQ: i32 = 89;
const EOPNOTSUPP: i32 = 95;
pub(super) const ENOBUFS: i32 = 105;
const EISCONN: i32 = 106;
const ENOTCONN: i32 = 107;
const ECONNREFUSED: i32 = 111;
pub(super) const ECANCELED: i32 = 125;

const POLL_IN: i32 = 0x1;
const POLL_OUT: i32 = 0x4;
const POLL_HUP: i32 = 0x10;
const POLL_RDHUP: i32 = 0x2000;

/// How many bytes are on their way in one direction at most.
const ROOM: usize = 4096;
/// How many connections wait for being taken at most.
const BACKLOG: usize = 16;

/// The result of a call: a number, or the error's.
pub(super) type Called = Result<usize, i32>;

/// One direction of a stream.
#[derive(Default)]
struct Channel {
    bytes: VecDeque<u8>,
    /// Nobody writes any more.
    ended: bool,
    /// Nobody reads any more.
    deaf: bool,
}

impl Channel {
    fn read(&mut self, into: &mut [&mut Memory], random: &mut Random) -> Called {
        let room: usize = into.iter().map(|memory| memory.len()).sum();
        if self.bytes.is_empty() {
            return if self.ended || room == 0 { Ok(0) } else { Err(EAGAIN) };
        }
        let most = some_of(room.min(self.bytes.len()), random);
        let taken: Vec<u8> = self.bytes.drain(..most).collect();
        put(&taken, into);
        Ok(most)
    }

    fn write(&mut self, from: &[u8], random: &mut Random) -> Called {
        if self.deaf || self.ended {
            return Err(EPIPE);
        }
        if from.is_empty() {
            return Ok(0);
        }
        let room = ROOM - self.bytes.len();
        if room == 0 {
            return Err(EAGAIN);
        }
        let most = some_of(room.min(from.len()), random);
        self.bytes.extend(&from[..most]);
        Ok(most)
    }
}

type Shared<T> = Rc<RefCell<T>>;

/// What a descriptor leads to.
enum Object {
    Stream { reads: Shared<Channel>, writes: Shared<Channel> },
    Reader(Shared<Channel>),
    Writer(Shared<Channel>),
    Listener { waiting: VecDeque<Object> },
    Unconnected,
    Datagrams { address: SocketAddr, came: VecDeque<(Vec<u8>, SocketAddr)> },
    File { bytes: Vec<u8>, place: usize },
}

impl Object {
    /// Its last descriptor is closed.
    fn close(self) {
        match self {
            Self::Stream { reads, writes } => {
                reads.borrow_mut().deaf = true;
                writes.borrow_mut().ended = true;
            }
            Self::Reader(reads) => reads.borrow_mut().deaf = true,
            Self::Writer(writes) => writes.borrow_mut().ended = true,
            Self::Listener { waiting } => waiting.into_iter().for_each(Self::close),
            Self::Unconnected | Self::Datagrams { .. } | Self::File { .. } => {}
        }
    }

    fn is_socket(&self) -> bool {
        !matches!(self, Self::Reader(_) | Self::Writer(_) | Self::File { .. })
    }
}

struct Entry {
    object: Object,
    /// The other end of the pair that the descriptor is one of.
    watch: UnixStream,
}

/// The descriptors.
#[derive(Default)]
pub(super) struct Kernel {
    entries: BTreeMap<RawFd, Entry>,
    listeners: BTreeMap<SocketAddr, RawFd>,
    next_port: u16,
}

/// As many as there are, or fewer: a transfer may be partial.
fn some_of(most: usize, random: &mut Random) -> usize {
    if most == 0 {
        return 0;
    }
    match random.below(3) {
        0 => most,
        1 => 1,
        _ => 1 + random.below(most),
    }
}

fn put(bytes: &[u8], into: &mut [&mut Memory]) {
    let mut rest = bytes;
    for memory in into {
        // SAFETY: of an operation that is in flight, given to be written to.
        let room = unsafe { memory.room() };
        let here = rest.len().min(room.len());
        for (place, byte) in room.iter_mut().zip(rest) {
            place.write(*byte);
        }
        rest = &rest[here..];
    }
}

fn bytes_of<'a>(pieces: impl IntoIterator<Item = &'a Memory>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for memory in pieces {
        // SAFETY: of an operation that is in flight, given to be written from.
        bytes.extend_from_slice(unsafe { memory.bytes() });
    }
    bytes
}

impl Kernel {
    fn open(&mut self, object: Object) -> OwnedFd {
        let (near, watch) = UnixStream::pair().expect("the process may open descriptors");
        watch.set_nonblocking(true).expect("a socket can be set so");
        let near = OwnedFd::from(near);
        let entry = Entry { object, watch };
        if let Some(before) = self.entries.insert(near.as_raw_fd(), entry) {
            // It was closed, and nobody has looked since.
            before.object.close();
        }
        near
    }

    /// Takes away what was closed.
    pub(super) fn sweep(&mut self) {
        let gone: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| match (&entry.watch).read(&mut [0]) {
                Err(error) => error.kind() != ErrorKind::WouldBlock,
                Ok(_) => true,
            })
            .map(|(&fd, _)| fd)
            .collect();
        for fd in gone {
            self.forget(fd);
        }
    }

    fn forget(&mut self, fd: RawFd) {
        self.listeners.retain(|_, listener| *listener != fd);
        if let Some(entry) = self.entries.remove(&fd) {
            entry.object.close();
        }
    }

    pub(super) fn pair(&mut self) -> (OwnedFd, OwnedFd) {
        let (one, other) = stream_pair();
        (self.open(one), self.open(other))
    }

    pub(super) fn pipe(&mut self) -> (OwnedFd, OwnedFd) {
        let channel = Shared::<Channel>::default();
        let reader = self.open(Object::Reader(Rc::clone(&channel)));
        (reader, self.open(Object::Writer(channel)))
    }

    pub(super) fn file(&mut self) -> OwnedFd {
        self.open(Object::File { bytes: Vec::new(), place: 0 })
    }

    pub(super) fn socket(&mut self) -> OwnedFd {
        self.open(Object::Unconnected)
    }

    fn address(&mut self) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.next_port))
    }

    pub(super) fn listener(&mut self) -> (OwnedFd, SocketAddr) {
        let address = self.address();
        let fd = self.open(Object::Listener { waiting: VecDeque::new() });
        self.listeners.insert(address, fd.as_raw_fd());
        (fd, address)
    }

    pub(super) fn datagrams(&mut self) -> (OwnedFd, SocketAddr) {
        let address = self.address();
        (self.open(Object::Datagrams { address, came: VecDeque::new() }), address)
    }

    fn get(&mut self, fd: RawFd) -> Result<&mut Object, i32> {
        self.entries.get_mut(&fd).map(|entry| &mut entry.object).ok_or(EBADF)
    }

    /// Makes a call, as a descriptor would that does not block.
    pub(super) fn call(&mut self, operation: &mut Operation, random: &mut Random) -> Called {
        match operation {
            Operation::Poll { fd, interest } => self.poll(*fd, *interest),
            Operation::Read { fd, into, at } => self.read(*fd, &mut [into], at.bytes(), random),
            Operation::Write { fd, from, at } => {
                self.write(*fd, &bytes_of([&*from]), at.bytes(), random)
            }
            Operation::ReadVectored { fd, into, at } => {
                let mut pieces: Vec<_> = into.pieces_mut().iter_mut().collect();
                self.read(*fd, &mut pieces, at.bytes(), random)
            }
            Operation::WriteVectored { fd, from, at } => {
                self.write(*fd, &bytes_of(from.pieces()), at.bytes(), random)
            }
            Operation::Receive { fd, into } => {
                self.check_socket(*fd)?;
                self.read(*fd, &mut [into], None, random)
            }
            Operation::Send { fd, from } => {
                self.check_socket(*fd)?;
                self.write(*fd, &bytes_of([&*from]), None, random)
            }
            Operation::ReceiveFrom { fd, into, sender } => {
                self.check_socket(*fd)?;
                if let Object::Datagrams { came, .. } = self.get(*fd)? {
                    let (bytes, from) = came.pop_front().ok_or(EAGAIN)?;
                    let length = bytes.len().min(into.len());
                    put(&bytes[..length], &mut [into]);
                    sender.put(Some(Address::Inet(from)));
                    return Ok(length);
                }
                self.read(*fd, &mut [into], None, random)
            }
            Operation::SendTo { fd, from, to } => self.send_to(*fd, &bytes_of([&*from]), to.get()),
            Operation::Accept { fd } => self.accept(*fd),
            Operation::Connect { fd, to } => self.connect(*fd, to.get()),
            Operation::Shutdown { fd, how } => self.shutdown(*fd, *how),
            Operation::Sync { fd, .. } => match self.get(*fd)? {
                Object::File { .. } => Ok(0),
                _ => Err(EINVAL),
            },
            Operation::Close { fd } => {
                self.get(*fd)?;
                self.forget(*fd);
                // SAFETY: it is open, as the look has shown, and given to be closed.
                drop(unsafe { OwnedFd::from_raw_fd(*fd) });
                Ok(0)
            }
            Operation::AcceptMany { .. }
            | Operation::ReceiveMany { .. }
            | Operation::Next { .. } => unreachable!("the reactor has no call for these"),
        }
    }

    fn check_socket(&mut self, fd: RawFd) -> Result<(), i32> {
        if self.get(fd)?.is_socket() { Ok(()) } else { Err(ENOTSOCK) }
    }

    fn poll(&mut self, fd: RawFd, interest: Interest) -> Called {
        let (reads, writes) = match self.get(fd)? {
            Object::Stream { reads, writes } => (Some(reads), Some(writes)),
            Object::Reader(reads) => (Some(reads), None),
            Object::Writer(writes) => (None, Some(writes)),
            Object::Listener { waiting } => {
                let ready = interest == Interest::Readable && !waiting.is_empty();
                return if ready { Ok(POLL_IN.cast_unsigned() as usize) } else { Err(EAGAIN) };
            }
            Object::Datagrams { came, .. } => {
                return match interest {
                    Interest::Readable if came.is_empty() => Err(EAGAIN),
                    Interest::Readable => Ok(POLL_IN.cast_unsigned() as usize),
                    Interest::Writable => Ok(POLL_OUT.cast_unsigned() as usize),
                };
            }
            Object::File { .. } => (None, None),
            Object::Unconnected => return Ok(POLL_HUP.cast_unsigned() as usize),
        };
        let mut bits = 0;
        let (mut ended, mut deaf) = (false, false);
        match (&reads, &writes) {
            (None, None) if interest == Interest::Readable => bits |= POLL_IN,
            (None, None) => bits |= POLL_OUT,
            _ => {}
        }
        if let Some(reads) = reads {
            let reads = reads.borrow();
            ended = reads.ended;
            if interest == Interest::Readable && (ended || !reads.bytes.is_empty()) {
                bits |= POLL_IN;
            }
        }
        if let Some(writes) = writes {
            let writes = writes.borrow();
            deaf = writes.deaf;
            if interest == Interest::Writable && writes.bytes.len() < ROOM {
                bits |= POLL_OUT;
            }
        }
        if ended {
            bits |= POLL_RDHUP;
        }
        if deaf {
            bits |= POLL_HUP;
        }
        if bits == 0 { Err(EAGAIN) } else { Ok(bits.cast_unsigned() as usize) }
    }

    fn read(
        &mut self,
        fd: RawFd,
        into: &mut [&mut Memory],
        at: Option<u64>,
        random: &mut Random,
    ) -> Called {
        match self.get(fd)? {
            Object::File { bytes, place } => {
                let from = at.map_or(*place, |at| usize::try_from(at).unwrap_or(usize::MAX));
                let there = bytes.get(from.min(bytes.len())..).unwrap_or_default();
                let room: usize = into.iter().map(|memory| memory.len()).sum();
                let most = room.min(there.len());
                let read = some_of(most, random);
                put(&there[..read], into);
                if at.is_none() {
                    *place += read;
                }
                Ok(read)
            }
            _ if at.is_some() => Err(ESPIPE),
            Object::Stream { reads, .. } | Object::Reader(reads) => {
                reads.borrow_mut().read(into, random)
            }
            Object::Datagrams { came, .. } => {
                let (bytes, _) = came.pop_front().ok_or(EAGAIN)?;
                let room: usize = into.iter().map(|memory| memory.len()).sum();
                let length = bytes.len().min(room);
                put(&bytes[..length], into);
                Ok(length)
            }
            Object::Writer(_) => Err(EBADF),
            Object::Listener { .. } | Object::Unconnected => Err(ENOTCONN),
        }
    }

    fn write(&mut self, fd: RawFd, from: &[u8], at: Option<u64>, random: &mut Random) -> Called {
        match self.get(fd)? {
            Object::File { bytes, place } => {
                let start = at.map_or(*place, |at| usize::try_from(at).unwrap_or(usize::MAX));
                let written = some_of(from.len(), random);
                if written > 0 {
                    let end = start.checked_add(written).filter(|&end| end < 1 << 24);
                    let end = end.ok_or(EINVAL)?;
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[start..end].copy_from_slice(&from[..written]);
                }
                if at.is_none() {
                    *place += written;
                }
                Ok(written)
            }
            _ if at.is_some() => Err(ESPIPE),
            Object::Stream { writes, .. } | Object::Writer(writes) => {
                writes.borrow_mut().write(from, random)
            }
            Object::Reader(_) => Err(EBADF),
            Object::Datagrams { .. } => Err(EDESTADDRREQ),
            Object::Listener { .. } | Object::Unconnected => Err(EPIPE),
        }
    }

    fn send_to(&mut self, fd: RawFd, bytes: &[u8], to: &Address) -> Called {
        self.check_socket(fd)?;
        let from = match self.get(fd)? {
            Object::Datagrams { address, .. } => *address,
            Object::Stream { .. } => return Err(EISCONN),
            _ => return Err(EPIPE),
        };
        let Address::Inet(to) = to else { return Err(EINVAL) };
        for entry in self.entries.values_mut() {
            if let Object::Datagrams { address, came } = &mut entry.object
                && address == to
            {
                came.push_back((bytes.to_vec(), from));
                break;
            }
        }
        Ok(bytes.len())
    }

    fn accept(&mut self, fd: RawFd) -> Called {
        self.check_socket(fd)?;
        let Object::Listener { waiting } = self.get(fd)? else { return Err(EINVAL) };
        let connection = waiting.pop_front().ok_or(EAGAIN)?;
        let fd = self.open(connection).into_raw_fd();
        Ok(usize::try_from(fd).expect("a descriptor is not negative"))
    }

    fn connect(&mut self, fd: RawFd, to: &Address) -> Called {
        self.check_socket(fd)?;
        match self.get(fd)? {
            Object::Unconnected => {}
            Object::Stream { .. } => return Err(EISCONN),
            _ => return Err(EOPNOTSUPP),
        }
        let Address::Inet(to) = to else { return Err(EINVAL) };
        let listener = *self.listeners.get(to).ok_or(ECONNREFUSED)?;
        let Object::Listener { waiting } = self.get(listener)? else { return Err(ECONNREFUSED) };
        if waiting.len() == BACKLOG {
            return Err(EAGAIN);
        }
        let (near, far) = stream_pair();
        waiting.push_back(far);
        *self.get(fd)? = near;
        Ok(0)
    }

    fn shutdown(&mut self, fd: RawFd, how: Shutdown) -> Called {
        self.check_socket(fd)?;
        let Object::Stream { reads, writes } = self.get(fd)? else { return Err(ENOTCONN) };
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            writes.borrow_mut().ended = true;
        }
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            let mut reads = reads.borrow_mut();
            reads.ended = true;
            reads.deaf = true;
        }
        Ok(0)
    }
}

fn stream_pair() -> (Object, Object) {
    let (one, other) = (Shared::<Channel>::default(), Shared::<Channel>::default());
    let near = Object::Stream { reads: Rc::clone(&one), writes: Rc::clone(&other) };
    (near, Object::Stream { reads: other, writes: one })
}
