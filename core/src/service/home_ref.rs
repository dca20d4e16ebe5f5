//! A reference to a worker's shared half, as everybody holds it who may outlive the worker.

#[cfg(feature = "alloc")]
use alloc::sync::Arc;
use core::ptr::NonNull;

use crate::service::home::Home;
use crate::shared::Lasting;

/// Where a shared half lives, and so what a reference to it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Residence {
    /// In a static: a reference is an address.
    Static,
    /// In an `Arc`: a reference is counted.
    #[cfg(feature = "alloc")]
    Counted,
}

/// A reference to a worker's shared half. Any thread.
pub(crate) type HomeRef = Lasting<Home>;

impl HomeRef {
    /// One more reference to a shared half.
    ///
    /// # Safety
    /// It is alive, and the pointer is one to the static that it is in, or that of its `Arc`.
    #[cfg(feature = "std")]
    pub(crate) unsafe fn of(home: *const Home) -> Self {
        // SAFETY: passed on to the caller; the count that `from_raw` takes over is added before.
        unsafe {
            if (*home).residence() == Residence::Counted {
                Arc::increment_strong_count(home);
            }
            Self::from_raw(NonNull::new_unchecked(home.cast_mut()).cast())
        }
    }

    /// As a task carries it: one word, which stands for one reference.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        let home = match self {
            Self::Static(home) => core::ptr::from_ref(home),
            #[cfg(feature = "alloc")]
            Self::Counted(home) => Arc::into_raw(home),
        };
        // SAFETY: neither a reference nor an `Arc` points to null.
        unsafe { NonNull::new_unchecked(home.cast_mut()) }.cast()
    }

    /// The reverse of [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    /// `home` came from it, and the reference that it stands for is given up by this.
    pub(crate) unsafe fn from_raw(home: NonNull<()>) -> Self {
        let home = home.cast::<Home>();
        // SAFETY: the reference has kept it alive. A home whose residence is `Static` was made in
        // a static, one whose residence is `Counted` in an `Arc`.
        unsafe {
            match home.as_ref().residence() {
                Residence::Static => Self::Static(home.as_ref()),
                #[cfg(feature = "alloc")]
                Residence::Counted => Self::Counted(Arc::from_raw(home.as_ptr())),
            }
        }
    }
}
