//! Work-stealing queues beside each other: `cargo bench -p evenkeel --features std --bench steal`.
//!
//! Behind `--` may stand a part of the scenarios' names, to see those alone.
//!
//! All take turns within one process, for so many rounds. A figure is the median of the rounds, in
//! nanoseconds per item; a ratio is the median over the rounds of theirs to ours, so above 1 ours
//! is faster. The ratios are what may be compared between machines.
//!
//! | scenario | what one item does |
//! |---|---|
//! | ping *n* | the owner pops one and pushes it, *n* in the queue; nobody steals |
//! | steal one | is stolen from a queue of 256, by the thread that filled it |
//! | steal many | the same, by batches into another queue (of 256, of which each takes what it takes) |
//! | and pop | the same, and popped there |
//! | owner, thief: one | pushed by the owner, who pushes 64 and pops what is left, or stolen meanwhile by another thread |
//! | owner, thief: many | the same, with batches |
//! | stolen % | how many of the items in the two rows above it was that the thief got |

use std::hint::{self, black_box};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use std::{array, env};

#[allow(dead_code)] // each bench takes what it needs of it
#[path = "../common/mod.rs"]
mod common;
mod contenders;
mod losers;

use contenders::{Contender, Crossbeam, Evenkeel, Mutexed, St3};
use losers::{bwos::Bwos, ring::Ring};

/// What stands in the queues: a word that says where the item is.
type Handle = contenders::Handle;

const ROUNDS: usize = 31;
const CAPACITY: usize = 256;
const PINGS: usize = 20_000;
const SHARED_ITEMS: usize = 100_000;
const BURST: usize = 64;

/// One scenario over one contender; nanoseconds per item.
type Scenario = fn(&Pool) -> f64;

/// The items, made once.
struct Pool(&'static [contenders::Item]);

impl Pool {
    fn new() -> Self {
        Self(Box::leak((0..SHARED_ITEMS).map(|_| contenders::Item::default()).collect()))
    }

    fn handles(&self, count: usize) -> impl Iterator<Item = Handle> + use<> {
        self.0[..count].iter().map(Handle::of)
    }
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn per_item(started: Instant, items: usize) -> f64 {
    started.elapsed().as_nanos() as f64 / items as f64
}

fn filled<C: Contender>(pool: &Pool, items: usize) -> (C, C::Thief) {
    let (owner, thief) = C::make();
    for handle in pool.handles(items) {
        assert!(owner.push(handle).is_ok());
    }
    (owner, thief)
}

fn ping<C: Contender, const BACKLOG: usize>(pool: &Pool) -> f64 {
    let (owner, thief) = filled::<C>(pool, BACKLOG);
    let started = Instant::now();
    for _ in 0..PINGS {
        let handle = black_box(owner.pop()).unwrap();
        assert!(owner.push(handle).is_ok());
    }
    let figure = per_item(started, PINGS);
    C::retire(owner, thief);
    figure
}

/// How much of `CAPACITY` items `steal` gets, and how fast.
fn stolen<C: Contender>(pool: &Pool, steal: impl Fn(&C::Thief, &C) -> usize) -> f64 {
    const TIMES: usize = 16;
    let (owner, thief) = C::make();
    let (hoard, other) = C::make();
    let mut figure = 0.0;
    for _ in 0..TIMES {
        for handle in pool.handles(CAPACITY) {
            assert!(owner.push(handle).is_ok());
        }
        let started = Instant::now();
        let mut taken = 0;
        loop {
            match steal(&thief, &hoard) {
                0 => break,
                some => taken += some,
            }
        }
        figure += per_item(started, taken);
        while owner.pop().is_some() {}
        while hoard.pop().is_some() {}
    }
    C::retire(owner, thief);
    C::retire(hoard, other);
    figure / 16.0
}

fn steal_one<C: Contender>(pool: &Pool) -> f64 {
    stolen::<C>(pool, |thief, _| usize::from(black_box(C::steal(thief)).is_some()))
}

fn steal_many<C: Contender>(pool: &Pool) -> f64 {
    stolen::<C>(pool, |thief, hoard| C::steal_many(thief, hoard))
}

fn steal_many_and_pop<C: Contender>(pool: &Pool) -> f64 {
    stolen::<C>(pool, |thief, hoard| {
        C::steal_many(thief, hoard);
        let mut popped = 0;
        while black_box(hoard.pop()).is_some() {
            popped += 1;
        }
        popped
    })
}

/// Two threads go on at once. They spin: to be woken would take longer than the scenario.
fn meet(ready: &AtomicUsize) {
    ready.fetch_add(1, Ordering::AcqRel);
    while ready.load(Ordering::Acquire) < 2 {
        hint::spin_loop();
    }
}

/// What came of it when two threads wanted the same items.
struct Shared {
    time: f64,
    stolen_percent: f64,
}

/// Where other programs run too, the two threads may never be on a core at once: such a trial is
/// made again, a few times.
fn shared<C: Contender>(pool: &Pool, steal: fn(&C::Thief, &C) -> usize) -> Shared {
    let mut shared = shared_once::<C>(pool, steal);
    for _ in 0..20 {
        if shared.stolen_percent >= 1.0 {
            break;
        }
        shared = shared_once::<C>(pool, steal);
    }
    shared
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn shared_once<C: Contender>(pool: &Pool, steal: fn(&C::Thief, &C) -> usize) -> Shared {
    let (owner, thief) = C::make();
    let (ready, stolen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let shared = thread::scope(|scope| {
        let mine = thief.clone();
        let (ready, stolen) = (&ready, &stolen);
        let other = scope.spawn(move || {
            let (hoard, its_thief) = C::make();
            meet(ready);
            while stolen.load(Ordering::Relaxed) < SHARED_ITEMS {
                stolen.fetch_add(steal(&mine, &hoard), Ordering::Relaxed);
            }
            C::retire(hoard, its_thief);
        });
        meet(ready);
        let started = Instant::now();
        let mut popped = 0;
        let mut handles = pool.handles(SHARED_ITEMS).peekable();
        while handles.peek().is_some() {
            for handle in handles.by_ref().take(BURST) {
                let mut pushed = owner.push(handle);
                // st3's ring is full as long as a thief that was interrupted is in it.
                while let Err(handle) = pushed {
                    popped += usize::from(black_box(owner.pop()).is_some());
                    pushed = owner.push(handle);
                }
            }
            while black_box(owner.pop()).is_some() {
                popped += 1;
            }
        }
        while popped + stolen.load(Ordering::Relaxed) < SHARED_ITEMS {
            popped += usize::from(black_box(owner.pop()).is_some());
        }
        let time = per_item(started, SHARED_ITEMS);
        let stolen_share = (SHARED_ITEMS - popped) as f64 / SHARED_ITEMS as f64;
        stolen.fetch_add(SHARED_ITEMS, Ordering::Relaxed);
        other.join().unwrap();
        Shared { time, stolen_percent: 100.0 * stolen_share }
    });
    C::retire(owner, thief);
    shared
}

fn shared_one<C: Contender>(pool: &Pool) -> Shared {
    shared::<C>(pool, |thief, _| usize::from(black_box(C::steal(thief)).is_some()))
}

fn shared_many<C: Contender>(pool: &Pool) -> Shared {
    shared::<C>(pool, |thief, hoard| {
        let count = C::steal_many(thief, hoard);
        while black_box(hoard.pop()).is_some() {}
        count
    })
}

const SCENARIOS: [&str; 10] = [
    "ping 1",
    "ping 16",
    "ping 256",
    "steal one",
    "steal many",
    "and pop",
    "owner, thief: one",
    "owner, thief: many",
    "stolen %, one",
    "stolen %, many",
];

fn scenarios<C: Contender>() -> (&'static str, [Scenario; SCENARIOS.len()]) {
    let scenarios: [Scenario; SCENARIOS.len()] = [
        ping::<C, 1>,
        ping::<C, 16>,
        ping::<C, CAPACITY>,
        steal_one::<C>,
        steal_many::<C>,
        steal_many_and_pop::<C>,
        |pool| shared_one::<C>(pool).time,
        |pool| shared_many::<C>(pool).time,
        |pool| shared_one::<C>(pool).stolen_percent,
        |pool| shared_many::<C>(pool).stolen_percent,
    ];
    (C::NAME, scenarios)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let pool = Pool::new();
    let contenders = [
        scenarios::<Evenkeel>(),
        scenarios::<Ring>(),
        scenarios::<Bwos>(),
        scenarios::<Crossbeam>(),
        scenarios::<St3>(),
        scenarios::<Mutexed>(),
    ];
    print!("{:20}", "ns per item");
    for (name, _) in &contenders {
        print!("{name:>18}");
    }
    println!();
    let wanted = env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for (nth, scenario) in SCENARIOS.iter().enumerate() {
        if wanted.as_ref().is_some_and(|wanted| !scenario.contains(wanted)) {
            continue;
        }
        let mut rounds: [Vec<f64>; 6] = array::from_fn(|_| Vec::new());
        for _ in 0..if common::measures() { ROUNDS } else { 1 } {
            for (figures, (_, scenarios)) in rounds.iter_mut().zip(&contenders) {
                figures.push(scenarios[nth](&pool));
            }
        }
        print!("{scenario:20}");
        for figures in &rounds {
            let ratios = figures.iter().zip(&rounds[0]).map(|(theirs, ours)| theirs / ours);
            print!("{:>10.2} ({:4.2}x)", median(figures.clone()), median(ratios.collect()));
        }
        println!();
    }
}
