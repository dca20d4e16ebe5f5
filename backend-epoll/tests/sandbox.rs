//! Calls that a sandbox refuses, by a seccomp filter in a child process.
#![forbid(unsafe_code)]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

#[allow(dead_code)] // each file uses a part
mod common;

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::*;
use evenkeel::io::Interest::Readable;
use evenkeel::io::{Operation, SyncExtent};
use evenkeel::{Reactor, Readiness, Wait};
use evenkeel_epoll::{EpollReactor, Looks};
use rustix::time::{ClockId, clock_gettime};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

#[cfg(target_arch = "x86_64")]
mod number {
    pub(crate) const EPOLL_CTL: i64 = 233;
    pub(crate) const EPOLL_CREATE1: i64 = 291;
    pub(crate) const TIMERFD_CREATE: i64 = 283;
    pub(crate) const TIMERFD_SETTIME: i64 = 286;
    pub(crate) const CLONE: i64 = 56;
    pub(crate) const IO_SETUP: i64 = 206;
    pub(crate) const IO_SUBMIT: i64 = 209;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(crate) const EPOLL_CTL: i64 = 21;
    pub(crate) const EPOLL_CREATE1: i64 = 20;
    pub(crate) const TIMERFD_CREATE: i64 = 85;
    pub(crate) const TIMERFD_SETTIME: i64 = 86;
    pub(crate) const CLONE: i64 = 220;
    pub(crate) const IO_SETUP: i64 = 0;
    pub(crate) const IO_SUBMIT: i64 = 2;
}
const EPOLL_PWAIT2: i64 = 441;
const CLONE3: i64 = 435;
const EPOLL_CTL_ADD: u64 = 1;
const ENOSYS: u32 = 38;
const EPERM: u32 = 1;
const EAGAIN: u32 = 11;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;

/// From now on the kernel refuses these calls to this thread. An empty list of rules means always.
fn refuse(calls: &[(i64, Vec<SeccompRule>)], errno: u32) {
    let rules: BTreeMap<_, _> = calls.iter().cloned().collect();
    let arch = std::env::consts::ARCH.try_into().expect("seccompiler knows it");
    let refusal = SeccompAction::Errno(errno);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    apply_filter(&program).expect("the kernel takes it");
}

/// Runs `body` in a child process, which must succeed.
fn in_a_child(test: &str, body: impl FnOnce()) {
    if role().is_some() {
        return body();
    }
    let output = child(test, "sandboxed").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "it ran the test: {said}");
}

/// Waits with deadlines, short and long ones: never early, and asleep meanwhile. Then by wake and by
/// event.
fn waits_are_exact_and_asleep(reactor: &mut EpollReactor) {
    for micros in [1, 50, 300, 999, 1_000, 1_001, 2_500] {
        let deadline = after(Duration::from_micros(micros));
        assert_eq!(poll(reactor, Wait::Until(deadline)), []);
        assert!(now() >= deadline, "{micros} µs");
    }
    let before = clock_gettime(ClockId::ThreadCPUTime);
    for _ in 0..20 {
        let deadline = after(Duration::from_millis(10));
        poll(reactor, Wait::Until(deadline));
        assert!(now() >= deadline);
    }
    let used = clock_gettime(ClockId::ThreadCPUTime) - before;
    assert!(used.tv_sec == 0 && used.tv_nsec < 50_000_000, "of 200 ms it ran for {used:?}");

    reactor.notifier().wake();
    assert_eq!(poll(reactor, Wait::Until(after(Duration::from_secs(1_000)))), []);
    let event = event(0);
    watch(reactor, 0, &event, Readable);
    std::thread::scope(|scope| {
        scope.spawn(|| signal(&event));
        assert_eq!(poll(reactor, Wait::Until(after(Duration::from_secs(1_000)))), [(0, POLLIN)]);
    });
}

/// How it waits, whatever it is that tells of events.
fn waits_by(reactor: &EpollReactor) -> &'static str {
    reactor.detail().trim_end_matches(" + aio")
}

#[test]
fn without_asynchronous_io_only_a_look_can_tell() {
    for (call, errno) in [
        (number::IO_SETUP, EPERM),
        (number::IO_SETUP, ENOSYS),
        (number::IO_SETUP, EAGAIN),
        (number::IO_SUBMIT, EINVAL),
        (number::IO_SUBMIT, EPERM),
    ] {
        in_a_child("without_asynchronous_io_only_a_look_can_tell", || {
            refuse(&[(call, vec![])], errno);
            let mut reactor = reactor();
            assert_eq!(reactor.looks(), Looks::BySystemCall);
            assert_eq!(reactor.detail(), "epoll_pwait + timerfd");
            waits_are_exact_and_asleep(&mut reactor);
            let event = event(0);
            watch(&mut reactor, 1, &event, Readable);
            assert_eq!(reactor.readiness(), Readiness::Unknown);
            signal(&event);
            assert_eq!(poll(&mut reactor, Wait::Never), [(1, POLLIN)]);
        });
    }
}

#[test]
fn a_sandbox_that_closes_later_takes_the_memory_away() {
    in_a_child("a_sandbox_that_closes_later_takes_the_memory_away", || {
        let mut reactor = reactor();
        if reactor.looks() == Looks::BySystemCall {
            return;
        }
        refuse(&[(number::IO_SUBMIT, vec![])], EPERM);
        let event = event(0);
        // The poll is armed still, and tells once.
        for known in [true, false, false] {
            watch(&mut reactor, 1, &event, Readable);
            let readiness = if known { Readiness::Quiet } else { Readiness::Unknown };
            assert_eq!(reactor.readiness(), readiness);
            signal(&event);
            assert_eq!(poll(&mut reactor, Wait::Never), [(1, POLLIN)]);
            rustix::io::read(&event, &mut [0; 8]).expect("it was raised");
        }
        waits_are_exact_and_asleep(&mut reactor);
    });
}

#[test]
fn without_epoll_pwait2_waits_are_exact() {
    in_a_child("without_epoll_pwait2_waits_are_exact", || {
        refuse(&[(EPOLL_PWAIT2, vec![])], EPERM);
        let mut reactor = reactor();
        assert_eq!(waits_by(&reactor), "epoll_pwait + timerfd");
        waits_are_exact_and_asleep(&mut reactor);
    });
}

#[test]
fn without_timers_waits_are_exact() {
    in_a_child("without_timers_waits_are_exact", || {
        refuse(&[(EPOLL_PWAIT2, vec![]), (number::TIMERFD_CREATE, vec![])], ENOSYS);
        let mut reactor = reactor();
        assert_eq!(waits_by(&reactor), "epoll_pwait + ppoll");
        waits_are_exact_and_asleep(&mut reactor);
    });
}

#[test]
fn a_sandbox_that_refuses_to_set_timers_is_found_out_at_setup() {
    in_a_child("a_sandbox_that_refuses_to_set_timers_is_found_out_at_setup", || {
        refuse(&[(number::TIMERFD_SETTIME, vec![])], EPERM);
        assert_eq!(waits_by(&reactor()), "epoll_pwait + ppoll");
    });
}

#[test]
fn a_sandbox_that_closes_later_takes_the_timer_away() {
    in_a_child("a_sandbox_that_closes_later_takes_the_timer_away", || {
        let mut reactor = reactor();
        assert_eq!(waits_by(&reactor), "epoll_pwait + timerfd");
        refuse(&[(number::TIMERFD_SETTIME, vec![])], EPERM);
        waits_are_exact_and_asleep(&mut reactor);
        assert_eq!(waits_by(&reactor), "epoll_pwait + ppoll");
    });
}

#[test]
fn without_epoll_the_error_says_who_refused_it() {
    in_a_child("without_epoll_the_error_says_who_refused_it", || {
        refuse(&[(number::EPOLL_CREATE1, vec![])], EPERM);
        let error = EpollReactor::new().expect_err("it is refused");
        assert_eq!((error.call(), error.raw_os_error()), ("epoll_create1", 1));
        assert!(error.to_string().contains("sandbox"), "{error}");
    });
}

#[test]
fn an_operation_for_which_the_kernel_has_no_room_comes_back() {
    in_a_child("an_operation_for_which_the_kernel_has_no_room_comes_back", || {
        let mut reactor = without_memory();
        let known = event(0);
        watch(&mut reactor, 0, &known, Readable);
        let add =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, EPOLL_CTL_ADD)
                .and_then(|condition| SeccompRule::new(vec![condition]))
                .expect("a rule");
        refuse(&[(number::EPOLL_CTL, vec![add])], ENOSPC);

        let more = event(0);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&more);
        let operation = Operation::Poll { fd, interest: Readable };
        let refused = reactor.submit(token(1), operation).expect_err("there is no room");
        assert!(matches!(refused.operation, Operation::Poll { .. }));
        assert_eq!(refused.error.raw_os_error(), Some(28));
        assert_eq!(reactor.readiness(), Readiness::Unknown, "nothing has ended");
        signal(&known);
        assert_eq!(look(&mut reactor), [(0, POLLIN)]);
    });
}

#[test]
fn without_descriptors_the_error_says_how_to_get_some() {
    in_a_child("without_descriptors_the_error_says_how_to_get_some", || {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let next = std::os::fd::AsRawFd::as_raw_fd(&event(0));
        for room in 0..3 {
            let mut limit = getrlimit(Resource::Nofile);
            limit.current = u64::try_from(next + room).ok();
            setrlimit(Resource::Nofile, limit).expect("it may be lowered");
            let error = EpollReactor::new().expect_err("there are no descriptors");
            assert_eq!(error.raw_os_error(), 24, "with room for {room}");
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
    });
}

#[test]
fn where_no_thread_can_be_started_what_needs_one_says_so() {
    in_a_child("where_no_thread_can_be_started_what_needs_one_says_so", || {
        let mut reactor = reactor();
        let file = std::fs::File::open("/proc/self/exe").expect("it is there");
        refuse(&[(number::CLONE, vec![]), (CLONE3, vec![])], EPERM);
        let sync = || Operation::Sync { fd: file.as_raw_fd(), extent: SyncExtent::All };
        for _ in 0..2 {
            reactor.submit(token(1), sync()).expect("there is room");
            assert_eq!(poll(&mut reactor, Wait::Forever), [(1, -1)]);
            assert_eq!(reactor.readiness(), Readiness::Quiet);
        }
    });
}

#[test]
fn without_a_descriptor_left_what_needs_a_thread_says_so() {
    in_a_child("without_a_descriptor_left_what_needs_a_thread_says_so", || {
        let mut reactor = reactor();
        let file = std::fs::File::open("/proc/self/exe").expect("it is there");
        let mut kept = Vec::new();
        while let Ok(more) = file.try_clone() {
            kept.push(more);
        }
        let sync = Operation::Sync { fd: file.as_raw_fd(), extent: SyncExtent::All };
        reactor.submit(token(1), sync).expect("there is room");
        assert_eq!(poll(&mut reactor, Wait::Forever), [(1, -24)], "EMFILE");
    });
}
