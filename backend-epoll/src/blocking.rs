#![forbid(unsafe_code)]
//! The blocking pool: up to 4 threads for calls that wait, where epoll can't watch the descriptor.
//!
//! It is started with the first operation that needs it, a thread at a time, while jobs wait and no
//! thread does. A thread that has had nothing to do for 10 seconds ends. Jobs queue without a
//! limit of their own: there are no more than operations in flight. Nothing is allocated for one but
//! at the high-water mark.
//!
//! A job has a duplicate of its descriptor, so the number is not used by another thread, and the
//! duplicate is closed before the operation ends. What is lent to it is touched by its thread only
//! until it is put among those that are done.
//!
//! # Order
//! Jobs and those that are done are handed over under one lock, which is held for a few instructions
//! and never during a call. `finished` is beside it for the worker to look at without the lock: it is
//! written under the lock after the entry, so who sees it and takes the lock finds the entry. The
//! worker says under the lock that it is about to wait, and only if nothing is done; who is done says
//! so under the same lock. So one of the two sees the other, and only a worker that waits costs a
//! write to the notifier.
//!
//! # The end
//! Dropping the reactor takes back what is not begun, has idle threads end, and waits for calls
//! that are under way for 100 ms at most. What takes longer is left to its thread, which holds on to
//! all that it needs and ends after it: what was lent stays lent, for that operation never ends.

mod jobs;

use std::collections::VecDeque;
use std::os::fd::{AsFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel::Token;
use evenkeel::io::Operation;
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::attempt::Work;
use crate::blocking::jobs::{Job, Jobs, Wanted};
use crate::descriptor;
use crate::notifier::Notifier;
use crate::signals::with_all_blocked;

/// How many threads at most.
const THREADS: usize = 4;

/// After so long without a job a thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// How long a dropped reactor waits for calls that are under way.
const PATIENCE: Duration = Duration::from_millis(100);

/// After so long an operation is tried again whose descriptor can't tell when.
const NAP: Duration = Duration::from_millis(1);

/// A call needs next to none; the rest is for sanitizers.
const STACK: usize = 256 * 1024;

/// What has come of a job.
#[derive(Debug)]
pub(crate) enum Done {
    /// The operation is done, or has failed.
    Ended(i32),
    /// A nap is over: it is to be tried again.
    Again(Work),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Runs,
    Waits,
    Gone,
}

#[derive(Debug)]
struct State {
    jobs: Jobs,
    done: VecDeque<(Token, Done)>,
    threads: usize,
    /// Of these in a call. The others take a job before they wait for one.
    busy: usize,
    owner: Owner,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A job waits, or the owner is gone.
    work: Condvar,
    /// A thread has ended, and the owner is gone.
    ended: Condvar,
    /// How many are done and not taken.
    finished: AtomicUsize,
    notifier: Arc<Notifier>,
}

/// The worker's side.
#[derive(Debug)]
pub(crate) struct Blocking {
    shared: Arc<Shared>,
    /// How many jobs are not back.
    away: usize,
}

impl Blocking {
    /// Without a thread.
    pub(crate) fn new(notifier: Arc<Notifier>) -> Self {
        let state = State {
            jobs: Jobs::new(),
            done: VecDeque::new(),
            threads: 0,
            busy: 0,
            owner: Owner::Runs,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Condvar::new(),
                ended: Condvar::new(),
                finished: AtomicUsize::new(0),
                notifier,
            }),
            away: 0,
        }
    }

    /// Takes a job in. An error means that there is no descriptor or no thread for it.
    pub(crate) fn submit(&mut self, token: Token, work: Work) -> Result<(), Errno> {
        let descriptor = match descriptor_of(&work) {
            Some(number) => {
                let number = descriptor::borrow(number).ok_or(Errno::BADF)?;
                Some(fcntl_dupfd_cloexec(number, 0)?)
            }
            None => None,
        };
        let mut state = self.shared.lock();
        state.jobs.push(Job { token, descriptor, work });
        if state.jobs.queued() <= state.threads - state.busy {
            drop(state);
            self.shared.work.notify_one();
        } else if state.threads < THREADS {
            state.threads += 1;
            let more = state.threads > 1;
            drop(state);
            if let Err(errno) = start(&self.shared) {
                let mut state = self.shared.lock();
                state.threads -= 1;
                // If there are others one of them will come to it.
                if !more && state.jobs.take_back(token).is_some() {
                    return Err(errno);
                }
            }
        }
        self.away += 1;
        Ok(())
    }

    /// Takes back a job that is not begun: true, and it has ended. One that is begun ends with its
    /// result, and at the next nap.
    pub(crate) fn cancel(&mut self, token: Token) -> bool {
        if self.away == 0 {
            return false;
        }
        let job = self.shared.lock().jobs.take_back(token);
        let cancelled = job.is_some();
        self.away -= usize::from(cancelled);
        cancelled
    }

    /// Whether something is done and not taken: one load.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        // Ordering: Acquire, pairs with the Release of `Shared::finish`.
        self.away > 0 && self.shared.finished.load(Ordering::Acquire) > 0
    }

    /// Takes what was done first.
    pub(crate) fn take(&mut self) -> Option<(Token, Done)> {
        let mut state = self.shared.lock();
        let (token, done) = state.done.pop_front()?;
        // Ordering: Release, for symmetry; the worker itself looks at it, and the lock orders it.
        self.shared.finished.store(state.done.len(), Ordering::Release);
        self.away -= 1;
        // It may have been cancelled up to now.
        Some(match (state.jobs.end(token), done) {
            (Wanted::NoMore, Done::Again(_)) => {
                (token, Done::Ended(-Errno::CANCELED.raw_os_error()))
            }
            (_, done) => (token, done),
        })
    }

    /// The worker is about to wait, and is to be woken when something is done. False if something is.
    pub(crate) fn announce_wait(&self) -> bool {
        if self.away == 0 {
            return true;
        }
        let mut state = self.shared.lock();
        let waits = state.done.is_empty();
        if waits {
            state.owner = Owner::Waits;
        }
        waits
    }

    /// The wait is over.
    pub(crate) fn retract_wait(&self) {
        if self.away > 0 {
            self.shared.lock().owner = Owner::Runs;
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.owner = Owner::Gone;
        while let Some(job) = state.jobs.begin() {
            drop(job);
        }
        self.shared.work.notify_all();
        let end = Instant::now() + PATIENCE;
        while state.threads > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The number of which a job needs a duplicate. A close is of the number itself, and a nap makes no
/// call.
fn descriptor_of(work: &Work) -> Option<RawFd> {
    match *work.operation() {
        Operation::Read { fd, .. }
        | Operation::Write { fd, .. }
        | Operation::ReadVectored { fd, .. }
        | Operation::WriteVectored { fd, .. }
        | Operation::Sync { fd, .. } => Some(fd),
        _ => None,
    }
}

/// Starts a thread that takes no signals: they are the program's threads' to handle.
fn start(shared: &Arc<Shared>) -> Result<(), Errno> {
    let shared = Arc::clone(shared);
    let builder = thread::Builder::new().name("evenkeel-blocking".into()).stack_size(STACK);
    with_all_blocked(|| builder.spawn(move || shared.run()))
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn run(&self) {
        let mut state = self.lock();
        while state.owner != Owner::Gone {
            if let Some(job) = state.jobs.begin() {
                state.busy += 1;
                drop(state);
                let (token, done) = job.run();
                state = self.finish(token, done);
                continue;
            }
            let waited = self.work.wait_timeout(state, IDLE);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && state.jobs.queued() == 0 {
                break;
            }
        }
        state.threads -= 1;
        self.ended.notify_one();
    }

    /// Puts it among those that are done, and wakes a worker that waits.
    fn finish(&self, token: Token, done: Done) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.busy -= 1;
        state.done.push_back((token, done));
        // Ordering: Release, pairs with the Acquire of `has_finished`.
        self.finished.store(state.done.len(), Ordering::Release);
        if state.owner == Owner::Waits {
            state.owner = Owner::Runs;
            drop(state);
            self.notifier.add();
            state = self.lock();
        }
        state
    }
}

impl Job {
    /// Makes the call. The duplicate is closed after it.
    fn run(mut self) -> (Token, Done) {
        let result = self.work.block(self.descriptor.as_ref().map(AsFd::as_fd));
        let done = match result {
            Err(Errno::AGAIN) => {
                thread::sleep(NAP);
                Done::Again(self.work)
            }
            Ok(number) => Done::Ended(number),
            Err(errno) => Done::Ended(-errno.raw_os_error()),
        };
        (self.token, done)
    }
}
