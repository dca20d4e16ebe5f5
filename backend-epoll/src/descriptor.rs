//! A descriptor's number as rustix wants it.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;

/// The descriptor of this number; `None` for a negative one, which can't be open.
///
/// The number may be closed, or belong to someone else. The set's calls answer `EBADF` then, or watch
/// the other one's readiness. Others read, write or configure what is there now: they are made only
/// while an operation with this number is in flight, and who submitted it has vouched for that.
#[inline]
pub(crate) fn borrow<'fd>(number: RawFd) -> Option<BorrowedFd<'fd>> {
    // SAFETY: what the type itself relies on, that the number is not -1, is checked. That it be open
    // is I/O safety: an owner's expectation that nobody else closes, reads or writes what is his. It
    // is kept by who submits an operation with the number: to the reactor this is only a number, as
    // to the kernel. rustix passes it on, and keeps nothing.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
}

/// close(2), whose result is 0 or a negative error number. After a number that is open it is free,
/// even if there was an error.
pub(crate) fn close(number: RawFd) -> i32 {
    if number < 0 {
        return -Errno::BADF.raw_os_error();
    }
    // SAFETY: who submits the operation gives the descriptor away with it.
    match unsafe { rustix::io::try_close(number) } {
        // Linux has closed it all the same.
        Ok(()) | Err(Errno::INTR) => 0,
        Err(errno) => -errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_negative_number_is_none() {
        assert!(borrow(-1).is_none());
        assert!(borrow(RawFd::MIN).is_none());
        assert_eq!(borrow(0).map(|descriptor| descriptor.as_raw_fd()), Some(0));
    }
}
