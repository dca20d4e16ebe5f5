//! The operations that are kept until their last completion: with the memory that they lend, and
//! with the structures by which the kernel reaches it.
//!
//! ```text
//!   ask ──► Asked ──ended──► reported, and gone from here
//!            │  ▲
//!    EAGAIN  │  │ ready          (a descriptor that does not block; a piece that is waited for)
//!            ▼  │
//!           Waits ──failed, or cancelled──► reported, and gone from here
//! ```
//! At any time the kernel has one request of an operation: itself, or a poll. Both carry its token.

use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};

use evenkeel::Token;
use evenkeel::io::{Operation, Place};
use io_uring::opcode;
use rustix::io::Errno;

use crate::call::{
    BrokenPipes, Call, Message, Stage, Then, after_call, after_wait, ask, failure, many, poll,
    single,
};
use crate::flow::{Flow, Item, Source, State, Turn};
use crate::ring::{Event, Sqe};

/// Whether its end is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Will {
    Done,
    Cancelled,
}

enum Work {
    Call {
        call: Call,
        stage: Stage,
        will: Will,
    },
    Flow(Flow),
    /// A flow that was cancelled while the kernel had its request, which ends by that.
    Closing(Source),
    /// One that waits for a flow's next item.
    Taker {
        flow: Token,
        place: Place<Option<u16>>,
    },
    /// It has this result, which is told by a request of nothing.
    Over(i32),
}

/// A place for one operation at a time. It never moves.
struct Entry {
    token: Token,
    work: Option<Work>,
    message: Message,
}

/// The operations that are kept, by the index of their token.
///
/// It grows to the highest index that was used, by an allocation for each, and never shrinks.
pub(crate) struct Kept {
    entries: Vec<Option<Box<Entry>>>,
    calls: usize,
    pipes: BrokenPipes,
}

impl Default for Kept {
    fn default() -> Self {
        Self { entries: Vec::new(), calls: 0, pipes: BrokenPipes::here() }
    }
}

/// Why an operation is not kept.
pub(crate) struct NotKept(pub(crate) Operation, pub(crate) Errno);

/// What is to be done about one that is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its [request](Kept::request) is to be queued.
    ToBeAsked,
    /// The request of this flow, for an item of which it waits, is to be queued.
    Flow(Token),
    /// There is nothing to be queued: it is a flow, or waits for an item of one.
    Nothing,
}

/// What is to be done after an event.
#[derive(Default)]
pub(crate) struct After {
    /// This operation has ended, with this result.
    pub(crate) ended: Option<(Token, i32)>,
    /// Of this one there is a [request](Kept::request) to be queued.
    pub(crate) ask: Option<Token>,
    /// The request of this one is to be cancelled.
    pub(crate) cancel: Option<Token>,
    /// A buffer of this group was filled.
    pub(crate) filled: Option<(u16, u16)>,
    /// A flow of this group has ended.
    pub(crate) closed: Option<u16>,
}

/// What a cancel met.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nothing that is kept here.
    NotKept,
    /// One that the kernel has no request of: its [request](Kept::request) is to be queued. If it is
    /// a flow, this is its group.
    Here(Option<u16>),
    /// An operation whose request is the one with this number in the order of the queue.
    Asked(u64),
    /// An operation that waits.
    Waits,
    /// It was cancelled before, or has its end.
    Over,
}

impl Kept {
    /// How many operations the kernel has, or is to get.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Takes one in. A flow of pieces has the number of its pool's group, if there is one.
    pub(crate) fn keep(
        &mut self,
        token: Token,
        operation: Operation,
        group: Option<u16>,
    ) -> Result<Taken, NotKept> {
        let call = |call, stage| Work::Call { call, stage, will: Will::Done };
        let (work, becomes) = match operation {
            Operation::AcceptMany { fd } => {
                (Work::Flow(Flow::new(Source::Listener(fd))), Taken::Nothing)
            }
            Operation::ReceiveMany { fd, pool } => {
                (Work::Flow(Flow::new(Source::Socket(fd, pool, group))), Taken::Nothing)
            }
            Operation::Next { flow, buffer: mut place } => {
                let Some(Work::Flow(of)) = self.find(flow).and_then(|entry| entry.work.as_mut())
                else {
                    let operation = Operation::Next { flow, buffer: place };
                    return Err(NotKept(operation, Errno::BADF));
                };
                if let Some(item) = of.items.pop_front() {
                    place.put(item.buffer);
                    (Work::Over(item.result), Taken::ToBeAsked)
                } else if of.state == State::Single {
                    let (single, stage) = single(&of.source, place);
                    (call(single, stage), Taken::ToBeAsked)
                } else {
                    of.takers.push_back(token);
                    let becomes =
                        if of.wants_request() { Taken::Flow(flow) } else { Taken::Nothing };
                    (Work::Taker { flow, place }, becomes)
                }
            }
            operation => (call(Call::Operation(operation), Stage::Asked(0)), Taken::ToBeAsked),
        };
        self.calls += usize::from(matches!(work, Work::Call { .. }));
        self.vacant(token).work = Some(work);
        Ok(becomes)
    }

    /// The group of the flow that an operation takes from, if it has one: it is stocked before.
    pub(crate) fn group_of(&mut self, operation: &Operation) -> Option<u16> {
        let Operation::Next { flow, .. } = operation else { return None };
        match &self.find(*flow)?.work {
            Some(Work::Flow(flow)) => flow.source.group(),
            _ => None,
        }
    }

    /// The place for a token's operation.
    fn vacant(&mut self, token: Token) -> &mut Entry {
        let index = token.index();
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        let entry = self.entries[index]
            .get_or_insert_with(|| Box::new(Entry { token, work: None, message: Message::new() }));
        assert!(entry.work.is_none(), "a token has one operation at a time");
        entry.token = token;
        entry
    }

    /// The request of an operation, to be queued as the one with this number.
    pub(crate) fn request(&mut self, token: Token, number: u64) -> Sqe {
        let (mut asks, pipes) = (0, self.pipes);
        let Entry { work, message, .. } = self.find(token).expect("it is kept");
        let entry = match work {
            Some(Work::Call { stage, will: Will::Cancelled, .. }) => {
                *stage = Stage::Dropped;
                opcode::Nop::new().build()
            }
            Some(Work::Call { stage: Stage::Dropped, .. }) => unreachable!("it is cancelled"),
            Some(Work::Call { call, stage: Stage::Waits, .. }) => poll(call),
            Some(Work::Call { call, stage: Stage::Asked(asked), .. }) => {
                *asked = number;
                ask(call, message, pipes)
            }
            Some(Work::Over(_)) => opcode::Nop::new().build(),
            Some(Work::Flow(flow)) => {
                flow.state = State::Asked(number);
                asks += 1;
                many(&flow.source)
            }
            // It was cancelled while it waited for room.
            Some(Work::Closing(_)) => {
                asks += 1;
                opcode::Nop::new().build()
            }
            Some(Work::Taker { .. }) | None => unreachable!("there is nothing to ask for"),
        };
        self.calls += asks;
        // SAFETY: what the entry refers to is lent by the operation until its completion is
        // reported, or is the message, which stays in its box until then, or for ever.
        unsafe { Sqe::new(entry.user_data(token.as_u64())) }
    }

    /// An event.
    pub(crate) fn event(&mut self, event: &Event) -> After {
        let (token, result) = (Token::from_u64(event.number), event.result);
        let ends = |result| After { ended: Some((token, result)), ..After::default() };
        let Some(entry) = self.find(token) else { return ends(result) };
        match &mut entry.work {
            Some(Work::Call { call, stage, will }) => {
                let then = match *stage {
                    Stage::Asked(_) => after_call(call, stage, result),
                    Stage::Waits => after_wait(call, stage, result),
                    Stage::Dropped => Then::Ended(failure(Errno::CANCELED)),
                };
                let result = match then {
                    Then::Ended(result) => result,
                    Then::Ask if *will == Will::Cancelled => failure(Errno::CANCELED),
                    Then::Ask => return After { ask: Some(token), ..After::default() },
                };
                call.finish(&entry.message, result);
                entry.work = None;
                self.calls -= 1;
                ends(result)
            }
            Some(Work::Over(result)) => {
                let result = *result;
                entry.work = None;
                ends(result)
            }
            Some(Work::Flow(_)) => self.flow_event(token, event),
            Some(Work::Closing(source)) => {
                let group = source.group();
                source.dispose(Item { result, buffer: event.buffer });
                let filled = event.buffer.and_then(|buffer| Some((group?, buffer)));
                if event.more {
                    return After { filled, ..After::default() };
                }
                entry.work = None;
                self.calls -= 1;
                After { filled, closed: group, ..ends(failure(Errno::CANCELED)) }
            }
            Some(Work::Taker { .. }) | None => ends(result),
        }
    }

    /// The kernel has an item of a flow, or the flow's request has ended.
    fn flow_event(&mut self, token: Token, event: &Event) -> After {
        let Event { result, buffer, more, .. } = *event;
        self.calls -= usize::from(!more);
        let Some(Entry { work: Some(Work::Flow(flow)), .. }) = self.find(token) else {
            unreachable!("it is one")
        };
        let group = flow.source.group();
        let filled = buffer.and_then(|buffer| Some((group?, buffer)));
        let mut after = After { filled, ..After::default() };
        let held_back = matches!(flow.state, State::HeldBack(_));
        let unknown = result == failure(Errno::INVAL) && !more;
        if !more {
            flow.state = if unknown { State::Single } else { State::Idle };
        }
        let mut served = None;
        if unknown {
            // Asked for by itself, the item says whether it was that.
            let taker = flow.takers.pop_front();
            if let Some(taker) = taker {
                self.ask_singly(token, taker);
                after.ask = Some(taker);
            }
            return after;
        }
        if !(held_back && result == failure(Errno::CANCELED)) {
            match flow.came(Item { result, buffer }) {
                Turn::Taken(taker, item) => served = Some((taker, item)),
                Turn::Kept => {}
                Turn::HeldBack => after.cancel = Some(token),
            }
        }
        if flow.wants_request() {
            after.ask = Some(token);
        }
        if let Some((taker, item)) = served {
            let entry = self.find(taker).expect("who waits is kept");
            if let Some(Work::Taker { place, .. }) = &mut entry.work {
                place.put(item.buffer);
            }
            entry.work = None;
            after.ended = Some((taker, item.result));
        }
        after
    }

    /// One that waits for an item asks for it by itself.
    fn ask_singly(&mut self, flow: Token, taker: Token) {
        let waits = self.find(taker).and_then(|entry| entry.work.take());
        let Some(Work::Taker { place, .. }) = waits else { unreachable!("it waits for an item") };
        let Some(Entry { work: Some(Work::Flow(of)), .. }) = self.find(flow) else {
            unreachable!("it is a flow")
        };
        let (call, stage) = single(&of.source, place);
        self.vacant(taker).work = Some(Work::Call { call, stage, will: Will::Done });
        self.calls += 1;
    }

    /// Asks for the end of an operation.
    pub(crate) fn cancel(&mut self, token: Token) -> Met {
        let Some(entry) = self.find(token) else { return Met::NotKept };
        match &mut entry.work {
            Some(Work::Call { stage, will, .. }) => {
                *will = Will::Cancelled;
                match *stage {
                    Stage::Asked(number) => Met::Asked(number),
                    Stage::Waits | Stage::Dropped => Met::Waits,
                }
            }
            Some(Work::Taker { flow, .. }) => {
                let flow = *flow;
                entry.work = Some(Work::Over(failure(Errno::CANCELED)));
                if let Some(Entry { work: Some(Work::Flow(flow)), .. }) = self.find(flow) {
                    flow.takers.retain(|&taker| taker != token);
                }
                Met::Here(None)
            }
            Some(Work::Flow(_)) => self.cancel_flow(token),
            Some(Work::Over(_) | Work::Closing(_)) => Met::Over,
            None => Met::NotKept,
        }
    }

    fn cancel_flow(&mut self, token: Token) -> Met {
        let entry = self.find(token).expect("it was found");
        let Some(Work::Flow(flow)) = entry.work.take() else { unreachable!("it is one") };
        let Flow { source, state, items, .. } = flow;
        for item in items {
            source.dispose(item);
        }
        match state {
            State::Asked(number) | State::HeldBack(number) => {
                entry.work = Some(Work::Closing(source));
                Met::Asked(number)
            }
            State::Idle | State::Single => {
                entry.work = Some(Work::Over(failure(Errno::CANCELED)));
                Met::Here(source.group())
            }
        }
    }

    /// Who waits for an item of a flow, oldest first: to be cancelled before the flow is.
    pub(crate) fn taker_of(&mut self, flow: Token) -> Option<Token> {
        match &self.find(flow)?.work {
            Some(Work::Flow(flow)) => flow.takers.front().copied(),
            _ => None,
        }
    }

    /// Those that the kernel has, or is to get.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.entries.iter().flatten().filter_map(|entry| {
            matches!(entry.work, Some(Work::Call { .. } | Work::Flow(_))).then_some(entry.token)
        })
    }

    fn find(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(token.index())?.as_deref_mut()?;
        (entry.token == token && entry.work.is_some()).then_some(entry)
    }
}

impl Source {
    fn group(&self) -> Option<u16> {
        match self {
            Self::Socket(_, _, group) => *group,
            Self::Listener(_) => None,
        }
    }

    /// What nobody takes is closed, or goes back to its pool.
    fn dispose(&self, item: Item) {
        match self {
            Self::Listener(_) if item.result >= 0 => {
                // SAFETY: the kernel has opened it for nobody but this.
                drop(unsafe { OwnedFd::from_raw_fd(item.result) });
            }
            Self::Socket(_, pool, _) => {
                if let Some(buffer) = item.buffer {
                    // SAFETY: the kernel has filled it, and nobody has taken it.
                    unsafe { pool.give_back(buffer) };
                }
            }
            Self::Listener(_) => {}
        }
    }
}

/// A reactor that ends while the kernel has some of these leaves them to it, with their pools and
/// messages, for good.
impl Drop for Kept {
    fn drop(&mut self) {
        if self.calls > 0 {
            mem::forget(mem::take(&mut self.entries));
        }
    }
}

// SAFETY: the pointers in a message are into its own box, and what the operations point to is
// theirs, whatever thread they are on.
unsafe impl Send for Kept {}

// SAFETY: a result is the kernel's own. What is lent is touched by the kernel and by this module
// alone, and by neither when the completion was reported: then the kernel has no request of that token,
// and the entry is vacant.
unsafe impl evenkeel::io::IoReactor for crate::reactor::UringReactor {}

#[cfg(test)]
mod tests {
    use evenkeel::io::Memory;

    use super::*;

    const TOKEN: Token = Token::new(3, 5);

    fn tell(kept: &mut Kept, result: i32) -> After {
        let number = TOKEN.as_u64();
        kept.event(&Event { number, result, more: false, buffer: None })
    }

    fn receive(kept: &mut Kept, bytes: &mut [u8]) {
        // SAFETY: nobody writes to it: the requests are not handed to any kernel.
        let into = unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len()) };
        let kept_so = kept.keep(TOKEN, Operation::Receive { fd: 7, into }, None);
        assert!(kept_so.is_ok_and(|becomes| becomes == Taken::ToBeAsked));
    }

    #[test]
    fn what_has_no_answer_yet_is_asked_for_again_when_it_is_ready() {
        let (mut kept, mut bytes) = (Kept::default(), [0; 4]);
        receive(&mut kept, &mut bytes);
        for number in 0..3 {
            let _ = kept.request(TOKEN, number);
            let after = tell(&mut kept, failure(Errno::AGAIN));
            assert_eq!((after.ask, after.ended), (Some(TOKEN), None), "a poll");
            let _ = kept.request(TOKEN, number);
            let after = tell(&mut kept, 1);
            assert_eq!((after.ask, after.ended), (Some(TOKEN), None), "the call");
        }
        let _ = kept.request(TOKEN, 9);
        assert_eq!(tell(&mut kept, failure(Errno::INTR)).ask, Some(TOKEN), "the call, again");
        let _ = kept.request(TOKEN, 10);
        assert_eq!(tell(&mut kept, 3).ended, Some((TOKEN, 3)));
        assert_eq!(kept.calls(), 0);
    }

    #[test]
    fn what_was_cancelled_meanwhile_is_not_asked_for_again() {
        for stage in 0..3 {
            let (mut kept, mut bytes) = (Kept::default(), [0; 4]);
            receive(&mut kept, &mut bytes);
            let _ = kept.request(TOKEN, 4);
            let canceled = Some((TOKEN, failure(Errno::CANCELED)));
            if stage == 0 {
                // While the call is the kernel's, which has no answer in that moment.
                assert!(kept.cancel(TOKEN) == Met::Asked(4));
                assert_eq!(tell(&mut kept, failure(Errno::AGAIN)).ended, canceled);
                continue;
            }
            tell(&mut kept, failure(Errno::AGAIN));
            if stage == 1 {
                // While it waits for room in the queue: nothing of it is asked for any more.
                assert!(kept.cancel(TOKEN) == Met::Waits);
                let _ = kept.request(TOKEN, 5);
                assert_eq!(tell(&mut kept, 0).ended, canceled);
            } else {
                // While the poll is the kernel's, and fires.
                let _ = kept.request(TOKEN, 5);
                assert!(kept.cancel(TOKEN) == Met::Waits);
                assert_eq!(tell(&mut kept, 1).ended, canceled);
            }
            assert_eq!(kept.calls(), 0);
        }
    }

    #[test]
    fn where_requests_that_last_are_not_known_items_are_asked_for_singly() {
        let mut kept = Kept::default();
        assert!(kept.keep(TOKEN, Operation::AcceptMany { fd: 7 }, None).is_ok());
        let (taker, mut place) = (Token::new(8, 1), None);
        // SAFETY: the place is looked at when the operation has ended.
        let buffer = unsafe { Place::new(std::ptr::NonNull::from(&mut place)) };
        let next = kept.keep(taker, Operation::Next { flow: TOKEN, buffer }, None);
        assert!(next.is_ok_and(|becomes| becomes == Taken::Flow(TOKEN)));
        let _ = kept.request(TOKEN, 0);
        let after = tell(&mut kept, failure(Errno::INVAL));
        assert_eq!((after.ask, after.ended), (Some(taker), None));
        let _ = kept.request(taker, 1);
        let number = taker.as_u64();
        let after = kept.event(&Event { number, result: 11, more: false, buffer: None });
        assert_eq!(after.ended, Some((taker, 11)));
        assert!(kept.cancel(TOKEN) == Met::Here(None), "there is no request to be cancelled");
    }
}
