//! The ring itself: the one module that reaches into memory shared with the kernel.

use std::io;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::cqueue::{self, CompletionQueue, CompletionStatus};
use io_uring::squeue::{self, SubmissionQueue};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};

/// A request that refers to memory, by the promise of who made it.
pub(crate) struct Sqe(squeue::Entry);

impl Sqe {
    /// # Safety
    /// What the entry refers to stays in place, and is the kernel's, until it has posted the last
    /// completion of this request, or for ever.
    pub(crate) unsafe fn new(entry: squeue::Entry) -> Self {
        Self(entry)
    }
}

/// What the kernel is asked for. Nothing of it refers to memory that somebody else owns.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// Tell when the descriptor is ready for one of the events; once, or time and again.
    Poll { fd: RawFd, events: u32, multishot: bool },
    /// End the request that carries this number.
    Cancel { target: u64 },
    /// Tell when this much time has passed, or with the next completion of another request.
    Timeout(Duration),
}

/// What the kernel tells of a request.
pub(crate) struct Event {
    /// The number that the request carried.
    pub(crate) number: u64,
    pub(crate) result: i32,
    /// Whether the request goes on.
    pub(crate) more: bool,
    /// The number of the buffer that the kernel has taken, if it had to.
    pub(crate) buffer: Option<u16>,
}

/// When the kernel posts completions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posts {
    /// Only while this thread is in `io_uring_enter`: task work is deferred to there
    /// (`IORING_SETUP_DEFER_TASKRUN`). In between the queue need not be looked at.
    WhileEntered,
    /// At any time.
    AtAnyTime,
}

/// A ring with both its queues borrowed once and for all, so that a look at them is a load each.
///
/// The places in the submission queue and the completions in hand are counted in this value; the
/// kernel learns of them, and this value of the kernel's, in [`enter`](Self::enter) and
/// [`refresh`](Self::refresh).
pub(crate) struct Ring {
    // In this order: dropping a queue stores its position into the mapping that the owner holds.
    submissions: SubmissionQueue<'static>,
    completions: CompletionQueue<'static>,
    status: CompletionStatus,
    posts: Posts,
    /// Whether the completion queue has to be looked at: it may hold something.
    watches: bool,
    /// Where a queued [`Request::Timeout`] points; the kernel copies it when it takes the request.
    timeout: Box<Timespec>,
    #[cfg(test)]
    pub(crate) stuck: bool,
    owner: Owned,
}

// SAFETY: the queues point into the ring, which goes along: an `IoUring` may be sent itself. The
// mappings that it points to are the process's and tied to no thread.
unsafe impl Send for Ring {}

impl Ring {
    pub(crate) fn new(ring: IoUring, posts: Posts) -> Self {
        let owner = Owned::new(ring);
        // SAFETY: what `owner` points to stays where it is until `owner` is dropped, which is after
        // everything that is borrowed from it here: see the order of the fields. It is only ever
        // borrowed shared, and these are its only queues.
        let (submissions, completions, status) = unsafe {
            let borrowed: &'static IoUring = owner.0.as_ref();
            let completions = borrowed.completion_shared();
            let status = completions.status();
            (borrowed.submission_shared(), completions, status)
        };
        Self {
            submissions,
            completions,
            status,
            posts,
            watches: posts == Posts::AtAnyTime,
            timeout: Box::default(),
            #[cfg(test)]
            stuck: false,
            owner,
        }
    }

    /// How many requests the submission queue takes.
    pub(crate) fn capacity(&self) -> usize {
        self.submissions.capacity()
    }

    /// How many requests are queued that the kernel has not taken. No load: both ends are known.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.submissions.len()
    }

    /// Whether the kernel has something that it hands over only when it is entered for events.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        // Ordering: Acquire, both, made by the crate; nothing is read on their account, an enter
        // follows.
        self.submissions.taskrun() || self.submissions.cq_overflow() || self.is_stuck()
    }

    /// Whether the kernel keeps completions for which the queue had no room.
    pub(crate) fn overflows(&self) -> bool {
        // Ordering: as above.
        self.submissions.cq_overflow()
    }

    /// As if the kernel had raised its flag for nothing, for a test: it does so too rarely.
    #[cfg(test)]
    fn is_stuck(&self) -> bool {
        self.stuck
    }

    #[cfg(not(test))]
    #[inline]
    #[allow(clippy::unused_self)] // in a test there is something to tell
    fn is_stuck(&self) -> bool {
        false
    }

    /// Whether there are completions to take.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        // Ordering: Acquire, made by the crate; pairs with the kernel's release of the queue's tail.
        self.watches && !self.status.is_empty()
    }

    /// Queues a request; `false` if there is no room.
    pub(crate) fn push(&mut self, request: Request, number: u64) -> bool {
        let entry = match request {
            Request::Poll { fd, events, multishot } => {
                opcode::PollAdd::new(Fd(fd), events).multi(multishot).build()
            }
            Request::Cancel { target } => opcode::AsyncCancel::new(target).build(),
            Request::Timeout(span) => {
                *self.timeout = Timespec::from(span);
                opcode::Timeout::new(&raw const *self.timeout).count(1).build()
            }
        };
        // SAFETY: the only memory that the entry refers to is `self.timeout`, which the kernel
        // copies in the enter that takes the entry. It lives as long as the queue.
        let entry = unsafe { Sqe::new(entry.user_data(number)) };
        self.push_entry(&entry)
    }

    /// Queues a request that carries its number; `false` if there is no room.
    pub(crate) fn push_entry(&mut self, entry: &Sqe) -> bool {
        // SAFETY: by the promise of `Sqe::new`.
        unsafe { self.submissions.push(&entry.0) }.is_ok()
    }

    /// Makes this thread the one that the ring belongs to. One system call, `io_uring_register`.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.owner.submitter().register_enable_rings()
    }

    /// Registers a ring of buffers under a number. One system call, `io_uring_register`.
    ///
    /// # Safety
    /// So many places from that address on are the kernel's, and what it is given by them, until it is
    /// unregistered, or for ever.
    pub(crate) unsafe fn register_buffers(
        &self,
        address: u64,
        places: u16,
        number: u16,
    ) -> io::Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.owner.submitter().register_buf_ring_with_flags(address, places, number, 0) }
    }

    /// The reverse. One system call, `io_uring_register`.
    pub(crate) fn unregister_buffers(&self, number: u16) -> io::Result<()> {
        self.owner.submitter().unregister_buf_ring(number)
    }

    /// Whether the kernel takes a timeout as an argument of the wait (5.11).
    pub(crate) fn waits_with_timeout(&self) -> bool {
        self.owner.params().is_feature_ext_arg()
    }

    /// Hands over what is queued, has the kernel hand over what it holds back, and waits for
    /// `want` completions, as long as `timeout` says. One system call, `io_uring_enter`.
    ///
    /// What the kernel did not take is still [`queued`](Self::queued) afterwards, also when the
    /// call failed.
    pub(crate) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        // Ordering: made by the crate. Release of the tail: the kernel sees whole requests. Acquire
        // of the head: the kernel has read what is written over next.
        self.submissions.sync();
        self.watches = true;
        let submitter = self.owner.submitter();
        // Both set GETEVENTS when they wait or when the kernel holds something back.
        let result = match timeout {
            None => submitter.submit_and_wait(want),
            Some(timeout) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&timeout))
            }
        };
        self.submissions.sync();
        result.map(drop)
    }

    /// Has the kernel hand over what it holds back, and nothing else. One system call,
    /// `io_uring_enter`.
    pub(crate) fn fetch(&mut self) -> io::Result<()> {
        self.watches = true;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no requests are handed over, and there is no argument that would have to be
        // valid.
        unsafe { self.owner.submitter().enter::<()>(0, 0, flags, None) }.map(drop)
    }

    /// Gives the places of the events taken back to the kernel, and sees those that came since.
    pub(crate) fn refresh(&mut self) {
        // Ordering: made by the crate. Release of the head: the events are read before the kernel
        // may write over them. Acquire of the tail: pairs with the kernel's release of it.
        self.completions.sync();
        self.watches = self.posts == Posts::AtAnyTime || !self.completions.is_empty();
    }

    /// Takes the oldest event in hand.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let entry = self.completions.next()?;
        Some(Event {
            number: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
            buffer: cqueue::buffer_select(entry.flags()),
        })
    }
}

/// An `IoUring` that never moves. Not a `Box`, which would claim to be its only borrower.
struct Owned(NonNull<IoUring>);

impl Owned {
    fn new(ring: IoUring) -> Self {
        Self(NonNull::from(Box::leak(Box::new(ring))))
    }
}

impl Deref for Owned {
    type Target = IoUring;

    fn deref(&self) -> &IoUring {
        // SAFETY: it comes from a box that was leaked and is freed by `drop` only; nobody borrows
        // it mutably.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it comes from a box, nobody else frees it, and what borrowed from it is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
