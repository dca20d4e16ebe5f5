//! Queues that are full, and a kernel that takes nothing.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use evenkeel::io::Operation;
use evenkeel::{Clock, Completion, Completions, MonotonicClock, Reactor, Readiness, Wait};
use evenkeel_uring::{Mode, UringReactor};
use rustix::io::Errno;

use crate::support::{
    CANCELED, Call, IN, TINY, arm, bounded, collect, drain, event, in_each_mode_tiny, poll, raise,
    readable, refuse, spin_until_ready, tiny, token,
};

#[test]
fn a_full_submission_queue_is_flushed_and_every_operation_counted() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        let mut found = Completions::new();
        for index in 0..1000 {
            reactor.submit(token(index), readable(&event)).unwrap();
        }
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, 1000);
        raise(&event);
        let mut indices: Vec<_> =
            collect(&mut reactor, 1000).iter().map(|it| it.token.index()).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn completions_beyond_the_queue_are_not_lost() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        for index in 0..2000 {
            reactor.submit(token(index), readable(&event)).unwrap();
        }
        drain(&mut reactor);
        raise(&event);
        spin_until_ready(&mut reactor);
        // Readiness alone must lead to every one of them.
        let mut seen = vec![0; 2000];
        for completion in drain(&mut reactor) {
            assert_eq!(completion.result, IN);
            seen[completion.token.index()] += 1;
        }
        assert!(seen.iter().all(|&count| count == 1));
    });
}

#[test]
fn completions_beyond_the_queue_do_not_keep_new_operations_out() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        raise(&event);
        // Each ends as it is armed.
        for index in 0..500 {
            reactor.submit(token(index), readable(&event)).unwrap();
        }
        let found = drain(&mut reactor);
        assert_eq!(found.len(), 500);
    });
}

const PAUSE: Duration = Duration::from_millis(1);

/// On a kernel that takes no six requests at once, as many as fill the queue. With the watch on the
/// notifier, which the first poll puts up, there are seven.
fn with_six_refused(error: Errno, test: fn(UringReactor)) {
    for mode in Mode::ALL {
        bounded(move || {
            let reactor = tiny(mode);
            refuse(&[Call::Enter], error, Some(TINY));
            test(reactor);
        });
    }
}

fn fill(reactor: &mut UringReactor, event: &OwnedFd) {
    for index in 0..TINY {
        reactor.submit(token(index), readable(event)).unwrap();
    }
}

#[test]
fn an_operation_without_a_place_comes_back() {
    for error in [Errno::AGAIN, Errno::BUSY] {
        with_six_refused(error, |mut reactor| {
            let event = event();
            fill(&mut reactor, &event);
            let refused = reactor.submit(token(99), readable(&event)).unwrap_err();
            let Operation::Poll { fd, .. } = refused.operation else { unreachable!("it was one") };
            assert_eq!(fd, event.as_raw_fd());
            assert_eq!(refused.error.kind(), ErrorKind::WouldBlock);
            let text = refused.error.to_string();
            assert!(text.contains("the submission queue is full"), "{text}");
            // The others are none the worse for it, and there is room again after a poll.
            let mut found = Completions::new();
            assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, TINY as usize);
            reactor.submit(token(99), readable(&event)).unwrap();
            raise(&event);
            assert_eq!(collect(&mut reactor, TINY as usize + 1).len(), TINY as usize + 1);
        });
    }
}

#[test]
fn cancels_without_a_place_are_kept_and_follow() {
    with_six_refused(Errno::AGAIN, |mut reactor| {
        let event = event();
        fill(&mut reactor, &event);
        // Three, twice each: a token is kept once.
        for index in [0, 1, 2, 0, 1, 2] {
            reactor.cancel(token(index));
        }
        let mut found = Completions::new();
        assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, TINY as usize);
        assert_eq!(reactor.readiness(), Readiness::Ready, "the cancels are queued now");
        let canceled = collect(&mut reactor, 3);
        assert!(canceled.iter().all(|it| it.result == CANCELED), "{canceled:?}");
        raise(&event);
        let rest = collect(&mut reactor, TINY as usize - 3);
        assert!(rest.iter().all(|it| it.result == IN), "{rest:?}");
    });
}

#[test]
fn a_kernel_that_takes_nothing_is_not_asked_in_a_busy_loop() {
    with_six_refused(Errno::AGAIN, |mut reactor| {
        let event = event();
        let clock = MonotonicClock::new();
        poll(&mut reactor, Wait::Until(clock.now() + PAUSE));
        fill(&mut reactor, &event);
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(poll(&mut reactor, Wait::Never), []);
        let start = clock.now();
        assert_eq!(poll(&mut reactor, Wait::Forever), [], "the wait ends early");
        assert!(clock.now() - start >= PAUSE, "but not at once");
        // Neither are the requests forgotten.
        assert_eq!((1..5000).find(|_| reactor.readiness() == Readiness::Ready), Some(1000));
    });
}

#[test]
fn what_has_ended_is_found_while_the_kernel_takes_nothing() {
    with_six_refused(Errno::BUSY, |mut reactor| {
        let (early, late) = (event(), event());
        arm(&mut reactor, token(100), readable(&early));
        fill(&mut reactor, &late);
        raise(&early);
        let found = loop {
            let found = poll(&mut reactor, Wait::Never);
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found, [Completion { token: token(100), result: IN }]);
    });
}
