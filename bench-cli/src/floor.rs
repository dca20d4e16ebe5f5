//! What this machine can do with no scheduler in between.

use std::time::Duration;

use crate::{Setup, SubjectError, Subjects};

/// The floor is a subject like any other, so that the same trial with the same trigger measures
/// it: a fresh thread and reactor, armed the same way. Only that nothing is dispatched: its
/// backlog, always of one task, is a loop that looks at the reactor and at one atomic pointer,
/// through which `submit` hands one heap node over, for as long as the backlog
/// [goes on](crate::backlog::Share::goes_on).
///
/// Its [`describe`](crate::Subject::describe) must equal that of the subject it is the floor of.
pub trait Floor: Subjects {
    /// Measures what single steps cost on a fresh thread, pinned as `setup` says, within about
    /// `lasting`.
    ///
    /// # Errors
    ///
    /// Why that could not be measured; also when it took more than `setup.timeout` beyond
    /// `lasting`.
    fn prices(&self, setup: &Setup, lasting: Duration) -> Result<Prices, SubjectError>;
}

/// What single steps cost when nothing else is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// A pop and a push of a boxed closure through a `VecDeque`, and its call: the floor of a
    /// dispatch.
    pub dispatch_ns: f64,
    /// The median poll of a reactor that has nothing.
    pub dry_poll_ns: f64,
}
