#![forbid(unsafe_code)]
//! What a worker counts, for whoever asks.

use crate::sync::{AtomicUsize, Ordering};

/// A count that one thread keeps and any may read.
pub(crate) struct Count(AtomicUsize);

impl Count {
    fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// By the one thread that keeps it: no read-modify-write.
    #[inline]
    pub(crate) fn add(&self, more: usize) {
        // Ordering: Relaxed, a count orders nothing.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// By any thread.
    fn add_shared(&self, more: usize) {
        // Ordering: Relaxed, a count orders nothing.
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        // Ordering: Relaxed, a count orders nothing.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of a worker, kept from its start.
pub(crate) struct Counts {
    pub(crate) dispatches: Count,
    pub(crate) polls: Count,
    pub(crate) dry_polls: Count,
    pub(crate) parks: Count,
    pub(crate) retractions: Count,
    #[cfg(feature = "std")]
    pub(crate) steals: Count,
    notifications: Count,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            dispatches: Count::new(),
            polls: Count::new(),
            dry_polls: Count::new(),
            parks: Count::new(),
            retractions: Count::new(),
            #[cfg(feature = "std")]
            steals: Count::new(),
            notifications: Count::new(),
        }
    }

    /// By the producer that notifies.
    pub(crate) fn count_notification(&self) {
        self.notifications.add_shared(1);
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            dispatches: self.dispatches.get(),
            polls: self.polls.get(),
            dry_polls: self.dry_polls.get(),
            parks: self.parks.get(),
            retractions: self.retractions.get(),
            #[cfg(feature = "std")]
            steals: self.steals.get(),
            notifications: self.notifications.get(),
        }
    }
}

/// What a worker has done since its start. Each count wraps at the width of a `usize`, and is
/// brought up to date at the end of a tick or a park.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Polls of tasks.
    pub dispatches: usize,
    /// Polls of the reactor that did not wait.
    pub polls: usize,
    /// Those of them that found nothing and had nothing to arm.
    pub dry_polls: usize,
    /// Waits in the reactor.
    pub parks: usize,
    /// Announcements to park that the last look took back.
    pub retractions: usize,
    /// Tasks that were taken over from other workers of the team.
    #[cfg(feature = "std")]
    pub steals: usize,
    /// Calls of the reactor's notifier, by all that handed work over. At most one for each park and
    /// each retraction.
    pub notifications: usize,
}
