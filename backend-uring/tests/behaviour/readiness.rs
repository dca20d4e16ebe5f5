use std::thread;

use evenkeel::{Reactor, Readiness, Wait};

use crate::support::{
    IN, arm, drain, event, in_each_mode, poll, raise, readable, spin_until_ready, token,
};

#[test]
fn a_new_reactor_is_quiet_and_polls_nothing() {
    in_each_mode(|mut reactor| {
        assert_eq!(reactor.readiness(), Readiness::Quiet);
        assert_eq!(poll(&mut reactor, Wait::Never), []);
        assert_eq!(reactor.readiness(), Readiness::Quiet);
    });
}

#[test]
fn it_is_ready_while_an_operation_waits_to_be_armed() {
    in_each_mode(|mut reactor| {
        let event = event();
        reactor.submit(token(1), readable(&event)).unwrap();
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(poll(&mut reactor, Wait::Never), []);
        assert_eq!(reactor.readiness(), Readiness::Quiet);
    });
}

#[test]
fn an_event_makes_it_ready_without_a_system_call() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        assert_eq!(reactor.readiness(), Readiness::Quiet);
        let thread = thread::spawn(move || {
            raise(&event);
            event
        });
        spin_until_ready(&mut reactor);
        let found = drain(&mut reactor);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].token, found[0].result), (token(1), IN));
        assert_eq!(reactor.readiness(), Readiness::Quiet);
        drop(thread.join().unwrap());
    });
}

#[test]
fn it_stays_ready_until_the_last_completion_is_found() {
    in_each_mode(|mut reactor| {
        let event = event();
        for index in 0..100 {
            arm(&mut reactor, token(index), readable(&event));
        }
        raise(&event);
        spin_until_ready(&mut reactor);
        assert_eq!(drain(&mut reactor).len(), 100);
    });
}
