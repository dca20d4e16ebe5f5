#![forbid(unsafe_code)]
//! The reactor: the interrupts of UART0 and of the SysTick as operations of tasks.
//!
//! The handlers record what has happened in rings and counters, without a lock and without knowing
//! who waits for it. [`Board::readiness`] compares that with what was asked for, by a few loads;
//! [`Board::poll`] turns it into completions, and sleeps when there are none.

use core::convert::Infallible;
use core::task::Waker;

use evenkeel::{
    Clock, Completion, Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait,
};
use heapless::Deque;

use crate::clock::{self, SysTickClock};
use crate::{notifier, sleep, uart};

/// How many operations may be in flight at once: the worker is made with as many.
pub const OPERATIONS: usize = 16;

/// The result of an operation that was cancelled. Nobody sees it: its future is gone.
const CANCELLED: i32 = -1;

/// What can be asked of the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Ends when a byte has come in over UART0, with the byte.
    ReadByte,
    /// Ends when UART0's device has taken the byte, with 0.
    WriteByte(u8),
    /// Ends with the period of the SysTick that is passing now, with 0.
    Period,
}

/// Those who wait for one kind of thing, in the order in which they asked.
type Queue<T> = Deque<T, OPERATIONS>;

/// The reactor.
///
/// There is never more in a queue than there are operations in flight, of which the worker admits
/// [`OPERATIONS`]. So each queue has room for all of them, and nothing that is asked is refused.
pub struct Board {
    reads: Queue<Token>,
    writes: Queue<Token>,
    /// How many bytes had been sent when the first of `writes` became the first.
    sent: u32,
    /// With the count of periods at which each was asked for.
    periods: Queue<(Token, u32)>,
    cancelled: Queue<Token>,
}

const _: () = assert!(OPERATIONS <= uart::CAPACITY, "each write in flight has room for its byte");

impl Board {
    /// A reactor that waits for nothing yet. One at a time: each takes what comes in.
    pub fn new() -> Self {
        Self {
            reads: Queue::new(),
            writes: Queue::new(),
            sent: uart::sent(),
            periods: Queue::new(),
            cancelled: Queue::new(),
        }
    }

    fn is_ready(&self) -> bool {
        (!self.reads.is_empty() && uart::has_received())
            || (!self.writes.is_empty() && uart::sent() != self.sent)
            || self.periods.front().is_some_and(|&(_, asked)| clock::periods() != asked)
            || !self.cancelled.is_empty()
    }

    /// The next operation that has ended, and with what.
    fn next_ended(&mut self) -> Option<(Token, i32)> {
        if let Some(token) = self.cancelled.pop_front() {
            return Some((token, CANCELLED));
        }
        if let Some(&token) = self.reads.front()
            && let Some(byte) = uart::receive_byte()
        {
            self.reads.pop_front();
            return Some((token, byte.into()));
        }
        if uart::sent() != self.sent
            && let Some(token) = self.writes.pop_front()
        {
            self.sent = self.sent.wrapping_add(1);
            return Some((token, 0));
        }
        let (token, _) = self.periods.pop_front_if(|&mut (_, asked)| clock::periods() != asked)?;
        Some((token, 0))
    }

    fn collect(&mut self, found: &mut Completions) {
        while found.room() > 0
            && let Some((token, result)) = self.next_ended()
        {
            found.push(Completion { token, result });
        }
    }
}

impl Reactor for Board {
    type Operation = Operation;
    type Error = Infallible;

    fn name(&self) -> &'static str {
        "board"
    }

    fn readiness(&mut self) -> Readiness {
        if self.is_ready() { Readiness::Ready } else { Readiness::Quiet }
    }

    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
    ) -> Result<Submitted, Refused<Operation, Infallible>> {
        const ROOM: &str = "the worker admits no more operations than a queue has room for";
        match operation {
            Operation::ReadByte => self.reads.push_back(token).expect(ROOM),
            Operation::WriteByte(byte) => {
                assert!(uart::send_byte(byte), "{ROOM}");
                self.writes.push_back(token).expect(ROOM);
            }
            Operation::Period => {
                self.periods.push_back((token, clock::periods())).expect(ROOM);
            }
        }
        Ok(Submitted::Armed)
    }

    fn cancel(&mut self, token: Token) {
        let read = remove(&mut self.reads, |&other| other == token);
        let period = remove(&mut self.periods, |&(other, _)| other == token);
        // A byte on its way out is not called back: that operation ends as if it had been waited
        // for.
        if read || period {
            // There is room: it has just left another queue.
            let _ = self.cancelled.push_back(token);
        }
    }

    /// Sleeps while there is nothing to report, the notifier is silent, and the deadline is ahead.
    /// An interrupt ends one sleep, and then all that is looked at again: most of the SysTick's
    /// change nothing, and the worker does not hear of them.
    fn poll(&mut self, wait: Wait, found: &mut Completions) -> Result<Polled, Infallible> {
        self.collect(found);
        if wait != Wait::Never && found.as_slice().is_empty() {
            sleep::until(|| self.is_over(wait));
            notifier::clear();
            self.collect(found);
        }
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        notifier::waker()
    }
}

impl Board {
    fn is_over(&self, wait: Wait) -> bool {
        notifier::is_set()
            || self.is_ready()
            || match wait {
                Wait::Never => true,
                Wait::Until(deadline) => SysTickClock.now() >= deadline,
                Wait::Forever => false,
            }
    }
}

/// Takes the one that `is_it` out of a queue, whose others keep their order. Whether it was there.
fn remove<T>(queue: &mut Queue<T>, is_it: impl Fn(&T) -> bool) -> bool {
    let before = queue.len();
    queue.retain(|entry| !is_it(entry));
    queue.len() < before
}
