//! A task scheduler that keeps its promises while it is busy.
//!
//! Most schedulers look at their inbox every 31, 64 or 256 dispatches, and ask the kernel every 61
//! or 16,384. A count is not a time, and who arrives behind a long queue still waits for the queue.
//! This one looks on every dispatch, because looking is made free, and what it finds does not wait
//! behind the backlog:
//!
//! > The *m*-th task of a lane, counted when it becomes visible to the worker, is dispatched after
//! > at most 3 *m* dispatches and ⌈*m* / [`POLL_BATCH`]⌉ polls of the reactor, however long the
//! > other lanes are. For a reactor that can't tell its [`Readiness`] without a poll add one poll
//! > interval (1-50 µs) and one clock stride (about a microsecond; 64 dispatches when they suddenly
//! > take longer); for a timer add one clock stride.
//!
//! The scheduler is cooperative: what it can't bound is the longest single dispatch.
//!
//! # The words
//! A *task* is a spawned future. A *dispatch* is one poll of one task by a *worker*, the run loop
//! of one thread. Runnable tasks stand in three [lanes](Lane): `Local`, the backlog; `Remote`,
//! what other threads put into the worker's *inbox*; `Io`, what completions and timers woke. A *reactor*
//! accepts operations and reports completions; it is brought by its [trait](Reactor).
//!
//! # The map
//! ```text
//! team_threads  runtime    workers on threads of their own      TeamThreads, WorkerThread   (std)
//! io                       operations on descriptors            io::Io, io::Buffer          (io)
//! worker  worker_storage   tick, park, run                      Worker, Tick, WorkerStorage
//! handle  current  team    what a worker is reached by          Handle, Remote; sleep, spawn, Team (std)
//! service                  who is served when                   Lane, PollShare, JoinHandle, InFlight
//! run_queue  steal  inbox  park  operation  timers  reactor  time
//! task                     header, state, future                TaskStorage, yield_now
//! ```
//! Each line imports only lines below it. Atomics come from `sync` alone, so that a model checker
//! can stand in for them.
//!
//! # The pieces
//! Usable without a worker, each with an example: [`run_queue`], [`inbox`], [`steal`], [`park`],
//! [`timers`], [`operation`], [`TaskStorage`] with [`task::Runnable`]; [`Reactor`] and [`Clock`] are for a platform to bring. Things
//! stand in queues by their own [links](link), so none of it allocates. On Linux `io` (feature `io`)
//! has the operations on descriptors and their futures, which a [`Handle`] offers.
//!
//! # Features
//! Each only adds; none is on by default.
//!
//! | feature | what it adds |
//! |---|---|
//! | none | everything that follows, in statics: no allocator, no system |
//! | `alloc` | boxed tasks and workers, capacities chosen at run time |
//! | `std` | threads, teams, panics caught, wakes that know their thread and so cost no read-modify-write |
//! | `portable-atomic` | cores without compare-and-swap (thumbv6m, riscv32i), through that crate |
//! | `io` | the operations on file descriptors that the Linux reactors share |
//! | `testing` | a simulated reactor on virtual time, with `io` a simulated kernel too, and kits for who implements the traits |
//!
//! # An example
//! ```
//! # #[cfg(feature = "testing")]
//! # fn main() -> Result<(), evenkeel::testing::SimError> {
//! use evenkeel::testing::{SimOperation, SimReactor, VirtualClock};
//! use evenkeel::{Rest, Worker, WorkerConfig};
//!
//! let clock = VirtualClock::new();
//! let reactor = SimReactor::new(&clock);
//! let sim = reactor.control();
//! let mut worker = Worker::new(reactor, clock, WorkerConfig::default());
//!
//! let handle = worker.handle();
//! let answer = worker.handle().spawn(async move {
//!     handle.submit(SimOperation::Event(7)).unwrap().await.unwrap()
//! });
//! while worker.tick()?.rest != Rest::Idle {}
//! assert!(sim.fire(7, 42));
//! while worker.tick()?.rest != Rest::Idle {}
//! assert!(answer.is_finished());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
#![cfg_attr(not(feature = "std"), no_std)]
// Where a module may be unsafe its declaration says so.
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(not(any(target_has_atomic = "ptr", feature = "portable-atomic")))]
compile_error!(
    "this target has no atomic compare-and-swap: enable the feature `portable-atomic` of `evenkeel`, \
     and tell `portable-atomic` how it may make one, by its feature `critical-section` or, on a \
     single core, `unsafe-assume-single-core`"
);

#[cfg(all(not(target_has_atomic = "ptr"), feature = "alloc"))]
compile_error!(
    "this target has no atomic compare-and-swap, and so no `Arc`: leave out the features `alloc`, \
     `std`, `io` and `testing` of `evenkeel`, and use `WorkerStorage` and `TaskStorage`"
);

#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "testing")]
mod conformance;
#[cfg(feature = "std")]
mod current;
#[allow(unsafe_code)]
mod handle;
#[allow(unsafe_code)]
pub mod inbox;
#[cfg(feature = "io")]
pub mod io;
#[allow(unsafe_code)]
pub mod link;
#[cfg(all(test, loom, feature = "alloc"))]
#[allow(unsafe_code)]
mod models;
#[allow(unsafe_code)]
pub mod operation;
pub mod park;
mod reactor;
#[allow(unsafe_code)]
pub mod run_queue;
#[cfg(feature = "std")]
mod runtime;
mod service;
mod shared;
#[cfg(all(feature = "testing", feature = "io"))]
#[allow(unsafe_code)]
mod sim_io;
pub mod steal;
#[allow(unsafe_code)]
mod sync;
pub mod task;
#[cfg(feature = "std")]
mod team;
#[cfg(feature = "std")]
mod team_threads;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
pub mod timers;
mod worker;
#[allow(unsafe_code)]
mod worker_storage;

#[cfg(feature = "std")]
pub use current::{
    SleepError, StealableInterval, StealableSleep, TimeoutError, interval, now, sleep, sleep_until,
    spawn, spawn_stealable, timeout,
};
pub use handle::{Handle, Remote, SubmitError, WorkerTimers};
pub use operation::Orphaned;
pub use reactor::{
    Completion, Completions, POLL_BATCH, Polled, Reactor, Readiness, Refused, Submitted, Token,
    Wait,
};
#[cfg(feature = "std")]
pub use runtime::{StartError, StopError, ThreadConfig, WorkerThread};
pub use service::{
    context::ContextHook, in_flight::InFlight, join::JoinHandle, poll_budget::PollShare,
    stats::Stats, turns::Lane,
};
pub use task::cell::JoinError;
pub use task::storage::{Place, StorageFull, TaskFn, TaskStorage, task_size};
pub use task::{YieldNow, yield_now};
#[cfg(feature = "std")]
pub use team::{NoWorker, Team, TeamError};
#[cfg(feature = "std")]
pub use team_threads::{TeamConfig, TeamStartError, TeamThreads};
#[cfg(feature = "std")]
pub use time::MonotonicClock;
pub use time::{Clock, Instant};
pub use worker::{Dispatches, Parked, Rest, Tick, Worker, WorkerConfig};
pub use worker_storage::{StorageTaken, WorkerStorage};
