#![forbid(unsafe_code)]
//! Why there is no ring.

use std::{error, fmt, io};

use rustix::io::Errno;

/// Why `io_uring` is not to be had here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The kernel does not have it (`ENOSYS`). A sandbox or an emulator may answer so as well.
    Missing,
    /// The kernel's `io_uring` is older than this reactor can use.
    TooOld,
    /// The sysctl `kernel.io_uring_disabled` has this value: 1 refuses it to processes without
    /// privilege, 2 to all.
    Sysctl(u8),
    /// It was refused (`EPERM`, `EACCES`), and not by the sysctl: a seccomp filter or a security
    /// module does so.
    Sandbox,
    /// There is not enough memory, or not enough of it may be locked.
    Memory,
    /// Something else: the source of the error says what.
    Other,
}

/// The ring could not be set up. As text it says what happened, why, and what to do.
///
/// ```
/// use evenkeel_uring::{Refusal, UringReactor};
///
/// if let Err(refused) = UringReactor::new() {
///     assert_ne!(refused.refusal(), Refusal::Other, "{refused}");
/// }
/// ```
#[derive(Debug)]
pub struct SetupError {
    refusal: Refusal,
    call: &'static str,
    source: io::Error,
}

impl SetupError {
    /// What the failure of a system call means.
    pub(crate) fn of_call(call: &'static str, source: io::Error) -> Self {
        let refusal = refusal(&source, disabled_by_sysctl);
        Self { refusal, call, source }
    }

    /// The ring is there, and drops completions when its queue overflows.
    pub(crate) fn drops_completions() -> Self {
        let source = io::Error::from(io::ErrorKind::Unsupported);
        Self { refusal: Refusal::TooOld, call: "io_uring_setup", source }
    }

    /// The reason, as a case.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        self.refusal
    }
}

fn refusal(error: &io::Error, sysctl: impl FnOnce() -> Option<u8>) -> Refusal {
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => Refusal::Missing,
        Some(Errno::INVAL) => Refusal::TooOld,
        Some(Errno::PERM) => match sysctl() {
            Some(value @ 1..) => Refusal::Sysctl(value),
            Some(0) | None => Refusal::Sandbox,
        },
        Some(Errno::ACCESS) => Refusal::Sandbox,
        Some(Errno::NOMEM) => Refusal::Memory,
        _ => Refusal::Other,
    }
}

/// Kernels before 6.6 have no such setting.
fn disabled_by_sysctl() -> Option<u8> {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const INSTEAD: &str = "the epoll backend works without it";
        let Self { refusal, call, source } = self;
        match refusal {
            Refusal::Missing => write!(
                f,
                "the kernel lacks io_uring ({call}: ENOSYS): it is older than 5.1, was built \
                 without CONFIG_IO_URING, or a sandbox answers in its place; {INSTEAD}"
            ),
            Refusal::TooOld => write!(
                f,
                "the kernel's io_uring is too old ({call}: {source}): 5.6 is the oldest that will \
                 do; {INSTEAD}"
            ),
            Refusal::Sysctl(value) => {
                let whom = if *value == 1 {
                    "to processes that have no CAP_SYS_ADMIN and are not in kernel.io_uring_group"
                } else {
                    "to all processes"
                };
                write!(
                    f,
                    "the sysctl kernel.io_uring_disabled={value} refuses io_uring {whom} ({call}: \
                     EPERM): set it to 0 to allow it; {INSTEAD}"
                )
            }
            Refusal::Sandbox => write!(
                f,
                "a sandbox refuses io_uring ({call}: {source}; the sysctl \
                 kernel.io_uring_disabled does not): let its seccomp profile or security module \
                 allow io_uring_setup, io_uring_enter and io_uring_register; {INSTEAD}"
            ),
            Refusal::Memory => write!(
                f,
                "not enough memory for io_uring's queues ({call}: ENOMEM): raise the limit on \
                 locked memory (RLIMIT_MEMLOCK, `ulimit -l`) or the memory limit of the control \
                 group, or ask for fewer entries; {INSTEAD}"
            ),
            Refusal::Other => {
                write!(f, "io_uring could not be set up ({call}: {source}); {INSTEAD}")
            }
        }
    }
}

impl error::Error for SetupError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<SetupError> for io::Error {
    /// Keeps the kind of the system call's error and the whole text.
    fn from(error: SetupError) -> Self {
        io::Error::new(error.source.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(errno: Errno, sysctl: Option<u8>) -> (Refusal, String) {
        let source = io::Error::from(errno);
        let refusal = refusal(&source, || sysctl);
        (refusal, SetupError { refusal, call: "io_uring_setup", source }.to_string())
    }

    #[test]
    fn a_kernel_without_it_is_told_from_a_refusal() {
        let (refusal, text) = told(Errno::NOSYS, None);
        assert_eq!(refusal, Refusal::Missing);
        assert!(text.starts_with("the kernel lacks io_uring"), "{text}");
    }

    #[test]
    fn the_sysctl_is_named_with_its_value() {
        for value in [1, 2] {
            let (refusal, text) = told(Errno::PERM, Some(value));
            assert_eq!(refusal, Refusal::Sysctl(value));
            assert!(text.contains(&format!("kernel.io_uring_disabled={value}")), "{text}");
        }
        assert!(told(Errno::PERM, Some(1)).1.contains("CAP_SYS_ADMIN"));
        assert!(told(Errno::PERM, Some(2)).1.contains("to all processes"));
    }

    #[test]
    fn a_sandbox_is_blamed_when_the_sysctl_allows_it() {
        for (errno, sysctl) in
            [(Errno::PERM, Some(0)), (Errno::PERM, None), (Errno::ACCESS, Some(2))]
        {
            let (refusal, text) = told(errno, sysctl);
            assert_eq!(refusal, Refusal::Sandbox);
            assert!(text.starts_with("a sandbox refuses io_uring"), "{text}");
        }
    }

    #[test]
    fn a_lack_of_memory_names_the_limit() {
        let (refusal, text) = told(Errno::NOMEM, None);
        assert_eq!(refusal, Refusal::Memory);
        assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
    }

    #[test]
    fn every_text_says_what_works_instead() {
        for errno in [Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::NOMEM, Errno::MFILE] {
            let (_, text) = told(errno, Some(0));
            assert!(text.ends_with("the epoll backend works without it"), "{text}");
            assert!(!text.contains("  "), "{text}");
        }
        assert!(SetupError::drops_completions().to_string().contains("too old"));
    }

    #[test]
    fn an_io_error_keeps_kind_and_text() {
        let error = SetupError::of_call("eventfd2", Errno::MFILE.into());
        assert_eq!(error.refusal(), Refusal::Other);
        let text = error.to_string();
        let kind = io::Error::from(Errno::MFILE).kind();
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (kind, text));
    }
}
