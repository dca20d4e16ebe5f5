//! The queue that wakes, and how it is reached.

use core::fmt;
use core::future::Future;
use core::task::Waker;
use core::time::Duration;

use super::interval::{Interval, ZeroPeriod};
use super::sleep::Sleep;
use super::timeout::Timeout;
use super::tree::Tree;
use crate::sync::{Cell, const_but_under_loom};
use crate::time::{Clock, Instant};

/// The timers of one thread, or of one bare-metal core, ordered by when they are due.
///
/// The timers themselves stand in the futures that wait, so a queue never fills. It may be moved
/// whenever nobody borrows it. It belongs to one thread: it is neither `Send` nor `Sync`.
///
/// | operation | takes at most | allocates |
/// |---|---|---|
/// | a sleep's first poll, its drop, its reset | O(log *n*) steps | never |
/// | [`expire`](Self::expire) | O(log *n*) steps for each that fires | never |
/// | [`next_deadline`](Self::next_deadline) | one load | never |
///
/// ```
/// use core::pin::pin;
/// use core::task::{Context, Waker};
/// use evenkeel::Instant;
/// use evenkeel::timers::{More, TimerQueue};
///
/// let queue = TimerQueue::new();
/// let mut sleep = pin!(queue.sleep_until(Instant::from_nanos(700)));
/// let context = &mut Context::from_waker(Waker::noop()); // an executor's, elsewhere
/// assert!(sleep.as_mut().poll(context).is_pending());
///
/// // What an executor does between two dispatches, and how it knows for how long it may wait.
/// assert_eq!(queue.next_deadline(), Some(Instant::from_nanos(700)));
/// let expired = queue.expire(Instant::from_nanos(699), 64, Waker::wake);
/// assert_eq!((expired.fired, expired.more), (0, More::NotDue));
/// assert_eq!(queue.expire(Instant::from_nanos(700), 64, Waker::wake).fired, 1);
///
/// assert!(sleep.as_mut().poll(context).is_ready());
/// assert_eq!(queue.next_deadline(), None);
/// ```
pub struct TimerQueue {
    tree: Tree<Waiting>,
}

/// What happens when a timer fires.
pub(super) struct Waiting {
    pub(super) waker: Cell<Option<Waker>>,
}

/// What an [`expire`](TimerQueue::expire) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "if more are due, they wait for the next pass"]
pub struct Expired {
    /// How many timers fired.
    pub fired: usize,
    /// Whether it is worth while to go on.
    pub more: More,
}

/// Whether further timers are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum More {
    /// Some are, and wait for the next pass: the batch was full, or they were set meanwhile.
    Due,
    /// None is.
    NotDue,
}

impl TimerQueue {
    const_but_under_loom! {
        /// A queue without timers.
        #[must_use]
        pub const fn new() -> Self {
            Self { tree: Tree::new() }
        }
    }

    /// When to call [`expire`](Self::expire) next, or nothing if no timer will ever fire: there is
    /// none, or none before [`Instant::FAR_FUTURE`]. A timer that was set when its deadline had
    /// passed tells the time of the last `expire` instead. One load.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        Some(self.tree.first_due()).filter(|&first| first != Instant::FAR_FUTURE)
    }

    /// Whether no timer is set, not even one that never fires.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Fires the timers that are due, up to `at_most` of them, the earliest first, and gives the
    /// waker of each to `each`: [`Waker::wake`] will do. Equal deadlines fire in the order in which
    /// they were set. When nothing is due it costs a comparison.
    ///
    /// A timer fires when `now` has reached its deadline, never before. One with the deadline
    /// [`Instant::FAR_FUTURE`] never fires, whatever `now` is.
    ///
    /// A timer that was set for a time which an `expire` had reached already fires at the next
    /// `expire`, after all that were due before it was set. So was one that was set from within
    /// `each`: no pass fires a timer that was set while it ran, and nobody is held up by who sets
    /// one that is due again and again.
    ///
    /// `now` should not go back. If it does, timers may fire late, not early.
    ///
    /// `each` may do anything: set and drop timers, this one's too, and call `expire`. If it
    /// panics, the timer whose waker it was given has fired, and no further one has.
    pub fn expire(&self, now: Instant, at_most: usize, mut each: impl FnMut(Waker)) -> Expired {
        let sweep = self.tree.sweep(now);
        let mut fired = 0;
        while fired < at_most
            && let Some(node) = self.tree.take_due(sweep)
        {
            fired += 1;
            // SAFETY: it is just out of the tree, and nobody's code ran since then. What runs now
            // may free the node: nothing touches it any more.
            let waker = unsafe { node.as_ref() }.payload().waker.take();
            waker.into_iter().for_each(&mut each);
        }
        let more = if self.tree.is_due(sweep) { More::Due } else { More::NotDue };
        Expired { fired, more }
    }

    /// A future that is ready at the deadline. The same as [`Timers::sleep_until`], without the
    /// trait in scope.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep<&Self> {
        Sleep::new(self, deadline)
    }

    pub(super) fn tree(&self) -> &Tree<Waiting> {
        &self.tree
    }
}

impl Default for TimerQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TimerQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerQueue")
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}

/// A handle by which a future reaches its [`TimerQueue`]: a reference to one, or something that
/// keeps one alive. A handle that is a [`Clock`] too (see [`Timed`]) can set timers relative to now.
///
/// Handles go into the futures that they make, so most are cheap to copy.
///
/// # Safety
/// As long as the handle lives, wherever it is moved to, [`timers`](Self::timers) gives the same
/// queue each time it is called, and the queue stays alive and in place. A future puts itself into
/// the queue that the handle gives, and takes itself out of it when it is dropped.
pub unsafe trait Timers {
    /// The queue.
    fn timers(&self) -> &TimerQueue;

    /// A future that is ready at the deadline.
    fn sleep_until(self, deadline: Instant) -> Sleep<Self>
    where
        Self: Sized,
    {
        Sleep::new(self, deadline)
    }

    /// A future that is ready so long after now. Too long a span ends at [`Instant::FAR_FUTURE`],
    /// which is never.
    fn sleep(self, span: Duration) -> Sleep<Self>
    where
        Self: Clock + Sized,
    {
        let deadline = self.now() + span;
        Sleep::new(self, deadline)
    }

    /// A future that gives up at the deadline: see [`Timeout`].
    fn timeout_at<F: Future>(self, deadline: Instant, future: F) -> Timeout<F, Self>
    where
        Self: Sized,
    {
        Timeout::new(future, self.sleep_until(deadline))
    }

    /// A future that gives up so long after now: see [`Timeout`]. Too long a span is never over.
    fn timeout<F: Future>(self, span: Duration, future: F) -> Timeout<F, Self>
    where
        Self: Clock + Sized,
    {
        Timeout::new(future, self.sleep(span))
    }

    /// A tick at `first`, and then one each period: see [`Interval`].
    ///
    /// # Errors
    /// If the period is zero.
    fn interval_at(self, first: Instant, period: Duration) -> Result<Interval<Self>, ZeroPeriod>
    where
        Self: Clock + Sized,
    {
        Interval::new(self.sleep_until(first), period)
    }

    /// A tick each period, the first of them one period after now: see [`Interval`].
    ///
    /// # Errors
    /// If the period is zero.
    fn interval(self, period: Duration) -> Result<Interval<Self>, ZeroPeriod>
    where
        Self: Clock + Sized,
    {
        let first = self.now() + period;
        self.interval_at(first, period)
    }
}

// SAFETY: the reference is always to the same queue, and borrows it: it can't be moved or dropped.
unsafe impl Timers for &TimerQueue {
    fn timers(&self) -> &TimerQueue {
        self
    }
}

// SAFETY: while the handle is borrowed it can't be exchanged for another, and so it keeps the
// contract for this one.
unsafe impl<T: Timers> Timers for &T {
    fn timers(&self) -> &TimerQueue {
        T::timers(self)
    }
}

// SAFETY: the queue stands on the heap, where it stays while this reference counts; what hands out
// exclusive access to it (`Rc::get_mut`) needs to be given the handle, which a future keeps.
#[cfg(feature = "alloc")]
unsafe impl Timers for alloc::rc::Rc<TimerQueue> {
    fn timers(&self) -> &TimerQueue {
        self
    }
}

/// A queue and the clock that it goes by: what [`Timers::sleep`], [`Timers::timeout`] and
/// [`Timers::interval`] need.
///
/// Most take it by value, so it should be cheap to copy: it can be copied if both the handle and the
/// clock can. A reference to a queue can; derive `Copy` for your clock, or pass `&clock`, as here:
///
/// ```
/// use core::cell::Cell;
/// use core::pin::pin;
/// use core::task::{Context, Waker};
/// use core::time::Duration;
/// use evenkeel::timers::{Timed, TimerQueue, Timers};
/// use evenkeel::{Clock, Instant};
///
/// struct Millis(Cell<u64>);
///
/// impl Clock for Millis {
///     fn now(&self) -> Instant {
///         Instant::from_nanos(self.0.get() * 1_000_000)
///     }
/// }
///
/// let (queue, clock) = (TimerQueue::new(), Millis(Cell::new(40)));
/// let time = Timed::new(&queue, &clock); // copied wherever it is needed, as both are references
///
/// let mut sleep = pin!(time.sleep(Duration::from_millis(2)));
/// let context = &mut Context::from_waker(Waker::noop());
/// assert!(sleep.as_mut().poll(context).is_pending());
/// clock.0.set(42);
/// assert_eq!(queue.expire(clock.now(), 64, Waker::wake).fired, 1);
/// assert!(sleep.as_mut().poll(context).is_ready());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timed<Q, C> {
    timers: Q,
    clock: C,
}

impl<Q: Timers, C: Clock> Timed<Q, C> {
    /// Both together. The queue must be [expired](TimerQueue::expire) by this clock.
    pub const fn new(timers: Q, clock: C) -> Self {
        Self { timers, clock }
    }
}

// SAFETY: the inner handle keeps the contract; it is private, and nothing exchanges it.
unsafe impl<Q: Timers, C> Timers for Timed<Q, C> {
    fn timers(&self) -> &TimerQueue {
        self.timers.timers()
    }
}

impl<Q, C: Clock> Clock for Timed<Q, C> {
    fn now(&self) -> Instant {
        self.clock.now()
    }
}
