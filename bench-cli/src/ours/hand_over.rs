//! One heap node through one atomic pointer: the least that a hand-over between two threads takes.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for one value, from any thread to one that looks.
pub(super) struct HandOver<T>(AtomicPtr<T>);

impl<T> HandOver<T> {
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Puts a value there, on the heap. One that was there and not taken is dropped.
    pub(super) fn put(&self, value: T) {
        let node = Box::into_raw(Box::new(value));
        // Ordering: Release, pairs with the Acquire of `take`: the value is in place. Acquire,
        // pairs with the Release of another `put`.
        drop(owned(self.0.swap(node, Ordering::AcqRel)));
    }

    /// Takes the value that is there: one load if there is none.
    #[inline]
    pub(super) fn take(&self) -> Option<T> {
        // Ordering: Relaxed, the swap acquires.
        if self.0.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Ordering: Acquire, pairs with the Release of `put`.
        owned(self.0.swap(ptr::null_mut(), Ordering::Acquire)).map(|value| *value)
    }
}

impl<T> Drop for HandOver<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

fn owned<T>(node: *mut T) -> Option<Box<T>> {
    // SAFETY: every pointer that stands in a `HandOver` came from `Box::into_raw`, and the swap
    // that took it out left another there, so nobody else has it.
    (!node.is_null()).then(|| unsafe { Box::from_raw(node) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_put_is_taken_once() {
        let place = HandOver::new();
        assert_eq!(place.take(), None);
        place.put(7);
        assert_eq!((place.take(), place.take()), (Some(7), None));
    }

    #[test]
    fn what_is_not_taken_is_dropped() {
        let (value, place) = (Arc::new(()), HandOver::new());
        place.put(Arc::clone(&value));
        place.put(Arc::clone(&value));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
