//! The worker: the run loop of one thread, or of one bare-metal core.

#[cfg(feature = "alloc")]
use alloc::rc::Rc;
#[cfg(feature = "alloc")]
use core::cell::RefCell;
use core::fmt;
use core::num::NonZeroU32;
#[cfg(feature = "io")]
use core::time::Duration;

use crate::handle::{Driver, Handle, Remote};
use crate::reactor::{Completions, Polled, Reactor, Readiness, Wait};
use crate::service::context::{ContextHook, Identity, Ticking};
use crate::service::home::{Delivery, Dispatched, Home};
use crate::service::poll_budget::{PollBudget, PollShare};
use crate::service::stride::Stride;
use crate::service::turns::Lane;
use crate::shared::Shared;
use crate::sync::Backoff;
use crate::task::TaskRef;
#[cfg(feature = "std")]
use crate::team::{Team, TeamError};
use crate::time::{Clock, Instant};
use crate::timers::More;
use crate::worker_storage::{StorageTaken, WorkerStorage};

/// What a worker is made with.
///
/// ```
/// use evenkeel::{PollShare, WorkerConfig};
///
/// let config = WorkerConfig::default().poll_share(PollShare::percent(2).unwrap());
/// # let _ = config;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    #[cfg(feature = "alloc")]
    operations: usize,
    poll_share: PollShare,
    context: Option<ContextHook>,
    #[cfg(feature = "io")]
    drain: Duration,
}

impl WorkerConfig {
    /// How many operations may be in flight at once: 4096 unless said. The room is allocated when
    /// the worker is made, about 100 bytes for each, and with the feature `io` 200 more, for what
    /// they hold. Below 2^32 - 1, or making the worker panics.
    /// A worker in a static has as many as its [`WorkerStorage`] says. With `std` the timers of
    /// [`sleep`](crate::sleep) and its like are among them; those of a [`Handle`] are not.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn operations(self, operations: usize) -> Self {
        Self { operations, ..self }
    }

    /// The share of its time that the worker gives to polls that find nothing, where the reactor
    /// can't tell beforehand: 5 % unless said.
    #[must_use]
    pub fn poll_share(self, poll_share: PollShare) -> Self {
        Self { poll_share, ..self }
    }

    /// How long the worker's end may wait for operations that hold a buffer and have been cancelled:
    /// 1 s unless said. The kernel ends them at once, except for transfers from and to files that
    /// have begun. What has not ended by then is left to it for good, and its number is said by
    /// [`Remote::leaked`].
    #[cfg(feature = "io")]
    #[must_use]
    pub fn drain(self, bound: Duration) -> Self {
        Self { drain: bound, ..self }
    }

    /// How to tell the context in which the worker ticks from others, above all from interrupt
    /// handlers. Without it, and without std, every wake takes the inbox: right, but two atomic
    /// read-modify-writes dearer, and a task that yields queues up with those that interrupts
    /// woke. With std the hook is not asked: a thread knows the worker that ticks on it.
    ///
    /// ```
    /// use evenkeel::WorkerConfig;
    ///
    /// /// On a Cortex-M: 1 outside of handlers, in one the number of its exception plus one.
    /// fn context() -> usize {
    ///     # let active = || 0;
    ///     1 + active() // `cortex_m::peripheral::SCB::vect_active` tells it
    /// }
    /// // SAFETY: there is one core, and each of its handlers has a number of its own.
    /// let config = unsafe { WorkerConfig::default().context(context) };
    /// # let _ = config;
    /// ```
    ///
    /// # Safety
    /// No two contexts that may run at the same time, or of which one may interrupt the other, are
    /// given the same name, and none is 0: see [`ContextHook`]. By the name a wake takes itself to
    /// be the worker's own, and touches what only the worker may.
    #[allow(unsafe_code)] // it is only stored here
    #[must_use]
    pub unsafe fn context(self, hook: ContextHook) -> Self {
        Self { context: Some(hook), ..self }
    }
}

#[allow(clippy::derivable_impls)] // it is so only without an allocator
impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            #[cfg(feature = "alloc")]
            operations: 4096,
            poll_share: PollShare::default(),
            context: None,
            #[cfg(feature = "io")]
            drain: Duration::from_secs(1),
        }
    }
}

/// Why a tick ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// It did all that a tick may do; more may wait.
    Spent,
    /// There is nothing to run: the worker may park.
    Idle,
    /// There is nothing to run that can be reached: a push to the inbox is half done. The worker
    /// must not park; the next tick finds it.
    Busy,
    /// The worker was asked to end. Nothing was run.
    Stopped,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick {
    /// How many tasks were polled, by lane.
    pub dispatches: Dispatches,
    /// How many turns went by without a dispatch: inbox entries that were settled so (cancels, wakes
    /// of tasks that were queued already or had ended), and polls after which there was no task.
    pub settled: u32,
    /// How often the reactor was polled.
    pub polls: u32,
    /// How many of these polls found nothing and had nothing to arm.
    pub dry_polls: u32,
    /// How many operations ended.
    pub completions: u32,
    /// How many timers fired.
    pub timers: u32,
    /// Why it ended.
    pub rest: Rest,
}

/// Polls of tasks, by the lane that each came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dispatches {
    /// From the local lane.
    pub local: u32,
    /// From the inbox.
    pub remote: u32,
    /// Woken by completions.
    pub io: u32,
}

impl Dispatches {
    /// From all lanes.
    #[must_use]
    pub fn total(self) -> u32 {
        self.local + self.remote + self.io
    }

    fn count(&mut self, lane: Lane) {
        match lane {
            Lane::Local => self.local += 1,
            Lane::Remote => self.remote += 1,
            Lane::Io => self.io += 1,
        }
    }
}

/// How a park ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// The worker did not wait: after it had announced that it parks, its last look found something
    /// to do.
    Retracted,
    /// It waited in its reactor, which returned: for a completion, a wake, or the end of the wait.
    Waited,
}

/// What the worker found to do.
enum Found {
    Task(Lane, TaskRef),
    /// Something was done that is no dispatch, and more may wait.
    Settled,
    Nothing,
    Busy,
}

/// The run loop of one thread, over one reactor and one clock.
///
/// It stays on the thread where it is made. Drive it by [`run`](Self::run), or by a loop of your own
/// out of [`tick`](Self::tick) and [`park`](Self::park). Dropping it drops all tasks that have not
/// ended, on this thread; their join handles say "cancelled".
///
/// The lanes take turns while several of them hold work. The *m*-th task of a lane is dispatched
/// after at most 3 *m* dispatches and ⌈*m* / [`POLL_BATCH`](crate::POLL_BATCH)⌉ polls of the
/// reactor, counted from when it becomes visible, however long the other lanes are. In the remote
/// lane an entry of the inbox that is settled without a dispatch, as a cancel is, counts like one.
///
/// Timers and completions share the `io` lane, a batch of the one after a batch of the other. So a
/// timer becomes visible at the look at the clock that finds it due, unless a batch or more of those
/// that were due before it are still to be served: the *m*-th of them is dispatched after at most
/// 3 (*m* + *c*) dispatches and a clock stride, where *c* are the completions that came between:
/// at most a batch for each batch of timers.
///
/// ```
/// # #[cfg(feature = "testing")]
/// # fn main() -> Result<(), evenkeel::testing::SimError> {
/// use evenkeel::testing::{SimReactor, VirtualClock};
/// use evenkeel::{Worker, WorkerConfig, yield_now};
///
/// let clock = VirtualClock::new();
/// let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
/// let sum = worker.handle().spawn(async {
///     let mut sum = 0;
///     for number in 1..=10 {
///         sum += number;
///         yield_now().await;
///     }
///     sum
/// });
/// while !sum.is_finished() {
///     worker.tick()?;
/// }
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
pub struct Worker<R: Reactor + 'static, C: Clock + 'static> {
    driver: Shared<Driver<R, C>>,
    stride: Stride,
    service: Service,
    /// Dispatches since the last look at the clock.
    since_look: u32,
    #[cfg(feature = "io")]
    drain: Duration,
}

impl<R: Reactor + 'static, C: Clock + 'static> Worker<R, C> {
    /// A worker for this thread. Allocates its tables; makes no system call.
    #[cfg(feature = "alloc")]
    pub fn new(reactor: R, clock: C, config: WorkerConfig) -> Self {
        let identity = Identity::new(config.context);
        let home = Home::counted(reactor.notifier(), config.operations, identity);
        let driver = Driver { home, reactor: RefCell::new(reactor), clock };
        Self::over(Shared::Counted(Rc::new(driver)), config)
    }

    /// A worker for this thread, or this core, in a static. Allocates nothing, and nor does
    /// anything that it does; makes no system call.
    ///
    /// # Errors
    /// If the static has had its worker: it serves once. Reactor and clock come back.
    pub fn new_in<const OPERATIONS: usize>(
        storage: &'static WorkerStorage<R, C, OPERATIONS>,
        reactor: R,
        clock: C,
        config: WorkerConfig,
    ) -> Result<Self, StorageTaken<R, C>> {
        let driver = storage.fill(reactor, clock, Identity::new(config.context))?;
        Ok(Self::over(Shared::Static(driver), config))
    }

    fn over(driver: Shared<Driver<R, C>>, config: WorkerConfig) -> Self {
        driver.home.set_driver(Some(driver.hook()));
        let service = Service {
            poll_budget: PollBudget::new(config.poll_share),
            turn: Lane::Local,
            found: Completions::new(),
        };
        Self {
            driver,
            stride: Stride::new(),
            service,
            since_look: 0,
            #[cfg(feature = "io")]
            drain: config.drain,
        }
    }

    /// The handle for this thread.
    #[must_use]
    pub fn handle(&self) -> Handle<R> {
        self.driver.handle()
    }

    /// The handle for other threads.
    #[must_use]
    pub fn remote(&self) -> Remote<R> {
        self.handle().remote()
    }

    /// Joins a team, for good. From now on it must be ticked, or dropped: a worker that idles is
    /// called by the others to help, and they rely on it.
    ///
    /// # Errors
    /// If the team is full or ended, or the worker is in one.
    #[cfg(feature = "std")]
    pub fn join(&mut self, team: &Team) -> Result<(), TeamError> {
        team.take_in(&self.driver.home)
    }

    /// Ticks and parks until it is asked to stop.
    ///
    /// # Errors
    /// What the reactor could not mend. The worker may be run again.
    pub fn run(&mut self) -> Result<(), R::Error> {
        let backoff = Backoff::new();
        loop {
            match self.tick()?.rest {
                Rest::Spent => backoff.reset(),
                // The producer may need this very CPU to complete its push.
                Rest::Busy => backoff.snooze(),
                Rest::Idle => {
                    self.park(Wait::Forever)?;
                }
                Rest::Stopped => return Ok(()),
            }
        }
    }

    /// Looks at the clock once and fires the timers that are due, a batch at most; then dispatches
    /// until the next look is due: about a microsecond, at most 64 dispatches, at least one. It looks
    /// at the inbox and at the reactor before each.
    ///
    /// Allocates nothing. A system call is made only by a poll of the reactor.
    ///
    /// # Errors
    /// What the reactor could not mend. What was dispatched before has been.
    pub fn tick(&mut self) -> Result<Tick, R::Error> {
        self.tick_at_most(NonZeroU32::MAX)
    }

    /// As [`tick`](Self::tick), with at most `most` dispatches.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn tick_at_most(&mut self, most: NonZeroU32) -> Result<Tick, R::Error> {
        let mut tick = Tick {
            dispatches: Dispatches::default(),
            settled: 0,
            polls: 0,
            dry_polls: 0,
            completions: 0,
            timers: 0,
            rest: Rest::Stopped,
        };
        if self.driver.home.is_stopping() {
            // Who keeps a worker that is asked to stop may not keep the others from being called.
            self.driver.home.decline_call();
            return Ok(tick);
        }
        let Self { driver, stride, service, since_look, .. } = self;
        let driver = &**driver;
        let home = &*driver.home;
        let _ticking = Ticking::enter(home);
        let now = driver.clock.now();
        let budget = stride.next(now, *since_look).min(most.get());
        home.slice().begin(service.poll_budget.due());
        let mut look = Look {
            poll_due: service.poll_budget.is_due(now),
            timers_due: home.timers().next_deadline().is_some_and(|deadline| deadline <= now),
        };
        if look.timers_due && !home.has_io() {
            service.fire_timers(driver, now, &mut look, &mut tick)?;
        }
        let rest = if home.is_in_team() {
            home.keep_up_with_team();
            service.serve(driver, budget, &mut look, &mut tick, Home::dispatch_next)
        } else {
            service.serve(driver, budget, &mut look, &mut tick, Home::dispatch_next_pinned)
        };
        *since_look = tick.dispatches.total() + tick.settled;
        if !matches!(rest, Ok(Rest::Spent)) {
            stride.pause();
        }
        home.counts.dispatches.add(tick.dispatches.total() as usize);
        rest.map(|rest| Tick { rest, ..tick })
    }

    /// Announces that the worker parks, looks once more, and blocks in the reactor as long as
    /// `wait` says, or until something is handed over, an operation ends or a timer is due.
    ///
    /// To be called when a tick has said [`Rest::Idle`]; otherwise it finds something to do and
    /// returns at once. One system call, by the reactor.
    ///
    /// # Errors
    /// What the reactor could not mend.
    pub fn park(&mut self, wait: Wait) -> Result<Parked, R::Error> {
        let Self { driver, stride, service, .. } = self;
        let home = &*driver.home;
        let announced = Announced::by(home);
        let deadline = home.timers().next_deadline();
        if home.has_own()
            || !home.is_drained()
            || home.is_stopping()
            || home.could_steal()
            || deadline.is_some_and(|deadline| deadline <= driver.clock.now())
            || driver.reactor.borrow_mut().readiness() == Readiness::Ready
        {
            home.counts.retractions.add(1);
            return Ok(Parked::Retracted);
        }
        service.found.clear();
        home.counts.parks.add(1);
        let wait = deadline.map_or(wait, |deadline| wait.at_most_until(deadline));
        let polled = driver.reactor.borrow_mut().poll(wait, &mut service.found);
        drop(announced);
        stride.pause();
        // The wait was a look into the kernel as good as any, unless it saw that more may wait.
        if service.found.room() > 0 {
            service.poll_budget.spend(driver.clock.now());
        }
        let _ticking = Ticking::enter(home);
        let (_, outcome) = service.deliver(home, polled);
        outcome.map(|()| Parked::Waited)
    }
}

/// While it lives the worker has announced that it parks. Then it goes on, also where a reactor or
/// a clock has panicked: whoever was told that it idles relies on it.
struct Announced<'a>(&'a Home);

impl<'a> Announced<'a> {
    fn by(home: &'a Home) -> Self {
        home.announce_park();
        Self(home)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// What a worker needs to serve lanes that hold work beside the local one.
struct Service {
    poll_budget: PollBudget,
    /// Whose turn it is, if several lanes hold work.
    turn: Lane,
    found: Completions,
}

impl Service {
    /// Dispatches until the budget is spent or there is nothing to run. `next` dispatches the front
    /// of the local lane.
    #[inline(never)]
    fn serve<R: Reactor, C: Clock>(
        &mut self,
        driver: &Driver<R, C>,
        budget: u32,
        look: &mut Look,
        tick: &mut Tick,
        next: impl Fn(&Home) -> Dispatched,
    ) -> Result<Rest, R::Error> {
        let home = &*driver.home;
        let mut done = 0;
        // Of these, what did not come from the local lane while the others were empty.
        let mut in_turn = 0;
        let rest = loop {
            if done == budget {
                break Ok(Rest::Spent);
            }
            let readiness = driver.reactor.borrow_mut().readiness();
            if !look.polls(readiness) && !home.has_remote() && !home.has_io() {
                match next(home) {
                    Dispatched::One => {}
                    Dispatched::None if !home.is_drained() => break Ok(Rest::Busy),
                    Dispatched::None if home.steal() > 0 => continue,
                    Dispatched::None => break Ok(Rest::Idle),
                }
            } else {
                match self.find(driver, readiness, look, tick) {
                    Ok(Found::Task(lane, task)) => {
                        home.dispatch(task);
                        tick.dispatches.count(lane);
                    }
                    Ok(Found::Settled) => tick.settled += 1,
                    Ok(Found::Nothing) if home.steal() > 0 => continue,
                    Ok(Found::Nothing) => break Ok(Rest::Idle),
                    Ok(Found::Busy) => break Ok(Rest::Busy),
                    Err(error) => break Err(error),
                }
                in_turn += 1;
                // The next look at the clock fires more of them.
                if look.timers_due && !home.has_io() {
                    done += 1;
                    break Ok(Rest::Spent);
                }
            }
            done += 1;
        };
        tick.dispatches.local += done - in_turn;
        rest
    }

    /// Fires a batch of timers into the `io` lane, which is empty. A poll that is due comes with it:
    /// else timers that are set again and again would keep the lane filled, and the reactor waiting.
    #[inline(never)]
    fn fire_timers<R: Reactor, C: Clock>(
        &mut self,
        driver: &Driver<R, C>,
        now: Instant,
        look: &mut Look,
        tick: &mut Tick,
    ) -> Result<(), R::Error> {
        let expired = driver.home.expire(now);
        look.timers_due = expired.more == More::Due;
        tick.timers += u32::try_from(expired.fired).expect("a batch is small");
        let readiness = driver.reactor.borrow_mut().readiness();
        if look.polls(readiness) { self.poll(driver, readiness, look, tick) } else { Ok(()) }
    }

    /// Several lanes may hold work: they take turns.
    #[inline(never)]
    fn find<R: Reactor, C: Clock>(
        &mut self,
        driver: &Driver<R, C>,
        readiness: Readiness,
        look: &mut Look,
        tick: &mut Tick,
    ) -> Result<Found, R::Error> {
        let home = &*driver.home;
        let polls = look.polls(readiness);
        let mut nothing = Found::Nothing;
        for _ in 0..Lane::COUNT {
            let lane = self.turn;
            self.turn = lane.after();
            let task = match lane {
                Lane::Local => home.next_local(),
                Lane::Io => {
                    // What a poll found is served before the next poll, so the lane never holds
                    // more than a batch of completions and one of timers, and its tasks keep the
                    // order of their events. At this lane's turn, so that the others wait for no
                    // more polls than they have to.
                    if polls && !home.has_io() {
                        self.poll(driver, readiness, look, tick)?;
                    }
                    home.next_io()
                }
                Lane::Remote => match home.next_remote() {
                    Delivery::Task(task) => Some(task),
                    Delivery::Cancel(token) => {
                        if !home.cancels_timer(token) {
                            driver.reactor.borrow_mut().cancel(token);
                        }
                        return Ok(Found::Settled);
                    }
                    Delivery::Settled => return Ok(Found::Settled),
                    Delivery::Empty => None,
                    Delivery::Busy => {
                        nothing = Found::Busy;
                        None
                    }
                },
            };
            if let Some(task) = task {
                return Ok(Found::Task(lane, task));
            }
        }
        // The reactor may have more, or the poll only armed something: that is for the next look.
        Ok(if polls && matches!(nothing, Found::Nothing) { Found::Settled } else { nothing })
    }

    /// One look into the kernel that does not wait.
    #[inline]
    fn poll<R: Reactor, C: Clock>(
        &mut self,
        driver: &Driver<R, C>,
        readiness: Readiness,
        look: &mut Look,
        tick: &mut Tick,
    ) -> Result<(), R::Error> {
        let home = &*driver.home;
        // A poll that is known to find something is not paid for by the budget.
        let start = (readiness == Readiness::Unknown).then(|| driver.clock.now());
        self.found.clear();
        let polled = driver.reactor.borrow_mut().poll(Wait::Never, &mut self.found);
        let armed = polled.as_ref().map_or(0, |polled| polled.armed);
        let dry = self.found.as_slice().is_empty() && armed == 0;
        if let Some(start) = start {
            if dry {
                self.poll_budget.learn(driver.clock.now().nanos_since(start));
            }
            // A batch that is full says that more may wait: the next poll is due when it is served.
            look.poll_due = self.found.room() == 0;
            if !look.poll_due {
                self.poll_budget.spend(start);
            }
        }
        tick.polls += 1;
        tick.dry_polls += u32::from(dry);
        home.counts.polls.add(1);
        home.counts.dry_polls.add(usize::from(dry));
        let (ended, outcome) = self.deliver(home, polled);
        tick.completions += ended;
        outcome
    }

    /// Gives what a poll found to the operations, also one that failed after that, and counts what
    /// it armed. How many operations ended.
    fn deliver<E>(&mut self, home: &Home, polled: Result<Polled, E>) -> (u32, Result<(), E>) {
        let mut ended = 0;
        for &completion in self.found.as_slice() {
            ended += u32::from(home.complete(completion));
        }
        let armed = polled.as_ref().map_or(0, |polled| polled.armed);
        home.count_armed(|before| (before + armed).saturating_sub(ended as usize));
        (ended, polled.map(drop))
    }
}

/// What is known since the last look at the clock.
struct Look {
    /// Whether timers are due that have not fired: the batch was full, or the lane was not empty.
    timers_due: bool,
    /// Whether a reactor that can't tell is to be polled.
    poll_due: bool,
}

impl Look {
    /// Whether the reactor is to be polled, at its lane's turn.
    #[inline]
    fn polls(&self, readiness: Readiness) -> bool {
        match readiness {
            Readiness::Quiet => false,
            Readiness::Ready => true,
            Readiness::Unknown => self.poll_due,
        }
    }
}

impl<R: Reactor, C: Clock> Drop for Worker<R, C> {
    fn drop(&mut self) {
        let driver = &*self.driver;
        let _ticking = Ticking::enter(&driver.home);
        driver.home.close(|| {
            #[cfg(feature = "io")]
            drain(driver, self.drain, &mut self.service.found);
        });
        driver.home.set_driver(None);
    }
}

/// Cancels the operations that hold something which the kernel may reach, and waits until the
/// reactor has reported their ends, within the bound. What is in flight besides ends with the
/// reactor.
#[cfg(feature = "io")]
fn drain<R: Reactor, C: Clock>(driver: &Driver<R, C>, bound: Duration, found: &mut Completions) {
    let (home, deadline) = (&*driver.home, driver.clock.now() + bound);
    for token in home.laden() {
        driver.reactor.borrow_mut().cancel(token);
    }
    // As many looks as there may be ends, and as many again for what is woken or is nobody's: a clock
    // that stands still is waited for no longer than that.
    let mut looks = 64 + 2 * home.operations().capacity();
    while looks > 0 && home.laden().next().is_some() && driver.clock.now() < deadline {
        looks -= 1;
        found.clear();
        let polled = driver.reactor.borrow_mut().poll(Wait::Until(deadline), found);
        for &completion in found.as_slice() {
            home.complete_at_end(completion);
        }
        if polled.is_err() && found.as_slice().is_empty() {
            return;
        }
    }
}

impl<R: Reactor, C: Clock> fmt::Debug for Worker<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("turn", &self.service.turn).finish_non_exhaustive()
    }
}
