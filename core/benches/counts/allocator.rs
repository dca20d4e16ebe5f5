//! An allocator that is the same everywhere: the system's would be counted too, and differs from
//! one version of the C library to the next.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

#[global_allocator]
static ALLOCATOR: Recycler = Recycler { freed: [const { Cell::new(ptr::null_mut()) }; CLASSES] };

/// Sizes up to 2^12 bytes are rounded up to a power of two, and what is freed of them is kept for
/// the next that asks.
const CLASSES: usize = 13;

struct Recycler {
    /// What was freed of each size. The first word of each points to the next.
    freed: [Cell<*mut u8>; CLASSES],
}

// SAFETY: the program has one thread.
unsafe impl Sync for Recycler {}

/// Which list serves it, if any does.
#[inline]
fn class(layout: Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(size_of::<*mut u8>()).next_power_of_two();
    let class = size.trailing_zeros() as usize;
    (class < CLASSES).then_some(class)
}

/// The first word of what was freed.
#[inline]
#[allow(clippy::cast_ptr_alignment)] // no class has less than a pointer's
fn next(freed: *mut u8) -> *mut *mut u8 {
    freed.cast()
}

// SAFETY: what is given out is the system's, as large and as aligned as a power of two that is no
// less than either is asked for, and was freed before if it was given out before.
unsafe impl GlobalAlloc for Recycler {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class(layout) else {
            // SAFETY: passed on to the caller.
            return unsafe { System.alloc(layout) };
        };
        let list = &self.freed[class];
        let first = list.get();
        if first.is_null() {
            let size = 1 << class;
            // SAFETY: a power of two, which is no more than 2^12, is a size and an alignment.
            return unsafe { System.alloc(Layout::from_size_align_unchecked(size, size)) };
        }
        // SAFETY: it is in the list, so `dealloc` has written its first word, and it is nobody's.
        list.set(unsafe { *next(first) });
        first
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(class) = class(layout) else {
            // SAFETY: passed on to the caller.
            return unsafe { System.dealloc(memory, layout) };
        };
        let list = &self.freed[class];
        // SAFETY: it has room and alignment for a pointer, and is nobody's any more.
        unsafe { *next(memory) = list.get() };
        list.set(memory);
    }
}
