//! The client: one thread, all connections, and nothing of any scheduler's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::connection::{Connection, Progress, Wants};
use super::failure::EchoFailure;
use super::pattern::Pattern;
use super::plan::{EchoPlan, Loop};
use crate::stats::Latencies;
use crate::{clock, wait};

/// What came of it, from the end of the warm-up on.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many answers were whole.
    pub requests: u64,
    /// In this time.
    pub lasting_ns: u64,
    /// From just before the first byte of a request was sent until the last byte of its answer had
    /// come.
    pub from_sent: Latencies,
    /// The same from when the request was due; as many as above in an open loop, none in a closed
    /// one.
    pub from_due: Latencies,
    /// Requests that were due and for which no connection was free until the end.
    pub unsent: u64,
}

/// How long the client sleeps at most before it looks for answers that are overdue.
const LOOK_NS: u64 = 20_000_000;
const EVENTS: usize = 256;
/// The most that is read at once.
const ROOM: usize = 1 << 16;

struct Client<'a> {
    plan: &'a EchoPlan,
    epoll: OwnedFd,
    pattern: Pattern,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    schedule: Schedule,
    load: Load,
    /// When the measuring begins, and when nothing is sent any more.
    measured_ns: (u64, u64),
}

/// When the next request is due.
enum Schedule {
    AtOnce,
    At { next: u64, begun_ns: u64, rate: u64 },
}

impl Schedule {
    fn due_ns(&self, now_ns: u64) -> u64 {
        match *self {
            Self::AtOnce => now_ns,
            Self::At { next, begun_ns, rate } => {
                let after = u128::from(next) * 1_000_000_000 / u128::from(rate);
                begun_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
            }
        }
    }

    /// How many were due by then and not sent.
    fn unsent_by(&self, end_ns: u64) -> u64 {
        match *self {
            Self::AtOnce => 0,
            Self::At { next, begun_ns, rate } => {
                let lasting = u128::from(end_ns.saturating_sub(begun_ns));
                let due = lasting * u128::from(rate) / 1_000_000_000;
                u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(next)
            }
        }
    }

    fn sent(&mut self) {
        if let Self::At { next, .. } = self {
            *next += 1;
        }
    }
}

/// Puts the load on a server.
pub(super) fn run(plan: &EchoPlan, server: SocketAddr) -> Result<Load, EchoFailure> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let connections = (0..plan.connections.get())
        .map(|number| {
            let connection = Connection::new(number, server)?;
            let data = EventData::new_u64(number.into());
            epoll::add(&epoll, connection.stream.as_fd(), data, EventFlags::IN)?;
            Ok(connection)
        })
        .collect::<Result<Vec<_>, EchoFailure>>()?;
    let begun_ns = clock::now_ns();
    let measured_from = begun_ns + wait::nanoseconds(plan.warm_up());
    let mut client = Client {
        plan,
        epoll,
        pattern: Pattern::new(plan.bytes.get() as usize),
        idle: (0..connections.len()).collect(),
        connections,
        schedule: match plan.pace {
            Loop::Closed => Schedule::AtOnce,
            Loop::Open(rate) => Schedule::At { next: 0, begun_ns, rate: rate.get().into() },
        },
        load: Load {
            requests: 0,
            lasting_ns: wait::nanoseconds(plan.duration),
            from_sent: Latencies::new(),
            from_due: Latencies::new(),
            unsent: 0,
        },
        measured_ns: (measured_from, measured_from + wait::nanoseconds(plan.duration)),
    };
    client.go()?;
    Ok(client.load)
}

impl Client<'_> {
    fn go(&mut self) -> Result<(), EchoFailure> {
        let mut room = vec![0; ROOM];
        let mut events = Vec::with_capacity(EVENTS);
        let mut looked_ns = clock::now_ns();
        loop {
            let now_ns = clock::now_ns();
            let over = now_ns >= self.measured_ns.1;
            if over && self.idle.len() == self.connections.len() {
                self.load.unsent = self.schedule.unsent_by(self.measured_ns.1);
                return Ok(());
            }
            if !over {
                self.send_what_is_due(now_ns)?;
            }
            if now_ns.saturating_sub(looked_ns) >= LOOK_NS {
                let bound = self.plan.timeout;
                self.connections.iter().try_for_each(|it| it.check(now_ns, bound))?;
                looked_ns = now_ns;
            }
            self.wait(now_ns, &mut events)?;
            for event in &events {
                let number = usize::try_from({ event.data }.u64()).expect("it was one");
                self.go_on(number, &mut room)?;
            }
        }
    }

    fn send_what_is_due(&mut self, now_ns: u64) -> Result<(), EchoFailure> {
        loop {
            let due_ns = self.schedule.due_ns(now_ns);
            if due_ns > now_ns {
                return Ok(());
            }
            let Some(number) = self.idle.pop_front() else { return Ok(()) };
            self.ask(number, due_ns)?;
            self.schedule.sent();
        }
    }

    fn ask(&mut self, number: usize, due_ns: u64) -> Result<(), EchoFailure> {
        let wants = self.connections[number].ask(&self.pattern, due_ns, clock::now_ns())?;
        self.watch(number, wants)?;
        Ok(())
    }

    fn watch(&mut self, number: usize, wants: Wants) -> Result<(), Errno> {
        let connection = &mut self.connections[number];
        if connection.watched == wants {
            return Ok(());
        }
        connection.watched = wants;
        let flags = match wants {
            Wants::Answer => EventFlags::IN,
            Wants::RoomToo => EventFlags::IN | EventFlags::OUT,
        };
        let data = EventData::new_u64(number as u64);
        epoll::modify(&self.epoll, connection.stream.as_fd(), data, flags)
    }

    /// Until something comes, or a request is due. Near that it does not sleep: a client that is
    /// woken late would take its own lateness for the server's.
    fn wait(&self, now_ns: u64, events: &mut Vec<Event>) -> Result<(), Errno> {
        let next_ns = match self.schedule {
            Schedule::At { .. } if !self.idle.is_empty() => self.schedule.due_ns(now_ns),
            Schedule::AtOnce | Schedule::At { .. } => u64::MAX,
        };
        let left = next_ns.saturating_sub(now_ns);
        let millis = if left > 2_000_000 { (left.min(LOOK_NS) - 1_000_000) / 1_000_000 } else { 0 };
        let nanos = i64::try_from(millis * 1_000_000).expect("20 ms at most");
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanos };
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn go_on(&mut self, number: usize, room: &mut [u8]) -> Result<(), EchoFailure> {
        match self.connections[number].go_on(&self.pattern, room)? {
            Progress::Waits(wants) => self.watch(number, wants)?,
            Progress::Answered { due_ns, sent_ns } => {
                let now_ns = clock::now_ns();
                self.record(due_ns, sent_ns, now_ns);
                self.watch(number, Wants::Answer)?;
                match self.schedule {
                    Schedule::AtOnce if now_ns < self.measured_ns.1 => self.ask(number, now_ns)?,
                    Schedule::AtOnce | Schedule::At { .. } => self.idle.push_back(number),
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        let (from, to) = self.measured_ns;
        if due_ns < from {
            return;
        }
        if now_ns < to {
            self.load.requests += 1;
        }
        self.load.from_sent.record(now_ns.saturating_sub(sent_ns));
        if let Schedule::At { .. } = self.schedule {
            self.load.from_due.record(now_ns.saturating_sub(due_ns));
        }
    }
}
