//! What an operation lends to a reactor: memory, and places for more than a number.
//!
//! These are pointers with a promise: whoever makes one vouches that what it points to stays where it
//! is, and is nobody else's, until the operation's completion has been reported. The futures keep it by
//! moving buffers into the operation's slot.

use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// The most bytes that Linux moves in one call, whatever it is asked for: `MAX_RW_COUNT`.
pub const MOST_BYTES: usize = 0x7fff_f000;

/// A piece of memory, laid out like the kernel's `iovec`.
///
/// It may be sent along with its operation: the memory is the operation's, whatever thread it is on.
#[repr(C)]
pub struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: by the promise of `new` nobody else touches the memory meanwhile.
unsafe impl Send for Memory {}

impl Memory {
    /// The memory from `start` on. Of more than [`MOST_BYTES`] the first so many, as the kernel would
    /// take them.
    ///
    /// # Safety
    /// Until the operation that this goes into has been reported complete, or for ever if it never is,
    /// the memory stays allocated. If it is to be read from, it is initialised, and nobody writes to
    /// it; if it is to be written to, nobody else touches it at all.
    #[must_use]
    pub unsafe fn new(start: *mut u8, length: usize) -> Self {
        Self { start, length: if length < MOST_BYTES { length } else { MOST_BYTES } }
    }

    /// Where it begins. Dangling if it is empty.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes, [`MOST_BYTES`] at most.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a transfer of nothing is one like any other
    pub fn len(&self) -> usize {
        self.length
    }

    /// The bytes, of memory that is to be read from.
    ///
    /// # Safety
    /// It was given to be read from, and the operation has not been reported complete.
    #[must_use]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: passed on to the caller; initialised and allocated by the promise of `new`.
        unsafe { core::slice::from_raw_parts(self.start, self.length) }
    }

    /// The bytes, of memory that is to be written to.
    ///
    /// # Safety
    /// It was given to be written to, and the operation has not been reported complete.
    #[must_use]
    pub unsafe fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: passed on to the caller; allocated, and nobody else's, by the promise of `new`.
        unsafe { core::slice::from_raw_parts_mut(self.start.cast(), self.length) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.length)
    }
}

/// A list of pieces of memory, in place: what `readv` and `writev` take.
pub struct MemoryList {
    first: NonNull<Memory>,
    count: usize,
}

// SAFETY: as for `Memory`; the list itself is the operation's too, by the promise of `new`.
unsafe impl Send for MemoryList {}

impl MemoryList {
    /// The most pieces that Linux takes in one call: `IOV_MAX`.
    pub const MOST: usize = 1024;

    /// The list that starts at `first`.
    ///
    /// # Safety
    /// Until the operation that this goes into has been reported complete the list stays in place and
    /// nobody else touches it.
    #[must_use]
    pub unsafe fn new(first: NonNull<Memory>, count: usize) -> Self {
        Self { first, count }
    }

    /// The pieces, laid out like an array of the kernel's `iovec`.
    #[must_use]
    pub fn pieces(&self) -> &[Memory] {
        // SAFETY: in place by the promise of `new`.
        unsafe { core::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    /// The same, to be written to.
    #[must_use]
    pub fn pieces_mut(&mut self) -> &mut [Memory] {
        // SAFETY: in place, and nobody else's, by the promise of `new`.
        unsafe { core::slice::from_raw_parts_mut(self.first.as_ptr(), self.count) }
    }
}

impl fmt::Debug for MemoryList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pieces()).finish()
    }
}

/// A place in the operation's slot: for a result that is more than a number, or with what the
/// operation is told beside its buffer.
pub struct Place<T> {
    place: NonNull<T>,
    owned: PhantomData<T>,
}

// SAFETY: by the promise of `new` nobody else touches it meanwhile.
unsafe impl<T: Send> Send for Place<T> {}

impl<T> Place<T> {
    /// This place.
    ///
    /// # Safety
    /// Until the operation that this goes into has been reported complete it stays there, holds a
    /// value, and nobody else touches it.
    #[must_use]
    pub unsafe fn new(place: NonNull<T>) -> Self {
        Self { place, owned: PhantomData }
    }

    /// What is there.
    #[must_use]
    pub fn get(&self) -> &T {
        // SAFETY: by the promise of `new`.
        unsafe { self.place.as_ref() }
    }

    /// Puts a value there, before the completion is reported.
    pub fn put(&mut self, value: T) {
        // SAFETY: by the promise of `new`.
        unsafe { *self.place.as_mut() = value };
    }
}

impl<T: fmt::Debug> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(self.get()).finish()
    }
}
