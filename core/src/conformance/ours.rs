//! Our own queues, put to the kit, and what it does not ask of others.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ptr::NonNull;

use crate::conformance::ledger::{Ledger, Parcel};
use crate::conformance::{inbox, run_queue};
use crate::inbox::{MpscQueue, Take};
use crate::link::{Link, Linked};
use crate::run_queue::Fifo;

/// The link is not the first field: nothing may depend on that.
struct Carrier {
    parcel: Parcel,
    link: Link,
}

struct Carried(Box<Carrier>);

impl Carried {
    fn wrap(parcel: Parcel) -> Self {
        Self(Box::new(Carrier { parcel, link: Link::new() }))
    }

    fn unwrap(self) -> Parcel {
        self.0.parcel
    }
}

// SAFETY: a box is the only handle on what it holds, which stays where it is.
unsafe impl Linked for Carried {
    fn into_link(self) -> NonNull<Link> {
        // SAFETY: out of a box. No reference is made: the pointer reaches the whole.
        unsafe { NonNull::new_unchecked(&raw mut (*Box::into_raw(self.0)).link) }
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: `into_link` made it from the box, by the contract.
        Self(unsafe {
            Box::from_raw(link.byte_sub(mem::offset_of!(Carrier, link)).cast().as_ptr())
        })
    }
}

#[test]
fn the_fifo_passes() {
    run_queue(|_| Fifo::new(), Carried::wrap, Carried::unwrap);
}

#[test]
fn the_inbox_passes() {
    inbox(|_| MpscQueue::new(), Carried::wrap, Carried::unwrap);
}

#[test]
fn there_is_one_consumer_at_a_time() {
    let ledger = Ledger::new(3);
    let inbox = MpscQueue::new();
    let mut consumer = inbox.consumer().unwrap();
    assert!(inbox.consumer().is_none());
    assert!(!consumer.has_visible() && consumer.is_drained());
    (0..3).for_each(|number| inbox.push(Carried::wrap(ledger.parcel(number))));
    assert!(consumer.has_visible() && !consumer.is_drained());
    let number = |take| match take {
        Take::Item(item) => Some(Carried::unwrap(item).number()),
        Take::Empty | Take::Busy => None,
    };
    assert_eq!(number(consumer.take()), Some(0));
    drop(consumer);
    // The next one goes on where the one before it was.
    let mut consumer = inbox.consumer().unwrap();
    assert_eq!([0; 3].map(|_| number(consumer.take())), [Some(1), Some(2), None]);
    mem::forget(consumer);
    assert!(inbox.consumer().is_none(), "forgotten, it still has the right");
}

#[test]
fn a_queue_may_be_moved_with_what_it_holds() {
    let ledger = Ledger::new(4);
    let (inbox, fifo) = (MpscQueue::new(), Fifo::new());
    (0..2).for_each(|number| inbox.push(Carried::wrap(ledger.parcel(number))));
    (2..4).for_each(|number| fifo.push(Carried::wrap(ledger.parcel(number))));
    let (inbox, fifo) = (Box::new(inbox), Box::new(fifo));
    let mut consumer = inbox.consumer().unwrap();
    let mut out = Vec::new();
    while let Take::Item(item) = consumer.take() {
        out.push(item.unwrap().number());
    }
    while let Some(item) = fifo.pop() {
        out.push(item.unwrap().number());
    }
    assert_eq!(out, [0, 1, 2, 3]);
}
