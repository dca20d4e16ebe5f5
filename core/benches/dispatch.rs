//! What a dispatch costs: `cargo bench -p evenkeel --features std --bench dispatch`.
//!
//! So many tasks do nothing but yield, over a reactor that has nothing to report. The figures are
//! nanoseconds per dispatch, medians over rounds in which each kind has its turn, and in brackets
//! how many times the bare loop's of as many futures.
//!
//! - *bare*: boxed futures in a ring are polled one after the other, with a waker that does nothing.
//!   No scheduler does less.
//! - *closure*: a ring of boxed closures, each called in turn: the loop that `bench-cli` measures
//!   as its floor.
//! - *pinned*: a worker's own tasks. *In a team*: of a worker that is in a team of one.
//! - *stealable*: tasks that other workers of the team may steal, if there were any.
//! - *mixed*: half of them are pinned, half are stealable (of one task: one of each).
//!
//! Without thread identity, as on a microcontroller without a hook, every wake takes the inbox. A
//! core without std has none, and then only the pinned are there:
//! `cargo bench -p evenkeel --features alloc --bench dispatch`.

mod common;
#[path = "common/null.rs"]
mod null;

use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Waker};

#[cfg(feature = "std")]
use evenkeel::{MonotonicClock, Team};
use evenkeel::{Worker, WorkerConfig, yield_now};

use common::{measures, medians};
use null::Null;

const TASKS: [usize; 4] = [1, 16, 256, 10_000];
const ROUNDS: usize = 101;
/// In a round.
const DISPATCHES: u64 = 100_000;

/// The same as the one that std brings with it.
#[cfg(not(feature = "std"))]
struct MonotonicClock(std::time::Instant);

#[cfg(not(feature = "std"))]
impl MonotonicClock {
    fn new() -> Self {
        Self(std::time::Instant::now())
    }
}

#[cfg(not(feature = "std"))]
impl evenkeel::Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> evenkeel::Instant {
        evenkeel::Instant::ZERO + self.0.elapsed()
    }
}

async fn yields() {
    loop {
        yield_now().await;
    }
}

fn worker() -> Worker<Null, MonotonicClock> {
    Worker::new(Null, MonotonicClock::new(), WorkerConfig::default().operations(1))
}

fn pinned(tasks: usize) -> Worker<Null, MonotonicClock> {
    let worker = worker();
    (0..tasks).for_each(|_| drop(worker.handle().spawn(yields())));
    worker
}

#[cfg(feature = "std")]
fn in_team(pinned: usize, stealable: usize) -> Worker<Null, MonotonicClock> {
    let mut worker = worker();
    let team = Team::new(1).expect("one is a size");
    worker.join(&team).expect("there is room for it");
    // In turns, as they are to be dispatched.
    for number in 0..pinned.max(stealable) {
        if number < pinned {
            drop(worker.handle().spawn(yields()));
        }
        if number < stealable {
            drop(worker.handle().spawn_stealable(yields()));
        }
    }
    worker
}

/// A round of a worker.
fn ticks(mut worker: Worker<Null, MonotonicClock>, least: u64) -> impl FnMut() -> u64 {
    move || {
        let mut done = 0;
        while done < least {
            let Ok(tick) = worker.tick();
            done += u64::from(tick.dispatches.total());
        }
        done
    }
}

fn bare(tasks: usize, least: u64) -> impl FnMut() -> u64 {
    let mut queue: VecDeque<Pin<Box<dyn Future<Output = ()>>>> =
        (0..tasks).map(|_| Box::pin(yields()) as _).collect();
    move || {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..least {
            let Some(mut task) = queue.pop_front() else { unreachable!("none of them ends") };
            if task.as_mut().poll(&mut context).is_pending() {
                queue.push_back(task);
            }
        }
        least
    }
}

fn closure(tasks: usize, least: u64) -> impl FnMut() -> u64 {
    let mut queue: VecDeque<Box<dyn FnMut()>> = (0..tasks)
        .map(|_| {
            let mut calls = 0_u64;
            Box::new(move || calls = black_box(calls + 1)) as _
        })
        .collect();
    move || {
        for _ in 0..least {
            if let Some(mut task) = queue.pop_front() {
                task();
                queue.push_back(task);
            }
        }
        least
    }
}

/// Gives how many dispatches it did.
type Round = Box<dyn FnMut() -> u64>;

/// The kinds, the bare loop first.
fn kinds(tasks: usize, least: u64) -> Vec<(&'static str, Round)> {
    vec![
        ("bare", Box::new(bare(tasks, least))),
        ("closure", Box::new(closure(tasks, least))),
        ("pinned", Box::new(ticks(pinned(tasks), least))),
        #[cfg(feature = "std")]
        ("in a team", Box::new(ticks(in_team(tasks, 0), least))),
        #[cfg(feature = "std")]
        ("stealable", Box::new(ticks(in_team(0, tasks), least))),
        #[cfg(feature = "std")]
        ("mixed", {
            let half = tasks.div_ceil(2);
            Box::new(ticks(in_team(half, half), least))
        }),
    ]
}

fn main() {
    let identity = if cfg!(feature = "std") { "" } else { ", without thread identity" };
    println!("ns per dispatch, and (times the bare loop){identity}");
    let least = if measures() { DISPATCHES } else { 1_000 };
    for tasks in TASKS {
        let (names, mut runs): (Vec<_>, Vec<_>) = kinds(tasks, least).into_iter().unzip();
        if tasks == TASKS[0] {
            print!("{:>6}", "tasks");
            for name in names {
                print!(" {name:>15}");
            }
            println!();
        }
        let medians = medians(ROUNDS, &mut runs);
        print!("{tasks:>6}");
        for median in &medians {
            print!(" {median:>7.2} ({:>5.2})", median / medians[0]);
        }
        println!();
    }
}
