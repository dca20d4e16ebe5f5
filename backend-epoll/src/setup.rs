#![forbid(unsafe_code)]
//! What can go wrong while a reactor is made.

use std::error::Error;
use std::{fmt, io};

use rustix::io::Errno;

/// Why a reactor could not be made: which system call failed, how, and what to do about it.
///
/// ```
/// use evenkeel_epoll::{EpollReactor, SetupError};
///
/// fn start() -> Result<EpollReactor, SetupError> {
///     EpollReactor::new()
/// }
/// match start() {
///     Ok(reactor) => println!("epoll: {}", reactor.detail()),
///     Err(error) => eprintln!("{error}"), // one line, with the advice
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetupError {
    call: &'static str,
    errno: Errno,
}

impl SetupError {
    pub(crate) fn of(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { call, errno }
    }

    /// The system call that failed, by its name in the manual.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// The error number that it gave.
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        self.errno.raw_os_error()
    }

    fn advice(&self) -> &'static str {
        match self.errno {
            Errno::MFILE => {
                "the process has no descriptor left: close some, or raise its limit (ulimit -n)"
            }
            Errno::NFILE => {
                "the system has no descriptor left: see the sysctl fs.file-max for its limit"
            }
            Errno::NOMEM | Errno::NOSPC => {
                "the kernel has no room for it: free memory, or see the sysctl \
                 fs.epoll.max_user_watches"
            }
            Errno::NOSYS => {
                "this kernel or the sandbox around the process lacks the call: run it on Linux 2.6.27 \
                 or newer, or allow the call in the sandbox"
            }
            Errno::PERM | Errno::ACCESS => {
                "a sandbox (seccomp) refuses the call: allow it in its profile"
            }
            _ => "see the call's manual page",
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from(self.errno);
        write!(f, "epoll could not be set up: {} failed: {error}; {}", self.call, self.advice())
    }
}

impl Error for SetupError {}

impl From<SetupError> for io::Error {
    /// Keeps the kind, and the whole message.
    fn from(error: SetupError) -> Self {
        Self::new(Self::from(error.errno).kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_happened_why_and_what_to_do() {
        let error = SetupError::of("eventfd2")(Errno::MFILE);
        let message = error.to_string();
        for part in ["eventfd2", "os error 24", "ulimit -n"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!((error.call(), error.raw_os_error()), ("eventfd2", 24));
    }

    #[test]
    fn as_an_io_error_it_keeps_its_kind_and_message() {
        let error = SetupError::of("epoll_create1")(Errno::PERM);
        let converted = io::Error::from(error);
        assert_eq!(converted.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(converted.to_string(), error.to_string());
    }
}
