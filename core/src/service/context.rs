//! Which worker ticks here: by this a wake knows that it comes from inside.
//!
//! With std a thread knows the worker that ticks on it. Without, there is no thread identity, and
//! an interrupt handler looks the same as the code that it interrupted: every wake takes the inbox,
//! unless the platform supplies a hook that tells one context from the other.

use crate::service::home::Home;

/// Names the context of execution that calls it: the thread, the core, the interrupt handler.
///
/// Two that may run at the same time, or of which one may interrupt the other, must not have the
/// same name, and none is 0. On a microcontroller with one core the number of the active interrupt,
/// plus one, will do. It is called at every wake: a few instructions, no system call.
pub type ContextHook = fn() -> usize;

#[cfg(feature = "std")]
mod known {
    use super::{ContextHook, Home};
    use core::cell::Cell;
    use core::marker::PhantomData;
    use core::ptr;

    crate::sync::thread_local! {
        static TICKING: Cell<*const Home> = const { Cell::new(ptr::null()) };
    }

    /// With std the thread itself knows.
    pub(crate) struct Identity;

    impl Identity {
        pub(crate) fn new(_: Option<ContextHook>) -> Self {
            Self
        }
    }

    /// Whether the worker of this shared half is the one now ticking on this thread.
    #[inline]
    pub(crate) fn is_ticking(home: &Home) -> bool {
        // A thread-local without a destructor is there until the thread is gone.
        TICKING.with(|ticking| ptr::eq(ticking.get(), home))
    }

    /// Asks the worker that ticks on this thread, if one does.
    #[inline]
    pub(crate) fn with_ticking<U>(ask: impl FnOnce(&Home) -> U) -> Option<U> {
        let ticking = TICKING.with(Cell::get);
        // SAFETY: not null, so its worker ticks on this thread, and holds it: `Ticking` borrows it
        // and puts back what was there before.
        unsafe { ticking.as_ref() }.map(ask)
    }

    /// While it lives the worker ticks on this thread; then the one before it does.
    pub(crate) struct Ticking<'a> {
        home: PhantomData<&'a Home>,
        before: *const Home,
    }

    impl<'a> Ticking<'a> {
        pub(crate) fn enter(home: &'a Home) -> Self {
            Self { home: PhantomData, before: TICKING.with(|ticking| ticking.replace(home)) }
        }
    }

    impl Drop for Ticking<'_> {
        fn drop(&mut self) {
            TICKING.with(|ticking| ticking.set(self.before));
        }
    }
}

#[cfg(not(feature = "std"))]
mod known {
    use super::{ContextHook, Home};
    use crate::sync::{AtomicUsize, Ordering};

    /// The context in which the worker ticks, if the platform can name it.
    pub(crate) struct Identity {
        hook: Option<ContextHook>,
        /// 0: it does not tick.
        ticking: AtomicUsize,
    }

    impl Identity {
        pub(crate) fn new(hook: Option<ContextHook>) -> Self {
            Self { hook, ticking: AtomicUsize::new(0) }
        }

        fn here(&self) -> usize {
            self.hook.map_or(0, |name| name())
        }
    }

    /// Whether the worker of this shared half ticks in the very context that asks.
    #[inline]
    pub(crate) fn is_ticking(home: &Home) -> bool {
        let identity = home.identity();
        // Ordering: Relaxed. If it names the asker's own context, then that context has stored it;
        // any other name means "no", whenever it was stored.
        let ticking = identity.ticking.load(Ordering::Relaxed);
        ticking != 0 && ticking == identity.here()
    }

    /// While it lives the worker ticks in this context; then it is as it was before.
    pub(crate) struct Ticking<'a> {
        identity: &'a Identity,
        before: usize,
    }

    impl<'a> Ticking<'a> {
        pub(crate) fn enter(home: &'a Home) -> Self {
            let identity = home.identity();
            // Ordering: Relaxed, as in `is_ticking`. Not a read-modify-write: only the context that
            // ticks stores here.
            let before = identity.ticking.load(Ordering::Relaxed);
            identity.ticking.store(identity.here(), Ordering::Relaxed);
            Self { identity, before }
        }
    }

    impl Drop for Ticking<'_> {
        fn drop(&mut self) {
            // Ordering: Relaxed, as in `is_ticking`.
            self.identity.ticking.store(self.before, Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "std")]
pub(crate) use known::with_ticking;
pub(crate) use known::{Identity, Ticking, is_ticking};
