//! Wakers that do in their clone and drop what nobody expects.
#![cfg(all(feature = "std", feature = "testing"))]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use evenkeel::operation::{Arrival, Operations, Pending};
use evenkeel::testing::{SimReactor, VirtualClock};
use evenkeel::{TaskStorage, Worker, WorkerConfig};

type Act = Box<dyn FnOnce()>;

thread_local! {
    static AT_CLONE: Cell<Option<Act>> = const { Cell::new(None) };
    static AT_DROP: Cell<Option<Act>> = const { Cell::new(None) };
}

fn act(when: &'static std::thread::LocalKey<Cell<Option<Act>>>) {
    if let Some(act) = when.take() {
        act();
    }
}

/// A waker that wakes nobody. The next clone, or drop of a clone, does what it was told to.
fn hostile() -> std::mem::ManuallyDrop<Waker> {
    unsafe fn clone(data: *const ()) -> RawWaker {
        act(&AT_CLONE);
        RawWaker::new(data, &VTABLE)
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| act(&AT_DROP));
    // SAFETY: the functions touch nothing but what is this thread's, where the test is.
    std::mem::ManuallyDrop::new(unsafe {
        Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE))
    })
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&hostile()))
}

#[test]
fn a_waker_that_panics_in_its_drop_does_not_keep_a_place() {
    static STORAGE: TaskStorage<512> = TaskStorage::new("one");
    let clock = VirtualClock::new();
    let worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
    let mut handle = worker.handle().spawn_in(STORAGE.reserve().unwrap(), async {});
    // The task ends while its handle takes the waker in: nobody takes that out again.
    let worker = RefCell::new(worker);
    AT_CLONE.set(Some(Box::new(move || assert!(worker.borrow_mut().tick().is_ok()))));
    assert!(poll(&mut handle).is_ready());
    AT_DROP.set(Some(Box::new(|| panic!("in the drop of a waker"))));
    drop(catch_unwind(AssertUnwindSafe(|| drop(handle))));
    assert!(STORAGE.reserve().is_ok());
}

#[test]
fn a_waker_whose_drop_starts_operations_makes_no_cancel_be_forgotten() {
    let operations = Rc::new(Operations::new(2, Waker::noop().clone()));
    let (ended, mut its_future) = operations.start().unwrap();
    let (left, future) = operations.start().unwrap();
    let owner = Rc::clone(&operations);
    AT_CLONE.set(Some(Box::new(move || assert_eq!(owner.complete(ended, 1), Arrival::Ended))));
    assert_eq!(poll(&mut its_future), Poll::Ready(Ok(1)));
    drop(future);

    // The slot that is given back drops the waker, which takes the slot, and wants one more.
    let owner = Rc::clone(&operations);
    let kept: Rc<RefCell<Vec<Pending>>> = Rc::default();
    let keep = Rc::clone(&kept);
    AT_DROP.set(Some(Box::new(move || {
        for _ in 0..2 {
            keep.borrow_mut().extend(owner.start().ok().map(|(_, pending)| pending));
        }
    })));
    drop(operations.start());
    let cancels: Vec<_> = std::iter::from_fn(|| operations.next_cancel()).collect();
    assert_eq!(kept.borrow().len(), 1);
    assert!(cancels.contains(&left), "{left:?} is not among {cancels:?}");
}
