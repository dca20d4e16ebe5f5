//! In steady state nothing is allocated.

#[allow(dead_code)] // each file uses a part
mod common;
#[allow(dead_code)]
#[path = "common/lent.rs"]
mod lent;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use common::*;
use evenkeel::io::Interest::{Readable, Writable};
use evenkeel::io::{BufferPool, Operation, SyncExtent};
use evenkeel::{Completions, Reactor, Wait};
use evenkeel_epoll::EpollReactor;
use lent::*;

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

/// What is allocated while this is done over and over, after the first few times.
fn allocated_by(mut step: impl FnMut()) -> usize {
    for _ in 0..10 {
        step();
    }
    let before = ALLOCATIONS.get();
    for _ in 0..10 {
        step();
    }
    ALLOCATIONS.get() - before
}

fn end_all(reactor: &mut EpollReactor, count: usize) {
    let mut found = Completions::new();
    let mut ended = 0;
    while ended < count {
        found.clear();
        reactor.poll(in_time(), &mut found).expect("the wait works");
        assert!(!found.as_slice().is_empty(), "they end in time");
        ended += found.as_slice().len();
    }
}

#[test]
fn transfers_allocate_nothing() {
    let mut reactor = reactor();
    let pairs: Vec<_> = (0..20).map(|_| UnixStream::pair().expect("a pair")).collect();
    let mut bytes = [0; 20];
    let allocated = allocated_by(|| {
        for ((index, byte), (ours, _)) in (0..).zip(bytes.chunks_mut(1)).zip(&pairs) {
            start(&mut reactor, index, receive(ours, byte));
        }
        for (index, (_, theirs)) in (20..).zip(&pairs) {
            start(&mut reactor, index, send(theirs, b"x"));
        }
        end_all(&mut reactor, 40);
    });
    assert_eq!(allocated, 0);
}

#[test]
fn what_threads_do_allocates_nothing_for_the_worker() {
    let mut reactor = reactor();
    let path = std::env::temp_dir().join(format!("evenkeel-epoll-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("it can be made");
    std::fs::remove_file(path).expect("it is there");
    let fd = file.as_raw_fd();
    let allocated = allocated_by(|| {
        for index in 0..20 {
            start(&mut reactor, index, Operation::Sync { fd, extent: SyncExtent::Data });
        }
        for index in 15..20 {
            reactor.cancel(token(index));
        }
        end_all(&mut reactor, 20);
    });
    assert_eq!(allocated, 0);
}

#[test]
fn items_of_flows_allocate_nothing() {
    let mut reactor = reactor();
    let pool = BufferPool::new(4, 8);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let open = Operation::ReceiveMany { fd: ours.as_raw_fd(), pool: pool.clone() };
    start(&mut reactor, 0, open);
    let allocated = allocated_by(|| {
        let mut buffer = None;
        start(&mut reactor, 1, Operation::Next { flow: token(0), buffer: place(&mut buffer) });
        start(&mut reactor, 2, send(&theirs, b"x"));
        end_all(&mut reactor, 2);
        // SAFETY: it was filled for this test, which is done with it.
        unsafe { pool.give_back(buffer.expect("there was a piece")) };
    });
    assert_eq!(allocated, 0);
}
