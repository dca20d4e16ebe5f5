//! Readiness from memory: a poll of Linux's asynchronous I/O, armed on the epoll descriptor.
//!
//! Its completion comes into a ring that the kernel shares with the process, so whether the set has
//! events is one load, where a look is a system call. Such a poll is for one event: it is armed anew
//! when that was taken, by one `io_submit` (0.28 µs, where a dry look is 0.17 µs; a completion is there
//! 0.1 µs after its event). If the set has events already it completes at once, so none is missed.
//!
//! # The contexts
//! To destroy a context takes 30 ms, since the kernel waits for all that might still look at it. So
//! none is destroyed: one that is not needed any more waits for the next reactor of the process, and
//! the last end with it. There are as many as there have been reactors at once.
//!
//! All of it is Linux's own, in no library that is used here besides: four system calls, and the
//! ring's layout (`struct aio_ring` in the kernel's `fs/aio.c`, which tells by its magic number and its
//! features whether it may be read).

use std::hint;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// `struct iocb`.
#[repr(C)]
struct Request {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    flags_of_call: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    notifies: u32,
}

/// `IOCB_CMD_POLL` (Linux 4.18).
const POLL: u16 = 5;
const POLL_IN: u64 = 1;

/// `struct aio_ring`, without its events.
#[repr(C)]
struct Ring {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_length: u32,
}

const MAGIC: u32 = 0xa10a_10a1;

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

/// A context of the process, whose number is where its ring is.
#[derive(Debug)]
struct Context(NonNull<Ring>);

// SAFETY: the ring is the process's, and whoever has the context is the one who reads it.
unsafe impl Send for Context {}

/// The next poll's number: no two of the process have the same.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// How often the memory is looked at for the end of a poll that was cancelled: some milliseconds.
const LOOKS_AT_THE_END: u32 = 1_000_000;

/// Those that no reactor has.
static SPARE: Mutex<Vec<Context>> = Mutex::new(Vec::new());

impl Context {
    /// One that is spare, or a new one; none if the kernel or a sandbox has none to give.
    fn get() -> Option<Self> {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.or_else(Self::new)
    }

    fn new() -> Option<Self> {
        let mut context: usize = 0;
        // SAFETY: the kernel writes the number to where the pointer points.
        let set_up = unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) };
        if set_up != 0 {
            return None;
        }
        let ring = NonNull::new(ptr::with_exposed_provenance_mut::<Ring>(context))?;
        // SAFETY: the number of a context is where its ring is mapped, in each kernel that has a
        // magic number there, and the mapping stays: no context is destroyed but below.
        let readable = unsafe {
            (*ring.as_ptr()).magic == MAGIC
                && (*ring.as_ptr()).incompatible == 0
                && (*ring.as_ptr()).header_length as usize >= size_of::<Ring>()
                && (*ring.as_ptr()).events > 0
        };
        if !readable {
            // SAFETY: the context's own number; nobody else has it.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
            return None;
        }
        Some(Self(ring))
    }

    fn number(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    fn ring(&self) -> &Ring {
        // SAFETY: mapped as long as the process lives; what the kernel writes is atomic, or written
        // before it is seen by way of what is.
        unsafe { self.0.as_ref() }
    }

    /// Takes the oldest event.
    fn take(&self) -> Option<Event> {
        let ring = self.ring();
        // Ordering: Relaxed, this is the one who writes it.
        let head = ring.head.load(Ordering::Relaxed);
        // Ordering: Acquire, pairs with the kernel's barrier between the event and the tail.
        if head == ring.tail.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the events follow the header, as many as it says; the head is one of them, and the
        // kernel writes it no more until the head has moved on.
        let event = unsafe {
            let events = self.0.as_ptr().cast::<u8>().add(ring.header_length as usize);
            let place = (head % ring.events) as usize * size_of::<Event>();
            events.add(place).cast::<Event>().read_unaligned()
        };
        // Ordering: Release, pairs with the kernel's read of the head: the event has been read.
        ring.head.store((head + 1) % ring.events, Ordering::Release);
        Some(event)
    }
}

/// Whether the poll is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Armed,
    Fired,
}

/// The poll on one epoll descriptor.
pub(crate) struct AioPoll {
    /// There until the drop.
    context: Option<Context>,
    request: Box<Request>,
    state: State,
}

// SAFETY: the request is this one's own, and what is in it are numbers.
unsafe impl Send for AioPoll {}

impl AioPoll {
    /// None where there is nothing of the kind: an old kernel, a sandbox, or as many contexts as the
    /// system allows (the sysctl `fs.aio-max-nr`).
    pub(crate) fn new(epoll: &OwnedFd) -> Option<Self> {
        let request = Request {
            data: 0,
            key: 0,
            flags_of_call: 0,
            opcode: POLL,
            priority: 0,
            descriptor: epoll.as_raw_fd().cast_unsigned(),
            buffer: POLL_IN,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: 0,
            notifies: 0,
        };
        let context = Some(Context::get()?);
        let mut poll = Self { context, request: Box::new(request), state: State::Fired };
        // A sandbox may allow the one call and refuse the other, and an old kernel knows no polls.
        poll.arm();
        poll.is_armed().then_some(poll)
    }

    fn context(&self) -> &Context {
        self.context.as_ref().expect("it is there until the drop")
    }

    /// Whether it will tell of the next event, or has told.
    #[inline]
    pub(crate) fn is_armed(&self) -> bool {
        self.state == State::Armed
    }

    /// Whether there may be events in the set. Two loads; only while it [is armed](Self::is_armed)
    /// does a no mean anything.
    #[inline]
    pub(crate) fn has_fired(&self) -> bool {
        let ring = self.context().ring();
        // Ordering: Relaxed: the system call that follows reads the set's events, not this. The head
        // is written here only.
        ring.head.load(Ordering::Relaxed) != ring.tail.load(Ordering::Relaxed)
    }

    /// Takes in that it has fired, before a look.
    pub(crate) fn take(&mut self) {
        while let Some(event) = self.context().take() {
            // One of an earlier poll says nothing.
            if event.data == self.request.data {
                self.state = State::Fired;
            }
        }
    }

    /// Arms it, unless it is. One system call, `io_submit`. Where that fails it stays as it is, and
    /// only a look can tell.
    pub(crate) fn arm(&mut self) {
        if self.is_armed() {
            return;
        }
        if self.request.data == 0 {
            // Ordering: Relaxed, it is only to be another one each time.
            self.request.data = NUMBER.fetch_add(1, Ordering::Relaxed);
        }
        let context = self.context().number();
        let mut request: *mut Request = &raw mut *self.request;
        // SAFETY: the list has one request, which the kernel copies. It writes the request's `key`.
        let submitted =
            unsafe { libc::syscall(libc::SYS_io_submit, context, 1_isize, &raw mut request) };
        if submitted == 1 {
            self.state = State::Armed;
        }
    }
}

/// The context goes to the next reactor, when the kernel has told of this poll's end: its next user
/// need not know of it. That takes some microseconds. Where it does not come, nobody has the context
/// any more.
impl Drop for AioPoll {
    fn drop(&mut self) {
        if self.is_armed() {
            let context = self.context().number();
            let mut unused = [0_u64; 4];
            let request: *mut Request = &raw mut *self.request;
            // SAFETY: the request was submitted to this context; the kernel finds it by its address
            // and key, and has room for an event to write to. Where it is not found it has fired.
            unsafe {
                libc::syscall(libc::SYS_io_cancel, context, request, unused.as_mut_ptr());
            }
        }
        for _ in 0..LOOKS_AT_THE_END {
            self.take();
            if !self.is_armed() {
                let context = self.context.take();
                SPARE.lock().unwrap_or_else(PoisonError::into_inner).extend(context);
                return;
            }
            hint::spin_loop();
        }
    }
}

impl std::fmt::Debug for AioPoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AioPoll").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn set() -> (OwnedFd, OwnedFd) {
        let epoll = epoll::create(CreateFlags::CLOEXEC).expect("epoll is there");
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &event, EventData::new_u64(1), edge).expect("it can be watched");
        (epoll, event)
    }

    fn raise(event: &OwnedFd) {
        rustix::io::write(event, &1_u64.to_ne_bytes()).expect("it is far from full");
    }

    fn look(epoll: &OwnedFd) -> usize {
        let mut events = Vec::with_capacity(4);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), Some(&now))
            .expect("it can be looked at")
    }

    /// Bounded: a completion is there within microseconds.
    fn fires(poll: &AioPoll) -> bool {
        (0..10_000_000).any(|_| poll.has_fired())
    }

    #[test]
    fn it_fires_with_the_sets_first_event_and_again_when_armed_again() {
        let (epoll, event) = set();
        let Some(mut poll) = AioPoll::new(&epoll) else { return };
        for _ in 0..1000 {
            assert!(poll.is_armed() && !poll.has_fired());
            raise(&event);
            assert!(fires(&poll));
            poll.take();
            assert!(!poll.is_armed() && !poll.has_fired());
            assert_eq!(look(&epoll), 1);
            poll.arm();
        }
    }

    #[test]
    fn one_that_is_armed_too_late_fires_at_once() {
        let (epoll, event) = set();
        let Some(mut poll) = AioPoll::new(&epoll) else { return };
        raise(&event);
        assert!(fires(&poll));
        poll.take();
        // The event is in the set still.
        poll.arm();
        assert!(fires(&poll));
    }

    #[test]
    fn a_context_serves_the_next_and_nothing_of_the_last_is_taken_for_its_own() {
        for round in 0..200 {
            let (epoll, event) = set();
            let Some(mut poll) = AioPoll::new(&epoll) else { return };
            // What the last one was told is no event of this one's.
            poll.take();
            assert!(poll.is_armed(), "in round {round}");
            // Half of them are dropped armed, half with an event that nobody has taken.
            if round % 2 == 0 {
                raise(&event);
                assert!(fires(&poll));
            }
        }
    }

    #[test]
    fn events_from_another_thread_are_all_told() {
        let (epoll, event) = set();
        let Some(mut poll) = AioPoll::new(&epoll) else { return };
        let (asked, ask) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            while ask.recv().is_ok() {
                raise(&event);
            }
        });
        for _ in 0..20_000 {
            asked.send(()).expect("it is there");
            while !poll.has_fired() {
                std::hint::spin_loop();
            }
            poll.take();
            assert_eq!(look(&epoll), 1);
            poll.arm();
        }
        drop(asked);
        thread.join().expect("it ends");
    }
}
