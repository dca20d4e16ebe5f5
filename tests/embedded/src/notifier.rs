//! The reactor's notifier: a flag that ends its sleep.
//!
//! That is all there is to it on one core: whoever sets it while the reactor sleeps is an interrupt
//! handler, and the interrupt itself has ended the WFI. (A second core would send an event too.)

use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{RawWaker, RawWakerVTable, Waker};

static SET: AtomicBool = AtomicBool::new(false);

/// Waking it sets the flag. From thread mode and from any handler, for ever.
pub fn waker() -> Waker {
    // SAFETY: the functions of the table touch nothing but a static flag, and there is nothing to
    // count or to free.
    unsafe { Waker::from_raw(RAW) }
}

const RAW: RawWaker = RawWaker::new(ptr::null(), &VTABLE);
static VTABLE: RawWakerVTable = RawWakerVTable::new(|_| RAW, set, set, |_| ());

unsafe fn set(_: *const ()) {
    // Ordering: Relaxed: what it was set for is in the worker's inbox, and ordered there. The
    // worker sees it since a handler runs as a whole before what it interrupts goes on.
    SET.store(true, Ordering::Relaxed);
}

/// Whether it was woken. By the reactor.
pub fn is_set() -> bool {
    // Ordering: Relaxed, see `set`.
    SET.load(Ordering::Relaxed)
}

/// By the reactor, at the end of a wait. A wake that comes just before has ended it all the same.
pub fn clear() {
    // Ordering: Relaxed, see `set`.
    SET.store(false, Ordering::Relaxed);
}
