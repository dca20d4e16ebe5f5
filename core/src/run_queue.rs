//! The run queue: a worker's own runnable tasks, first in, first out.
//!
//! [`Fifo`] is the one that the worker has, for each of its own lanes. It is a plain singly linked
//! list of what carries its own [`Link`]: it never fills, allocates nothing, and each operation is
//! a few loads and stores of memory that its owner alone touches.
//!
//! [`RunQueue`] is what any run queue offers its owner. The worker is not generic over it; it is
//! there for the pieces used on their own, and for the conformance kit that any implementation can
//! prove itself by (`evenkeel::testing::conformance`, with the feature `testing`).

use core::fmt;
use core::marker::PhantomData;
use core::mem::needs_drop;
use core::ptr::{self, NonNull};

use crate::link::{Link, Linked};
use crate::sync::{Cell, Ordering, const_but_under_loom};

/// What a run queue offers its owner: first in, first out, whoever else may steal from it.
///
/// One owner at a time calls these; an implementation sees to it by not being `Sync`.
///
/// What holds for each of them is checked by `evenkeel::testing::conformance::run_queue`:
/// every item comes out once, in the order of the pushes, and one that is refused comes back.
pub trait RunQueue {
    /// What stands in the queue.
    type Item;

    /// Puts an item at the back.
    ///
    /// # Errors
    /// The queue is full: the item is handed back and the queue is as before. A queue whose items
    /// carry their links, as a queue of tasks does, is never full.
    fn push(&self, item: Self::Item) -> Result<(), Self::Item>;

    /// Takes the item at the front.
    fn pop(&self) -> Option<Self::Item>;

    /// Whether there is nothing to take.
    fn is_empty(&self) -> bool;
}

/// An intrusive FIFO for one owner.
///
/// The items carry the links, so it never fills and never allocates. Each operation takes a
/// constant number of steps, none of them an atomic read-modify-write; a push writes to the item
/// that was the youngest. It is two words, may be moved while it holds items, and may stand in a
/// `static` by way of whatever makes that `Sync`. No function panics.
///
/// Where it is dropped it drops what it still holds, the oldest first; if one of those drops
/// panics, what is behind it is leaked.
///
/// ```
/// use core::ptr::NonNull;
/// use evenkeel::link::{Link, Linked};
/// use evenkeel::run_queue::Fifo;
///
/// #[repr(C)]
/// struct Job {
///     link: Link,
///     name: &'static str,
/// }
///
/// impl Job {
///     fn new(name: &'static str) -> Self {
///         Self { link: Link::new(), name }
///     }
/// }
///
/// /// A job that stands, or may stand, in a queue.
/// struct Lent<'a>(&'a mut Job);
///
/// // SAFETY: the job is borrowed for as long as there is a handle, or a queue that holds one. The
/// // link is its first field.
/// unsafe impl Linked for Lent<'_> {
///     fn into_link(self) -> NonNull<Link> {
///         NonNull::from(self.0).cast()
///     }
///
///     unsafe fn from_link(link: NonNull<Link>) -> Self {
///         // SAFETY: made by `into_link`, and given back once, by the contract.
///         Self(unsafe { link.cast().as_mut() })
///     }
/// }
///
/// let (mut sweep, mut bilge) = (Job::new("sweep the deck"), Job::new("pump the bilge"));
/// let queue = Fifo::new();
/// queue.push(Lent(&mut sweep));
/// queue.push(Lent(&mut bilge));
/// assert_eq!(queue.pop().unwrap().0.name, "sweep the deck");
/// assert_eq!(queue.pop().unwrap().0.name, "pump the bilge");
/// assert!(queue.pop().is_none());
/// ```
///
/// It has one owner, so it is not `Sync`:
///
/// ```compile_fail,E0277
/// # use core::ptr::NonNull;
/// # use evenkeel::link::{Link, Linked};
/// # struct Owned(Box<Link>);
/// # unsafe impl Linked for Owned {
/// #     fn into_link(self) -> NonNull<Link> { loop {} }
/// #     unsafe fn from_link(_: NonNull<Link>) -> Self { loop {} }
/// # }
/// static SHARED: evenkeel::run_queue::Fifo<Owned> = evenkeel::run_queue::Fifo::new();
/// ```
///
/// A push takes the handle, so nothing stands in two places:
///
/// ```compile_fail,E0382
/// # use core::ptr::NonNull;
/// # use evenkeel::link::{Link, Linked};
/// # struct Owned(Box<Link>);
/// # unsafe impl Linked for Owned {
/// #     fn into_link(self) -> NonNull<Link> { loop {} }
/// #     unsafe fn from_link(_: NonNull<Link>) -> Self { loop {} }
/// # }
/// let queue = evenkeel::run_queue::Fifo::new();
/// let job = Owned(Box::new(Link::new()));
/// queue.push(job);
/// queue.push(job);
/// ```
pub struct Fifo<T: Linked> {
    first: Cell<*mut Link>,
    /// Meaningful while `first` is there.
    last: Cell<*mut Link>,
    /// Items go in and come out: a queue of longer-lived ones is none of shorter-lived ones.
    items: PhantomData<fn(T) -> T>,
}

// SAFETY: the items go with the queue, and may; it has no tie to a thread but its owner's.
unsafe impl<T: Linked + Send> Send for Fifo<T> {}

impl<T: Linked> Fifo<T> {
    const_but_under_loom! {
        /// An empty queue.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                first: Cell::new(ptr::null_mut()),
                last: Cell::new(ptr::null_mut()),
                items: PhantomData,
            }
        }
    }

    /// Whether there is nothing to take.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    /// Puts an item at the back.
    #[inline]
    pub fn push(&self, item: T) {
        let item = item.into_link();
        // SAFETY: the link is in place and the queue's alone, by the contract of `Linked`.
        let link = unsafe { item.as_ref() };
        // Ordering: Relaxed, here and below: the owner's alone.
        link.next().store(ptr::null_mut(), Ordering::Relaxed);
        if self.is_empty() {
            self.first.set(item.as_ptr());
        } else {
            // SAFETY: the queue is not empty, so it has a last item since it had its first, which
            // is in place and the queue's alone.
            let last = unsafe { &*self.last.get() };
            last.next().store(item.as_ptr(), Ordering::Relaxed);
        }
        self.last.set(item.as_ptr());
    }

    /// Takes the item at the front.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let item = NonNull::new(self.first.get())?;
        // SAFETY: what was pushed and not popped is in place and the queue's alone.
        let link = unsafe { item.as_ref() };
        // Ordering: Relaxed: the owner's alone.
        self.first.set(link.next().load(Ordering::Relaxed));
        // SAFETY: `push` had it from `into_link`, and it has just left the queue.
        Some(unsafe { T::from_link(item) })
    }
}

#[cfg(feature = "std")]
impl<T: Linked + Copy> Fifo<T> {
    /// The item at the front, which stays there: for who has to know which it is.
    #[inline]
    pub(crate) fn front(&self) -> Option<T> {
        // SAFETY: `push` had it from `into_link`. That the handle is `Copy` means that one more of
        // it gives nobody a right to the item.
        NonNull::new(self.first.get()).map(|item| unsafe { T::from_link(item) })
    }
}

impl<T: Linked> RunQueue for Fifo<T> {
    type Item = T;

    fn push(&self, item: T) -> Result<(), T> {
        self.push(item);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        self.pop()
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Linked> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked> Drop for Fifo<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            while let Some(item) = self.pop() {
                drop(item);
            }
        }
    }
}

impl<T: Linked> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("is_empty", &self.is_empty()).finish_non_exhaustive()
    }
}
