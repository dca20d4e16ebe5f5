//! What a run is to do.

use std::num::NonZeroU32;
use std::time::Duration;

/// What a run is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many trials, each followed by its floor.
    pub trials: NonZeroU32,
    /// How long each trial keeps its backlog.
    pub backlog: Duration,
    /// How many tasks the backlog has.
    pub tasks: NonZeroU32,
    /// How long any phase of a trial may make the measuring thread wait. The time that the
    /// backlog is kept on purpose is not part of it.
    pub timeout: Duration,
    /// Where the two threads run; wherever the system puts them if `None`.
    pub pin: Option<Pin>,
}

/// The CPUs of the two threads. They may be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The worker's CPU.
    pub worker: usize,
    /// The CPU of the measuring thread, which is the remote.
    pub remote: usize,
}
