#![forbid(unsafe_code)]
//! The operations in flight, and those that have ended and are not reported yet.
//!
//! Both live in one table by the index of their token, and are linked by these indices, so nothing
//! is allocated to queue one, and the queue of the ended ones has no limit to overflow.

use std::mem;
use std::os::fd::RawFd;

use evenkeel::io::Interest;
use evenkeel::{Completion, Token};

use crate::attempt::{Brings, Work};
use crate::descriptor;
use crate::paged::Paged;

/// Those who wait for the same interest in the same descriptor, first come first.
#[derive(Debug, Default)]
pub(crate) struct Line {
    first: Option<usize>,
    last: Option<usize>,
    length: usize,
    /// How often the line has ended as a whole: a waiter that joined in an earlier epoch has ended,
    /// though nobody went through the line to mark it.
    epoch: u32,
}

impl Line {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Who has waited longest.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        self.first
    }
}

/// Where an operation waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: LineOf,
    epoch: u32,
}

/// Whose line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineOf {
    /// One of those for an interest in a descriptor.
    Side { fd: RawFd, interest: Interest, queue: Queue },
    /// Of who takes the next item of a flow.
    Flow(Token),
}

/// Which of the lines for the same interest in the same descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// Those who only wait, and all end with one event.
    Polls,
    /// Those who transfer something, one after the other.
    Transfers,
    /// The flows whose next item somebody waits for.
    Flows,
}

impl Place {
    /// Whether `line`, the one of this place, has not ended since.
    pub(crate) fn is_still_in(&self, line: &Line) -> bool {
        self.epoch == line.epoch
    }
}

#[derive(Debug)]
struct Waiter {
    token: Token,
    /// None once it has ended by itself. One that ended with its line keeps its place, of an
    /// earlier epoch.
    place: Option<Place>,
    /// What is to be done when its turn has come.
    work: Option<Work>,
    prev: Option<usize>,
    next: Option<usize>,
    /// What its result is besides a number.
    brings: Brings,
    /// Of the first of a chain of ended ones: what became of the whole chain.
    result: i32,
    /// Of the first of a chain: the first of the chain that ended next.
    following: Option<usize>,
}

impl Waiter {
    fn new(token: Token, work: Option<Work>) -> Self {
        Self {
            token,
            place: None,
            work,
            prev: None,
            next: None,
            brings: Brings::Nothing,
            result: 0,
            following: None,
        }
    }
}

/// The table.
///
/// The ended ones form a queue of chains. A chain is a line that ended as a whole, in one step
/// however long it was, and its members share one result, which moves on from the first to the
/// second when the first is taken.
#[derive(Debug)]
pub(crate) struct Waiters {
    table: Paged<Option<Waiter>>,
    waiting: usize,
    first_chain: Option<usize>,
    last_chain: Option<usize>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { table: Paged::new(), waiting: 0, first_chain: None, last_chain: None }
    }

    /// How many wait.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether some have ended and are not taken yet.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.first_chain.is_some()
    }

    /// Whether the token's index is in use, by an operation that waits or that has ended and is not
    /// taken yet.
    pub(crate) fn holds(&self, token: Token) -> bool {
        self.table.get(token.index()).is_some_and(Option::is_some)
    }

    /// Where this operation waits, if it does: still to be compared with its line.
    pub(crate) fn place(&self, token: Token) -> Option<Place> {
        self.table.get(token.index())?.as_ref().filter(|waiter| waiter.token == token)?.place
    }

    /// Has a place for an operation that waits in no line: for a thread, or to be asked for items.
    pub(crate) fn hold(&mut self, token: Token) {
        *self.table.entry(token.index()) = Some(Waiter::new(token, None));
    }

    /// Puts an operation at the end of a line.
    pub(crate) fn join(&mut self, line: &mut Line, token: Token, of: LineOf, work: Option<Work>) {
        let index = token.index();
        *self.table.entry(index) = Some(Waiter {
            place: Some(Place { line: of, epoch: line.epoch }),
            prev: line.last,
            ..Waiter::new(token, work)
        });
        match line.last {
            Some(last) => self.linked(last).next = Some(index),
            None => line.first = Some(index),
        }
        line.last = Some(index);
        line.length += 1;
        self.waiting += 1;
    }

    /// What the waiter of this index is to do.
    pub(crate) fn work(&mut self, index: usize) -> (Token, &mut Work) {
        let waiter = self.linked(index);
        (waiter.token, waiter.work.as_mut().expect("who transfers something has work"))
    }

    /// Takes one out of its line and ends it.
    pub(crate) fn end_one(&mut self, line: &mut Line, token: Token, result: i32) {
        self.leave(line, token);
        self.append(token.index(), result);
    }

    /// Takes one out of its line, who goes on elsewhere. Returns what it is to do.
    pub(crate) fn leave(&mut self, line: &mut Line, token: Token) -> Option<Work> {
        let index = token.index();
        let waiter = self.linked(index);
        waiter.place = None;
        let work = waiter.work.take();
        let (prev, next) = (waiter.prev.take(), waiter.next.take());
        match prev {
            Some(prev) => self.linked(prev).next = next,
            None => line.first = next,
        }
        match next {
            Some(next) => self.linked(next).prev = prev,
            None => line.last = prev,
        }
        line.length -= 1;
        self.waiting -= 1;
        work
    }

    /// Ends all who wait in a line, in one step.
    pub(crate) fn end_line(&mut self, line: &mut Line, result: i32) {
        let Some(first) = line.first.take() else { return };
        line.last = None;
        line.epoch = line.epoch.wrapping_add(1);
        self.waiting -= mem::take(&mut line.length);
        self.append(first, result);
    }

    /// Ends an operation that never waited.
    pub(crate) fn end_at_once(&mut self, token: Token, result: i32) {
        *self.table.entry(token.index()) = Some(Waiter::new(token, None));
        self.append(token.index(), result);
    }

    /// Takes the one that ended first.
    pub(crate) fn take_ended(&mut self) -> Option<Completion> {
        self.take_with().map(|(completion, _)| completion)
    }

    fn take_with(&mut self) -> Option<(Completion, Brings)> {
        let index = self.first_chain?;
        let waiter = self.table.get_mut(index)?.take()?;
        let rest = waiter.next;
        if let Some(second) = rest {
            let second = self.linked(second);
            second.result = waiter.result;
            second.following = waiter.following;
        }
        if self.last_chain == Some(index) {
            self.last_chain = rest;
        }
        self.first_chain = rest.or(waiter.following);
        Some((Completion { token: waiter.token, result: waiter.result }, waiter.brings))
    }

    /// One that has just ended has brought this.
    pub(crate) fn has_brought(&mut self, token: Token, brings: Brings) {
        self.linked(token.index()).brings = brings;
    }

    fn append(&mut self, first: usize, result: i32) {
        self.linked(first).result = result;
        match self.last_chain.replace(first) {
            Some(last) => self.linked(last).following = Some(first),
            None => self.first_chain = Some(first),
        }
    }

    /// One that a link leads to.
    fn linked(&mut self, index: usize) -> &mut Waiter {
        self.table.get_mut(index).and_then(Option::as_mut).expect("a link leads to a waiter")
    }
}

impl Drop for Waiters {
    /// What was brought and is not reported is nobody else's.
    fn drop(&mut self) {
        while let Some((completion, brings)) = self.take_with() {
            if brings == Brings::Descriptor && completion.result >= 0 {
                descriptor::close(completion.result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(index: u32) -> Token {
        Token::new(index, 1)
    }

    const LINE: LineOf = LineOf::Flow(Token::new(5, 1));

    fn line_of(waiters: &mut Waiters, indices: std::ops::Range<u32>) -> Line {
        let mut line = Line::default();
        for index in indices {
            waiters.join(&mut line, token(index), LINE, None);
        }
        line
    }

    fn ended(waiters: &mut Waiters) -> Vec<(usize, i32)> {
        std::iter::from_fn(|| waiters.take_ended())
            .map(|completion| (completion.token.index(), completion.result))
            .collect()
    }

    #[test]
    fn lines_and_single_ones_come_out_in_the_order_in_which_they_ended() {
        let mut waiters = Waiters::new();
        let mut first = line_of(&mut waiters, 0..3);
        let mut second = line_of(&mut waiters, 10..12);
        waiters.end_at_once(token(20), -9);
        waiters.end_line(&mut first, 1);
        waiters.end_line(&mut second, 4);
        assert_eq!(waiters.take_ended().map(|completion| completion.result), Some(-9));
        waiters.end_at_once(token(21), 16);
        assert_eq!(ended(&mut waiters), [(0, 1), (1, 1), (2, 1), (10, 4), (11, 4), (21, 16)],);
        assert!(!waiters.has_ended());
        assert_eq!(waiters.waiting(), 0);
    }

    #[test]
    fn one_leaves_its_line_from_any_place_in_it() {
        for leaver in 0..3 {
            let mut waiters = Waiters::new();
            let mut line = line_of(&mut waiters, 0..3);
            waiters.end_one(&mut line, token(leaver), -125);
            assert_eq!(waiters.waiting(), 2);
            waiters.end_line(&mut line, 1);
            let rest = (0..3).filter(|&index| index != leaver).map(|index| (index as usize, 1));
            let all: Vec<_> = [(leaver as usize, -125)].into_iter().chain(rest).collect();
            assert_eq!(ended(&mut waiters), all);
            assert!(line.is_empty());
        }
    }

    #[test]
    fn who_ended_with_the_line_is_not_in_it_any_more() {
        let mut waiters = Waiters::new();
        let mut line = line_of(&mut waiters, 0..2);
        let place = waiters.place(token(1)).expect("it waits");
        assert!(place.is_still_in(&line));
        waiters.end_line(&mut line, 1);
        assert!(!place.is_still_in(&line));
        waiters.join(&mut line, token(2), LINE, None);
        assert!(!place.is_still_in(&line));
    }

    #[test]
    fn another_generation_of_the_index_waits_nowhere() {
        let mut waiters = Waiters::new();
        let _line = line_of(&mut waiters, 0..1);
        assert!(waiters.place(Token::new(0, 1)).is_some());
        assert!(waiters.place(Token::new(0, 2)).is_none());
        assert!(waiters.holds(Token::new(0, 2)));
    }
}
