//! The kit for inboxes: the checks of one thread, and those that take several.

use crate::conformance::STARTS;
#[cfg(feature = "std")]
use crate::conformance::WRAPS_AT_32_BITS;
use crate::conformance::ledger::Parcel;
use crate::conformance::rules::Broken;
use crate::conformance::sequence::{self, Subject};
use crate::inbox::{Inbox, Take};

/// Puts an inbox to the test: the checks that [`MpscQueue`](crate::inbox::MpscQueue) passes.
///
/// `make`, `wrap` and `unwrap` are as for [`run_queue`](super::run_queue()), and so is what one
/// thread checks; besides, *Busy* is not said where no push can be half done.
///
/// With `std`, threads push while one takes, of which another one takes over in the midst of it:
/// from zero, and before counters of 32 bits wrap. It sees that each item comes out once, those of
/// a producer in its order, that an inbox with a push that has returned is never said to be empty,
/// and that what is left is dropped with the inbox. What it finds then may differ from run to run:
/// an inbox that passes has not been proved right, for which there are model checkers. Nor can it
/// see how many steps a take is made of. It takes some tenths of a second, and allocates. A bounded
/// inbox that says it is full for ever hangs it.
///
/// # Panics
/// If a rule is broken: the message says which one, and how that was seen.
///
/// ```
/// use std::collections::VecDeque;
/// use std::sync::Mutex;
///
/// use evenkeel::inbox::{Inbox, Take};
/// use evenkeel::testing::conformance;
///
/// struct Locked<T>(Mutex<VecDeque<T>>);
///
/// impl<T: Send> Inbox for Locked<T> {
///     type Item = T;
///
///     fn push(&self, item: T) -> Result<(), T> {
///         self.0.lock().unwrap().push_back(item);
///         Ok(())
///     }
///
///     unsafe fn take(&self) -> Take<T> {
///         self.0.lock().unwrap().pop_front().map_or(Take::Empty, Take::Item)
///     }
/// }
///
/// conformance::inbox(|_| Locked(Mutex::default()), |parcel| parcel, |parcel| parcel);
/// ```
#[track_caller]
pub fn inbox<Q: Inbox>(
    make: impl FnMut(u64) -> Q,
    wrap: impl Fn(Parcel) -> Q::Item + Sync,
    unwrap: impl Fn(Q::Item) -> Parcel + Sync,
) {
    if let Err(broken) = check(make, wrap, unwrap) {
        panic!("{broken}");
    }
}

pub(crate) fn check<Q: Inbox>(
    mut make: impl FnMut(u64) -> Q,
    wrap: impl Fn(Parcel) -> Q::Item + Sync,
    unwrap: impl Fn(Q::Item) -> Parcel + Sync,
) -> Result<(), Broken> {
    let mut alone = |start| Alone(Shared { queue: make(start), wrap: &wrap, unwrap: &unwrap });
    for start in STARTS {
        sequence::check(&mut || alone(start)).map_err(|broken| broken.made_at(start))?;
    }
    #[cfg(feature = "std")]
    for start in [0, WRAPS_AT_32_BITS] {
        for producers in [1, 2, 4] {
            threads::each_comes_out(&alone(start).0, producers)
                .and_then(|()| threads::the_rest_is_dropped(alone(start).0, producers))
                .map_err(|broken| broken.made_at(start))?;
        }
    }
    Ok(())
}

struct Shared<'a, Q, W, U> {
    queue: Q,
    wrap: &'a W,
    unwrap: &'a U,
}

/// One thread has it.
struct Alone<S>(S);

impl<Q, W, U> Subject for Alone<Shared<'_, Q, W, U>>
where
    Q: Inbox,
    W: Fn(Parcel) -> Q::Item,
    U: Fn(Q::Item) -> Parcel,
{
    type Item = Q::Item;

    fn wrap(&self, parcel: Parcel) -> Q::Item {
        (self.0.wrap)(parcel)
    }

    fn unwrap(&self, item: Q::Item) -> Parcel {
        (self.0.unwrap)(item)
    }

    fn push(&mut self, item: Q::Item) -> Result<(), Q::Item> {
        self.0.queue.push(item)
    }

    fn take(&mut self) -> Take<Q::Item> {
        // SAFETY: it is this one's for itself.
        unsafe { self.0.queue.take() }
    }

    fn is_empty(&mut self) -> Option<bool> {
        None
    }
}

#[cfg(feature = "std")]
mod threads {
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use super::Shared;
    use crate::conformance::ledger::{Ledger, Parcel};
    use crate::conformance::rules::{Broken, broken};
    use crate::conformance::sequence::judge;
    use crate::inbox::{Inbox, Take};

    /// How many items each producer pushes.
    const EACH: usize = if cfg!(miri) { 20 } else { 1_000 };
    /// So many looks at an inbox that says it is empty tell what is lost from what was denied.
    const LOOKS: usize = 8;

    impl<Q, W, U> Shared<'_, Q, W, U>
    where
        Q: Inbox,
        W: Fn(Parcel) -> Q::Item,
        U: Fn(Q::Item) -> Parcel,
    {
        fn push(&self, parcel: Parcel) -> Result<(), Parcel> {
            self.queue.push((self.wrap)(parcel)).map_err(self.unwrap)
        }

        /// # Safety
        /// As [`Inbox::take`].
        unsafe fn take(&self) -> Take<Parcel> {
            // SAFETY: passed on to the caller.
            match unsafe { self.queue.take() } {
                Take::Item(item) => Take::Item((self.unwrap)(item)),
                Take::Empty => Take::Empty,
                Take::Busy => Take::Busy,
            }
        }
    }

    /// What the producers and the consumer know of each other.
    struct Course<'a, S> {
        shared: &'a S,
        ledger: Ledger,
        producers: usize,
        /// How many pushes have returned.
        pushed: AtomicUsize,
        /// The consumer has seen enough.
        is_over: AtomicBool,
    }

    impl<Q, W, U> Course<'_, Shared<'_, Q, W, U>>
    where
        Q: Inbox,
        W: Fn(Parcel) -> Q::Item + Sync,
        U: Fn(Q::Item) -> Parcel + Sync,
    {
        fn all(&self) -> usize {
            self.producers * EACH
        }

        fn produce(&self, producer: usize) -> Result<(), Broken> {
            for number in producer * EACH..(producer + 1) * EACH {
                let mut parcel = self.ledger.parcel(number);
                while let Err(back) = self.shared.push(parcel) {
                    if back.number() != number {
                        let came = back.number();
                        return Err(broken!(HandsBack, "for item {number} it gave back {came}"));
                    }
                    // Ordering: Relaxed: nothing is read by its leave.
                    if self.is_over.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    parcel = back;
                    thread::yield_now();
                }
                // Ordering: Release, pairs with the Acquire of `consume`: the push comes before.
                self.pushed.fetch_add(1, Ordering::Release);
            }
            Ok(())
        }
    }

    /// What has been seen of an inbox from its other end.
    #[derive(Default)]
    struct Seen {
        out: Vec<usize>,
        /// How many items were out when it was last said to be empty though another was in.
        denied: Option<usize>,
        /// Looks in vain, one after the other, when all pushes had returned.
        vain: usize,
        /// How often it was said to be busy then.
        busy: usize,
    }

    impl Seen {
        /// Takes until `enough` items are out, or until no more is to be hoped for.
        ///
        /// # Safety
        /// As [`Inbox::take`].
        unsafe fn consume<Q, W, U>(
            &mut self,
            course: &Course<'_, Shared<'_, Q, W, U>>,
            enough: usize,
        ) where
            Q: Inbox,
            W: Fn(Parcel) -> Q::Item + Sync,
            U: Fn(Q::Item) -> Parcel + Sync,
        {
            while self.out.len() < enough && self.vain < LOOKS {
                // Ordering: Acquire, pairs with the Release of `produce`.
                let pushed = course.pushed.load(Ordering::Acquire);
                let all_returned = pushed == course.all();
                // SAFETY: passed on to the caller.
                match unsafe { course.shared.take() } {
                    Take::Item(parcel) => {
                        self.out.push(parcel.number());
                        self.vain = 0;
                        continue;
                    }
                    Take::Empty if pushed > self.out.len() => self.denied = Some(self.out.len()),
                    Take::Empty => {}
                    Take::Busy => self.busy += usize::from(all_returned),
                }
                self.vain += usize::from(all_returned);
                thread::yield_now();
            }
        }

        fn judge(&self, producers: usize) -> Result<(), Broken> {
            if self.busy > 0 {
                return Err(broken!(NoFalseBusy, "all pushes had returned"));
            }
            for producer in 0..producers {
                let its_own: Vec<_> = (producer * EACH..(producer + 1) * EACH).collect();
                let of_producer = |number: &usize| number / EACH == producer;
                let out: Vec<_> = self.out.iter().copied().filter(of_producer).collect();
                judge(&its_own, &out)?;
            }
            match self.denied {
                Some(out) => Err(broken!(NoneDenied, "it said so when {out} items were out")),
                None => Ok(()),
            }
        }
    }

    /// Producers push while one consumer, and then another, takes.
    pub(super) fn each_comes_out<Q, W, U>(
        shared: &Shared<'_, Q, W, U>,
        producers: usize,
    ) -> Result<(), Broken>
    where
        Q: Inbox,
        W: Fn(Parcel) -> Q::Item + Sync,
        U: Fn(Q::Item) -> Parcel + Sync,
    {
        let course = Course {
            shared,
            ledger: Ledger::new(producers * EACH),
            producers,
            pushed: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        };
        let seen = thread::scope(|scope| {
            let course = &course;
            let threads: Vec<_> = (0..producers)
                .map(|producer| scope.spawn(move || course.produce(producer)))
                .collect();
            let first = scope.spawn(|| {
                let mut seen = Seen::default();
                // SAFETY: there is no other consumer until this thread is joined.
                unsafe { seen.consume(course, course.all() / 2) };
                seen
            });
            let mut seen = first.join().expect("a take does not panic");
            // SAFETY: the other consumer is gone. One item more than there are: none is to come.
            unsafe { seen.consume(course, course.all() + 1) };
            // Ordering: Relaxed: nothing is read by its leave.
            course.is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().expect("a push does not panic")?;
            }
            Ok(seen)
        })?;
        seen.judge(producers)
    }

    /// Producers push, and nobody takes.
    pub(super) fn the_rest_is_dropped<Q, W, U>(
        shared: Shared<'_, Q, W, U>,
        producers: usize,
    ) -> Result<(), Broken>
    where
        Q: Inbox,
        W: Fn(Parcel) -> Q::Item + Sync,
        U: Fn(Q::Item) -> Parcel + Sync,
    {
        let ledger = Ledger::new(producers * EACH);
        thread::scope(|scope| {
            for producer in 0..producers {
                let (shared, ledger) = (&shared, &ledger);
                scope.spawn(move || {
                    for number in producer * EACH..(producer + 1) * EACH {
                        // One that is refused comes back, and is dropped here.
                        drop(shared.push(ledger.parcel(number)));
                    }
                });
            }
        });
        drop(shared);
        ledger.all_gone(producers * EACH)
    }
}
