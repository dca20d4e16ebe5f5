//! Which worker ticks on this thread: by this a wake knows that it comes from inside.
//!
//! Without std there is no thread identity, and an interrupt handler looks the same as the code it
//! interrupted. There no worker is ever found to be ticking, and every wake takes the inbox.

use crate::service::home::Home;

#[cfg(feature = "std")]
mod known {
    use super::Home;
    use core::cell::Cell;
    use core::ptr;

    crate::sync::thread_local! {
        static TICKING: Cell<*const Home> = const { Cell::new(ptr::null()) };
    }

    /// Whether the worker of this shared half is the one now ticking on this thread.
    #[inline]
    pub(crate) fn is_ticking(home: &Home) -> bool {
        // A thread-local without a destructor is there until the thread is gone.
        TICKING.with(|ticking| ptr::eq(ticking.get(), home))
    }

    /// While it lives the worker ticks on this thread; then the one before it does.
    pub(crate) struct Ticking {
        before: *const Home,
    }

    impl Ticking {
        pub(crate) fn enter(home: &Home) -> Self {
            Self { before: TICKING.with(|ticking| ticking.replace(home)) }
        }
    }

    impl Drop for Ticking {
        fn drop(&mut self) {
            TICKING.with(|ticking| ticking.set(self.before));
        }
    }
}

#[cfg(not(feature = "std"))]
mod known {
    use super::Home;

    #[inline]
    pub(crate) fn is_ticking(_: &Home) -> bool {
        false
    }

    pub(crate) struct Ticking;

    impl Ticking {
        pub(crate) fn enter(_: &Home) -> Self {
            Self
        }
    }
}

pub(crate) use known::{Ticking, is_ticking};
