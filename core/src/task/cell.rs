//! Header, future and output in one place: an allocation, or one that was reserved in a static.

#[cfg(feature = "alloc")]
use alloc::boxed::Box;
use core::future::Future;
use core::hint::unreachable_unchecked;
use core::mem;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use core::task::{Context, Poll, Waker};

#[cfg(feature = "alloc")]
use crate::sync;
use crate::sync::SharedCell;
#[cfg(feature = "std")]
use crate::task::header::Custody;
use crate::task::header::{Header, TaskRef, VTable};
use crate::task::state::State;

/// Why a task has no output.
#[derive(Debug)]
pub enum JoinError {
    /// It was aborted, or its worker ended first. Its future has been dropped.
    Cancelled,
    /// It panicked; this is what it panicked with. The worker lives on.
    #[cfg(feature = "std")]
    Panicked(Box<dyn core::any::Any + Send + 'static>),
}

impl core::fmt::Display for JoinError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("the task was cancelled before it ended"),
            #[cfg(feature = "std")]
            Self::Panicked(payload) => {
                let text = payload
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| payload.downcast_ref::<alloc::string::String>().map(|s| &**s));
                match text {
                    Some(text) => write!(f, "the task panicked: {text}"),
                    None => f.write_str("the task panicked"),
                }
            }
        }
    }
}

impl core::error::Error for JoinError {}

/// The part of a boxed task that a join handle reaches without knowing the future.
#[repr(C)]
struct Joinable {
    header: Header,
    /// The join handle's waker; whose it is says `JOIN_WAKER`.
    waker: SharedCell<Option<Waker>>,
}

#[repr(C)]
pub(crate) struct TaskCell<F: Future> {
    joinable: Joinable,
    stage: SharedCell<Stage<F>>,
}

enum Stage<F: Future> {
    /// Spawned and not at its end.
    Future(F),
    /// At its end; the output waits for its join handle.
    Output(Result<F::Output, JoinError>),
    /// The output was taken or dropped.
    Empty,
}

/// Frees the place of a task that is not referred to any more.
pub(crate) type Free = unsafe fn(NonNull<Header>);

impl<F: Future> TaskCell<F> {
    /// A task at its spawn, for a place that `FREE` frees.
    pub(crate) fn new<P: Placement<F>>(future: F, state: State, home: NonNull<()>) -> Self {
        Self {
            joinable: Joinable {
                header: Header::new(Vtables::<F, P>::VTABLE, state, home),
                waker: SharedCell::new(None),
            },
            stage: SharedCell::new(Stage::Future(future)),
        }
    }

    /// Of the place that it is in.
    pub(crate) fn end_of_life(&self) {
        self.joinable.header.life().end();
    }
}

/// Where a task's cell is.
pub(crate) trait Placement<F: Future> {
    /// Drops the cell and gives its place back. Its contract: the task is one in such a place, and
    /// no reference to it is left.
    const FREE: Free;
    /// Who may poll the task.
    #[cfg(feature = "std")]
    const CUSTODY: Custody = Custody::Pinned;
}

/// In an allocation of its own.
#[cfg(feature = "alloc")]
struct Allocated;

#[cfg(feature = "alloc")]
impl<F: Future> Placement<F> for Allocated {
    const FREE: Free = free::<F>;
}

/// The same, for a task that any worker of a team may poll.
#[cfg(feature = "std")]
struct AllocatedStealable;

#[cfg(feature = "std")]
impl<F: Future> Placement<F> for AllocatedStealable {
    const FREE: Free = free::<F>;
    const CUSTODY: Custody = Custody::Stealable;
}

/// Puts a future and its header into a new allocation, the only one of a spawn.
#[cfg(feature = "alloc")]
pub(crate) fn allocate<F: Future>(future: F, state: State, home: NonNull<()>) -> TaskRef {
    put_into_box(TaskCell::new::<Allocated>(future, state, home))
}

/// The same, for a stealable task.
#[cfg(feature = "std")]
pub(crate) fn allocate_stealable<F>(future: F, home: NonNull<()>) -> TaskRef
where
    F: Future<Output: Send> + Send,
{
    put_into_box(TaskCell::new::<AllocatedStealable>(future, State::spawned_stealable(), home))
}

#[cfg(feature = "alloc")]
fn put_into_box<F: Future>(cell: TaskCell<F>) -> TaskRef {
    let cell = Box::new(cell);
    let cell = NonNull::from(Box::leak(cell));
    // SAFETY: the pointer reaches the whole allocation, whose first field is the header; it lives
    // until the last reference frees it.
    unsafe { TaskRef::new(cell.cast()) }
}

/// The cell of the join handle's waker.
///
/// # Safety
/// The task is a [`TaskCell`].
pub(crate) unsafe fn join_waker<'a>(task: TaskRef) -> &'a SharedCell<Option<Waker>> {
    // SAFETY: `Joinable` is the first field of every `TaskCell`, and both are `repr(C)`.
    unsafe { &task.as_ptr().cast::<Joinable>().as_ref().waker }
}

struct Vtables<F, P>(F, P);

impl<F: Future, P: Placement<F>> Vtables<F, P> {
    const VTABLE: &'static VTable = &VTable {
        #[cfg(feature = "std")]
        custody: P::CUSTODY,
        poll: poll::<F>,
        cancel: cancel::<F>,
        take_output: take_output::<F>,
        drop_output: drop_output::<F>,
        free: P::FREE,
    };
}

/// # Safety
/// `task` is a `TaskCell<F>` and the caller may touch its stage by the rules of the state.
#[inline]
unsafe fn with_stage<F: Future, U>(
    task: NonNull<Header>,
    access: impl FnOnce(&mut Stage<F>) -> U,
) -> U {
    // SAFETY: passed on to the caller.
    let place = unsafe { &(*task.cast::<TaskCell<F>>().as_ptr()).stage };
    // SAFETY: passed on to the caller.
    place.with_mut(|stage| access(unsafe { &mut *stage }))
}

#[inline]
unsafe fn poll<F: Future>(task: NonNull<Header>, context: &mut Context<'_>) -> Poll<()> {
    let poll_stage = |stage: &mut Stage<F>| {
        let Stage::Future(future) = stage else {
            // SAFETY: by the contract of `TaskRef::poll`, the future is there.
            unsafe { unreachable_unchecked() }
        };
        // SAFETY: the cell is never moved, and the future is dropped in place, by `end` alone.
        let future = unsafe { Pin::new_unchecked(future) };
        match catch(|| future.poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => {
                end(stage, Ok(output));
                Poll::Ready(())
            }
            Err(payload) => {
                end(stage, Err(payload));
                Poll::Ready(())
            }
        }
    };
    // SAFETY: the owner polls, so the stage is its own.
    unsafe { with_stage(task, poll_stage) }
}

unsafe fn cancel<F: Future>(task: NonNull<Header>) {
    // SAFETY: the owner cancels, so the stage is its own.
    unsafe { with_stage::<F, _>(task, |stage| end(stage, Err(JoinError::Cancelled))) };
}

/// Drops the future where it is, then puts the output in its place.
fn end<F: Future>(stage: &mut Stage<F>, output: Result<F::Output, JoinError>) {
    let dropped = match stage {
        // SAFETY: the stage is overwritten below without being dropped again, and nothing between
        // unwinds: `catch` has seen to it.
        Stage::Future(future) => catch(|| unsafe { ptr::drop_in_place(future) }),
        Stage::Output(_) | Stage::Empty => unreachable!("a task ends once"),
    };
    let output = match dropped {
        Ok(()) => output,
        Err(panicked) => {
            // What it was ready with, or panicked with: user's code, too.
            discard(output);
            Err(panicked)
        }
    };
    // SAFETY: the place is valid, and what it held has been dropped.
    unsafe { ptr::write(stage, Stage::Output(output)) };
}

unsafe fn take_output<F: Future>(task: NonNull<Header>, to: NonNull<()>) {
    // SAFETY: the output is the caller's.
    let stage = unsafe { with_stage::<F, _>(task, |stage| mem::replace(stage, Stage::Empty)) };
    let Stage::Output(output) = stage else {
        panic!("a join handle was polled after it had given its output")
    };
    // SAFETY: `to` has room for this task's output, by the contract of the vtable.
    unsafe { to.cast::<Result<F::Output, JoinError>>().write(output) };
}

unsafe fn drop_output<F: Future>(task: NonNull<Header>) {
    // SAFETY: the output is the caller's.
    let output = unsafe { with_stage::<F, _>(task, |stage| mem::replace(stage, Stage::Empty)) };
    discard(output);
}

/// Drops what a user wrote, where nobody is left to tell of a panic in it.
pub(crate) fn discard<T>(value: T) {
    let panicked = catch(|| drop(value));
    // What it panicked with may panic in its turn, and so on; then it is not worth its memory.
    if let Err(payload) = catch(|| drop(panicked)) {
        let _forgotten = mem::ManuallyDrop::new(payload);
    }
}

/// Wakes a waker that may be anybody's. A panic in it is that of who wrote it: it must not stop
/// the worker, nor keep what else is to be woken from it.
pub(crate) fn wake(waker: Waker) {
    discard(catch(|| waker.wake()));
}

/// Drops a waker that may be anybody's, with the same care.
pub(crate) fn drop_waker(waker: Waker) {
    discard(catch(|| drop(waker)));
}

#[cfg(feature = "alloc")]
unsafe fn free<F: Future>(task: NonNull<Header>) {
    // SAFETY: no reference is left, and `allocate` made it with `Box`.
    let cell = unsafe { Box::from_raw(task.cast::<TaskCell<F>>().as_ptr()) };
    cell.end_of_life();
    sync::free(cell);
}

/// Runs what a user wrote. A panic becomes a value, for it must not unwind into the worker.
#[cfg(all(feature = "std", not(loom)))]
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, JoinError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(JoinError::Panicked)
}

/// Runs what a user wrote. Without std a panic can't be caught, and must not unwind into the worker
/// either: where it would, which is in a program that has std although this crate has not, it ends
/// the program.
#[cfg(not(feature = "std"))]
#[allow(clippy::unnecessary_wraps)] // one shape with and without std
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, JoinError> {
    /// A panic in the midst of another aborts.
    struct Abort;

    impl Drop for Abort {
        fn drop(&mut self) {
            panic!("a task panicked, and without the feature `std` that can't be caught");
        }
    }

    let abort = Abort;
    let value = run();
    mem::forget(abort);
    Ok(value)
}

/// Runs what a user wrote. Under loom a panic says that a model has failed, and must not be caught.
#[cfg(all(feature = "std", loom))]
#[allow(clippy::unnecessary_wraps)] // one shape with and without loom
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, JoinError> {
    Ok(run())
}

/// Drops a task in its place. What is left in it may be anybody's, too.
///
/// # Safety
/// As [`ptr::drop_in_place`].
pub(crate) unsafe fn drop_in_place<F: Future>(task: NonNull<TaskCell<F>>) {
    // SAFETY: passed on to the caller.
    discard(catch(|| unsafe { task.drop_in_place() }));
}
