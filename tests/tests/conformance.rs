//! The conformance kit for reactors, on both reactors and the machine's own kernel.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use evenkeel::io::{Interest, Operation};
use evenkeel::testing::conformance::reactor::{self as kit, Broken, Harness};
use evenkeel::{Clock, Instant, MonotonicClock};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::Live;
use evenkeel_uring::UringReactor;
use rustix::event::{EventfdFlags, eventfd};

/// Each operation waits for an eventfd of its own.
struct Descriptors<R> {
    events: BTreeMap<u32, OwnedFd>,
    clock: MonotonicClock,
    /// One that was made to see whether there is such a reactor.
    first: Option<R>,
}

impl<R: Live> Harness for Descriptors<R> {
    type Reactor = R;

    fn reactor(&mut self) -> R {
        self.events.clear();
        self.first.take().unwrap_or_else(|| R::make().expect("there was one before"))
    }

    fn capacity(&self) -> u32 {
        4096
    }

    fn operation(&mut self, number: u32) -> Operation {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let fd = event.as_raw_fd();
        self.events.insert(number, event);
        Operation::Poll { fd, interest: Interest::Readable }
    }

    fn number(&self, operation: &Operation) -> Option<u32> {
        let Operation::Poll { fd, .. } = *operation else { unreachable!("only these are made") };
        self.events.iter().find(|(_, event)| event.as_raw_fd() == fd).map(|(&number, _)| number)
    }

    fn trigger(&mut self, _: &mut R, number: u32) {
        rustix::io::write(&self.events[&number], &1_u64.to_ne_bytes()).unwrap();
    }

    fn now(&mut self) -> Instant {
        self.clock.now()
    }
}

type Rule<R> = fn(&mut Descriptors<R>) -> Result<(), Broken>;

/// Where there is no such reactor, and need not be, the rule is passed over.
fn keeps<R: Live>(rule: Rule<R>) {
    let first = match R::make() {
        Ok(reactor) => Some(reactor),
        Err(refused) if R::OPTIONAL => {
            eprintln!("skipped, for there is no such reactor here: {refused}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let clock = MonotonicClock::new();
    if let Err(broken) = rule(&mut Descriptors { events: BTreeMap::new(), clock, first }) {
        panic!("{broken}");
    }
}

/// Each rule becomes two tests.
macro_rules! on_both_reactors {
    ($($rule:ident)*) => {
        mod epoll {
            $(#[test] fn $rule() { super::keeps::<super::EpollReactor>(super::kit::$rule); })*
        }
        mod uring {
            $(#[test] fn $rule() { super::keeps::<super::UringReactor>(super::kit::$rule); })*
        }

        #[test]
        fn no_rule_is_left_out() {
            assert_eq!(kit::RULES, [$(stringify!($rule)),*]);
        }
    };
}

on_both_reactors! {
    queued_is_ready_until_armed
    armed_needs_no_poll
    each_operation_completes_once
    a_poll_keeps_to_the_room
    quiet_means_that_nothing_waits
    ready_means_that_something_waits
    a_cancelled_operation_completes_once
    a_cancel_of_the_unknown_is_ignored
    tokens_come_back_unharmed
    a_refused_operation_comes_back
    never_does_not_wait
    a_wait_ends_at_its_deadline
    a_wait_lasts_to_its_deadline
    a_wait_ends_with_a_completion
    the_notifier_ends_the_next_wait
    the_notifier_is_heard_from_elsewhere
    the_notifier_outlives_the_reactor
    a_reactor_is_dropped_with_operations_in_flight
}
