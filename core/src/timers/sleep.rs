//! The future that waits for a deadline.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};

use super::queue::{Timers, Waiting};
use super::tree::Node;
use crate::sync::Cell;
use crate::time::Instant;

/// A future that is ready once the deadline has passed: made by [`Timers::sleep`] and
/// [`Timers::sleep_until`].
///
/// It is set at its first poll, and fires in the first [`expire`](super::TimerQueue::expire) from
/// then on whose time has reached the deadline: never early, and with a deadline that has passed
/// already not before the task has given way once. A deadline at [`Instant::FAR_FUTURE`] is never
/// reached. Once ready it stays so, however often it is polled, until it is [reset](Self::reset).
///
/// The waker of the last poll is the one that is woken, be it the task's or a combinator's. A drop
/// takes it out of the queue. Each of these is O(log *n*) steps at most, and none allocates.
///
/// It stays on its thread, and where it was first polled, for it stands in the queue itself:
///
/// ```compile_fail,E0277
/// fn may_go_elsewhere<T: Send>(_: T) {}
/// let queue = evenkeel::timers::TimerQueue::new();
/// may_go_elsewhere(queue.sleep_until(evenkeel::Instant::ZERO));
/// ```
///
/// ```compile_fail,E0277
/// fn may_move_while_pinned<T: Unpin>(_: T) {}
/// let queue = evenkeel::timers::TimerQueue::new();
/// may_move_while_pinned(queue.sleep_until(evenkeel::Instant::ZERO));
/// ```
#[must_use = "a future does nothing until it is awaited"]
pub struct Sleep<Q: Timers> {
    node: Node<Waiting>,
    deadline: Cell<Instant>,
    phase: Cell<Phase>,
    timers: Q,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next poll puts it into the queue.
    Unset,
    /// It was put into the queue. If it stands there no longer, it has fired.
    Set,
}

impl<Q: Timers> Sleep<Q> {
    /// One that is ready at `deadline`, in the queue that the handle gives.
    pub fn new(timers: Q, deadline: Instant) -> Self {
        Self {
            node: Node::new(Waiting { waker: Cell::new(None) }),
            deadline: Cell::new(deadline),
            phase: Cell::new(Phase::Unset),
            timers,
        }
    }

    /// When it is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// Whether it has fired: the next poll is ready. Before the first poll it has not, whatever the
    /// time is.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        self.phase.get() == Phase::Set && !self.node.is_queued()
    }

    /// Gives it another deadline, before or after it has fired. If it was waiting it still is, and
    /// wakes who polled it last at the new time; else the next poll sets it.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let this = self.into_ref().get_ref();
        this.deadline.set(deadline);
        if this.node.is_queued() {
            this.leave();
            this.enter();
        } else {
            this.phase.set(Phase::Unset);
        }
    }

    pub(super) fn handle(&self) -> &Q {
        &self.timers
    }

    /// Puts the node into the queue. Called on what is pinned, with a node that is not queued.
    fn enter(&self) {
        let tree = self.timers.timers().tree();
        // SAFETY: the node is not queued. It is part of what is pinned, so it stays in place until
        // it is dropped, and the drop takes it out: of this very queue, since the handle gives
        // always the same. If it is never dropped it stays there for ever, as memory that was
        // pinned must: the queue may then be moved or dropped, since no node points to its queue.
        // The pointer shares: all that others change in the node is in cells, and as the node is
        // not `Unpin`, an exclusive reference to the whole claims nothing of it. Queue and node are
        // on the thread where both were made, as neither is `Send`.
        unsafe { tree.insert(NonNull::from(&self.node), self.deadline.get()) };
        self.phase.set(Phase::Set);
    }

    /// Takes the node out again. Called with a node that is queued.
    fn leave(&self) {
        let tree = self.timers.timers().tree();
        // SAFETY: the node is queued, so `enter` has put it into this queue: the handle gives always
        // the same, which is in place as long as the handle lives.
        unsafe { tree.remove(NonNull::from(&self.node)) };
        self.phase.set(Phase::Unset);
    }

    /// Whether the waker that is kept would do as well.
    fn keeps(&self, waker: &Waker) -> bool {
        let cell = &self.node.payload().waker;
        let kept = cell.take();
        let keeps = kept.as_ref().is_some_and(|kept| kept.will_wake(waker));
        cell.set(kept);
        keeps
    }
}

impl<Q: Timers> Future for Sleep<Q> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.into_ref().get_ref();
        if this.is_elapsed() {
            return Poll::Ready(());
        }
        // Neither a clone nor a drop of a waker is ours: it may expire the queue, or panic. So each
        // comes between two consistent states, and what we know is looked up anew after it.
        let fresh = if this.keeps(context.waker()) { None } else { Some(context.waker().clone()) };
        let stale = match fresh {
            Some(_) => this.node.payload().waker.replace(fresh),
            None => None,
        };
        if this.phase.get() == Phase::Unset {
            this.enter();
        }
        drop(stale);
        if this.is_elapsed() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<Q: Timers> Drop for Sleep<Q> {
    fn drop(&mut self) {
        if self.node.is_queued() {
            self.leave();
        }
    }
}

impl<Q: Timers> fmt::Debug for Sleep<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline())
            .field("is_elapsed", &self.is_elapsed())
            .finish_non_exhaustive()
    }
}
