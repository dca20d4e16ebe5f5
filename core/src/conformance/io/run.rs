//! How a rule is run: as tasks of a worker that is ticked until they have ended, within a bound.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::World;
use super::counted::Ledger;
use super::rules;
use crate::handle::Handle;
use crate::reactor::Wait;
use crate::service::join::JoinHandle;
use crate::sim_io::Random;
use crate::time::Clock;
use crate::worker::{Rest, Worker, WorkerConfig};

/// What a rule's tasks have.
pub(super) struct Scene<R: 'static> {
    pub(super) handle: Handle<R>,
    pub(super) random: Random,
    pub(super) ledger: Ledger,
}

impl<R> Scene<R> {
    /// The same with numbers of its own.
    pub(super) fn fork(&mut self) -> Self {
        let random = Random::new(self.random.below(1 << 30) as u64);
        Self { handle: self.handle.clone(), random, ledger: self.ledger.clone() }
    }
}

/// What a rule does: `Err` says what was seen that may not be.
pub(super) type Seen = Result<(), String>;

/// A rule's body, on descriptors that it takes from the world first.
pub(super) type Body<W> =
    fn(&mut W, Scene<<W as World>::Reactor>) -> Pin<Box<dyn Future<Output = Seen>>>;

/// A rule.
pub(super) struct Rule<W: World> {
    pub(super) name: &'static str,
    pub(super) body: Body<W>,
    pub(super) end: End,
}

/// What becomes of the worker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It is ticked until the rule's tasks have ended, and then dropped.
    AfterTheTasks,
    /// It is dropped in their midst.
    InTheMidst,
}

/// A rule is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    rule: &'static str,
    seed: u64,
    seen: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, seed, seen } = self;
        write!(f, "the reactor breaks a rule: {rule}: {seen}; EVENKEEL_SEED={seed} repeats it")
    }
}

impl core::error::Error for Broken {}

/// The names of all rules.
pub fn rule_names<W: World>() -> impl Iterator<Item = &'static str> {
    rules::all::<W>().into_iter().map(|rule| rule.name)
}

/// Puts a world to all rules, with this seed.
///
/// # Errors
/// The first rule that is broken.
///
/// # Panics
/// If the world does.
pub fn check<W: World>(world: &mut W, seed: u64) -> Result<(), Broken> {
    rules::all::<W>().iter().try_for_each(|rule| run(world, rule, seed))
}

/// Puts a world to the rule of this name.
///
/// # Errors
/// The rule, if it is broken.
///
/// # Panics
/// If there is no such rule, and if the world does.
pub fn check_rule<W: World>(world: &mut W, name: &str, seed: u64) -> Result<(), Broken> {
    let rules = rules::all::<W>();
    let rule = rules.iter().find(|rule| rule.name == name);
    run(world, rule.unwrap_or_else(|| panic!("there is no rule '{name}'")), seed)
}

/// So many ticks without an end are none: some thousands are usual.
const TICKS: usize = 200_000;

/// The longest that the worker parks for, so that what should have woken it is missed.
const PATIENCE: Duration = Duration::from_millis(20);

/// So many parks that nothing ended, one after the other, are the end.
const PARKS: usize = 100;

fn run<W: World>(world: &mut W, rule: &Rule<W>, seed: u64) -> Result<(), Broken> {
    let broken = |found: String| Broken { rule: rule.name, seed, seen: found };
    let ledger = Ledger::default();
    let config = WorkerConfig::default().operations(64);
    let mut worker = Worker::new(world.reactor(), world.clock(), config);
    let name: u64 = rule.name.bytes().map(u64::from).sum();
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(name));
    let drops_after = 1 + random.below(60);
    let scene = Scene { handle: worker.handle(), random, ledger: ledger.clone() };
    let body = (rule.body)(world, scene);
    let task = worker.handle().spawn(body);

    let (mut ticks, mut parks) = (0, 0);
    while !task.is_finished() {
        if rule.end == End::InTheMidst && ticks == drops_after {
            break;
        }
        ticks += 1;
        if ticks == TICKS {
            return Err(broken("its tasks go on without end".into()));
        }
        world.pass();
        // A reactor may fail, and be run again.
        let Ok(tick) = worker.tick() else { continue };
        if tick.dispatches.total() > 0 {
            parks = 0;
        }
        if tick.rest == Rest::Idle && !task.is_finished() {
            parks += 1;
            if parks == PARKS {
                return Err(broken("its tasks wait for what does not come".into()));
            }
            let deadline = world.clock().now() + PATIENCE;
            if let Err(error) = worker.park(Wait::Until(deadline)) {
                drop(error);
            }
        }
    }
    let remote = worker.remote();
    let finished = task.is_finished();
    drop(worker);
    if remote.leaked() > 0 {
        return Err(broken(format!("{} operations could not be taken back", remote.leaked())));
    }
    match outcome(task) {
        Some(Err(found)) => return Err(broken(found)),
        None if finished => return Err(broken("a task panicked: see above".into())),
        Some(Ok(())) | None => {}
    }
    match ledger.alive() {
        0 => Ok(()),
        alive => Err(broken(format!("{alive} buffers were lost"))),
    }
}

/// What the task has said; none if it was cancelled or panicked.
fn outcome(mut task: JoinHandle<Seen>) -> Option<Seen> {
    match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(seen)) => Some(seen),
        Poll::Ready(Err(_)) => None,
        Poll::Pending => Some(Err("a task was lost".to_string())),
    }
}
