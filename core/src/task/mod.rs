//! The task: a spawned future and its header, the unit of scheduling.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | the link by which a task, or an operation's cancel, stands in an inbox |
//! | `state` | the alphabet of task states and the diagram of their transitions |
//! | `header` | what every task carries, whatever its future |
//! | `list` | tasks in a list, from which each can be taken |
//! | `cell` | header, future and output in one place |
//! | `storage`, `misfit` | places for them in a static; why one does not fit |
//! | `runnable` | a task without a worker |
//! | `yield_now` | the future that gives way once |
//!
//! Nothing here knows a queue, a worker or a reactor.

#[allow(unsafe_code)]
pub(crate) mod cell;
#[allow(unsafe_code)]
pub(crate) mod header;
pub(crate) mod list;
mod misfit;
#[allow(unsafe_code)]
pub(crate) mod node;
#[allow(unsafe_code)]
mod runnable;
pub(crate) mod state;
#[allow(unsafe_code)]
pub(crate) mod storage;
mod yield_now;

pub(crate) use header::TaskRef;
pub use runnable::{Ran, Runnable, Schedule};
pub use yield_now::{YieldNow, yield_now};
