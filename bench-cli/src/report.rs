//! What a run found out, ready to be printed.

pub mod json;
pub mod text;

use std::time::Duration;

use crate::environment::Environment;
use crate::measured::{Class, Measured};
use crate::stats::{self, Quartiles, Summary};
use crate::{Description, Plan, Readiness};

/// The data of a finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was measured.
    pub description: Description,
    /// If the backend was chosen because another was not to be had: which and why not.
    pub instead_of: Option<String>,
    /// What was done.
    pub plan: Plan,
    /// Where.
    pub environment: Environment,
    /// Yields of all backlog tasks in all trials.
    pub yields: u64,
    /// How many of them a worker made in a second.
    pub yields_per_s: f64,
    /// What a dispatch cost, with all looking for I/O and for remote work.
    pub ns_per_dispatch: f64,
    /// What it costs in a bare loop; the median of all floors.
    pub floor_ns_per_dispatch: f64,
    /// Polls that found nothing while the backlogs were kept.
    pub dry_polls: u64,
    /// What such a poll costs; the median of all floors.
    pub dry_poll_ns: f64,
    /// The share of that time that the dry polls took, at the floor's price.
    pub poll_share: f64,
    /// For a scheduler that learns of completions only by polling: how far apart its polls must
    /// be to stay within its budget. An I/O completion may have to wait that long.
    pub poll_interval_ns: Option<f64>,
    /// What the write of the eventfd took.
    pub trigger: Summary,
    /// I/O completions.
    pub io: Service,
    /// Tasks submitted from another thread.
    pub remote: Service,
    /// Timers, if there are any.
    pub timer: Option<Service>,
    /// Operations that are ready at once, if there are any.
    pub submit: Option<Service>,
}

/// The service latency of one kind, beside its floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// As measured.
    pub latency: Summary,
    /// With no scheduler in between.
    pub floor: Summary,
    /// The one over the other, pair by pair.
    pub ratio: Quartiles,
}

impl Report {
    /// The report of what was measured. `instead_of` says, if so, which backend would have been
    /// better and why it was not to be had.
    #[must_use]
    pub fn new(
        measured: &Measured,
        plan: &Plan,
        environment: Environment,
        instead_of: Option<String>,
    ) -> Self {
        let yields = stats::to_f64(measured.yields);
        let yielding_ns = stats::to_f64(measured.yielding_ns);
        let dry_poll_ns = Quartiles::of(&measured.dry_poll_ns).median;
        let polling_ns = stats::to_f64(measured.dry_polls) * dry_poll_ns;
        Self {
            description: measured.description.clone(),
            instead_of,
            plan: *plan,
            environment,
            yields: measured.yields,
            yields_per_s: over(yields * NS_PER_S, yielding_ns),
            ns_per_dispatch: over(yielding_ns, yields),
            floor_ns_per_dispatch: Quartiles::of(&measured.floor_dispatch_ns).median,
            dry_polls: measured.dry_polls,
            dry_poll_ns,
            poll_share: over(polling_ns, stats::to_f64(measured.backlog_ns)),
            poll_interval_ns: match measured.description.readiness {
                Readiness::Known => None,
                Readiness::Unknown { poll_share } => Some(over(dry_poll_ns, poll_share)),
            },
            trigger: measured.trigger.summary(),
            io: Service {
                latency: measured.io.summary(),
                floor: measured.floor_io.summary(),
                ratio: Quartiles::of(&measured.io_ratios),
            },
            remote: Service {
                latency: measured.remote.summary(),
                floor: measured.floor_remote.summary(),
                ratio: Quartiles::of(&measured.remote_ratios),
            },
            timer: Service::of(&measured.timer),
            submit: Service::of(&measured.submit),
        }
    }
}

impl Service {
    /// That of a class, unless it has no samples.
    fn of(class: &Class) -> Option<Self> {
        (class.latency.count() > 0).then(|| Self {
            latency: class.latency.summary(),
            floor: class.floor.summary(),
            ratio: Quartiles::of(&class.ratios),
        })
    }
}

const NS_PER_S: f64 = 1e9;

/// A quotient; of nothing, nothing.
fn over(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Milliseconds; the command line has none but whole ones.
fn milliseconds(duration: Duration) -> u128 {
    duration.as_millis()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::backlog::Spell;
    use crate::measured::Pair;
    use crate::trial::Sample;
    use crate::{Counters, Pin, Prices};

    pub(crate) fn plan() -> Plan {
        Plan {
            trials: NonZeroU32::new(40).unwrap(),
            backlog: Duration::from_millis(20),
            tasks: NonZeroU32::MIN,
            timeout: Duration::from_secs(2),
            pin: Some(Pin { worker: 0, remote: 1 }),
        }
    }

    pub(crate) fn environment() -> Environment {
        Environment { kernel: "Linux 6.18.1".into(), cpu: "AMD EPYC".into(), version: "0.1.0" }
    }

    pub(crate) fn measured(description: &Description) -> Measured {
        let sample = |io_ns, remote_ns| Sample {
            description: description.clone(),
            io_ns,
            remote_ns,
            trigger_ns: 1210,
            timer_ns: Some(io_ns / 2),
            submit_ns: Some(remote_ns * 2),
            spell: Spell { yields: 4_000_000, lasting_ns: 20_000_000 },
            backlog_ns: 20_000_000,
            counters: Counters { dry_polls: 10, ..Counters::default() },
        };
        let mut measured = Measured::new(description.clone());
        for nth in 1..=40 {
            measured
                .add(&Pair {
                    trial: sample(2000 + 10 * nth, 300 + nth),
                    floor: sample(2000, 250),
                    prices: Prices { dispatch_ns: 2.5, dry_poll_ns: 200.0 },
                })
                .unwrap();
        }
        measured
    }

    pub(crate) fn known() -> Description {
        Description {
            backend: "uring".into(),
            detail: "SINGLE_ISSUER | DEFER_TASKRUN | TASKRUN_FLAG".into(),
            readiness: Readiness::Known,
        }
    }

    pub(crate) fn unknown() -> Description {
        Description {
            backend: "epoll".into(),
            detail: "epoll_pwait2".into(),
            readiness: Readiness::Unknown { poll_share: 0.05 },
        }
    }

    pub(crate) fn report(description: &Description, instead_of: Option<&str>) -> Report {
        let instead_of = instead_of.map(str::to_owned);
        Report::new(&measured(description), &plan(), environment(), instead_of)
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "all of these numbers are exact")]
    fn prices_follow_from_the_sums() {
        let report = report(&known(), None);
        assert_eq!(report.yields, 160_000_000);
        assert_eq!(report.ns_per_dispatch, 5.0);
        assert_eq!(report.yields_per_s, 2e8);
        assert_eq!(report.floor_ns_per_dispatch, 2.5);
        // 400 dry polls of 200 ns in 40 backlogs of 20 ms.
        assert_eq!(report.poll_share, 0.0001);
        assert_eq!(report.poll_interval_ns, None);
    }

    #[test]
    fn a_budget_and_a_price_make_an_interval() {
        assert_eq!(report(&unknown(), None).poll_interval_ns, Some(4000.0));
    }

    #[test]
    fn no_yield_at_all_is_not_divided_by() {
        let empty = Report::new(&Measured::new(known()), &plan(), environment(), None);
        assert!(
            [empty.yields_per_s, empty.ns_per_dispatch, empty.poll_share]
                .iter()
                .all(|number| number.is_finite())
        );
    }
}
