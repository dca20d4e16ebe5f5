//! A descriptor's number as rustix wants it.

use std::os::fd::{BorrowedFd, RawFd};

/// The descriptor of this number; `None` for a negative one, which can't be open.
///
/// The number may be closed, or belong to someone else: the only call that such a descriptor is
/// given to is `epoll_ctl`, which answers `EBADF` or watches the other one's readiness. It neither
/// reads, writes nor closes it.
#[inline]
pub(crate) fn borrow<'fd>(number: RawFd) -> Option<BorrowedFd<'fd>> {
    // SAFETY: what the type itself relies on, that the number is not -1, is checked. That it be open
    // is I/O safety: an owner's expectation that nobody else closes, reads or writes what is his.
    // `epoll_ctl` does none of these, and takes a closed number for an error. rustix passes the
    // number on, and keeps nothing.
    (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })
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
