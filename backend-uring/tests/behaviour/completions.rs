use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use evenkeel::io::{Interest, Operation};
use evenkeel::{Completion, Completions, POLL_BATCH, Reactor, Readiness, Submitted, Wait};
use evenkeel_uring::{Mode, UringReactor};

use crate::support::{
    BADF, HUP, IN, OUT, RDHUP, arm, collect, drain, event, in_each_mode, poll, raise, readable,
    spin_until_ready, token, writable,
};

#[test]
fn each_mode_says_what_was_granted() {
    for (mode, detail) in [
        (Mode::Deferred, "SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG"),
        (Mode::Cooperative, "COOP_TASKRUN|TASKRUN_FLAG"),
        (Mode::Plain, "plain"),
    ] {
        let reactor = UringReactor::builder().at_most(mode).build().unwrap();
        assert_eq!((reactor.mode(), reactor.detail()), (mode, detail));
        assert_eq!(reactor.name(), "uring");
    }
    assert_eq!(UringReactor::new().unwrap().mode(), Mode::Deferred);
}

#[test]
fn sizes_beyond_the_kernels_are_brought_within_them() {
    for (entries, completions) in [(0, 0), (1, u32::MAX), (100_000, 1), (u32::MAX, u32::MAX)] {
        let reactor = UringReactor::builder().entries(entries).completions(completions).build();
        drop(reactor.unwrap_or_else(|error| panic!("{entries}, {completions}: {error}")));
    }
}

#[test]
fn an_operation_is_queued_then_armed_then_found() {
    in_each_mode(|mut reactor| {
        let event = event();
        assert_eq!(reactor.submit(token(1), readable(&event)).unwrap(), Submitted::Queued);
        let mut found = Completions::new();
        assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, 1);
        assert_eq!(found.as_slice(), []);
        raise(&event);
        spin_until_ready(&mut reactor);
        assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, 0);
        assert_eq!(found.as_slice(), [Completion { token: token(1), result: IN }]);
    });
}

#[test]
fn what_is_ready_already_is_found_by_the_poll_that_arms_it() {
    in_each_mode(|mut reactor| {
        let event = event();
        raise(&event);
        reactor.submit(token(1), readable(&event)).unwrap();
        reactor.submit(token(2), writable(&event)).unwrap();
        let mut found = Completions::new();
        assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, 2);
        let results = [(token(1), IN), (token(2), OUT)];
        let results = results.map(|(token, result)| Completion { token, result });
        assert_eq!(found.as_slice(), results);
        assert_eq!(reactor.readiness(), Readiness::Quiet);
    });
}

#[test]
fn each_interest_sees_its_own_direction() {
    in_each_mode(|mut reactor| {
        let (near, mut far) = UnixStream::pair().unwrap();
        reactor.submit(token(1), readable(&near)).unwrap();
        reactor.submit(token(2), writable(&near)).unwrap();
        assert_eq!(drain(&mut reactor), [Completion { token: token(2), result: OUT }]);
        far.write_all(b"!").unwrap();
        assert_eq!(collect(&mut reactor, 1), [Completion { token: token(1), result: IN }]);
    });
}

/// The kernel adds `POLLRDHUP` to what it is asked to watch for.
#[test]
fn a_hang_up_ends_both_directions() {
    in_each_mode(|mut reactor| {
        let (near, far) = UnixStream::pair().unwrap();
        reactor.submit(token(1), readable(&near)).unwrap();
        drain(&mut reactor);
        drop(far);
        reactor.submit(token(2), writable(&near)).unwrap();
        let mut found = collect(&mut reactor, 2);
        found.sort_by_key(|it| it.token.index());
        let results: Vec<i32> = found.iter().map(|it| it.result).collect();
        assert_eq!(results, [IN | HUP | RDHUP, OUT | HUP | RDHUP]);
    });
}

#[test]
fn a_half_close_ends_both_directions() {
    in_each_mode(|mut reactor| {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        reactor.submit(token(1), readable(&near)).unwrap();
        reactor.submit(token(2), writable(&near)).unwrap();
        assert_eq!(drain(&mut reactor), []);
        far.shutdown(Shutdown::Write).unwrap();
        let mut found = collect(&mut reactor, 2);
        found.sort_by_key(|it| it.token.index());
        let results: Vec<i32> = found.iter().map(|it| it.result).collect();
        assert_eq!(results, [IN | RDHUP, RDHUP]);
    });
}

#[test]
fn a_wrong_descriptor_is_the_operations_own_error() {
    in_each_mode(|mut reactor| {
        let event = event();
        raise(&event);
        for (index, fd) in [(1, -1), (2, 1_000_000), (3, i32::MAX)] {
            let operation = Operation::Poll { fd, interest: Interest::Readable };
            reactor.submit(token(index), operation).unwrap();
        }
        reactor.submit(token(4), readable(&event)).unwrap();
        let results: Vec<i32> = collect(&mut reactor, 4).iter().map(|it| it.result).collect();
        assert_eq!(results, [BADF, BADF, BADF, IN]);
    });
}

#[test]
fn a_poll_finds_no_more_than_there_is_room_for() {
    in_each_mode(|mut reactor| {
        let event = event();
        for index in 0..100 {
            arm(&mut reactor, token(index), readable(&event));
        }
        raise(&event);
        let mut found = Completions::new();
        let mut sizes = Vec::new();
        let mut indices = Vec::new();
        while indices.len() < 100 {
            found.clear();
            // Room for 10 in every second poll.
            let taken = if sizes.len() % 2 == 1 { POLL_BATCH - 10 } else { 0 };
            let other = Completion { token: token(999), result: 0 };
            (0..taken).for_each(|_| found.push(other));
            spin_until_ready(&mut reactor);
            reactor.poll(Wait::Forever, &mut found).unwrap();
            sizes.push(found.as_slice().len() - taken);
            indices.extend(found.as_slice()[taken..].iter().map(|it| it.token.index()));
        }
        assert!(sizes.iter().step_by(2).all(|&size| size <= POLL_BATCH), "{sizes:?}");
        assert!(sizes.iter().skip(1).step_by(2).all(|&size| size <= 10), "{sizes:?}");
        indices.sort_unstable();
        assert_eq!(indices, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn without_room_a_poll_neither_takes_nor_waits() {
    in_each_mode(|mut reactor| {
        let event = event();
        reactor.submit(token(1), readable(&event)).unwrap();
        let mut full = Completions::new();
        (0..POLL_BATCH).for_each(|_| full.push(Completion { token: token(9), result: 0 }));
        assert_eq!(reactor.poll(Wait::Forever, &mut full).unwrap().armed, 1);
        raise(&event);
        reactor.poll(Wait::Forever, &mut full).unwrap();
        assert_eq!(full.room(), 0);
        assert_eq!(poll(&mut reactor, Wait::Forever).len(), 1);
    });
}
