//! A task without a worker: for a run loop of one's own.

use core::fmt;
use core::future::Future;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use crate::link::{Link, Linked};
use crate::task::TaskRef;
use crate::task::cell::{self, JoinError};
use crate::task::state::{Activated, References, Retired, State};
use crate::task::storage::Place;

/// Where a task goes that was woken. It may be called on any thread, and by an interrupt handler if
/// one wakes.
pub type Schedule = fn(Runnable);

/// A task that is to be polled: whoever has this, and nobody else, may poll it.
///
/// It is made by [`in_place`](Self::in_place), or with `alloc` by [`boxed`](Self::boxed), and comes
/// back, each time that the task is woken, to the function that was given there. It carries its own
/// [link](Link), so it can stand in a queue of [`run_queue`](crate::run_queue),
/// [`inbox`](crate::inbox) or [`steal`](crate::steal) without an allocation. Dropping it ends the
/// task: the future is dropped.
///
/// A [`Worker`](crate::Worker) has no need of it: this is for runtimes of one's own, made of these
/// pieces. Here is one:
///
/// ```
/// use evenkeel::inbox::{MpscQueue, Take};
/// use evenkeel::task::Runnable;
/// use evenkeel::{TaskStorage, yield_now};
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # static SUM: AtomicU32 = AtomicU32::new(0);
/// # fn add(count: u32) { SUM.fetch_add(count, Ordering::Relaxed); }
///
/// static READY: MpscQueue<Runnable> = MpscQueue::new();
/// static TASKS: TaskStorage<256, 2> = TaskStorage::new("tasks");
///
/// async fn count(times: u32) {
///     for _ in 0..times {
///         add(1);
///         yield_now().await;
///     }
/// }
///
/// for times in [2, 3] {
///     let place = TASKS.reserve()?;
///     READY.push(Runnable::in_place(place, count(times), |task| READY.push(task)));
/// }
/// let mut ready = READY.consumer().expect("there is one run loop");
/// while let Take::Item(task) = ready.take() {
///     task.run();
/// }
/// # assert_eq!(SUM.load(Ordering::Relaxed), 5);
/// assert!(TASKS.reserve().is_ok(), "both have ended, and may be spawned again");
/// # Ok::<(), evenkeel::StorageFull>(())
/// ```
#[must_use = "dropping it ends the task; run it, or put it into a queue"]
pub struct Runnable(TaskRef);

/// What became of a task that was [run](Runnable::run).
#[derive(Debug)]
pub enum Ran {
    /// It waits to be woken, or was woken meanwhile and is scheduled again.
    Pending,
    /// It has ended; with `std` the error is what it panicked with.
    Ended(Result<(), JoinError>),
}

impl Runnable {
    /// Makes a task in a place that was reserved for it. Allocates nothing.
    ///
    /// The place is vacant again when the task has ended and the last clone of its waker is gone. A
    /// future that does not fit does not compile.
    pub fn in_place<F, const BYTES: usize>(
        place: Place<BYTES>,
        future: F,
        schedule: Schedule,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(place.fill(future, State::spawned_alone(), home_of(schedule)))
    }

    /// Makes a task in a place that was reserved for it, of a future that can't be sent, as one with
    /// a [`Sleep`](crate::timers::Sleep) in it. Allocates nothing.
    ///
    /// ```
    /// use core::cell::Cell;
    /// use core::task::Waker;
    /// use core::time::Duration;
    /// use evenkeel::inbox::{MpscQueue, Take};
    /// use evenkeel::task::Runnable;
    /// use evenkeel::timers::{Timed, TimerQueue, Timers};
    /// use evenkeel::{Clock, Instant, TaskStorage};
    ///
    /// struct Millis(Cell<u64>);
    ///
    /// impl Clock for Millis {
    ///     fn now(&self) -> Instant {
    ///         Instant::from_nanos(self.0.get() * 1_000_000)
    ///     }
    /// }
    ///
    /// static READY: MpscQueue<Runnable> = MpscQueue::new();
    /// static SLEEPER: TaskStorage<512> = TaskStorage::new("sleeper");
    ///
    /// // On bare metal a cell such as those of the crate `static_cell` gives such references.
    /// let timers: &'static TimerQueue = Box::leak(Box::new(TimerQueue::new()));
    /// let clock: &'static Millis = Box::leak(Box::new(Millis(Cell::new(0))));
    /// let time = Timed::new(timers, clock);
    ///
    /// let sleeps = async move { time.sleep(Duration::from_millis(5)).await };
    /// // SAFETY: nothing but the loop below, on this thread, runs or drops what is in the queue.
    /// let task =
    ///     unsafe { Runnable::in_place_here(SLEEPER.reserve()?, sleeps, |task| READY.push(task)) };
    /// READY.push(task);
    ///
    /// let mut ready = READY.consumer().expect("there is one run loop");
    /// loop {
    ///     while let Take::Item(task) = ready.take() {
    ///         task.run();
    ///     }
    ///     if SLEEPER.reserve().is_ok() {
    ///         break; // It has ended.
    ///     }
    ///     clock.0.set(clock.0.get() + 1); // where time passes by itself: wait for it
    ///     let _ = timers.expire(clock.now(), 32, Waker::wake);
    /// }
    /// assert_eq!(clock.0.get(), 5);
    /// # Ok::<(), evenkeel::StorageFull>(())
    /// ```
    ///
    /// # Safety
    /// The task is run, and dropped, on the thread or core where it was made, and not by an interrupt
    /// handler there. Its wakers may be used anywhere, and `schedule` is called where they are: what
    /// it is given has to come back before it is run or dropped.
    pub unsafe fn in_place_here<F, const BYTES: usize>(
        place: Place<BYTES>,
        future: F,
        schedule: Schedule,
    ) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        Self(place.fill(future, State::spawned_alone(), home_of(schedule)))
    }

    /// Makes a task on the heap: one allocation.
    #[cfg(feature = "alloc")]
    pub fn boxed<F>(future: F, schedule: Schedule) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(cell::allocate(future, State::spawned_alone(), home_of(schedule)))
    }

    /// Polls it: one dispatch. A panic of the future is caught where std is there, and told. If it
    /// has woken itself, or was woken meanwhile, it is scheduled again
    /// before this returns, at the back of wherever that puts it.
    #[allow(clippy::must_use_candidate)] // most loops have no use for the answer
    pub fn run(self) -> Ran {
        let task = ManuallyDrop::new(self).0;
        let state = &task.header().state;
        state.take_active();
        // SAFETY: the reference that goes with `ACTIVE` outlives the poll, so this one counts
        // nothing and is never dropped.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw(task)) });
        // SAFETY: `ACTIVE` is this one's, so nobody else polls it; what is active has not ended.
        match unsafe { task.poll(&mut Context::from_waker(&waker)) } {
            Poll::Ready(()) => Ran::Ended(end(task)),
            Poll::Pending => {
                if state.retire() == Retired::Woken {
                    schedule_of(task)(Self(task));
                }
                Ran::Pending
            }
        }
    }
}

impl Drop for Runnable {
    fn drop(&mut self) {
        // SAFETY: `ACTIVE` is this one's, so the future is there and nobody polls it.
        unsafe { self.0.cancel() };
        // It was cancelled, or its drop panicked: there is nobody to tell.
        cell::discard(end(self.0));
    }
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable").finish_non_exhaustive()
    }
}

// SAFETY: its future is `Send`, or stays by the contract of `in_place_here`, and all else of the task is made to be reached from several threads.
unsafe impl Send for Runnable {}
// SAFETY: a shared one can do nothing.
unsafe impl Sync for Runnable {}

// SAFETY: there is one `Runnable` of a task at a time, and it keeps the task alive, where it is. The
// link is the one of a lane, in which such a task does not stand.
unsafe impl Linked for Runnable {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        ManuallyDrop::new(self).0.into_link()
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: passed on to the caller.
        Self(unsafe { TaskRef::from_link(link) })
    }
}

/// What such a task has in place of a worker's shared half.
fn home_of(schedule: Schedule) -> NonNull<()> {
    // SAFETY: a function is nowhere at null.
    unsafe { NonNull::new_unchecked(schedule as *mut ()) }
}

fn schedule_of(task: TaskRef) -> Schedule {
    // SAFETY: `home_of` made it from such a function.
    unsafe { mem::transmute::<NonNull<()>, Schedule>(task.header().home) }
}

/// The future is gone. By the one who has `ACTIVE`, which is not given back.
fn end(task: TaskRef) -> Result<(), JoinError> {
    task.header().state.complete();
    let mut output = MaybeUninit::uninit();
    // SAFETY: complete, and there is no handle: the output is this one's, and that of a future which
    // gives `()`. The reference is the one that went with `ACTIVE`.
    unsafe {
        task.take_output(NonNull::from(&mut output).cast());
        drop_reference(task);
        output.assume_init()
    }
}

/// # Safety
/// The caller has the reference and does not use it again.
unsafe fn drop_reference(task: TaskRef) {
    if task.header().state.drop_reference() == References::None {
        // SAFETY: it was the last.
        unsafe { task.free() };
    }
}

fn raw(task: TaskRef) -> RawWaker {
    RawWaker::new(task.as_ptr().as_ptr().cast_const().cast(), &VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// # Safety
/// `data` is what `raw` made, and the waker's reference keeps the task alive.
unsafe fn task(data: *const ()) -> TaskRef {
    // SAFETY: `raw` made it from a pointer that is not null and reaches the whole task.
    unsafe { TaskRef::new(NonNull::new_unchecked(data.cast_mut().cast())) }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { task(data) };
    task.header().state.add_reference();
    raw(task)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: by the contract of the vtable; `wake` takes the waker's reference with it.
    unsafe {
        wake_by_ref(data);
        drop(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { task(data) };
    if task.header().state.activate() == Activated::Owed {
        schedule_of(task)(Runnable(task));
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    unsafe { drop_reference(task(data)) };
}
