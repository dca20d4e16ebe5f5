#![forbid(unsafe_code)]
//! Parking without a lost wake, waking without a system call.
//!
//! The worker announces that it parks and then looks once more; a producer hands work over and then
//! looks at the announcement. Each has a full fence between its store and its load, so at least one
//! sees the other (Dekker's pattern). A sequentially consistent *load* is not such a fence. Of all
//! producers that see one announcement, one claims it and writes to the notifier; the others, and
//! all that come while the worker runs, make no system call.
//!
//! ```text
//!              announce                claim, by one producer
//!   RUNNING ─────────────► PARKED ─────────────────────────────► NOTIFIED
//!      ▲                      │ resume or retract                    │
//!      └──────────────────────┴──────────────────────────────────────┘
//!   any ── close ──► CLOSED, for ever
//! ```

use crate::sync::{AtomicU32, Ordering, const_but_under_loom, fence};

const RUNNING: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;
const CLOSED: u32 = 3;

/// What a worker says of itself to those who hand it work.
///
/// It is one word, and goes with any inbox and any way to block. No function waits, allocates or
/// panics. Those that are the worker's are called by one thread.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::thread;
///
/// use evenkeel::park::{Owed, Park};
///
/// static PARK: Park = Park::new();
/// /// An inbox for one thing.
/// static HANDED_OVER: AtomicBool = AtomicBool::new(false);
///
/// let worker = thread::spawn(|| {
///     while !HANDED_OVER.swap(false, Ordering::Acquire) {
///         PARK.announce();
///         // The last look.
///         if !HANDED_OVER.load(Ordering::Relaxed) {
///             thread::park();
///         }
///         PARK.resume();
///     }
/// });
///
/// HANDED_OVER.store(true, Ordering::Release);
/// if PARK.handed_over() == Owed::Notification {
///     worker.thread().unpark();
/// }
/// worker.join().unwrap();
/// ```
#[derive(Debug)]
pub struct Park(AtomicU32);

/// What a producer owes after it has handed work over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// The worker runs, or somebody else has claimed its announcement.
    Nothing,
    /// The caller claimed the announcement: it writes to the notifier.
    Notification,
    /// The worker is gone: what was handed over is the caller's to clear away.
    Clearing,
}

impl Park {
    const_but_under_loom! {
        /// Of a worker that runs.
        #[must_use]
        pub const fn new() -> Self {
            Self(AtomicU32::new(RUNNING))
        }
    }

    /// By the worker. What it stores comes after a claim that came after what it stored before:
    /// nothing stands between the two halves of a read-modify-write. Loom does not know that of
    /// stores, only of other read-modify-writes.
    fn set(&self, to: u32, ordering: Ordering) {
        #[cfg(not(loom))]
        self.0.store(to, ordering);
        #[cfg(loom)]
        self.0.swap(to, ordering);
    }

    /// By the worker, before its last look at the inbox. If that finds nothing, it may block.
    pub fn announce(&self) {
        // Ordering: Relaxed; the fence orders it before the look.
        self.set(PARKED, Ordering::Relaxed);
        // Ordering: SeqCst, pairs with the fence of `handed_over`.
        fence(Ordering::SeqCst);
    }

    /// By the worker, when it runs again: after its wait, or because the last look found work.
    pub fn resume(&self) {
        // Ordering: Relaxed: a claim that is overwritten here made its write, which at worst ends
        // the next wait at once; what was handed over is found by the look that follows.
        self.set(RUNNING, Ordering::Relaxed);
    }

    /// By the worker, at its end, before it clears its inbox for the last time.
    pub fn close(&self) {
        // Ordering: Release, pairs with the Acquire of `handed_over`: who finds the worker gone
        // also finds what it left, in the state it left it in. The fence orders it before the
        // last look.
        self.set(CLOSED, Ordering::Release);
        // Ordering: SeqCst, pairs with the fence of `handed_over`.
        fence(Ordering::SeqCst);
    }

    /// By a producer, after its push: what it owes for it. Any thread, any interrupt handler.
    #[must_use = "a worker that parks is woken by whoever owes it"]
    #[inline]
    pub fn handed_over(&self) -> Owed {
        // Ordering: SeqCst, pairs with the fences of `announce` and `close`.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed for the common answer; the others acquire below.
        match self.0.load(Ordering::Relaxed) {
            RUNNING | NOTIFIED => Owed::Nothing,
            _ => self.claim(),
        }
    }

    #[cold]
    fn claim(&self) -> Owed {
        // Ordering: Acquire on failure, pairs with the Release of `close`. Relaxed on success:
        // nothing is read or published by it but the claim.
        match self.0.compare_exchange(PARKED, NOTIFIED, Ordering::Relaxed, Ordering::Acquire) {
            Ok(_) => Owed::Notification,
            Err(CLOSED) => Owed::Clearing,
            Err(_) => Owed::Nothing,
        }
    }

    /// Whether the worker has announced that it parks. Anybody.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        // Ordering: Acquire is what a caller expects of an answer about another thread; it pairs
        // with the Release of `close` only.
        self.0.load(Ordering::Acquire) == PARKED
    }

    /// Whether the worker has ended. Anybody.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Ordering: Acquire, pairs with the Release of `close`.
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

impl Default for Park {
    fn default() -> Self {
        Self::new()
    }
}
