//! Without `io_uring`: every refusal is an error that says what happened.

use evenkeel_uring::{Refusal, UringReactor};
use rustix::io::Errno;

use crate::support::{Call, bounded, child, is_child, refuse};

fn refused(calls: &'static [Call], error: Errno) -> (Refusal, String) {
    bounded(move || {
        refuse(calls, error, None);
        let error = UringReactor::new().unwrap_err();
        (error.refusal(), error.to_string())
    })
}

#[test]
fn enosys_means_that_the_kernel_lacks_it() {
    let (refusal, text) = refused(&[Call::Setup, Call::Enter, Call::Register], Errno::NOSYS);
    assert_eq!(refusal, Refusal::Missing);
    assert!(text.starts_with("the kernel lacks io_uring"), "{text}");
}

#[test]
fn eperm_while_the_sysctl_allows_it_means_a_sandbox() {
    if std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|it| it != "0\n") {
        return;
    }
    for calls in [&[Call::Setup][..], &[Call::Enter], &[Call::Register]] {
        let (refusal, text) = refused(calls, Errno::PERM);
        assert_eq!(refusal, Refusal::Sandbox);
        assert!(text.starts_with("a sandbox refuses io_uring"), "{text}");
        assert!(text.ends_with("the epoll backend works without it"), "{text}");
    }
}

#[test]
fn einval_down_to_the_last_rung_means_too_old() {
    let (refusal, text) = refused(&[Call::Setup], Errno::INVAL);
    assert_eq!(refusal, Refusal::TooOld);
    assert!(text.contains("too old"), "{text}");
}

#[test]
fn enomem_means_a_limit_on_memory() {
    let (refusal, text) = refused(&[Call::Setup], Errno::NOMEM);
    assert_eq!(refusal, Refusal::Memory);
    assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
}

#[test]
fn a_whole_process_in_a_sandbox_lives_on() {
    if is_child() {
        refuse(&[Call::Setup, Call::Enter, Call::Register], Errno::PERM, None);
        std::thread::spawn(|| UringReactor::new().unwrap_err()).join().unwrap();
        return;
    }
    let output = child("refusal::a_whole_process_in_a_sandbox_lives_on").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
