//! The facade of everything concurrent: the atomics, fences and cells of this crate come from here
//! and from nowhere else, so that under `--cfg loom` the model checker's stand in.

#[cfg(not(loom))]
mod real {
    #[cfg(feature = "alloc")]
    use alloc::boxed::Box;

    /// What one thread has for itself, if the rules are kept. Loom sees whether they are.
    pub(crate) use core::cell::Cell;
    #[cfg(not(feature = "portable-atomic"))]
    pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize};
    pub(crate) use core::sync::atomic::{Ordering, fence};
    pub(crate) use crossbeam_utils::Backoff;
    #[cfg(feature = "portable-atomic")]
    pub(crate) use portable_atomic::{AtomicPtr, AtomicU32, AtomicUsize};
    #[cfg(feature = "std")]
    pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock};
    #[cfg(feature = "std")]
    pub(crate) use std::thread_local;

    /// Locks. Nothing that a lock of this crate protects is left half done by a panic.
    #[cfg(feature = "std")]
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A cell that several threads reach; who may when is the business of the state beside it.
    ///
    /// The closures make each access visible to loom, which knows no raw pointers.
    pub(crate) struct SharedCell<T>(core::cell::UnsafeCell<T>);

    impl<T> SharedCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        /// Shared access; the pointer must not outlive the closure.
        #[inline]
        pub(crate) fn with<U>(&self, access: impl FnOnce(*const T) -> U) -> U {
            access(self.0.get())
        }

        /// Exclusive access; the pointer must not outlive the closure.
        #[inline]
        pub(crate) fn with_mut<U>(&self, access: impl FnOnce(*mut T) -> U) -> U {
            access(self.0.get())
        }
    }

    /// As many null pointers as the type says: what an array of them is made with in a `const fn`.
    pub(crate) const fn null_pointers<T, const COUNT: usize>() -> [AtomicPtr<T>; COUNT] {
        [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT]
    }

    /// Whether the allocation that this is part of is still there. Nothing at all but under loom,
    /// which finds by it who touches freed memory.
    #[derive(Debug)]
    pub(crate) struct Life;

    impl Life {
        pub(crate) const fn new() -> Self {
            Self
        }

        /// Before an access.
        #[inline]
        #[allow(clippy::unused_self)] // loom's has something to check
        pub(crate) fn check(&self) {}

        /// Before the allocation is freed.
        #[inline]
        #[allow(clippy::unused_self)] // loom's has something to end
        pub(crate) fn end(&self) {}
    }

    /// Frees what other threads may have pointed to.
    #[cfg(feature = "alloc")]
    #[inline]
    pub(crate) fn free<T>(boxed: Box<T>) {
        drop(boxed);
    }
}

#[cfg(loom)]
mod real {
    #[cfg(not(feature = "std"))]
    extern crate std; // loom's own

    use alloc::alloc::Layout;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    pub(crate) use loom::cell::Cell;
    #[allow(clippy::unsafe_removed_from_name)] // its stand-in is one, and has this name
    pub(crate) use loom::cell::UnsafeCell as SharedCell;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

    #[cfg(feature = "std")]
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    #[cfg(feature = "std")]
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no model panics under a lock and goes on")
    }

    /// Stricter than the one that it stands in for: who asks must have been told that it is set.
    #[cfg(feature = "std")]
    pub(crate) struct OnceLock<T> {
        value: SharedCell<Option<T>>,
        /// What loom switches threads at.
        attempts: AtomicUsize,
    }

    #[cfg(feature = "std")]
    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self { value: SharedCell::new(None), attempts: AtomicUsize::new(0) }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            // SAFETY: loom sees to it that nobody writes meanwhile; it is written once, and stays.
            self.value.with(|value| unsafe { (*value).as_ref() })
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            if self.attempts.fetch_add(1, Ordering::Relaxed) > 0 {
                return Err(value);
            }
            // SAFETY: loom sees to it that nobody is at it.
            self.value.with_mut(|place| unsafe { *place = Some(value) });
            Ok(())
        }
    }

    /// Each of a model's threads has its own, which are one thread to std.
    #[cfg(feature = "std")]
    macro_rules! loom_thread_local {
        (static $name:ident: $type:ty = const { $initial:expr };) => {
            loom::thread_local! { static $name: $type = $initial; }
        };
    }
    #[cfg(feature = "std")]
    pub(crate) use loom_thread_local as thread_local;

    pub(crate) fn null_pointers<T, const COUNT: usize>() -> [AtomicPtr<T>; COUNT] {
        core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut()))
    }

    /// A spin loop: loom wants to know that it can't go on by itself.
    pub(crate) struct Backoff;

    impl Backoff {
        pub(crate) fn new() -> Self {
            Self
        }

        #[allow(clippy::unused_self)] // the shape of the one that it stands in for
        pub(crate) fn reset(&self) {}

        #[allow(clippy::unused_self)] // as above
        pub(crate) fn snooze(&self) {
            loom::thread::yield_now();
        }
    }

    /// Read by every access, written by the end: a use after the end fails the assertion, and one
    /// that is only by chance before it is a data race.
    #[derive(Debug)]
    pub(crate) struct Life(SharedCell<bool>);

    impl Life {
        pub(crate) fn new() -> Self {
            Self(SharedCell::new(true))
        }

        pub(crate) fn check(&self) {
            // SAFETY: loom has seen to it that nobody writes meanwhile.
            assert!(self.0.with(|there| unsafe { *there }), "used after it was freed");
        }

        pub(crate) fn end(&self) {
            // SAFETY: loom has seen to it that nobody else is at it.
            let there = self.0.with_mut(|there| unsafe { there.replace(false) });
            assert!(there, "freed twice");
        }
    }

    std::thread_local! {
        /// The memory of what was freed: it must not be used again before the execution is over, so
        /// that a use after the end finds it ended. (All threads of a model are one to std.)
        static FREED: RefCell<Vec<(*mut u8, Layout)>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn free<T>(boxed: Box<T>) {
        let place = Box::into_raw(boxed);
        FREED.with_borrow_mut(|freed| freed.push((place.cast(), Layout::new::<T>())));
        // SAFETY: it came out of a box, and is not used as what it was any more.
        unsafe { place.drop_in_place() };
    }

    /// Between two executions.
    #[cfg(test)]
    pub(crate) fn bury() {
        for (place, layout) in FREED.take() {
            // SAFETY: it came out of a box of that layout, its content is dropped, and the
            // execution that could have touched it is over.
            unsafe { alloc::alloc::dealloc(place, layout) };
        }
    }
}

/// A function that is `const`, but not under loom, whose cells and atomics are not.
macro_rules! const_but_under_loom {
    ($(#[$attribute:meta])* $visibility:vis const fn $($function:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility const fn $($function)*

        #[cfg(loom)]
        $(#[$attribute])*
        $visibility fn $($function)*
    };
}

pub(crate) use const_but_under_loom;
pub(crate) use real::*;
