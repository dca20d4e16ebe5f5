//! The samples of a run, put together. Only like is put to like.

use std::fmt;

use crate::stats::{self, Latencies};
use crate::trial::Sample;
use crate::{Description, Prices};

/// A trial and the floor that followed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The trial.
    pub trial: Sample,
    /// The same trial with no scheduler in between.
    pub floor: Sample,
    /// What single steps cost on that thread.
    pub prices: Prices,
}

/// Everything a run has measured so far.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What all of it was measured of.
    pub description: Description,
    /// How many pairs there are.
    pub pairs: u32,
    /// Service latency of I/O completions.
    pub io: Latencies,
    /// Service latency of tasks submitted from another thread.
    pub remote: Latencies,
    /// The floor under `io`.
    pub floor_io: Latencies,
    /// The floor under `remote`.
    pub floor_remote: Latencies,
    /// `io` over its floor, pair by pair.
    pub io_ratios: Vec<f64>,
    /// `remote` over its floor, pair by pair.
    pub remote_ratios: Vec<f64>,
    /// Of timers, if the subject and its floor have them.
    pub timer: Class,
    /// Of operations that are ready at once, if the subject and its floor offer them.
    pub submit: Class,
    /// What the write of the eventfd took.
    pub trigger: Latencies,
    /// Yields of all backlog tasks...
    pub yields: u64,
    /// ... and the time they were made in, as the workers measured it.
    pub yielding_ns: u64,
    /// Dry polls while the backlog was kept...
    pub dry_polls: u64,
    /// ... and how long that was.
    pub backlog_ns: u64,
    /// What a dispatch costs at least, pair by pair.
    pub floor_dispatch_ns: Vec<f64>,
    /// What a dry poll costs, pair by pair.
    pub dry_poll_ns: Vec<f64>,
}

/// The samples of one class that not every subject has.
#[derive(Clone, Debug)]
pub struct Class {
    /// Of the subject.
    pub latency: Latencies,
    /// Of its floor.
    pub floor: Latencies,
    /// The one over the other, pair by pair.
    pub ratios: Vec<f64>,
}

impl Class {
    fn new() -> Self {
        Self { latency: Latencies::new(), floor: Latencies::new(), ratios: Vec::new() }
    }

    /// Adds one pair, if both have a sample.
    fn add(&mut self, trial_ns: Option<u64>, floor_ns: Option<u64>) {
        if let (Some(trial_ns), Some(floor_ns)) = (trial_ns, floor_ns) {
            self.latency.record(trial_ns);
            self.floor.record(floor_ns);
            self.ratios.push(stats::ratio(trial_ns, floor_ns));
        }
    }
}

/// Samples of unlike things were to be combined.
#[derive(Clone, Debug, PartialEq)]
pub struct Unlike {
    /// What was measured until then.
    pub first: Description,
    /// What came then.
    pub then: Description,
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "samples of {} met samples of {}; they are not combined", self.first, self.then)
    }
}

impl std::error::Error for Unlike {}

impl Measured {
    /// Nothing measured yet of this.
    #[must_use]
    pub fn new(description: Description) -> Self {
        Self {
            description,
            pairs: 0,
            io: Latencies::new(),
            remote: Latencies::new(),
            floor_io: Latencies::new(),
            floor_remote: Latencies::new(),
            io_ratios: Vec::new(),
            remote_ratios: Vec::new(),
            timer: Class::new(),
            submit: Class::new(),
            trigger: Latencies::new(),
            yields: 0,
            yielding_ns: 0,
            dry_polls: 0,
            backlog_ns: 0,
            floor_dispatch_ns: Vec::new(),
            dry_poll_ns: Vec::new(),
        }
    }

    /// Adds one pair.
    ///
    /// # Errors
    ///
    /// If the trial or its floor is of something else than all before; then nothing is added.
    pub fn add(&mut self, pair: &Pair) -> Result<(), Box<Unlike>> {
        let Pair { trial, floor, prices } = pair;
        self.accept(&trial.description)?;
        self.accept(&floor.description)?;

        self.pairs += 1;
        self.io.record(trial.io_ns);
        self.remote.record(trial.remote_ns);
        self.floor_io.record(floor.io_ns);
        self.floor_remote.record(floor.remote_ns);
        self.io_ratios.push(stats::ratio(trial.io_ns, floor.io_ns));
        self.remote_ratios.push(stats::ratio(trial.remote_ns, floor.remote_ns));
        self.timer.add(trial.timer_ns, floor.timer_ns);
        self.submit.add(trial.submit_ns, floor.submit_ns);
        self.trigger.record(trial.trigger_ns);
        self.yields += trial.spell.yields;
        self.yielding_ns += trial.spell.lasting_ns;
        self.dry_polls += trial.counters.dry_polls;
        self.backlog_ns += trial.backlog_ns;
        self.floor_dispatch_ns.push(prices.dispatch_ns);
        self.dry_poll_ns.push(prices.dry_poll_ns);
        Ok(())
    }

    fn accept(&self, description: &Description) -> Result<(), Box<Unlike>> {
        if *description == self.description {
            return Ok(());
        }
        Err(Box::new(Unlike { first: self.description.clone(), then: description.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::Spell;
    use crate::{Counters, Readiness};

    fn description(detail: &str) -> Description {
        Description { backend: "uring".into(), detail: detail.into(), readiness: Readiness::Known }
    }

    fn sample(detail: &str, io_ns: u64) -> Sample {
        Sample {
            description: description(detail),
            io_ns,
            remote_ns: io_ns / 2,
            trigger_ns: 10,
            timer_ns: Some(io_ns),
            submit_ns: None,
            spell: Spell { yields: 1000, lasting_ns: 5000 },
            backlog_ns: 6000,
            counters: Counters { dry_polls: 3, ..Counters::default() },
        }
    }

    fn pair(trial: &str, floor: &str) -> Pair {
        Pair {
            trial: sample(trial, 300),
            floor: sample(floor, 200),
            prices: Prices { dispatch_ns: 2.0, dry_poll_ns: 100.0 },
        }
    }

    #[test]
    fn like_pairs_add_up() {
        let mut measured = Measured::new(description("DEFER_TASKRUN"));
        measured.add(&pair("DEFER_TASKRUN", "DEFER_TASKRUN")).unwrap();
        measured.add(&pair("DEFER_TASKRUN", "DEFER_TASKRUN")).unwrap();
        assert_eq!((measured.pairs, measured.io.count(), measured.floor_io.count()), (2, 2, 2));
        assert_eq!((measured.yields, measured.yielding_ns), (2000, 10_000));
        assert_eq!((measured.dry_polls, measured.backlog_ns), (6, 12_000));
        assert_eq!(measured.io_ratios, [1.5, 1.5]);
        assert_eq!(measured.remote_ratios, [1.5, 1.5]);
        assert_eq!((measured.timer.latency.count(), measured.timer.ratios), (2, vec![1.5, 1.5]));
        assert_eq!(measured.submit.latency.count(), 0, "it has none");
    }

    #[test]
    fn unlike_ones_are_refused_and_both_are_named() {
        for (trial, floor) in [("none", "DEFER_TASKRUN"), ("DEFER_TASKRUN", "none")] {
            let mut measured = Measured::new(description("DEFER_TASKRUN"));
            let refused = measured.add(&pair(trial, floor)).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "samples of uring (DEFER_TASKRUN) met samples of uring (none); \
                 they are not combined"
            );
            assert_eq!((measured.pairs, measured.io.count()), (0, 0));
        }
    }
}
