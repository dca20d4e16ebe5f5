#![forbid(unsafe_code)]
//! The thread-safe half: an eventfd that the ring watches.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, retry_on_intr, write};

/// Shared by the reactor and all wakers, so that a waker is valid when the reactor is gone.
///
/// The ring watches it by a multishot poll, to which every write is an event of its own, whatever
/// the counter says. So the counter is not read while that poll lasts: a write fails only when the
/// sum of all reaches 2⁶⁴ - 1. It is read once when the poll has ended, because the next one looks
/// at the counter when it is armed and would find the wakes that have been told already.
#[derive(Debug)]
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    /// One system call, `eventfd2`. Not inherited by a program that the process starts.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Forgets the wakes so far. One system call, `read`, that does not wait.
    pub(crate) fn drain(&self) -> io::Result<()> {
        let mut counter = [0; 8];
        match retry_on_intr(|| read(&self.0, &mut counter)) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // It fails when the counter is at its end, after 2⁶⁴ - 2 wakes, and is readable then.
        let _ = retry_on_intr(|| write(&self.0, &1_u64.to_ne_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_forgets_all_wakes_and_never_waits() {
        let notifier = Arc::new(Notifier::new().unwrap());
        notifier.drain().unwrap();
        notifier.wake_by_ref();
        notifier.wake_by_ref();
        notifier.drain().unwrap();
        assert_eq!(read(&notifier.0, &mut [0; 8]), Err(Errno::AGAIN));
    }
}
