//! Teams from a seed, against a model, on virtual time and one thread: no task is lost, none is
//! polled after its end or twice at once, and where nothing is stolen each lane is first in, first
//! out.
//!
//! A failure names its seed; `EVENKEEL_SEED=n` runs that one alone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::num::NonZeroU32;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evenkeel::testing::{SimError, SimOperation};
use evenkeel::{InFlight, JoinError, JoinHandle, Lane, Parked, Rest, Team, Wait};
use evenkeel_tests::{Random, Rig, Seed, Sight, elsewhere, poll_once, seeds, team_of};

const SEEDS: u64 = 1_500;
const SEEDS_IN_ORDER: u64 = 500;
/// No program has more tasks than this.
const MOST_TASKS: usize = 400;
const EVENTS: u32 = 3;

/// How a task ended, if it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Ready,
    Panicked,
    /// Dropped without having said anything.
    Cancelled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// To this worker.
    Pinned(usize),
    Stealable,
}

/// What the model knows of a task.
struct Known {
    kind: Kind,
    end: Cell<Option<End>>,
    drops: Cell<usize>,
    polled: Cell<bool>,
    /// It was woken since its last poll began, or has never been polled.
    owed: Cell<bool>,
    aborted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    operations: RefCell<Vec<InFlight>>,
    joins: RefCell<Vec<(usize, JoinHandle<usize>)>>,
}

struct World {
    random: RefCell<Random>,
    team: Team,
    /// Nothing where the worker has ended.
    rigs: Vec<RefCell<Option<Rig>>>,
    handles: Vec<evenkeel::Handle<evenkeel::testing::SimReactor>>,
    remotes: Vec<evenkeel::Remote<evenkeel::testing::SimReactor>>,
    /// The workers that are being ticked, the innermost last.
    ticking: RefCell<Vec<usize>>,
    known: RefCell<Vec<Rc<Known>>>,
    joins: RefCell<Vec<(usize, JoinHandle<usize>)>>,
    /// Tasks start nothing new, and end.
    draining: Cell<bool>,
    /// Workers end: what is dropped is dropped for that.
    ending: Cell<bool>,
    /// All workers have ended, or the last is at its end.
    over: Cell<bool>,
    /// A check failed inside a task, where the worker caught it.
    failed: Cell<bool>,
    /// Held by every future: none is leaked.
    held: Arc<()>,
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

fn world() -> Rc<World> {
    WORLD.with_borrow(|world| Rc::clone(world.as_ref().expect("a program runs")))
}

/// After a failure the world is left as it is: nothing in it can be trusted to end well.
struct Leaked;

impl Drop for Leaked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(WORLD.take());
        }
    }
}

impl World {
    fn below(&self, bound: usize) -> usize {
        self.random.borrow_mut().below(bound)
    }

    fn once_in(&self, times: usize) -> bool {
        self.random.borrow_mut().once_in(times)
    }

    fn task(&self, id: usize) -> Rc<Known> {
        Rc::clone(&self.known.borrow()[id])
    }

    fn any_task(&self) -> Option<Rc<Known>> {
        let count = self.known.borrow().len();
        (count > 0).then(|| self.task(self.below(count)))
    }

    fn know(&self, kind: Kind) -> Option<usize> {
        let id = self.known.borrow().len();
        if id >= MOST_TASKS {
            return None;
        }
        self.known.borrow_mut().push(Rc::new(Known {
            kind,
            end: Cell::new(None),
            drops: Cell::new(0),
            polled: Cell::new(false),
            owed: Cell::new(true),
            aborted: Cell::new(false),
            waker: RefCell::default(),
            operations: RefCell::default(),
            joins: RefCell::default(),
        }));
        Some(id)
    }

    /// Spawns a task in any of the ways, to any worker.
    fn spawn(&self) {
        let worker = self.below(self.rigs.len());
        let way = self.below(8);
        let kind = if way < 2 { Kind::Pinned(worker) } else { Kind::Stealable };
        let Some(id) = self.know(kind) else { return };
        let task = Task::new(id, Arc::clone(&self.held));
        let spawned = match way {
            0 => Some(self.handles[worker].spawn(task)),
            1 => Some(self.remotes[worker].spawn(task)),
            2..6 => Some(self.handles[worker].spawn_stealable(task)),
            6 => self.team.spawn(task).ok(),
            // What is dropped there would not find the world.
            _ if self.once_in(10) && !self.over.get() => {
                let team = self.team.clone();
                elsewhere(move || team.spawn(task).ok())
            }
            _ => self.team.spawn(task).ok(),
        };
        match spawned {
            Some(task) if !self.once_in(3) => self.joins.borrow_mut().push((id, task)),
            other => drop(other),
        }
    }

    /// Wakes any task that has run, from wherever this is called.
    fn wake_any(&self) {
        let Some(known) = self.any_task() else { return };
        let Some(waker) = known.waker.borrow().clone() else { return };
        known.owed.set(true);
        match self.below(30) {
            0 if !self.ending.get() => elsewhere(move || waker.wake_by_ref()),
            1..10 => waker.wake_by_ref(),
            _ => waker.wake(),
        }
    }

    fn abort_any(&self) {
        let joins = self.joins.borrow();
        if joins.is_empty() {
            return;
        }
        let (id, join) = &joins[self.below(joins.len())];
        self.task(*id).aborted.set(true);
        join.abort();
    }

    fn fire(&self) {
        let worker = self.below(self.rigs.len());
        // A worker that is ticked, further out, can't be asked now.
        if let Ok(rig) = self.rigs[worker].try_borrow()
            && let Some(rig) = &*rig
        {
            let _ = rig.sim.fire(u32::try_from(self.below(EVENTS as usize)).unwrap(), 7);
        }
    }

    /// Ticks a worker that is not being ticked already.
    fn tick(&self, worker: usize, most: u32) -> Option<Rest> {
        let mut rig = self.rigs[worker].try_borrow_mut().ok()?;
        let rig = rig.as_mut()?;
        self.ticking.borrow_mut().push(worker);
        let tick = rig.worker.tick_at_most(NonZeroU32::new(most).unwrap()).unwrap();
        assert_eq!(self.ticking.borrow_mut().pop(), Some(worker));
        Some(tick.rest)
    }

    fn park(&self, worker: usize) {
        let Ok(mut rig) = self.rigs[worker].try_borrow_mut() else { return };
        let Some(rig) = rig.as_mut() else { return };
        // Nobody comes to wake it, unless something is due.
        match rig.worker.park(if self.once_in(2) { Wait::Never } else { Wait::Forever }) {
            Ok(_) | Err(SimError::Hang) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends a worker.
    fn end(&self, worker: usize) {
        let Ok(mut place) = self.rigs[worker].try_borrow_mut() else { return };
        let Some(rig) = place.take() else { return };
        drop(place);
        let before = self.ending.replace(true);
        self.over.set(self.rigs.iter().all(|rig| rig.try_borrow().is_ok_and(|rig| rig.is_none())));
        drop(rig);
        self.ending.set(before);
    }
}

/// A task that does at each poll what the seed says. It can be sent: all else is in the world.
struct Task {
    id: usize,
    _held: Arc<()>,
}

impl Task {
    fn new(id: usize, held: Arc<()>) -> Self {
        Self { id, _held: held }
    }

    fn act(world: &World, known: &Known, context: &Context<'_>) {
        match world.below(16) {
            0..3 => {
                known.owed.set(true);
                context.waker().wake_by_ref();
            }
            3..6 => world.wake_any(),
            6 | 7 => world.spawn(),
            8 => {
                let worker = *world.ticking.borrow().last().expect("somebody polls");
                let event =
                    SimOperation::Event(u32::try_from(world.below(EVENTS as usize)).unwrap());
                let after = SimOperation::After(Duration::from_nanos(world.below(3_000) as u64));
                let asked = if world.once_in(2) { event } else { after };
                known.operations.borrow_mut().extend(world.handles[worker].submit(asked));
            }
            9 => {
                let operation = known.operations.borrow_mut().pop();
                drop(operation);
            }
            10 => world.abort_any(),
            11 | 12 => {
                let mut joins = world.joins.borrow_mut();
                if !joins.is_empty() {
                    let place = world.below(joins.len());
                    known.joins.borrow_mut().push(joins.swap_remove(place));
                }
            }
            // A tick of another worker, inside of this one's.
            13 if world.ticking.borrow().len() < 3 => {
                let worker = world.below(world.rigs.len());
                world.tick(worker, 1 + u32::try_from(world.below(4)).unwrap());
            }
            14 if world.ticking.borrow().len() < 3 => world.fire(),
            _ => {}
        }
    }

    /// Polls all that it waits for.
    fn look(world: &World, known: &Known, context: &mut Context<'_>) {
        let mut operations = known.operations.take();
        operations.retain_mut(|operation| Pin::new(operation).poll(context).is_pending());
        known.operations.borrow_mut().append(&mut operations);
        let mut joins = known.joins.take();
        joins.retain_mut(|(id, join)| match Pin::new(join).poll(context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                check_end(&world.task(*id), *id, result);
                false
            }
        });
        known.joins.borrow_mut().append(&mut joins);
    }
}

/// What a join handle says is what the model knows.
fn check_end(known: &Known, id: usize, result: Result<usize, JoinError>) {
    let end = match result {
        Ok(output) => {
            assert_eq!(output, id, "another task's output");
            End::Ready
        }
        Err(JoinError::Panicked(payload)) => {
            assert_eq!(payload.downcast_ref(), Some(&id));
            End::Panicked
        }
        Err(JoinError::Cancelled) => End::Cancelled,
    };
    assert_eq!(known.end.get(), Some(end), "task {id}");
}

/// Notes a panic that the program did not ask for.
struct Checks<'a>(&'a World, &'a Known);

impl Drop for Checks<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.1.end.get() != Some(End::Panicked) {
            self.0.failed.set(true);
        }
    }
}

impl Future for Task {
    type Output = usize;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        let world = world();
        let known = world.task(self.id);
        let _checks = Checks(&world, &known);
        assert_eq!(known.end.get(), None, "polled after its end");
        assert!(!known.polled.replace(true), "polled twice at once");
        let here = *world.ticking.borrow().last().expect("somebody polls");
        if let Kind::Pinned(home) = known.kind {
            assert_eq!(here, home, "a pinned task has moved");
        }
        known.owed.set(false);
        *known.waker.borrow_mut() = Some(context.waker().clone());
        let draining = world.draining.get();
        for _ in 0..if draining { 0 } else { world.below(4) } {
            Self::act(&world, &known, context);
        }
        Self::look(&world, &known, context);
        known.polled.set(false);
        // While it drains, half of the tasks stay to be dropped.
        if !world.once_in(if draining { 2 } else { 8 }) {
            return Poll::Pending;
        }
        if world.once_in(8) {
            known.end.set(Some(End::Panicked));
            resume_unwind(Box::new(self.id));
        }
        known.end.set(Some(End::Ready));
        Poll::Ready(self.id)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let world = world();
        let known = world.task(self.id);
        let _checks = Checks(&world, &known);
        assert!(!known.polled.get(), "dropped while it is polled");
        known.drops.set(known.drops.get() + 1);
        if known.end.get().is_none() {
            let ended = |worker: usize| world.remotes[worker].is_ended();
            let reason = known.aborted.get()
                || world.over.get()
                || match known.kind {
                    Kind::Pinned(worker) => world.ending.get() || ended(worker),
                    Kind::Stealable => false,
                };
            assert!(reason, "task {}: dropped for no reason", self.id);
            known.end.set(Some(End::Cancelled));
        }
        drop(known.operations.take());
        // Who was awaited by a task that ends goes on, and can be joined by others.
        let mut joins = known.joins.take();
        world.joins.borrow_mut().append(&mut joins);
    }
}

/// Does one thing from outside of all workers.
fn act_outside(world: &World, clock: &evenkeel::testing::VirtualClock) {
    let worker = world.below(world.rigs.len());
    match world.below(16) {
        0 | 1 => world.spawn(),
        2 => world.wake_any(),
        3 => world.abort_any(),
        4 | 5 => world.fire(),
        6 => clock.advance(Duration::from_nanos(world.below(3_000) as u64)),
        7 | 8 => world.park(worker),
        9 if world.once_in(40) => world.end(worker),
        10 => {
            let mut joins = world.joins.borrow_mut();
            if joins.len() > 6 {
                let place = world.below(joins.len());
                let dropped = joins.swap_remove(place);
                drop(joins);
                drop(dropped);
            }
        }
        _ => {
            let most =
                u32::try_from(1 + world.below(if world.once_in(4) { 40 } else { 4 })).unwrap();
            world.tick(worker, most);
        }
    }
}

/// Runs all that are left until nothing is left to run, timers included.
fn come_to_rest(world: &World, clock: &evenkeel::testing::VirtualClock) {
    let mut quiet = 0;
    for _ in 0..10_000 {
        let mut all_idle = true;
        for worker in 0..world.rigs.len() {
            // No time passes between these, so that the second look at most is not due.
            let rests = [(); 2].map(|()| world.tick(worker, 64));
            let Some(rest) = rests[1] else { continue };
            all_idle &= rest == Rest::Idle;
            if rest == Rest::Idle {
                let mut rig = world.rigs[worker].borrow_mut();
                let parked = rig.as_mut().unwrap().worker.park(Wait::Never).unwrap();
                all_idle &= parked == Parked::Waited;
            }
        }
        quiet = if all_idle { quiet + 1 } else { 0 };
        if quiet == 3 {
            return;
        }
        clock.advance(Duration::from_micros(10));
    }
    panic!("the workers do not come to rest");
}

/// At rest nobody is owed anything.
fn check_rest(world: &World) {
    assert!(!world.failed.get(), "see above");
    for (id, known) in world.known.borrow().iter().enumerate() {
        if known.end.get().is_some() {
            assert_eq!(known.drops.get(), 1, "task {id}");
        } else {
            assert!(!known.owed.get(), "task {id}, {:?}: a lost wake", known.kind);
            assert!(!known.aborted.get(), "task {id}: aborted, and still there");
            assert_eq!(known.drops.get(), 0);
        }
    }
    for (id, join) in &*world.joins.borrow() {
        assert_eq!(join.is_finished(), world.task(*id).end.get().is_some(), "task {id}");
    }
}

fn run(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let workers = 1 + random.below(5);
    let (team, rigs) = team_of(workers, Sight::BOTH[random.below(2)]);
    let clock = rigs[0].clock.clone();
    let steps = 50 + random.below(400);
    let held = Arc::new(());
    let world = Rc::new(World {
        random: RefCell::new(random),
        team,
        handles: rigs.iter().map(|rig| rig.handle.clone()).collect(),
        remotes: rigs.iter().map(|rig| rig.remote.clone()).collect(),
        rigs: rigs.into_iter().map(|rig| RefCell::new(Some(rig))).collect(),
        ticking: RefCell::default(),
        known: RefCell::default(),
        joins: RefCell::default(),
        draining: Cell::new(false),
        ending: Cell::new(false),
        over: Cell::new(false),
        failed: Cell::new(false),
        held: Arc::clone(&held),
    });
    WORLD.set(Some(Rc::clone(&world)));
    let _leaked = Leaked;
    world.spawn();
    for _ in 0..steps {
        act_outside(&world, &clock);
        assert!(!world.failed.get(), "see above");
    }
    world.draining.set(true);
    come_to_rest(&world, &clock);
    check_rest(&world);
    let steals = world.remotes.iter().map(|remote| remote.stats().steals).sum();
    // One after the other ends, and what is left moves on, until the last ends it.
    for worker in 0..workers {
        world.end(worker);
        if !world.over.get() {
            come_to_rest(&world, &clock);
            check_rest(&world);
        }
    }
    for (id, known) in world.known.borrow().iter().enumerate() {
        assert_eq!(known.drops.get(), 1, "task {id}");
        known.waker.take().into_iter().for_each(Waker::wake);
    }
    let joins = world.joins.take();
    for (id, mut join) in joins {
        let Poll::Ready(result) = poll_once(&mut join) else { panic!("task {id} has ended") };
        check_end(&world.task(id), id, result);
    }
    assert!(!world.failed.get(), "see above");
    WORLD.set(None);
    drop(world);
    assert_eq!(Arc::strong_count(&held), 1, "a future was leaked");
    steals
}

#[test]
fn programs_of_a_team_from_a_seed_lose_no_task_and_drop_every_future_once() {
    let mut steals = 0;
    let seeds = seeds(SEEDS);
    let all = seeds.end - seeds.start == SEEDS;
    for seed in seeds {
        let _seed = Seed(seed);
        steals += run(seed);
    }
    assert!(steals > 1_000 || !all, "{steals} tasks were stolen");
}

// The order of a lane, against a model of it: workers that never idle steal nothing.

struct Lanes {
    random: Random,
    /// Who stands in each worker's local lane.
    queues: Vec<VecDeque<usize>>,
    tasks: Vec<Standing>,
    ticking: usize,
    failed: bool,
}

struct Standing {
    kind: Kind,
    state: At,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Rest,
    Queued,
    /// Being polled; and a stealable task that was woken meanwhile.
    Polled,
    WokenWhilePolled,
}

thread_local! {
    static LANES: RefCell<Option<Lanes>> = const { RefCell::new(None) };
}

fn lanes<T>(ask: impl FnOnce(&mut Lanes) -> T) -> T {
    LANES.with_borrow_mut(|lanes| ask(lanes.as_mut().expect("a program runs")))
}

impl Lanes {
    /// A task that can be woken here and now, without the inbox, with the model told.
    fn wake(&mut self) -> Option<Waker> {
        let id = self.random.below(self.tasks.len());
        let here = self.ticking;
        let task = &mut self.tasks[id];
        let waker = task.waker.clone()?;
        match (task.kind, task.state) {
            (Kind::Pinned(home), _) if home != here => return None,
            (_, At::Queued | At::WokenWhilePolled) => {}
            // It is noted, and queued behind what its poll wakes.
            (Kind::Stealable, At::Polled) => task.state = At::WokenWhilePolled,
            (_, At::Rest | At::Polled) => {
                task.state = At::Queued;
                self.queues[here].push_back(id);
            }
        }
        Some(waker)
    }
}

/// A task that wakes itself and others, and never ends.
struct InOrder(usize);

impl Future for InOrder {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let id = self.0;
        lanes(|lanes| {
            let here = lanes.ticking;
            let next = lanes.queues[here].pop_front();
            lanes.failed |= next != Some(id);
            assert_eq!(next, Some(id), "first in, first out, on worker {here}");
            lanes.tasks[id].state = At::Polled;
            lanes.tasks[id].waker = Some(context.waker().clone());
        });
        for _ in 0..lanes(|lanes| lanes.random.below(4)) {
            let waker = lanes(Lanes::wake);
            waker.into_iter().for_each(Waker::wake);
        }
        lanes(|lanes| {
            let here = lanes.ticking;
            match lanes.tasks[id].state {
                At::WokenWhilePolled => {
                    lanes.tasks[id].state = At::Queued;
                    lanes.queues[here].push_back(id);
                }
                At::Polled => lanes.tasks[id].state = At::Rest,
                At::Rest | At::Queued => {}
            }
        });
        Poll::Pending
    }
}

fn run_in_order(seed: u64) {
    let mut random = Random::new(seed);
    let workers = 1 + random.below(3);
    let (_team, mut rigs) = team_of(workers, Sight::Knowing);
    let most = [10, 400, 1_200][random.below(3)];
    let count = 5 + random.below(most);
    LANES.set(Some(Lanes {
        random: random.clone(),
        queues: vec![VecDeque::new(); workers],
        tasks: Vec::new(),
        ticking: 0,
        failed: false,
    }));
    for id in 0..count {
        let home = random.below(workers);
        let kind = if random.once_in(2) { Kind::Pinned(home) } else { Kind::Stealable };
        lanes(|lanes| {
            lanes.tasks.push(Standing { kind, state: At::Queued, waker: None });
            lanes.queues[home].push_back(id);
        });
        match kind {
            Kind::Pinned(_) => drop(rigs[home].handle.spawn(InOrder(id))),
            Kind::Stealable => drop(rigs[home].handle.spawn_stealable(InOrder(id))),
        }
    }
    let mut dispatches = 0;
    while dispatches < 3_000 {
        // Whoever's lane is empty is not ticked: it would steal.
        let full: Vec<_> = (0..workers)
            .filter(|&worker| lanes(|lanes| !lanes.queues[worker].is_empty()))
            .collect();
        if full.is_empty() {
            break;
        }
        let worker = full[random.below(full.len())];
        lanes(|lanes| lanes.ticking = worker);
        let steps = 1 + random.below(lanes(|lanes| lanes.queues[worker].len()).min(50));
        for _ in 0..steps {
            assert_eq!(rigs[worker].dispatch().map(|step| step.lane), Some(Lane::Local));
            dispatches += 1;
            assert!(!lanes(|lanes| lanes.failed), "see above");
        }
    }
    assert!(rigs.iter().all(|rig| rig.remote.stats().steals == 0), "else there is no order");
    drop(rigs);
    let lanes = LANES.take();
    drop(lanes);
}

#[test]
fn each_lane_of_a_team_is_first_in_first_out_where_nothing_is_stolen() {
    for seed in seeds(SEEDS_IN_ORDER) {
        let _seed = Seed(seed);
        run_in_order(seed);
    }
}
