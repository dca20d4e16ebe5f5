//! No operation raises `SIGPIPE`, in a program that does not ignore it.

#[allow(dead_code)] // each file uses a part
mod common;
#[allow(dead_code)]
#[path = "common/lent.rs"]
mod lent;

use std::os::unix::net::UnixStream;

use common::*;
use lent::*;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const EPIPE: i32 = 32;

/// Writes to who is gone, in a process of its own that such a signal would end.
fn without_a_signal(test: &str, before: impl FnOnce()) {
    if role().is_none() {
        let output = child(test, "writes").output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{:?}: {said}", output.status);
        assert!(said.contains("1 passed"), "it ran the test: {said}");
        return;
    }
    // SAFETY: the default action is no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    before();
    let mut reactor = reactor();
    for _ in 0..3 {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(run(&mut reactor, write(&writer, b"x")), -EPIPE);
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert_eq!(run(&mut reactor, write(&ours, b"x")), -EPIPE);
        assert_eq!(run(&mut reactor, send(&ours, b"x")), -EPIPE);
        let (mut pieces, at) = ([text(b"x"), text(b"y")], evenkeel::io::Offset::CURRENT);
        let (fd, from) = (std::os::fd::AsRawFd::as_raw_fd(&ours), list(&mut pieces));
        let vectored = evenkeel::io::Operation::WriteVectored { fd, from, at };
        assert_eq!(run(&mut reactor, vectored), -EPIPE);
    }
}

#[test]
fn a_write_to_who_is_gone_is_an_error_only() {
    without_a_signal("a_write_to_who_is_gone_is_an_error_only", || {});
}

/// As before Linux 6.18.
#[test]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn without_the_kernels_help_too() {
    #[cfg(target_arch = "x86_64")]
    const PWRITEV2: i64 = 328;
    #[cfg(target_arch = "aarch64")]
    const PWRITEV2: i64 = 287;
    const RWF_NOSIGNAL: u64 = 0x100;
    const EOPNOTSUPP: u32 = 95;
    without_a_signal("without_the_kernels_help_too", || {
        let flag = SeccompCondition::new(
            5,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(RWF_NOSIGNAL),
            RWF_NOSIGNAL,
        );
        let rule = SeccompRule::new(vec![flag.expect("a condition")]).expect("a rule");
        let rules = [(PWRITEV2, vec![rule])].into_iter().collect();
        let arch = std::env::consts::ARCH.try_into().expect("seccompiler knows it");
        let refusal = SeccompAction::Errno(EOPNOTSUPP);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch);
        let program: BpfProgram = filter.expect("a filter").try_into().expect("a program");
        apply_filter(&program).expect("the kernel takes it");
    });
}
