//! Models of everything that is concurrent in this crate.
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};

use crate::reactor::Completion;
use crate::service::context::Ticking;
use crate::service::home::{Delivery, Home};
use crate::service::join::{JoinHandle, task_of};
use crate::service::waker;
use crate::sync;
use crate::task::TaskRef;
use crate::task::state::State;

mod hand_over;
mod inbox;
mod operation;
mod park;
mod task_state;

/// Explores a model with at most so many preemptions in one execution.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        sync::bury();
        model();
    });
}

/// Counts what happened. Not loom's: it is the test's own, and orders nothing.
#[derive(Clone, Default)]
struct Tally(Arc<AtomicUsize>);

impl Tally {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts that it was dropped.
struct Dropped(Tally);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// An eventfd, or what else a thread waits for. A wait may end for nothing.
#[derive(Default)]
struct Bell {
    notify: loom::sync::Notify,
    rings: Tally,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn wait(&self) {
        self.notify.wait();
    }

    fn rings(&self) -> usize {
        self.rings.get()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rings.add();
        self.notify.notify();
    }
}

/// A worker without lanes, clock and reactor, on the model's first thread. Dropping it ends the
/// worker.
struct Bench {
    home: Arc<Home>,
    bell: Arc<Bell>,
    announcements: Tally,
}

impl Bench {
    fn new(operations: usize) -> Self {
        let bell = Bell::new();
        let home = Home::new(Waker::from(Arc::clone(&bell)), operations);
        Self { home, bell, announcements: Tally::default() }
    }

    /// What other threads have of it.
    fn remote(&self) -> Arc<Home> {
        Arc::clone(&self.home)
    }

    fn spawn<F: Future>(&self, future: F) -> (TaskRef, JoinHandle<F::Output>) {
        let (task, handle) = task_of(self.remote(), future, State::spawned_here());
        self.home.adopt_and_queue(task);
        (task, handle)
    }

    /// Ticks and parks until `ended`, which only what the worker itself does may bring about.
    fn run_until(&self, ended: impl Fn() -> bool) {
        let home = &*self.home;
        let _ticking = Ticking::enter(home);
        loop {
            match home.next_remote() {
                Delivery::Task(task) => home.dispatch(task),
                Delivery::Settled => {}
                Delivery::Cancel(token) => drop(home.complete(Completion { token, result: -125 })),
                Delivery::Busy => loom::thread::yield_now(),
                Delivery::Empty => {
                    if let Some(task) = home.next_io().or_else(|| home.next_local()) {
                        home.dispatch(task);
                        continue;
                    }
                    if ended() {
                        return;
                    }
                    self.announcements.add();
                    home.announce_park();
                    if home.is_drained() {
                        self.bell.wait();
                    }
                    home.resume();
                }
            }
        }
    }

    fn close(&self) {
        let _ticking = Ticking::enter(&self.home);
        self.home.close();
    }

    /// At the end of a model: closes, and sees that nothing is left of the worker nor of any task.
    fn end(self) {
        assert!(self.bell.rings() <= self.announcements.get());
        if !self.home.is_closed() {
            // What has come in meanwhile is the worker's, and only what comes later is cleared.
            self.run_until(|| true);
            self.close();
        }
        let Self { home, bell, .. } = self;
        drop(home);
        // The home has a waker of it, and every task has a reference to the home.
        assert_eq!(
            Arc::strong_count(&bell),
            1,
            "a task, or its worker's shared half, is left over"
        );
    }
}

/// Submits a task from outside.
fn spawn_into<F: Future>(home: &Arc<Home>, future: F) -> JoinHandle<F::Output> {
    let (task, handle) = task_of(Arc::clone(home), future, State::spawned_elsewhere());
    home.hand_over(task);
    handle
}

/// A waker that counts as one of the task's references.
fn waker_of(task: TaskRef) -> Waker {
    task.header().state.add_reference();
    // SAFETY: counted above.
    unsafe { waker::of(task) }
}

/// Polls a future that is not pinned.
fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    core::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future until it is ready, waiting at a bell of its own.
fn wait_for<F: Future + Unpin>(future: &mut F) -> F::Output {
    let bell = Bell::new();
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(output) = poll(future, &waker) {
            return output;
        }
        bell.wait();
    }
}

/// A value that must have been handed over to be read: on the heap, and loom looks at it.
struct Sealed(Box<sync::SharedCell<usize>>);

impl Sealed {
    fn new(value: usize) -> Self {
        let sealed = Self(Box::new(sync::SharedCell::new(0)));
        // SAFETY: just made.
        sealed.0.with_mut(|place| unsafe { *place = value });
        sealed
    }

    fn open(self) -> usize {
        // SAFETY: loom has seen to it that nobody writes meanwhile.
        self.0.with(|place| unsafe { *place })
    }
}
