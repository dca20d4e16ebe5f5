//! Measures the *service latency* of a scheduler: how long an I/O completion that is already
//! armed, a task submitted from another thread, a timer that is due or an operation that is ready
//! at once waits for a worker whose run queue is never empty.
//!
//! To have a scheduler measured, implement [`Subjects`] and [`Subject`]; the measuring sees
//! nothing else of it. `bench-cli` is a thin program around this library.
//!
//! The map; arrows run one way, a module imports only what stands below or beside it:
//!
//! ```text
//! command                              from arguments to exit status
//!    │
//! report (text, json), args            what is printed, what is asked for
//!    │
//! run ── progress                      trial, floor, trial, floor…
//!    │
//! measured ── stats                    the samples of a run, put together
//!    │
//! trial ── failure                     one trial, phase by phase
//!    │
//! ours                                 evenkeel over each reactor, and the reactor alone
//!    │
//! floor, subject                       what is measured
//!    │
//! plan, probe, backlog                 what is to be done, what tasks touch
//!    │
//! affinity, clock, environment, wait   the machine
//! ```

pub mod affinity;
pub mod args;
pub mod backlog;
pub mod clock;
pub mod command;
pub mod echo;
pub mod environment;
mod failure;
pub mod floor;
pub mod measured;
pub mod ours;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod report;
pub mod run;
pub mod stats;
pub mod subject;
pub mod trial;
mod wait;

#[cfg(test)]
mod fake;

pub use backlog::Backlog;
pub use floor::{Floor, Prices};
pub use plan::{Pin, Plan};
pub use probe::Probe;
pub use subject::{
    Armed, Counters, Description, Offered, Readiness, Setup, StopError, Subject, SubjectError,
    Subjects,
};
