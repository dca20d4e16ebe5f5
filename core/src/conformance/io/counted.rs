//! A buffer that is counted.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;

use crate::io::{Buffer, BufferMut};

/// How many of the buffers are there.
#[derive(Clone, Default)]
pub(super) struct Ledger(Rc<Cell<usize>>);

impl Ledger {
    pub(super) fn buffer(&self, bytes: Vec<u8>) -> Counted {
        self.0.set(self.0.get() + 1);
        Counted { bytes, ledger: self.clone() }
    }

    pub(super) fn alive(&self) -> usize {
        self.0.get()
    }
}

/// One of them.
pub(super) struct Counted {
    pub(super) bytes: Vec<u8>,
    ledger: Ledger,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let left = self.ledger.0.get().checked_sub(1);
        self.ledger.0.set(left.expect("a buffer is dropped once"));
    }
}

// SAFETY: as for the vector.
unsafe impl Buffer for Counted {
    fn start(&self) -> *const u8 {
        self.bytes.start()
    }

    fn filled(&self) -> usize {
        self.bytes.filled()
    }
}

// SAFETY: as for the vector.
unsafe impl BufferMut for Counted {
    fn start_mut(&mut self) -> *mut u8 {
        self.bytes.start_mut()
    }

    fn capacity(&self) -> usize {
        BufferMut::capacity(&self.bytes)
    }

    unsafe fn set_filled(&mut self, count: usize) {
        // SAFETY: passed on to the caller.
        unsafe { self.bytes.set_filled(count) };
    }
}
