//! In steady state nothing is allocated.

#[allow(dead_code)] // each file uses a part
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsRawFd;

use common::*;
use evenkeel::io::Interest::{Readable, Writable};
use evenkeel::io::Operation;
use evenkeel::{Completions, Reactor, Wait};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the thread allocates.
struct Counting;

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn operations_wakes_and_waits_allocate_nothing() {
    let mut reactor = reactor();
    let events: Vec<_> = (0..100).map(|_| event(1)).collect();
    let notifier = reactor.notifier();
    let mut found = Completions::new();
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        for (index, event) in (0..).zip(&events) {
            let operation = Operation::Poll { fd: event.as_raw_fd(), interest: Readable };
            reactor.submit(token(index), operation).expect("there is room");
            let operation = Operation::Poll { fd: event.as_raw_fd(), interest: Writable };
            reactor.submit(token(100 + index), operation).expect("there is room");
        }
        for index in 0..50 {
            reactor.cancel(token(index));
        }
        notifier.wake_by_ref();
        let mut ended = 0;
        while ended < 200 {
            found.clear();
            let deadline = after(std::time::Duration::from_micros(100));
            reactor.poll(Wait::Until(deadline), &mut found).expect("the wait works");
            ended += found.as_slice().len();
        }
        reactor
            .poll(Wait::Until(after(std::time::Duration::from_micros(100))), &mut found)
            .expect("the wait works");
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
