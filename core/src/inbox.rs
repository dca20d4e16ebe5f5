//! The inbox: where other threads, and interrupt handlers, hand work to a worker.
//!
//! [`MpscQueue`] is the one that the worker has: Vyukov's intrusive queue of many producers and one
//! consumer ("Intrusive MPSC node-based queue", 1024cores.net). A push is one swap and one store,
//! the order is that of the swaps, and a take is O(1). It differs from the original in one thing.
//! There the consumer puts its stub node back whenever it takes the last one; here the stub is only
//! the link `first`, and the consumer takes the last node by a compare-and-swap of `last` from it
//! to null. So the queue holds no pointer to itself, may be moved while nobody pushes, and needs no
//! initialisation.
//!
//! # Its inconsistent state
//! Between the swap and the store of a push the chain is cut: the item, and all that are pushed
//! behind it, can't be reached. A take that comes to the cut says [`Take::Busy`], never
//! [`Take::Empty`]; the rest becomes visible all at once by the store. A producer that is
//! descheduled there holds back what is behind it, and nothing that is before it.
//!
//! # Interrupt handlers
//! A handler may push, into the queue of the very code that it interrupts too. A push is wait-free:
//! one swap and one store, whatever anybody else is in the midst of, with no lock to be held and no
//! loop to go round.
//!
//! - It interrupts a *push*, between its two halves: what the handler pushes stands behind the cut
//!   and is reached as soon as the interrupted push goes on. The order is still that of the swaps.
//! - It interrupts a *take*: to the consumer it is a producer like any other. Either its swap comes
//!   before the consumer's compare-and-swap of `last`, which then fails and finds the item, or after
//!   it, and then the handler finds the queue empty, as it is.
//! - It *is* the consumer, and interrupts a push: it may see `Busy`, and must return then. The push
//!   can't go on before it does, so a handler that takes until there is an item would spin for ever.
//!   The same is true of a thread that has a higher priority than a producer on the same core.
//!
//! # What it costs to look
//! [`has_visible`](MpscQueue::has_visible) is one load of a word that no producer writes while
//! anything waits to be taken.
//!
//! # What lost, and by how much
//! `cargo bench -p evenkeel --features std --bench inbox` compares it with what else there is: 1 to 8
//! producers, bursts of a thousand to a million, on two cores of an EPYC. Ratios are to this queue.
//!
//! - *An atomic stack with swap-all.* Its consumer walks the whole burst before the oldest item
//!   comes: its longest step touched as many items as there were in the burst, 1,000,000 of them,
//!   where each step here touches one. A take took 1.2-2.4 times as long on average, too; a push
//!   0.8-1.3 times.
//! - *`crossbeam_queue::SegQueue`.* A push took 1.2-2.2 times as long, a take 1.5-2.9 times up to
//!   30,000 items, and 0.7-1.1 times when a million nodes had gone out of the caches. It allocates,
//!   and its consumer waits for a push that is half done.
//! - *A bounded ring, `crossbeam_queue::ArrayQueue`.* A push took 0.9-1.8 times as long, a take
//!   1.1-1.8 times, 0.6-1.0 with a million. It has to be as large as the largest burst, or it
//!   refuses, and a producer that is descheduled in the midst of a push holds up those behind it.
//! - *A mutex around a `VecDeque`.* A push took 1.3-2.2 times as long, a take 1.3-2.3, 0.8-1.1 with
//!   a million. An interrupt handler can't wait for a lock.
//!
//! It is not the fastest everywhere. Where two cores did nothing but push, its swaps took turns and
//! moved two cache lines each time, while `SegQueue`'s producers, which back off, let one core go
//! ahead: in such runs theirs took 0.3-0.9 times as long. And a queue of pointers to what neither
//! side looks at (`-- --bare`) spares its producers the nodes' cache lines: with a million they took
//! 0.1-0.6 times as long. A worker looks at every task that it takes, and so does who wakes it.

use core::fmt;
use core::marker::PhantomData;
use core::mem::needs_drop;
use core::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use crate::link::{Link, Linked};
use crate::sync::{AtomicPtr, AtomicU32, Cell, Ordering, const_but_under_loom};

/// What a take found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take<T> {
    /// The oldest item.
    Item(T),
    /// Nothing has been pushed that was not taken.
    Empty,
    /// Something has been pushed, but a push at or before it is half done. Whoever has nothing else
    /// to do looks again; nobody goes to sleep on it.
    Busy,
}

/// What an inbox offers: any thread puts items in, one consumer takes them out.
///
/// What holds for each of them is checked by `evenkeel::testing::conformance::inbox`: every item
/// comes out once, those of one producer in the order of its pushes, what is there for certain is
/// never denied, and an item that is refused comes back.
pub trait Inbox: Sync {
    /// What is handed over.
    type Item: Send;

    /// Hands an item over. Any thread.
    ///
    /// # Errors
    /// The inbox is full: the item is handed back and the inbox is as before. One whose items carry
    /// their links, as the worker's does, is never full.
    fn push(&self, item: Self::Item) -> Result<(), Self::Item>;

    /// Takes the oldest item.
    ///
    /// [`Take::Empty`] if all pushes that have returned, as far as the consumer can know, have been
    /// taken; [`Take::Busy`] while a push that has begun keeps it from telling.
    ///
    /// # Safety
    /// One consumer at a time, each seeing what the one before it did.
    unsafe fn take(&self) -> Take<Self::Item>;
}

/// An intrusive queue of many producers and one consumer.
///
/// The items carry the links, so it never fills and never allocates. The order is that of the
/// pushes, each thread's own among them. It may stand in a `static`. No function panics or waits.
///
/// Where it is dropped it drops what it still holds, the oldest first; if one of those drops
/// panics, what is behind it is leaked.
///
/// ```
/// use core::ptr::NonNull;
/// use evenkeel::inbox::{MpscQueue, Take};
/// use evenkeel::link::{Link, Linked};
///
/// #[repr(C)]
/// struct Message {
///     link: Link,
///     number: u32,
/// }
///
/// /// A message that nobody else has.
/// struct Owned(&'static mut Message);
///
/// // SAFETY: it is borrowed for good, and there is one handle on it, or a queue that holds that.
/// // The link is its first field.
/// unsafe impl Linked for Owned {
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
/// static INBOX: MpscQueue<Owned> = MpscQueue::new();
///
/// # fn place(number: u32) -> &'static mut Message {
/// #     Box::leak(Box::new(Message { link: Link::new(), number }))
/// # }
/// let message = place(7); // a `&'static mut Message`, wherever it comes from
/// std::thread::spawn(|| INBOX.push(Owned(message))).join().unwrap();
///
/// let mut consumer = INBOX.consumer().unwrap();
/// assert!(INBOX.consumer().is_none(), "there is one at a time");
/// assert!(matches!(consumer.take(), Take::Item(Owned(message)) if message.number == 7));
/// assert!(matches!(consumer.take(), Take::Empty));
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
/// let inbox = evenkeel::inbox::MpscQueue::new();
/// let message = Owned(Box::new(Link::new()));
/// inbox.push(message);
/// inbox.push(message);
/// ```
///
/// What is pushed outlives the queue:
///
/// ```compile_fail,E0597
/// # use core::ptr::NonNull;
/// # use evenkeel::inbox::MpscQueue;
/// # use evenkeel::link::{Link, Linked};
/// # struct Lent<'a>(&'a mut Link);
/// # unsafe impl Linked for Lent<'_> {
/// #     fn into_link(self) -> NonNull<Link> { loop {} }
/// #     unsafe fn from_link(_: NonNull<Link>) -> Self { loop {} }
/// # }
/// static INBOX: MpscQueue<Lent<'static>> = MpscQueue::new();
/// let mut link = Link::new();
/// INBOX.push(Lent(&mut link));
/// ```
pub struct MpscQueue<T: Linked + Send> {
    /// The youngest item, or null: nothing was pushed since the last one was taken. Producers meet
    /// here, so it has a cache line of its own.
    last: CachePadded<AtomicPtr<Link>>,
    /// The oldest item if it was pushed onto an empty queue and not seen yet by the consumer.
    first: CachePadded<AtomicPtr<Link>>,
    /// The consumer's: the item that it will take next, or null: `first` says.
    next: Cell<*mut Link>,
    /// Not zero while there is a [`Consumer`].
    consumed: AtomicU32,
    /// Items go in and come out: a queue of longer-lived ones is none of shorter-lived ones.
    items: PhantomData<fn(T) -> T>,
}

// SAFETY: producers reach only the atomics; `next` is the consumer's, of which there is one at a
// time by the contract of `take` and `has_visible`. Items may go from thread to thread.
unsafe impl<T: Linked + Send> Send for MpscQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send> Sync for MpscQueue<T> {}

impl<T: Linked + Send> MpscQueue<T> {
    const_but_under_loom! {
        /// An empty queue.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                last: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
                first: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
                next: Cell::new(ptr::null_mut()),
                consumed: AtomicU32::new(0),
                items: PhantomData,
            }
        }
    }

    /// Hands an item over. Any thread, any interrupt handler; wait-free (one swap, one store),
    /// allocates nothing.
    #[inline]
    pub fn push(&self, item: T) {
        let item = item.into_link();
        // SAFETY: the link is in place, and nobody else touches it until the store below.
        let link = unsafe { item.as_ref() }.next();
        // Ordering: Relaxed, published by the Release store below or by the next producer's.
        link.store(ptr::null_mut(), Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire of the next producer's swap: our null above
        // comes before its store into the same link. Acquire, pairs with the Release of the
        // previous producer's swap, for the same reason, and of the consumer's compare-and-swap in
        // `take`: it is done with `first`.
        let before = self.last.swap(item.as_ptr(), Ordering::AcqRel);
        let link = match NonNull::new(before) {
            // SAFETY: the consumer does not take the youngest item of which `last` tells without
            // changing `last`; `before` is behind the cut until the store below, so it is in place.
            Some(before) => unsafe { (*before.as_ptr()).next() },
            None => &*self.first,
        };
        // Ordering: Release, pairs with the Acquire loads of the consumer: the item is visible to
        // the taker.
        link.store(item.as_ptr(), Ordering::Release);
    }

    /// The right to take, unless somebody has it: there is one consumer at a time. It ends with the
    /// handle; one that is forgotten keeps it for good.
    ///
    /// Any thread; one compare-and-swap.
    pub fn consumer(&self) -> Option<Consumer<'_, T>> {
        // Ordering: Acquire, pairs with the Release in the drop of the consumer before: its `next`
        // is this one's.
        let claimed = self.consumed.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        claimed.ok().map(|_| Consumer { queue: self })
    }

    /// Whether the next take finds an item: one load, or two.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline]
    pub unsafe fn has_visible(&self) -> bool {
        // Ordering: Relaxed, pairs with nothing: `take` acquires.
        !self.next.get().is_null() || !self.first.load(Ordering::Relaxed).is_null()
    }

    /// Whether everything that was pushed has been taken: no item waits, no push is half done.
    ///
    /// Anybody may ask. A worker that is about to park looks at it after a full fence that comes
    /// after its announcement; each producer has one between its push and its look at that.
    #[inline]
    pub fn is_drained(&self) -> bool {
        // Ordering: Relaxed; it is the fence of the park protocol, before it, that orders it
        // against the producers' swaps.
        self.last.load(Ordering::Relaxed).is_null()
    }

    /// Takes the oldest item, in a constant number of steps, none of which waits for a producer.
    ///
    /// This is for the consumer that knows by other means that it is the only one: a worker.
    /// [`consumer`](Self::consumer) is for all others.
    ///
    /// # Safety
    /// One consumer at a time, each seeing what the one before it did; and none while a
    /// [`Consumer`] is there.
    pub unsafe fn take(&self) -> Take<T> {
        let Some(item) = NonNull::new(self.next.get()).or_else(|| self.take_first()) else {
            return if self.is_drained() { Take::Empty } else { Take::Busy };
        };
        // SAFETY: what was pushed and not taken is in place.
        let link = unsafe { (*item.as_ptr()).next() };
        // Ordering: Acquire, pairs with the Release store of the push behind it.
        let mut younger = link.load(Ordering::Acquire);
        if younger.is_null() {
            // Ordering: Release, pairs with the Acquire of a producer's swap: `first` is empty
            // before one stores into it again. Failure needs nothing: the link is loaded anew.
            let detached = self.last.compare_exchange(
                item.as_ptr(),
                ptr::null_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if detached.is_err() {
                // Ordering: Acquire, as above.
                younger = link.load(Ordering::Acquire);
                if younger.is_null() {
                    self.next.set(item.as_ptr());
                    return Take::Busy;
                }
            }
        }
        self.next.set(younger);
        // SAFETY: `push` had it from `into_link`, and it has just left the queue.
        Take::Item(unsafe { T::from_link(item) })
    }

    /// Moves on from the stub to the first item behind it.
    fn take_first(&self) -> Option<NonNull<Link>> {
        // Ordering: Acquire, pairs with the Release store of the push onto an empty queue.
        let first = NonNull::new(self.first.load(Ordering::Acquire))?;
        // Ordering: Relaxed, published by the Release of the compare-and-swap that makes the queue
        // empty again; until then no producer stores here.
        self.first.store(ptr::null_mut(), Ordering::Relaxed);
        Some(first)
    }
}

impl<T: Linked + Send> Inbox for MpscQueue<T> {
    type Item = T;

    fn push(&self, item: T) -> Result<(), T> {
        self.push(item);
        Ok(())
    }

    unsafe fn take(&self) -> Take<T> {
        // SAFETY: passed on to the caller.
        unsafe { self.take() }
    }
}

impl<T: Linked + Send> Default for MpscQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked + Send> Drop for MpscQueue<T> {
    fn drop(&mut self) {
        if needs_drop::<T>() {
            // SAFETY: nobody else is there, neither to take nor in the midst of a push.
            while let Take::Item(item) = unsafe { self.take() } {
                drop(item);
            }
        }
    }
}

impl<T: Linked + Send> fmt::Debug for MpscQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpscQueue").field("is_drained", &self.is_drained()).finish_non_exhaustive()
    }
}

/// The one that takes from a queue; see [`MpscQueue::consumer`]. It may go from thread to thread.
#[derive(Debug)]
pub struct Consumer<'a, T: Linked + Send> {
    queue: &'a MpscQueue<T>,
}

impl<T: Linked + Send> Consumer<'_, T> {
    /// Takes the oldest item, in a constant number of steps, none of which waits for a producer.
    #[inline]
    pub fn take(&mut self) -> Take<T> {
        // SAFETY: there is one consumer at a time, borrowed for itself; one that moves to another
        // thread, or comes after this one, sees what it did.
        unsafe { self.queue.take() }
    }

    /// Whether the next take finds an item: one load, or two.
    #[inline]
    #[must_use]
    pub fn has_visible(&self) -> bool {
        // SAFETY: as above. While it is borrowed, to however many threads, nobody takes.
        unsafe { self.queue.has_visible() }
    }

    /// Whether everything that was pushed has been taken: no item waits, no push is half done.
    #[inline]
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_drained()
    }
}

impl<T: Linked + Send> Drop for Consumer<'_, T> {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire in `consumer`: the next one sees what this did.
        self.queue.consumed.store(0, Ordering::Release);
    }
}
