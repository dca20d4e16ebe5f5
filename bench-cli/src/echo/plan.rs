//! What a run of the workload `echo` is to do.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::Pin;

/// What a run is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoPlan {
    /// How many connections.
    pub connections: NonZeroU32,
    /// How many bytes each request has.
    pub bytes: NonZeroU32,
    /// When requests are sent.
    pub pace: Loop,
    /// How long it is measured, after the warm-up.
    pub duration: Duration,
    /// How many tasks on the server's worker do nothing but yield.
    pub tasks: u32,
    /// How long the server may take for one answer, or to start, or to stop.
    pub timeout: Duration,
    /// Where the two threads run; wherever the system puts them if `None`.
    pub pin: Option<Pin>,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// On each connection as soon as the last answer is whole. A server that stalls is asked less,
    /// so its stalls are seen less: coordinated omission.
    Closed,
    /// So many a second on all connections together, by a schedule that knows nothing of the
    /// answers. One that is due while no connection is free is sent late, and counted from when it
    /// was due.
    Open(NonZeroU32),
}

impl EchoPlan {
    /// How long the load goes on before it is measured: a tenth.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.duration / 10
    }
}
