//! When the last period began, as its handler saw it: in ticks, and in dispatches.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use evenkeel_embedded::clock;

/// Of the clock's ticks the lower half.
static TICKS: AtomicU32 = AtomicU32::new(0);
/// What `DISPATCHES` was.
static SEEN: AtomicUsize = AtomicUsize::new(0);
/// How many dispatches of tasks of the backlog have begun. By them.
static DISPATCHES: AtomicUsize = AtomicUsize::new(0);

/// What has passed since the last period began.
#[derive(Clone, Copy)]
pub struct Since {
    /// Ticks.
    pub ticks: u32,
    /// Dispatches of tasks of the backlog.
    pub dispatches: usize,
}

/// By the handler, at once.
pub fn set() {
    // Ordering: Relaxed, all of them in this file: one core, and a handler runs as a whole.
    TICKS.store(clock::lower(clock::ticks()), Ordering::Relaxed);
    SEEN.store(DISPATCHES.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// By a task, at once.
pub fn since() -> Since {
    let ticks = clock::lower(clock::ticks());
    let dispatches = DISPATCHES.load(Ordering::Relaxed);
    Since {
        ticks: ticks.wrapping_sub(TICKS.load(Ordering::Relaxed)),
        dispatches: dispatches.wrapping_sub(SEEN.load(Ordering::Relaxed)),
    }
}

/// By a task of the backlog, when it is dispatched.
pub fn count_dispatch() {
    DISPATCHES.store(DISPATCHES.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}
