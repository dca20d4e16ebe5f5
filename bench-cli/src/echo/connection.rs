//! One connection of the client, and the request that is on its way.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::failure::EchoFailure;
use super::pattern::Pattern;

/// A connection. One request at a time is on its way.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    number: u32,
    /// Of the request that is on its way, or else of the next.
    request: u64,
    state: State,
    /// What the epoll set watches it for.
    pub(super) watched: Wants,
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    Asked { due_ns: u64, sent_ns: u64, written: usize, received: usize },
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The answer is whole; when the request was due, and when it was sent.
    Answered { due_ns: u64, sent_ns: u64 },
    /// There is more to come.
    Waits(Wants),
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    Answer,
    /// The request is not sent whole.
    RoomToo,
}

impl Connection {
    pub(super) fn new(number: u32, server: SocketAddr) -> Result<Self, EchoFailure> {
        let failed = |error| EchoFailure::Connect(number, error);
        let stream = TcpStream::connect(server).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Self { stream, number, request: 0, state: State::Idle, watched: Wants::Answer })
    }

    /// Sends a request, as much of it as goes at once.
    pub(super) fn ask(
        &mut self,
        pattern: &Pattern,
        due_ns: u64,
        now_ns: u64,
    ) -> Result<Wants, EchoFailure> {
        self.state = State::Asked { due_ns, sent_ns: now_ns, written: 0, received: 0 };
        self.write(pattern)
    }

    fn write(&mut self, pattern: &Pattern) -> Result<Wants, EchoFailure> {
        let State::Asked { written, .. } = &mut self.state else { return Ok(Wants::Answer) };
        let bytes = pattern.of(self.number, self.request);
        while *written < bytes.len() {
            match (&self.stream).write(&bytes[*written..]) {
                Ok(more) => *written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Wants::RoomToo),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(EchoFailure::Broken(self.number, error)),
            }
        }
        Ok(Wants::Answer)
    }

    /// Something may have come, or there may be room.
    pub(super) fn go_on(
        &mut self,
        pattern: &Pattern,
        room: &mut [u8],
    ) -> Result<Progress, EchoFailure> {
        let wants = self.write(pattern)?;
        let (number, request) = (self.number, self.request);
        let State::Asked { due_ns, sent_ns, received, .. } = &mut self.state else {
            return match self.read(&mut room[..1])? {
                None => Ok(Progress::Waits(Wants::Answer)),
                Some(0) => Err(EchoFailure::Closed { connection: number, request, received: 0 }),
                Some(_) => Err(EchoFailure::Unasked(number)),
            };
        };
        let (due_ns, sent_ns, mut come) = (*due_ns, *sent_ns, *received);
        let bytes = pattern.of(number, request);
        while come < bytes.len() {
            let left = (bytes.len() - come).min(room.len());
            match self.read(&mut room[..left])? {
                None => break,
                Some(0) => {
                    return Err(EchoFailure::Closed {
                        connection: number,
                        request,
                        received: come,
                    });
                }
                Some(more) => {
                    let expected = &bytes[come..come + more];
                    if room[..more] != *expected {
                        let differs = |(got, sent): (&u8, &u8)| got != sent;
                        let at = room.iter().zip(expected).position(differs).unwrap_or(0);
                        let offset = come + at;
                        return Err(EchoFailure::Mismatch { connection: number, request, offset });
                    }
                    come += more;
                }
            }
        }
        if come < bytes.len() {
            if let State::Asked { received, .. } = &mut self.state {
                *received = come;
            }
            return Ok(Progress::Waits(wants));
        }
        self.state = State::Idle;
        self.request += 1;
        Ok(Progress::Answered { due_ns, sent_ns })
    }

    /// None if there is nothing now.
    fn read(&self, room: &mut [u8]) -> Result<Option<usize>, EchoFailure> {
        loop {
            match (&self.stream).read(room) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(EchoFailure::Broken(self.number, error)),
            }
        }
    }

    /// Fails if the request was sent too long ago.
    pub(super) fn check(&self, now_ns: u64, bound: std::time::Duration) -> Result<(), EchoFailure> {
        let State::Asked { sent_ns, received, .. } = self.state else { return Ok(()) };
        if now_ns.saturating_sub(sent_ns) <= crate::wait::nanoseconds(bound) {
            return Ok(());
        }
        let (connection, request) = (self.number, self.request);
        Err(EchoFailure::Silent { connection, request, received, bound })
    }
}

impl From<rustix::io::Errno> for EchoFailure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System("epoll", io::Error::from(errno))
    }
}
