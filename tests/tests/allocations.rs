//! What is allocated, and that all of it is freed. Each thread counts its own allocations, so the
//! tests here keep to one thread each.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use evenkeel::testing::SimOperation;
use evenkeel::{JoinHandle, WorkerConfig, yield_now};
use evenkeel_tests::{Rig, Sight, WakerSlot};

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator; the cells allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this does allocate.
fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    run();
    ALLOCATED.get() - before
}

/// How many allocations this leaves behind.
fn left_by(run: impl Fn()) -> isize {
    run(); // Whatever is set up once.
    let before = LIVE.get();
    run();
    LIVE.get() - before
}

#[test]
fn a_busy_worker_allocates_nothing() {
    let mut rig = Rig::knowing();
    let slot = WakerSlot::new();
    let leave = slot.clone();
    drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
        leave.put(context.waker());
        Poll::Pending
    })));
    rig.backlog(100);
    rig.dispatches(1_000);
    let count = allocations(|| {
        for _ in 0..1_000 {
            rig.tick();
            slot.get().wake();
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn a_spawn_allocates_once() {
    let rig = Rig::knowing();
    let (mut local, mut remote) = (None, None);
    assert_eq!(allocations(|| local = Some(rig.handle.spawn(async { [0_u8; 100] }))), 1);
    assert_eq!(allocations(|| remote = Some(rig.remote.spawn(async { [0_u8; 100] }))), 1);
    drop((local, remote));
}

#[test]
fn a_join_and_an_abort_allocate_nothing() {
    let mut rig = Rig::knowing();
    let waits = rig.handle.spawn(pending::<()>());
    let ended = rig.handle.spawn(async {});
    let joins = rig.handle.spawn(ended);
    assert_eq!(allocations(|| waits.abort()), 0);
    assert_eq!(allocations(|| assert_eq!(rig.settle(), 3)), 0);
    drop(joins);
}

#[test]
fn an_operation_allocates_nothing() {
    let mut rig = Rig::knowing();
    // The simulated reactor's own tables grow in the first rounds.
    let round = |rig: &mut Rig| {
        let mut before = 0;
        for _ in 0..64 {
            before = allocations(|| {
                let kept = rig.handle.submit(SimOperation::Event(0)).unwrap();
                drop(rig.handle.submit(SimOperation::Event(0)).unwrap());
                rig.settle();
                assert!(rig.sim.fire(0, 0));
                rig.settle();
                drop(kept);
                rig.settle();
            });
        }
        before
    };
    let counts: Vec<usize> = (0..4).map(|_| round(&mut rig)).collect();
    assert!(counts.contains(&0), "{counts:?}");
}

#[test]
fn a_worker_leaves_nothing_behind() {
    for sight in Sight::BOTH {
        let left = left_by(|| {
            let mut rig = Rig::with(sight, WorkerConfig::default().operations(4), |sim| sim);
            let ended = rig.handle.spawn(async { String::from("an output") });
            drop(rig.handle.spawn(async { String::from("another") }));
            let handle = rig.handle.clone();
            drop(rig.handle.spawn(async move {
                let _ = handle.submit(SimOperation::Event(0)).unwrap().await;
            }));
            drop(rig.remote.spawn(pending::<()>()));
            drop(rig.handle.spawn(async { resume_unwind(Box::new(5)) }));
            rig.settle();
            drop(ended);
            drop(rig.handle.spawn(yield_now()));
            drop(rig.remote.spawn(async {}));
            rig.handle.spawn(pending::<()>()).abort();
        });
        assert_eq!(left, 0, "{sight:?}");
    }
}

#[test]
fn a_waker_that_outlives_everything_keeps_the_task_until_it_is_dropped() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let slot = WakerSlot::new();
        let leave = slot.clone();
        drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
            leave.put(context.waker());
            Poll::Pending
        })));
        rig.settle();
        let waker = slot.take();
        drop(rig);
        waker.wake_by_ref();
        let clone = waker.clone();
        clone.wake();
        drop(waker);
    });
    assert_eq!(left, 0);
}

#[test]
fn a_task_woken_in_every_way_before_its_end_is_freed() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        for ends in [false, true] {
            let slot = WakerSlot::new();
            let leave = slot.clone();
            let mut polls = 0;
            let task = rig.handle.spawn(poll_fn(move |context| {
                leave.put(context.waker());
                polls += 1;
                if polls == 2 {
                    // Queued and in the inbox, both behind this very poll.
                    context.waker().wake_by_ref();
                    let waker = context.waker().clone();
                    let inner = Rig::knowing();
                    let mut inner = inner;
                    drop(inner.handle.spawn(async move { waker.wake() }));
                    inner.settle();
                    if ends {
                        return Poll::Ready(());
                    }
                }
                Poll::Pending
            }));
            rig.settle();
            slot.get().wake();
            task.abort();
            slot.get().wake();
            rig.tick();
            drop(slot.take());
            drop(task);
            if ends {
                rig.settle();
            }
        }
    });
    assert_eq!(left, 0);
}

#[test]
fn a_task_that_awaits_its_own_handle_is_freed_at_its_abort() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let reached = Rc::clone(&own);
        let task = rig.handle.spawn(async move {
            yield_now().await;
            let mut own = reached.take().expect("put there below");
            let mut aborts = true;
            let _ = poll_fn(|context| {
                let polled = Pin::new(&mut own).poll(context);
                if std::mem::take(&mut aborts) {
                    own.abort();
                }
                polled
            })
            .await;
        });
        *own.borrow_mut() = Some(task);
        rig.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn tasks_that_await_each_other_are_freed_at_the_workers_end() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let handles: Rc<RefCell<Vec<Option<JoinHandle<()>>>>> = Rc::default();
        for me in 0..3_usize {
            let others = Rc::clone(&handles);
            let task = rig.handle.spawn(async move {
                let next = others.borrow_mut()[(me + 1) % 3].take().unwrap();
                let _ = next.await;
            });
            handles.borrow_mut().push(Some(task));
        }
        rig.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn tasks_of_two_workers_that_await_each_other_are_freed_at_their_end() {
    let left = left_by(|| {
        let (mut one, mut two) = (Rig::knowing(), Rig::knowing());
        let handle: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let reached = Rc::clone(&handle);
        let first = one.handle.spawn(async move {
            let other = reached.take().unwrap();
            let _ = other.await;
        });
        *handle.borrow_mut() = Some(two.handle.spawn(async move {
            let _ = first.await;
        }));
        two.settle();
        one.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn a_handle_that_is_dropped_gives_up_its_waker_at_the_tasks_end_at_the_latest() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let waits = Rc::new(RefCell::new(Some(rig.handle.spawn(pending::<()>()))));
        let also = Rc::clone(&waits);
        // Awaits it once, then drops the handle and ends.
        drop(rig.handle.spawn(async move {
            let mut handle = also.take().unwrap();
            poll_fn(|context: &mut Context<'_>| {
                let _ = Pin::new(&mut handle).poll(context);
                Poll::Ready(())
            })
            .await;
        }));
        rig.settle();
    });
    assert_eq!(left, 0);
}
