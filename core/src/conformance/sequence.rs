#![forbid(unsafe_code)]
//! The checks that one thread makes.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::{iter, mem};

use crate::conformance::ledger::{Ledger, Parcel};
use crate::conformance::rules::{Broken, broken};
use crate::inbox::Take;

/// A queue of either kind, in one thread.
pub(crate) trait Subject {
    /// What stands in the queue.
    type Item;

    fn wrap(&self, parcel: Parcel) -> Self::Item;
    fn unwrap(&self, item: Self::Item) -> Parcel;
    fn push(&mut self, item: Self::Item) -> Result<(), Self::Item>;
    fn take(&mut self) -> Take<Self::Item>;
    /// What the queue says of itself, if that is part of its interface.
    fn is_empty(&mut self) -> Option<bool>;
}

/// So many looks at a queue that says it is empty tell what is lost from what was denied.
const LOOKS: usize = 8;
/// A queue that has taken so many items passes for one that never fills.
const NEVER_FILLS: usize = 3_000;

/// All of them, each with queues of its own.
pub(crate) fn check<S: Subject>(make: &mut impl FnMut() -> S) -> Result<(), Broken> {
    for items in [0, 1, 2, 3, 7, 100, 1_000] {
        empties(make(), items)?;
    }
    refills(make())?;
    for seed in 1..=4 {
        interleaves(make(), seed)?;
    }
    for (items, turns) in [(1, 1), (1, 5), (2, 1), (2, 2), (3, 2), (5, 7), (50, 120)] {
        goes_round(make(), items, turns)?;
    }
    fills(make())?;
    for (items, taken) in [(0, 0), (1, 0), (1, 1), (2, 1), (5, 0), (5, 3), (50, 20)] {
        drops(make(), items, taken)?;
    }
    Ok(())
}

/// A queue and what is known of it.
struct Course<S> {
    subject: S,
    ledger: Ledger,
    /// How many parcels were made: the number of the next.
    made: usize,
    /// What is in the queue, the oldest first.
    inside: VecDeque<usize>,
    /// What has come out, in that order.
    out: Vec<usize>,
    /// What went in, in that order.
    went_in: Vec<usize>,
}

/// What became of a push.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pushed {
    In,
    Refused,
}

impl<S: Subject> Course<S> {
    fn new(subject: S, parcels: usize) -> Self {
        Self {
            subject,
            ledger: Ledger::new(parcels),
            made: 0,
            inside: VecDeque::new(),
            out: Vec::new(),
            went_in: Vec::new(),
        }
    }

    fn push(&mut self) -> Result<Pushed, Broken> {
        let number = self.made;
        self.made += 1;
        let item = self.subject.wrap(self.ledger.parcel(number));
        match self.subject.push(item).map_err(|item| self.subject.unwrap(item)) {
            Ok(()) => {
                self.inside.push_back(number);
                self.went_in.push(number);
                Ok(Pushed::In)
            }
            Err(back) if back.number() != number => {
                Err(broken!(HandsBack, "it refused item {number} and gave back {}", back.number()))
            }
            Err(_) if self.inside.is_empty() => {
                Err(broken!(KeepsItsRoom, "it was empty, and refused item {number}"))
            }
            Err(_) => Ok(Pushed::Refused),
        }
    }

    /// As many as are asked for, or as there is room for.
    fn push_some(&mut self, items: usize) -> Result<(), Broken> {
        for _ in 0..items {
            if self.push()? == Pushed::Refused {
                break;
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Option<usize>, Broken> {
        let (is_empty, items) = (self.subject.is_empty(), self.inside.len());
        let found = match self.subject.take() {
            Take::Item(item) => {
                let parcel = self.subject.unwrap(item);
                let number = parcel.number();
                // One that was out before has been dropped since.
                match self.ledger.all_there(iter::once(number)) {
                    Err(dropped) if !self.out.contains(&number) => return Err(dropped),
                    _ => Some(number),
                }
            }
            Take::Empty => None,
            Take::Busy => {
                return Err(broken!(
                    NoFalseBusy,
                    "it held {items}, and the one thread that has it pushes nothing"
                ));
            }
        };
        match (is_empty, found) {
            (Some(true), Some(number)) => Err(broken!(
                EmptinessAgrees,
                "it held {items}, said that it is empty, and then came item {number}"
            )),
            (Some(false), None) => Err(broken!(
                EmptinessAgrees,
                "it held {items}, said that it is not empty, and then nothing came"
            )),
            _ => Ok(found),
        }
    }

    /// Takes one item, which has to be there, or sees that none is.
    fn take(&mut self) -> Result<(), Broken> {
        let Some(number) = self.look()? else {
            let Some(oldest) = self.inside.front().copied() else { return Ok(()) };
            let items = self.inside.len();
            for _ in 0..LOOKS {
                if let Some(number) = self.look()? {
                    return Err(broken!(
                        NoneDenied,
                        "it held {items}, said so, and then gave item {number}"
                    ));
                }
            }
            return Err(broken!(
                NoneLost,
                "it held {items}, the oldest of them item {oldest}, and nothing comes out"
            ));
        };
        self.out.push(number);
        if self.inside.pop_front() == Some(number) {
            return Ok(());
        }
        // Something is wrong. What, the rest tells.
        while self.out.len() < self.made + LOOKS
            && let Some(number) = self.look()?
        {
            self.out.push(number);
        }
        judge(&self.went_in, &self.out)
    }

    /// Takes all, and sees that no more is there.
    fn empty(&mut self) -> Result<(), Broken> {
        for _ in 0..=self.inside.len() {
            self.take()?;
        }
        Ok(())
    }

    /// Drops the queue.
    fn end(self) -> Result<(), Broken> {
        self.ledger.all_there(self.inside.iter().copied())?;
        drop(self.subject);
        self.ledger.all_gone(self.made)
    }
}

/// Says what is wrong with what came out of a queue, if anything is.
pub(crate) fn judge(went_in: &[usize], out: &[usize]) -> Result<(), Broken> {
    let most = went_in.iter().chain(out).max().map_or(0, |most| most + 1);
    let mut times = vec![0_usize; most];
    for &number in out {
        times[number] += 1;
        if times[number] > 1 {
            return Err(broken!(NoneTwice, "item {number} did"));
        }
    }
    if let Some(number) = went_in.iter().find(|&&number| times[number] == 0) {
        return Err(broken!(NoneLost, "item {number} went in and did not come out"));
    }
    match went_in.iter().zip(out).find(|(went_in, out)| went_in != out) {
        Some((due, came)) => Err(broken!(InOrder, "item {due} was due, and item {came} came")),
        None => Ok(()),
    }
}

/// Goes in and out again.
fn empties<S: Subject>(subject: S, items: usize) -> Result<(), Broken> {
    let mut course = Course::new(subject, items);
    course.push_some(items)?;
    course.empty()?;
    course.end()
}

/// Is emptied and filled again and again.
fn refills<S: Subject>(subject: S) -> Result<(), Broken> {
    const TIMES: usize = 300;
    let mut course = Course::new(subject, 3 * TIMES);
    for turn in 0..TIMES {
        course.push_some(1 + turn % 3)?;
        course.empty()?;
    }
    course.end()
}

/// Pushes and takes in turns that follow no pattern.
fn interleaves<S: Subject>(subject: S, seed: u64) -> Result<(), Broken> {
    const STEPS: usize = 2_000;
    let mut course = Course::new(subject, STEPS);
    let mut random = seed;
    for step in 0..STEPS {
        // Marsaglia's xorshift, "Xorshift RNGs", 2003.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // It fills for a while, then it empties for a while.
        let likely_pushes = if step / 200 % 2 == 0 { 5 } else { 3 };
        if random % 8 < likely_pushes {
            course.push()?;
        } else {
            course.take()?;
        }
    }
    course.empty()?;
    course.end()
}

/// Is filled, and stays full while items go through it.
fn fills<S: Subject>(subject: S) -> Result<(), Broken> {
    let mut course = Course::new(subject, 4 * NEVER_FILLS);
    while course.inside.len() < NEVER_FILLS && course.push()? == Pushed::In {}
    let room = course.inside.len();
    if room < NEVER_FILLS {
        for turn in 0..room + 3 {
            course.take()?;
            if course.push()? == Pushed::Refused {
                return Err(broken!(KeepsItsRoom, "of {room}, one was free, after {turn} turns"));
            }
            if course.push()? == Pushed::In {
                return Err(broken!(KeepsItsRoom, "of {room} it made more, after {turn} turns"));
            }
        }
    }
    course.empty()?;
    course.end()
}

/// What comes out goes in again, the same thing, as a task that yields.
fn goes_round<S: Subject>(subject: S, items: usize, turns: usize) -> Result<(), Broken> {
    let mut course = Course::new(subject, items);
    course.push_some(items)?;
    let items = course.inside.len();
    for turn in 0..turns {
        let Take::Item(item) = course.subject.take() else {
            return Err(broken!(NoneLost, "after {turn} turns of {items} items nothing comes out"));
        };
        if let Err(refused) = course.subject.push(item) {
            drop(refused);
            return Err(broken!(KeepsItsRoom, "an item came out, and may not go in again"));
        }
        course.inside.rotate_left(1);
    }
    // Not opened until all are there: one that is there twice must not be dropped.
    let mut out = Vec::new();
    while let Take::Item(item) = course.subject.take() {
        out.push(item);
        if out.len() > items {
            // Nothing of it can be touched any more.
            mem::forget((out, course));
            return Err(broken!(NoneTwice, "after {turns} turns of {items} items more come out"));
        }
    }
    let out: Vec<_> = out.into_iter().map(|item| course.subject.unwrap(item).number()).collect();
    let due: Vec<_> = course.inside.drain(..).collect();
    judge(&due, &out)?;
    course.end()
}

/// Is dropped with something in it.
fn drops<S: Subject>(subject: S, items: usize, taken: usize) -> Result<(), Broken> {
    let mut course = Course::new(subject, items);
    course.push_some(items)?;
    for _ in 0..taken {
        course.take()?;
    }
    course.end()
}
