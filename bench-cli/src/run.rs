//! A run: trial, floor, trial, floor…

use std::fmt;
use std::io::Write;
use std::num::NonZeroU32;

use rustix::io::Errno;

use crate::affinity::Pinned;
use crate::measured::{Measured, Pair, Unlike};
use crate::progress::Progress;
use crate::trial::{self, Failure};
use crate::{Floor, Plan, Setup, SubjectError, Subjects};

/// Runs all trials of `plan`, each of them followed by its floor: what a machine can do changes
/// from one moment to the next, so only neighbours are compared.
///
/// # Errors
///
/// The first thing that went wrong. Nothing that was measured until then is reported.
pub fn run(
    plan: &Plan,
    subjects: &impl Subjects,
    floor: &impl Floor,
    progress: &mut Progress<impl Write>,
) -> Result<Measured, RunError> {
    let _pinned = plan
        .pin
        .map(|pin| Pinned::to(pin.remote).map_err(|errno| RunError::Pin(pin.remote, errno)))
        .transpose()?;
    let fail = |number, problem| RunError::At { number, trials: plan.trials, problem };
    let mut measure = |number| {
        progress.trial(number);
        pair(plan, subjects, floor).map_err(|problem| fail(number, problem))
    };

    let first = measure(1)?;
    let mut measured = Measured::new(first.trial.description.clone());
    measured.add(&first).map_err(|unlike| fail(1, Problem::Unlike(unlike)))?;
    for number in 2..=plan.trials.get() {
        let pair = measure(number)?;
        measured.add(&pair).map_err(|unlike| fail(number, Problem::Unlike(unlike)))?;
    }
    Ok(measured)
}

fn pair(plan: &Plan, subjects: &impl Subjects, floor: &impl Floor) -> Result<Pair, Problem> {
    let trial = trial::run(subjects, plan).map_err(Problem::Trial)?;
    // The floor dispatches nothing, so the length of its backlog has no meaning.
    let alone = Plan { tasks: NonZeroU32::MIN, ..*plan };
    let floor_sample = trial::run(floor, &alone).map_err(Problem::Floor)?;
    let setup = Setup { worker_cpu: plan.pin.map(|pin| pin.worker), timeout: plan.timeout };
    let prices = floor.prices(&setup, plan.backlog).map_err(Problem::Prices)?;
    Ok(Pair { trial, floor: floor_sample, prices })
}

/// Why there is nothing to report.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The measuring thread could not be bound to this CPU.
    Pin(usize, Errno),
    /// Something went wrong in one of the trials.
    At {
        /// Which one, from 1.
        number: u32,
        /// Of how many.
        trials: NonZeroU32,
        /// What it was.
        problem: Problem,
    },
}

/// What went wrong in a trial or in what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// The trial failed.
    Trial(Failure),
    /// The same trial with no scheduler in between failed.
    Floor(Failure),
    /// What single steps cost could not be measured.
    Prices(SubjectError),
    /// It measured something else than the trials before it.
    Unlike(Box<Unlike>),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(cpu, errno) => {
                write!(f, "cannot bind the measuring thread to CPU {cpu}: {errno}")
            }
            Self::At { number, trials, problem } => {
                let what = match problem {
                    Problem::Trial(_) | Problem::Unlike(_) => "trial",
                    Problem::Floor(_) | Problem::Prices(_) => "floor of trial",
                };
                write!(f, "{what} {number} of {trials} failed: {problem}")
            }
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trial(failure) | Self::Floor(failure) => failure.fmt(f),
            Self::Prices(reason) => write!(f, "prices of single steps: {reason}"),
            Self::Unlike(unlike) => unlike.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::Allowed;
    use crate::fake::{Answering, Call, Fake, impatient, plan};
    use crate::{Armed, Pin};

    fn quiet() -> Progress<std::io::Stderr> {
        Progress::on_stderr(NonZeroU32::MIN)
    }

    fn failure(subjects: &Fake, floor: &Fake) -> String {
        run(&impatient(plan(1)), subjects, floor, &mut quiet()).unwrap_err().to_string()
    }

    #[test]
    fn every_trial_is_followed_by_its_floor() {
        let measured = run(&plan(2), &Fake::default(), &Fake::default(), &mut quiet()).unwrap();
        assert_eq!(measured.pairs, 2);
        for latencies in
            [&measured.io, &measured.remote, &measured.floor_io, &measured.floor_remote]
        {
            assert_eq!(latencies.count(), 2);
        }
        assert_eq!((measured.io_ratios.len(), measured.dry_poll_ns.len()), (2, 2));
        assert!(measured.yields > 0);
    }

    #[test]
    fn the_floor_has_a_backlog_of_one_whatever_the_trial_has() {
        let only_one = Fake { starts_at_most: 1, ..Fake::default() };
        let measured = run(&plan(5), &Fake::default(), &only_one, &mut quiet());
        assert_eq!(measured.unwrap().pairs, 2);
    }

    #[test]
    fn a_failure_names_the_trial() {
        let never = Fake { io: Answering::Never, ..Fake::default() };
        assert!(
            failure(&never, &Fake::default())
                .starts_with("trial 1 of 2 failed: completion: not done")
        );
        let unarmed = Fake { armed: Armed::NotYet("park of the worker"), ..Fake::default() };
        assert_eq!(
            failure(&Fake::default(), &unarmed),
            "floor of trial 1 of 2 failed: arming: not done within 500 ms (--timeout-ms); \
             not seen: park of the worker"
        );
        let absent = Fake { refuses_to: Some(Call::Start), ..Fake::default() };
        assert_eq!(
            failure(&absent, &Fake::default()),
            "trial 1 of 2 failed: set-up: no Start today"
        );
    }

    #[test]
    fn a_floor_of_something_else_is_refused() {
        let other = Fake { detail: "of another kind", ..Fake::default() };
        assert_eq!(
            failure(&Fake::default(), &other),
            "trial 1 of 2 failed: samples of fake (of a few lines) met samples of \
             fake (of another kind); they are not combined"
        );
    }

    #[test]
    fn the_measuring_thread_is_pinned_and_set_free_again() {
        let before = Allowed::now().unwrap();
        let only = before.first();
        let pin = Some(Pin { worker: only, remote: only });
        let measured =
            run(&Plan { pin, ..plan(1) }, &Fake::default(), &Fake::default(), &mut quiet());
        assert_eq!(measured.unwrap().pairs, 2);
        assert_eq!(Allowed::now().unwrap(), before);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let pin = Some(Pin { worker: 0, remote: 1_000_000 });
        let refused =
            run(&Plan { pin, ..plan(1) }, &Fake::default(), &Fake::default(), &mut quiet());
        let line = refused.unwrap_err().to_string();
        assert!(line.starts_with("cannot bind the measuring thread to CPU 1000000: "), "{line}");
    }
}
