#![forbid(unsafe_code)]
//! What the kit puts into a queue, and what became of it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::conformance::rules::{Broken, broken};

/// What the kit puts into a queue under test. It has a number, and the kit learns of its drop.
///
/// It may be carried by whatever the queue takes, but is never forgotten: the kit would call that
/// a leak.
#[derive(Debug)]
pub struct Parcel {
    number: usize,
    /// How often each number was dropped.
    drops: Arc<[AtomicU32]>,
}

impl Parcel {
    /// Unlike that of any other parcel in the same queue.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// What a faulty queue does that copies what it holds.
    #[cfg(all(test, not(loom), feature = "std"))]
    pub(crate) fn duplicate(&self) -> Self {
        Self { number: self.number, drops: Arc::clone(&self.drops) }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire of `Ledger::drops`.
        self.drops[self.number].fetch_add(1, Ordering::Release);
    }
}

/// Makes the parcels of one check, and knows what became of each.
pub(crate) struct Ledger {
    drops: Arc<[AtomicU32]>,
    /// One more reference for each parcel: a queue that drops one twice gives up one too many, and
    /// the kit lives to tell of it.
    spares: Vec<Arc<[AtomicU32]>>,
}

impl Ledger {
    pub(crate) fn new(parcels: usize) -> Self {
        let drops: Arc<[_]> = (0..parcels).map(|_| AtomicU32::new(0)).collect();
        let spares = (0..parcels).map(|_| Arc::clone(&drops)).collect();
        Self { drops, spares }
    }

    /// Each number is asked for once.
    pub(crate) fn parcel(&self, number: usize) -> Parcel {
        Parcel { number, drops: Arc::clone(&self.drops) }
    }

    fn drops(&self, number: usize) -> u32 {
        // Ordering: Acquire, pairs with the Release of a drop.
        self.drops[number].load(Ordering::Acquire)
    }

    /// None of them was dropped: they are in the queue, or in the caller's hands.
    pub(crate) fn all_there(&self, mut numbers: impl Iterator<Item = usize>) -> Result<(), Broken> {
        match numbers.find(|&number| self.drops(number) != 0) {
            Some(number) => {
                Err(broken!(DropsNoneInside, "item {number} was dropped while it was in the queue"))
            }
            None => Ok(()),
        }
    }

    /// The queue is gone, and of the items below `made` the kit has dropped those that came out: each
    /// was dropped once.
    pub(crate) fn all_gone(&self, made: usize) -> Result<(), Broken> {
        for number in 0..made {
            match self.drops(number) {
                0 => return Err(broken!(DropsTheRest, "item {number} never was")),
                1 => {}
                times => return Err(broken!(DropsTheRest, "item {number} was {times} times")),
            }
        }
        Ok(())
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if (0..self.drops.len()).any(|number| self.drops(number) > 1) {
            // How many references are left can't be told any more.
            mem::forget(Arc::clone(&self.drops));
            mem::forget(mem::take(&mut self.spares));
        }
    }
}
