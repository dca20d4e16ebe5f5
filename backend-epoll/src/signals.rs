//! Signals of this thread that a library must neither raise nor take.

use std::mem::MaybeUninit;
use std::ptr;

use rustix::io::Errno;

/// Makes a call that may raise `SIGPIPE`, and lets it not: the signal is blocked meanwhile, and taken
/// if it came of this call. Two system calls more, and one more if it came.
///
/// Rust's own start-up code ignores the signal, but a library may be in a program that has none.
pub(crate) fn without_sigpipe<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let pipe = only_sigpipe();
    let before = block(&pipe);
    // If the program itself had it blocked, one may wait to be taken that is the program's.
    let theirs = has_sigpipe(&before) && has_sigpipe(&pending());
    let result = call();
    if matches!(result, Err(Errno::PIPE)) && !theirs {
        take(&pipe);
    }
    restore(&before);
    result
}

/// Makes a call with all signals blocked: a thread that it starts takes none.
pub(crate) fn with_all_blocked<T>(call: impl FnOnce() -> T) -> T {
    let mut all = only_sigpipe();
    // SAFETY: it is a set.
    unsafe { libc::sigfillset(&raw mut all) };
    let before = block(&all);
    let result = call();
    restore(&before);
    result
}

fn only_sigpipe() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set, the second adds a signal that exists.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        set.assume_init()
    }
}

fn has_sigpipe(set: &libc::sigset_t) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(set, libc::SIGPIPE) == 1 }
}

/// Blocks these too; returns what was blocked before.
fn block(signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = only_sigpipe();
    // SAFETY: both are sets. It fails for no other reason than a wrong first argument.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals, &raw mut before) };
    before
}

fn restore(before: &libc::sigset_t) {
    // SAFETY: it is a set that was the mask before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

fn pending() -> libc::sigset_t {
    let mut pending = only_sigpipe();
    // SAFETY: it is a set.
    unsafe { libc::sigpending(&raw mut pending) };
    pending
}

/// Takes one that is pending, without waiting.
fn take(signals: &libc::sigset_t) {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a set and a span; where it came from nobody asks.
    while unsafe { libc::sigtimedwait(signals, ptr::null_mut(), &raw const at_once) } == -1
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_write() -> Result<usize, Errno> {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        rustix::io::write(&writer, b"x")
    }

    #[test]
    fn none_is_left_pending_and_the_mask_is_as_before() {
        let mask = block(&only_sigpipe());
        restore(&mask);
        assert_eq!(without_sigpipe(broken_write), Err(Errno::PIPE));
        assert!(!has_sigpipe(&pending()), "it was taken");
        let after = block(&only_sigpipe());
        restore(&after);
        assert_eq!(has_sigpipe(&mask), has_sigpipe(&after));
    }

    #[test]
    fn one_that_the_program_has_yet_to_take_is_left_alone() {
        let before = block(&only_sigpipe());
        assert_eq!(broken_write(), Err(Errno::PIPE));
        assert!(has_sigpipe(&pending()), "a blocked signal waits, even if it is ignored");
        assert_eq!(without_sigpipe(broken_write), Err(Errno::PIPE));
        assert!(has_sigpipe(&pending()));
        take(&only_sigpipe());
        restore(&before);
    }
}
