//! Tasks without a worker: who has the `Runnable` polls, and there is one of each at a time.
#![cfg(feature = "std")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;

use evenkeel::inbox::{MpscQueue, Take};
use evenkeel::run_queue::Fifo;
use evenkeel::task::{Ran, Runnable};
use evenkeel::{JoinError, TaskStorage, yield_now};

thread_local! {
    static READY: Cell<Option<Fifo<Runnable>>> = const { Cell::new(None) };
}

/// Puts a task into this thread's queue.
fn queue_here(task: Runnable) {
    let queue = READY.take().unwrap_or_default();
    queue.push(task);
    READY.set(Some(queue));
}

fn next_here() -> Option<Runnable> {
    let queue = READY.take()?;
    let next = queue.pop();
    READY.set(Some(queue));
    next
}

/// Counts that it was dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_task_that_yields_goes_to_the_back() {
    let order = Arc::new(Mutex::new(Vec::new()));
    for name in ["one", "two"] {
        let order = Arc::clone(&order);
        let counts = async move {
            for time in 0..2 {
                order.lock().unwrap().push((name, time));
                yield_now().await;
            }
        };
        queue_here(Runnable::boxed(counts, queue_here));
    }
    while let Some(task) = next_here() {
        task.run();
    }
    assert_eq!(*order.lock().unwrap(), [("one", 0), ("two", 0), ("one", 1), ("two", 1)]);
}

#[test]
fn a_task_that_waits_is_scheduled_once_for_many_wakes() {
    let (tell, told) = mpsc::channel::<Waker>();
    let waits = poll_fn(move |context| {
        tell.send(context.waker().clone()).unwrap();
        Poll::<()>::Pending
    });
    let task = Runnable::boxed(waits, queue_here);
    assert!(matches!(task.run(), Ran::Pending));
    let waker = told.recv().unwrap();
    for _ in 0..3 {
        waker.wake_by_ref();
    }
    drop(next_here().expect("it was woken"));
    assert!(next_here().is_none());
}

#[test]
fn dropping_it_drops_the_future() {
    let drops = Arc::new(AtomicUsize::new(0));
    let dropped = Dropped(Arc::clone(&drops));
    let task = Runnable::boxed(
        async move {
            let _dropped = dropped;
            pending::<()>().await;
        },
        queue_here,
    );
    drop(task);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_wake_after_the_end_schedules_nothing() {
    let (tell, told) = mpsc::channel();
    let ends = poll_fn(move |context| {
        tell.send(context.waker().clone()).unwrap();
        Poll::Ready(())
    });
    assert!(matches!(Runnable::boxed(ends, queue_here).run(), Ran::Ended(Ok(()))));
    told.recv().unwrap().wake();
    assert!(next_here().is_none());
}

#[test]
fn a_panic_is_told() {
    let task = Runnable::boxed(async { panic!("overboard") }, queue_here);
    let Ran::Ended(Err(error)) = task.run() else { panic!("it has panicked") };
    assert!(matches!(error, JoinError::Panicked(_)));
    assert_eq!(error.to_string(), "the task panicked: overboard");
}

#[test]
fn a_place_is_vacant_when_the_last_waker_is_gone() {
    static PLACE: TaskStorage<256> = TaskStorage::new("place");
    let (tell, told) = mpsc::channel();
    let ends = poll_fn(move |context| {
        tell.send(context.waker().clone()).unwrap();
        Poll::Ready(())
    });
    Runnable::in_place(PLACE.reserve().unwrap(), ends, queue_here).run();
    assert!(PLACE.reserve().is_err());
    drop(told.recv().unwrap());
    assert!(PLACE.reserve().is_ok());
}

#[test]
fn what_a_queue_still_holds_ends_with_it() {
    let drops = Arc::new(AtomicUsize::new(0));
    let queue = MpscQueue::new();
    for _ in 0..3 {
        let dropped = Dropped(Arc::clone(&drops));
        let waits = async move {
            let _dropped = dropped;
            pending::<()>().await;
        };
        queue.push(Runnable::boxed(waits, queue_here));
    }
    drop(queue);
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

/// Tells if it is polled by two at once.
struct Alone(AtomicUsize);

impl Alone {
    fn enter(&self) -> impl Drop {
        struct Leave<'a>(&'a AtomicUsize);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        assert_eq!(self.0.fetch_add(1, Ordering::Relaxed), 0, "polled by two at once");
        Leave(&self.0)
    }
}

#[test]
fn two_run_loops_and_two_who_wake_lose_nothing() {
    const TASKS: usize = 50;
    const WAKES: usize = 200;
    static READY: MpscQueue<Runnable> = MpscQueue::new();
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    /// Ends when it has been polled that often; each poll asks for a wake by another thread.
    fn asks(wakers: mpsc::Sender<Waker>) -> impl Future<Output = ()> + Send {
        let alone = Alone(AtomicUsize::new(0));
        let mut left = WAKES;
        poll_fn(move |context| {
            let _alone = alone.enter();
            left -= 1;
            if left == 0 {
                ENDED.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            wakers.send(waker).expect("who wakes lives as long as there is one to be woken");
            Poll::Pending
        })
    }

    let shared = Arc::new(Mutex::new(VecDeque::new()));
    let (wakers, asked) = mpsc::channel::<Waker>();
    let asked = Arc::new(Mutex::new(asked));
    for _ in 0..TASKS {
        READY.push(Runnable::boxed(asks(wakers.clone()), |task| READY.push(task)));
    }
    drop(wakers);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Ok(waker) = { asked.lock().unwrap().recv() } {
                    waker.wake_by_ref();
                    waker.wake();
                }
            });
            scope.spawn(|| {
                while ENDED.load(Ordering::Relaxed) < TASKS {
                    let Some(mut ready) = READY.consumer() else {
                        thread::yield_now();
                        continue;
                    };
                    while let Take::Item(task) = ready.take() {
                        shared.lock().unwrap().push_back(task);
                    }
                    drop(ready);
                    let next = shared.lock().unwrap().pop_front();
                    match next {
                        Some(task) => drop(task.run()),
                        None => thread::yield_now(),
                    }
                }
                // A wake too many comes back once more.
                shared.lock().unwrap().clear();
            });
        }
    });
    assert_eq!(ENDED.load(Ordering::Relaxed), TASKS);
}

/// Where the tasks that stay here come back to.
static STAYING: MpscQueue<Runnable> = MpscQueue::new();

/// Waits for a wake from another thread, and then touches what only this one may.
async fn stays(steps: Rc<Cell<u32>>) {
    let mut woken = false;
    poll_fn(|context| {
        steps.set(steps.get() + 1);
        if woken {
            return Poll::Ready(());
        }
        woken = true;
        let waker = context.waker().clone();
        thread::spawn(move || waker.wake());
        Poll::Pending
    })
    .await;
    steps.set(steps.get() + 10);
}

#[test]
fn a_task_that_cannot_be_sent_comes_back_to_be_polled() {
    static PLACE: TaskStorage<256> = TaskStorage::new("stays");
    let steps = Rc::new(Cell::new(0));
    let mut ready = STAYING.consumer().unwrap();
    let back = |task| STAYING.push(task);
    // SAFETY: what is in `STAYING` comes out on this thread, and is run here.
    STAYING.push(unsafe {
        Runnable::in_place_here(PLACE.reserve().unwrap(), stays(Rc::clone(&steps)), back)
    });
    // SAFETY: as above.
    STAYING.push(unsafe { Runnable::boxed_here(stays(Rc::clone(&steps)), back) });
    let mut ended = 0;
    while ended < 2 {
        match ready.take() {
            Take::Item(task) => ended += u32::from(matches!(task.run(), Ran::Ended(Ok(())))),
            Take::Empty | Take::Busy => thread::yield_now(),
        }
    }
    assert_eq!(steps.get(), 24);
    assert_eq!(Rc::strong_count(&steps), 1, "both futures are dropped");
}

#[test]
fn one_that_is_dropped_where_it_was_made_drops_its_future() {
    let held = Rc::new(());
    let shared = Rc::clone(&held);
    // SAFETY: it is dropped here, and nobody wakes it.
    let task = unsafe { Runnable::boxed_here(async move { drop(shared) }, queue_here) };
    assert_eq!(Rc::strong_count(&held), 2);
    drop(task);
    assert_eq!(Rc::strong_count(&held), 1);
}
