use evenkeel::{Completion, Completions, Reactor, Wait};

use crate::support::{
    CANCELED, IN, arm, collect, drain, event, in_each_mode, in_each_mode_tiny, poll, raise,
    readable, token,
};

#[test]
fn an_armed_operation_ends_with_ecanceled() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        reactor.cancel(token(1));
        assert_eq!(
            poll(&mut reactor, Wait::Forever),
            [Completion { token: token(1), result: CANCELED }]
        );
        assert_eq!(drain(&mut reactor), []);
    });
}

#[test]
fn an_operation_that_was_never_armed_ends_with_ecanceled_too() {
    in_each_mode(|mut reactor| {
        let event = event();
        reactor.submit(token(1), readable(&event)).unwrap();
        reactor.cancel(token(1));
        let mut found = Completions::new();
        // The cancel does not count.
        assert_eq!(reactor.poll(Wait::Forever, &mut found).unwrap().armed, 1);
        assert_eq!(found.as_slice(), [Completion { token: token(1), result: CANCELED }]);
        assert_eq!(drain(&mut reactor), []);
    });
}

#[test]
fn an_unknown_token_is_ignored() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        reactor.cancel(token(2));
        reactor.cancel(evenkeel::Token::new(1, 2));
        assert_eq!(drain(&mut reactor), []);
        raise(&event);
        assert_eq!(collect(&mut reactor, 1), [Completion { token: token(1), result: IN }]);
    });
}

#[test]
fn a_cancel_that_comes_too_late_changes_nothing() {
    in_each_mode(|mut reactor| {
        let event = event();
        raise(&event);
        reactor.submit(token(1), readable(&event)).unwrap();
        assert_eq!(drain(&mut reactor).len(), 1);
        reactor.cancel(token(1));
        reactor.cancel(token(1));
        assert_eq!(drain(&mut reactor), []);
    });
}

#[test]
fn a_cancel_ends_a_wait_only_by_what_it_cancels() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        reactor.cancel(token(7));
        let thread = std::thread::spawn(move || raise(&event));
        // The kernel's answer to the cancel is an event, but none to report.
        assert_eq!(poll(&mut reactor, Wait::Forever), [Completion { token: token(1), result: IN }]);
        thread.join().unwrap();
    });
}

#[test]
fn more_cancels_than_the_queue_has_places_lose_none() {
    in_each_mode_tiny(|mut reactor| {
        let event = event();
        for index in 0..100 {
            arm(&mut reactor, token(index), readable(&event));
        }
        for index in 0..100 {
            reactor.cancel(token(index));
        }
        let found = collect(&mut reactor, 100);
        assert!(found.iter().all(|it| it.result == CANCELED));
        assert_eq!(drain(&mut reactor), []);
    });
}
