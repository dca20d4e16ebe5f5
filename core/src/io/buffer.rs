//! What bytes are read into and written from.

use core::ops::{Bound, RangeBounds};

use super::pool::Received;

/// Bytes that can be written from: they move into the operation and come back with its result.
///
/// What moves must be small, since it moves into the operation's slot, [`HELD_BYTES`] with all that
/// goes along: a `Vec`, a `Box`, a reference, or an array of up to some hundred bytes. A larger array
/// does not compile; a box of it does.
///
/// # Safety
/// While the value is neither moved nor touched, [`filled`](Self::filled) initialised bytes from
/// [`start`](Self::start) on stay where they are, and nobody writes to them.
pub unsafe trait Buffer: 'static {
    /// Where the bytes begin.
    fn start(&self) -> *const u8;

    /// How many are initialised.
    fn filled(&self) -> usize;

    /// A part of it, as a buffer of its own. An end beyond what is there is no end.
    ///
    /// ```
    /// use evenkeel::io::Buffer;
    ///
    /// let part = vec![1, 2, 3, 4].slice(1..3);
    /// assert_eq!(&part[..], [2, 3]);
    /// assert_eq!(part.into_inner(), [1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// If the start is after the end, or after the initialised bytes.
    fn slice(self, range: impl RangeBounds<usize>) -> Slice<Self>
    where
        Self: Sized,
    {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => usize::MAX,
        };
        assert!(start <= end, "a slice starts before its end");
        assert!(start <= self.filled(), "a slice starts within the initialised bytes");
        Slice { buffer: self, start, end }
    }
}

/// A buffer that can be read into.
///
/// # Safety
/// While the value is neither moved nor touched, [`capacity`](Self::capacity) bytes from
/// [`start_mut`](Self::start_mut) on stay allocated where they are and are nobody else's. The
/// initialised ones come first.
pub unsafe trait BufferMut: Buffer {
    /// Where the bytes begin.
    fn start_mut(&mut self) -> *mut u8;

    /// How many bytes there is room for, the initialised ones included.
    fn capacity(&self) -> usize;

    /// The first `count` bytes are initialised, at least. The length grows to that, and never
    /// shrinks.
    ///
    /// # Safety
    /// They are, and there are so many.
    unsafe fn set_filled(&mut self, count: usize);
}

/// Its initialised bytes are written; it is read into from its start up to its capacity, and its
/// length grows to cover what was read: make it with `Vec::with_capacity`.
// SAFETY: the heap's bytes stay where they are.
unsafe impl Buffer for Vec<u8> {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; a vector has its spare capacity behind its bytes.
unsafe impl BufferMut for Vec<u8> {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }

    unsafe fn set_filled(&mut self, count: usize) {
        if count > self.len() {
            // SAFETY: passed on to the caller.
            unsafe { self.set_len(count) };
        }
    }
}

// SAFETY: the heap's bytes stay where they are.
unsafe impl Buffer for Box<[u8]> {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: as above, all of them initialised.
unsafe impl BufferMut for Box<[u8]> {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        (**self).len()
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// SAFETY: the heap's bytes stay where they are.
unsafe impl<const N: usize> Buffer for Box<[u8; N]> {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        N
    }
}

// SAFETY: as above, all of them initialised.
unsafe impl<const N: usize> BufferMut for Box<[u8; N]> {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        N
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// SAFETY: they are in the value itself, which is not moved.
unsafe impl<const N: usize> Buffer for [u8; N] {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        N
    }
}

// SAFETY: as above, all of them initialised.
unsafe impl<const N: usize> BufferMut for [u8; N] {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        N
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// SAFETY: borrowed for ever, by this value alone.
unsafe impl Buffer for &'static mut [u8] {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: as above, all of them initialised.
unsafe impl BufferMut for &'static mut [u8] {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        (**self).len()
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// SAFETY: borrowed for ever, by this value alone.
unsafe impl<const N: usize> Buffer for &'static mut [u8; N] {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        N
    }
}

// SAFETY: as above, all of them initialised.
unsafe impl<const N: usize> BufferMut for &'static mut [u8; N] {
    fn start_mut(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }

    fn capacity(&self) -> usize {
        N
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

// SAFETY: borrowed for ever, and nobody writes to what is shared.
unsafe impl Buffer for &'static [u8] {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: borrowed for ever, and nobody writes to what is shared.
unsafe impl<const N: usize> Buffer for &'static [u8; N] {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        N
    }
}

// SAFETY: borrowed for ever, and nobody writes to what is shared.
unsafe impl Buffer for &'static str {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: the heap's bytes stay where they are.
unsafe impl Buffer for String {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        self.len()
    }
}

/// What was received can be sent on.
// SAFETY: the pool's bytes stay where they are, and are this piece's alone.
unsafe impl Buffer for Received {
    fn start(&self) -> *const u8 {
        self.as_ptr()
    }

    fn filled(&self) -> usize {
        (**self).len()
    }
}

/// A part of a buffer, made by [`Buffer::slice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice<B> {
    buffer: B,
    start: usize,
    /// May lie beyond the buffer.
    end: usize,
}

impl<B> Slice<B> {
    /// The whole buffer again.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    /// The whole buffer.
    pub fn get_ref(&self) -> &B {
        &self.buffer
    }
}

impl<B: Buffer> core::ops::Deref for Slice<B> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many are initialised, by the buffer's promise and that of `start` and `filled`.
        unsafe { core::slice::from_raw_parts(Buffer::start(self), Buffer::filled(self)) }
    }
}

// SAFETY: it starts within the initialised bytes of its buffer, which stay where they are.
unsafe impl<B: Buffer> Buffer for Slice<B> {
    fn start(&self) -> *const u8 {
        // SAFETY: the start is at most the number of initialised bytes, which never shrinks.
        unsafe { self.buffer.start().add(self.start) }
    }

    fn filled(&self) -> usize {
        self.buffer.filled().min(self.end) - self.start
    }
}

// SAFETY: as above.
unsafe impl<B: BufferMut> BufferMut for Slice<B> {
    fn start_mut(&mut self) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.buffer.start_mut().add(self.start) }
    }

    fn capacity(&self) -> usize {
        self.buffer.capacity().min(self.end) - self.start
    }

    unsafe fn set_filled(&mut self, count: usize) {
        // SAFETY: what is before the start is initialised, the rest is the caller's.
        unsafe { self.buffer.set_filled(self.start + count) };
    }
}

#[cfg(doc)]
use super::HELD_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_grows_to_what_was_read_and_never_shrinks() {
        let mut vector = Vec::with_capacity(8);
        assert_eq!((Buffer::filled(&vector), BufferMut::capacity(&vector)), (0, 8));
        vector.spare_capacity_mut()[..3].fill(core::mem::MaybeUninit::new(7));
        // SAFETY: three were written just now.
        unsafe { vector.set_filled(3) };
        assert_eq!(vector, [7, 7, 7]);
        // SAFETY: as above.
        unsafe { vector.set_filled(1) };
        assert_eq!(vector.len(), 3);
    }

    #[test]
    fn a_slice_keeps_to_its_bounds() {
        let mut vector = Vec::with_capacity(8);
        vector.extend([1, 2, 3, 4]);
        let mut part = vector.slice(2..6);
        assert_eq!((&part[..], part.capacity()), (&[3, 4][..], 4));
        // SAFETY: within what is initialised.
        unsafe { part.set_filled(2) };
        assert_eq!(part.into_inner(), [1, 2, 3, 4]);

        let open = [1_u8, 2, 3].slice(1..);
        assert_eq!((Buffer::filled(&open), open.capacity()), (2, 2));
        assert_eq!(open.slice(1..=1)[..], [3]);
        let empty = Vec::new().slice(..);
        assert_eq!(Buffer::filled(&empty), 0);
    }

    #[test]
    #[should_panic(expected = "starts within the initialised bytes")]
    fn a_slice_may_not_leave_a_hole() {
        let _ = Vec::with_capacity(8).slice(1..);
    }

    #[test]
    #[should_panic(expected = "starts before its end")]
    #[allow(clippy::reversed_empty_ranges)]
    fn a_slice_is_not_reversed() {
        let _ = vec![0; 8].slice(3..1);
    }
}
