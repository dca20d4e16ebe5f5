//! Buffers that a reactor takes when there is something to receive, not before.

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::Deref;
use std::sync::{Arc, Mutex};

use super::memory::Memory;
use crate::sync::lock;

/// Buffers of one size, lent one by one: to the reactor, which fills one when a socket has something,
/// and by it to who takes the piece, until that is dropped. So a thousand idle connections hold no
/// buffer.
///
/// A clone is the same pool. Its memory is allocated when it is made, and freed with the last clone
/// and the last piece. Lending takes a lock that is held for a few instructions.
///
/// ```
/// use evenkeel::io::BufferPool;
///
/// let pool = BufferPool::new(64, 4096);
/// assert_eq!((pool.count(), pool.size(), pool.vacant()), (64, 4096, 64));
/// ```
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Box<[UnsafeCell<u8>]>,
    size: usize,
    count: u16,
    vacant: Mutex<Vec<u16>>,
}

// SAFETY: a buffer is touched by whoever has its number, and a number is taken out of the list of
// the vacant ones, under its lock, by one at a time.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl BufferPool {
    /// The most buffers of a pool: what the kernel takes in one ring of them.
    pub const MOST: u16 = 32_768;

    /// So many buffers of `size` bytes each.
    ///
    /// # Panics
    /// If there are none or more than [`MOST`](Self::MOST), if they are empty, or larger than 2^31
    /// bytes.
    #[must_use]
    pub fn new(count: u16, size: usize) -> Self {
        assert!((1..=Self::MOST).contains(&count), "a pool has from 1 to 32,768 buffers");
        assert!((1..1 << 31).contains(&size), "a pool's buffers have from 1 to 2^31 - 1 bytes");
        let memory = Box::<[UnsafeCell<u8>]>::new_zeroed_slice(usize::from(count) * size);
        // SAFETY: a zero is a byte.
        let memory = unsafe { memory.assume_init() };
        let vacant = Mutex::new((0..count).rev().collect());
        Self { shared: Arc::new(Shared { memory, size, count, vacant }) }
    }

    /// How many buffers there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.shared.count
    }

    /// How many bytes each has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// How many are lent to nobody.
    #[must_use]
    pub fn vacant(&self) -> usize {
        lock(&self.shared.vacant).len()
    }

    /// Whether the two are the same pool.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Borrows a buffer, for a reactor. Its memory may be written to until the number is
    /// [given back](Self::give_back) or goes with a completion. None if all are lent.
    #[must_use]
    pub fn take(&self) -> Option<(u16, Memory)> {
        let number = lock(&self.shared.vacant).pop()?;
        let start = self.shared.buffer(number);
        // SAFETY: the number was taken just now, so the buffer is the taker's; it is allocated as
        // long as the pool, of which who fills it has a clone.
        Some((number, unsafe { Memory::new(start, self.shared.size) }))
    }

    /// Gives back what was taken and is not with a completion, for a reactor.
    ///
    /// # Panics
    /// If there is no such buffer, or as many are vacant as there are.
    ///
    /// # Safety
    /// It was taken, and nobody writes to it any more.
    pub unsafe fn give_back(&self, number: u16) {
        assert!(number < self.shared.count, "a buffer goes back to its pool");
        let mut vacant = lock(&self.shared.vacant);
        assert!(vacant.len() < usize::from(self.shared.count), "a buffer is given back once");
        vacant.push(number);
    }

    /// What was received into a buffer, for who has its number from a completion.
    ///
    /// # Safety
    /// The number is the caller's, and so many bytes were written.
    pub(crate) unsafe fn received(&self, number: u16, length: usize) -> Received {
        assert!(number < self.shared.count && length <= self.shared.size);
        Received { pool: self.clone(), number, length }
    }
}

impl Shared {
    fn buffer(&self, number: u16) -> *mut u8 {
        debug_assert!(number < self.count);
        // SAFETY: there are `count` buffers of this size, and no number is above.
        unsafe { UnsafeCell::raw_get(self.memory.as_ptr()).add(usize::from(number) * self.size) }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("count", &self.count())
            .field("size", &self.size())
            .field("vacant", &self.vacant())
            .finish()
    }
}

/// A received piece, in a buffer of a pool, which gets it back when this is dropped. It may be sent
/// to another thread.
pub struct Received {
    pool: BufferPool,
    number: u16,
    length: usize,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.pool.shared.buffer(self.number).cast_const();
        // SAFETY: the buffer is this piece's alone, and its bytes were zero when the pool was made.
        unsafe { core::slice::from_raw_parts(start, self.length) }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: it was taken for this piece.
        unsafe { self.pool.give_back(self.number) };
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Received({} bytes)", self.length)
    }
}
