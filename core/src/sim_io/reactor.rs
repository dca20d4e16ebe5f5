//! The reactor: what is in flight, what takes how long, and what goes wrong.

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::task::Waker;
use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use super::kernel::{EAGAIN, EBADF, ECANCELED, ENOBUFS, Kernel};
use super::random::Random;
use crate::io::{BufferPool, IoReactor, Memory, Operation, Place};
use crate::reactor::{
    Completion, Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait,
};
use crate::testing::{Notifications, VirtualClock};
use crate::time::{Clock, Instant};

/// What goes wrong, so many times in a thousand, and how long things take.
///
/// None of it breaks a promise of the trait [`Reactor`]: real reactors do all of this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// An operation that could be done is done later.
    pub late: u32,
    /// A completion of an operation that never was is reported.
    pub spurious: u32,
    /// A completion is reported twice.
    pub doubled: u32,
    /// A completion overtakes one that was there before.
    pub reordered: u32,
    /// An operation is refused: `EAGAIN`, or `ENOMEM`.
    pub refused: u32,
    /// A poll takes 50 µs longer.
    pub stalled: u32,
    /// A poll fails after it has put what it found into the batch.
    pub failed: u32,
    /// A wait ends with nothing.
    pub woken: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        late: 0,
        spurious: 0,
        doubled: 0,
        reordered: 0,
        refused: 0,
        stalled: 0,
        failed: 0,
        woken: 0,
    };

    /// Everything does, now and then, but nothing that an operation would have to be tried again for.
    pub const USUAL: Self = Self {
        late: 300,
        spurious: 50,
        doubled: 50,
        reordered: 200,
        refused: 0,
        stalled: 20,
        failed: 0,
        woken: 50,
    };
}

/// How soon one that waits is tried again while the worker is busy: its descriptor may have been closed
/// at the other end, of which nobody tells.
const AGAIN: Duration = Duration::from_micros(20);

/// The longest that an operation takes when it is late, and how long when it is not.
const LATE: Duration = Duration::from_micros(100);
const POLL: Duration = Duration::from_nanos(100);
const STALL: Duration = Duration::from_micros(50);

/// What is asked of the kernel.
enum Call {
    Operation(Operation),
    Piece { fd: RawFd, pool: BufferPool, place: Place<Option<u16>> },
}

struct InFlight {
    token: Token,
    call: Call,
    /// Not tried before.
    due: Instant,
    stage: Stage,
}

/// Whether an operation was tried, in vain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    Waits,
}

enum Flow {
    Listener(RawFd),
    Socket(RawFd, BufferPool),
}

struct State {
    kernel: Kernel,
    random: Random,
    faults: Faults,
    in_flight: Vec<InFlight>,
    flows: Vec<(Token, Flow)>,
    ended: Vec<Completion>,
    /// The last that was reported: to be doubled.
    last: Option<Completion>,
    armed: usize,
    is_blind: Sight,
}

/// Whether the reactor knows its readiness without a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Sees,
    Blind,
}

/// A simulated kernel, to make descriptors of.
///
/// They are real ones as far as they are owned, borrowed and closed; what is read from them and
/// written to them is simulated, and only a [`SimIoReactor`] of this kernel can do it.
#[derive(Clone)]
pub struct SimIo {
    state: Rc<RefCell<State>>,
}

impl SimIo {
    /// A kernel without descriptors. The seed decides the order in which things are done, how long
    /// they take, how much of a transfer is made at once, and what goes wrong.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        let state = State {
            kernel: Kernel::default(),
            random: Random::new(seed),
            faults,
            in_flight: Vec::new(),
            flows: Vec::new(),
            ended: Vec::new(),
            last: None,
            armed: 0,
            is_blind: Sight::Sees,
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// The reactor of this kernel, on this clock: one at a time.
    #[must_use]
    pub fn reactor(&self, clock: &VirtualClock) -> SimIoReactor {
        self.state.borrow_mut().is_blind = Sight::Sees;
        SimIoReactor {
            state: Rc::clone(&self.state),
            clock: clock.clone(),
            notifications: Arc::default(),
        }
    }

    /// One that only knows by a poll whether anything waits, as epoll.
    #[must_use]
    pub fn blind_reactor(&self, clock: &VirtualClock) -> SimIoReactor {
        let reactor = self.reactor(clock);
        self.state.borrow_mut().is_blind = Sight::Blind;
        reactor
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.borrow_mut().faults = faults;
    }

    /// Two connected sockets of streams.
    #[must_use]
    pub fn pair(&self) -> (OwnedFd, OwnedFd) {
        self.state.borrow_mut().kernel.pair()
    }

    /// A pipe's two ends, the one to read from first.
    #[must_use]
    pub fn pipe(&self) -> (OwnedFd, OwnedFd) {
        self.state.borrow_mut().kernel.pipe()
    }

    /// An empty file.
    #[must_use]
    pub fn file(&self) -> OwnedFd {
        self.state.borrow_mut().kernel.file()
    }

    /// A socket of streams that is not connected.
    #[must_use]
    pub fn socket(&self) -> OwnedFd {
        self.state.borrow_mut().kernel.socket()
    }

    /// A socket that connections are taken from, and where it is.
    #[must_use]
    pub fn listener(&self) -> (OwnedFd, SocketAddr) {
        self.state.borrow_mut().kernel.listener()
    }

    /// A socket of datagrams, and where it is.
    #[must_use]
    pub fn datagrams(&self) -> (OwnedFd, SocketAddr) {
        self.state.borrow_mut().kernel.datagrams()
    }

    /// How many operations have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let state = self.state.borrow();
        state.in_flight.len() + state.flows.len()
    }
}

impl fmt::Debug for SimIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimIo").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// A reactor of [`Operation`]s on virtual time, over a [`SimIo`].
///
/// An operation is done at one of the polls after it was submitted; a wait moves the clock on to when
/// the next one may be, and fails where there is none and nobody can wake it. Until an operation has
/// ended the memory that it lends holds what it likes: nobody else may look at it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use evenkeel::testing::VirtualClock;
/// use evenkeel::testing::io::{Faults, SimIo};
/// use evenkeel::{Rest, Wait, Worker, WorkerConfig};
///
/// let (clock, sim) = (VirtualClock::new(), SimIo::new(42, Faults::USUAL));
/// let mut worker = Worker::new(sim.reactor(&clock), clock, WorkerConfig::default());
/// let (near, far) = sim.pair();
/// let handle = worker.handle();
/// let task = worker.handle().spawn(async move {
///     handle.send_all(&near, "over virtual wires").await.0.unwrap();
///     let (received, bytes) = handle.recv_exact(&far, [0; 18]).await;
///     received.unwrap();
///     assert_eq!(&bytes, b"over virtual wires");
/// });
/// while !task.is_finished() {
///     if worker.tick()?.rest == Rest::Idle {
///         worker.park(Wait::Forever)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct SimIoReactor {
    state: Rc<RefCell<State>>,
    clock: VirtualClock,
    notifications: Arc<Notifications>,
}

impl Call {
    /// Fills memory that is to be read into with what nobody may rely on.
    fn scribble(&mut self, byte: u8) {
        let scribble = |memory: &mut Memory| {
            // SAFETY: of an operation that is in flight, given to be written to.
            let room = unsafe { memory.room() };
            // Both ends: most of it would only take time.
            let (length, some) = (room.len(), room.len().min(16));
            room[..some].fill(MaybeUninit::new(byte));
            room[length - some..].fill(MaybeUninit::new(byte));
        };
        match self {
            Self::Operation(
                Operation::Read { into, .. }
                | Operation::Receive { into, .. }
                | Operation::ReceiveFrom { into, .. },
            ) => scribble(into),
            Self::Operation(Operation::ReadVectored { into, .. }) => {
                into.pieces_mut().iter_mut().for_each(scribble);
            }
            Self::Operation(_) | Self::Piece { .. } => {}
        }
    }
}

impl State {
    /// Tries an operation: its result, unless it has to wait.
    fn attempt(&mut self, call: &mut Call) -> Option<i32> {
        let called = match call {
            Call::Operation(operation) => self.kernel.call(operation, &mut self.random),
            Call::Piece { fd, pool, place } => match pool.take() {
                None => Err(ENOBUFS),
                Some((number, memory)) => {
                    let mut receive = Operation::Receive { fd: *fd, into: memory };
                    let called = self.kernel.call(&mut receive, &mut self.random);
                    if matches!(called, Ok(1..)) {
                        place.put(Some(number));
                    } else {
                        // SAFETY: taken just now, and the call has ended.
                        unsafe { pool.give_back(number) };
                    }
                    called
                }
            },
        };
        match called {
            Err(EAGAIN) => None,
            Err(errno) => Some(-errno),
            Ok(result) => Some(i32::try_from(result).expect("memory is small here")),
        }
    }

    /// Tries what is due, as long as something is done by it.
    fn go_on(&mut self, now: Instant) {
        if self.in_flight.iter().all(|it| it.due > now) {
            return;
        }
        self.kernel.sweep();
        while self.try_each(now) > 0 {
            self.try_all_again(now);
        }
        for it in self.in_flight.iter_mut().filter(|it| it.due <= now) {
            it.stage = Stage::Waits;
            it.due = now + AGAIN;
        }
    }

    /// Something has happened: who waits may go on.
    fn try_all_again(&mut self, now: Instant) {
        self.in_flight
            .iter_mut()
            .filter(|it| it.stage == Stage::Waits)
            .for_each(|it| it.due = it.due.min(now));
    }

    /// Tries each that is due, in an order that the seed decides; of a descriptor the oldest comes
    /// first in each direction, as in a kernel's queue. How many have ended.
    fn try_each(&mut self, now: Instant) -> usize {
        let mut order: Vec<usize> = (0..self.in_flight.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.random.below(place + 1));
        }
        let mut done = Vec::new();
        for place in order {
            let line = line(&self.in_flight[place].call);
            let is_next = line.is_none()
                || (0..place).all(|other| {
                    done.contains(&other) || self::line(&self.in_flight[other].call) != line
                });
            if self.in_flight[place].due > now || !is_next {
                continue;
            }
            let byte = u8::try_from(self.random.below(256)).expect("a byte");
            let nothing = Call::Operation(Operation::Close { fd: -1 });
            let mut call = core::mem::replace(&mut self.in_flight[place].call, nothing);
            let result = self.attempt(&mut call);
            if result.is_none() {
                call.scribble(byte);
            }
            self.in_flight[place].call = call;
            if let Some(result) = result {
                done.push(place);
                let token = self.in_flight[place].token;
                self.end(Completion { token, result });
            }
        }
        done.sort_unstable();
        let count = done.len();
        for place in done.into_iter().rev() {
            drop(self.in_flight.remove(place));
        }
        count
    }

    fn end(&mut self, completion: Completion) {
        if self.random.per_mille(self.faults.reordered) && !self.ended.is_empty() {
            let place = self.random.below(self.ended.len());
            self.ended.insert(place, completion);
        } else {
            self.ended.push(completion);
        }
    }

    /// Reports what has ended, and what has not.
    fn report(&mut self, found: &mut Completions) {
        while found.room() > 0 && !self.ended.is_empty() {
            let completion = self.ended.remove(0);
            found.push(completion);
            self.last = Some(completion);
        }
        if found.room() > 0 && self.random.per_mille(self.faults.doubled) {
            self.last.into_iter().for_each(|completion| found.push(completion));
        }
        if found.room() > 0 && self.random.per_mille(self.faults.spurious) {
            let index = u32::try_from(self.random.below(1 << 20)).expect("it is small");
            found.push(Completion { token: Token::new(index, 0x7fff_fff0), result: 1 });
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.in_flight.iter().map(|it| it.due).min()
    }
}

/// The descriptor and direction for which operations queue up.
fn line(call: &Call) -> Option<(RawFd, u8)> {
    match call {
        Call::Piece { fd, .. }
        | Call::Operation(
            Operation::Read { fd, .. }
            | Operation::ReadVectored { fd, .. }
            | Operation::Receive { fd, .. }
            | Operation::ReceiveFrom { fd, .. },
        ) => Some((*fd, 0)),
        Call::Operation(
            Operation::Write { fd, .. }
            | Operation::WriteVectored { fd, .. }
            | Operation::Send { fd, .. },
        ) => Some((*fd, 1)),
        Call::Operation(_) => None,
    }
}

impl Reactor for SimIoReactor {
    type Operation = Operation;
    type Error = io::Error;

    fn name(&self) -> &'static str {
        "simulated"
    }

    fn readiness(&mut self) -> Readiness {
        let state = self.state.borrow();
        let now = self.clock.now();
        let due = || state.next_due().is_some_and(|due| due <= now);
        match state.is_blind {
            Sight::Blind if state.in_flight.is_empty() && state.ended.is_empty() => {
                Readiness::Quiet
            }
            Sight::Blind => Readiness::Unknown,
            Sight::Sees if !state.ended.is_empty() || due() => Readiness::Ready,
            Sight::Sees => Readiness::Quiet,
        }
    }

    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
    ) -> Result<Submitted, Refused<Operation, io::Error>> {
        let state = &mut *self.state.borrow_mut();
        if state.random.per_mille(state.faults.refused) {
            let errno = [11, 12][state.random.below(2)];
            return Err(Refused { operation, error: io::Error::from_raw_os_error(errno) });
        }
        let late = state.random.per_mille(state.faults.late);
        let span = if late { LATE } else { POLL };
        let nanos = state.random.below(usize::try_from(span.as_nanos()).expect("it is short"));
        let due = self.clock.now() + Duration::from_nanos(nanos as u64);
        let call = match operation {
            Operation::AcceptMany { fd } => {
                state.flows.push((token, Flow::Listener(fd)));
                return Ok(Submitted::Armed);
            }
            Operation::ReceiveMany { fd, pool } => {
                state.flows.push((token, Flow::Socket(fd, pool)));
                return Ok(Submitted::Armed);
            }
            Operation::Next { flow, buffer } => {
                match state.flows.iter().find(|(token, _)| *token == flow) {
                    Some((_, Flow::Listener(fd))) => Call::Operation(Operation::Accept { fd: *fd }),
                    Some((_, Flow::Socket(fd, pool))) => {
                        Call::Piece { fd: *fd, pool: pool.clone(), place: buffer }
                    }
                    None => {
                        let operation = Operation::Next { flow, buffer };
                        let error = io::Error::from_raw_os_error(EBADF);
                        return Err(Refused { operation, error });
                    }
                }
            }
            operation => Call::Operation(operation),
        };
        state.in_flight.push(InFlight { token, call, due, stage: Stage::Fresh });
        state.armed += 1;
        Ok(Submitted::Queued)
    }

    fn cancel(&mut self, token: Token) {
        let state = &mut *self.state.borrow_mut();
        let in_flight = state.in_flight.iter().position(|it| it.token == token);
        if let Some(place) = in_flight {
            drop(state.in_flight.remove(place));
            state.end(Completion { token, result: -ECANCELED });
        } else if let Some(place) = state.flows.iter().position(|(flow, _)| *flow == token) {
            drop(state.flows.remove(place));
            state.end(Completion { token, result: -ECANCELED });
        }
    }

    fn poll(&mut self, wait: Wait, found: &mut Completions) -> io::Result<Polled> {
        let state = &mut *self.state.borrow_mut();
        let stalls = state.random.per_mille(state.faults.stalled);
        self.clock.advance(if stalls { STALL } else { POLL });
        state.go_on(self.clock.now());
        if wait != Wait::Never && state.ended.is_empty() && !self.notifications.see() {
            self.wait(state, wait)?;
        }
        state.report(found);
        let armed = core::mem::take(&mut state.armed);
        if state.random.per_mille(state.faults.failed) {
            state.armed = armed;
            return Err(io::Error::other("the simulated reactor fails now and then"));
        }
        Ok(Polled { armed })
    }

    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.notifications))
    }
}

impl SimIoReactor {
    /// Moves the clock on until something ends.
    fn wait(&self, state: &mut State, wait: Wait) -> io::Result<()> {
        if state.random.per_mille(state.faults.woken) {
            return Ok(());
        }
        // A descriptor may have been closed since.
        state.try_all_again(self.clock.now());
        state.go_on(self.clock.now());
        while state.ended.is_empty() {
            // What was tried in vain stays so: nothing happens here but by the worker.
            let fresh = state.in_flight.iter().filter(|it| it.stage == Stage::Fresh);
            let due = fresh.map(|it| it.due).min();
            let until = match (wait, due) {
                (Wait::Until(deadline), Some(due)) => due.min(deadline),
                (Wait::Until(deadline), None) => deadline,
                (_, Some(due)) => due,
                (_, None) => {
                    return Err(io::Error::other(
                        "the worker would wait for ever: nothing is due and nobody wakes it",
                    ));
                }
            };
            self.clock.advance(until - self.clock.now());
            state.go_on(self.clock.now());
            if wait == Wait::Until(until) {
                break;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for SimIoReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.state.borrow().in_flight.len();
        f.debug_struct("SimIoReactor").field("in_flight", &in_flight).finish_non_exhaustive()
    }
}

/// What was accepted and reported to nobody is closed, and what is in flight ends with the reactor.
impl Drop for SimIoReactor {
    fn drop(&mut self) {
        let state = &mut *self.state.borrow_mut();
        state.in_flight.clear();
        state.flows.clear();
        state.ended.clear();
        // The next worker begins with the same tokens.
        state.last = None;
    }
}

// SAFETY: what a call has done with the memory is what its completion says, and the call, with all that
// was lent for it, is dropped when that is queued to be reported.
unsafe impl IoReactor for SimIoReactor {}
