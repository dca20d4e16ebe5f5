#![forbid(unsafe_code)]
//! What several hold: counted where there is an allocator, in a static without.

#[cfg(feature = "alloc")]
use alloc::rc::Rc;
#[cfg(feature = "alloc")]
use alloc::sync::Arc;
use core::ops::Deref;

/// A value that several hold on one thread.
pub(crate) enum Shared<T: ?Sized + 'static> {
    /// It stays for ever.
    Static(&'static T),
    /// It stays as long as somebody holds it.
    #[cfg(feature = "alloc")]
    Counted(Rc<T>),
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(value) => Self::Static(value),
            #[cfg(feature = "alloc")]
            Self::Counted(value) => Self::Counted(Rc::clone(value)),
        }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Static(value) => value,
            #[cfg(feature = "alloc")]
            Self::Counted(value) => value,
        }
    }
}

/// A value that several hold, on any thread, each for as long as it likes.
pub(crate) enum Lasting<T: 'static> {
    /// It stays for ever.
    Static(&'static T),
    /// It stays as long as somebody holds it.
    #[cfg(feature = "alloc")]
    Counted(Arc<T>),
}

impl<T> Clone for Lasting<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Static(value) => Self::Static(value),
            #[cfg(feature = "alloc")]
            Self::Counted(value) => Self::Counted(Arc::clone(value)),
        }
    }
}

impl<T> Deref for Lasting<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Static(value) => value,
            #[cfg(feature = "alloc")]
            Self::Counted(value) => value,
        }
    }
}
