//! What the tests of this package share: a worker on virtual time, tasks that count what happens to
//! them, wakers that count, numbers from a seed, and waits that end.

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use evenkeel::io::IoReactor;
use evenkeel::testing::{Sim, SimReactor, VirtualClock};
use evenkeel::{
    Handle, Lane, Remote, Rest, StartError, Team, ThreadConfig, Tick, Worker, WorkerConfig,
    WorkerThread, yield_now,
};
use evenkeel_epoll::EpollReactor;
use evenkeel_uring::UringReactor;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Misuse that does not compile. A future that is larger than its place:
///
/// ```compile_fail,E0080
/// use evenkeel::TaskStorage;
///
/// static SMALL: TaskStorage<64> = TaskStorage::new("small");
///
/// let held = [0_u8; 100];
/// let large = async move {
///     evenkeel::yield_now().await;
///     held
/// };
/// let rig = evenkeel_tests::Rig::knowing();
/// drop(rig.handle.spawn_in(SMALL.reserve().unwrap(), large));
/// ```
///
/// The same in a place that is large enough:
///
/// ```
/// use evenkeel::TaskStorage;
///
/// static LARGE: TaskStorage<512> = TaskStorage::new("large");
///
/// let held = [0_u8; 100];
/// let large = async move {
///     evenkeel::yield_now().await;
///     held
/// };
/// let rig = evenkeel_tests::Rig::knowing();
/// drop(rig.handle.spawn_in(LARGE.reserve().unwrap(), large));
/// ```
///
/// A place that is used twice:
///
/// ```compile_fail,E0382
/// # use evenkeel::testing::SimReactor;
/// # use evenkeel::{Handle, TaskStorage};
/// static TASKS: TaskStorage<512> = TaskStorage::new("tasks");
///
/// fn spawn(handle: &Handle<SimReactor>) {
///     let place = TASKS.reserve().unwrap();
///     drop(handle.spawn_in(place, async {}));
///     drop(handle.spawn_in(place, async {}));
/// }
/// ```
///
/// A worker, or its handle, on another thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<evenkeel::Worker<evenkeel::testing::SimReactor, evenkeel::MonotonicClock>>();
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<evenkeel::Handle<evenkeel_epoll::EpollReactor>>();
/// ```
///
/// A future that can't be sent, submitted from outside or for others to steal:
///
/// ```compile_fail
/// # use evenkeel::{Remote, testing::SimReactor};
/// fn submit(remote: &Remote<SimReactor>, mine: std::rc::Rc<u8>) {
///     drop(remote.spawn(async move { *mine }));
/// }
/// ```
///
/// ```compile_fail
/// # use evenkeel::{Handle, testing::SimReactor};
/// fn spawn(handle: &Handle<SimReactor>, mine: std::rc::Rc<u8>) {
///     drop(handle.spawn_stealable(async move { *mine }));
/// }
/// ```
///
/// A worker that is ticked by its own task, which would have to borrow it twice:
///
/// ```compile_fail,E0521
/// # use evenkeel::{Clock, Reactor, Worker};
/// fn tick_inside<R: Reactor, C: Clock>(worker: &mut Worker<R, C>) {
///     let handle = worker.handle();
///     drop(handle.spawn(async move { drop(worker.tick()) }));
/// }
/// ```
///
/// A queue without room:
///
/// ```compile_fail,E0080
/// # use evenkeel::{link::Linked, steal::StealQueue};
/// # use std::ptr::NonNull;
/// # struct Item;
/// # unsafe impl Linked for Item {
/// #     fn into_link(self) -> NonNull<evenkeel::link::Link> { NonNull::dangling() }
/// #     unsafe fn from_link(_: NonNull<evenkeel::link::Link>) -> Self { Item }
/// # }
/// static NONE: StealQueue<Item, 0> = StealQueue::new();
/// ```
#[cfg(doctest)]
struct CompileErrors;

/// No test on virtual time needs more ticks in a row than this.
const MOST_TICKS: usize = 4_000_000;
/// No test on live threads waits longer for anything than this.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// A worker over the simulated reactor, and all that steers it.
pub struct Rig {
    /// The worker. Dropped before the handles.
    pub worker: Worker<SimReactor, VirtualClock>,
    /// Its handle.
    pub handle: Handle<SimReactor>,
    /// Its handle for other threads.
    pub remote: Remote<SimReactor>,
    /// Steers its reactor.
    pub sim: Sim,
    /// Its clock.
    pub clock: VirtualClock,
    /// How much virtual time each [`dispatch`](Self::dispatch) takes.
    pub cost: Duration,
}

/// What one dispatch was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The lane that the task came from.
    pub lane: Lane,
    /// How often the reactor was polled before it.
    pub polls: u32,
    /// How many operations ended before it.
    pub completions: u32,
    /// How many inbox entries were settled before it.
    pub settled: u32,
}

/// What a [`SimReactor`] can tell without a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// Everything, as `io_uring`.
    Knowing,
    /// Nothing, as epoll.
    Blind,
}

impl Sight {
    /// Both kinds.
    pub const BOTH: [Self; 2] = [Self::Knowing, Self::Blind];
}

impl Rig {
    /// A worker with its defaults.
    #[must_use]
    pub fn new(sight: Sight) -> Self {
        Self::with(sight, WorkerConfig::default(), |reactor| reactor)
    }

    /// A worker whose reactor knows its readiness, with its defaults.
    #[must_use]
    pub fn knowing() -> Self {
        Self::new(Sight::Knowing)
    }

    /// A worker with its own configuration and changes to its reactor.
    #[must_use]
    pub fn with(
        sight: Sight,
        config: WorkerConfig,
        change: impl FnOnce(SimReactor) -> SimReactor,
    ) -> Self {
        Self::on(VirtualClock::new(), sight, config, change)
    }

    /// The same, on a clock that others go by as well.
    #[must_use]
    pub fn on(
        clock: VirtualClock,
        sight: Sight,
        config: WorkerConfig,
        change: impl FnOnce(SimReactor) -> SimReactor,
    ) -> Self {
        let reactor = change(SimReactor::new(&clock));
        let reactor = if sight == Sight::Blind { reactor.blind() } else { reactor };
        let sim = reactor.control();
        let worker = Worker::new(reactor, clock.clone(), config);
        let (handle, remote) = (worker.handle(), worker.remote());
        Self { worker, handle, remote, sim, clock, cost: Duration::ZERO }
    }

    /// One tick, of as many dispatches as the worker likes.
    ///
    /// # Panics
    /// If the reactor fails.
    pub fn tick(&mut self) -> Tick {
        self.worker.tick().expect("the simulated reactor does not fail here")
    }

    /// The next dispatch, or nothing if there is nothing to run.
    ///
    /// # Panics
    /// If the worker neither dispatches nor comes to rest.
    pub fn dispatch(&mut self) -> Option<Step> {
        let mut step = Step { lane: Lane::Local, polls: 0, completions: 0, settled: 0 };
        for _ in 0..MOST_TICKS {
            let tick = self.worker.tick_at_most(NonZeroU32::MIN).expect("no failure was asked for");
            step.polls += tick.polls;
            step.completions += tick.completions;
            step.settled += tick.settled;
            let ran = tick.dispatches;
            assert!(ran.total() <= 1, "asked for one dispatch at most, got {ran:?}");
            if ran.total() == 1 {
                step.lane = match ran {
                    _ if ran.local == 1 => Lane::Local,
                    _ if ran.remote == 1 => Lane::Remote,
                    _ => Lane::Io,
                };
                self.clock.advance(self.cost);
                return Some(step);
            }
            match tick.rest {
                Rest::Spent => {}
                Rest::Idle | Rest::Stopped => return None,
                Rest::Busy => panic!("no push is half done between two ticks"),
            }
        }
        panic!("{MOST_TICKS} ticks, and neither a dispatch nor rest");
    }

    /// So many dispatches, of which each must happen.
    ///
    /// # Panics
    /// If the worker comes to rest before.
    pub fn dispatches(&mut self, count: usize) -> Vec<Step> {
        (0..count).map(|_| self.dispatch().expect("there is something to run")).collect()
    }

    /// Runs until there is nothing to run. Gives the dispatches that it took.
    ///
    /// # Panics
    /// If that does not come.
    pub fn settle(&mut self) -> usize {
        let mut dispatches = 0;
        for _ in 0..MOST_TICKS {
            let tick = self.tick();
            dispatches += tick.dispatches.total() as usize;
            match tick.rest {
                Rest::Spent => {}
                Rest::Idle => return dispatches,
                Rest::Busy | Rest::Stopped => panic!("unexpected rest: {tick:?}"),
            }
        }
        panic!("the worker did not come to rest in {MOST_TICKS} ticks");
    }

    /// Spawns tasks that yield until the cell is set.
    #[allow(clippy::must_use_candidate)] // most tests never stop them
    pub fn backlog(&self, tasks: usize) -> Rc<Cell<bool>> {
        let stop = Rc::new(Cell::new(false));
        for _ in 0..tasks {
            let stop = Rc::clone(&stop);
            drop(self.handle.spawn(async move {
                while !stop.get() {
                    yield_now().await;
                }
            }));
        }
        stop
    }
}

/// A team of so many workers on one clock, to be ticked by hand.
///
/// # Panics
/// If there can't be a team of so many.
#[must_use]
pub fn team_of(workers: usize, sight: Sight) -> (Team, Vec<Rig>) {
    let (team, clock) =
        (Team::new(workers).expect("a size that a team can have"), VirtualClock::new());
    let member = |_| {
        let mut rig =
            Rig::on(clock.clone(), sight, WorkerConfig::default().operations(64), |it| it);
        rig.worker.join(&team).expect("the team has room");
        rig
    };
    let rigs = (0..workers).map(member).collect();
    (team, rigs)
}

/// Counts what happens to a future and to its output.
#[derive(Clone, Default)]
pub struct Tally(Arc<TallyState>);

#[derive(Default)]
struct TallyState {
    polls: AtomicUsize,
    future_drops: AtomicUsize,
    output_drops: AtomicUsize,
    dropped_on: Mutex<Option<ThreadId>>,
}

/// What has happened, to be compared as a whole after each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Polls of the future.
    pub polls: usize,
    /// Drops of the future.
    pub future_drops: usize,
    /// Drops of the output.
    pub output_drops: usize,
}

/// Short for a [`Seen`].
#[must_use]
pub fn seen(polls: usize, future_drops: usize, output_drops: usize) -> Seen {
    Seen { polls, future_drops, output_drops }
}

impl Tally {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What has happened.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            polls: self.0.polls.load(Ordering::SeqCst),
            future_drops: self.0.future_drops.load(Ordering::SeqCst),
            output_drops: self.0.output_drops.load(Ordering::SeqCst),
        }
    }

    /// The thread on which the future was dropped.
    ///
    /// # Panics
    /// If a thread panicked at the wrong place.
    #[must_use]
    pub fn dropped_on(&self) -> Option<ThreadId> {
        *self.0.dropped_on.lock().expect("nothing panics under this lock")
    }

    /// A future whose polls and drops are counted here.
    pub fn future<T, P>(&self, poll: P) -> Counted<P>
    where
        P: FnMut(&mut Context<'_>) -> Poll<T> + Unpin,
    {
        Counted { poll, tally: self.clone() }
    }

    /// A future that waits for ever.
    pub fn pending(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.future(|_| Poll::Pending)
    }

    /// An output whose drop is counted here.
    #[must_use]
    pub fn output(&self) -> Output {
        Output(self.clone())
    }

    /// A future that yields so many times and then gives an output that is counted here.
    pub fn yielding(&self, times: usize) -> impl Future<Output = Output> + Send + Unpin + use<> {
        let (output, mut left) = (self.clone(), times);
        self.future(move |context| {
            if left == 0 {
                return Poll::Ready(output.output());
            }
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

/// See [`Tally::future`].
pub struct Counted<P> {
    poll: P,
    tally: Tally,
}

impl<T, P: FnMut(&mut Context<'_>) -> Poll<T> + Unpin> Future for Counted<P> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.tally.0.polls.fetch_add(1, Ordering::SeqCst);
        (self.poll)(context)
    }
}

impl<P> Drop for Counted<P> {
    fn drop(&mut self) {
        self.tally.0.future_drops.fetch_add(1, Ordering::SeqCst);
        let here = Some(thread::current().id());
        *self.tally.0.dropped_on.lock().expect("nothing panics under this lock") = here;
    }
}

/// See [`Tally::output`].
pub struct Output(Tally);

impl Drop for Output {
    fn drop(&mut self) {
        self.0.0.output_drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that counts its wakes.
#[derive(Default)]
pub struct WakeCount(AtomicUsize);

impl WakeCount {
    /// No wake yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How often it was woken.
    #[must_use]
    pub fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Where a task leaves its waker for others.
#[derive(Clone, Default)]
pub struct WakerSlot(Arc<Mutex<Option<Waker>>>);

impl WakerSlot {
    /// No waker yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves a waker.
    ///
    /// # Panics
    /// If a thread panicked at the wrong place.
    pub fn put(&self, waker: &Waker) {
        let mut slot = self.0.lock().expect("nothing panics under this lock");
        let before = slot.replace(waker.clone());
        drop(slot);
        drop(before);
    }

    /// Takes it.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn take(&self) -> Waker {
        self.0.lock().expect("nothing panics under this lock").take().expect("the task has run")
    }

    /// A copy of it.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn get(&self) -> Waker {
        self.0.lock().expect("nothing panics under this lock").clone().expect("the task has run")
    }
}

/// Does something on another thread and waits for it.
///
/// # Panics
/// If it panics.
pub fn elsewhere<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(run).join().expect("the other thread does not panic")
}

/// One poll, with a waker that nobody hears.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a future that is ready.
///
/// # Panics
/// If it is not.
pub fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll_once(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready"),
    }
}

/// Waits, on a live machine, until something holds.
///
/// # Panics
/// If it does not within [`DEADLINE`]; says what was waited for.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::yield_now();
    }
}

/// Waits, on a live machine, for a future.
///
/// # Panics
/// If it is not ready within [`DEADLINE`]; says what was waited for.
pub fn wait_for<F: Future + Unpin>(what: &str, mut future: F) -> F::Output {
    let mut output = None;
    wait_until(what, || match poll_once(&mut future) {
        Poll::Ready(value) => {
            output = Some(value);
            true
        }
        Poll::Pending => false,
    });
    output.expect("it was ready")
}

/// A reactor over the machine's own kernel, on which the same test body runs as on the other.
pub trait Live: IoReactor + Sized + 'static {
    /// Makes one, on its worker's thread.
    ///
    /// # Errors
    /// Why there is none.
    fn make() -> Result<Self, SetupError>;

    /// Whether the machine may be without it.
    const OPTIONAL: bool;
}

/// Why a reactor could not be made.
pub type SetupError = Box<dyn Error + Send + Sync>;

impl Live for EpollReactor {
    fn make() -> Result<Self, SetupError> {
        Ok(Self::new()?)
    }

    const OPTIONAL: bool = false;
}

impl Live for UringReactor {
    fn make() -> Result<Self, SetupError> {
        Ok(Self::new()?)
    }

    const OPTIONAL: bool = true;
}

/// A worker on a thread of its own, or nothing where the kernel or a sandbox refuses its reactor.
///
/// # Panics
/// If there must be one, and there is not.
#[must_use]
pub fn start<R: Live>(config: WorkerConfig) -> Option<WorkerThread<R>> {
    let config = ThreadConfig { worker: config, timeout: DEADLINE, ..ThreadConfig::default() };
    match WorkerThread::start(config, R::make) {
        Ok(worker) => Some(worker),
        Err(StartError::Reactor(refused)) if R::OPTIONAL => {
            eprintln!("skipped, for there is no such reactor here: {refused}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub use evenkeel::testing::io::Random;

/// The seeds to try: so many, or as many as `EVENKEEL_SEEDS` in the environment says, or the one that
/// `EVENKEEL_SEED` names.
///
/// # Panics
/// If one of them is no number.
#[must_use]
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
    };
    match number("EVENKEEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("EVENKEEL_SEEDS").unwrap_or(count),
    }
}

/// Says on failure which seed it was, and how to run it alone.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {0}: run it alone with EVENKEEL_SEED={0}", self.0);
        }
    }
}
