//! A task's waker: from inside its worker's tick a wake is a few plain stores, from anywhere else
//! it takes the inbox. It is valid for ever.

use core::task::{RawWaker, RawWakerVTable, Waker};

use crate::service::context;
use crate::service::home::{Home, drop_reference};
use crate::task::TaskRef;

/// A waker that stands for one of the task's references, which the caller has counted, or keeps
/// from being given up.
///
/// # Safety
/// The task is alive as long as the waker.
#[inline]
pub(crate) unsafe fn of(task: TaskRef) -> Waker {
    // SAFETY: the functions below keep the contract of `RawWaker`: they may be called from any
    // thread, since all that they touch is atomic, or the owner's on the owner's thread.
    unsafe { Waker::from_raw(raw(task)) }
}

fn raw(task: TaskRef) -> RawWaker {
    RawWaker::new(task.to_data(), &VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { TaskRef::of_data(data) };
    task.header().state.add_reference();
    raw(task)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: by the contract of the vtable; `wake` takes the waker's reference with it.
    unsafe {
        wake_by_ref(data);
        drop(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { TaskRef::of_data(data) };
    let home = Home::of(task);
    if context::is_ticking(home) {
        home.wake_here(task);
    } else {
        home.wake(task);
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    unsafe { drop_reference(TaskRef::of_data(data)) };
}
