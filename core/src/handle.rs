//! The worker's handles: [`Handle`] on its own thread, [`Remote`] on every other.

#[cfg(feature = "alloc")]
use alloc::rc::Rc;
use core::cell::{RefCell, RefMut};
use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::time::Duration;

use crate::reactor::{Reactor, Readiness, Refused, Submitted, Token};
use crate::service::home::{Cancel, DriverHook, Home};
use crate::service::home_ref::HomeRef;
use crate::service::in_flight::InFlight;
#[cfg(feature = "std")]
use crate::service::join::stealable_of;
#[cfg(feature = "alloc")]
use crate::service::join::task_of;
use crate::service::join::{JoinHandle, task_in};
use crate::service::start::Start;
use crate::service::stats::Stats;
use crate::shared::Shared;
use crate::task::state::State;
use crate::task::storage::Place;
use crate::time::{Clock, Instant};
use crate::timers::{Interval, Sleep, Timeout, TimerQueue, Timers, ZeroPeriod};

/// The worker's reactor and clock, with the shared half beside them. It stays on the worker's
/// thread.
pub(crate) struct Driver<R, C: ?Sized = dyn Clock> {
    pub(crate) home: HomeRef,
    pub(crate) reactor: RefCell<R>,
    /// Last, so that it may be of any type to who holds a [`Handle`].
    pub(crate) clock: C,
}

impl<R: Reactor + 'static, C: Clock + 'static> Shared<Driver<R, C>> {
    /// What a task needs to reach the driver without knowing its type.
    pub(crate) fn hook(&self) -> DriverHook {
        match self {
            Self::Static(driver) => DriverHook {
                driver: NonNull::from(*driver).cast(),
                cancel: cancel::<R, C>,
                #[cfg(feature = "std")]
                now: now::<R, C>,
                handle: handle_of_static::<R, C>,
            },
            #[cfg(feature = "alloc")]
            Self::Counted(driver) => {
                // It is the pointer of the `Rc` itself, not of a reference into it, since
                // `handle_of_counted` makes an `Rc` of it again.
                // SAFETY: an `Rc` never points to null.
                let driver = unsafe { NonNull::new_unchecked(Rc::as_ptr(driver).cast_mut()) };
                DriverHook {
                    driver: driver.cast(),
                    cancel: cancel::<R, C>,
                    #[cfg(feature = "std")]
                    now: now::<R, C>,
                    handle: handle_of_counted::<R, C>,
                }
            }
        }
    }

    pub(crate) fn handle(&self) -> Handle<R> {
        let driver: Shared<Driver<R>> = match self {
            Self::Static(driver) => Shared::Static(*driver),
            #[cfg(feature = "alloc")]
            Self::Counted(driver) => Shared::Counted(Rc::<Driver<R, C>>::clone(driver)),
        };
        Handle { driver }
    }
}

/// # Safety
/// `driver` is a `Driver<R, C>` that is alive, on its own thread.
unsafe fn cancel<R: Reactor, C>(driver: NonNull<()>, token: Token) -> Cancel {
    // SAFETY: passed on to the caller.
    let driver = unsafe { driver.cast::<Driver<R, C>>().as_ref() };
    match driver.reactor.try_borrow_mut() {
        Ok(mut reactor) => {
            reactor.cancel(token);
            Cancel::Asked
        }
        Err(_) => Cancel::ReactorBusy,
    }
}

/// # Safety
/// `driver` is a `Driver<R, C>` that is alive, on its own thread.
#[cfg(feature = "std")]
unsafe fn now<R, C: Clock>(driver: NonNull<()>) -> Instant {
    // SAFETY: passed on to the caller.
    unsafe { driver.cast::<Driver<R, C>>().as_ref() }.clock.now()
}

/// # Safety
/// `driver` is a `Driver<R, C>` in a static, on its own thread; `to` has room for a `Handle<R>`.
unsafe fn handle_of_static<R: Reactor + 'static, C: Clock + 'static>(
    driver: NonNull<()>,
    to: NonNull<()>,
) {
    // SAFETY: passed on to the caller.
    unsafe {
        let driver: &'static Driver<R, C> = driver.cast().as_ref();
        to.cast::<Handle<R>>().write(Shared::Static(driver).handle());
    }
}

/// # Safety
/// `driver` is the pointer of an `Rc<Driver<R, C>>` that is held, on its own thread; `to` has room
/// for a `Handle<R>`.
#[cfg(feature = "alloc")]
unsafe fn handle_of_counted<R: Reactor + 'static, C: Clock + 'static>(
    driver: NonNull<()>,
    to: NonNull<()>,
) {
    let driver = driver.cast::<Driver<R, C>>().as_ptr().cast_const();
    // SAFETY: passed on to the caller; the count that `from_raw` takes over is added before.
    unsafe {
        Rc::increment_strong_count(driver);
        to.cast::<Handle<R>>().write(Shared::Counted(Rc::from_raw(driver)).handle());
    }
}

/// Why an operation was not accepted. The operation comes back.
#[derive(Debug)]
#[non_exhaustive]
pub enum SubmitError<Operation, Error> {
    /// As many operations are in flight as the worker has room for. Await one, or give the worker
    /// more room ([`WorkerConfig::operations`](crate::WorkerConfig::operations)).
    Full {
        /// The operation.
        operation: Operation,
        /// How many there is room for.
        capacity: usize,
    },
    /// The worker has ended.
    Ended(Operation),
    /// The reactor refused it.
    Refused {
        /// The operation.
        operation: Operation,
        /// Why.
        error: Error,
    },
}

impl<Operation, Error: fmt::Display> fmt::Display for SubmitError<Operation, Error> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity, .. } => write!(
                f,
                "all {capacity} operations of the worker are in flight; await one of them, or \
                 give the worker more room"
            ),
            Self::Ended(_) => f.write_str("the worker has ended and takes no more operations"),
            Self::Refused { error, .. } => write!(f, "the reactor refused the operation: {error}"),
        }
    }
}

impl<Operation: fmt::Debug, Error: fmt::Debug + fmt::Display> core::error::Error
    for SubmitError<Operation, Error>
{
}

/// Why there is no slot for an operation.
enum NoVacancy {
    Ended,
    Full { capacity: usize },
}

/// A worker's handle on the worker's own thread: spawns pinned tasks and submits operations.
///
/// Cloning it costs a plain increment, or nothing if the worker is in a static. It may outlive its
/// worker; it then keeps the reactor alive, and refuses what it is asked.
pub struct Handle<R: 'static> {
    driver: Shared<Driver<R>>,
}

impl<R> Clone for Handle<R> {
    fn clone(&self) -> Self {
        Self { driver: self.driver.clone() }
    }
}

impl<R: Reactor + 'static> Handle<R> {
    /// The handle of the worker that ticks here.
    ///
    /// # Safety
    /// The worker of `home` has a reactor of type `R` and is now ticking in this very context.
    unsafe fn of_ticking(home: &Home) -> Self {
        let hook = home.driver().expect("a worker that ticks has its driver");
        let mut handle = MaybeUninit::uninit();
        // SAFETY: the hook is a driver's of this type, which the worker still holds, on its own
        // thread; it writes the handle.
        unsafe {
            (hook.handle)(hook.driver, NonNull::from(&mut handle).cast());
            handle.assume_init()
        }
    }

    /// The time on the worker's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.driver.clock.now()
    }

    /// Spawns a task at the back of the local lane. It need not be `Send`: it never leaves this
    /// worker. One allocation, for future, header and output together; no system call.
    ///
    /// If the worker has ended, the future is dropped and the handle's output is
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled).
    #[cfg(feature = "alloc")]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let home = &self.driver.home;
        let (task, handle) = task_of(home.clone(), future, State::spawned_here());
        home.adopt_and_queue(task);
        handle
    }

    /// As [`spawn`](Self::spawn), but into a place that was reserved in a
    /// [`TaskStorage`](crate::TaskStorage): allocates nothing. A future that does not fit its place
    /// does not compile.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), evenkeel::testing::SimError> {
    /// # use evenkeel::testing::{SimReactor, VirtualClock};
    /// # use evenkeel::{TaskStorage, Worker, WorkerConfig, task_size};
    /// async fn answer() -> u32 {
    ///     42
    /// }
    /// static ANSWER: TaskStorage<{ task_size(&answer) }> = TaskStorage::new("answer");
    ///
    /// # let clock = VirtualClock::new();
    /// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
    /// let task = worker.handle().spawn_in(ANSWER.reserve().unwrap(), answer());
    /// while !task.is_finished() {
    ///     worker.tick()?;
    /// }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    pub fn spawn_in<F, const BYTES: usize>(
        &self,
        place: Place<BYTES>,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let home = &self.driver.home;
        let (task, handle) = task_in(place, home.clone(), future, State::spawned_here());
        home.adopt_and_queue(task);
        handle
    }

    /// Spawns a task that other workers of the [`Team`](crate::Team) may steal, at the back of the
    /// local lane. One allocation, for future, header and output together; a system call only if
    /// another worker idles, which is woken.
    ///
    /// On a worker that is in no team it is a task like any other: nobody steals it.
    ///
    /// If the worker has ended, and no other of its team is there, the future is dropped and the
    /// handle's output is [`JoinError::Cancelled`](crate::JoinError::Cancelled).
    #[cfg(feature = "std")]
    pub fn spawn_stealable<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let home = &self.driver.home;
        if !home.is_in_team() {
            return self.spawn(future);
        }
        let (task, handle) = stealable_of(home.clone(), future);
        home.take_in_and_queue_stealable(task);
        handle
    }

    /// Whether a task that has been running for a while keeps somebody waiting: a task in the
    /// worker's inbox or its `io` lane, what the reactor has ready, a poll or a timer that is due,
    /// or who asked the worker to end. A long loop asks this every so often, and yields when told
    /// so. Tasks in the local lane never count as waiting.
    ///
    /// A few loads; the clock is read once in 64 calls, so that a timer or a poll that becomes due
    /// may be noticed that much later. No system call, no allocation.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), evenkeel::testing::SimError> {
    /// # use evenkeel::testing::{SimReactor, VirtualClock};
    /// # use evenkeel::{Worker, WorkerConfig, yield_now};
    /// # let clock = VirtualClock::new();
    /// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
    /// let handle = worker.handle();
    /// let sum = worker.handle().spawn(async move {
    ///     let mut sum = 0_u64;
    ///     for number in 0..100_000 {
    ///         sum += number;
    ///         if handle.should_yield() {
    ///             yield_now().await;
    ///         }
    ///     }
    ///     sum
    /// });
    /// worker.tick()?; // Nobody waits, so it goes on to its end.
    /// assert!(sum.is_finished());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    #[must_use]
    pub fn should_yield(&self) -> bool {
        let Driver { home, reactor, clock } = &*self.driver;
        if home.has_remote() || home.has_io() || home.is_stopping() {
            return true;
        }
        let readiness = reactor.try_borrow_mut().map_or(Readiness::Quiet, |mut it| it.readiness());
        let timer_due = home.timers().next_deadline().unwrap_or(Instant::FAR_FUTURE);
        let end = match readiness {
            Readiness::Ready => return true,
            Readiness::Quiet => timer_due,
            Readiness::Unknown => timer_due.min(home.slice().poll_due()),
        };
        end != Instant::FAR_FUTURE && home.slice().is_over(end, || clock.now())
    }

    /// Submits an operation to the reactor. The kernel has it after the reactor's next poll at the
    /// latest, which comes as soon as what the last one found has been served, and timers that were
    /// due with it: within 6 × [`POLL_BATCH`](crate::POLL_BATCH) + 3 dispatches, and three where
    /// there was nothing.
    ///
    /// Allocates nothing. Of system calls only those that the reactor makes to take it in.
    ///
    /// # Errors
    /// The operation comes back in the error if there is no room for it, or it can't be done.
    ///
    /// # Panics
    /// If called from inside the reactor.
    pub fn submit(
        &self,
        operation: R::Operation,
    ) -> Result<InFlight, SubmitError<R::Operation, R::Error>> {
        let home = &self.driver.home;
        let (mut reactor, token) = match self.vacancy() {
            Ok(vacancy) => vacancy,
            Err(NoVacancy::Ended) => return Err(SubmitError::Ended(operation)),
            Err(NoVacancy::Full { capacity }) => {
                return Err(SubmitError::Full { operation, capacity });
            }
        };
        if let Err(refused) = self.hand_in(&mut reactor, token, operation) {
            // SAFETY: the worker's thread; the reactor did not keep the token.
            unsafe { home.operations().give_back(token) };
            let (operation, error) = (refused.operation, refused.error);
            return Err(SubmitError::Refused { operation, error });
        }
        // SAFETY: just allocated.
        Ok(unsafe { InFlight::new(home.clone(), token) })
    }

    /// A slot for an operation, and the reactor that is to have it.
    ///
    /// # Panics
    /// If called from inside the reactor.
    fn vacancy(&self) -> Result<(RefMut<'_, R>, Token), NoVacancy> {
        let home = &self.driver.home;
        if home.is_ending() {
            return Err(NoVacancy::Ended);
        }
        // First of all, since it is what may panic.
        let mut reactor = self.driver.reactor.borrow_mut();
        // SAFETY: a handle does not leave the worker's thread.
        let mut vacant = unsafe { home.operations().allocate() };
        if vacant.is_none() {
            drop(reactor); // Cancels may have to be asked for.
            home.reclaim();
            reactor = self.driver.reactor.borrow_mut();
            // SAFETY: as above.
            vacant = unsafe { home.operations().allocate() };
        }
        match vacant {
            Some(token) => Ok((reactor, token)),
            None => Err(NoVacancy::Full { capacity: home.operations().capacity() }),
        }
    }

    /// Gives the reactor an operation, under the token of the slot that was just allocated for it.
    fn hand_in(
        &self,
        reactor: &mut R,
        token: Token,
        operation: R::Operation,
    ) -> Result<(), Refused<R::Operation, R::Error>> {
        if reactor.submit(token, operation)? == Submitted::Armed {
            self.driver.home.count_armed(|armed| armed + 1);
        }
        Ok(())
    }

    /// The handle for other threads.
    #[must_use]
    pub fn remote(&self) -> Remote<R> {
        Remote { home: self.driver.home.clone(), reactor: PhantomData }
    }
}

/// Timers. They belong to the worker: they fire while it is ticked, into its `io` lane, at the first
/// look at the clock that finds them due, which comes within a clock stride (about a microsecond; 64
/// dispatches when they suddenly take longer). They keep their order, and are never early.
///
/// Nothing here allocates or makes a system call. What is returned stays on the worker's thread, but
/// may be polled by any task there, through any combinator.
impl<R: Reactor + 'static> Handle<R> {
    /// A future that is ready so long after now, at the earliest. It gives way at least once, so
    /// with no time at all it is a yield that waits for the next look at the clock.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # fn main() -> Result<(), evenkeel::testing::SimError> {
    /// # use evenkeel::testing::{SimReactor, VirtualClock};
    /// # use evenkeel::{Worker, WorkerConfig};
    /// use core::time::Duration;
    ///
    /// # let clock = VirtualClock::new();
    /// # let mut worker = Worker::new(SimReactor::new(&clock), clock, WorkerConfig::default());
    /// let handle = worker.handle();
    /// let task = worker.handle().spawn(async move {
    ///     let start = handle.now();
    ///     handle.sleep(Duration::from_millis(5)).await;
    ///     assert!(handle.now() - start >= Duration::from_millis(5));
    ///
    ///     let never = core::future::pending::<()>();
    ///     assert!(handle.timeout(Duration::from_millis(2), never).await.is_err());
    /// });
    /// # while !task.is_finished() {
    /// #     if worker.tick()?.rest == evenkeel::Rest::Idle && !task.is_finished() {
    /// #         worker.park(evenkeel::Wait::Forever)?;
    /// #     }
    /// # }
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "testing"))]
    /// # fn main() {}
    /// ```
    pub fn sleep(&self, span: Duration) -> Sleep<WorkerTimers<R>> {
        self.timers().sleep(span)
    }

    /// A future that is ready at this time, at the earliest.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep<WorkerTimers<R>> {
        self.timers().sleep_until(deadline)
    }

    /// A future that gives up so long after now.
    pub fn timeout<F: Future>(&self, span: Duration, future: F) -> Timeout<F, WorkerTimers<R>> {
        self.timers().timeout(span, future)
    }

    /// A future that gives up at this time.
    pub fn timeout_at<F: Future>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F, WorkerTimers<R>> {
        self.timers().timeout_at(deadline, future)
    }

    /// A tick each period, the first of them one period after now. They don't drift; what becomes
    /// of those that are missed is said by [`MissedTicks`](crate::timers::MissedTicks).
    ///
    /// # Errors
    /// If the period is zero.
    pub fn interval(&self, period: Duration) -> Result<Interval<WorkerTimers<R>>, ZeroPeriod> {
        self.timers().interval(period)
    }

    /// A tick at `first`, and then one each period.
    ///
    /// # Errors
    /// If the period is zero.
    pub fn interval_at(
        &self,
        first: Instant,
        period: Duration,
    ) -> Result<Interval<WorkerTimers<R>>, ZeroPeriod> {
        self.timers().interval_at(first, period)
    }

    fn timers(&self) -> WorkerTimers<R> {
        WorkerTimers { handle: self.clone() }
    }
}

/// How the timers that a [`Handle`] gives reach their worker.
pub struct WorkerTimers<R: 'static> {
    handle: Handle<R>,
}

// SAFETY: the timers are the shared half's, which the driver refers to for ever and the handle keeps
// in place, and the handle is never exchanged.
unsafe impl<R> Timers for WorkerTimers<R> {
    fn timers(&self) -> &TimerQueue {
        self.handle.driver.home.timers()
    }
}

impl<R> Clock for WorkerTimers<R> {
    fn now(&self) -> Instant {
        self.handle.driver.clock.now()
    }
}

impl<R> fmt::Debug for WorkerTimers<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerTimers").finish_non_exhaustive()
    }
}

impl<R> fmt::Debug for Handle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// What the futures of operations on descriptors do with their slots.
#[cfg(feature = "io")]
mod holding {
    use super::{Handle, NoVacancy};
    use crate::operation::{Held, Orphaned};
    use crate::reactor::{Reactor, Token};
    use core::task::{Poll, Waker};

    impl<R> Handle<R> {
        /// The future leaves an operation before it has its result. The operation is cancelled at
        /// once, so that its descriptor may be closed.
        ///
        /// # Safety
        /// As for [`poll_holding`](Self::poll_holding); the future does not come back.
        pub(crate) unsafe fn leave(&self, token: Token) {
            // SAFETY: passed on to the caller; a handle does not leave the worker's thread.
            unsafe { self.driver.home.leave_here(token) };
        }
    }

    /// Why an operation that holds something was not started.
    pub(crate) enum NotStarted<E> {
        Ended,
        Full { capacity: usize },
        Refused(E),
    }

    impl<R: Reactor + 'static> Handle<R> {
        /// Has a value held by a slot, and submits the operation that is made of it in its place.
        pub(crate) fn submit_holding<T: Held>(
            &self,
            value: T,
            make: impl FnOnce(&mut T) -> Result<R::Operation, R::Error>,
        ) -> Result<Token, (T, NotStarted<R::Error>)> {
            let operations = self.driver.home.operations();
            let (mut reactor, token) = match self.vacancy() {
                Ok(vacancy) => vacancy,
                Err(NoVacancy::Ended) => return Err((value, NotStarted::Ended)),
                Err(NoVacancy::Full { capacity }) => {
                    return Err((value, NotStarted::Full { capacity }));
                }
            };
            let hold = operations.slot(token).hold();
            // SAFETY: the worker's thread; the slot was just allocated, so it holds nothing. The
            // place is not touched otherwise before the value is taken.
            let operation = make(unsafe { &mut *hold.put(value) });
            let started = operation.and_then(|operation| {
                self.hand_in(&mut reactor, token, operation).map_err(|refused| refused.error)
            });
            started.map(|()| token).map_err(|error| {
                // SAFETY: just put there; the reactor did not keep the token.
                let value = unsafe {
                    let value = hold.take();
                    operations.give_back(token);
                    value
                };
                (value, NotStarted::Refused(error))
            })
        }

        /// The look of the future at an operation that holds a `T`. When it is ready the future has
        /// left its slot.
        ///
        /// # Safety
        /// The token is of such an operation, submitted here, and has not been left; this is its one
        /// future, on the worker's thread.
        pub(crate) unsafe fn poll_holding<T: Held>(
            &self,
            token: Token,
            waker: &Waker,
        ) -> Poll<Result<(T, i32), Orphaned>> {
            let home = &self.driver.home;
            let operations = home.operations();
            // SAFETY: the caller's.
            match unsafe { operations.poll(token, waker) } {
                Poll::Pending => Poll::Pending,
                Poll::Ready(result) => {
                    let hold = operations.slot(token).hold();
                    // SAFETY: it has ended with a result, so the kernel has done with what is held.
                    let output = result.map(|result| (unsafe { hold.take() }, result));
                    // SAFETY: the caller's; the future does not come back.
                    unsafe { home.leave_here(token) };
                    Poll::Ready(output)
                }
            }
        }

        /// Asks for an early end of an operation whose future stays.
        ///
        /// # Panics
        /// If called from inside the reactor.
        pub(crate) fn cancel(&self, token: Token) {
            if !self.driver.home.is_ending() {
                self.driver.reactor.borrow_mut().cancel(token);
            }
        }
    }
}
#[cfg(feature = "io")]
pub(crate) use holding::NotStarted;

/// A worker's handle on other threads: submits tasks to its inbox, asks how it is, and stops it.
///
/// It may outlive its worker. A running worker costs its caller no system call; one that is parked
/// costs the first caller one.
///
/// It is for the very type of reactor that the worker has, not for a subtype or a supertype:
///
/// ```compile_fail
/// use evenkeel::Remote;
///
/// fn longer<'a>(remote: Remote<&'static str>) -> Remote<&'a str> {
///     remote
/// }
/// ```
pub struct Remote<R> {
    home: HomeRef,
    /// Only asked for by type, and for none but the worker's own: not even one that is longer- or
    /// shorter-lived.
    reactor: PhantomData<fn(R) -> R>,
}

impl<R> Clone for Remote<R> {
    fn clone(&self) -> Self {
        Self { home: self.home.clone(), reactor: PhantomData }
    }
}

impl<R> Remote<R> {
    /// Submits a task to the worker's inbox. It runs there and nowhere else. Never refused for want
    /// of room; one allocation, for future, header and output together.
    ///
    /// If the worker has ended, or ends first, the future is dropped and the handle's output is
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled).
    #[cfg(feature = "alloc")]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (task, handle) = task_of(self.home.clone(), future, State::spawned_elsewhere());
        self.home.hand_over(task);
        handle
    }

    /// As [`spawn`](Self::spawn), but into a place that was reserved in a
    /// [`TaskStorage`](crate::TaskStorage): allocates nothing, and may be called by an interrupt
    /// handler.
    pub fn spawn_in<F, const BYTES: usize>(
        &self,
        place: Place<BYTES>,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (task, handle) = task_in(place, self.home.clone(), future, State::spawned_elsewhere());
        self.home.hand_over(task);
        handle
    }

    /// Asks the worker to end: it drops what has not ended, on its own thread. Returns at once.
    pub fn stop(&self) {
        self.home.request_stop();
    }

    /// Whether the worker has announced that it parks and nobody has woken it yet. What it had to
    /// hand to the kernel has been handed over before that. Its last look may still take the
    /// announcement back.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.home.is_parked()
    }

    /// Whether the worker has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.home.is_closed()
    }

    /// How many operations are armed: the kernel has accepted them and they have not ended. None
    /// when the worker has.
    #[must_use]
    pub fn armed(&self) -> usize {
        self.home.armed()
    }

    /// How many operations could not be taken back from the reactor when the worker ended, within
    /// [`WorkerConfig::drain`](crate::WorkerConfig::drain): what they hold, such as buffers, is left to the
    /// kernel for good. None while it runs.
    #[cfg(feature = "io")]
    #[must_use]
    pub fn leaked(&self) -> usize {
        self.home.leaked()
    }

    /// What the worker has done since its start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.home.counts.read()
    }
}

impl<R: Reactor + 'static> Remote<R> {
    /// Submits a task whose future is made on the worker, with the worker's handle at hand: the
    /// future need not be `Send`, only what makes it. Otherwise as [`spawn`](Self::spawn).
    #[cfg(feature = "alloc")]
    pub fn spawn_with<Make, F>(&self, make: Make) -> JoinHandle<F::Output>
    where
        Make: FnOnce(Handle<R>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let future = self.start(make);
        let (task, handle) = task_of(self.home.clone(), future, State::spawned_elsewhere());
        self.home.hand_over(task);
        handle
    }

    /// As [`spawn_with`](Self::spawn_with), but into a place that was reserved in a
    /// [`TaskStorage`](crate::TaskStorage): allocates nothing, and may be called by an interrupt
    /// handler. The place must have room for the future and for what makes it, whichever is larger.
    pub fn spawn_with_in<Make, F, const BYTES: usize>(
        &self,
        place: Place<BYTES>,
        make: Make,
    ) -> JoinHandle<F::Output>
    where
        Make: FnOnce(Handle<R>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let future = self.start(make);
        let (task, handle) = task_in(place, self.home.clone(), future, State::spawned_elsewhere());
        self.home.hand_over(task);
        handle
    }

    /// The future of a task of this worker's, still to be made.
    fn start<Make, F>(&self, make: Make) -> impl Future<Output = F::Output> + use<Make, F, R>
    where
        Make: FnOnce(Handle<R>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        /// A pointer that goes with its task: the task holds a reference to what it points to.
        struct HomeOfTask(NonNull<Home>);
        // SAFETY: `Home` is `Sync`.
        unsafe impl Send for HomeOfTask {}

        let home = HomeOfTask(NonNull::from(&*self.home));
        let make_here = move || {
            let home = home;
            // SAFETY: called by the task's first poll: the task keeps the home alive, and its
            // worker, whose reactor is an `R` as its `Remote` says, is ticking on this thread.
            make(unsafe { Handle::of_ticking(home.0.as_ref()) })
        };
        // SAFETY: it goes into a pinned task.
        unsafe { Start::new(make_here) }
    }
}

impl<R> fmt::Debug for Remote<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("is_parked", &self.is_parked())
            .field("is_ended", &self.is_ended())
            .field("armed", &self.armed())
            .finish_non_exhaustive()
    }
}
