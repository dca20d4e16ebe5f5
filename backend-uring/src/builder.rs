#![forbid(unsafe_code)]
//! The choices that are made before there is a ring.

use crate::error::SetupError;
use crate::reactor::UringReactor;
use crate::setup::{Mode, Sizes, set_up};

/// Sizes, and the best mode to try.
///
/// ```
/// use evenkeel_uring::{Mode, UringReactor};
///
/// let reactor = UringReactor::builder().entries(128).at_most(Mode::Cooperative).build();
/// if let Ok(reactor) = reactor {
///     assert_ne!(reactor.mode(), Mode::Deferred);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    entries: u32,
    completions: u32,
    best: Mode,
}

impl Builder {
    /// How many requests the submission queue takes, 8 to 32,768, rounded up to a power of two; 64
    /// if not said. Two places are the reactor's own.
    ///
    /// It is also the most that one poll hands to the kernel, and so a bound on how long a poll
    /// takes: about 0.2 µs for each. A queue that is full is flushed by `submit`, so a small one
    /// loses nothing but a system call per as many operations.
    #[must_use]
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// How many events the completion queue takes, 16 bytes each: at least the entries of the
    /// submission queue, at most 65,536, rounded up to a power of two; 4096 if not said.
    ///
    /// Events beyond are not lost: the kernel keeps them, in memory of its own, until there is
    /// room. Far fewer than there are operations in flight make cancels slow: with 8, 40,000 of them
    /// took 6 s, where 0.3 s will do.
    #[must_use]
    pub fn completions(mut self, completions: u32) -> Self {
        self.completions = completions;
        self
    }

    /// The best mode to ask for, [`Mode::Deferred`] if not said.
    #[must_use]
    pub fn at_most(mut self, mode: Mode) -> Self {
        self.best = mode;
        self
    }

    /// Makes the reactor, on any thread. It belongs to the thread that first uses it.
    ///
    /// A few system calls: `io_uring_setup`, once for each mode tried, `mmap`, `madvise`,
    /// `eventfd2`, and one each of `io_uring_register` and `io_uring_enter`, to know that they are
    /// allowed.
    ///
    /// # Errors
    /// There is no `io_uring` to be had: see [`Refusal`](crate::Refusal).
    pub fn build(&self) -> Result<UringReactor, SetupError> {
        let submissions = self.entries.clamp(8, 32_768);
        let sizes = Sizes {
            submissions,
            completions: self.completions.max(submissions.next_power_of_two()),
        };
        let (ring, granted) = set_up(self.best, sizes)?;
        UringReactor::over(ring, granted).map_err(|error| SetupError::of_call("eventfd2", error))
    }
}

impl Default for Builder {
    fn default() -> Self {
        // One completion for each operation of a table of the usual size.
        Self { entries: 64, completions: 4096, best: Mode::Deferred }
    }
}

impl UringReactor {
    /// A reactor in the best mode that the kernel grants, with queues of the usual sizes.
    ///
    /// # Errors
    /// There is no `io_uring` to be had: see [`Refusal`](crate::Refusal).
    pub fn new() -> Result<Self, SetupError> {
        Self::builder().build()
    }

    /// To choose otherwise.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}
