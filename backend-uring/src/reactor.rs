#![forbid(unsafe_code)]
//! The reactor: operations into the ring, completions out of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use std::{fmt, io, mem, thread};

use evenkeel::io::{Interest, Operation};
use evenkeel::{
    Clock, Completion, Completions, Instant, MonotonicClock, POLL_BATCH, Polled, Reactor,
    Readiness, Refused, Submitted, Token, Wait,
};
use io_uring::IoUring;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::buffers::Groups;
use crate::doubt::{Doubt, Flag};
use crate::kept::{Kept, Met, NotKept, Taken};
use crate::notifier::Notifier;
use crate::ring::{Event, Posts, Request, Ring};
use crate::setup::{Mode, Rung};

/// The numbers of the reactor's own requests. No token has the highest bit.
const OWN: u64 = 1 << 63;
const WAKE: u64 = OWN;
const CANCEL: u64 = OWN | 1;
const TIMEOUT: u64 = OWN | 2;

/// Places in the submission queue that operations and cancels leave free: for the watch on the
/// notifier, and for a timeout.
const RESERVED: usize = 2;

/// The most events that one look takes in hand, the reactor's own included.
const LOOK: usize = 2 * POLL_BATCH;

/// After the kernel has taken nothing of what is queued, for want of memory: how many looks at the
/// readiness go by before it counts as ready again, and how long a wait lasts.
const PATIENCE: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// How long the reactor's end waits for what the kernel has.
const DRAIN: Duration = Duration::from_millis(100);

/// The longest span that the kernel is asked to wait: 36 years, far from the end of its clock, which
/// comes 292 years after the start of the system. A wait that is longer is asked for again.
const LONGEST: Duration = Duration::from_nanos(1 << 60);

/// A reactor over `io_uring`.
///
/// It may be made on one thread and sent to another. With its first `submit`, `cancel` or `poll`
/// that enters the kernel it belongs to that thread; in [`Mode::Deferred`] the kernel refuses it to
/// all others from then on, with an error of the kind `AlreadyExists`.
///
/// Dropping it closes the ring. Operations in flight end without a completion. If some lend memory it
/// cancels them first, and waits until the kernel has let go of it, 100 ms at most; what it has not by
/// then, as a transfer from or to a slow file, it keeps, and what the reactor holds for it is leaked.
///
/// A process that forks does not share it with the child: there, using it ends in a fault. A
/// program that is started in its place inherits no descriptor.
///
/// To what a poll operation waits for the kernel adds `POLLRDHUP`, beside the errors and the hang-up
/// that poll(2) adds: that the other side will send no more ends a wait in either direction.
///
/// The kernel is not told of a worker's timers but as the end of a wait: while the worker runs its own
/// look at the clock is cheaper and sooner (`benches/kernel_timers.rs` says by how much).
///
/// The [example](crate) on the first page shows its use.
pub struct UringReactor {
    ring: Ring,
    rung: &'static Rung,
    notifier: Arc<Notifier>,
    clock: MonotonicClock,
    /// Whether the ring has been entered, and so belongs to a thread.
    bound: bool,
    watch: Watch,
    /// Whether the watch lasts over many wakes (Linux 5.13) or has to be renewed after each.
    multishot: bool,
    /// Whether the kernel takes a timeout as an argument of the wait, or as a request beside it.
    timed_wait: bool,
    /// What stands in the submission queue, oldest first: as long as that queue.
    queued: VecDeque<Queued>,
    /// Cancels that found no room there. Each token once, so no more than there are operations.
    /// Not empty only while the submission queue is full.
    cancels: VecDeque<Token>,
    wakes: Wakes,
    doubt: Doubt,
    /// The operations that lend memory, or may have to be tried again.
    kept: Kept,
    groups: Groups,
    /// Those of them that are to be asked for again and found no room. Not empty only while the
    /// submission queue is full.
    again: VecDeque<Token>,
    /// How many requests have been queued in all.
    pushed: u64,
    /// Operations that the kernel has taken since the last poll.
    armed: usize,
    /// Looks that go by before what is queued counts again: see [`PATIENCE`].
    patience: u32,
}

/// The watch on the notifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// It has to be put up before a wait.
    Down,
    /// The request is in the queue or in the kernel.
    Up,
}

/// The wakes that the watch has told of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Each has ended a wait.
    Answered,
    /// A poll that did not wait has met one, which is owed to the next that does.
    Owed,
}

/// Whose request it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    Operation,
    Own,
}

/// What is left of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    Span(Duration),
    Endless,
}

/// What became of the requests that were queued.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    /// The kernel took all of them.
    All,
    /// It took some, and did not wait.
    Some,
    /// It took none for the moment, and did not wait.
    None,
}

/// What a look at the completion queue found.
#[derive(Default)]
struct Reaped {
    /// Events of any kind.
    events: usize,
    /// Completions that were reported.
    reported: usize,
    /// Somebody wrote to the notifier.
    woken: bool,
}

impl UringReactor {
    pub(crate) fn over(ring: IoUring, granted: &'static Rung) -> io::Result<Self> {
        let posts = match granted.mode {
            Mode::Deferred => Posts::WhileEntered,
            Mode::Cooperative | Mode::Plain => Posts::AtAnyTime,
        };
        let ring = Ring::new(ring, posts);
        Ok(Self {
            rung: granted,
            notifier: Arc::new(Notifier::new()?),
            clock: MonotonicClock::new(),
            bound: false,
            watch: Watch::Down,
            multishot: true,
            timed_wait: ring.waits_with_timeout(),
            queued: VecDeque::with_capacity(ring.capacity()),
            cancels: VecDeque::with_capacity(ring.capacity()),
            wakes: Wakes::Answered,
            doubt: Doubt::default(),
            kept: Kept::default(),
            groups: Groups::default(),
            again: VecDeque::with_capacity(ring.capacity()),
            pushed: 0,
            armed: 0,
            patience: 0,
            ring,
        })
    }

    /// The mode that the kernel granted.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.rung.mode
    }

    /// The flags that the kernel granted and that tell the mode from others, as the kernel spells
    /// them: `SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG`, `COOP_TASKRUN|TASKRUN_FLAG`, `plain`.
    #[must_use]
    pub fn detail(&self) -> &'static str {
        self.rung.detail
    }

    /// Whether there is room for an operation or a cancel.
    fn has_room(&self) -> bool {
        self.ring.queued() + RESERVED < self.ring.capacity()
    }

    fn push(&mut self, request: Request, number: u64, whose: Queued) -> bool {
        let pushed = self.ring.push(request, number);
        if pushed {
            self.queued.push_back(whose);
            self.pushed += 1;
        }
        pushed
    }

    /// Queues the request of an operation that is kept, for which there is room.
    fn push_kept(&mut self, token: Token, whose: Queued) {
        let entry = self.kept.request(token, self.pushed);
        let pushed = self.ring.push_entry(&entry);
        debug_assert!(pushed, "the caller has looked for room");
        self.queued.push_back(whose);
        self.pushed += 1;
    }

    /// Asks again for an operation that is kept, as soon as there is room.
    fn ask_again(&mut self, token: Token) {
        if self.has_room() {
            self.push_kept(token, Queued::Own);
        } else {
            self.again.push_back(token);
        }
    }

    /// Queues what has waited for room.
    fn push_waiting(&mut self) {
        while self.has_room() {
            let Some(token) = self.again.pop_front() else { break };
            self.push_kept(token, Queued::Own);
        }
        while self.has_room() {
            let Some(token) = self.cancels.pop_front() else { return };
            self.push(Request::Cancel { target: token.as_u64() }, CANCEL, Queued::Own);
        }
    }

    /// Whether the request with this number stands in the submission queue still.
    fn is_queued(&self, number: u64) -> bool {
        number >= self.pushed - self.queued.len() as u64
    }

    /// Watches the notifier, from now on or still. `false` if there is no room for the request.
    fn put_watch_up(&mut self) -> bool {
        if self.watch == Watch::Down {
            let request = Request::Poll {
                fd: self.notifier.descriptor(),
                events: bits(PollFlags::IN),
                multishot: self.multishot,
            };
            if self.push(request, WAKE, Queued::Own) {
                self.watch = Watch::Up;
            }
        }
        self.watch == Watch::Up
    }

    /// Has the kernel tell when the time is over. `false` if there is no room for the request.
    fn set_timer(&mut self, timer: &mut Timer, span: Duration) -> bool {
        if *timer == Timer::Unset && self.push(Request::Timeout(span), TIMEOUT, Queued::Own) {
            *timer = Timer::Set;
        }
        *timer == Timer::Set
    }

    /// One `io_uring_enter`; before the first, `io_uring_register` enables the ring.
    fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<Entered> {
        if !self.bound {
            if self.rung.mode == Mode::Deferred {
                self.ring.enable()?;
            }
            self.bound = true;
        }
        let result = self.ring.enter(want, timeout);
        let taken = self.queued.len() - self.ring.queued();
        let operations = |whose: &Queued| *whose == Queued::Operation;
        self.armed += self.queued.drain(..taken).filter(operations).count();
        let rest = !self.queued.is_empty();
        self.push_waiting();

        let refused = match result {
            Ok(()) => false,
            Err(error) => match Errno::from_io_error(&error) {
                // They end a wait, before which the kernel takes what is queued.
                Some(Errno::INTR | Errno::TIME) => false,
                Some(Errno::AGAIN | Errno::BUSY) => true,
                Some(Errno::EXIST) => {
                    return Err(io::Error::new(
                        io::ErrorKind::AlreadyExists,
                        "the ring belongs to the thread that entered it first",
                    ));
                }
                _ => return Err(error),
            },
        };
        self.patience = if refused { PATIENCE } else { 0 };
        Ok(match (refused, rest) {
            (true, _) => Entered::None,
            (false, true) => Entered::Some,
            (false, false) => Entered::All,
        })
    }

    /// Hands over what is queued, without waiting.
    fn flush(&mut self) -> io::Result<Entered> {
        self.enter(0, None)
    }

    /// Hands over what is queued and waits for an event, as long as there is time left.
    fn enter_and_wait(&mut self, left: Left, timer: &mut Timer) -> io::Result<Entered> {
        // Without a place for the watch or the timer, or for what waits for one besides: make one, and
        // come back.
        let may_wait = self.put_watch_up() && self.again.is_empty() && self.cancels.is_empty();
        match left {
            Left::Endless if may_wait => self.enter(1, None),
            Left::Span(span) if may_wait && self.timed_wait => self.enter(1, Some(span)),
            Left::Span(span) if may_wait && self.set_timer(timer, span) => self.enter(1, None),
            _ => self.flush(),
        }
    }

    /// Gets what the kernel holds back although it has taken nothing of what is queued, which keeps
    /// it from handing over.
    #[cold]
    fn fetch(&mut self) -> io::Result<()> {
        match self.ring.fetch() {
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// Whether the kernel says that it holds something back, and said so before for nothing.
    fn is_in_doubt(&self) -> bool {
        self.doubt.is_raised() && !self.ring.overflows()
    }

    /// Whether there is a reason to enter the kernel.
    fn must_enter(&self, left: Left) -> bool {
        self.ring.queued() != 0
            || self.ring.holds_back()
            || (left != Left::Nothing && !self.ring.has_events())
    }

    /// How much is left of a wait.
    fn left(&self, wait: Wait) -> Left {
        match wait {
            Wait::Never => Left::Nothing,
            Wait::Forever | Wait::Until(Instant::FAR_FUTURE) => Left::Endless,
            Wait::Until(deadline) => match deadline - self.clock.now() {
                Duration::ZERO => Left::Nothing,
                span => Left::Span(span.min(LONGEST)),
            },
        }
    }

    /// Takes a bounded number of events, and no more completions than there is room for.
    fn reap(&mut self, found: &mut Completions) -> io::Result<Reaped> {
        let mut reaped = Reaped::default();
        let mut outcome = Ok(());
        self.ring.refresh();
        while reaped.events < LOOK && found.room() > 0 && outcome.is_ok() {
            let Some(event) = self.ring.next() else { break };
            reaped.events += 1;
            match event.number {
                // What became of a cancel shows in the completion of what was cancelled. A timeout
                // has done its duty by ending the wait.
                CANCEL | TIMEOUT => {}
                WAKE => {
                    reaped.woken = true;
                    outcome = self.woken(&event);
                }
                _ => reaped.reported += self.ended(&event, found),
            }
        }
        self.ring.refresh();
        outcome.map(|()| reaped)
    }

    /// An event of an operation. How many ended by it.
    fn ended(&mut self, event: &Event, found: &mut Completions) -> usize {
        let after = self.kept.event(event);
        if let Some((group, buffer)) = after.filled {
            self.groups.filled(group, buffer);
        }
        if let Some(group) = after.closed {
            self.groups.close(&self.ring, group);
        }
        if let Some(token) = after.ask {
            self.ask_again(token);
        }
        if let Some(token) = after.cancel {
            self.ask_for_end(token);
        }
        let Some((token, result)) = after.ended else { return 0 };
        found.push(Completion { token, result });
        1
    }

    /// Queues a cancel, as soon as there is room.
    fn ask_for_end(&mut self, token: Token) {
        if self.has_room() {
            self.push(Request::Cancel { target: token.as_u64() }, CANCEL, Queued::Own);
        } else if !self.cancels.contains(&token) {
            self.cancels.push_back(token);
        }
    }

    /// The watch on the notifier tells something. When it has ended it goes up again before the
    /// next wait: until then nobody needs it.
    fn woken(&mut self, event: &Event) -> io::Result<()> {
        // One that is cancelled tells of no wake.
        if event.result != -Errno::CANCELED.raw_os_error() {
            self.wakes = Wakes::Owed;
        }
        if event.more {
            return Ok(());
        }
        self.watch = Watch::Down;
        match event.result {
            result if result >= 0 => {}
            // The kernel does not know watches that last.
            result if result == -Errno::INVAL.raw_os_error() && self.multishot => {
                self.multishot = false;
            }
            result if result == -Errno::CANCELED.raw_os_error() => {}
            result => return Err(io::Error::from_raw_os_error(-result)),
        }
        // Those who wrote up to now are answered by the end of this poll, or of the next that waits.
        self.notifier.drain()
    }

    /// A look at the readiness while the kernel lacks the memory for what is queued.
    #[cold]
    fn lose_patience(&mut self) -> bool {
        self.patience -= 1;
        self.patience == 0
    }
}

/// The timeout beside a wait, where the kernel can't take it as an argument.
#[derive(PartialEq)]
enum Timer {
    Unset,
    Set,
}

fn bits(events: PollFlags) -> u32 {
    u32::from(events.bits())
}

fn watched_for(interest: Interest) -> u32 {
    bits(match interest {
        Interest::Readable => PollFlags::IN,
        Interest::Writable => PollFlags::OUT,
    })
}

/// The operations are on descriptors; the error is the system's.
impl Reactor for UringReactor {
    type Operation = Operation;
    type Error = io::Error;

    fn name(&self) -> &'static str {
        "uring"
    }

    /// `Ready` when a request is queued, when the kernel holds something back, and when the
    /// completion queue is not empty; else `Quiet`. Four loads, no system call. If the kernel has
    /// said so for nothing, time and again, `Unknown` until it has taken that back.
    ///
    /// A wake makes it `Ready` too, once the notifier is watched. While the kernel lacks the memory
    /// to take what is queued, only every 1000th look is `Ready` on account of it.
    #[inline]
    fn readiness(&mut self) -> Readiness {
        let queued = self.ring.queued() != 0 && (self.patience == 0 || self.lose_patience());
        if queued || self.ring.holds_back() || self.ring.has_events() {
            if queued || self.ring.has_events() || !self.is_in_doubt() {
                Readiness::Ready
            } else {
                Readiness::Unknown
            }
        } else {
            Readiness::Quiet
        }
    }

    /// Queues it for the next poll. Makes a system call, `io_uring_enter`, only when the queue is
    /// full.
    ///
    /// # Errors
    /// `WouldBlock` when the queue is full and the kernel takes nothing of it at the moment;
    /// otherwise what the system call said.
    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
    ) -> Result<Submitted, Refused<Operation, io::Error>> {
        if !self.has_room() {
            if let Err(error) = self.flush() {
                return Err(Refused { operation, error });
            }
            if !self.has_room() {
                let error = io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "the submission queue is full and the kernel takes nothing of it at the moment",
                );
                return Err(Refused { operation, error });
            }
        }
        if let Operation::Poll { fd, interest } = operation {
            // The kernel adds POLLERR, POLLHUP, POLLNVAL and POLLRDHUP to these.
            let request = Request::Poll { fd, events: watched_for(interest), multishot: false };
            self.push(request, token.as_u64(), Queued::Operation);
            return Ok(Submitted::Queued);
        }
        let mut group = self.kept.group_of(&operation);
        if let Some(group) = group {
            self.groups.stock(group);
        }
        if let Operation::ReceiveMany { pool, .. } = &operation {
            group = self.groups.open(&self.ring, pool).ok();
        }
        match self.kept.keep(token, operation, group) {
            Ok(Taken::ToBeAsked) => {
                self.push_kept(token, Queued::Operation);
                Ok(Submitted::Queued)
            }
            Ok(Taken::Flow(flow)) => {
                self.push_kept(flow, Queued::Own);
                Ok(Submitted::Armed)
            }
            Ok(Taken::Nothing) => Ok(Submitted::Armed),
            Err(NotKept(operation, errno)) => Err(Refused { operation, error: errno.into() }),
        }
    }

    /// Queues the cancel for the next poll. Makes a system call, `io_uring_enter`, only when the
    /// queue is full. If it remains full the token is kept, and queued as soon as there is room.
    ///
    /// An operation that is still queued is handed to the kernel first, by one `io_uring_enter`: what
    /// the kernel has taken holds on to its file, and the number of the descriptor is not needed any
    /// more.
    fn cancel(&mut self, token: Token) {
        while let Some(taker) = self.kept.taker_of(token) {
            self.kept.cancel(taker);
            self.ask_again(taker);
        }
        match self.kept.cancel(token) {
            Met::Here(group) => {
                if let Some(group) = group {
                    self.groups.close(&self.ring, group);
                }
                return self.ask_again(token);
            }
            Met::Over => return,
            Met::Asked(number) if self.is_queued(number) => {
                let _ = self.flush();
            }
            Met::NotKept | Met::Asked(_) | Met::Waits => {}
        }
        if !self.has_room() {
            // What keeps the kernel from working is reported by the poll that follows.
            let _ = self.flush();
        }
        self.ask_for_end(token);
    }

    /// One system call, `io_uring_enter`; none when nothing is queued or held back and there is
    /// something to report or no time to wait.
    ///
    /// A wait that a signal interrupts goes on with the time that is left. One that finds that the
    /// kernel took only a part of what was queued ends early, with nothing found. If the kernel took
    /// nothing, for want of memory, a second call gets what it holds back, and the thread sleeps for
    /// a millisecond before such a wait ends.
    ///
    /// A deadline is never early. The kernel may be late by the thread's timer slack, usually
    /// 50 µs.
    ///
    /// # Errors
    /// What `io_uring_enter` said, of the kind `AlreadyExists` on a thread that the ring does not
    /// belong to. Completions found before are in `found`.
    fn poll(&mut self, wait: Wait, found: &mut Completions) -> io::Result<Polled> {
        let wait = if found.room() > 0 { wait } else { Wait::Never };
        let waits = wait != Wait::Never;
        let mut left = self.left(wait);
        if waits && self.wakes == Wakes::Owed {
            left = Left::Nothing;
            // As after every wait, though this one does not begin.
            self.put_watch_up();
        }
        let mut timer = Timer::Unset;
        loop {
            let entered = if self.must_enter(left) {
                self.enter_and_wait(left, &mut timer)?
            } else {
                Entered::All
            };
            if entered == Entered::None && self.ring.holds_back() {
                self.fetch()?;
            }
            let reaped = self.reap(found)?;
            self.doubt
                .learn(reaped.events, if self.ring.holds_back() { Flag::Up } else { Flag::Down });
            if left == Left::Nothing || reaped.reported > 0 || reaped.woken {
                break;
            }
            left = self.left(wait);
            match entered {
                Entered::Some => break,
                Entered::None if reaped.events == 0 => {
                    match left {
                        Left::Nothing => {}
                        Left::Span(span) => thread::sleep(span.min(PAUSE)),
                        Left::Endless => thread::sleep(PAUSE),
                    }
                    break;
                }
                Entered::All | Entered::None if left == Left::Nothing => break,
                Entered::All | Entered::None => {}
            }
        }
        if waits {
            self.wakes = Wakes::Answered;
        }
        Ok(Polled { armed: mem::take(&mut self.armed) })
    }

    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.notifier))
    }
}

/// Takes back what the kernel has, since it ends the operations of a ring that is closed only by and by,
/// and may write to what they lend meanwhile.
impl Drop for UringReactor {
    fn drop(&mut self) {
        let end = self.clock.now() + DRAIN;
        let tokens: Vec<Token> = self.kept.tokens().collect();
        for token in tokens {
            self.cancel(token);
        }
        let mut found = Completions::new();
        while self.kept.calls() > 0 && self.clock.now() < end {
            found.clear();
            // On a thread that the ring does not belong to nothing can be taken back.
            if self.poll(Wait::Until(end), &mut found).is_err() {
                break;
            }
        }
        if self.kept.calls() > 0 {
            self.groups.leak();
        }
    }
}

impl fmt::Debug for UringReactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringReactor")
            .field("mode", &self.rung.mode)
            .field("queued", &self.queued.len())
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::mpsc;

    use super::*;
    use crate::setup::{Sizes, lowest, set_up};

    const SIZES: Sizes = Sizes { submissions: 16, completions: 32 };
    const LONG: Duration = Duration::from_mins(1);

    /// In each mode, with a bound on its time.
    fn in_each_mode(test: fn(UringReactor)) {
        for mode in Mode::ALL {
            let (ring, granted) = set_up(mode, SIZES).unwrap();
            bounded(UringReactor::over(ring, granted).unwrap(), test);
        }
    }

    fn bounded(reactor: UringReactor, test: fn(UringReactor)) {
        let (done, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            test(reactor);
            done.send(())
        });
        let end = end.recv_timeout(LONG);
        assert_ne!(end, Err(mpsc::RecvTimeoutError::Timeout), "no end");
        thread.join().unwrap().unwrap();
    }

    fn event() -> OwnedFd {
        use rustix::event::{EventfdFlags, eventfd};
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
    }

    fn raise(event: &OwnedFd) {
        rustix::io::write(event, &1_u64.to_ne_bytes()).unwrap();
    }

    fn readable(event: &OwnedFd) -> Operation {
        Operation::Poll { fd: event.as_raw_fd(), interest: Interest::Readable }
    }

    fn poll(reactor: &mut UringReactor, wait: Wait) -> (usize, Vec<Completion>) {
        let mut found = Completions::new();
        let polled = reactor.poll(wait, &mut found).unwrap();
        (polled.armed, found.as_slice().to_vec())
    }

    fn is_heard(reactor: &mut UringReactor) {
        let notifier = reactor.notifier();
        let thread = thread::spawn(move || notifier.wake());
        assert_eq!(poll(reactor, Wait::Forever), (0, vec![]));
        thread.join().unwrap();
    }

    #[test]
    fn the_watch_goes_up_again_after_it_ended() {
        in_each_mode(|mut reactor| {
            is_heard(&mut reactor);
            for _ in 0..10 {
                assert!(reactor.push(Request::Cancel { target: WAKE }, CANCEL, Queued::Own));
                while reactor.watch == Watch::Up {
                    poll(&mut reactor, Wait::Never);
                }
                is_heard(&mut reactor);
                assert_eq!(reactor.watch, Watch::Up);
            }
            // The wakes that were told before it ended are not told again.
            let soon = reactor.clock.now() + Duration::from_millis(5);
            assert_eq!(poll(&mut reactor, Wait::Until(soon)), (0, vec![]));
            assert!(reactor.clock.now() >= soon);
        });
    }

    #[test]
    fn a_flag_that_is_up_for_nothing_keeps_nobody_from_waiting() {
        in_each_mode(|mut reactor| {
            is_heard(&mut reactor);
            reactor.ring.stuck = true;
            assert_eq!(reactor.readiness(), Readiness::Ready);
            for _ in 0..2 {
                assert_eq!(poll(&mut reactor, Wait::Never), (0, vec![]));
            }
            assert_eq!(reactor.readiness(), Readiness::Unknown);
            let soon = reactor.clock.now() + Duration::from_millis(1);
            assert_eq!(poll(&mut reactor, Wait::Until(soon)), (0, vec![]));
            assert!(reactor.clock.now() >= soon);

            // Something happens: the kernel takes its flag down.
            let event = event();
            reactor.submit(Token::new(1, 1), readable(&event)).unwrap();
            assert_eq!(reactor.readiness(), Readiness::Ready, "what is queued is for a poll");
            assert_eq!(poll(&mut reactor, Wait::Never), (1, vec![]));
            raise(&event);
            assert_eq!(poll(&mut reactor, Wait::Forever).1.len(), 1);
            reactor.ring.stuck = false;
            assert_eq!(reactor.readiness(), Readiness::Quiet);
        });
    }

    #[test]
    fn a_wake_while_the_watch_is_down_ends_the_next_wait() {
        in_each_mode(|mut reactor| {
            is_heard(&mut reactor);
            assert!(reactor.push(Request::Cancel { target: WAKE }, CANCEL, Queued::Own));
            while reactor.watch == Watch::Up {
                poll(&mut reactor, Wait::Never);
            }
            reactor.notifier().wake();
            assert_eq!(poll(&mut reactor, Wait::Forever), (0, vec![]));
        });
    }

    #[test]
    fn a_watch_that_does_not_last_is_renewed_after_each_wake() {
        in_each_mode(|mut reactor| {
            reactor.multishot = false;
            for _ in 0..20 {
                is_heard(&mut reactor);
                let soon = reactor.clock.now() + Duration::from_micros(100);
                assert_eq!(poll(&mut reactor, Wait::Until(soon)), (0, vec![]));
                assert!(reactor.clock.now() >= soon, "woken again by the same wake");
            }
        });
    }

    #[test]
    fn a_kernel_without_lasting_watches_gets_the_other_kind() {
        in_each_mode(|mut reactor| {
            let unknown = Event {
                number: WAKE,
                result: -Errno::INVAL.raw_os_error(),
                more: false,
                buffer: None,
            };
            reactor.woken(&unknown).unwrap();
            assert!(!reactor.multishot);
            is_heard(&mut reactor);
            assert!(reactor.woken(&unknown).is_err(), "nothing is left to try");
        });
    }

    #[test]
    fn without_timed_waits_a_request_keeps_the_time() {
        in_each_mode(|mut reactor| {
            reactor.timed_wait = false;
            for micros in [1, 100, 5_000] {
                let deadline = reactor.clock.now() + Duration::from_micros(micros);
                assert_eq!(poll(&mut reactor, Wait::Until(deadline)), (0, vec![]));
                assert!(reactor.clock.now() >= deadline);
            }
            // The timers of waits that ended early end with them.
            let event = event();
            for _ in 0..100 {
                reactor.submit(Token::new(1, 1), readable(&event)).unwrap();
                let other = event.try_clone().unwrap();
                let thread = thread::spawn(move || raise(&other));
                let hour = reactor.clock.now() + Duration::from_hours(1);
                assert_eq!(poll(&mut reactor, Wait::Until(hour)).1.len(), 1);
                thread.join().unwrap();
                rustix::io::read(&event, &mut [0; 8]).unwrap();
            }
            is_heard(&mut reactor);
        });
    }

    #[test]
    fn without_a_place_for_the_watch_or_the_timer_a_wait_makes_one() {
        in_each_mode(|mut reactor| {
            reactor.timed_wait = false;
            let never = event();
            for wait in [Wait::Forever, Wait::Until(Instant::from_nanos(u64::MAX / 2))] {
                reactor.watch = Watch::Down;
                let full = Request::Poll { fd: never.as_raw_fd(), events: 1, multishot: false };
                while reactor.push(full, TIMEOUT, Queued::Own) {}
                is_heard_during(&mut reactor, wait);
            }
        });
    }

    fn is_heard_during(reactor: &mut UringReactor, wait: Wait) {
        let notifier = reactor.notifier();
        let thread = thread::spawn(move || notifier.wake());
        assert_eq!(poll(reactor, wait), (0, vec![]));
        thread.join().unwrap();
    }

    /// On the lowest rung a request that the kernel can't read ends the submission.
    #[test]
    fn what_a_short_submission_left_is_handed_over_by_the_next_poll() {
        let (ring, granted) = lowest(SIZES);
        bounded(UringReactor::over(ring, granted).unwrap(), |mut reactor| {
            let event = event();
            raise(&event);
            let bad = Request::Timeout(Duration::MAX);
            reactor.submit(Token::new(1, 1), readable(&event)).unwrap();
            reactor.submit(Token::new(2, 1), readable(&event)).unwrap();
            assert!(reactor.push(bad, TIMEOUT, Queued::Own));
            reactor.submit(Token::new(3, 1), readable(&event)).unwrap();
            let (armed, found) = poll(&mut reactor, Wait::Forever);
            assert_eq!((armed, found.len()), (2, 2));
            assert_eq!(reactor.readiness(), Readiness::Ready);
            let (armed, found) = poll(&mut reactor, Wait::Forever);
            assert_eq!((armed, found.len()), (1, 1));

            // A wait that could not begin ends early, with the rest still queued.
            let quiet = self::event();
            assert!(reactor.push(bad, TIMEOUT, Queued::Own));
            reactor.submit(Token::new(4, 1), readable(&quiet)).unwrap();
            assert_eq!(poll(&mut reactor, Wait::Forever), (0, vec![]));
            assert_eq!(reactor.readiness(), Readiness::Ready);
            assert_eq!(poll(&mut reactor, Wait::Never), (1, vec![]));
            assert_eq!(reactor.readiness(), Readiness::Quiet);
        });
    }
}
