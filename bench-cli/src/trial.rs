//! One trial: a fresh scheduler is armed, kept busy, triggered and shut down again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::backlog::Spell;
use crate::probe::Answer;
use crate::wait;
use crate::{
    Armed, Backlog, Counters, Description, Offered, Plan, Probe, Setup, Subject, Subjects, clock,
};

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
    /// From the deadline to the first instruction of the timer task, if the subject has timers.
    pub timer_ns: Option<u64>,
    /// From just before the task issued an operation that was ready to its first instruction after,
    /// if the subject offers that.
    pub submit_ns: Option<u64>,
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
    for (awaited, probe) in [
        (Awaited::Io, &scene.io),
        (Awaited::Remote, &scene.remote),
        (Awaited::Timer, &scene.timer),
        (Awaited::Submit, &scene.issued),
        (Awaited::Submit, &scene.resumed),
    ] {
        if probe.answer() == Answer::Repeated {
            return Err(scene.failure(Phase::Completion, Cause::Repeated(awaited)));
        }
    }
    let Measured { triggered, answers, spell, backlog_ns, counters } = measured;
    Ok(Sample {
        description,
        io_ns: answers.io_at - triggered.before_write,
        remote_ns: answers.remote_at - triggered.before_submit,
        trigger_ns: triggered.after_write - triggered.before_write,
        timer_ns: answers.timer_ns,
        submit_ns: answers.submit_ns,
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
    timer: Probe,
    issued: Probe,
    resumed: Probe,
    backlog: Arc<Backlog>,
    armed: Armed,
    timers: Offered,
    operations: Offered,
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
    answers: Answers,
    spell: Spell,
    backlog_ns: u64,
    counters: Counters,
}

/// When the tasks answered, or how late.
struct Answers {
    io_at: u64,
    remote_at: u64,
    timer_ns: Option<u64>,
    submit_ns: Option<u64>,
}

impl<'a> Scene<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            io: Probe::new(),
            remote: Probe::new(),
            timer: Probe::new(),
            issued: Probe::new(),
            resumed: Probe::new(),
            backlog: Backlog::new(plan.tasks),
            armed: Armed::NotYet("operation armed and worker parked"),
            timers: Offered::No,
            operations: Offered::No,
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
            timer: (self.timers == Offered::Yes).then(|| self.timer.answer()),
            submit: (self.operations == Offered::Yes).then(|| self.resumed.answer()),
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
        // The other two classes have their moments between, where they don't meet anything.
        let due = settled + half / 2;
        self.start_timer(due)?;
        wait::sleep_until(settled + half);
        let triggered = self.trigger()?;
        wait::sleep_until(triggered.before_submit + half / 2);
        self.start_operation()?;
        // Not counted from the beginning: a trigger that came late leaves no less behind it.
        wait::sleep_until(triggered.before_submit + half);
        let backlog_ns = clock::now_ns() - settled;
        let counters = self.subject.counters().since(counters);
        self.scene.backlog.stop();

        let (answers, spell) = self.complete(&triggered, due)?;
        Ok(Measured { triggered, answers, spell, backlog_ns, counters })
    }

    fn start_timer(&mut self, due_ns: u64) -> Result<(), Failure> {
        let Self { subject, scene, .. } = self;
        let started = subject.start_timer(due_ns, scene.timer.clone());
        scene.timers =
            started.map_err(|reason| scene.failure(Phase::Completion, Cause::Subject(reason)))?;
        Ok(())
    }

    fn start_operation(&mut self) -> Result<(), Failure> {
        let Self { subject, scene, .. } = self;
        let fail = |cause| scene.failure(Phase::Completion, cause);
        let event = event().map_err(|errno| fail(Cause::Event(errno)))?;
        rustix::io::write(&event, &1_u64.to_ne_bytes())
            .map_err(|errno| fail(Cause::Trigger(errno)))?;
        let started = subject.start_operation(event, scene.issued.clone(), scene.resumed.clone());
        scene.operations = started.map_err(|reason| fail(Cause::Subject(reason)))?;
        Ok(())
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

    fn complete(&self, triggered: &Triggered, due: u64) -> Result<(Answers, Spell), Failure> {
        let Scene { plan, io, remote, timer, issued, resumed, backlog, .. } = &self.scene;
        let timers = self.scene.timers == Offered::Yes;
        let operations = self.scene.operations == Offered::Yes;
        wait::until(plan.timeout, || {
            io.answer() != Answer::None
                && remote.answer() != Answer::None
                && (!timers || timer.answer() != Answer::None)
                && (!operations || resumed.answer() != Answer::None)
                && backlog.finished() == backlog.tasks()
        });
        let fail = |cause| self.scene.failure(Phase::Completion, cause);
        let late = || self.scene.timed_out(Phase::Completion);
        let answer = |awaited, probe, reason_at| answer(awaited, probe, reason_at).map_err(fail);
        let io_at = answer(Awaited::Io, io, triggered.before_write)?.ok_or_else(late)?;
        let remote_at =
            answer(Awaited::Remote, remote, triggered.before_submit)?.ok_or_else(late)?;
        let mut answers = Answers { io_at, remote_at, timer_ns: None, submit_ns: None };
        if timers {
            let at = answer(Awaited::Timer, timer, due)?.ok_or_else(late)?;
            answers.timer_ns = Some(at - due);
        }
        if operations {
            let issued_at = answer(Awaited::Submit, issued, 0)?;
            // An answer to what was not issued is early too.
            let reason_at = issued_at.unwrap_or(u64::MAX);
            let at = answer(Awaited::Submit, resumed, reason_at)?.ok_or_else(late)?;
            answers.submit_ns = Some(at - reason_at);
        }
        let spell = backlog.spell().ok_or_else(late)?;
        Ok((answers, spell))
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
    fn timers_and_operations_are_measured_too() {
        let (timer, submit) = (Duration::from_micros(400), Duration::from_micros(900));
        let fake = Fake {
            timer: Answering::After(timer),
            submit: Answering::After(submit),
            ..Fake::default()
        };
        let begun = clock::now_ns();
        let sample = run(&fake, &plan(1)).unwrap();
        let at_most = clock::now_ns() - begun;
        assert!((wait::nanoseconds(timer)..at_most).contains(&sample.timer_ns.unwrap()));
        assert!((wait::nanoseconds(submit)..at_most).contains(&sample.submit_ns.unwrap()));
    }

    #[test]
    fn a_subject_without_timers_and_operations_is_measured_without() {
        let sample = run(&Fake { offers: Offered::No, ..Fake::default() }, &plan(1)).unwrap();
        assert_eq!((sample.timer_ns, sample.submit_ns), (None, None));
    }

    #[test]
    fn a_timer_or_an_operation_that_goes_wrong_is_named() {
        for (timer, line) in [
            (Answering::Early, "completion: the timer task answered before it was triggered; "),
            (Answering::Twice, "completion: the timer task answered twice; "),
        ] {
            let failure = failure(&Fake { timer, ..Fake::default() }, 1);
            assert!(failure.starts_with(line), "{failure}");
        }
        for (submit, line) in [
            (
                Answering::Early,
                "completion: the task with an operation answered before it was triggered; ",
            ),
            (Answering::Twice, "completion: the task with an operation answered twice; "),
            (
                Answering::Refusing,
                "completion: the task with an operation could not wait: no such operation; ",
            ),
        ] {
            let failure = failure(&Fake { submit, ..Fake::default() }, 1);
            assert!(failure.starts_with(line), "{failure}");
        }
        let failure_of_timer = failure(&Fake { timer: Answering::Never, ..Fake::default() }, 1);
        assert!(failure_of_timer.ends_with("; not seen: answer of the timer task"));
        let failure_of_submit = failure(&Fake { submit: Answering::Never, ..Fake::default() }, 1);
        assert!(failure_of_submit.ends_with("; not seen: answer of the task with an operation"));
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
             answer of the remote task, answer of the timer task, \
             answer of the task with an operation, all 2 backlog tasks ended; \
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
