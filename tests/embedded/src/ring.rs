#![forbid(unsafe_code)]
//! A ring of bytes between one that puts and one that takes: an interrupt handler and the worker.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Room for `N` bytes, a power of two. One context puts, one takes; neither ever waits.
pub struct Ring<const N: usize> {
    bytes: [AtomicU8; N],
    /// How many have been put since the start. The one that puts writes it.
    put: AtomicUsize,
    /// How many have been taken. The one that takes writes it.
    taken: AtomicUsize,
}

impl<const N: usize> Ring<N> {
    /// An empty one.
    pub const fn new() -> Self {
        const { assert!(N.is_power_of_two(), "the counts wrap in step with the places") };
        Self {
            bytes: [const { AtomicU8::new(0) }; N],
            put: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        }
    }

    /// Puts a byte, if there is room. By the one that puts.
    pub fn put(&self, byte: u8) -> bool {
        if self.is_full() {
            return false;
        }
        // Ordering: Relaxed, written here alone.
        let put = self.put.load(Ordering::Relaxed);
        // Ordering: Relaxed; the count below publishes it.
        self.bytes[put % N].store(byte, Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire of `is_empty`: who sees the count sees the byte.
        self.put.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest byte. By the one that takes.
    pub fn take(&self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        // Ordering: Relaxed, written here alone.
        let taken = self.taken.load(Ordering::Relaxed);
        // Ordering: Relaxed; `is_empty` has acquired it.
        let byte = self.bytes[taken % N].load(Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire of `is_full`: the place is read before it is
        // written again.
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(byte)
    }

    /// Whether there is nothing to take. By the one that takes.
    pub fn is_empty(&self) -> bool {
        // Ordering: Acquire, pairs with the Release of `put`.
        self.put.load(Ordering::Acquire) == self.taken.load(Ordering::Relaxed)
    }

    /// Whether there is no room. By the one that puts.
    pub fn is_full(&self) -> bool {
        // Ordering: Acquire, pairs with the Release of `take`.
        let taken = self.taken.load(Ordering::Acquire);
        self.put.load(Ordering::Relaxed).wrapping_sub(taken) == N
    }
}
