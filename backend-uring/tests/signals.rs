//! No write raises `SIGPIPE`, in a program that does not ignore it, where the kernel can leave it out.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use evenkeel::io::{Memory, Offset, Operation};
use evenkeel::{Completions, Reactor, Token, Wait};
use evenkeel_uring::UringReactor;

const ROLE: &str = "EVENKEEL_TEST_ROLE";
const EPIPE: i32 = 32;

fn result_of(reactor: &mut UringReactor, operation: Operation) -> i32 {
    reactor.submit(Token::new(0, 0), operation).expect("there is room");
    let mut found = Completions::new();
    while found.as_slice().is_empty() {
        reactor.poll(Wait::Forever, &mut found).expect("the wait works");
    }
    found.as_slice()[0].result
}

fn memory() -> Memory {
    // SAFETY: it is there for ever, and only read from.
    unsafe { Memory::new(b"x".as_ptr().cast_mut(), 1) }
}

/// Whether the kernel knows `RWF_NOSIGNAL`.
fn knows_the_flag() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn a_write_to_who_is_gone_is_an_error_only() {
    if std::env::var_os(ROLE).is_none() {
        let test = std::env::current_exe().expect("it has a name");
        let arguments = ["--exact", "a_write_to_who_is_gone_is_an_error_only"];
        let output = Command::new(test).args(arguments).env(ROLE, "writes").output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{:?}: {said}", output.status);
        assert!(said.contains("1 passed"), "it ran the test: {said}");
        return;
    }
    // SAFETY: the default action is no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut reactor = UringReactor::new().expect("there is io_uring");
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(theirs);
    let send = Operation::Send { fd: ours.as_raw_fd(), from: memory() };
    assert_eq!(result_of(&mut reactor, send), -EPIPE);
    if knows_the_flag() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        for fd in [OwnedFd::from(ours), OwnedFd::from(writer)] {
            let at = Offset::CURRENT;
            let write = Operation::Write { fd: fd.as_raw_fd(), from: memory(), at };
            assert_eq!(result_of(&mut reactor, write), -EPIPE);
        }
    }
}
