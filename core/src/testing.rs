#![forbid(unsafe_code)]
//! A simulated reactor on virtual time, so that bounds are tested in counts and nothing waits; and
//! the conformance kit.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;
use core::time::Duration;

use crate::reactor::{
    Completion, Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait,
};
use crate::time::{Clock, Instant};

/// The conformance kits: by these the author of a [`RunQueue`](crate::run_queue::RunQueue), an
/// [`Inbox`](crate::inbox::Inbox) or a [`Reactor`] shows that it keeps the rules of its trait. They
/// are the checks that ours pass.
pub mod conformance {
    #[cfg(feature = "io")]
    pub use crate::conformance::io;
    pub use crate::conformance::reactor;
    pub use crate::conformance::{Parcel, inbox, run_queue};
}

/// Descriptors on virtual time, with the faults that real reactors have.
#[cfg(feature = "io")]
pub mod io {
    pub use crate::sim_io::{Faults, Random, SimIo, SimIoReactor};
}

/// A clock that moves when it is told to. Clones show the same time.
///
/// ```
/// use core::time::Duration;
/// use evenkeel::Clock;
/// use evenkeel::testing::VirtualClock;
///
/// let clock = VirtualClock::new();
/// clock.advance(Duration::from_micros(3));
/// assert_eq!(clock.now().as_nanos(), 3_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now: Rc<Cell<Instant>>,
}

impl VirtualClock {
    /// A clock at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the time on.
    pub fn advance(&self, span: Duration) {
        self.now.set(self.now.get() + span);
    }

    fn advance_to(&self, time: Instant) {
        self.now.set(self.now.get().max(time));
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.now.get()
    }
}

/// What can be asked of a [`SimReactor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimOperation {
    /// Ends when [`Sim::fire`] names the same number.
    Event(u32),
    /// Ends so much virtual time after it was armed.
    After(Duration),
}

/// Why a [`SimReactor`] failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimError {
    /// The worker waits for ever: nothing is due, nobody has woken it, and nobody can.
    Hang,
    /// The operation was refused, as [`Sim::refuse_next`] asked.
    Refused,
    /// The poll failed, as [`Sim::fail_next_poll`] asked.
    Failed,
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hang => "the worker would wait for ever: nothing is due and nobody wakes it",
            Self::Refused => "the simulated reactor was told to refuse the operation",
            Self::Failed => "the simulated reactor was told to fail",
        })
    }
}

impl core::error::Error for SimError {}

/// The result of a cancelled operation: `-ECANCELED`, as on Linux.
pub const CANCELLED: i32 = -125;

/// What a [`SimReactor`] knows without a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Knowledge {
    /// As `io_uring`: readiness is read from memory, operations are queued until a poll.
    Full,
    /// As epoll: only a poll can tell, operations are armed at once.
    None,
}

/// What a wait does when nothing is due.
enum Waiting {
    /// It moves the clock to what is due next, and fails where nothing is.
    OnVirtualTime,
    /// It calls this, once for each wait.
    Calls(Box<dyn FnMut()>),
    /// It blocks the thread until the notifier is woken.
    #[cfg(feature = "std")]
    ForReal,
}

struct State {
    knowledge: Knowledge,
    waiting: Waiting,
    poll_cost: Duration,
    /// What the next poll costs on top.
    stall: Duration,
    queued: VecDeque<(Token, SimOperation)>,
    /// How many were cancelled while they were queued, since the last poll: it counts them as
    /// armed, for it reports their ends.
    withdrawn: usize,
    events: BTreeMap<u32, VecDeque<Token>>,
    timers: BTreeMap<(Instant, u64), Token>,
    /// Completions that the next polls report.
    ended: VecDeque<Completion>,
    sequence: u64,
    refusals: usize,
    fails: bool,
    polls: Vec<Instant>,
    waits: usize,
}

/// A reactor on virtual time.
///
/// It knows its readiness from memory, as `io_uring` does, unless it is made
/// [`blind`](Self::blind), as epoll is.
///
/// ```
/// # fn main() -> Result<(), evenkeel::testing::SimError> {
/// use evenkeel::testing::{SimOperation, SimReactor, VirtualClock};
/// use evenkeel::{Rest, Worker, WorkerConfig};
///
/// let clock = VirtualClock::new();
/// let reactor = SimReactor::new(&clock);
/// let sim = reactor.control();
/// let mut worker = Worker::new(reactor, clock, WorkerConfig::default());
/// let handle = worker.handle();
/// let task = worker.handle().spawn(async move {
///     handle.submit(SimOperation::Event(1)).unwrap().await.unwrap()
/// });
/// while worker.tick()?.rest != Rest::Idle {}
/// assert!(sim.fire(1, 42));
/// while !task.is_finished() {
///     worker.tick()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct SimReactor {
    state: Rc<RefCell<State>>,
    notifications: Arc<Notifications>,
    clock: VirtualClock,
}

/// What steers a [`SimReactor`] from outside.
#[derive(Clone)]
pub struct Sim {
    state: Rc<RefCell<State>>,
    notifications: Arc<Notifications>,
}

#[derive(Default)]
pub(crate) struct Notifications {
    all: AtomicUsize,
    /// Those that have ended a wait.
    seen: AtomicUsize,
    #[cfg(feature = "std")]
    lock: std::sync::Mutex<()>,
    #[cfg(feature = "std")]
    changed: std::sync::Condvar,
}

impl Wake for Notifications {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        #[cfg(feature = "std")]
        let _lock = self.lock.lock();
        // Ordering: SeqCst throughout this type: it is a test's, and counts for nothing.
        self.all.fetch_add(1, Ordering::SeqCst);
        #[cfg(feature = "std")]
        self.changed.notify_all();
    }
}

impl Notifications {
    /// Whether there is one that no wait has seen. It is seen by this.
    pub(crate) fn see(&self) -> bool {
        let all = self.all.load(Ordering::SeqCst);
        self.seen.swap(all, Ordering::SeqCst) != all
    }

    #[cfg(feature = "std")]
    fn wait(&self) {
        let mut lock = self.lock.lock().expect("no holder of this lock panics");
        while !self.see() {
            lock = self.changed.wait(lock).expect("no holder of this lock panics");
        }
    }
}

impl SimReactor {
    /// A reactor that knows its readiness, on this clock.
    #[must_use]
    pub fn new(clock: &VirtualClock) -> Self {
        let state = State {
            knowledge: Knowledge::Full,
            waiting: Waiting::OnVirtualTime,
            poll_cost: Duration::from_nanos(100),
            stall: Duration::ZERO,
            queued: VecDeque::new(),
            withdrawn: 0,
            events: BTreeMap::new(),
            timers: BTreeMap::new(),
            ended: VecDeque::new(),
            sequence: 0,
            refusals: 0,
            fails: false,
            polls: Vec::new(),
            waits: 0,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            notifications: Arc::default(),
            clock: clock.clone(),
        }
    }

    /// The same, but only a poll can tell whether anything waits.
    #[must_use]
    pub fn blind(self) -> Self {
        self.state.borrow_mut().knowledge = Knowledge::None;
        self
    }

    /// The same, but each poll takes so much virtual time: 100 ns unless said.
    #[must_use]
    pub fn poll_cost(self, cost: Duration) -> Self {
        self.state.borrow_mut().poll_cost = cost;
        self
    }

    /// The same, but a wait with nothing due calls this instead of failing: what other threads do
    /// while the worker is held in its announced park.
    #[must_use]
    pub fn while_waiting(self, call: impl FnMut() + 'static) -> Self {
        self.state.borrow_mut().waiting = Waiting::Calls(Box::new(call));
        self
    }

    /// The same, but a wait with nothing due blocks the thread until the notifier is woken.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn waits_for_real(self) -> Self {
        self.state.borrow_mut().waiting = Waiting::ForReal;
        self
    }

    /// What steers it.
    #[must_use]
    pub fn control(&self) -> Sim {
        Sim { state: Rc::clone(&self.state), notifications: Arc::clone(&self.notifications) }
    }
}

impl Sim {
    /// Ends the operation that has waited longest for this event. Whether there was one: it must
    /// be armed, which a queued operation is only after a poll.
    #[must_use = "if no operation was armed for the event, nothing has happened"]
    pub fn fire(&self, event: u32, result: i32) -> bool {
        let mut state = self.state.borrow_mut();
        let token = state.events.get_mut(&event).and_then(VecDeque::pop_front);
        if let Some(token) = token {
            state.ended.push_back(Completion { token, result });
        }
        token.is_some()
    }

    /// Reports a completion out of the blue: late, doubled, or of an operation that never was.
    pub fn report(&self, completion: Completion) {
        self.state.borrow_mut().ended.push_back(completion);
    }

    /// Makes the next poll take so much longer.
    pub fn stall_next_poll(&self, span: Duration) {
        self.state.borrow_mut().stall = span;
    }

    /// Refuses the next so many operations.
    pub fn refuse_next(&self, operations: usize) {
        self.state.borrow_mut().refusals = operations;
    }

    /// Makes the next poll fail, after it has put what it found into the batch.
    pub fn fail_next_poll(&self) {
        self.state.borrow_mut().fails = true;
    }

    /// How many operations the reactor holds, queued or armed.
    #[must_use]
    pub fn held(&self) -> usize {
        let state = self.state.borrow();
        let waiting: usize = state.events.values().map(VecDeque::len).sum();
        state.queued.len() + waiting + state.timers.len()
    }

    /// When each poll began.
    #[must_use]
    pub fn polls(&self) -> Vec<Instant> {
        self.state.borrow().polls.clone()
    }

    /// How many polls have waited, for whatever time: they were allowed to, and had nothing to
    /// report.
    #[must_use]
    pub fn waits(&self) -> usize {
        self.state.borrow().waits
    }

    /// How often the notifier was woken.
    #[must_use]
    pub fn notifications(&self) -> usize {
        self.notifications.all.load(Ordering::SeqCst)
    }
}

impl State {
    fn arm(&mut self, now: Instant, token: Token, operation: SimOperation) {
        match operation {
            SimOperation::Event(event) => self.events.entry(event).or_default().push_back(token),
            SimOperation::After(span) => {
                self.sequence += 1;
                self.timers.insert((now + span, self.sequence), token);
            }
        }
    }

    fn arm_queued(&mut self, now: Instant) -> usize {
        let armed = self.queued.len();
        while let Some((token, operation)) = self.queued.pop_front() {
            self.arm(now, token, operation);
        }
        armed
    }

    fn expire(&mut self, now: Instant) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let token = entry.remove();
            self.ended.push_back(Completion { token, result: 0 });
        }
    }

    fn forget(&mut self, token: Token) -> bool {
        let before = self.queued.len() + self.timers.len();
        let queued = self.queued.len();
        self.queued.retain(|&(queued, _)| queued != token);
        self.withdrawn += queued - self.queued.len();
        self.timers.retain(|_, &mut timer| timer != token);
        let mut found = self.queued.len() + self.timers.len() < before;
        for waiting in self.events.values_mut() {
            let before = waiting.len();
            waiting.retain(|&waiter| waiter != token);
            found |= waiting.len() < before;
        }
        found
    }
}

impl Reactor for SimReactor {
    type Operation = SimOperation;
    type Error = SimError;

    fn name(&self) -> &'static str {
        "sim"
    }

    fn readiness(&mut self) -> Readiness {
        let mut state = self.state.borrow_mut();
        state.expire(self.clock.now());
        match state.knowledge {
            Knowledge::None => Readiness::Unknown,
            Knowledge::Full if state.ended.is_empty() && state.queued.is_empty() => {
                Readiness::Quiet
            }
            Knowledge::Full => Readiness::Ready,
        }
    }

    fn submit(
        &mut self,
        token: Token,
        operation: SimOperation,
    ) -> Result<Submitted, Refused<SimOperation, SimError>> {
        let mut state = self.state.borrow_mut();
        if let Some(left) = state.refusals.checked_sub(1) {
            state.refusals = left;
            return Err(Refused { operation, error: SimError::Refused });
        }
        match state.knowledge {
            Knowledge::Full => {
                state.queued.push_back((token, operation));
                Ok(Submitted::Queued)
            }
            Knowledge::None => {
                state.arm(self.clock.now(), token, operation);
                Ok(Submitted::Armed)
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        let mut state = self.state.borrow_mut();
        if state.forget(token) {
            state.ended.push_back(Completion { token, result: CANCELLED });
        }
    }

    fn poll(&mut self, wait: Wait, found: &mut Completions) -> Result<Polled, SimError> {
        let mut state = self.state.borrow_mut();
        state.polls.push(self.clock.now());
        self.clock.advance(state.poll_cost + core::mem::take(&mut state.stall));
        let armed = state.arm_queued(self.clock.now()) + core::mem::take(&mut state.withdrawn);
        state.expire(self.clock.now());
        if wait != Wait::Never && state.ended.is_empty() && !self.notifications.see() {
            state.waits += 1;
            drop(state);
            self.wait(wait)?;
            state = self.state.borrow_mut();
            state.expire(self.clock.now());
        }
        while found.room() > 0
            && let Some(completion) = state.ended.pop_front()
        {
            found.push(completion);
        }
        if core::mem::take(&mut state.fails) { Err(SimError::Failed) } else { Ok(Polled { armed }) }
    }

    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.notifications))
    }
}

impl SimReactor {
    fn wait(&self, wait: Wait) -> Result<(), SimError> {
        let mut state = self.state.borrow_mut();
        let due = state.timers.first_key_value().map(|(&(time, _), _)| time);
        let until = match wait {
            Wait::Until(deadline) => Some(due.map_or(deadline, |due| due.min(deadline))),
            Wait::Never | Wait::Forever => due,
        };
        if let Some(until) = until {
            self.clock.advance_to(until);
            return Ok(());
        }
        match core::mem::replace(&mut state.waiting, Waiting::OnVirtualTime) {
            Waiting::OnVirtualTime => Err(SimError::Hang),
            Waiting::Calls(mut call) => {
                // The call may fire events.
                drop(state);
                call();
                self.state.borrow_mut().waiting = Waiting::Calls(call);
                self.notifications.see();
                Ok(())
            }
            #[cfg(feature = "std")]
            Waiting::ForReal => {
                state.waiting = Waiting::ForReal;
                drop(state);
                self.notifications.wait();
                Ok(())
            }
        }
    }
}

impl fmt::Debug for SimReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimReactor").field("held", &self.control().held()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").field("held", &self.held()).finish_non_exhaustive()
    }
}
