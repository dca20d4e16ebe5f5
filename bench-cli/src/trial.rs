//! One trial: a fresh scheduler is armed, kept busy, triggered and shut down again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::backlog::Spell;
use crate::probe::Answer;
use crate::wait;
use crate::{Armed, Backlog, Counters, Description, Plan, Probe, Setup, Subject, Subjects, clock};

pub use crate::failure::{Awaited, Cause, Failure, Phase, Seen};

/// What one trial measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What was measured.
    pub description: Description,
    /// From just before the eventfd was written to the first instruction of the I/O task.
    pub io_ns: u64,
    /// From just before the submission to the first instruction of the remote task.
    pub remote_ns: u64,
    /// What the write of the eventfd took; the I/O latency includes it.
    pub trigger_ns: u64,
    /// What the worker did for the backlog.
    pub spell: Spell,
    /// How long the whole backlog was kept...
    pub backlog_ns: u64,
    /// ... and what the worker counted in that time.
    pub counters: Counters,
}

/// Runs one trial. On every path, success or failure, a scheduler that was started has been told
/// to stop, and was waited for, when this returns.
///
/// # Errors
///
/// The phase that failed, why, and what was and was not seen until then.
pub fn run<S: Subjects>(subjects: &S, plan: &Plan) -> Result<Sample, Failure> {
    let scene = Scene::new(plan);
    let begun = clock::now_ns();
    let fail = |cause| scene.failure(Phase::SetUp, cause);
    let event = event().map_err(|errno| fail(Cause::Event(errno)))?;
    let setup = Setup { worker_cpu: plan.pin.map(|pin| pin.worker), timeout: plan.timeout };
    let subject = subjects.start(&setup).map_err(|reason| fail(Cause::Subject(reason)))?;

    let description = subject.describe();
    let mut trial = Trial { subject, event, scene };
    let measured = trial.measure(begun);
    let Trial { subject, scene, .. } = trial;
    let stopped = scene.stop(subject);

    let measured = match (measured, stopped) {
        (Ok(measured), Ok(())) => measured,
        (Ok(_), Err(cause)) => return Err(scene.failure(Phase::Shutdown, cause)),
        (Err(failure), stopped) => return Err(Failure { aftermath: stopped.err(), ..failure }),
    };
    // Only now that nothing runs any more is it certain that nothing has run twice.
    for (awaited, probe) in [(Awaited::Io, &scene.io), (Awaited::Remote, &scene.remote)] {
        if probe.answer() == Answer::Repeated {
            return Err(scene.failure(Phase::Completion, Cause::Repeated(awaited)));
        }
    }
    let Measured { triggered, io_at, remote_at, spell, backlog_ns, counters } = measured;
    Ok(Sample {
        description,
        io_ns: io_at - triggered.before_write,
        remote_ns: remote_at - triggered.before_submit,
        trigger_ns: triggered.after_write - triggered.before_write,
        spell,
        backlog_ns,
        counters,
    })
}

/// What is watched during a trial; the tasks share it.
struct Scene<'a> {
    plan: &'a Plan,
    io: Probe,
    remote: Probe,
    backlog: Arc<Backlog>,
    armed: Armed,
}

/// A trial whose scheduler runs.
struct Trial<'a, S> {
    subject: S,
    event: Arc<OwnedFd>,
    scene: Scene<'a>,
}

/// When what was done to the worker.
struct Triggered {
    before_write: u64,
    after_write: u64,
    before_submit: u64,
}

/// What is known before the scheduler is shut down.
struct Measured {
    triggered: Triggered,
    io_at: u64,
    remote_at: u64,
    spell: Spell,
    backlog_ns: u64,
    counters: Counters,
}

impl<'a> Scene<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            io: Probe::new(),
            remote: Probe::new(),
            backlog: Backlog::new(plan.tasks),
            armed: Armed::NotYet("operation armed and worker parked"),
        }
    }

    fn failure(&self, phase: Phase, cause: Cause) -> Failure {
        let seen = Seen {
            armed: self.armed,
            tasks: self.backlog.tasks(),
            started: self.backlog.started(),
            finished: self.backlog.finished(),
            io: self.io.answer(),
            remote: self.remote.answer(),
        };
        Failure { phase, cause, seen: Box::new(seen), aftermath: None }
    }

    fn timed_out(&self, phase: Phase) -> Failure {
        self.failure(phase, Cause::TimedOut(self.plan.timeout))
    }

    /// Fails if a phase that the subject itself was to bound took too long all the same.
    fn in_time(&self, since: u64) -> Result<(), Cause> {
        if clock::now_ns() - since > wait::nanoseconds(self.plan.timeout) {
            return Err(Cause::TimedOut(self.plan.timeout));
        }
        Ok(())
    }

    /// Shuts the scheduler down, after a failure too.
    fn stop<S: Subject>(&self, subject: S) -> Result<(), Cause> {
        // A backlog that goes on could keep the worker from stopping.
        self.backlog.stop();
        let begun = clock::now_ns();
        subject.stop(self.plan.timeout).map_err(Cause::Stop)?;
        self.in_time(begun)
    }
}

impl<S: Subject> Trial<'_, S> {
    fn measure(&mut self, begun: u64) -> Result<Measured, Failure> {
        self.scene.in_time(begun).map_err(|cause| self.scene.failure(Phase::SetUp, cause))?;
        self.arm()?;
        self.start_backlog()?;

        // The trigger comes in the middle: by then the worker's caches and predictors are those
        // of a busy worker, and as much backlog is left for a task to be stuck behind.
        let half = wait::nanoseconds(self.scene.plan.backlog) / 2;
        let counters = self.subject.counters();
        let settled = clock::now_ns();
        wait::sleep_until(settled + half);
        let triggered = self.trigger()?;
        // Not counted from the beginning: a trigger that came late leaves no less behind it.
        wait::sleep_until(triggered.before_submit + half);
        let backlog_ns = clock::now_ns() - settled;
        let counters = self.subject.counters().since(counters);
        self.scene.backlog.stop();

        let (io_at, remote_at, spell) = self.complete(&triggered)?;
        Ok(Measured { triggered, io_at, remote_at, spell, backlog_ns, counters })
    }

    fn arm(&mut self) -> Result<(), Failure> {
        let Self { subject, event, scene } = self;
        subject
            .arm(Arc::clone(event), scene.io.clone())
            .map_err(|reason| scene.failure(Phase::Arming, Cause::Subject(reason)))?;
        // A task that could not wait, or did not wait, is not going to be armed any more.
        wait::until(scene.plan.timeout, || {
            scene.armed = subject.armed();
            scene.armed == Armed::Yes || scene.io.answer() != Answer::None
        });
        silent(&scene.io).map_err(|cause| scene.failure(Phase::Arming, cause))?;
        match scene.armed {
            Armed::Yes => Ok(()),
            Armed::NotYet(_) => Err(scene.timed_out(Phase::Arming)),
        }
    }

    fn start_backlog(&mut self) -> Result<(), Failure> {
        let Self { subject, scene, .. } = self;
        let backlog = &scene.backlog;
        subject
            .start_backlog(backlog)
            .map_err(|reason| scene.failure(Phase::BacklogStart, Cause::Subject(reason)))?;
        wait::until(scene.plan.timeout, || backlog.started() == backlog.tasks());
        if backlog.started() == backlog.tasks() {
            Ok(())
        } else {
            Err(scene.timed_out(Phase::BacklogStart))
        }
    }

    fn trigger(&mut self) -> Result<Triggered, Failure> {
        let Self { subject, event, scene } = self;
        silent(&scene.io)
            .and_then(|()| fire(event, subject, scene.remote.clone()))
            .map_err(|cause| scene.failure(Phase::Completion, cause))
    }

    fn complete(&self, triggered: &Triggered) -> Result<(u64, u64, Spell), Failure> {
        let Scene { plan, io, remote, backlog, .. } = &self.scene;
        wait::until(plan.timeout, || {
            io.answer() != Answer::None
                && remote.answer() != Answer::None
                && backlog.finished() == backlog.tasks()
        });
        let fail = |cause| self.scene.failure(Phase::Completion, cause);
        let io_at = answer(Awaited::Io, io, triggered.before_write).map_err(fail)?;
        let remote_at = answer(Awaited::Remote, remote, triggered.before_submit).map_err(fail)?;
        match (io_at, remote_at, backlog.spell()) {
            (Some(io_at), Some(remote_at), Some(spell)) => Ok((io_at, remote_at, spell)),
            _ => Err(self.scene.timed_out(Phase::Completion)),
        }
    }
}

fn event() -> Result<Arc<OwnedFd>, Errno> {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map(Arc::new)
}

/// The trigger: the same code for whatever is measured, a floor included.
fn fire(event: &OwnedFd, subject: &mut impl Subject, remote: Probe) -> Result<Triggered, Cause> {
    let before_write = clock::now_ns();
    let written = rustix::io::write(event, &1_u64.to_ne_bytes());
    let after_write = clock::now_ns();
    // An eventfd takes its eight bytes or none.
    written.map_err(Cause::Trigger)?;
    let before_submit = clock::now_ns();
    subject.submit(remote).map_err(Cause::Subject)?;
    Ok(Triggered { before_write, after_write, before_submit })
}

/// The I/O task must not have answered before the event was triggered.
fn silent(io: &Probe) -> Result<(), Cause> {
    match io.answer() {
        Answer::None => Ok(()),
        Answer::Refused(reason) => Err(Cause::Refused(Awaited::Io, reason)),
        Answer::At(_) | Answer::Repeated => Err(Cause::Early(Awaited::Io)),
    }
}

/// When the task answered, which cannot have been before there was any reason to.
fn answer(awaited: Awaited, probe: &Probe, reason_at: u64) -> Result<Option<u64>, Cause> {
    match probe.answer() {
        Answer::None => Ok(None),
        Answer::At(at) if at < reason_at => Err(Cause::Early(awaited)),
        Answer::At(at) => Ok(Some(at)),
        Answer::Repeated => Err(Cause::Repeated(awaited)),
        Answer::Refused(reason) => Err(Cause::Refused(awaited, reason)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fake::{AT_ONCE, Answering, Call, Fake, Stopping, impatient, plan};

    fn failure(fake: &Fake, tasks: u32) -> String {
        run(fake, &impatient(plan(tasks))).unwrap_err().to_string()
    }

    #[test]
    fn a_trial_measures_every_part() {
        let sample = run(&Fake::default(), &plan(3)).unwrap();
        assert_eq!(sample.description.backend, "fake");
        assert!(sample.io_ns > 0 && sample.remote_ns > 0 && sample.trigger_ns > 0);
        assert!(sample.spell.yields > 0);
        assert!(sample.backlog_ns >= 4_000_000);
        assert!(sample.spell.lasting_ns >= sample.backlog_ns, "it begins before and ends after");
    }

    #[test]
    fn a_delay_is_measured_and_none_is_made_up() {
        let (io, remote) = (Duration::from_micros(700), Duration::from_micros(300));
        let fake =
            Fake { io: Answering::After(io), remote: Answering::After(remote), ..Fake::default() };
        let begun = clock::now_ns();
        let sample = run(&fake, &plan(1)).unwrap();
        let at_most = clock::now_ns() - begun;
        assert!((wait::nanoseconds(io)..at_most).contains(&sample.io_ns));
        assert!((wait::nanoseconds(remote)..at_most).contains(&sample.remote_ns));
    }

    #[test]
    fn starvation_lasts_as_long_as_the_backlog() {
        let fake = Fake { io: Answering::AfterTheBacklog, ..Fake::default() };
        let sample = run(&fake, &plan(1)).unwrap();
        assert!(sample.io_ns >= 2_000_000, "{} ns", sample.io_ns);
    }

    #[test]
    fn a_scheduler_that_does_not_start_says_why() {
        let fake = Fake { refuses_to: Some(Call::Start), ..Fake::default() };
        assert_eq!(failure(&fake, 1), "set-up: no Start today");
    }

    #[test]
    fn a_task_that_is_not_started_is_told_from_one_that_is_not_armed() {
        let fake = Fake {
            refuses_to: Some(Call::Arm),
            armed: Armed::NotYet("park of the worker"),
            ..Fake::default()
        };
        assert_eq!(
            failure(&fake, 1),
            "arming: no Arm today; not seen: operation armed and worker parked"
        );
        let fake = Fake { refuses_to: None, ..fake };
        assert_eq!(
            failure(&fake, 1),
            "arming: not done within 500 ms (--timeout-ms); not seen: park of the worker"
        );
    }

    #[test]
    fn a_task_that_cannot_wait_says_why() {
        let fake = Fake { io: Answering::Refusing, ..Fake::default() };
        assert_eq!(
            failure(&fake, 1),
            "arming: the I/O task could not wait: cannot wait for descriptor; \
             seen: operation armed and worker parked"
        );
    }

    #[test]
    fn an_answer_without_a_question_is_named() {
        let fake = Fake { io: Answering::Early, ..Fake::default() };
        assert_eq!(
            failure(&fake, 1),
            "arming: the I/O task answered before it was triggered; \
             seen: operation armed and worker parked"
        );
    }

    #[test]
    fn an_answer_just_before_the_question_is_named() {
        let fake = Fake { io: Answering::WithTheBacklog, ..Fake::default() };
        let failure = failure(&fake, 1);
        let line = "completion: the I/O task answered before it was triggered; seen: ";
        assert!(failure.starts_with(line), "{failure}");
    }

    #[test]
    fn a_backlog_that_starts_in_part_is_counted() {
        let fake = Fake { starts_at_most: 2, ..Fake::default() };
        assert_eq!(
            failure(&fake, 5),
            "backlog start: not done within 500 ms (--timeout-ms); \
             seen: operation armed and worker parked; not seen: all 5 backlog tasks started (only 2)"
        );
        let fake = Fake { refuses_to: Some(Call::StartBacklog), ..Fake::default() };
        assert_eq!(
            failure(&fake, 1),
            "backlog start: no StartBacklog today; seen: operation armed and worker parked; \
             not seen: the backlog task started"
        );
    }

    #[test]
    fn the_task_that_never_answers_is_the_one_not_seen() {
        let fake = Fake { io: Answering::Never, ..Fake::default() };
        assert_eq!(
            failure(&fake, 2),
            "completion: not done within 500 ms (--timeout-ms); \
             seen: operation armed and worker parked, all 2 backlog tasks started, \
             answer of the remote task, all 2 backlog tasks ended; \
             not seen: answer of the I/O task"
        );
        let fake = Fake { remote: Answering::Never, ..Fake::default() };
        assert!(failure(&fake, 2).ends_with("; not seen: answer of the remote task"));
    }

    #[test]
    fn a_submission_that_is_refused_says_why() {
        let fake = Fake { refuses_to: Some(Call::Submit), ..Fake::default() };
        let failure = failure(&fake, 1);
        assert!(failure.starts_with("completion: no Submit today; seen: "), "{failure}");
        assert!(!failure.contains("then shutdown"), "the backlog was stopped: {failure}");
    }

    #[test]
    fn answering_twice_is_named() {
        let fake = Fake { io: Answering::Twice, ..Fake::default() };
        assert!(failure(&fake, 1).starts_with("completion: the I/O task answered twice; seen: "));
        for remote in [Answering::Twice, Answering::AgainInTheEnd] {
            let failure = failure(&Fake { remote, ..Fake::default() }, 1);
            let line = "completion: the remote task answered twice; seen: ";
            assert!(failure.starts_with(line), "{failure}");
        }
    }

    #[test]
    fn a_worker_that_does_not_stop_is_left_behind_in_words() {
        let fake = Fake { stopping: Stopping::Never, ..Fake::default() };
        assert!(failure(&fake, 1).starts_with(
            "shutdown: the worker did not stop in time, left behind: its thread; seen: "
        ));
        let fake = Fake { stopping: Stopping::Badly, ..Fake::default() };
        assert!(
            failure(&fake, 1)
                .starts_with("shutdown: the worker stopped badly: it panicked; seen: ")
        );
        let fake = Fake { stopping: Stopping::Late, ..Fake::default() };
        assert!(
            failure(&fake, 1)
                .starts_with("shutdown: not done within 500 ms (--timeout-ms); seen: ")
        );
    }

    #[test]
    fn a_failed_trial_that_does_not_stop_either_says_both() {
        let fake = Fake { io: Answering::Never, stopping: Stopping::Never, ..Fake::default() };
        let failure = failure(&fake, 1);
        assert!(failure.starts_with("completion: not done within 500 ms"));
        assert!(failure.ends_with(
            "; not seen: answer of the I/O task; \
             then shutdown: the worker did not stop in time, left behind: its thread"
        ));
    }

    #[test]
    fn nothing_is_held_when_a_trial_is_over() {
        for io in [AT_ONCE, Answering::Never] {
            let scene_is_gone = Arc::downgrade(&{
                let plan = plan(1);
                let scene = Scene::new(&plan);
                let mut subject = Fake { io, ..Fake::default() }
                    .start(&Setup { worker_cpu: None, timeout: plan.timeout })
                    .unwrap();
                subject.arm(event().unwrap(), scene.io.clone()).unwrap();
                subject.start_backlog(&scene.backlog).unwrap();
                scene.stop(subject).unwrap();
                Arc::clone(&scene.backlog)
            });
            assert!(scene_is_gone.upgrade().is_none());
        }
    }
}
