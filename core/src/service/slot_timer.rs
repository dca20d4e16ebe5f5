//! Timers in slots: those of futures that may move from worker to worker, or be dropped anywhere.
//!
//! Such a timer is an operation whose reactor is the worker itself. The slot's protocol carries its
//! end over to wherever its future is, and a drop back to the worker.

use core::ptr;
use core::task::{RawWaker, RawWakerVTable, Waker};

use crate::operation::Slot;
use crate::reactor::{Completion, Token};
use crate::service::context;
use crate::service::home::Home;
use crate::service::in_flight::InFlight;
use crate::time::Instant;
use crate::timers::Alarm;

/// A future of no operation in the reactor: it ends when the deadline has passed.
pub(crate) enum Set {
    Waits(InFlight),
    /// The table has no vacant slot; this is how many it has.
    NoRoom(usize),
    /// The worker is at its end.
    Ending,
}

/// The owner's part.
impl Home {
    /// Sets a timer.
    pub(crate) fn set_timer(&self, deadline: Instant) -> Set {
        if self.is_ending() {
            return Set::Ending;
        }
        // SAFETY: by the owner.
        let Some(token) = (unsafe { self.operations().allocate() }) else {
            return Set::NoRoom(self.operations().capacity());
        };
        let slot = self.operations().slot(token);
        // SAFETY: by the owner. The slot's last timer was cleared, or has fired, before the slot
        // was vacant again; it stays where it is as long as this home, which has the queue.
        unsafe { slot.alarm().set(self.timers(), deadline, waker_of(slot)) };
        // SAFETY: just allocated.
        Set::Waits(unsafe { InFlight::new(self.reference(), token) })
    }

    /// Whether a token is that of a timer which has not fired: no reactor has anything to say of it.
    pub(super) fn is_timer(&self, token: Token) -> bool {
        self.alarm_that_is_set(token).is_some()
    }

    /// Ends an operation that is a timer and has not fired. Whether it is one.
    pub(crate) fn cancels_timer(&self, token: Token) -> bool {
        let Some(alarm) = self.alarm_that_is_set(token) else { return false };
        // SAFETY: by the owner; it is set, and all timers of this home's slots are in its queue.
        unsafe { alarm.clear(self.timers()) };
        self.complete(Completion { token, result: 0 });
        true
    }

    fn alarm_that_is_set(&self, token: Token) -> Option<&Alarm> {
        self.operations().find(token).map(Slot::alarm).filter(|alarm| alarm.is_set())
    }
}

/// What a slot's timer gives to the worker that fires it, which alone gets it: it is neither cloned
/// nor kept. Its wake ends the slot's operation.
fn waker_of(slot: &Slot) -> Waker {
    let data = ptr::from_ref(slot).cast();
    // SAFETY: the functions below keep the contract of `RawWaker`: the slot outlives its timer, and
    // they touch it on its owner's thread, where timers fire.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

unsafe fn clone(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the data is the slot, by `waker_of`.
    let token = unsafe { &*data.cast::<Slot>() }.token();
    let fired = context::with_ticking(|home| home.complete(Completion { token, result: 0 }));
    debug_assert!(fired.is_some(), "timers fire while their worker ticks");
}

unsafe fn drop(_: *const ()) {}
