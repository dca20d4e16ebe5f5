//! The notifier and the deadlines.
#![forbid(unsafe_code)]

#[allow(dead_code)] // each file uses a part
mod common;

use std::thread;
use std::time::Duration;

use common::*;
use evenkeel::io::Interest::Readable;
use evenkeel::{Instant, Reactor, Readiness, Wait};
use rustix::time::{ClockId, clock_gettime};

#[test]
fn a_wake_from_another_thread_ends_a_wait() {
    let mut reactor = reactor();
    let notifier = reactor.notifier();
    let waker = thread::spawn(move || notifier.wake());
    assert_eq!(poll(&mut reactor, Wait::Forever), []);
    waker.join().expect("it only wakes");
}

#[test]
fn an_event_from_another_thread_ends_a_wait() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    thread::scope(|scope| {
        scope.spawn(|| signal(&event));
        assert_eq!(poll(&mut reactor, Wait::Forever), [(0, POLLIN)]);
    });
}

#[test]
fn a_wake_before_the_wait_ends_it() {
    let mut reactor = reactor();
    reactor.notifier().wake_by_ref();
    assert_eq!(poll(&mut reactor, Wait::Forever), []);
    reactor.notifier().wake();
    assert_eq!(poll(&mut reactor, Wait::Until(Instant::FAR_FUTURE)), []);
}

#[test]
fn a_wake_is_not_used_up_by_a_look() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    reactor.notifier().wake();
    for _ in 0..3 {
        assert_eq!(look(&mut reactor), []);
    }
    assert_eq!(poll(&mut reactor, Wait::Forever), []);
}

#[test]
fn a_thousand_wakes_end_one_wait() {
    let mut reactor = reactor();
    let notifier = reactor.notifier();
    for _ in 0..1_000 {
        notifier.wake_by_ref();
    }
    assert_eq!(poll(&mut reactor, Wait::Forever), []);
    let deadline = after(Duration::from_millis(5));
    assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
    assert!(now() >= deadline, "no wake is left over");
}

#[test]
fn every_wake_ends_a_wait_though_the_eventfd_is_never_read() {
    let mut reactor = reactor();
    let notifier = reactor.notifier();
    for _ in 0..1_000 {
        notifier.wake_by_ref();
        poll(&mut reactor, Wait::Forever);
    }
}

#[test]
fn a_notifier_outlives_its_reactor() {
    let notifier = reactor().notifier();
    notifier.wake_by_ref();
    thread::spawn(move || notifier.wake()).join().expect("it only wakes");
}

#[test]
fn a_wake_does_not_change_readiness() {
    let mut reactor = reactor();
    reactor.notifier().wake();
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    poll(&mut reactor, Wait::Forever);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn known_completions_are_not_waited_for() {
    let mut reactor = reactor();
    submit(&mut reactor, 0, -1, Readable);
    assert_eq!(poll(&mut reactor, Wait::Forever), [(0, -EBADF)]);
    let event = event(0);
    watch(&mut reactor, 1, &event, Readable);
    submit(&mut reactor, 0, -1, Readable);
    assert_eq!(poll(&mut reactor, Wait::Until(Instant::FAR_FUTURE)), [(0, -EBADF)]);
}

#[test]
fn a_wait_never_ends_before_its_deadline() {
    let mut reactor = reactor();
    for micros in [0, 1, 50, 300, 999, 1_000, 1_001, 2_500] {
        for _ in 0..20 {
            let deadline = after(Duration::from_micros(micros));
            assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
            assert!(now() >= deadline, "{micros} µs");
        }
    }
}

#[test]
fn a_wait_for_a_deadline_sleeps() {
    let mut reactor = reactor();
    let before = clock_gettime(ClockId::ThreadCPUTime);
    for _ in 0..20 {
        poll(&mut reactor, Wait::Until(after(Duration::from_millis(10))));
    }
    let used = clock_gettime(ClockId::ThreadCPUTime) - before;
    assert!(used.tv_sec == 0 && used.tv_nsec < 50_000_000, "of 200 ms it ran for {used:?}");
}

#[test]
fn a_deadline_that_has_passed_is_a_look() {
    let mut reactor = reactor();
    let event = event(1);
    watch(&mut reactor, 0, &event, Readable);
    assert_eq!(poll(&mut reactor, Wait::Until(Instant::ZERO)), [(0, POLLIN)]);
    assert_eq!(poll(&mut reactor, Wait::Until(Instant::ZERO)), []);
}

#[test]
fn an_event_ends_a_wait_before_its_deadline() {
    let mut reactor = reactor();
    let event = event(0);
    watch(&mut reactor, 0, &event, Readable);
    thread::scope(|scope| {
        scope.spawn(|| signal(&event));
        let found = poll(&mut reactor, Wait::Until(Instant::FAR_FUTURE));
        assert_eq!(found, [(0, POLLIN)]);
    });
}

#[test]
fn the_timer_of_an_earlier_wait_does_not_end_a_later_one() {
    let mut reactor = reactor();
    let early = after(Duration::from_millis(3));
    reactor.notifier().wake();
    poll(&mut reactor, Wait::Until(early)); // ends by the wake; the timer stays set
    let late = after(Duration::from_millis(10));
    let notifier = reactor.notifier();
    let waker = thread::spawn(move || {
        while now() < late {
            thread::yield_now();
        }
        notifier.wake();
    });
    poll(&mut reactor, Wait::Forever);
    assert!(now() >= late, "it ended by the wake");
    waker.join().expect("it only wakes");
}

#[test]
fn the_same_deadline_can_be_waited_for_in_parts() {
    let mut reactor = reactor();
    let deadline = after(Duration::from_millis(10));
    for _ in 0..5 {
        reactor.notifier().wake();
        poll(&mut reactor, Wait::Until(deadline));
    }
    poll(&mut reactor, Wait::Until(deadline));
    assert!(now() >= deadline);
    let later = after(Duration::from_millis(3));
    poll(&mut reactor, Wait::Until(later));
    assert!(now() >= later);
}
