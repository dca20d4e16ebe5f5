//! What the tests share.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use evenkeel::io::{Interest, Operation};
use evenkeel::{Completion, Completions, Reactor, Readiness, Token, Wait};
use evenkeel_uring::{Mode, UringReactor};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

pub(crate) const IN: i32 = PollFlags::IN.bits() as i32;
pub(crate) const OUT: i32 = PollFlags::OUT.bits() as i32;
pub(crate) const HUP: i32 = PollFlags::HUP.bits() as i32;
pub(crate) const RDHUP: i32 = PollFlags::RDHUP.bits() as i32;
pub(crate) const CANCELED: i32 = -rustix::io::Errno::CANCELED.raw_os_error();
pub(crate) const BADF: i32 = -rustix::io::Errno::BADF.raw_os_error();

/// Longer than anything here takes, however loaded the machine.
const LONG: Duration = Duration::from_mins(1);

/// Runs it on a thread of its own, and fails if it hangs.
pub(crate) fn bounded<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = done.send(test());
    });
    match end.recv_timeout(LONG) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end after {LONG:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

/// Runs it once for each mode, with a reactor in that mode.
pub(crate) fn in_each_mode(test: fn(UringReactor)) {
    in_each_mode_of(test, usual);
}

/// The same, with tiny queues: 8 requests, 16 completions.
pub(crate) fn in_each_mode_tiny(test: fn(UringReactor)) {
    in_each_mode_of(test, tiny);
}

fn usual(mode: Mode) -> UringReactor {
    UringReactor::builder().at_most(mode).build().unwrap_or_else(|refused| panic!("{refused}"))
}

pub(crate) fn tiny(mode: Mode) -> UringReactor {
    UringReactor::builder().entries(8).completions(16).at_most(mode).build().unwrap()
}

/// How many operations fit into the submission queue of a tiny reactor: two places are its own.
pub(crate) const TINY: u32 = 6;

fn in_each_mode_of(test: fn(UringReactor), make: fn(Mode) -> UringReactor) {
    for mode in Mode::ALL {
        let reactor = make(mode);
        println!("{mode}: {}", reactor.detail());
        bounded(move || test(reactor));
    }
}

pub(crate) fn token(index: u32) -> Token {
    Token::new(index, 1)
}

pub(crate) fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

pub(crate) fn raise(event: impl AsFd) {
    assert_eq!(rustix::io::write(event, &1_u64.to_ne_bytes()), Ok(8));
}

pub(crate) fn readable(fd: impl AsFd) -> Operation {
    Operation::Poll { fd: fd.as_fd().as_raw_fd(), interest: Interest::Readable }
}

pub(crate) fn writable(fd: impl AsFd) -> Operation {
    Operation::Poll { fd: fd.as_fd().as_raw_fd(), interest: Interest::Writable }
}

/// One poll.
pub(crate) fn poll(reactor: &mut UringReactor, wait: Wait) -> Vec<Completion> {
    let mut found = Completions::new();
    reactor.poll(wait, &mut found).unwrap();
    found.as_slice().to_vec()
}

/// Polls, without waiting, until the reactor is quiet.
pub(crate) fn drain(reactor: &mut UringReactor) -> Vec<Completion> {
    let mut all = Vec::new();
    while reactor.readiness() == Readiness::Ready {
        all.extend(poll(reactor, Wait::Never));
    }
    all
}

/// Polls, waiting if need be, until so many completions were found.
pub(crate) fn collect(reactor: &mut UringReactor, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(poll(reactor, Wait::Forever));
    }
    all
}

/// Arms the operation.
pub(crate) fn arm(reactor: &mut UringReactor, token: Token, operation: Operation) {
    reactor.submit(token, operation).unwrap();
    let mut found = Completions::new();
    assert_eq!(reactor.poll(Wait::Never, &mut found).unwrap().armed, 1);
    assert_eq!(found.as_slice(), []);
}

/// Looks until the reactor is ready. Makes no system call.
pub(crate) fn spin_until_ready(reactor: &mut UringReactor) {
    let start = Instant::now();
    while reactor.readiness() == Readiness::Quiet {
        assert!(start.elapsed() < LONG, "it never became ready");
        std::hint::spin_loop();
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Call {
    Setup = 425,
    Enter = 426,
    Register = 427,
}

/// Has this thread's calls answered with an error from now on; those of `Enter` only if they hand
/// over this number of requests, if one is given.
pub(crate) fn refuse(calls: &[Call], error: rustix::io::Errno, requests: Option<u32>) {
    let rules = |call| match (call, requests) {
        (Call::Enter, Some(requests)) => {
            let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
            let condition = SeccompCondition::new(1, length, equal, requests.into()).unwrap();
            vec![SeccompRule::new(vec![condition]).unwrap()]
        }
        _ => vec![],
    };
    let filter = SeccompFilter::new(
        calls.iter().map(|&call| (call as i64, rules(call))).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(error.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    seccompiler::apply_filter(&BpfProgram::try_from(filter.unwrap()).unwrap()).unwrap();
}

/// Whether this process was started by [`child`] to run one test.
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This program once more, to run the test of this name only.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    command
}

const CHILD: &str = "EVENKEEL_URING_TEST_CHILD";
