//! A run queue from which others may steal: first in, first out for its owner, of fixed capacity,
//! with an overflow that never fills. No allocator, no operating system, no fence.
//!
//! ```
//! use core::ptr::NonNull;
//! use std::thread;
//!
//! use evenkeel::link::{Link, Linked};
//! use evenkeel::steal::{Haul, StealQueue};
//!
//! /// What stands in the queue: the link comes first, so a pointer to it is one to the whole.
//! #[repr(C)]
//! struct Job {
//!     link: Link,
//!     number: usize,
//! }
//!
//! struct Handle(Box<Job>);
//!
//! // SAFETY: a box is the only handle on what it holds, which stays where it is.
//! unsafe impl Linked for Handle {
//!     fn into_link(self) -> NonNull<Link> {
//!         NonNull::from(Box::leak(self.0)).cast()
//!     }
//!
//!     unsafe fn from_link(link: NonNull<Link>) -> Self {
//!         // SAFETY: made by `into_link`, and given back once, by the contract.
//!         Self(unsafe { Box::from_raw(link.cast().as_ptr()) })
//!     }
//! }
//!
//! static QUEUE: StealQueue<Handle, 256> = StealQueue::new();
//!
//! let owner = QUEUE.claim().expect("nobody else has claimed it");
//! for number in 0..100 {
//!     owner.push(Handle(Box::new(Job { link: Link::new(), number })));
//! }
//! let stolen = thread::spawn(|| {
//!     let mine = StealQueue::<Handle, 256>::new();
//!     let thief = mine.claim().unwrap();
//!     let Haul::Moved(count) = QUEUE.steal_half_into(&thief) else { unreachable!() };
//!     assert_eq!(thief.pop().unwrap().0.number, 0);
//!     count.get()
//! })
//! .join()
//! .unwrap();
//! assert_eq!(stolen, 32);
//! assert_eq!(owner.pop().unwrap().0.number, 32);
//! assert_eq!(owner.pushed(), 100);
//! ```
//!
//! # How it works
//! Items are numbered as they are pushed. The ring holds those from `front` to `tail`, and the
//! overflow, a list through the items' own [links](crate::link::Link), those from `tail` on. A push
//! is two stores. Who moves `front` on, by one compare-and-swap, has what it passes: a thief, who
//! has copied the items out before, or the owner, who takes them later. So stealing one or many is
//! one read-modify-write, and a thief that is descheduled in the midst of it holds nobody back:
//! there is no half-done state.
//!
//! The owner moves `front` on by several at a time, and pops what it has *reserved* so with plain
//! loads and stores. It predicts where `front` is, since it was the last to move it; that it was
//! not shows in the same compare-and-swap.
//!
//! # What thieves can't have
//! - What is reserved: half of what is waiting, at most 8 items, one of which the owner pops at
//!   once. So while the owner is in a long dispatch up to 7 items may wait for its end, and at
//!   least as many as that were left to thieves. After a theft the owner reserves one at a time,
//!   for its next 64 reservations: where thieves are about, nothing waits behind a dispatch that
//!   could go elsewhere.
//! - What is in the overflow. It flows back when the owner pops or pushes, at most 16 items in a
//!   step.
//!
//! # Tickets
//! An item's ticket is how many items were pushed before it, modulo 2^32, whether it is in the ring
//! or in the overflow: [`Owner::oldest`] says it of the next item, [`Owner::pushed`] of one that is
//! yet to come. Who has a second queue, and notes `pushed` with each item there, can serve both by
//! age: [`Owner::pop_before`].
//!
//! # Numbers wrap
//! Numbers are `usize`, and a compare-and-swap of `front` is fooled if it comes round to the very
//! same number within one steal. This is 2^64 pushes where words have 64 bits, and 2^32 where they
//! have 32: at 10 ns a push, a thief would have to be descheduled for 43 seconds, and to the push.
//! Words of 16 bits are a compile error.
//!
//! # What it was compared with
//! `cargo bench -p evenkeel --features std --bench steal`, on an AMD EPYC (Zen 4) in a virtual
//! machine of two cores. Nanoseconds, and in parentheses the ratio to ours, the median over
//! interleaved rounds:
//!
//! | | this | ring | `BWoS` | `crossbeam-deque` | `st3` | mutex |
//! |---|---|---|---|---|---|---|
//! | push and pop, 1 item | 2.44 | 2.83 (1.16) | 1.90 (0.78) | 2.49 (1.02) | 3.82 (1.57) | 8.57 (3.52) |
//! | push and pop, 16 items | 1.30 | 2.88 (2.22) | 1.73 (1.33) | 2.51 (1.94) | 3.79 (2.93) | 8.57 (6.61) |
//! | push and pop, 256 items | 1.29 | 2.88 (2.22) | 1.88 (1.45) | 2.72 (2.10) | 3.80 (2.93) | 8.57 (6.61) |
//! | steal one | 2.80 | 3.21 (1.15) | 7.22 (2.59) | 5.34 (1.91) | 6.85 (2.44) | 4.80 (1.71) |
//! | steal many | 0.73 | 0.79 (1.07) | 1.39 (1.89) | 3.21 (4.36) | 1.10 (1.50) | 1.67 (2.27) |
//! | steal many and pop them | 1.66 | 3.37 (2.04) | 2.66 (1.61) | 3.42 (2.04) | 4.93 (2.98) | 6.07 (3.67) |
//! | an owner and a thief of one | 43 | 58 (1.36) | 15 (0.35) | 36 (0.86) | 58 (1.31) | 76 (2.01) |
//! | an owner and a thief of many | 28 | 36 (1.28) | 15 (0.53) | 30 (1.09) | 35 (1.22) | 74 (2.48) |
//!
//! In the last two the thief never rests, on the other core; how the two meet varies from run to
//! run by a third. The thief of one got 59 % of the items here, 68 % from the ring, 3 % from `BWoS`,
//! 34 % from `crossbeam-deque`: what costs time there is what is stolen.
//!
//! The algorithms that lost, both in `benches/steal/losers`:
//! - *The bounded ring* in the manner of Go, whose owner moves `front` on by a compare-and-swap at
//!   every pop. (Tokio and `st3` add a second word for thieves that are still copying, which makes
//!   a ring look full while one of them is descheduled.) It is this queue without reservations,
//!   which take push and pop from 2.2 to 1.
//! - *Block-based stealing* (Wang et al., "`BWoS`", OSDI '23), whose owner has the oldest block of
//!   32 for itself. A lone item needs no read-modify-write there, because it can't be stolen: nor
//!   can any other in the owner's block, which waits for the end of the owner's dispatch whatever
//!   thieves are about. That is why the owner is disturbed so little in the last two rows. Where
//!   there is more than one item it is slower all the same, and a theft is two read-modify-writes.
//!   Its numbers have holes: a partly stolen block keeps its place.
//!
//! Of the field's own, `crossbeam-deque` has no fixed capacity, and allocates as it grows.

#[allow(unsafe_code)]
mod overflow;
#[allow(unsafe_code)]
mod owner;
#[allow(unsafe_code)]
mod queue;
#[cfg(all(test, not(loom)))]
#[allow(unsafe_code)]
mod tests;

pub use owner::Owner;
pub use queue::{Haul, StealQueue, Stolen};
