#![forbid(unsafe_code)]
//! Flows: one request of the kernel's that gives many items, until it ends.
//!
//! Items that nobody has asked for yet wait here. When many do, the request is cancelled, and asked for
//! anew when they have been taken: a flood is the listener's or the peer's to hold back.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use evenkeel::Token;
use evenkeel::io::BufferPool;

/// So many items wait at most before the request is cancelled; those that are on their way then come
/// on top.
const MOST_WAITING: usize = 64;

/// The number of a request that is not in the queue yet: after all others.
const TO_BE_ASKED: u64 = u64::MAX;

/// Where the items come from.
pub(crate) enum Source {
    Listener(RawFd),
    /// With the number of the pool's group, if the kernel takes buffers itself.
    Socket(RawFd, BufferPool, Option<u16>),
}

/// An item: the result, and the number of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) result: i32,
    pub(crate) buffer: Option<u16>,
}

/// The kernel's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is none.
    Idle,
    /// It is the one with this number in the order of the queue.
    Asked(u64),
    /// The same; it is cancelled, since too many items wait.
    HeldBack(u64),
    /// The kernel does not know such requests: each item is asked for.
    Single,
}

pub(crate) struct Flow {
    pub(crate) source: Source,
    pub(crate) state: State,
    pub(crate) items: VecDeque<Item>,
    /// Those who wait for one, oldest first.
    pub(crate) takers: VecDeque<Token>,
}

/// What an event of the flow leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// This one has its item.
    Taken(Token, Item),
    /// Nobody has.
    Kept,
    /// It is kept, and the request is to be cancelled.
    HeldBack,
}

impl Flow {
    pub(crate) fn new(source: Source) -> Self {
        let state = match source {
            Source::Socket(_, _, None) => State::Single,
            Source::Listener(_) | Source::Socket(_, _, Some(_)) => State::Idle,
        };
        Self { source, state, items: VecDeque::new(), takers: VecDeque::new() }
    }

    /// The kernel has an item, or an error in its place.
    pub(crate) fn came(&mut self, item: Item) -> Turn {
        if let Some(taker) = self.takers.pop_front() {
            return Turn::Taken(taker, item);
        }
        // An error that nobody has asked for comes again when somebody does.
        if item.result >= 0 {
            self.items.push_back(item);
        }
        match self.state {
            State::Asked(number) if self.items.len() >= MOST_WAITING => {
                self.state = State::HeldBack(number);
                Turn::HeldBack
            }
            _ => Turn::Kept,
        }
    }

    /// Whether the request is to be asked for, now that it has ended or somebody wants an item. If it
    /// is, it counts as asked from now on.
    pub(crate) fn wants_request(&mut self) -> bool {
        let wants = self.state == State::Idle && !self.takers.is_empty();
        if wants {
            self.state = State::Asked(TO_BE_ASKED);
        }
        wants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(result: i32) -> Item {
        Item { result, buffer: None }
    }

    #[test]
    fn who_waits_longest_has_the_item() {
        let mut flow = Flow::new(Source::Listener(3));
        flow.takers.extend([Token::new(1, 0), Token::new(2, 0)]);
        assert!(flow.wants_request() && !flow.wants_request(), "once");
        assert_eq!(flow.came(item(7)), Turn::Taken(Token::new(1, 0), item(7)));
        assert_eq!(flow.came(item(-24)), Turn::Taken(Token::new(2, 0), item(-24)));
        assert_eq!(flow.came(item(-24)), Turn::Kept);
        assert!(flow.items.is_empty(), "an error is for who asks");
    }

    #[test]
    fn a_flood_is_held_back() {
        let mut flow = Flow::new(Source::Listener(3));
        flow.state = State::Asked(5);
        for number in 1..64 {
            assert_eq!(flow.came(item(number)), Turn::Kept);
        }
        assert_eq!(flow.came(item(64)), Turn::HeldBack);
        assert_eq!((flow.came(item(65)), flow.state), (Turn::Kept, State::HeldBack(5)));
        flow.takers.push_back(Token::new(1, 0));
        assert!(!flow.wants_request(), "it has not ended yet");
    }
}
