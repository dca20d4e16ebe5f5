//! The ring that thieves reach, and its owner's side.

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;

use super::overflow::Overflow;
use super::owner::Owner;
use crate::link::{Link, Linked};
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Cell, Ordering};
use crate::sync::{const_but_under_loom, null_pointers};

/// At most so many items are reserved by the owner at a time.
const RESERVED_AT_MOST: usize = 8;
/// At most so many items flow back from the overflow in one step. No fewer than are reserved: what
/// is reserved is brought into the ring in the same step.
const FLOW_BACK: usize = 16;
const _: () = assert!(FLOW_BACK >= RESERVED_AT_MOST);
/// At most so many items are stolen in one step.
const STOLEN_AT_MOST: usize = 32;
/// For so many reservations after a theft the owner reserves no more than it takes.
const WARY: u32 = 64;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;

/// What a thief found.
#[must_use = "an item that was stolen is the thief's to run"]
#[derive(Debug, PartialEq, Eq)]
pub enum Stolen<T> {
    /// The oldest item that was not the owner's already.
    Item(T),
    /// Nothing that can be stolen. The owner may still have items: reserved or in the overflow.
    Empty,
    /// Another thief, or the owner, was quicker: somebody has got an item. Trying again may help.
    Contended,
}

/// What a thief of many found.
#[must_use = "what was stolen is in the thief's queue and wants to be run"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haul {
    /// So many items have gone over, in their order.
    Moved(NonZeroUsize),
    /// Nothing that can be stolen, as for [`Stolen::Empty`].
    Empty,
    /// Another thief, or the owner, was quicker, as for [`Stolen::Contended`].
    Contended,
}

/// A queue of items that belong to whoever takes them: one owner pushes and pops, any number of
/// thieves steal. See [the module](super) for how, and for what thieves can't have.
///
/// `CAPACITY`, a power of two, is how many items thieves may reach; 256 is a good one. No operation
/// allocates; a push of the owner never fails. What is left in a queue when it is dropped is
/// dropped with it, from the oldest on.
///
/// ```
/// # use core::ptr::NonNull;
/// use evenkeel::link::{Link, Linked};
/// use evenkeel::steal::{StealQueue, Stolen};
///
/// /// Work that is never freed.
/// struct Work(&'static Link);
/// # // SAFETY: made of one link each, and never freed.
/// # unsafe impl Linked for Work {
/// #     fn into_link(self) -> NonNull<Link> { NonNull::from(self.0) }
/// #     unsafe fn from_link(link: NonNull<Link>) -> Self { Self(unsafe { link.as_ref() }) }
/// # }
///
/// static WORK: [Link; 3] = [const { Link::new() }; 3];
///
/// let queue = StealQueue::<Work, 2>::new();
/// let owner = queue.claim().unwrap();
/// WORK.iter().map(Work).for_each(|work| owner.push(work));
/// assert!(matches!(queue.steal(), Stolen::Item(_)));
/// assert!(matches!(queue.steal(), Stolen::Item(_)));
/// assert!(matches!(queue.steal(), Stolen::Empty)); // the third is in the overflow
/// assert_eq!(owner.oldest(), Some(2));
/// assert!(owner.pop().is_some());
/// assert!(owner.is_empty());
/// ```
///
/// Items go from thread to thread, so they must be `Send` for the queue to be shared:
///
/// ```compile_fail,E0277
/// # use evenkeel::{link::Linked, steal::StealQueue};
/// # #[derive(Clone, Copy)] struct Here(*const ());
/// # unsafe impl Linked for Here {
/// #     fn into_link(self) -> core::ptr::NonNull<evenkeel::link::Link> { loop {} }
/// #     unsafe fn from_link(_: core::ptr::NonNull<evenkeel::link::Link>) -> Self { loop {} }
/// # }
/// fn shared(_: impl Sync) {}
/// shared(StealQueue::<Here, 2>::new());
/// ```
///
/// A queue of longer-lived items is none of shorter-lived ones:
///
/// ```compile_fail
/// use evenkeel::steal::StealQueue;
/// # use core::ptr::NonNull;
/// # use evenkeel::link::{Link, Linked};
/// # struct Lent<'a>(&'a mut Link);
/// # unsafe impl Linked for Lent<'_> {
/// #     fn into_link(self) -> NonNull<Link> { NonNull::from(self.0) }
/// #     unsafe fn from_link(mut link: NonNull<Link>) -> Self { Self(unsafe { link.as_mut() }) }
/// # }
///
/// fn shorter<'a>(queue: &'a StealQueue<Lent<'static>, 4>) -> &'a StealQueue<Lent<'a>, 4> {
///     queue
/// }
/// ```
pub struct StealQueue<T: Linked, const CAPACITY: usize> {
    /// The number of the oldest item that nobody has yet: who moves it on has what it passes.
    /// Thieves and the owner meet here, so it has a cache line of its own.
    front: CachePadded<AtomicUsize>,
    /// The number of the first item that is not in the ring. Written by the owner, read by thieves.
    tail: CachePadded<AtomicUsize>,
    own: CachePadded<Own>,
    claimed: AtomicU32,
    ring: [AtomicPtr<Link>; CAPACITY],
    /// Items go in and come out: a queue of longer-lived ones is none of shorter-lived ones.
    items: PhantomData<fn(T) -> T>,
}

/// What only the owner touches.
struct Own {
    /// The numbers from here to `end` are reserved, or none.
    next: Cell<usize>,
    /// As far as the owner has moved `front`, or has seen it moved by others.
    end: Cell<usize>,
    /// How many reservations are still to be small.
    wary: Cell<u32>,
    overflow: Overflow,
}

impl Own {
    /// How many of those that are waiting to reserve.
    ///
    /// No more than half, so that thieves find as many as the owner keeps to itself; one, if
    /// thieves are about.
    #[inline]
    fn share(&self, waiting: usize, most: usize) -> usize {
        if waiting < 4 {
            return 1;
        }
        let wary = self.wary.get();
        if wary > 0 {
            self.wary.set(wary - 1);
            return 1;
        }
        (waiting / 2).min(most)
    }
}

// SAFETY: `own` is the owner's, of whom there is one at a time, each seeing what the one before
// did, by the contract of the owner's methods; items go from thread to thread, so they must be
// `Send`.
unsafe impl<T: Linked + Send, const CAPACITY: usize> Send for StealQueue<T, CAPACITY> {}
// SAFETY: as above.
unsafe impl<T: Linked + Send, const CAPACITY: usize> Sync for StealQueue<T, CAPACITY> {}

impl<T: Linked, const CAPACITY: usize> StealQueue<T, CAPACITY> {
    /// At most half of a small ring.
    const RESERVED: usize = {
        let part = if CAPACITY >= 4 { CAPACITY / 2 } else { 1 };
        if part < RESERVED_AT_MOST { part } else { RESERVED_AT_MOST }
    };

    const_but_under_loom! {
        /// An empty queue. That the capacity is a power of two is seen at compile time.
        ///
        /// ```compile_fail,E0080
        /// # use evenkeel::{link::Linked, steal::StealQueue};
        /// fn of_three<T: Linked>() -> StealQueue<T, 3> {
        ///     StealQueue::new()
        /// }
        /// # use core::ptr::NonNull;
        /// # struct Item;
        /// # unsafe impl Linked for Item {
        /// #     fn into_link(self) -> NonNull<evenkeel::link::Link> { NonNull::dangling() }
        /// #     unsafe fn from_link(_: NonNull<evenkeel::link::Link>) -> Self { Item }
        /// # }
        /// # of_three::<Item>();
        /// ```
        #[must_use]
        pub const fn new() -> Self {
            Self::numbered_from(0)
        }
    }

    const_but_under_loom! {
        const fn numbered_from(first: usize) -> Self {
            const {
                assert!(CAPACITY.is_power_of_two(), "the capacity is not a power of two");
                assert!(usize::BITS >= 32, "the numbers would wrap during one slow steal");
            }
            Self {
                front: CachePadded::new(AtomicUsize::new(first)),
                tail: CachePadded::new(AtomicUsize::new(first)),
                own: CachePadded::new(Own {
                    next: Cell::new(first),
                    end: Cell::new(first),
                    wary: Cell::new(0),
                    overflow: Overflow::new(),
                }),
                claimed: AtomicU32::new(FREE),
                ring: null_pointers(),
                items: PhantomData,
            }
        }
    }

    /// An empty queue whose first item has this number, for tests of what happens where numbers,
    /// and tickets, which are their low 32 bits, wrap.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn starting_at(first: usize) -> Self {
        Self::numbered_from(first)
    }

    /// Becomes the owner, if there is none. Any thread.
    #[must_use]
    pub fn claim(&self) -> Option<Owner<'_, T, CAPACITY>> {
        // Ordering: Acquire, pairs with the Release of `give_up`: what the owner before did is
        // visible to this one. Failure needs nothing.
        self.claimed
            .compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            // SAFETY: whoever else claims fails until this one gives up.
            .map(|_| unsafe { Owner::new(self) })
    }

    /// The claim ends.
    ///
    /// # Safety
    /// The caller is the owner by a claim, and is so no more.
    pub(super) unsafe fn give_up(&self) {
        // Ordering: Release, pairs with the Acquire of `claim`.
        self.claimed.store(FREE, Ordering::Release);
    }

    #[inline]
    fn slot(&self, number: usize) -> &AtomicPtr<Link> {
        &self.ring[number & (CAPACITY - 1)]
    }

    /// Puts an item at the back. Never fails, never allocates.
    ///
    /// # Safety
    /// The caller is the owner: one at a time, each seeing what the one before did. Nobody has
    /// [claimed](Self::claim) the queue, but the caller.
    #[inline]
    pub unsafe fn push(&self, item: T) {
        let link = item.into_link();
        if self.known_room() == 0 {
            self.push_where_no_room_is_known(link);
        } else {
            self.place(link);
        }
    }

    /// How many can be put behind the tail: none, as long as the overflow holds anything, so that
    /// nothing is pushed past that.
    #[inline]
    fn known_room(&self) -> usize {
        if !self.own.overflow.is_empty() {
            return 0;
        }
        // Ordering: Relaxed, the owner's own store.
        let tail = self.tail.load(Ordering::Relaxed);
        CAPACITY - tail.wrapping_sub(self.own.next.get())
    }

    #[inline]
    fn place(&self, link: NonNull<Link>) {
        // Ordering: Relaxed, the owner's own store.
        let tail = self.tail.load(Ordering::Relaxed);
        // Ordering: Relaxed, published by the store of the tail.
        self.slot(tail).store(link.as_ptr(), Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire loads of thieves: the slot, and what its item
        // carries, is visible to whoever sees the tail beyond it.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn push_where_no_room_is_known(&self, link: NonNull<Link>) {
        self.look_for_room();
        if self.known_room() == 0 {
            // SAFETY: it was just given to this queue.
            unsafe { self.own.overflow.push(link) };
        } else {
            self.place(link);
        }
    }

    /// Looks how far thieves have emptied the ring, and lets a bounded part of the overflow flow
    /// back.
    #[cold]
    #[inline(never)]
    fn look_for_room(&self) {
        if self.reserved().is_none() {
            // Ordering: Acquire, pairs with the Release of the thieves that have moved it: they are
            // done with the slots that it has passed.
            self.see_front_at(self.front.load(Ordering::Acquire));
        }
        // Ordering: Relaxed, the owner's own store.
        let mut tail = self.tail.load(Ordering::Relaxed);
        let room = CAPACITY - tail.wrapping_sub(self.own.next.get());
        if room == 0 || self.own.overflow.is_empty() {
            return;
        }
        for link in (0..room.min(FLOW_BACK)).map_while(|_| self.own.overflow.pop()) {
            // Ordering: Relaxed, published by the store of the tail.
            self.slot(tail).store(link.as_ptr(), Ordering::Relaxed);
            tail = tail.wrapping_add(1);
        }
        // Ordering: Release, as in `place`.
        self.tail.store(tail, Ordering::Release);
    }

    /// Nothing is reserved, and this is where thieves have moved the front.
    fn see_front_at(&self, front: usize) {
        let own = &*self.own;
        if front != own.end.get() {
            own.wary.set(WARY);
            own.next.set(front);
            own.end.set(front);
        }
    }

    /// Takes the oldest item.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline]
    pub unsafe fn pop(&self) -> Option<T> {
        let next = match self.reserved() {
            Some(next) => next,
            None => self.reserve(|_| true)?,
        };
        // SAFETY: reserved.
        Some(unsafe { self.take(next) })
    }

    /// Takes the oldest item if it was pushed before [`pushed`](Self::pushed) was `ticket`, for who
    /// merges several queues by age. Nothing that is younger is ever taken, whatever thieves do.
    ///
    /// The ticket may be up to 2^31 pushes old, or ahead.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline]
    pub unsafe fn pop_before(&self, ticket: u32) -> Option<T> {
        let is_before = |number| (ticket_of(number).wrapping_sub(ticket)).cast_signed() < 0;
        let next = match self.reserved() {
            Some(next) => Some(next).filter(|&next| is_before(next))?,
            None => self.reserve(is_before)?,
        };
        // SAFETY: reserved.
        Some(unsafe { self.take(next) })
    }

    #[inline]
    fn reserved(&self) -> Option<usize> {
        let next = self.own.next.get();
        (next != self.own.end.get()).then_some(next)
    }

    /// Reserves some of the oldest items, of which there is one at least and the first is `wanted`.
    #[inline]
    fn reserve(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let own = &*self.own;
        let number_of_next = self.number_of_next();
        loop {
            // Where it still is, if no thief has been here; to load it would take longer.
            let front = own.end.get();
            let waiting = number_of_next.wrapping_sub(front);
            if waiting == 0 || !wanted(front) {
                return None;
            }
            let reserved = front.wrapping_add(own.share(waiting, Self::RESERVED));
            // Ordering: Relaxed, the owner knows what it has pushed, and what thieves did before
            // the front was here was acquired when it was first seen here. Failure: Acquire, pairs
            // with the Release of the thieves that have moved it: when what is reserved next is
            // `next` in `known_room`, they are done with the slots before it.
            match self.front.compare_exchange(front, reserved, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => {
                    own.end.set(reserved);
                    if !own.overflow.is_empty() {
                        // Brings what is reserved into the ring, if it is not there yet: it has
                        // room for it.
                        self.look_for_room();
                    }
                    return Some(front);
                }
                Err(moved) => self.see_front_at(moved),
            }
        }
    }

    /// # Safety
    /// It is the first of what is reserved.
    #[inline]
    unsafe fn take(&self, next: usize) -> T {
        self.own.next.set(next.wrapping_add(1));
        // Ordering: Relaxed, the owner's own store.
        let link = self.slot(next).load(Ordering::Relaxed);
        // SAFETY: it has been pushed, and `front` was moved past it by this owner, so nobody else
        // gets it.
        unsafe { item(link) }
    }

    /// The number that the next item will have.
    #[inline]
    fn number_of_next(&self) -> usize {
        // Ordering: Relaxed, the owner's own store.
        self.tail.load(Ordering::Relaxed).wrapping_add(self.own.overflow.len())
    }

    /// How many items have been pushed so far, wrapping: the ticket of the next. Two loads.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline]
    pub unsafe fn pushed(&self) -> u32 {
        ticket_of(self.number_of_next())
    }

    /// The number of the item that the next pop gives.
    #[inline]
    fn number_of_oldest(&self) -> Option<usize> {
        self.reserved().or_else(|| {
            let number_of_next = self.number_of_next();
            // What the owner has seen empty is so still: thieves bring nothing.
            if self.own.end.get() == number_of_next {
                return None;
            }
            // Ordering: Relaxed, pairs with nothing: who takes an item does so by a
            // compare-and-swap.
            let front = self.front.load(Ordering::Relaxed);
            (front != number_of_next).then_some(front)
        })
    }

    /// The ticket of the item that the next pop gives: how many had been pushed before it. Exact,
    /// unless a thief takes that item first, which can't be known in advance;
    /// [`pop_before`](Self::pop_before) decides and takes in one.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline]
    pub unsafe fn oldest(&self) -> Option<u32> {
        self.number_of_oldest().map(ticket_of)
    }

    /// Whether there is nothing to pop. Two loads where something is reserved, four where nothing
    /// has been pushed since the last was popped; else a fifth, the only one of what thieves write.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    #[inline]
    pub unsafe fn is_empty(&self) -> bool {
        self.number_of_oldest().is_none()
    }

    /// Whether a thief would have found something. Any thread; two loads.
    #[inline]
    pub fn has_stealable(&self) -> bool {
        // Ordering: Relaxed, pairs with nothing: who steals looks again.
        let front = self.front.load(Ordering::Relaxed);
        stealable(front, self.tail.load(Ordering::Relaxed)).is_some()
    }

    /// Takes the oldest item that the owner has not reserved. Any thread; lock-free, and one step:
    /// it does not try again.
    #[inline]
    pub fn steal(&self) -> Stolen<T> {
        // Ordering: Relaxed, the compare-and-swap sees whether it was still so.
        let front = self.front.load(Ordering::Relaxed);
        // Ordering: Acquire, pairs with the Release stores of the owner: the slots before it, and
        // what their items carry.
        let tail = self.tail.load(Ordering::Acquire);
        if stealable(front, tail).is_none() {
            return Stolen::Empty;
        }
        // Ordering: Relaxed, acquired with the tail. What is read in vain may be of another round.
        let link = self.slot(front).load(Ordering::Relaxed);
        if !self.passes(front, 1) {
            return Stolen::Contended;
        }
        // SAFETY: `front` was moved past it by this thread, so nobody else gets it, and nothing had
        // been put in its place, for this waits until `front` is past it.
        Stolen::Item(unsafe { item(link) })
    }

    /// Steals half of what can be stolen, rounded up, at most 32 and no more than `thief`'s ring
    /// has room for, oldest first, and puts it at the back there. Any thread; lock-free, and one
    /// step: it does not try again. From itself: [`Haul::Empty`].
    #[inline]
    pub fn steal_half_into(&self, thief: &Owner<'_, T, CAPACITY>) -> Haul {
        // SAFETY: of that queue the caller is the owner.
        unsafe { self.steal_half(thief.queue()) }
    }

    /// [`steal_half_into`](Self::steal_half_into) a queue of which the caller is the owner without
    /// a claim.
    ///
    /// # Safety
    /// The caller is the owner of `thief`, as for [`push`](Self::push).
    pub unsafe fn steal_half(&self, thief: &Self) -> Haul {
        if ptr::eq(self, thief) {
            return Haul::Empty;
        }
        // Ordering: as in `steal`.
        let front = self.front.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Acquire);
        let Some(waiting) = stealable(front, tail) else {
            return Haul::Empty;
        };
        let half = (waiting.get() - waiting.get() / 2).min(STOLEN_AT_MOST);
        let Some(count) = NonZeroUsize::new(half.min(thief.room_for(half))) else {
            return match self.steal() {
                Stolen::Item(item) => {
                    // SAFETY: the caller is its owner.
                    unsafe { thief.push(item) };
                    Haul::Moved(NonZeroUsize::MIN)
                }
                Stolen::Empty => Haul::Empty,
                Stolen::Contended => Haul::Contended,
            };
        };
        // Ordering: Relaxed, the owner's own store.
        let into = thief.tail.load(Ordering::Relaxed);
        for nth in 0..count.get() {
            // Ordering: Relaxed, acquired with the tail. What is read in vain may be of another
            // round, and stays behind the thief's tail.
            let link = self.slot(front.wrapping_add(nth)).load(Ordering::Relaxed);
            // Ordering: Relaxed, published by the store of the thief's tail.
            thief.slot(into.wrapping_add(nth)).store(link, Ordering::Relaxed);
        }
        if !self.passes(front, count.get()) {
            return Haul::Contended;
        }
        // Ordering: Release, as in `place`.
        thief.tail.store(into.wrapping_add(count.get()), Ordering::Release);
        Haul::Moved(count)
    }

    /// How many can be put behind the tail, if need be after a look. The owner only.
    #[inline]
    fn room_for(&self, count: usize) -> usize {
        if self.known_room() < count {
            self.look_for_room();
        }
        self.known_room()
    }

    /// Whether it was this thief that moved `front` on.
    #[inline]
    fn passes(&self, front: usize, count: usize) -> bool {
        // Ordering: Release, pairs with the Acquire loads of the owner, before it puts something
        // else into the slots: they have been read. Failure needs nothing: what was read is
        // discarded.
        self.front
            .compare_exchange(
                front,
                front.wrapping_add(count),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

/// How many lie between what a thief has read of the two, if they were read in order. `front` is
/// ahead of an outdated `tail`; and ahead of the real one for a moment, while what is reserved
/// flows back from the overflow.
#[inline]
fn stealable(front: usize, tail: usize) -> Option<NonZeroUsize> {
    let waiting = tail.wrapping_sub(front);
    NonZeroUsize::new(waiting).filter(|waiting| waiting.get().cast_signed() > 0)
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // the low bits are what tickets are
fn ticket_of(number: usize) -> u32 {
    number as u32
}

/// # Safety
/// The link was given to a queue, and is the caller's alone.
#[inline]
unsafe fn item<T: Linked>(link: *mut Link) -> T {
    // SAFETY: a queue is given no null, and the rest is passed on to the caller.
    unsafe { T::from_link(NonNull::new_unchecked(link)) }
}

impl<T: Linked, const CAPACITY: usize> Default for StealQueue<T, CAPACITY> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked, const CAPACITY: usize> Drop for StealQueue<T, CAPACITY> {
    fn drop(&mut self) {
        // SAFETY: nobody else has it, so this is the owner.
        while let Some(item) = unsafe { self.pop() } {
            drop(item);
        }
    }
}

impl<T: Linked, const CAPACITY: usize> fmt::Debug for StealQueue<T, CAPACITY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StealQueue")
            .field("capacity", &CAPACITY)
            .field("has_stealable", &self.has_stealable())
            .finish_non_exhaustive()
    }
}
