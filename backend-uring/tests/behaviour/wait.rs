use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use evenkeel::{Clock, Completion, Instant, MonotonicClock, Reactor, Wait};
use evenkeel_uring::UringReactor;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{IN, arm, child, event, in_each_mode, is_child, poll, raise, readable, token};

#[test]
fn a_deadline_is_not_early() {
    in_each_mode(|mut reactor| {
        let clock = MonotonicClock::new();
        for micros in [1, 10, 100, 1_000, 10_000] {
            let deadline = clock.now() + Duration::from_micros(micros);
            assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
            assert!(clock.now() >= deadline, "{micros} µs");
        }
    });
}

#[test]
fn a_deadline_that_has_passed_is_no_wait() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        assert_eq!(poll(&mut reactor, Wait::Until(Instant::ZERO)), []);
        raise(&event);
        // Nothing is found without a look; the deadline may be over before the look is.
        let found = loop {
            let found = poll(&mut reactor, Wait::Until(Instant::ZERO));
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found, [Completion { token: token(1), result: IN }]);
    });
}

#[test]
fn an_event_ends_a_wait_long_before_its_deadline() {
    in_each_mode(|mut reactor| {
        for deadline in [
            MonotonicClock::new().now() + Duration::from_hours(1),
            Instant::from_nanos(u64::MAX / 2),
            Instant::from_nanos(u64::MAX - 1),
            Instant::FAR_FUTURE,
        ] {
            let event = event();
            arm(&mut reactor, token(1), readable(&event));
            let thread = thread::spawn(move || raise(&event));
            assert_eq!(
                poll(&mut reactor, Wait::Until(deadline)),
                [Completion { token: token(1), result: IN }]
            );
            thread.join().unwrap();
        }
    });
}

#[test]
fn operations_are_armed_by_the_wait_itself() {
    in_each_mode(|mut reactor| {
        let event = event();
        reactor.submit(token(1), readable(&event)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| raise(&event));
            let found = poll(&mut reactor, Wait::Forever);
            assert_eq!(found, [Completion { token: token(1), result: IN }]);
        });
    });
}

/// Neither do times near the end of the kernel's clock, 292 years after its start.
#[test]
fn a_wait_costs_no_time_of_the_processor() {
    const WAIT: Duration = Duration::from_millis(100);
    fn used() -> Duration {
        let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(used).unwrap()
    }
    in_each_mode(|mut reactor| {
        poll(&mut reactor, Wait::Never);
        let now = MonotonicClock::new().now();
        for wait in [
            Wait::Forever,
            Wait::Until(now + Duration::from_hours(1)),
            Wait::Until(Instant::from_nanos(u64::MAX / 2 - 1)),
            Wait::Until(Instant::from_nanos(u64::MAX / 2)),
            Wait::Until(Instant::from_nanos(u64::MAX - 1)),
        ] {
            let notifier = reactor.notifier();
            let thread = thread::spawn(move || {
                thread::sleep(WAIT);
                notifier.wake();
            });
            let before = used();
            assert_eq!(poll(&mut reactor, wait), []);
            let used = used().saturating_sub(before);
            assert!(used < WAIT / 4, "{used:?} for {wait:?}");
            thread.join().unwrap();
        }
    });
}

/// A stop and a continuation interrupt a wait, with no handler involved.
#[test]
fn an_interrupted_wait_goes_on_with_the_time_that_is_left() {
    const WAIT: Duration = Duration::from_millis(300);
    let clock = MonotonicClock::new();
    if is_child() {
        let mut reactor = UringReactor::new().unwrap();
        println!("\nwaits");
        let start = clock.now();
        assert_eq!(poll(&mut reactor, Wait::Until(start + WAIT)), []);
        let took = clock.now() - start;
        assert!(took >= WAIT, "it ended early, after {took:?}");
        return;
    }
    let mut child = child("wait::an_interrupted_wait_goes_on_with_the_time_that_is_left");
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let (said, heard) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let reader = thread::spawn(move || {
        for line in lines {
            let _ = said.send(line.unwrap());
        }
    });
    while heard.recv_timeout(Duration::from_mins(1)).expect("the child starts") != "waits" {}

    let pid = Pid::from_child(&child);
    let deadline = clock.now() + 20 * WAIT;
    let mut interruptions = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if clock.now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it has not ended after {interruptions} interruptions and 20 times the wait");
        }
        // Much more often than once in the time that it waits.
        thread::sleep(WAIT / 30);
        kill_process(pid, Signal::STOP).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        interruptions += 1;
    };
    reader.join().unwrap();
    assert!(status.success(), "{status}");
    assert!(interruptions > 0);
}
