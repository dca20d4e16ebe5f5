#![forbid(unsafe_code)]
//! A reactor at work: what the rules have in common.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::task::Waker;
use core::time::Duration;

use super::watchdog::{Aid, Watchdog, caught};
use super::{Arranged, Broken, Harness};
use crate::reactor::{
    Completion, Completions, POLL_BATCH, Reactor, Readiness, Refused, Submitted, Token, Wait,
};
use crate::time::Instant;

/// How a rule is found to be kept, or what was seen instead.
pub(super) type Outcome<T = ()> = Result<T, String>;

/// How often something is tried that may take several polls.
const TRIES: u32 = 200;

/// How long one of these tries waits.
const PAUSE: Duration = Duration::from_millis(10);

/// Of so many waits that nothing forestalls one at least is not interrupted.
const UNDISTURBED: u32 = 5;

/// How long such a wait is: by no clock of a machine a round number.
const SPAN: Duration = Duration::from_micros(3_900);

/// How many polls look for what should not be there.
const DRY: u32 = 4;

/// So many operations that they don't fit into one batch.
const MANY: u32 = 40;
const _: () = assert!(MANY as usize > POLL_BATCH);

/// A reactor, and the harness that it came from.
pub(super) struct Bench<'a, H: Harness> {
    harness: &'a mut H,
    reactor: H::Reactor,
    /// How many were queued and are not armed, as far as it says.
    queued: usize,
    aid: Aid,
}

/// Checks one rule.
pub(super) fn run<H: Harness>(
    harness: &mut H,
    rule: &'static str,
    body: impl FnOnce(Bench<'_, H>) -> Outcome,
) -> Result<(), Broken> {
    assert!(harness.capacity() > 0, "a reactor has room for one operation");
    let reactor = harness.reactor();
    let name = reactor.name();
    let watchdog = Watchdog::new(rule, name, reactor.notifier(), harness.patience());
    let aid = watchdog.aid();
    let seen = caught(|| body(Bench { harness, reactor, queued: 0, aid }));
    let ended = watchdog.dismiss();
    seen.and(ended).map_err(|what| Broken { rule, reactor: name, what })
}

pub(super) fn require(kept: bool, what: impl FnOnce() -> String) -> Outcome {
    if kept { Ok(()) } else { Err(what()) }
}

/// Each of these tokens has its completion, and nothing else has.
pub(super) fn each_once(expected: &[Token], found: &[Completion]) -> Outcome {
    let strange = found.iter().find(|completion| !expected.contains(&completion.token));
    for &token in expected {
        let times = found.iter().filter(|completion| completion.token == token).count();
        require(times == 1, || match strange {
            Some(Completion { token: other, .. }) => {
                format!("{token:?} was reported {times} times, reported instead: {other:?}")
            }
            None => format!("{token:?} was reported {times} times"),
        })?;
    }
    strange.map_or(Ok(()), |strange| Err(format!("{strange:?} is of no operation")))
}

impl<H: Harness> Bench<'_, H> {
    /// [`MANY`] operations, or as many as there is room for.
    pub(super) fn many(&self) -> u32 {
        MANY.min(self.harness.capacity())
    }

    pub(super) fn capacity(&self) -> u32 {
        self.harness.capacity()
    }

    pub(super) fn highest_index(&self) -> u32 {
        self.harness.highest_index()
    }

    pub(super) fn readiness(&mut self) -> Readiness {
        self.reactor.readiness()
    }

    pub(super) fn cancel(&mut self, token: Token) {
        self.reactor.cancel(token);
    }

    pub(super) fn trigger(&mut self, number: u32) {
        self.harness.trigger(&mut self.reactor, number);
    }

    pub(super) fn notifier(&self) -> Waker {
        self.reactor.notifier()
    }

    pub(super) fn wake_elsewhere(&mut self) -> Arranged {
        let notifier = self.notifier();
        self.harness.wake_elsewhere(notifier)
    }

    /// Submits the operation of that number.
    pub(super) fn submit(&mut self, token: Token, number: u32) -> Outcome<Submitted> {
        let operation = self.harness.operation(number);
        match self.reactor.submit(token, operation) {
            Ok(Submitted::Queued) => {
                self.queued += 1;
                Ok(Submitted::Queued)
            }
            Ok(Submitted::Armed) => Ok(Submitted::Armed),
            Err(_) => Err(String::from("an operation was refused, though there is room for it")),
        }
    }

    /// Submits the operation of that number, which is to be refused. The number of the one that
    /// came back; none if it can't be arranged.
    pub(super) fn submit_refused(&mut self, token: Token, number: u32) -> Outcome<Option<u32>> {
        let operation = self.harness.operation(number);
        if self.harness.refuse(&mut self.reactor) == Arranged::Impossible {
            return Ok(None);
        }
        match self.reactor.submit(token, operation) {
            Ok(_) => Err(String::from("the harness arranged for a refusal, and there was none")),
            Err(Refused { operation, .. }) => match self.harness.number(&operation) {
                Some(number) => Ok(Some(number)),
                None => Err(String::from("what came back is none of the harness's operations")),
            },
        }
    }

    /// Submits so many, under tokens of this generation, and arms them.
    pub(super) fn armed(&mut self, operations: u32, generation: u32) -> Outcome<Vec<Token>> {
        let tokens: Vec<_> = (0..operations).map(|number| Token::new(number, generation)).collect();
        for (number, &token) in (0..).zip(&tokens) {
            self.submit(token, number)?;
        }
        self.arm()?;
        Ok(tokens)
    }

    /// Polls until everything that is queued is armed. Nothing has come to its end.
    pub(super) fn arm(&mut self) -> Outcome {
        for _ in 0..TRIES {
            if self.queued == 0 {
                return Ok(());
            }
            self.look(&mut Completions::new())?;
        }
        Err(format!("{} operations are still queued after {TRIES} polls", self.queued))
    }

    /// One poll; how many operations it armed.
    pub(super) fn poll(&mut self, wait: Wait, found: &mut Completions) -> Outcome<usize> {
        let polled = self.reactor.poll(wait, found);
        self.aid.was_not_needed()?;
        match polled {
            Ok(polled) => {
                self.queued = self.queued.saturating_sub(polled.armed);
                Ok(polled.armed)
            }
            Err(_) => Err(String::from("a poll failed, for which there was no cause")),
        }
    }

    /// A poll that does not wait.
    pub(super) fn look(&mut self, found: &mut Completions) -> Outcome<usize> {
        self.poll(Wait::Never, found)
    }

    /// Polls until so many completions are there, and looks whether there are more.
    pub(super) fn gather(&mut self, completions: usize) -> Outcome<Vec<Completion>> {
        let mut all = Vec::new();
        for _ in 0..TRIES {
            if all.len() >= completions {
                break;
            }
            let mut found = Completions::new();
            let soon = self.harness.now() + PAUSE;
            self.poll(Wait::Until(soon), &mut found)?;
            all.extend_from_slice(found.as_slice());
        }
        self.gather_dry(&mut all)?;
        require(all.len() >= completions, || {
            format!("{} of {completions} completions have come, after {TRIES} polls", all.len())
        })?;
        Ok(all)
    }

    /// Looks a few times whether there is anything more.
    pub(super) fn gather_dry(&mut self, all: &mut Vec<Completion>) -> Outcome {
        for _ in 0..DRY {
            let mut found = Completions::new();
            self.look(&mut found)?;
            all.extend_from_slice(found.as_slice());
        }
        Ok(())
    }

    /// A few looks find nothing.
    pub(super) fn nothing_comes(&mut self, when: &str) -> Outcome {
        let mut all = Vec::new();
        self.gather_dry(&mut all)?;
        require(all.is_empty(), || format!("{:?} was reported {when}", all[0]))
    }

    /// Waits with a deadline that something must forestall.
    pub(super) fn wait(&mut self, found: &mut Completions, what: &str) -> Outcome {
        let patience = self.harness.patience();
        let deadline = self.harness.now() + patience;
        self.poll(Wait::Until(deadline), found)?;
        let early = self.harness.now() < deadline;
        require(early, || format!("{what} did not end a wait of {patience:?}"))
    }

    /// One poll that must not take long, which may wait for this long.
    pub(super) fn wait_for(&mut self, span: Duration) -> Outcome {
        let before = self.harness.now();
        self.poll(Wait::Until(before + span), &mut Completions::new())?;
        self.took_at_most(before, span)
    }

    /// Waits a few times with nothing to wait for but the deadline, which one of them reaches.
    pub(super) fn wait_undisturbed(&mut self, when: &str) -> Outcome {
        let mut longest = Duration::ZERO;
        for _ in 0..UNDISTURBED {
            let before = self.harness.now();
            let mut found = Completions::new();
            self.poll(Wait::Until(before + SPAN), &mut found)?;
            let took = self.harness.now() - before;
            if let Some(strange) = found.as_slice().first() {
                return Err(format!("{strange:?} was reported {when}"));
            }
            if took >= SPAN {
                return Ok(());
            }
            longest = longest.max(took);
        }
        Err(format!(
            "none of {UNDISTURBED} waits {when} lasted to its deadline, in {SPAN:?}: the longest \
             took {longest:?}"
        ))
    }

    /// One poll with a deadline at the beginning of time.
    pub(super) fn wait_for_the_past(&mut self) -> Outcome {
        let before = self.harness.now();
        self.poll(Wait::Until(Instant::ZERO), &mut Completions::new())?;
        self.took_at_most(before, Duration::ZERO)
    }

    fn took_at_most(&mut self, before: Instant, span: Duration) -> Outcome {
        let took = self.harness.now() - before;
        require(took < span + self.harness.patience(), || {
            format!("a wait of {span:?} took {took:?}")
        })
    }

    /// A look, which must not wait.
    pub(super) fn look_without_wait(&mut self, found: &mut Completions) -> Outcome {
        let (before, waits) = (self.harness.now(), self.harness.waits());
        self.look(found)?;
        let (took, waited) = (self.harness.now() - before, self.harness.waits() != waits);
        require(!waited, || String::from("a poll with `Wait::Never` waited"))?;
        require(took < self.harness.patience(), || {
            format!("a poll with `Wait::Never` took {took:?}")
        })
    }

    /// Drops the reactor; its notifier is left.
    pub(super) fn end(self) -> Waker {
        self.notifier()
    }

    /// Drops the reactor and goes on with another.
    pub(super) fn renew(self) -> Self {
        let Self { harness, reactor, aid, .. } = self;
        drop(reactor);
        let reactor = harness.reactor();
        Self { harness, reactor, queued: 0, aid }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::each_once;
    use crate::reactor::{Completion, Token};

    #[test]
    fn what_was_reported_instead_is_told() {
        let token = |index| Token::new(index, 1);
        let found = [token(0), token(7)].map(|token| Completion { token, result: 0 });
        assert_eq!(each_once(&[token(0), token(7)], &found), Ok(()));
        assert_eq!(
            each_once(&[token(0), token(1)], &found).unwrap_err(),
            "Token { index: 1, generation: 1 } was reported 0 times, reported instead: \
             Token { index: 7, generation: 1 }"
        );
        let said = each_once(&[token(0), token(1)], &found[..1]).unwrap_err();
        assert!(said.ends_with("was reported 0 times"), "{said}");
    }
}
