//! The conformance kit for reactors: the simulated one keeps the rules, and whoever breaks one is
//! told which.
#![cfg(all(feature = "std", feature = "testing"))]

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::testing::conformance::reactor::{self as kit, Arranged, Broken, Harness};
use evenkeel::testing::{CANCELLED, Sim, SimError, SimOperation, SimReactor, VirtualClock};
use evenkeel::{
    Clock, Completion, Completions, Instant, Polled, Reactor, Readiness, Refused, Submitted, Token,
    Wait,
};

/// What a reactor does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    CountsOneTooMany,
    CountsNothing,
    QuietWhileQueued,
    SaysArmedTooEarly,
    LosesCompletions,
    DoublesCompletions,
    ForgetsHalfOfTheGeneration,
    ForgetsHalfOfTheIndex,
    ExceedsTheRoom,
    DropsWhatDoesNotFit,
    EmptiesTheBatch,
    QuietWithCompletions,
    ReadyForNothing,
    IgnoresCancels,
    EndsTheCancelledTwice,
    CancelsTheQueuedForGood,
    CancelsTheNextTenant,
    AnswersUnknownCancels,
    GivesBackAnother,
    RefusesAndEnds,
    WaitsAtNever,
    OverstaysDeadlines,
    RoundsDeadlinesDown,
    KeepsItsWake,
    WaitsPastCompletions,
    IsDeaf,
    SwallowsWakesAtNever,
    IsDeafWhileItWaits,
    IsStuck,
    ItsNotifierDiesWithIt,
    ItsClonesAreDeaf,
    PanicsWhenDroppedInFlight,
    FailsForNoReason,
}

/// The simulated reactor, with a fault.
struct Faulty {
    inner: SimReactor,
    sim: Sim,
    clock: VirtualClock,
    fault: Fault,
    /// The token of each index that was submitted last.
    last: BTreeMap<usize, Token>,
    queued: usize,
    reported: usize,
    ears: Arc<Ears>,
}

/// The notifier of one that is hard of hearing.
struct Ears {
    inner: Waker,
    fault: Fault,
    waits: Arc<AtomicBool>,
    alive: AtomicBool,
    woken: AtomicBool,
}

impl Wake for Ears {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let missed = match self.fault {
            // Only the first of each wait.
            Fault::IsDeafWhileItWaits => self.waits.swap(false, Ordering::SeqCst),
            Fault::ItsNotifierDiesWithIt => {
                assert!(self.alive.load(Ordering::SeqCst), "there is nobody to wake");
                false
            }
            // Whoever counts the references takes itself for the only one.
            Fault::ItsClonesAreDeaf => Arc::strong_count(self) > 2,
            fault => fault == Fault::IsDeaf,
        };
        self.woken.store(true, Ordering::SeqCst);
        if !missed {
            self.inner.wake_by_ref();
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.ears.alive.store(false, Ordering::SeqCst);
        let in_flight = self.sim.held() > 0;
        assert!(self.fault != Fault::PanicsWhenDroppedInFlight || !in_flight, "still in flight");
    }
}

impl Reactor for Faulty {
    type Operation = SimOperation;
    type Error = SimError;

    fn name(&self) -> &'static str {
        "faulty"
    }

    fn readiness(&mut self) -> Readiness {
        match (self.fault, self.inner.readiness()) {
            (Fault::QuietWhileQueued, _) if self.queued > 0 => Readiness::Quiet,
            (Fault::QuietWithCompletions, Readiness::Ready) if self.queued == 0 => Readiness::Quiet,
            (Fault::ReadyForNothing, _) => Readiness::Ready,
            (_, readiness) => readiness,
        }
    }

    fn submit(
        &mut self,
        token: Token,
        operation: SimOperation,
    ) -> Result<Submitted, Refused<SimOperation, SimError>> {
        let submitted =
            self.inner.submit(token, operation).map_err(|refused| match self.fault {
                Fault::GivesBackAnother => Refused { operation: SimOperation::Event(0), ..refused },
                Fault::RefusesAndEnds => {
                    self.sim.report(Completion { token, result: -1 });
                    refused
                }
                _ => refused,
            })?;
        self.last.insert(token.index(), token);
        if submitted == Submitted::Queued {
            self.queued += 1;
        }
        if self.fault == Fault::SaysArmedTooEarly { Ok(Submitted::Armed) } else { Ok(submitted) }
    }

    fn cancel(&mut self, token: Token) {
        let cancelled = Completion { token, result: CANCELLED };
        match self.fault {
            Fault::IgnoresCancels => return,
            Fault::EndsTheCancelledTwice => self.sim.report(cancelled),
            Fault::AnswersUnknownCancels if self.last.get(&token.index()) != Some(&token) => {
                self.sim.report(cancelled);
            }
            Fault::CancelsTheQueuedForGood if self.queued > 0 => {
                // As if it had never been: its completion is taken out again.
                self.inner.cancel(token);
                let _ = self.inner.poll(Wait::Never, &mut Completions::new());
                return;
            }
            Fault::CancelsTheNextTenant => {
                if let Some(&tenant) = self.last.get(&token.index()) {
                    self.inner.cancel(tenant);
                }
                return;
            }
            _ => {}
        }
        self.inner.cancel(token);
    }

    fn poll(&mut self, wait: Wait, found: &mut Completions) -> Result<Polled, SimError> {
        if self.fault == Fault::IsStuck {
            loop {
                thread::park();
            }
        }
        let wait = match (self.fault, wait) {
            (Fault::WaitsAtNever | Fault::SwallowsWakesAtNever, Wait::Never) => {
                Wait::Until(self.clock.now())
            }
            (Fault::OverstaysDeadlines, Wait::Until(deadline)) => {
                Wait::Until(deadline + Duration::from_hours(1))
            }
            (Fault::RoundsDeadlinesDown, Wait::Until(deadline)) => {
                const MILLI: u64 = 1_000_000;
                Wait::Until(Instant::from_nanos(deadline.as_nanos() / MILLI * MILLI))
            }
            (Fault::WaitsPastCompletions, Wait::Until(deadline)) => {
                self.clock.advance(deadline - self.clock.now());
                wait
            }
            _ => wait,
        };
        if self.fault == Fault::KeepsItsWake && self.ears.woken.load(Ordering::SeqCst) {
            self.ears.inner.wake_by_ref();
        }
        if self.fault == Fault::EmptiesTheBatch {
            found.clear();
        }
        self.ears.waits.store(wait == Wait::Forever, Ordering::SeqCst);
        let mut all = Completions::new();
        // No more than there is room for, unless that is the fault.
        let careless = matches!(self.fault, Fault::ExceedsTheRoom | Fault::DropsWhatDoesNotFit);
        while !careless && all.room() > found.room() {
            all.push(Completion { token: Token::new(0, 0), result: 0 });
        }
        let skip = all.as_slice().len();
        let polled = self.inner.poll(wait, &mut all)?;
        self.ears.waits.store(false, Ordering::SeqCst);
        self.queued = 0;
        for &completion in &all.as_slice()[skip..] {
            self.report(completion, found);
        }
        let armed = match self.fault {
            Fault::CountsOneTooMany if polled.armed > 0 => polled.armed + 1,
            Fault::CountsNothing | Fault::SaysArmedTooEarly => 0,
            _ => polled.armed,
        };
        let fails = self.fault == Fault::FailsForNoReason && self.reported > 3;
        if fails { Err(SimError::Failed) } else { Ok(Polled { armed }) }
    }

    fn notifier(&self) -> Waker {
        Waker::from(Arc::clone(&self.ears))
    }
}

impl Faulty {
    fn report(&mut self, completion: Completion, found: &mut Completions) {
        self.reported += 1;
        let Completion { token, result } = completion;
        let number = token.as_u64();
        let token = match self.fault {
            Fault::LosesCompletions if self.reported.is_multiple_of(7) => return,
            Fault::DropsWhatDoesNotFit if found.room() == 0 => return,
            Fault::ForgetsHalfOfTheGeneration => Token::from_u64(number & 0xffff_ffff_ffff),
            Fault::ForgetsHalfOfTheIndex => Token::from_u64(number & !0xffff_0000),
            _ => token,
        };
        if self.fault == Fault::DoublesCompletions && self.reported.is_multiple_of(7) {
            self.sim.report(completion);
        }
        found.push(Completion { token, result });
    }
}

/// How the simulated reactor knows its readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sight {
    Sees,
    Blind,
}

struct Simulated {
    clock: VirtualClock,
    sim: Option<Sim>,
    waits: Arc<AtomicBool>,
    fault: Fault,
    sight: Sight,
    capacity: u32,
}

impl Simulated {
    fn new(fault: Fault, sight: Sight, capacity: u32) -> Self {
        let (clock, waits) = (VirtualClock::new(), Arc::default());
        Self { clock, sim: None, waits, fault, sight, capacity }
    }

    fn sim(&self) -> &Sim {
        self.sim.as_ref().expect("the kit has made a reactor")
    }
}

impl Harness for Simulated {
    type Reactor = Faulty;

    fn reactor(&mut self) -> Faulty {
        let inner = SimReactor::new(&self.clock).waits_for_real();
        let inner = if self.sight == Sight::Blind { inner.blind() } else { inner };
        let sim = inner.control();
        self.sim = Some(sim.clone());
        let ears = Arc::new(Ears {
            inner: inner.notifier(),
            fault: self.fault,
            waits: Arc::clone(&self.waits),
            alive: AtomicBool::new(true),
            woken: AtomicBool::new(false),
        });
        Faulty {
            inner,
            sim,
            clock: self.clock.clone(),
            fault: self.fault,
            last: BTreeMap::new(),
            queued: 0,
            reported: 0,
            ears,
        }
    }

    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn highest_index(&self) -> u32 {
        u32::MAX
    }

    fn operation(&mut self, number: u32) -> SimOperation {
        assert!(number < self.capacity);
        SimOperation::Event(number)
    }

    fn number(&self, operation: &SimOperation) -> Option<u32> {
        match *operation {
            SimOperation::Event(number) => Some(number),
            SimOperation::After(_) => None,
        }
    }

    fn trigger(&mut self, _: &mut Faulty, number: u32) {
        let _ = self.sim().fire(number, 1);
    }

    fn now(&mut self) -> Instant {
        self.clock.now()
    }

    fn refuse(&mut self, _: &mut Faulty) -> Arranged {
        self.sim().refuse_next(1);
        Arranged::Done
    }

    fn wake_elsewhere(&mut self, notifier: Waker) -> Arranged {
        let (waits, must_wait) = (Arc::clone(&self.waits), self.fault == Fault::IsDeafWhileItWaits);
        thread::spawn(move || {
            while must_wait && !waits.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            notifier.wake();
        });
        Arranged::Done
    }

    fn patience(&self) -> Duration {
        // The time of those that are to be caught by the watchdog is real.
        let soon = matches!(self.fault, Fault::IsDeafWhileItWaits | Fault::IsStuck);
        if soon { Duration::from_millis(20) } else { kit::PATIENCE }
    }

    fn waits(&mut self) -> Option<usize> {
        Some(self.sim().waits())
    }
}

#[test]
fn the_simulated_reactor_keeps_the_rules() {
    for sight in [Sight::Sees, Sight::Blind] {
        for capacity in [1, 2, 3, 31, 33, 4096, u32::MAX] {
            if let Err(broken) = kit::check(&mut Simulated::new(Fault::None, sight, capacity)) {
                panic!("{sight:?}, {capacity}: {broken}");
            }
        }
    }
}

type Rule = fn(&mut Simulated) -> Result<(), Broken>;

/// The fault is found by the rule that it breaks, and by all of them together.
#[track_caller]
fn breaks(sight: Sight, fault: Fault, rule: Rule, name: &str, what: &str) {
    assert!(kit::RULES.contains(&name), "{name}");
    let broken = rule(&mut Simulated::new(fault, sight, 64)).unwrap_err();
    let message = broken.to_string();
    let begins = format!("the reactor `faulty` breaks the rule `{name}`: ");
    assert!(message.starts_with(&begins) && message.contains(what), "{message}");
    assert_eq!(broken.rule(), name);
    kit::check(&mut Simulated::new(fault, sight, 64)).unwrap_err();
}

/// One test each: the fault, with eyes or without, the rule that it breaks, a part of what is said.
macro_rules! faults {
    ($($test:ident: $sight:ident $fault:ident breaks $rule:ident, $what:literal;)*) => {
        $(
            #[test]
            fn $test() {
                breaks(Sight::$sight, Fault::$fault, kit::$rule, stringify!($rule), $what);
            }
        )*
    };
}

faults! {
    one_too_many_is_counted: Sees CountsOneTooMany breaks queued_is_ready_until_armed,
        "40 operations were queued, and `Polled.armed` has counted 41";
    nothing_is_counted: Sees CountsNothing breaks queued_is_ready_until_armed,
        "of which `Polled.armed` had counted 0";
    quiet_while_queued: Sees QuietWhileQueued breaks queued_is_ready_until_armed,
        "`Quiet` with 1 operations queued";
    armed_is_said_too_early: Sees SaysArmedTooEarly breaks armed_needs_no_poll,
        "0 of 40 completions have come";
    completions_are_lost: Sees LosesCompletions breaks each_operation_completes_once,
        "35 of 40 completions have come";
    completions_are_lost_by_a_blind_one: Blind LosesCompletions breaks armed_needs_no_poll,
        "35 of 40 completions have come";
    completions_are_doubled: Sees DoublesCompletions breaks each_operation_completes_once,
        "was reported 2 times";
    generations_are_mangled: Sees ForgetsHalfOfTheGeneration breaks tokens_come_back_unharmed,
        "generation: 65536 } came back as Token";
    indices_are_mangled: Blind ForgetsHalfOfTheIndex breaks tokens_come_back_unharmed,
        "came back as Token { index: 65535";
    the_room_is_exceeded: Sees ExceedsTheRoom breaks a_poll_keeps_to_the_room,
        "a poll reports at most POLL_BATCH completions";
    what_does_not_fit_is_dropped: Blind DropsWhatDoesNotFit breaks a_poll_keeps_to_the_room,
        "was reported 0 times";
    the_batch_is_emptied: Sees EmptiesTheBatch breaks a_poll_keeps_to_the_room,
        "out of the batch";
    quiet_with_the_rest_left_over: Sees QuietWithCompletions breaks a_poll_keeps_to_the_room,
        "`Quiet` with 40 completions left over";
    quiet_with_a_completion: Sees QuietWithCompletions breaks quiet_means_that_nothing_waits,
        "`Quiet` with a completion waiting";
    ready_for_nothing: Sees ReadyForNothing breaks ready_means_that_something_waits,
        "still `Ready` with nothing in flight";
    cancels_are_ignored: Sees IgnoresCancels breaks a_cancelled_operation_completes_once,
        "cancelled when it was armed: 0 of 1 completions have come";
    cancels_are_answered_twice: Blind EndsTheCancelledTwice breaks
        a_cancelled_operation_completes_once, "was reported 2 times";
    a_queued_operation_is_forgotten: Sees CancelsTheQueuedForGood breaks
        a_cancelled_operation_completes_once, "right after it was submitted: 0 of 1";
    the_next_tenant_is_cancelled: Sees CancelsTheNextTenant breaks
        a_cancel_of_the_unknown_is_ignored, "was reported by a cancel of another";
    unknown_cancels_are_answered: Blind AnswersUnknownCancels breaks
        a_cancel_of_the_unknown_is_ignored, "was reported by a cancel, with nothing in flight";
    another_operation_comes_back: Sees GivesBackAnother breaks a_refused_operation_comes_back,
        "operation 63 was refused, 0 came back";
    a_refused_operation_ends: Blind RefusesAndEnds breaks a_refused_operation_comes_back,
        "though it was refused";
    never_waits: Sees WaitsAtNever breaks never_does_not_wait, "`Wait::Never` waited";
    deadlines_are_overstayed: Blind OverstaysDeadlines breaks a_wait_ends_at_its_deadline,
        "a wait of 0ns took 3600";
    deadlines_are_rounded_down: Blind RoundsDeadlinesDown breaks a_wait_lasts_to_its_deadline,
        "with nothing in flight lasted to its deadline, in 3.9ms: the longest took 3ms";
    a_wake_is_never_over: Sees KeepsItsWake breaks a_wait_lasts_to_its_deadline,
        "none of 5 waits after one that took the only wake lasted";
    completions_are_waited_past: Sees WaitsPastCompletions breaks a_wait_ends_with_a_completion,
        "a completion that was there did not end a wait of 10s";
    the_notifier_is_forgotten: Sees IsDeaf breaks the_notifier_ends_the_next_wait,
        "a wake did not end a wait of 10s";
    the_notifier_is_forgotten_from_elsewhere: Sees IsDeaf breaks
        the_notifier_is_heard_from_elsewhere, "a wake did not end a wait of 10s";
    wakes_are_swallowed: Blind SwallowsWakesAtNever breaks the_notifier_ends_the_next_wait,
        "a wake that a poll without a wait came before did not end";
    clones_are_deaf: Sees ItsClonesAreDeaf breaks the_notifier_ends_the_next_wait,
        "did not end a wait";
    deaf_while_it_waits: Sees IsDeafWhileItWaits breaks the_notifier_is_heard_from_elsewhere,
        "came back only when the notifier was woken in its aid";
    the_notifier_dies_first: Sees ItsNotifierDiesWithIt breaks the_notifier_outlives_the_reactor,
        "it panicked: there is nobody to wake";
    a_drop_panics: Blind PanicsWhenDroppedInFlight breaks
        a_reactor_is_dropped_with_operations_in_flight, "it panicked: still in flight";
    a_poll_fails: Sees FailsForNoReason breaks each_operation_completes_once,
        "a poll failed";
}

/// A call that never comes back can't be ended: the process names the rule, and is.
#[test]
fn a_reactor_that_is_stuck_ends_the_process_with_a_message() {
    const NAME: &str = "a_reactor_that_is_stuck_ends_the_process_with_a_message";
    const STUCK: &str = "EVENKEEL_STUCK";
    if env::var_os(STUCK).is_some() {
        let stuck = kit::never_does_not_wait(&mut Simulated::new(Fault::IsStuck, Sight::Sees, 1));
        unreachable!("{stuck:?}");
    }
    let child = Command::new(env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env(STUCK, "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success());
    assert!(said.contains("breaks the rule `never_does_not_wait`: a call does not"), "{said}");
}

#[test]
#[should_panic(expected = "a reactor has room for one operation")]
fn a_capacity_of_nothing_is_refused() {
    let _ = kit::check(&mut Simulated::new(Fault::None, Sight::Sees, 0));
}
