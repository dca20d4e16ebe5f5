//! Does a reactor keep the rules of the trait [`Reactor`]?
//!
//! Write a [`Harness`], a few lines that make the reactor and bring its operations to their end,
//! and call [`check`] in a test. Each rule is also a function of its own, by the same name as in the
//! message of a reactor that breaks it.
//!
//! ```
//! use evenkeel::testing::conformance::reactor::{self, Arranged, Harness};
//! use evenkeel::testing::{Sim, SimOperation, SimReactor, VirtualClock};
//! use evenkeel::{Clock, Instant};
//!
//! #[derive(Default)]
//! struct Simulated {
//!     clock: VirtualClock,
//!     sim: Option<Sim>,
//! }
//!
//! impl Harness for Simulated {
//!     type Reactor = SimReactor;
//!
//!     fn reactor(&mut self) -> SimReactor {
//!         let reactor = SimReactor::new(&self.clock);
//!         self.sim = Some(reactor.control());
//!         reactor
//!     }
//!     fn capacity(&self) -> u32 {
//!         4096
//!     }
//!     fn operation(&mut self, number: u32) -> SimOperation {
//!         SimOperation::Event(number)
//!     }
//!     fn number(&self, operation: &SimOperation) -> Option<u32> {
//!         match *operation {
//!             SimOperation::Event(number) => Some(number),
//!             SimOperation::After(_) => None,
//!         }
//!     }
//!     fn trigger(&mut self, _: &mut SimReactor, number: u32) {
//!         // Not armed any more, if it was cancelled.
//!         let _ = self.sim.as_ref().unwrap().fire(number, 0);
//!     }
//!     fn now(&mut self) -> Instant {
//!         self.clock.now()
//!     }
//!     // On virtual time nothing else happens while the reactor waits.
//!     fn wake_elsewhere(&mut self, _: core::task::Waker) -> Arranged {
//!         Arranged::Impossible
//!     }
//! }
//!
//! if let Err(broken) = reactor::check(&mut Simulated::default()) {
//!     panic!("{broken}");
//! }
//! ```
//!
//! # On a microcontroller
//! The kit needs an allocator, for its own lists, and no `std`: enable `testing` in a test firmware,
//! and print the [`Broken`] that [`check`] gives. What a UART's reactor needs of a harness:
//!
//! - `operation` asks for a byte of the channel with that number; `trigger` puts one there, by a
//!   loopback or by a call of the interrupt handler itself. A reactor for one operation at a time
//!   has a [`capacity`](Harness::capacity) of 1, and every rule is checked with that.
//! - [`wake_elsewhere`](Harness::wake_elsewhere) starts a timer whose interrupt handler wakes the
//!   notifier; the rule about wakes from elsewhere is passed over where that can't be arranged.
//! - [`waits`](Harness::waits) is a counter beside the instruction that waits (`WFI`), if you like:
//!   by it the kit sees a wait that should not be, however short.
//!
//! # Its bounds
//! A faulty reactor fails and does not hang. Where something may never come the kit waits with a
//! deadline, as far off as the harness's [`patience`](Harness::patience). With std a watchdog is there as well: after
//! three times that it wakes the notifier, and if that does not help it names the rule and aborts the
//! process. Without std a wait that nothing ends is for the hardware's watchdog to end; it comes only
//! when the rules about deadlines have been kept. Also without std, a panic of the reactor is the end
//! of the check.
//!
//! # What it can't see
//! - A wait that should not be, where the harness does not count them, unless it exhausts the patience.
//! - System calls, and how many: `submit` and `cancel` are taken at their word.
//! - What a reactor keeps after it was dropped: a counting allocator is for that.

use alloc::string::String;
use core::fmt;
use core::task::Waker;
use core::time::Duration;

use crate::reactor::Reactor;
use crate::time::Instant;

mod bench;
mod rules;
mod watchdog;

/// How long the kit waits before it takes something for lost, unless the harness says otherwise:
/// 10 s. A reactor that keeps the rules never has it wait.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What a harness's reactor is asked for.
pub type OperationOf<H> = <<H as Harness>::Reactor as Reactor>::Operation;

/// What the kit needs to know of a reactor.
///
/// All is called on the thread that checks. The kit has at most one reactor at a time.
pub trait Harness {
    /// What is checked.
    type Reactor: Reactor;

    /// Makes a reactor with nothing in flight, woken by nobody.
    fn reactor(&mut self) -> Self::Reactor;

    /// How many operations the reactor is made for at once, 1 at least. The kit has no more in
    /// flight, and does with 64.
    fn capacity(&self) -> u32;

    /// The highest index of a token that the reactor is made for: less than
    /// [`capacity`](Self::capacity) unless said otherwise, for that is how a table hands them out.
    /// `u32::MAX` if it makes no difference.
    fn highest_index(&self) -> u32 {
        self.capacity() - 1
    }

    /// An operation that stays pending until [`trigger`](Self::trigger) is called with the same
    /// number, which is less than [`capacity`](Self::capacity). A number comes again only when its
    /// last operation has ended or was refused, or the reactor is gone, and is pending then as it
    /// was the first time.
    fn operation(&mut self, number: u32) -> OperationOf<Self>;

    /// The number of an operation that the reactor gave back, if it is one.
    fn number(&self, operation: &OperationOf<Self>) -> Option<u32>;

    /// Brings an armed operation to its end, and returns when that is to be seen: a poll would find
    /// its completion. Nothing happens if the operation was cancelled before.
    fn trigger(&mut self, reactor: &mut Self::Reactor, number: u32);

    /// The time by the reactor's clock: the one that [`Wait::Until`](crate::Wait::Until) is meant
    /// in.
    fn now(&mut self) -> Instant;

    /// Sees to it that the reactor refuses the next operation, if that can be done.
    fn refuse(&mut self, _reactor: &mut Self::Reactor) -> Arranged {
        Arranged::Impossible
    }

    /// Sees to it that the notifier is woken soon by somebody else, while this thread waits: a
    /// thread of its own under std unless said otherwise.
    fn wake_elsewhere(&mut self, notifier: Waker) -> Arranged {
        #[cfg(feature = "std")]
        {
            std::thread::spawn(move || notifier.wake());
            Arranged::Done
        }
        #[cfg(not(feature = "std"))]
        {
            drop(notifier);
            Arranged::Impossible
        }
    }

    /// How long the kit waits, by the harness's clock, before it takes something for lost.
    /// [`PATIENCE`] unless said otherwise; more for a machine that is emulated.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// How often the reactor has waited, for whatever time, if that can be told.
    fn waits(&mut self) -> Option<usize> {
        None
    }
}

/// Whether a harness could do what it was asked. A rule that needs it is passed over if not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arranged {
    /// It has done it.
    Done,
    /// It can't be done with this reactor.
    Impossible,
}

/// A rule that a reactor does not keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    rule: &'static str,
    reactor: &'static str,
    what: String,
}

impl Broken {
    /// The rule: the name of the function here that checks it.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.rule
    }

    /// What was seen.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, reactor, what } = self;
        write!(f, "the reactor `{reactor}` breaks the rule `{rule}`: {what}")
    }
}

impl core::error::Error for Broken {}

/// Each rule's function, and the one that checks them all.
macro_rules! rules {
    ($($(#[$attribute:meta])* $rule:ident)*) => {
        $(
            $(#[$attribute])*
            ///
            /// # Errors
            /// If the reactor breaks this rule, or another without which it can't be checked. With
            /// std a panic, too, is an error.
            ///
            /// # Panics
            /// If the harness has a capacity of 0, or can't make a reactor.
            pub fn $rule<H: Harness>(harness: &mut H) -> Result<(), Broken> {
                bench::run(harness, stringify!($rule), rules::$rule)
            }
        )*

        /// The names of all rules, in the order in which [`check`] comes to them.
        pub const RULES: &[&str] = &[$(stringify!($rule)),*];

        /// Checks every rule, each on a reactor of its own, up to the first that is broken.
        ///
        /// # Errors
        /// Which rule the reactor breaks, and what was seen.
        ///
        /// # Panics
        /// If the harness has a capacity of 0, or can't make a reactor.
        pub fn check<H: Harness>(harness: &mut H) -> Result<(), Broken> {
            $($rule(harness)?;)*
            Ok(())
        }
    };
}

rules! {
    /// After [`Queued`](crate::Submitted::Queued) the readiness is `Ready` until a poll has armed the
    /// operation. [`Polled::armed`](crate::Polled::armed) counts each of these once, no later than
    /// its completion is reported, and no other.
    queued_is_ready_until_armed
    /// After [`Armed`](crate::Submitted::Armed) an operation needs no poll to come to its end.
    armed_needs_no_poll
    /// Every operation that was accepted gets one completion.
    each_operation_completes_once
    /// A poll reports no more than there is room for, and leaves alone what is in the batch already.
    /// What does not fit is left for the next poll, until which the readiness is not `Quiet`.
    a_poll_keeps_to_the_room
    /// At `Quiet` a poll would find nothing.
    quiet_means_that_nothing_waits
    /// At `Ready` a poll finds a completion, or has operations to arm; it does not stay `Ready` for
    /// nothing.
    ready_means_that_something_waits
    /// A cancelled operation gets its completion all the same, through a poll, and only one: also if
    /// it was not armed yet, had come to its end, or is cancelled twice.
    a_cancelled_operation_completes_once
    /// To cancel a token that is unknown, has ended, or is of another generation is to do nothing.
    a_cancel_of_the_unknown_is_ignored
    /// A completion's token is the operation's, with all bits of index and generation.
    tokens_come_back_unharmed
    /// An operation that is refused comes back, gets no completion, and may be tried again. Passed
    /// over if the harness can't have one [refused](Harness::refuse).
    a_refused_operation_comes_back
    /// [`Wait::Never`](crate::Wait::Never) takes what is there.
    never_does_not_wait
    /// [`Wait::Until`](crate::Wait::Until) ends at its deadline, and at once if that is past.
    a_wait_ends_at_its_deadline
    /// A wait that nothing forestalls lasts to its deadline. It may be interrupted: of five in a row
    /// one has to last. What ends all of them makes a worker that idles spin: a deadline that is
    /// rounded down, or a wake that stays when a wait has taken it.
    a_wait_lasts_to_its_deadline
    /// A wait ends with a completion, and does not begin if there is one.
    a_wait_ends_with_a_completion
    /// A wake of the notifier, or of any clone of it, ends the next poll that waits. A poll that does
    /// not wait leaves that one its wake.
    the_notifier_ends_the_next_wait
    /// A wake from another thread or an interrupt handler ends the wait, whenever it comes. Passed
    /// over if the harness can't [have it](Harness::wake_elsewhere) come.
    the_notifier_is_heard_from_elsewhere
    /// The notifier stays valid when the reactor is gone.
    the_notifier_outlives_the_reactor
    /// A reactor may be dropped with operations in flight: queued, armed, ended or cancelled.
    a_reactor_is_dropped_with_operations_in_flight
}
