#![forbid(unsafe_code)]
//! The thread-safe half: an eventfd that ends a wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::setup::SetupError;

/// The eventfd. It is in the set edge-triggered: each write is an edge of its own, and many writes
/// between two looks are one event. So nobody ever has to read it, and a wake costs one system call
/// in all.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(crate) eventfd: OwnedFd,
}

impl Notifier {
    pub(crate) fn new() -> Result<Self, SetupError> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(SetupError::of("eventfd2"))?;
        Ok(Self { eventfd })
    }

    /// Ends a wait, now or the next one.
    pub(crate) fn add(&self) {
        if self.add_one() == Err(Errno::AGAIN) {
            // The counter is full, after 2^64 - 2 wakes, and a write that fails makes no edge. A
            // read makes it empty; if another thread is first, that one's write is the edge.
            let _ = read(&self.eventfd, &mut [0; 8]);
            let _ = self.add_one();
        }
    }

    fn add_one(&self) -> Result<(), Errno> {
        write(&self.eventfd, &1_u64.to_ne_bytes()).map(drop)
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.add();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_counter_does_not_swallow_the_wake() {
        let notifier = Arc::new(Notifier::new().expect("an eventfd"));
        let full = u64::MAX - 1;
        write(&notifier.eventfd, &full.to_ne_bytes()).expect("the counter takes it");
        notifier.wake_by_ref();
        let mut count = [0; 8];
        read(&notifier.eventfd, &mut count).expect("it was written");
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
