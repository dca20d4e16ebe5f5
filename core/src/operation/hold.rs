//! What an operation's slot holds for it until its last completion: buffers above all.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::Cell;

/// The most bytes that an operation may have kept in its slot: its buffer, an address, and so on.
pub(crate) const HELD_BYTES: usize = 192;

#[repr(align(16))]
struct Space(#[expect(dead_code, reason = "it is reached by its address")] [u8; HELD_BYTES]);

/// Drops what is held, of an operation that has ended with this result.
type Release = unsafe fn(*mut (), i32);

/// A slot's room. The owner's and the future's, who are on one thread.
pub(crate) struct Hold {
    space: UnsafeCell<MaybeUninit<Space>>,
    /// Some while something is held.
    release: Cell<Option<Release>>,
}

/// What can be held.
pub(crate) trait Held: Sized + 'static {
    /// Nobody waits for it any more: the operation has ended with this result.
    fn abandon(self, result: i32);
}

impl Hold {
    pub(crate) const fn new() -> Self {
        Self { space: UnsafeCell::new(MaybeUninit::uninit()), release: Cell::new(None) }
    }

    /// Whether something is held.
    pub(crate) fn is_laden(&self) -> bool {
        self.release.get().is_some()
    }

    /// Takes a value in. It stays at the place that is returned until it is taken out.
    ///
    /// What does not fit does not compile.
    ///
    /// # Safety
    /// By the owner; nothing is held.
    pub(crate) unsafe fn put<T: Held>(&self, value: T) -> *mut T {
        const {
            assert!(
                size_of::<T>() <= HELD_BYTES && align_of::<T>() <= align_of::<Space>(),
                "an operation's slot has no room for so large a buffer: put it in a box"
            );
        }
        let place = self.space.get().cast::<T>();
        // SAFETY: it has room, checked above, and holds nothing, by the caller.
        unsafe { place.write(value) };
        self.release.set(Some(release::<T>));
        place
    }

    /// Takes the value out.
    ///
    /// # Safety
    /// On the owner's thread, and a `T` is held, which the kernel has done with.
    pub(crate) unsafe fn take<T: Held>(&self) -> T {
        self.release.set(None);
        // SAFETY: passed on to the caller.
        unsafe { self.space.get().cast::<T>().read() }
    }

    /// Drops what is held, if anything.
    ///
    /// # Safety
    /// By the owner; the operation has ended with this result, and its future is gone.
    pub(crate) unsafe fn release(&self, result: i32) {
        if let Some(release) = self.release.take() {
            // SAFETY: it was put together with this function; the rest is the caller's.
            unsafe { release(self.space.get().cast(), result) };
        }
    }

    /// Leaves what is held to the kernel, for good. It stays in its place, which must not be freed.
    /// Whether anything is.
    pub(crate) fn leak(&self) -> bool {
        self.release.take().is_some()
    }
}

/// # Safety
/// The place holds a `T`, which the kernel has done with, and is not looked at again before the next
/// `put`.
unsafe fn release<T: Held>(place: *mut (), result: i32) {
    // SAFETY: passed on to the caller.
    let value = unsafe { place.cast::<T>().read() };
    // A buffer may panic in its drop, which is not to end the worker.
    let _ = catch_unwind(AssertUnwindSafe(|| value.abandon(result)));
}
