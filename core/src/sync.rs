//! The facade of everything concurrent: the atomics, fences and shared cells of this crate come
//! from here and from nowhere else, so that under `--cfg loom` the model checker's stand in.

#[cfg(not(loom))]
mod real {
    pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

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
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::cell::UnsafeCell as SharedCell;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
}

pub(crate) use real::*;
