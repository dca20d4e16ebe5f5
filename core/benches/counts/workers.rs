//! Dispatches and wakes.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

#[cfg(feature = "std")]
use evenkeel::Team;
use evenkeel::{Clock, Instant, Reactor, Rest, Worker, WorkerConfig, yield_now};

use crate::null::Null;

/// Dispatches between two looks at a clock that stands still.
pub(crate) const STRIDE: usize = 64;

/// A clock that stands still: a worker looks at it as seldom as it ever does.
pub(crate) struct Still;

impl Clock for Still {
    #[inline]
    fn now(&self) -> Instant {
        Instant::ZERO
    }
}

pub(crate) fn worker<R: Reactor + 'static>(reactor: R) -> Worker<R, Still> {
    Worker::new(reactor, Still, WorkerConfig::default().operations(STRIDE))
}

/// Ticks until there is nothing to run, or each tick is a whole stride.
pub(crate) fn warm_up(worker: &mut Worker<impl Reactor + 'static, Still>) {
    for _ in 0..STRIDE {
        let Ok(tick) = worker.tick() else { unreachable!("this reactor does not fail") };
        if tick.rest == Rest::Idle {
            return;
        }
    }
}

/// Does whole strides.
pub(crate) fn tick(worker: &mut Worker<impl Reactor + 'static, Still>, dispatches: usize) {
    let mut done = 0;
    for _ in 0..dispatches / STRIDE {
        let Ok(tick) = worker.tick() else { unreachable!("this reactor does not fail") };
        done += tick.dispatches.total() as usize;
    }
    assert_eq!(done, dispatches, "each tick was a whole stride");
}

async fn yields() {
    loop {
        yield_now().await;
    }
}

pub(crate) fn dispatch_pinned<const TASKS: usize>(dispatches: usize) {
    let mut worker = worker(Null);
    for _ in 0..TASKS {
        drop(worker.handle().spawn(yields()));
    }
    warm_up(&mut worker);
    tick(&mut worker, dispatches);
}

#[cfg(feature = "std")]
fn worker_in_team() -> Worker<Null, Still> {
    let mut worker = worker(Null);
    let team = Team::new(1).expect("one is a size");
    worker.join(&team).expect("there is room for it");
    worker
}

#[cfg(feature = "std")]
pub(crate) fn dispatch_pinned_in_team<const TASKS: usize>(dispatches: usize) {
    let mut worker = worker_in_team();
    for _ in 0..TASKS {
        drop(worker.handle().spawn(yields()));
    }
    warm_up(&mut worker);
    tick(&mut worker, dispatches);
}

#[cfg(feature = "std")]
pub(crate) fn dispatch_stealable<const TASKS: usize>(dispatches: usize) {
    let mut worker = worker_in_team();
    for _ in 0..TASKS {
        drop(worker.handle().spawn_stealable(yields()));
    }
    warm_up(&mut worker);
    tick(&mut worker, dispatches);
}

/// Waits for ever, and is polled whenever it is woken.
fn sleeper(wakers: Rc<RefCell<Vec<Waker>>>) -> impl Future<Output = ()> {
    let mut wakers = Some(wakers);
    poll_fn(move |context| {
        if let Some(wakers) = wakers.take() {
            wakers.borrow_mut().push(context.waker().clone());
        }
        Poll::Pending
    })
}

/// So many sleepers, each polled once.
fn sleepers(worker: &mut Worker<Null, Still>, count: usize) -> Vec<Waker> {
    let wakers = Rc::default();
    for _ in 0..count {
        drop(worker.handle().spawn(sleeper(Rc::clone(&wakers))));
    }
    warm_up(worker);
    let wakers = wakers.take();
    assert_eq!(wakers.len(), count);
    wakers
}

/// One task wakes 63 others and yields: a stride.
pub(crate) fn wake_local(wakes: usize) {
    let mut worker = worker(Null);
    let alarms = sleepers(&mut worker, STRIDE - 1);
    let bell = async move {
        loop {
            alarms.iter().for_each(Waker::wake_by_ref);
            yield_now().await;
        }
    };
    drop(worker.handle().spawn(bell));
    warm_up(&mut worker);
    tick(&mut worker, wakes);
}

/// 64 tasks are woken from outside of the worker, and then dispatched: a stride.
#[cfg(feature = "std")]
pub(crate) fn wake_remote(wakes: usize) {
    let mut worker = worker(Null);
    let alarms = sleepers(&mut worker, STRIDE);
    lengthen_strides(&mut worker);
    for _ in 0..wakes / STRIDE {
        alarms.iter().for_each(Waker::wake_by_ref);
        tick(&mut worker, STRIDE);
    }
}

/// A worker's strides grow while it dispatches: a task yields for so long, and is gone.
#[cfg(feature = "std")]
pub(crate) fn lengthen_strides(worker: &mut Worker<Null, Still>) {
    let task = worker.handle().spawn(async {
        for _ in 0..STRIDE * STRIDE {
            yield_now().await;
        }
    });
    while !task.is_finished() {
        let Ok(_) = worker.tick();
    }
}
