//! The tasks that keep a worker busy, and what they count.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::clock;

/// The backlog of one trial: shared by its tasks, which run until it is stopped, and by the
/// measuring thread, which stops it and reads what was counted.
///
/// A dispatch of such a task costs one relaxed load and one increment of a count of its own.
/// Everything shared is written at the beginning and the end only.
#[derive(Debug)]
pub struct Backlog {
    tasks: NonZeroU32,
    /// On a cache line of its own: read at every dispatch, written once.
    stopped: CachePadded<AtomicBool>,
    tally: CachePadded<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    started: AtomicU32,
    finished: AtomicU32,
    yields: AtomicU64,
    /// When the first task began; 0 until then.
    first_ns: AtomicU64,
    /// When the first task found the backlog stopped; 0 until then.
    last_ns: AtomicU64,
}

/// What the worker did for the backlog, measured where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// How often the tasks yielded. Between the first task's beginning and the first end, each
    /// dispatch made exactly one yield.
    pub yields: u64,
    /// The time between these two.
    pub lasting_ns: u64,
}

impl Backlog {
    /// A backlog of this many tasks, none of which has begun.
    #[must_use]
    pub fn new(tasks: NonZeroU32) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            stopped: CachePadded::new(AtomicBool::new(false)),
            tally: CachePadded::default(),
        })
    }

    /// How many tasks the scheduler is to start.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        self.tasks.get()
    }

    /// The whole body of a backlog task, for a scheduler whose yield is a future.
    pub async fn run<Y: Future>(self: Arc<Self>, mut yield_now: impl FnMut() -> Y) {
        let mut share = self.begin();
        while share.goes_on() {
            yield_now().await;
        }
        share.finish();
    }

    /// A task of the backlog runs for the first time.
    pub fn begin(&self) -> Share<'_> {
        stamp_once(&self.tally.first_ns);
        // Ordering: Release, pairs with the Acquire in `started`.
        self.tally.started.fetch_add(1, Ordering::Release);
        Share { backlog: self, yields: 0 }
    }

    /// Tells every task to end at its next dispatch.
    pub fn stop(&self) {
        // Ordering: Relaxed, as the load in `goes_on`: the flag says nothing about other memory.
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// How many tasks have begun.
    #[must_use]
    pub fn started(&self) -> u32 {
        // Ordering: Acquire, pairs with the Release in `begin`.
        self.tally.started.load(Ordering::Acquire)
    }

    /// How many tasks have seen the stop and counted up.
    #[must_use]
    pub fn finished(&self) -> u32 {
        // Ordering: Acquire, pairs with the Release in `finish`: the yields of every task counted
        // here are visible.
        self.tally.finished.load(Ordering::Acquire)
    }

    /// What was measured, once every task has finished.
    #[must_use]
    pub fn spell(&self) -> Option<Spell> {
        (self.finished() == self.tasks()).then(|| {
            // Ordering: Relaxed; `finished` above has made these visible.
            let first = self.tally.first_ns.load(Ordering::Relaxed);
            let last = self.tally.last_ns.load(Ordering::Relaxed);
            let yields = self.tally.yields.load(Ordering::Relaxed);
            Spell { yields, lasting_ns: last.saturating_sub(first) }
        })
    }
}

/// One task's part in the backlog.
#[derive(Debug)]
#[must_use = "a share that is not finished is missed at the end of the trial"]
pub struct Share<'a> {
    backlog: &'a Backlog,
    yields: u64,
}

impl Share<'_> {
    /// Whether to yield once more; counts that yield.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        // Ordering: Relaxed; see `stop`.
        let on = !self.backlog.stopped.load(Ordering::Relaxed);
        self.yields += u64::from(on);
        on
    }

    /// The task ends: adds what it counted to the whole.
    pub fn finish(self) {
        let tally = &self.backlog.tally;
        stamp_once(&tally.last_ns);
        // Ordering: Relaxed; published by the Release that follows.
        tally.yields.fetch_add(self.yields, Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire in `finished`.
        tally.finished.fetch_add(1, Ordering::Release);
    }
}

/// Stamps `at` unless it is stamped already; only the first of many tasks pays for the clock.
fn stamp_once(at: &AtomicU64) {
    // Ordering: Relaxed throughout; both stamps are read after `finished` only, whose pair
    // publishes them.
    if at.load(Ordering::Relaxed) == 0 {
        let _ = at.compare_exchange(0, clock::now_ns(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn backlog(tasks: u32) -> Arc<Backlog> {
        Backlog::new(NonZeroU32::new(tasks).unwrap())
    }

    #[test]
    fn counts_each_yield_once_and_none_after_the_stop() {
        let backlog = backlog(2);
        let (mut one, mut other) = (backlog.begin(), backlog.begin());
        for _ in 0..5 {
            assert!(one.goes_on());
        }
        assert!(other.goes_on());
        backlog.stop();
        assert!(!one.goes_on());
        assert!(!other.goes_on());
        one.finish();
        other.finish();
        assert_eq!(backlog.spell().unwrap().yields, 6);
    }

    #[test]
    fn is_measured_only_when_every_task_has_finished() {
        let backlog = backlog(2);
        let one = backlog.begin();
        let other = backlog.begin();
        assert_eq!((backlog.started(), backlog.finished()), (2, 0));
        backlog.stop();
        one.finish();
        assert_eq!(backlog.spell(), None);
        other.finish();
        assert!(backlog.spell().is_some());
    }

    #[test]
    fn lasts_from_the_first_beginning_to_the_first_end() {
        let backlog = backlog(2);
        let one = backlog.begin();
        let other = backlog.begin();
        std::thread::sleep(std::time::Duration::from_millis(2));
        one.finish();
        let until_the_first_end = backlog.tally.last_ns.load(Ordering::Relaxed);
        other.finish();
        let spell = backlog.spell().unwrap();
        assert!(spell.lasting_ns >= 2_000_000);
        assert_eq!(backlog.tally.last_ns.load(Ordering::Relaxed), until_the_first_end);
    }

    #[test]
    fn its_task_yields_until_stopped() {
        let backlog = backlog(1);
        let mut context = Context::from_waker(Waker::noop());
        let mut yielded = 0;
        let mut task = pin!(Arc::clone(&backlog).run(|| {
            yielded += 1;
            let mut first = true;
            std::future::poll_fn(move |_| {
                if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
            })
        }));
        for _ in 0..3 {
            assert_eq!(task.as_mut().poll(&mut context), Poll::Pending);
        }
        backlog.stop();
        assert_eq!(task.as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(backlog.spell().unwrap().yields, 3);
    }

    #[test]
    fn the_stop_flag_shares_its_cache_line_with_nothing_that_is_written() {
        let backlog = backlog(1);
        let flag = &raw const backlog.stopped as usize;
        let tally = &raw const backlog.tally as usize;
        let strong_count = Arc::as_ptr(&backlog) as usize - 1;
        assert!(flag.abs_diff(tally) >= 64);
        assert_ne!(flag / 64, strong_count / 64);
    }
}
