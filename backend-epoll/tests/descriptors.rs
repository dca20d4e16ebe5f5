//! Cancels, and descriptors that are closed, duplicated and used again.
#![forbid(unsafe_code)]

#[allow(dead_code)] // each file uses a part
mod common;

use std::os::fd::AsRawFd;

use common::*;
use evenkeel::io::Interest::{Readable, Writable};
use evenkeel::{Reactor, Readiness, Token, Wait};

#[test]
fn a_cancelled_operation_ends_with_ecanceled() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    reactor.cancel(token(0));
    assert_eq!(reactor.readiness(), Readiness::Ready);
    signal(&event);
    assert_eq!(poll(&mut reactor, Wait::Forever), [(0, -ECANCELED)]);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn an_unknown_or_ended_token_is_ignored() {
    let mut reactor = reactor();
    let event = event(0);
    reactor.cancel(token(0));
    watch(&mut reactor, 0, &event, Readable);
    reactor.cancel(Token::new(0, 2));
    reactor.cancel(Token::new(70_000, 1));
    assert_eq!(look(&mut reactor), []);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    reactor.cancel(token(0));
    assert_eq!(look(&mut reactor), []);
}

#[test]
fn a_second_cancel_changes_nothing() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    watch(&mut reactor, 1, &event, Readable);
    reactor.cancel(token(0));
    reactor.cancel(token(0));
    assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);
    signal(&event);
    assert_eq!(look(&mut reactor), [(1, POLLIN)]);
}

#[test]
fn an_operation_that_has_ended_can_not_be_cancelled_before_it_is_reported() {
    let mut reactor = reactor();
    let event = event(0);
    // Forty end with one event, of which a poll reports thirty-two.
    for index in 0..40 {
        watch(&mut reactor, index, &event, Readable);
    }
    signal(&event);
    assert_eq!(look(&mut reactor).len(), 32);
    reactor.cancel(token(35));
    // The next one in line is not mistaken for it.
    watch(&mut reactor, 0, &event, Writable);
    reactor.cancel(token(36));
    let found = look(&mut reactor);
    assert_eq!(found.len(), 9);
    assert!(
        found.iter().all(|&(index, result)| result == if index == 0 { POLLOUT } else { POLLIN })
    );
}

#[test]
fn a_cancel_leaves_the_others_of_the_descriptor_waiting() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    watch(&mut reactor, 1, &event, Readable);
    watch(&mut reactor, 2, &event, Readable);
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN), (2, POLLIN)]);
}

#[test]
fn a_cancelled_writer_leaves_the_reader_waiting() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    watch(&mut reactor, 1, &event, Writable);
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [(1, -ECANCELED)], "it was ready, but cancelled first");
    assert_eq!(look(&mut reactor), []);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
}

#[test]
fn after_a_cancel_the_same_descriptor_can_be_waited_for_again() {
    let mut reactor = reactor();
    let event = event(0);
    for _ in 0..3 {
        watch(&mut reactor, 0, &event, Readable);
        reactor.cancel(token(0));
        assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);
    }
    watch(&mut reactor, 0, &event, Readable);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
}

#[test]
fn the_next_owner_of_a_number_is_watched() {
    let mut reactor = reactor();
    for _ in 0..3 {
        let event = event(0);
        let number = at(700, &event);
        drop(event);
        watch(&mut reactor, 0, &number, Readable);
        assert_eq!(look(&mut reactor), []);
        signal(&number);
        assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    }
}

#[test]
fn a_stale_event_does_not_reach_the_next_owner_of_the_number() {
    let mut reactor = reactor();
    let old = event(0);
    let number = at(710, &old);
    watch(&mut reactor, 0, &number, Readable);
    // Closed before it is cancelled: `old` keeps the registration alive and out of reach, armed.
    drop(number);
    reactor.cancel(token(0));
    assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);

    let new = event(0);
    let number = at(710, &new);
    watch(&mut reactor, 1, &number, Readable);
    signal(&old);
    assert_eq!(look(&mut reactor), [], "the event of the old one");
    signal(&new);
    assert_eq!(look(&mut reactor), [(1, POLLIN)]);
}

#[test]
fn a_stale_event_that_is_waiting_to_be_fetched_does_not_reach_the_next_operation() {
    let mut reactor = reactor();
    let event = event(1);
    watch(&mut reactor, 0, &event, Readable); // its event is there, and not fetched
    reactor.cancel(token(0));
    rustix::io::read(&event, &mut [0; 8]).expect("it has a count");
    watch(&mut reactor, 1, &event, Readable);
    assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);
    assert_eq!(look(&mut reactor), []);
}

#[test]
fn who_waits_for_a_closed_descriptor_ends_when_its_number_is_used_again() {
    let mut reactor = reactor();
    let old = event(0);
    let number = at(720, &old);
    watch(&mut reactor, 0, &number, Readable);
    watch(&mut reactor, 1, &number, Writable);
    drop(number);
    let new = event(0);
    let number = at(720, &new);
    watch(&mut reactor, 2, &number, Readable);
    assert_eq!(look(&mut reactor), [(0, -EBADF), (1, -EBADF)]);
    signal(&old);
    assert_eq!(look(&mut reactor), [], "the event of the old one");
    signal(&new);
    assert_eq!(look(&mut reactor), [(2, POLLIN)]);
}

#[test]
fn who_waits_for_a_closed_descriptor_ends_when_a_file_takes_its_number() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(730, &event);
    watch(&mut reactor, 0, &number, Readable);
    drop(number);
    let file = std::fs::File::open("/dev/null").expect("it can be opened").into();
    let number = at(730, &file);
    watch(&mut reactor, 1, &number, Readable);
    assert_eq!(look(&mut reactor), [(0, -EBADF), (1, POLLIN)]);
}

#[test]
fn one_who_still_waits_after_an_event_ends_if_the_descriptor_was_closed() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(740, &event);
    watch(&mut reactor, 0, &number, Readable);
    watch(&mut reactor, 1, &number, Writable);
    drop(number);
    assert_eq!(look(&mut reactor), [(1, POLLOUT), (0, -EBADF)], "it can't be armed again");
}

#[test]
fn a_descriptor_that_comes_back_to_its_number_is_watched() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(750, &event);
    watch(&mut reactor, 0, &number, Readable);
    drop(number);
    reactor.cancel(token(0)); // the kernel keeps the registration: EEXIST for the next one
    let number = at(750, &event);
    watch(&mut reactor, 1, &number, Readable);
    assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);
    signal(&event);
    assert_eq!(look(&mut reactor), [(1, POLLIN)]);
}

#[test]
fn two_numbers_of_one_description_are_two_registrations() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(760, &event);
    watch(&mut reactor, 0, &event, Readable);
    watch(&mut reactor, 1, &number, Readable);
    reactor.cancel(token(0));
    assert_eq!(look(&mut reactor), [(0, -ECANCELED)]);
    signal(&event);
    assert_eq!(look(&mut reactor), [(1, POLLIN)]);
}

#[test]
fn a_duplicate_that_outlives_its_number_ends_no_wait() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(770, &event);
    watch(&mut reactor, 0, &number, Readable);
    signal(&event);
    assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    drop(number);
    let deadline = after(std::time::Duration::from_millis(5));
    signal(&event);
    assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
    assert!(now() >= deadline);
}

#[test]
fn the_largest_index_and_number_are_taken() {
    let mut reactor = reactor();
    let event = event(1);
    let number = at(1_000, &event);
    let last = Token::new(1 << 20, 0x7fff_ffff);
    let operation = evenkeel::io::Operation::Poll { fd: number.as_raw_fd(), interest: Readable };
    reactor.submit(last, operation).expect("there is room");
    assert_eq!(look(&mut reactor), [(1 << 20, POLLIN)]);
}
