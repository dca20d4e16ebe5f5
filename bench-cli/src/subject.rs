//! What a scheduler's author implements to have it measured.
//!
//! A trial makes a fresh [`Subject`] with one worker on a thread of its own and then calls, on
//! the measuring thread and in this order:
//! [`arm`](Subject::arm), [`armed`](Subject::armed) until it says yes,
//! [`start_backlog`](Subject::start_backlog), [`start_timer`](Subject::start_timer),
//! [`submit`](Subject::submit), [`start_operation`](Subject::start_operation),
//! [`stop`](Subject::stop). None of these but `start` and `stop` may block.
//!
//! Everything that tasks touch comes in as an owned, shared handle (the event, the probes, the
//! backlog), so it stays alive until the last task is gone, whatever becomes of the trial.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::{Backlog, Probe};

/// How a subject is to be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The worker's CPU (see [`pin_current_thread`](crate::affinity::pin_current_thread));
    /// wherever the system puts it if `None`.
    pub worker_cpu: Option<usize>,
    /// How long setting up may take.
    pub timeout: Duration,
}

/// What is measured, exactly enough that samples of two subjects may be combined if and only if
/// their descriptions are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// One word, as on the command line: `uring`.
    pub backend: String,
    /// What was really granted: `SINGLE_ISSUER | DEFER_TASKRUN | TASKRUN_FLAG`.
    pub detail: String,
    /// What a look for completions costs.
    pub readiness: Readiness,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.backend)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// How the scheduler learns that the kernel has something for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Readiness {
    /// From memory, at every dispatch.
    Known,
    /// By a system call, for which it spends at most this share of its time (0.05 is 5 %).
    Unknown {
        /// The share, above 0 and at most 1.
        poll_share: f64,
    },
}

/// Whether the operation is accepted by the kernel and the worker is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Both.
    Yes,
    /// Something is missing; what, in words that complete "still missing: ".
    NotYet(&'static str),
}

/// Whether a subject has what it was asked for. Without, that class is left out of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It has, and does it.
    Yes,
    /// It has nothing of the kind.
    No,
}

/// What a worker has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Polls of the reactor that found nothing.
    pub dry_polls: u64,
    /// All polls of the reactor.
    pub polls: u64,
    /// Dispatches of tasks.
    pub dispatches: u64,
    /// How often the worker announced that it parks.
    pub parks: u64,
    /// How often a producer made a system call to wake it.
    pub wake_writes: u64,
}

impl Counters {
    /// What was done between `earlier` and these.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            dry_polls: self.dry_polls.saturating_sub(earlier.dry_polls),
            polls: self.polls.saturating_sub(earlier.polls),
            dispatches: self.dispatches.saturating_sub(earlier.dispatches),
            parks: self.parks.saturating_sub(earlier.parks),
            wake_writes: self.wake_writes.saturating_sub(earlier.wake_writes),
        }
    }
}

/// Makes fresh subjects of one kind.
pub trait Subjects {
    /// The kind.
    type Subject: Subject;

    /// Makes a scheduler with one worker on its own thread, pinned as `setup` says, and returns
    /// once it runs.
    ///
    /// # Errors
    ///
    /// Why there is none; also when it did not run within `setup.timeout`.
    fn start(&self, setup: &Setup) -> Result<Self::Subject, SubjectError>;
}

/// A running scheduler with one worker.
pub trait Subject {
    /// What this is. Asked once, after `start`.
    fn describe(&self) -> Description;

    /// Starts the task that waits until `event` is readable and then, before anything else,
    /// stamps `probe`. If the operation fails, the task [refuses](Probe::refuse) instead.
    ///
    /// # Errors
    ///
    /// Why the task could not be started.
    fn arm(&mut self, event: Arc<OwnedFd>, probe: Probe) -> Result<(), SubjectError>;

    /// Whether the kernel has that operation and the worker is parked. Asked repeatedly.
    fn armed(&mut self) -> Armed;

    /// Starts [`backlog.tasks()`](Backlog::tasks) tasks on the worker, each of which is
    /// [`backlog.run(yield_now)`](Backlog::run) or the same by hand.
    ///
    /// # Errors
    ///
    /// Why they could not be started.
    fn start_backlog(&mut self, backlog: &Arc<Backlog>) -> Result<(), SubjectError>;

    /// Hands one task to the worker from this, another, thread. It does nothing but stamp
    /// `probe`. This call is inside the measured time.
    ///
    /// # Errors
    ///
    /// Why the task was not taken.
    fn submit(&mut self, probe: Probe) -> Result<(), SubjectError>;

    /// Starts a task on the worker that sleeps until `due_ns`, a time of
    /// [`clock::now_ns`](crate::clock::now_ns) some milliseconds ahead, and then, before anything
    /// else, stamps `probe`. Measured from `due_ns` on; a stamp before is a failure.
    ///
    /// # Errors
    ///
    /// Why the task could not be started.
    fn start_timer(&mut self, due_ns: u64, probe: Probe) -> Result<Offered, SubjectError> {
        let _ = (due_ns, probe);
        Ok(Offered::No)
    }

    /// Starts a task on the worker that stamps `issued`, waits until `event` is readable, which it
    /// is all the time, and then, before anything else, stamps `resumed`. If the operation fails,
    /// the task [refuses](Probe::refuse) `resumed` instead. Measured from the one stamp to the
    /// other.
    ///
    /// # Errors
    ///
    /// Why the task could not be started.
    fn start_operation(
        &mut self,
        event: Arc<OwnedFd>,
        issued: Probe,
        resumed: Probe,
    ) -> Result<Offered, SubjectError> {
        let _ = (event, issued, resumed);
        Ok(Offered::No)
    }

    /// What the worker has done so far. Asked while it runs, so a look at relaxed counters.
    fn counters(&self) -> Counters;

    /// Shuts the scheduler down, drops its tasks and joins its thread.
    ///
    /// # Errors
    ///
    /// [`StopError::Overdue`] when that was not done within the bound. Then nothing that the
    /// thread may still touch is freed.
    fn stop(self, within: Duration) -> Result<(), StopError>;
}

/// Why a subject did not do what it was asked for, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectError(String);

impl SubjectError {
    /// An error with these words; they read well after a colon.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SubjectError {}

/// Why a subject did not stop properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopError {
    /// The worker did not stop within the bound.
    Overdue {
        /// What is knowingly left behind: "its thread, its ring and its tasks".
        left_behind: String,
    },
    /// It stopped, but not as it should have (a panic, say).
    Badly(SubjectError),
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overdue { left_behind } => {
                write!(f, "the worker did not stop in time, left behind: {left_behind}")
            }
            Self::Badly(reason) => write!(f, "the worker stopped badly: {reason}"),
        }
    }
}

impl std::error::Error for StopError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_reads_as_one_line() {
        let mut description = Description {
            backend: "uring".into(),
            detail: "DEFER_TASKRUN".into(),
            readiness: Readiness::Known,
        };
        assert_eq!(description.to_string(), "uring (DEFER_TASKRUN)");
        description.detail.clear();
        assert_eq!(description.to_string(), "uring");
    }

    #[test]
    fn counters_are_compared_one_by_one() {
        let earlier = Counters { dry_polls: 1, polls: 2, dispatches: 3, parks: 4, wake_writes: 5 };
        let later = Counters { dry_polls: 2, polls: 4, dispatches: 6, parks: 8, wake_writes: 10 };
        assert_eq!(later.since(earlier), earlier);
    }
}
