//! The links by which things stand in queues that allocate nothing: what stands in one carries its
//! own place.

use core::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, Life, const_but_under_loom};

/// A place in an intrusive queue: one word, the first thing to look at for whoever holds the
/// neighbour. A thing that may stand in two queues at once carries two.
///
/// An atomic, since in an [inbox](crate::inbox) it is written by a producer and read by the
/// consumer. A queue of one owner reads and writes it as plain memory: relaxed, no
/// read-modify-write.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub struct Link {
    next: AtomicPtr<Link>,
    life: Life,
}

impl Link {
    const_but_under_loom! {
        /// A link that stands nowhere.
        #[must_use]
        pub const fn new() -> Self {
            Self { next: AtomicPtr::new(ptr::null_mut()), life: Life::new() }
        }
    }

    /// The next in the queue, or null.
    #[inline]
    pub(crate) fn next(&self) -> &AtomicPtr<Link> {
        self.life.check();
        &self.next
    }

    /// Of the allocation that it is part of.
    #[inline]
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// A handle on a thing that carries a [`Link`]: what an intrusive queue takes and gives back.
///
/// ```
/// use core::ptr::NonNull;
/// use evenkeel::link::{Link, Linked};
///
/// /// What stands in the queue: the link comes first, so a pointer to it is one to the whole.
/// #[repr(C)]
/// struct Message {
///     link: Link,
///     text: &'static str,
/// }
///
/// /// The handle: whoever has it has the message for itself.
/// struct Owned(Box<Message>);
///
/// // SAFETY: a box is the only handle on what it holds, which stays where it is.
/// unsafe impl Linked for Owned {
///     fn into_link(self) -> NonNull<Link> {
///         NonNull::from(Box::leak(self.0)).cast()
///     }
///
///     unsafe fn from_link(link: NonNull<Link>) -> Self {
///         // SAFETY: made by `into_link`, and given back once, by the contract.
///         Self(unsafe { Box::from_raw(link.cast().as_ptr()) })
///     }
/// }
/// # let message = Owned(Box::new(Message { link: Link::new(), text: "ahoy" }));
/// # let link = message.into_link();
/// # assert_eq!(unsafe { Owned::from_link(link) }.0.text, "ahoy");
/// ```
///
/// # Safety
/// From [`into_link`](Self::into_link) until [`from_link`](Self::from_link) is called with it, the
/// pointer is valid, the link stays in place, and nothing but the queue touches it: no other handle
/// on the same link can be given to a queue meanwhile.
pub unsafe trait Linked: Sized {
    /// Gives the thing, by its link, to a queue.
    fn into_link(self) -> NonNull<Link>;

    /// Takes it back.
    ///
    /// # Safety
    /// The link came from [`into_link`](Self::into_link), and each such call is answered by at most
    /// one of these.
    unsafe fn from_link(link: NonNull<Link>) -> Self;
}
