//! The task: a spawned future and its header, the unit of scheduling.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | the link by which a task, or an operation's cancel, stands in an inbox |
//! | `state` | the alphabet of task states and the diagram of their transitions |
//! | `header` | what every task carries, whatever its future |
//! | `cell` | header, future and output in one allocation |
//! | `yield_now` | the future that gives way once |
//!
//! Nothing here knows a queue, a worker or a reactor.

#[cfg(feature = "alloc")]
pub(crate) mod cell;
#[cfg(feature = "alloc")]
pub(crate) mod header;
#[cfg(feature = "alloc")]
pub(crate) mod node;
#[cfg(feature = "alloc")]
pub(crate) mod state;
mod yield_now;

#[cfg(feature = "alloc")]
pub(crate) use header::TaskRef;
pub use yield_now::{YieldNow, yield_now};
