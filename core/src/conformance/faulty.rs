//! Queues with a fault, each of which has to be found out, and such as have none.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::mem;
use std::string::ToString;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use crate::conformance::ledger::Parcel;
use crate::conformance::rules::{Broken, Rule};
use crate::conformance::{inbox, run_queue};
use crate::inbox::{Inbox, Take};
use crate::run_queue::RunQueue;

fn broken(checked: Result<(), Broken>) -> Rule {
    checked.expect_err("a fault was not found").rule
}

/// What is wrong with a run queue of which the rest is right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The youngest first.
    Lifo,
    /// Two neighbours change places, once in a while.
    Swaps,
    Loses,
    Duplicates,
    /// Says that it is empty, once in a while.
    Denies,
    /// `is_empty` does not see the last item.
    Overlooks,
    /// Hands back the oldest item for the one that it refuses.
    HandsBackAnother,
    /// A refusal takes one place away.
    Shrinks,
    /// Fits one item more than it has room for, once it was full.
    Grows,
    DropsInside,
    Leaks,
    DropsTwice,
}

struct Plain {
    items: RefCell<VecDeque<Parcel>>,
    room: Cell<usize>,
    turn: Cell<usize>,
    fault: Fault,
}

impl Plain {
    fn new(fault: Fault) -> Self {
        Self { items: RefCell::default(), room: Cell::new(8), turn: Cell::new(0), fault }
    }

    /// In one turn of fifty.
    fn now(&self, fault: Fault) -> bool {
        self.turn.set(self.turn.get() + 1);
        self.fault == fault && self.turn.get().is_multiple_of(50)
    }
}

impl RunQueue for Plain {
    type Item = Parcel;

    fn push(&self, item: Parcel) -> Result<(), Parcel> {
        let mut items = self.items.borrow_mut();
        if items.len() >= self.room.get() {
            match self.fault {
                Fault::Shrinks => self.room.set(7),
                Fault::Grows => self.room.set(9),
                Fault::HandsBackAnother => {
                    items.push_back(item);
                    return Err(items.pop_front().unwrap());
                }
                _ => {}
            }
            return Err(item);
        }
        if self.now(Fault::Loses) {
            return Ok(());
        }
        if self.now(Fault::Duplicates) && items.len() + 1 < self.room.get() {
            items.push_back(item.duplicate());
        }
        if self.now(Fault::DropsInside) {
            drop(item.duplicate());
        }
        let last = items.pop_back();
        if self.now(Fault::Swaps) {
            items.push_back(item);
            items.extend(last);
        } else {
            items.extend(last);
            items.push_back(item);
        }
        Ok(())
    }

    fn pop(&self) -> Option<Parcel> {
        if self.now(Fault::Denies) {
            return None;
        }
        let mut items = self.items.borrow_mut();
        if self.fault == Fault::Lifo { items.pop_back() } else { items.pop_front() }
    }

    fn is_empty(&self) -> bool {
        let items = self.items.borrow();
        items.is_empty() || (self.fault == Fault::Overlooks && items.len() == 1)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        match self.fault {
            Fault::Leaks => self.items.take().into_iter().for_each(mem::forget),
            Fault::DropsTwice => {
                self.items.get_mut().iter().for_each(|item| drop(item.duplicate()));
            }
            _ => {}
        }
    }
}

fn fault_of_run_queue(fault: Fault) -> Rule {
    broken(run_queue::check(|_| Plain::new(fault), |parcel| parcel, |parcel| parcel))
}

#[test]
fn a_plain_queue_passes() {
    run_queue(|_| Plain::new(Fault::None), |parcel| parcel, |parcel| parcel);
}

#[test]
fn the_youngest_does_not_come_first() {
    assert_eq!(fault_of_run_queue(Fault::Lifo), Rule::InOrder);
}

#[test]
fn neighbours_do_not_change_places() {
    assert_eq!(fault_of_run_queue(Fault::Swaps), Rule::InOrder);
}

#[test]
fn nothing_is_lost() {
    assert_eq!(fault_of_run_queue(Fault::Loses), Rule::NoneLost);
}

#[test]
fn nothing_comes_twice() {
    assert_eq!(fault_of_run_queue(Fault::Duplicates), Rule::NoneTwice);
}

#[test]
fn what_is_there_is_not_denied() {
    assert_eq!(fault_of_run_queue(Fault::Denies), Rule::EmptinessAgrees);
}

#[test]
fn emptiness_is_told_as_it_is() {
    assert_eq!(fault_of_run_queue(Fault::Overlooks), Rule::EmptinessAgrees);
}

#[test]
fn the_message_tells_how_many_were_in_and_where_the_counters_began() {
    let plain = |_| Plain::new(Fault::Overlooks);
    let broken = run_queue::check(plain, |parcel| parcel, |parcel| parcel).unwrap_err();
    assert_eq!(
        broken.to_string(),
        "the queue breaks a rule: is_empty agrees with the next pop; it held 1, said that it is \
         empty, and then came item 0; `make` was given the count 0"
    );
}

#[test]
fn what_is_refused_comes_back() {
    assert_eq!(fault_of_run_queue(Fault::HandsBackAnother), Rule::HandsBack);
}

#[test]
fn the_room_does_not_shrink() {
    assert_eq!(fault_of_run_queue(Fault::Shrinks), Rule::KeepsItsRoom);
}

#[test]
fn the_room_does_not_grow() {
    assert_eq!(fault_of_run_queue(Fault::Grows), Rule::KeepsItsRoom);
}

#[test]
fn nothing_is_dropped_while_it_waits() {
    assert_eq!(fault_of_run_queue(Fault::DropsInside), Rule::DropsNoneInside);
}

#[test]
fn the_rest_is_not_leaked() {
    assert_eq!(fault_of_run_queue(Fault::Leaks), Rule::DropsTheRest);
}

#[test]
fn the_rest_is_not_dropped_twice() {
    assert_eq!(fault_of_run_queue(Fault::DropsTwice), Rule::DropsTheRest);
}

#[test]
#[should_panic(expected = "what one thread puts in comes out in that order; item 0 was due")]
fn the_message_names_the_rule() {
    run_queue(|_| Plain::new(Fault::Lifo), |parcel| parcel, |parcel| parcel);
}

/// A ring with counters of so many bits, which are cut to an index by the remainder.
struct Ring<const ROOM: usize> {
    places: [RefCell<Option<Parcel>>; ROOM],
    head: Cell<u32>,
    tail: Cell<u32>,
}

impl<const ROOM: usize> Ring<ROOM> {
    #[allow(clippy::cast_possible_truncation)] // so are counters cut to their width
    fn new(start: u64) -> Self {
        let start = Cell::new(start as u32);
        Self { places: [const { RefCell::new(None) }; ROOM], head: start.clone(), tail: start }
    }

    fn place(&self, counter: &Cell<u32>) -> &RefCell<Option<Parcel>> {
        let count = counter.get();
        counter.set(count.wrapping_add(1));
        &self.places[count as usize % ROOM]
    }
}

impl<const ROOM: usize> RunQueue for Ring<ROOM> {
    type Item = Parcel;

    fn push(&self, item: Parcel) -> Result<(), Parcel> {
        if self.tail.get().wrapping_sub(self.head.get()) as usize == ROOM {
            return Err(item);
        }
        self.place(&self.tail).replace(Some(item));
        Ok(())
    }

    fn pop(&self) -> Option<Parcel> {
        if self.is_empty() { None } else { self.place(&self.head).take() }
    }

    fn is_empty(&self) -> bool {
        self.head == self.tail
    }
}

#[test]
fn a_ring_passes() {
    run_queue(Ring::<8>::new, |parcel| parcel, |parcel| parcel);
    run_queue(Ring::<1>::new, |parcel| parcel, |parcel| parcel);
}

/// Two counts that are one apart, on both sides of 2^32, name the same place.
#[test]
fn a_ring_that_is_no_power_of_two_is_seen_to_wrap() {
    let ring_at = |start| run_queue::check(|_| Ring::<6>::new(start), |item| item, |item| item);
    ring_at(0).unwrap();
    let checked = run_queue::check(Ring::<6>::new, |item| item, |item| item);
    assert!(matches!(
        broken(checked),
        Rule::NoneLost | Rule::EmptinessAgrees | Rule::DropsNoneInside
    ));
}

#[test]
fn a_queue_without_room_is_none() {
    struct Wall;

    impl RunQueue for Wall {
        type Item = Parcel;

        fn push(&self, item: Parcel) -> Result<(), Parcel> {
            Err(item)
        }

        fn pop(&self) -> Option<Parcel> {
            None
        }

        fn is_empty(&self) -> bool {
            true
        }
    }

    let checked = run_queue::check(|_| Wall, |parcel| parcel, |parcel| parcel);
    assert_eq!(broken(checked), Rule::KeepsItsRoom);
}

/// What is wrong with an inbox of which the rest is right. Most of them behave where there is but
/// the one thread that made them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Not wrong: has room for a few.
    Narrow,
    /// Items from other threads come out the youngest first.
    Lifo,
    Loses,
    Duplicates,
    /// Once in a while an item from another thread is not there yet.
    Denies,
    /// Does not know that it is empty.
    SaysBusy,
    /// Says that it is empty where it does not know.
    Hides,
    /// The consumer that came first keeps what it has fetched.
    Hoards,
    Leaks,
}

struct Locked {
    maker: ThreadId,
    state: Mutex<LockedState>,
    flaw: Flaw,
}

#[derive(Default)]
struct LockedState {
    items: VecDeque<Parcel>,
    hoard: Option<(ThreadId, VecDeque<Parcel>)>,
    turn: usize,
}

impl Locked {
    fn new(flaw: Flaw) -> Self {
        Self { maker: thread::current().id(), state: Mutex::default(), flaw }
    }

    fn flaw(&self) -> Flaw {
        if thread::current().id() == self.maker { Flaw::None } else { self.flaw }
    }
}

impl Inbox for Locked {
    type Item = Parcel;

    fn push(&self, item: Parcel) -> Result<(), Parcel> {
        let mut state = self.state.lock().unwrap();
        state.turn += 1;
        let now = state.turn.is_multiple_of(50);
        match self.flaw() {
            Flaw::Narrow if state.items.len() >= 20 => return Err(item),
            Flaw::Lifo => state.items.push_front(item),
            Flaw::Loses if now => {}
            Flaw::Duplicates if now => {
                state.items.push_back(item.duplicate());
                state.items.push_back(item);
            }
            _ => state.items.push_back(item),
        }
        Ok(())
    }

    unsafe fn take(&self) -> Take<Parcel> {
        let mut state = self.state.lock().unwrap();
        let state = &mut *state;
        state.turn += 1;
        match self.flaw {
            Flaw::SaysBusy if state.items.is_empty() => return Take::Busy,
            // The first consumer of threads is another one than the maker.
            Flaw::Denies if self.flaw() == Flaw::Denies && state.turn.is_multiple_of(3) => {
                return Take::Empty;
            }
            Flaw::Hides if state.items.len() == 1 && state.turn.is_multiple_of(2) => {
                return Take::Empty;
            }
            Flaw::Hoards => {
                let (owner, hoard) =
                    state.hoard.get_or_insert_with(|| (thread::current().id(), VecDeque::new()));
                if *owner == thread::current().id() {
                    hoard.append(&mut state.items);
                    return hoard.pop_front().map_or(Take::Empty, Take::Item);
                }
            }
            _ => {}
        }
        state.items.pop_front().map_or(Take::Empty, Take::Item)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.flaw == Flaw::Leaks {
            mem::take(&mut self.state.get_mut().unwrap().items).into_iter().for_each(mem::forget);
        }
    }
}

fn flaw_of_inbox(flaw: Flaw) -> Rule {
    broken(inbox::check(|_| Locked::new(flaw), |parcel| parcel, |parcel| parcel))
}

#[test]
fn a_locked_queue_passes() {
    inbox(|_| Locked::new(Flaw::None), |parcel| parcel, |parcel| parcel);
    inbox(|_| Locked::new(Flaw::Narrow), |parcel| parcel, |parcel| parcel);
}

#[test]
fn producers_are_each_in_order() {
    assert_eq!(flaw_of_inbox(Flaw::Lifo), Rule::InOrder);
}

#[test]
fn no_producer_loses() {
    assert_eq!(flaw_of_inbox(Flaw::Loses), Rule::NoneLost);
}

#[test]
fn no_producer_pushes_twice() {
    assert_eq!(flaw_of_inbox(Flaw::Duplicates), Rule::NoneTwice);
}

#[test]
fn what_was_pushed_is_not_denied() {
    assert_eq!(flaw_of_inbox(Flaw::Denies), Rule::NoneDenied);
    assert_eq!(flaw_of_inbox(Flaw::Hides), Rule::NoneDenied);
}

#[test]
fn empty_is_not_busy() {
    assert_eq!(flaw_of_inbox(Flaw::SaysBusy), Rule::NoFalseBusy);
}

#[test]
fn the_next_consumer_gets_the_rest() {
    assert_eq!(flaw_of_inbox(Flaw::Hoards), Rule::NoneLost);
}

#[test]
fn an_inbox_does_not_leak() {
    assert_eq!(flaw_of_inbox(Flaw::Leaks), Rule::DropsTheRest);
}
