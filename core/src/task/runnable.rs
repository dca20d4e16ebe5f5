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
///
/// # With timers
/// A [`Sleep`](crate::timers::Sleep) stands in the queue of its thread, so a future that awaits one
/// is not `Send`. [`in_place_here`](Self::in_place_here) takes such a future; that it stays where it
/// was made is for the run loop to promise. The timers are needed as long as the tasks, hence a
/// reference that is `'static`: here a box is leaked, and on bare metal a cell that is filled once
/// gives one, such as that of the crate `static_cell`.
///
/// ```
/// use core::cell::Cell;
/// use core::task::Waker;
/// use core::time::Duration;
/// use evenkeel::inbox::{MpscQueue, Take};
/// use evenkeel::task::Runnable;
/// use evenkeel::timers::{Timed, TimerQueue, Timers};
/// use evenkeel::{Clock, Instant, TaskStorage, task_size};
///
/// /// A clock that shows what it is set to.
/// struct Hand(Cell<Instant>);
///
/// impl Clock for Hand {
///     fn now(&self) -> Instant {
///         self.0.get()
///     }
/// }
///
/// type Time = Timed<&'static TimerQueue, &'static Hand>;
///
/// async fn blink(time: Time, times: u32, done: &'static Cell<Instant>) {
///     for _ in 0..times {
///         time.sleep(Duration::from_millis(5)).await;
///     }
///     done.set(time.now());
/// }
///
/// static READY: MpscQueue<Runnable> = MpscQueue::new();
/// static BLINK: TaskStorage<{ task_size(&blink) }, 2> = TaskStorage::new("blink");
///
/// let timers: &'static TimerQueue = Box::leak(Box::default());
/// let clock: &'static Hand = Box::leak(Box::new(Hand(Cell::new(Instant::ZERO))));
/// let done: &'static Cell<Instant> = Box::leak(Box::new(Cell::new(Instant::ZERO)));
/// let time = Timed::new(timers, clock);
///
/// let mut ready = READY.consumer().expect("there is one run loop");
/// for times in [2, 3] {
///     let task = blink(time, times, done);
///     // SAFETY: what is in `READY` comes out on this thread only, by its one consumer, which stays
///     // here. It is run here, and a static is never dropped.
///     let task = unsafe {
///         Runnable::in_place_here(BLINK.reserve()?, task, |task| READY.push(task))
///     };
///     READY.push(task);
/// }
/// loop {
///     while let Take::Item(task) = ready.take() {
///         task.run();
///     }
///     let Some(next) = timers.next_deadline() else { break };
///     clock.0.set(next); // with a real clock: wait until then, or until something is pushed
///     while timers.expire(clock.now(), 64, Waker::wake).fired == 64 {}
/// }
/// assert_eq!(done.get().as_nanos(), 15_000_000);
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

    /// The same of a future that is not `Send`, which stays in the context where it was made: one
    /// thread, or on bare metal one core outside its interrupt handlers. Allocates nothing.
    ///
    /// Wakers of it are as any others: they may be cloned, used and dropped anywhere.
    ///
    /// See [With timers](Self#with-timers) for an example.
    ///
    /// # Safety
    /// The task's `Runnable`s, this one and each that `schedule` is given, are [run](Self::run) and
    /// dropped only in the context where the task was made: there its future is polled and dropped.
    /// `schedule` is called wherever somebody wakes. There it may pass on what it is given, as into a
    /// queue that is emptied in the right context, or forget it, but neither run nor drop it. What is
    /// never run again may be left lying.
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

    /// The same of a future that is not `Send`: one allocation. What is said of
    /// [`in_place_here`](Self::in_place_here) holds for this one, too.
    ///
    /// # Safety
    /// As of [`in_place_here`](Self::in_place_here). The memory itself may be freed anywhere, by
    /// whoever drops the last waker.
    #[cfg(feature = "alloc")]
    pub unsafe fn boxed_here<F>(future: F, schedule: Schedule) -> Self
    where
        F: Future<Output = ()> + 'static,
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

// SAFETY: its future is `Send`, or whoever made it has promised that it is run and dropped in one
// context only: then the future is reached from nowhere else. All else of the task is made to be
// reached from several threads, the output included, which is `()` or what it panicked with.
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
    RawWaker::new(task.to_data(), &VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: by the contract of the vtable.
    let task = unsafe { TaskRef::of_data(data) };
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
    let task = unsafe { TaskRef::of_data(data) };
    if task.header().state.activate() == Activated::Owed {
        schedule_of(task)(Runnable(task));
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: by the contract of the vtable.
    unsafe { drop_reference(TaskRef::of_data(data)) };
}
