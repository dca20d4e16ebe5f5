//! Room for tasks in a static: spawning without an allocator.

use core::fmt;
use core::future::Future;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{self, NonNull};

use crate::sync::{AtomicU32, Ordering, SharedCell, const_but_under_loom};
use crate::task::cell::{self, Free, Placement, TaskCell};
use crate::task::header::{Header, TaskRef};
use crate::task::misfit;
use crate::task::state::State;

const VACANT: u32 = 0;
const TAKEN: u32 = 1;

/// Room for tasks in a static: `PLACES` of them, each of at most `BYTES` bytes.
///
/// A place does not know its future's type, which for an `async fn` has no name, only how large it
/// is. [`task_size`] tells how many bytes a task takes; one that does not fit does not compile, and
/// the error tells the numbers. (`cargo build` does; `cargo check` does not look so far.)
///
/// A place is taken from its [reservation](Self::reserve) until the task in it has ended, its join
/// handle is gone, and so is the last clone of its waker. Then the next task may be spawned in it.
///
/// ```
/// use evenkeel::{TaskStorage, task_size};
///
/// async fn blink(times: u32) -> u32 {
///     times
/// }
///
/// static BLINK: TaskStorage<{ task_size(&blink) }> = TaskStorage::new("blink");
/// static LARGE: TaskStorage<512, 4> = TaskStorage::new("connections");
///
/// let place = BLINK.reserve().unwrap();
/// let full = BLINK.reserve().unwrap_err();
/// assert_eq!((full.name(), full.places()), ("blink", 1));
/// drop(place); // unused: it is given back
/// assert!(BLINK.reserve().is_ok());
/// ```
///
/// What would not be sound, or make no sense, does not compile: a storage that is no static,
///
/// ```compile_fail,E0597
/// let storage = evenkeel::TaskStorage::<512>::new("short-lived");
/// let place = storage.reserve();
/// ```
///
/// one without a place,
///
/// ```compile_fail,E0080
/// static NONE: evenkeel::TaskStorage<512, 0> = evenkeel::TaskStorage::new("none");
/// ```
pub struct TaskStorage<const BYTES: usize, const PLACES: usize = 1> {
    name: &'static str,
    places: [Memory<BYTES>; PLACES],
}

/// One place. The alignment is that of the largest type that the language itself has.
#[repr(C)]
struct Memory<const BYTES: usize> {
    taken: AtomicU32,
    /// Stands for the bytes, which are reached by pointers that loom knows nothing of. No more than
    /// a name but under loom.
    bytes: SharedCell<()>,
    cell: Aligned<BYTES>,
}

#[cfg_attr(target_pointer_width = "64", repr(C, align(16)))]
#[cfg_attr(not(target_pointer_width = "64"), repr(C, align(8)))]
struct Aligned<const BYTES: usize>(SharedCell<MaybeUninit<[u8; BYTES]>>);

/// How far behind the beginning of a place its cell is, whatever its size.
const CELL_OFFSET: usize = offset_of!(Memory<0>, cell);

impl<const BYTES: usize> Memory<BYTES> {
    const_but_under_loom! {
        const fn new() -> Self {
            let cell = Aligned(SharedCell::new(MaybeUninit::uninit()));
            Self { taken: AtomicU32::new(VACANT), bytes: SharedCell::new(()), cell }
        }
    }
}

// SAFETY: a place's bytes are written by the one who has reserved it, and then belong to a task,
// which keeps its own rules: one of a future that can't be sent is made and polled on one thread.
unsafe impl<const BYTES: usize> Sync for Memory<BYTES> {}

impl<const BYTES: usize, const PLACES: usize> TaskStorage<BYTES, PLACES> {
    /// Empty room. The name is for [`StorageFull`].
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        const { assert!(PLACES > 0, "a task storage has at least one place") };
        Self { name, places: [const { Memory::new() }; PLACES] }
    }

    /// The same; loom's atomics are not const.
    #[cfg(loom)]
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, places: core::array::from_fn(|_| Memory::new()) }
    }

    /// Reserves a place for a task that is to be spawned. Any thread, any interrupt handler; looks
    /// at each place at most once, allocates nothing.
    ///
    /// # Errors
    /// If all are taken.
    pub fn reserve(&'static self) -> Result<Place<BYTES>, StorageFull> {
        let vacant = self.places.iter().find(|place| {
            // Ordering: Acquire, pairs with the Release of whoever gave the place back: it is done
            // with the bytes. Failure reads nothing.
            place
                .taken
                .compare_exchange(VACANT, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let full = StorageFull { name: self.name, places: PLACES };
        vacant.map(|memory| Place { memory }).ok_or(full)
    }

    /// What it was named.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl<const BYTES: usize, const PLACES: usize> fmt::Debug for TaskStorage<BYTES, PLACES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskStorage")
            .field("name", &self.name)
            .field("bytes", &BYTES)
            .field("places", &PLACES)
            .finish()
    }
}

/// All places of a [`TaskStorage`] are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageFull {
    name: &'static str,
    places: usize,
}

impl StorageFull {
    /// The storage's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name
    }

    /// How many places it has.
    #[must_use]
    pub fn places(self) -> usize {
        self.places
    }
}

impl fmt::Display for StorageFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all places of the task storage `{}` are taken ({} of {}); a place is vacant again when \
             its task has ended and the join handle and all wakers of it are gone: wait for that, \
             or give the storage more places",
            self.name, self.places, self.places
        )
    }
}

impl core::error::Error for StorageFull {}

/// A place for one task, reserved. Dropping it gives it back.
#[must_use = "dropping it gives the place back; spawn a task in it"]
pub struct Place<const BYTES: usize> {
    memory: &'static Memory<BYTES>,
}

impl<const BYTES: usize> Place<BYTES> {
    /// Makes a task in it.
    pub(crate) fn fill<F: Future>(self, future: F, state: State, home: NonNull<()>) -> TaskRef {
        const {
            let (size, align) = (size_of::<TaskCell<F>>(), align_of::<TaskCell<F>>());
            assert!(size <= BYTES, "{}", misfit::too_large(size, BYTES).as_str());
            let most = align_of::<Aligned<0>>();
            assert!(align <= most, "{}", misfit::too_aligned(align, most).as_str());
        };
        let memory = self.memory;
        core::mem::forget(self);
        let cell = TaskCell::new::<Placed>(future, state, home);
        // SAFETY: the cell's bytes are within the place, fit and are aligned, as asserted, and are
        // the holder's of the reservation, which goes over to the task. They are in a cell of
        // interior mutability, and the pointer may reach the whole place.
        memory.bytes.with_mut(|_| unsafe {
            let memory = ptr::from_ref(memory).cast_mut();
            let task = memory.byte_add(CELL_OFFSET).cast::<TaskCell<F>>();
            task.write(cell);
            TaskRef::new(NonNull::new_unchecked(task).cast())
        })
    }
}

impl<const BYTES: usize> Drop for Place<BYTES> {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire of the next reservation.
        self.memory.taken.store(VACANT, Ordering::Release);
    }
}

impl<const BYTES: usize> fmt::Debug for Place<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("bytes", &BYTES).finish_non_exhaustive()
    }
}

/// In a place of a storage.
struct Placed;

impl<F: Future> Placement<F> for Placed {
    const FREE: Free = vacate::<F>;
}

unsafe fn vacate<F: Future>(task: NonNull<Header>) {
    let task = task.cast::<TaskCell<F>>();
    // SAFETY: `fill` made it, so the cell is in a place, at this offset from its beginning, and the
    // pointer may reach the whole place, whose beginning is the same whatever its size; no
    // reference to the task is left.
    unsafe {
        let memory = task.byte_sub(CELL_OFFSET).cast::<Memory<0>>().as_ref();
        memory.bytes.with_mut(|_| {
            task.as_ref().end_of_life();
            cell::drop_in_place(task);
        });
        // Ordering: Release, pairs with the Acquire of the next reservation.
        memory.taken.store(VACANT, Ordering::Release);
    }
}

/// How many bytes a task takes of whatever this function's future is: for a [`TaskStorage`].
///
/// The function is not called; its arguments, up to six, don't matter. A method or a closure will do,
/// and of a generic function one that is complete, `&f::<u32>`. For more arguments take a struct, or
/// give the number of bytes.
///
/// ```
/// use evenkeel::{TaskStorage, task_size};
///
/// async fn echo(port: u8, baud: u32) {
///     # let _ = (port, baud);
/// }
///
/// static ECHO: TaskStorage<{ task_size(&echo) }, 3> = TaskStorage::new("echo");
/// # assert_eq!(ECHO.name(), "echo");
/// ```
#[must_use]
pub const fn task_size<Arguments, T: TaskFn<Arguments>>(_: &T) -> usize {
    size_of::<TaskCell<T::Future>>()
}

/// A function that gives a future, with up to six arguments. It is there for [`task_size`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no function of up to six arguments that gives a future",
    note = "pass the `async fn` itself, `task_size(&f)`, and not what a call of it gives"
)]
pub trait TaskFn<Arguments> {
    /// What it gives.
    type Future: Future;
}

macro_rules! task_fn {
    ($($argument:ident)*) => {
        impl<T, F, $($argument),*> TaskFn<($($argument,)*)> for T
        where
            T: FnOnce($($argument),*) -> F,
            F: Future,
        {
            type Future = F;
        }
    };
}

task_fn!();
task_fn!(A);
task_fn!(A B);
task_fn!(A B C);
task_fn!(A B C D);
task_fn!(A B C D E);
task_fn!(A B C D E G);
