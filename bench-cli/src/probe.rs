//! What a resumed task stamps, and the measuring thread reads.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clock;

/// One expected answer. The task that is to be resumed holds a clone and [stamps](Probe::stamp)
/// it with its first instruction; the measuring thread holds another and reads it. It is owned by
/// all of them together, so it lives as long as any of them can touch it.
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// When the first stamp was made; 0 until then.
    at_ns: AtomicU64,
    stamps: AtomicU32,
    refusal: OnceLock<String>,
}

/// What has come back so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    None,
    /// One stamp, made at this time of [`clock::now_ns`].
    At(u64),
    /// More than one stamp.
    Repeated,
    /// The task could not wait for what it was to wait for; its own words.
    Refused(String),
}

impl Probe {
    /// A probe that nobody has stamped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that the task runs now: its first instruction, before anything else.
    pub fn stamp(&self) {
        let now = clock::now_ns();
        // Ordering: Release, pairs with the Acquire in `answer`: whoever sees the time sees all
        // that the task did before. The loser changes nothing, so it needs no order.
        let _ = self.0.at_ns.compare_exchange(0, now, Ordering::Release, Ordering::Relaxed);
        // Ordering: Release, pairs with the Acquire in `answer`.
        self.0.stamps.fetch_add(1, Ordering::Release);
    }

    /// Records that the awaited operation failed instead of completing, so that the failed trial
    /// can say why.
    pub fn refuse(&self, reason: impl Display) {
        // A second refusal adds nothing to the first.
        let _ = self.0.refusal.set(reason.to_string());
    }

    /// What has come back so far.
    #[must_use]
    pub fn answer(&self) -> Answer {
        if let Some(reason) = self.0.refusal.get() {
            return Answer::Refused(reason.clone());
        }
        // Ordering: both Acquire, pair with the Releases in `stamp`.
        if self.0.stamps.load(Ordering::Acquire) > 1 {
            return Answer::Repeated;
        }
        match self.0.at_ns.load(Ordering::Acquire) {
            0 => Answer::None,
            at => Answer::At(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_silent_until_stamped() {
        assert_eq!(Probe::new().answer(), Answer::None);
    }

    #[test]
    fn carries_the_time_of_its_stamp_across_threads() {
        let probe = Probe::new();
        let before = clock::now_ns();
        let stamped = probe.clone();
        std::thread::spawn(move || stamped.stamp()).join().unwrap();
        let Answer::At(at) = probe.answer() else { panic!("not stamped") };
        assert!((before..=clock::now_ns()).contains(&at));
    }

    #[test]
    fn a_second_stamp_is_noticed() {
        let probe = Probe::new();
        probe.stamp();
        probe.stamp();
        assert_eq!(probe.answer(), Answer::Repeated);
    }

    #[test]
    fn a_refusal_keeps_its_reason() {
        let probe = Probe::new();
        probe.refuse("bad descriptor");
        assert_eq!(probe.answer(), Answer::Refused("bad descriptor".into()));
    }
}
