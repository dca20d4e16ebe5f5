use std::thread;

use evenkeel::{Completion, Reactor, Readiness, Wait};

use crate::support::{
    IN, arm, drain, event, in_each_mode, in_each_mode_tiny, poll, raise, readable,
    spin_until_ready, token,
};

#[test]
fn a_wake_from_another_thread_ends_an_endless_wait() {
    in_each_mode(|mut reactor| {
        for _ in 0..100 {
            let notifier = reactor.notifier();
            let thread = thread::spawn(move || notifier.wake());
            assert_eq!(poll(&mut reactor, Wait::Forever), []);
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_wake_before_the_first_wait_ends_it() {
    in_each_mode(|mut reactor| {
        reactor.notifier().wake_by_ref();
        assert_eq!(poll(&mut reactor, Wait::Forever), []);
    });
}

#[test]
fn a_wake_before_a_later_wait_ends_it() {
    in_each_mode(|mut reactor| {
        let notifier = reactor.notifier();
        for _ in 0..100 {
            notifier.wake_by_ref();
            assert_eq!(poll(&mut reactor, Wait::Forever), []);
        }
    });
}

#[test]
fn a_wake_ends_one_wait_and_no_more() {
    in_each_mode(|mut reactor| {
        let event = event();
        let notifier = reactor.notifier();
        notifier.wake_by_ref();
        poll(&mut reactor, Wait::Forever);
        arm(&mut reactor, token(1), readable(&event));
        notifier.wake_by_ref();
        assert_eq!(poll(&mut reactor, Wait::Forever), []);
        assert_eq!(drain(&mut reactor), []);
        let thread = thread::spawn(move || raise(&event));
        // It returns for the event alone.
        assert_eq!(poll(&mut reactor, Wait::Forever), [Completion { token: token(1), result: IN }]);
        thread.join().unwrap();
    });
}

#[test]
fn a_wake_that_a_poll_without_a_wait_met_ends_the_next_wait() {
    in_each_mode(|mut reactor| {
        let notifier = reactor.notifier();
        // The watch is up.
        notifier.wake_by_ref();
        assert_eq!(poll(&mut reactor, Wait::Forever), []);
        for _ in 0..3 {
            notifier.wake_by_ref();
            spin_until_ready(&mut reactor);
            assert_eq!(drain(&mut reactor), []);
            assert_eq!(poll(&mut reactor, Wait::Forever), []);
        }
    });
}

#[test]
fn a_thousand_wakes_fill_nothing_and_are_soon_forgotten() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        let notifier = reactor.notifier();
        arm(&mut reactor, token(1), readable(&event));
        for _ in 0..3 {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| (0..500).for_each(|_| notifier.wake_by_ref()));
                }
            });
            spin_until_ready(&mut reactor);
            let mut polls = 0;
            while reactor.readiness() == Readiness::Ready {
                assert_eq!(poll(&mut reactor, Wait::Never), []);
                polls += 1;
                assert!(polls < 1000, "still ready after {polls} polls");
            }
            // As alert as before.
            notifier.wake_by_ref();
            assert_eq!(poll(&mut reactor, Wait::Forever), []);
            drain(&mut reactor);
        }
        raise(&event);
        assert_eq!(poll(&mut reactor, Wait::Forever), [Completion { token: token(1), result: IN }]);
    });
}

/// A multishot request ends when the completion queue has no room for what it tells.
#[test]
fn wakes_are_still_heard_after_the_completion_queue_overflowed() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        let notifier = reactor.notifier();
        poll(&mut reactor, Wait::Never);
        for round in 0..20 {
            for index in 0..50 {
                arm(&mut reactor, token(index), readable(&event));
            }
            raise(&event);
            notifier.wake_by_ref();
            let mut count = 0;
            while count < 50 {
                count += poll(&mut reactor, Wait::Forever).len();
            }
            drain(&mut reactor);
            rustix::io::read(&event, &mut [0; 8]).unwrap();
            let notifier = notifier.clone();
            let thread = thread::spawn(move || notifier.wake());
            assert_eq!(poll(&mut reactor, Wait::Forever), [], "round {round}");
            thread.join().unwrap();
            drain(&mut reactor);
        }
    });
}

#[test]
fn a_waker_outlives_the_reactor() {
    in_each_mode(|mut reactor| {
        let notifier = reactor.notifier();
        poll(&mut reactor, Wait::Never);
        drop(reactor);
        let again = notifier.clone();
        notifier.wake();
        thread::spawn(move || again.wake()).join().unwrap();
    });
}
