//! What operations end with.
#![forbid(unsafe_code)]

#[allow(dead_code)] // each file uses a part
mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use common::*;
use evenkeel::io::Interest::{Readable, Writable};
use evenkeel::io::Operation;
use evenkeel::{Completions, POLL_BATCH, Reactor, Readiness, Token, Wait};
use evenkeel_epoll::Looks;

#[test]
fn an_event_is_reported_once() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 3, &event, Readable);
    assert_eq!(look(&mut reactor), []);
    signal(&event);
    assert_eq!(look(&mut reactor), [(3, POLLIN)]);
    signal(&event);
    assert_eq!(look(&mut reactor), [], "the operation has ended");
}

#[test]
fn what_is_ready_already_is_reported() {
    let mut reactor = reactor();
    let event = event(1);
    for _ in 0..3 {
        watch(&mut reactor, 0, &event, Readable);
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLIN)]);
        watch(&mut reactor, 0, &event, Writable);
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLOUT)]);
    }
}

#[test]
fn a_second_operation_reports_what_was_left_unread() {
    let mut reactor = reactor();
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    watch(&mut reactor, 0, &ours, Readable);
    theirs.write_all(b"two").expect("there is room");
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    (&ours).read_exact(&mut [0; 1]).expect("it is there");
    watch(&mut reactor, 1, &ours, Readable);
    assert_eq!(look(&mut reactor), [(1, POLLIN)]);
    (&ours).read_exact(&mut [0; 2]).expect("it is there");
    watch(&mut reactor, 2, &ours, Readable);
    assert_eq!(look(&mut reactor), []);
}

#[test]
fn two_who_wait_for_the_same_both_get_it() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    watch(&mut reactor, 1, &event, Readable);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN), (1, POLLIN)]);
}

#[test]
fn a_reader_and_a_writer_of_one_descriptor_end_each_at_its_time() {
    let mut reactor = reactor();
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    watch(&mut reactor, 0, &ours, Readable);
    watch(&mut reactor, 1, &ours, Writable);
    assert_eq!(look(&mut reactor), [(1, POLLOUT)], "there is room to write");
    assert_eq!(look(&mut reactor), []);
    theirs.write_all(b"x").expect("there is room");
    assert_eq!(look(&mut reactor), [(0, POLLIN)], "the reader still waited");
}

#[test]
fn a_writer_joins_a_reader_who_goes_on_waiting() {
    let mut reactor = reactor();
    let event = event(0);
    for round in 0..3 {
        if round == 0 {
            watch(&mut reactor, 0, &event, Readable);
        }
        watch(&mut reactor, 1, &event, Writable);
        assert_eq!(look(&mut reactor), [(1, POLLOUT)]);
    }
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
}

#[test]
fn a_hang_up_ends_the_wait_of_both_directions() {
    let mut reactor = reactor();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    fill(&ours);
    watch(&mut reactor, 0, &ours, Readable);
    watch(&mut reactor, 1, &ours, Writable);
    assert_eq!(look(&mut reactor), []);
    drop(theirs);
    let found = look(&mut reactor);
    assert_eq!(found.len(), 2);
    for (index, result) in found {
        assert_eq!(result & POLLHUP, POLLHUP, "operation {index}");
        let asked = if index == 0 { POLLIN } else { POLLOUT };
        assert_eq!(
            result & !(asked | POLLERR | POLLHUP | POLLRDHUP),
            0,
            "nothing that was not asked for"
        );
    }
}

#[test]
fn a_half_close_ends_the_wait_of_both_directions() {
    let mut reactor = reactor();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    fill(&ours);
    watch(&mut reactor, 0, &ours, Readable);
    watch(&mut reactor, 1, &ours, Writable);
    assert_eq!(look(&mut reactor), []);
    theirs.shutdown(std::net::Shutdown::Write).expect("it is connected");
    assert_eq!(look(&mut reactor), [(0, POLLIN | POLLRDHUP), (1, POLLRDHUP)]);
}

#[test]
fn an_error_ends_the_wait_of_a_writer() {
    let mut reactor = reactor();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("it is a pipe");
    while (&writer).write(&[0; 4096]).is_ok() {}
    watch(&mut reactor, 0, &writer, Writable);
    assert_eq!(look(&mut reactor), [], "the pipe is full");
    drop(reader);
    assert_eq!(look(&mut reactor)[0].1 & POLLERR, POLLERR);
}

#[test]
fn a_hang_up_without_a_reader_to_tell_is_told_the_next_one() {
    let mut reactor = reactor();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    watch(&mut reactor, 0, &ours, Writable);
    assert_eq!(look(&mut reactor), [(0, POLLOUT)]);
    drop(theirs);
    assert_eq!(look(&mut reactor), []);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    watch(&mut reactor, 1, &ours, Readable);
    assert_eq!(look(&mut reactor), [(1, POLLIN | POLLHUP | POLLRDHUP)]);
}

#[test]
fn what_never_blocks_is_ready_at_once() {
    let mut reactor = reactor();
    for path in ["/proc/self/exe", "/dev/null"] {
        let file = File::open(path).expect("it can be opened");
        watch(&mut reactor, 0, &file, Readable);
        watch(&mut reactor, 1, &file, Writable);
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLIN), (1, POLLOUT)]);
        assert_eq!(reactor.readiness(), Readiness::Quiet);
    }
}

#[test]
fn a_number_that_is_not_open_ends_in_ebadf() {
    let mut reactor = reactor();
    for number in [-1, RawFd::MIN, RawFd::MAX, 900_000] {
        submit(&mut reactor, 0, number, Readable);
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, -EBADF)], "{number}");
    }
}

#[test]
fn a_descriptor_that_was_closed_between_two_operations_ends_in_ebadf() {
    let mut reactor = reactor();
    let event = event(1);
    let number = at(700, &event);
    watch(&mut reactor, 0, &number, Readable);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    drop(number);
    submit(&mut reactor, 0, 700, Readable);
    assert_eq!(look(&mut reactor), [(0, -EBADF)]);
}

#[test]
fn more_events_than_a_batch_are_delivered_over_several_polls() {
    let mut reactor = reactor();
    let events: Vec<_> = (0..3 * POLL_BATCH + 5).map(|_| event(1)).collect();
    for (index, event) in (0..).zip(&events) {
        watch(&mut reactor, index, event, Readable);
    }
    let mut seen = Vec::new();
    for batch in [POLL_BATCH, POLL_BATCH, POLL_BATCH, 5] {
        assert_ne!(reactor.readiness(), Readiness::Quiet);
        let found = poll(&mut reactor, Wait::Forever);
        assert_eq!(found.len(), batch);
        seen.extend(found);
    }
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    seen.sort_unstable();
    assert_eq!(seen, (0..events.len()).map(|index| (index, POLLIN)).collect::<Vec<_>>());
}

#[test]
fn more_waiters_of_one_descriptor_than_a_batch_are_delivered_in_their_order() {
    let mut reactor = reactor();
    let event = event(0);
    for index in 0..1_000 {
        watch(&mut reactor, index, &event, Readable);
    }
    signal(&event);
    let mut seen = look(&mut reactor);
    while reactor.readiness() == Readiness::Ready {
        let found = poll(&mut reactor, Wait::Forever);
        assert!(found.len() <= POLL_BATCH);
        seen.extend(found);
    }
    assert_eq!(seen, (0..1_000).map(|index| (index, POLLIN)).collect::<Vec<_>>());
}

#[test]
fn a_poll_fills_no_more_room_than_there_is() {
    let mut reactor = reactor();
    let mut found = Completions::new();
    for index in 0..3 {
        submit(&mut reactor, index, -1, Readable);
    }
    let other = evenkeel::Completion { token: token(99), result: 0 };
    while found.room() > 1 {
        found.push(other);
    }
    reactor.poll(Wait::Forever, &mut found).expect("the wait works");
    assert_eq!(found.room(), 0);
    reactor.poll(Wait::Forever, &mut found).expect("the wait works");
    assert_eq!(reactor.readiness(), Readiness::Ready);
    assert_eq!(look(&mut reactor), [(1, -EBADF), (2, -EBADF)]);
}

#[test]
fn operations_that_end_at_once_do_not_keep_an_event_from_being_seen() {
    let mut reactor = reactor();
    let event = event(1);
    watch(&mut reactor, 0, &event, Readable);
    let batch = u32::try_from(POLL_BATCH).expect("it is small");
    for round in 0.. {
        assert!(round < 3, "the event is seen however many others have ended");
        for index in 0..batch {
            submit(&mut reactor, 1 + round * batch + index, -1, Readable);
        }
        if look(&mut reactor).contains(&(0, POLLIN)) {
            break;
        }
    }
}

#[test]
fn readiness_is_unknown_only_while_operations_are_in_flight() {
    let mut reactor = without_memory();
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    assert_eq!(reactor.readiness(), Readiness::Unknown);
    signal(&event);
    assert_eq!(look(&mut reactor).len(), 1);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn from_memory_it_is_known() {
    let mut reactor = reactor();
    if reactor.looks() == Looks::BySystemCall {
        return;
    }
    let (event, other) = (event(0), event(0));
    watch(&mut reactor, 0, &event, Readable);
    for _ in 0..100 {
        watch(&mut reactor, 1, &other, Readable);
        assert_eq!(reactor.readiness(), Readiness::Quiet);
        assert_eq!(look(&mut reactor), [], "it does not even look");
        signal(&other);
        // Within microseconds.
        assert!((0..10_000_000).any(|_| reactor.readiness() == Readiness::Ready));
        assert_eq!(look(&mut reactor), [(1, POLLIN)]);
        rustix::io::read(&other, &mut [0; 8]).expect("it was raised");
    }
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn a_worker_that_only_waits_pays_nothing_for_it() {
    let mut reactor = reactor();
    let event = event(1);
    // The first wait can't know what the worker will do after it.
    for _ in 0..3 {
        watch(&mut reactor, 0, &event, Readable);
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLIN)]);
    }
    watch(&mut reactor, 0, &event, Readable);
    assert_eq!(reactor.readiness(), Readiness::Unknown);
    assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLIN)]);
    // Who looks has it again.
    watch(&mut reactor, 0, &event, Readable);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    if reactor.looks() == Looks::FromMemory {
        watch(&mut reactor, 0, &event, Readable);
        assert!((0..10_000_000).any(|_| reactor.readiness() == Readiness::Ready));
    }
}

#[test]
fn an_index_in_use_is_refused_with_the_operation() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 4, &event, Readable);
    let operation = Operation::Poll { fd: event.as_raw_fd(), interest: Writable };
    let refused = reactor.submit(Token::new(4, 2), operation).expect_err("it is in use");
    assert!(matches!(refused.operation, Operation::Poll { interest: Writable, .. }));
    assert_eq!(refused.error.kind(), std::io::ErrorKind::AlreadyExists);
    signal(&event);
    assert_eq!(look(&mut reactor), [(4, POLLIN)]);
}

/// Writes until there is no room.
fn fill(stream: &UnixStream) {
    stream.set_nonblocking(true).expect("it is a socket");
    while (&*stream).write(&[0; 4096]).is_ok() {}
}
