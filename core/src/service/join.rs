//! Join handles.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr::NonNull;
#[cfg(feature = "std")]
use core::task::Waker;
use core::task::{Context, Poll};
#[cfg(feature = "std")]
use core::time::Duration;
#[cfg(feature = "std")]
use std::sync::Arc;
#[cfg(feature = "std")]
use std::task::Wake;
#[cfg(feature = "std")]
use std::thread::{self, Thread};
#[cfg(feature = "std")]
use std::time::Instant;

use crate::service::home::{Home, drop_reference};
use crate::service::home_ref::HomeRef;
use crate::task::TaskRef;
use crate::task::cell::{self, JoinError};
use crate::task::state::State;
use crate::task::storage::Place;

/// Waits for a task's output. Dropping it detaches the task, which goes on.
///
/// It may be awaited in any executor and, if the output may be sent, on any thread.
///
/// # Errors
/// The output is a [`JoinError`] if the task panicked, was aborted, or its worker ended first.
///
/// # Panics
/// If it is polled again after it has given its output.
#[must_use = "dropping a join handle detaches its task; say so with `drop` or `let _ =`"]
pub struct JoinHandle<T> {
    task: TaskRef,
    output: PhantomData<T>,
}

// SAFETY: of the task it touches what is atomic, the waker's cell by the rules of `JOIN_WAKER`, and
// the output, which may be sent.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared handle can only abort, and tell whether the task has ended.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> Unpin for JoinHandle<T> {}

/// Makes a task of a worker, and its handle: the one allocation of a spawn. The caller hands the
/// task to the worker.
#[cfg(feature = "alloc")]
pub(crate) fn task_of<F: Future>(
    home: HomeRef,
    future: F,
    state: State,
) -> (TaskRef, JoinHandle<F::Output>) {
    let task = cell::allocate(future, state, home.into_raw());
    (task, JoinHandle { task, output: PhantomData })
}

/// As `task_of`, for a stealable task.
#[cfg(feature = "std")]
pub(crate) fn stealable_of<F>(home: HomeRef, future: F) -> (TaskRef, JoinHandle<F::Output>)
where
    F: Future<Output: Send> + Send,
{
    let task = cell::allocate_stealable(future, home.into_raw());
    (task, JoinHandle { task, output: PhantomData })
}

/// As `task_of`, in a place that was reserved for it.
pub(crate) fn task_in<F: Future, const BYTES: usize>(
    place: Place<BYTES>,
    home: HomeRef,
    future: F,
    state: State,
) -> (TaskRef, JoinHandle<F::Output>) {
    let task = place.fill(future, state, home.into_raw());
    (task, JoinHandle { task, output: PhantomData })
}

impl<T> JoinHandle<T> {
    /// Asks for the task's end: its worker drops the future at a turn of the remote lane, and does
    /// not poll it after that. Until then the task goes on. Nothing happens if it has ended. Any
    /// thread; allocates nothing; a system call only if the worker is parked.
    pub fn abort(&self) {
        Home::of(self.task).abort(self.task);
    }

    /// Whether the task has ended: awaiting the handle would not wait. Any thread.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.header().state.load().is_complete()
    }
}

#[cfg(feature = "std")]
impl<T> JoinHandle<T> {
    /// Waits until the task has ended, on a thread that runs no worker, at most so long: it blocks
    /// the thread. Inside a task, await the handle instead.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), evenkeel::testing::SimError> {
    /// # use evenkeel::testing::{SimReactor, VirtualClock};
    /// # use evenkeel::{Worker, WorkerConfig};
    /// use std::time::Duration;
    ///
    /// # let clock = VirtualClock::new();
    /// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
    /// let task = worker.remote().spawn(async { 6 * 7 });
    /// let waits = std::thread::spawn(move || task.wait_within(Duration::from_secs(5)));
    /// # while worker.tick()?.dispatches.total() == 0 {}
    /// assert_eq!(waits.join().unwrap().unwrap().unwrap(), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// The handle comes back if the task has not ended in time.
    pub fn wait_within(mut self, bound: Duration) -> Result<Result<T, JoinError>, Self> {
        /// Wakes a thread that waits.
        struct Unpark(Thread);

        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }

        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let context = &mut Context::from_waker(&waker);
        let begun = Instant::now();
        loop {
            if let Poll::Ready(output) = Pin::new(&mut self).poll(context) {
                return Ok(output);
            }
            match bound.checked_sub(begun.elapsed()) {
                Some(left) if !left.is_zero() => thread::park_timeout(left),
                _ => return Err(self),
            }
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &self.task.header().state;
        let mut seen = state.load();
        if seen.has_join_waker() && !seen.is_complete() {
            seen = state.reclaim_waker();
        }
        if !seen.is_complete() {
            // SAFETY: every task with a handle was made by `cell::allocate`.
            let place = unsafe { cell::join_waker(self.task) };
            // SAFETY: `JOIN_WAKER` is not set, so the cell is the handle's.
            place.with_mut(|waker| match unsafe { &mut *waker } {
                Some(waker) => waker.clone_from(context.waker()),
                empty => *empty = Some(context.waker().clone()),
            });
            seen = state.lend_waker();
        }
        if !seen.is_complete() {
            return Poll::Pending;
        }
        let mut output = MaybeUninit::uninit();
        // SAFETY: complete, and the handle is there, so the output is its own; it writes the
        // output's type, which is the task's, by the way the handle was made.
        unsafe {
            self.task.take_output(NonNull::from(&mut output).cast());
            Poll::Ready(output.assume_init())
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.task.header().state.detach() {
            return;
        }
        // SAFETY: if the task was complete before the handle left, the output is the handle's to
        // drop; the reference is its own.
        unsafe {
            if self.task.header().state.drop_handle().is_complete() {
                self.task.drop_output();
            }
            drop_reference(self.task);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}
