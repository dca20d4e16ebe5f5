#![forbid(unsafe_code)]
//! The choice that is made before there is a reactor.

use crate::reactor::EpollReactor;
use crate::setup::SetupError;

/// How the reactor sees whether descriptors have events, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Looks {
    /// From memory, by an asynchronous poll (Linux aio) of the set. A worker can look on every dispatch.
    FromMemory,
    /// By a system call alone, for which the worker has a budget of time.
    BySystemCall,
}

impl Looks {
    /// Both of them, best first.
    ///
    /// ```
    /// use evenkeel_epoll::{EpollReactor, Looks};
    ///
    /// for looks in Looks::ALL {
    ///     assert!(EpollReactor::builder().at_most(looks).build()?.looks() >= looks);
    /// }
    /// # Ok::<(), evenkeel_epoll::SetupError>(())
    /// ```
    pub const ALL: [Self; 2] = [Self::FromMemory, Self::BySystemCall];
}

/// The best way of looking to try.
///
/// ```
/// use evenkeel_epoll::{EpollReactor, Looks};
///
/// let reactor = EpollReactor::builder().at_most(Looks::BySystemCall).build()?;
/// assert_eq!(reactor.looks(), Looks::BySystemCall);
/// # Ok::<(), evenkeel_epoll::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    best: Looks,
}

impl Builder {
    /// The best way to try, [`Looks::FromMemory`] if not said. Where the kernel or a sandbox has no
    /// such thing, the next one is taken, and [`EpollReactor::looks`] says so.
    #[must_use]
    pub fn at_most(mut self, looks: Looks) -> Self {
        self.best = looks;
        self
    }

    /// Makes the reactor, on any thread. At most ten system calls.
    ///
    /// # Errors
    /// If the process has no descriptor left, or a sandbox refuses one of the calls without which there is
    /// no epoll: the error says which, and what to do.
    pub fn build(&self) -> Result<EpollReactor, SetupError> {
        EpollReactor::over(self.best)
    }
}

impl EpollReactor {
    /// A reactor with nothing in flight, that looks in the best way that there is.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Self, SetupError> {
        Self::builder().build()
    }

    /// To choose otherwise.
    #[must_use]
    pub fn builder() -> Builder {
        Builder { best: Looks::FromMemory }
    }
}
