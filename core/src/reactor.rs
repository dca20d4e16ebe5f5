#![forbid(unsafe_code)]
//! The reactor: a backend that accepts operations and reports completions.

use core::task::Waker;

use crate::time::Instant;

/// Names an operation in flight: the index of its slot, and the generation by which a completion
/// that arrives late is told from one of the slot's next tenant.
///
/// As a `u64`, the form in which it goes through a kernel, the generation is the upper half. Its
/// highest bit is never set, so a reactor may use such numbers for purposes of its own.
///
/// ```
/// use evenkeel::Token;
///
/// let token = Token::new(7, 3);
/// assert_eq!(Token::from_u64(token.as_u64()), token);
/// assert_eq!(token.as_u64() >> 63, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    pub(crate) const GENERATIONS: u32 = 0x7fff_ffff;

    /// The token of a slot's tenant. Of the generation the lower 31 bits count.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation: generation & Self::GENERATIONS }
    }

    /// The slot's place in its table, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// How often the slot had been vacated before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// As one number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The reverse of [`as_u64`](Self::as_u64).
    #[must_use]
    #[allow(clippy::cast_possible_truncation)] // the two halves, each 32 bits
    pub const fn from_u64(number: u64) -> Self {
        Self::new(number as u32, (number >> 32) as u32)
    }
}

/// A reactor's answer, without a system call, to "is anything waiting for me?".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// A poll now would find a completion, or has operations to hand to the kernel.
    Ready,
    /// A poll now would find nothing.
    Quiet,
    /// Only a poll can tell. The worker polls on a budget of time.
    Unknown,
}

/// How long a poll may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all: take what is there.
    Never,
    /// Until a completion, the notifier, or this point on the worker's clock, whichever comes first:
    /// how a reactor comes by that clock is [said there](Reactor#the-clock).
    /// Never earlier than that point for its sake: a timer would not be due yet.
    Until(Instant),
    /// Until a completion or the notifier.
    Forever,
}

impl Wait {
    /// No longer than until this point.
    #[must_use]
    pub(crate) fn at_most_until(self, deadline: Instant) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Until(end) => Self::Until(end.min(deadline)),
            Self::Forever => Self::Until(deadline),
        }
    }
}

/// What became of an operation that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// It is armed: the kernel has it.
    Armed,
    /// It waits to be armed by the next poll, which [`Polled::armed`] will count. Until then
    /// [`Reactor::readiness`] answers `Ready`.
    Queued,
}

/// An operation that the reactor did not accept, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused<Operation, Error> {
    /// It comes back: the caller may try again.
    pub operation: Operation,
    /// Why.
    pub error: Error,
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which.
    pub token: Token,
    /// What the number means is the reactor's to say. On Linux: the call's result, negative for an
    /// error number.
    pub result: i32,
}

/// The most completions that one poll reports: what bounds the time of a poll's aftermath.
pub const POLL_BATCH: usize = 32;

/// Where a poll puts what it found: room for [`POLL_BATCH`], no allocation.
///
/// ```
/// use evenkeel::{Completion, Completions, POLL_BATCH, Token};
///
/// let mut found = Completions::new();
/// assert_eq!(found.room(), POLL_BATCH);
/// found.push(Completion { token: Token::new(0, 0), result: 4 });
/// assert_eq!(found.as_slice().len(), 1);
/// ```
#[derive(Debug)]
pub struct Completions {
    found: [Completion; POLL_BATCH],
    count: usize,
}

impl Completions {
    /// An empty batch.
    #[must_use]
    pub const fn new() -> Self {
        const NONE: Completion = Completion { token: Token::new(0, 0), result: 0 };
        Self { found: [NONE; POLL_BATCH], count: 0 }
    }

    /// How many more fit.
    #[must_use]
    pub const fn room(&self) -> usize {
        POLL_BATCH - self.count
    }

    /// Adds one.
    ///
    /// # Panics
    /// If there is no [room](Self::room): a reactor leaves what does not fit to its next poll.
    pub fn push(&mut self, completion: Completion) {
        assert!(self.room() > 0, "a poll reports at most POLL_BATCH completions");
        self.found[self.count] = completion;
        self.count += 1;
    }

    /// What was found, oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Completion] {
        &self.found[..self.count]
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

impl Default for Completions {
    fn default() -> Self {
        Self::new()
    }
}

/// What a poll did besides finding completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Polled {
    /// How many operations that were [`Submitted::Queued`] the kernel has accepted meanwhile.
    pub armed: usize,
}

/// A backend: accepts operations, reports completions.
///
/// All calls come from the worker's thread. None of them may call back into the worker or its
/// handles; a handle that is used from inside panics.
///
/// A completion that a poll reports is an operation's last. Each operation that was accepted gets
/// one, cancelled or not, unless the reactor is dropped first. Dropping it frees everything that it
/// holds, on the worker's thread.
///
/// # The clock
/// No call brings the time along. A reactor that can wait until a point in time keeps a clock of its
/// own, with the same origin as the worker's: it is made with a copy of that clock, or a reference to
/// it, and asks it in [`poll`](Self::poll) how far off the point of a [`Wait::Until`] is. Where the
/// hardware counts by itself, both read the same counter.
///
/// # The notifier without an allocator
/// With `alloc` a notifier is made of an `Arc` by [`Wake`](https://doc.rust-lang.org/alloc/task/trait.Wake.html).
/// Without, it is made of a [`RawWakerVTable`](core::task::RawWakerVTable) whose functions touch a
/// static, so there is nothing to count or to free, and it is valid for ever. A whole one, for one
/// core and its interrupt handlers, is in `tests/embedded/src/notifier.rs` of the repository; it does
/// without `swap`, which some cores lack:
///
/// ```
/// use core::ptr;
/// use core::sync::atomic::{AtomicBool, Ordering};
/// use core::task::{RawWaker, RawWakerVTable, Waker};
///
/// static WOKEN: AtomicBool = AtomicBool::new(false);
///
/// const RAW: RawWaker = RawWaker::new(ptr::null(), &VTABLE);
/// static VTABLE: RawWakerVTable = RawWakerVTable::new(|_| RAW, wake, wake, |_| ());
///
/// unsafe fn wake(_: *const ()) {
///     // Ordering: Release, pairs with the Acquire of the wait that takes it.
///     WOKEN.store(true, Ordering::Release);
///     // Here goes what ends a wait that has begun: nothing, if the interrupt has done it already.
/// }
///
/// fn notifier() -> Waker {
///     // SAFETY: the table's functions touch nothing but a static.
///     unsafe { Waker::from_raw(RAW) }
/// }
///
/// notifier().wake();
/// // Ordering: Acquire, pairs with the Release of the wake.
/// assert!(WOKEN.swap(false, Ordering::Acquire), "at the end of a wait: it is taken, once");
/// ```
pub trait Reactor {
    /// What can be asked of it. A microcontroller's reactor offers bytes and edges where those of
    /// Linux offer file descriptors.
    type Operation;
    /// How it fails.
    type Error;

    /// A short name for reports.
    fn name(&self) -> &'static str;

    /// Answers from memory. Called on every dispatch: a few loads, no system call.
    fn readiness(&mut self) -> Readiness;

    /// Takes an operation in. A bounded number of system calls, few at most, and no waiting: what it
    /// makes is said by the reactor.
    ///
    /// # Errors
    /// The operation comes back when there is no room for it or it can't be done.
    fn submit(
        &mut self,
        token: Token,
        operation: Self::Operation,
    ) -> Result<Submitted, Refused<Self::Operation, Self::Error>>;

    /// Asks for an early end. The operation's completion comes all the same, through a poll. An
    /// unknown or ended token is ignored. One system call at most, no waiting.
    fn cancel(&mut self, token: Token);

    /// Hands to the kernel what is queued and reports what has ended: one system call that may
    /// wait, as long as `wait` says, and no more completions than there is room for. Beside it a bounded
    /// number of calls that do not wait, if operations are made by them: no step is long. What does not
    /// fit is left for the next poll, until which [`readiness`](Self::readiness) is not `Quiet`.
    ///
    /// An interrupted wait goes on with the time that is left, or ends early with nothing found.
    ///
    /// # Errors
    /// What can't be mended by trying again; the worker passes it on to who runs it. What was put
    /// into `found` before counts all the same.
    fn poll(&mut self, wait: Wait, found: &mut Completions) -> Result<Polled, Self::Error>;

    /// The thread-safe half: waking it ends a poll that waits, now or the next one. From any
    /// thread; on Linux one system call. It stays valid when the reactor is gone.
    fn notifier(&self) -> Waker;
}
