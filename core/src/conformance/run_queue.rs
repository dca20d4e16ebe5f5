#![forbid(unsafe_code)]
//! The kit for run queues.

use crate::conformance::STARTS;
use crate::conformance::ledger::Parcel;
use crate::conformance::rules::Broken;
use crate::conformance::sequence::{self, Subject};
use crate::inbox::Take;
use crate::run_queue::RunQueue;

/// Puts a run queue to the test: the checks that [`Fifo`](crate::run_queue::Fifo) passes.
///
/// `make` makes an empty queue whose counters stand at the given count of pushes and pops, cut to
/// their width: the checks begin at zero, and just before counters of 16, 32 and 64 bits wrap. A
/// queue without counters, or one that can't begin elsewhere, ignores it. `wrap` makes of a parcel
/// what the queue takes, and `unwrap` gets it back.
///
/// It sees that items come out once and in order, when the queue is filled and emptied, again and
/// again and in turns without a pattern, and when the same items go round; that a full queue hands back what it refuses, keeps all
/// that it holds and has the same room ever after; that `is_empty` agrees with `pop`; that nothing
/// is dropped in the queue, and what is left in it is dropped with it, once. Stealing is not
/// looked at. It takes milliseconds, allocates, and uses no thread.
///
/// # Panics
/// If a rule is broken: the message says which one, and how that was seen.
///
/// ```
/// use std::cell::RefCell;
/// use std::collections::VecDeque;
///
/// use evenkeel::run_queue::RunQueue;
/// use evenkeel::testing::conformance;
///
/// struct Plain<T>(RefCell<VecDeque<T>>);
///
/// impl<T> RunQueue for Plain<T> {
///     type Item = T;
///
///     fn push(&self, item: T) -> Result<(), T> {
///         self.0.borrow_mut().push_back(item);
///         Ok(())
///     }
///
///     fn pop(&self) -> Option<T> {
///         self.0.borrow_mut().pop_front()
///     }
///
///     fn is_empty(&self) -> bool {
///         self.0.borrow().is_empty()
///     }
/// }
///
/// conformance::run_queue(|_| Plain(RefCell::default()), |parcel| parcel, |parcel| parcel);
/// ```
#[track_caller]
pub fn run_queue<Q: RunQueue>(
    make: impl FnMut(u64) -> Q,
    wrap: impl Fn(Parcel) -> Q::Item,
    unwrap: impl Fn(Q::Item) -> Parcel,
) {
    if let Err(broken) = check(make, wrap, unwrap) {
        panic!("{broken}");
    }
}

pub(crate) fn check<Q: RunQueue>(
    mut make: impl FnMut(u64) -> Q,
    wrap: impl Fn(Parcel) -> Q::Item,
    unwrap: impl Fn(Q::Item) -> Parcel,
) -> Result<(), Broken> {
    STARTS.into_iter().try_for_each(|start| {
        sequence::check(&mut || Owned { queue: make(start), wrap: &wrap, unwrap: &unwrap })
            .map_err(|broken| broken.made_at(start))
    })
}

struct Owned<'a, Q, W, U> {
    queue: Q,
    wrap: &'a W,
    unwrap: &'a U,
}

impl<Q, W, U> Subject for Owned<'_, Q, W, U>
where
    Q: RunQueue,
    W: Fn(Parcel) -> Q::Item,
    U: Fn(Q::Item) -> Parcel,
{
    type Item = Q::Item;

    fn wrap(&self, parcel: Parcel) -> Q::Item {
        (self.wrap)(parcel)
    }

    fn unwrap(&self, item: Q::Item) -> Parcel {
        (self.unwrap)(item)
    }

    fn push(&mut self, item: Q::Item) -> Result<(), Q::Item> {
        self.queue.push(item)
    }

    fn take(&mut self) -> Take<Q::Item> {
        self.queue.pop().map_or(Take::Empty, Take::Item)
    }

    fn is_empty(&mut self) -> Option<bool> {
        Some(self.queue.is_empty())
    }
}
