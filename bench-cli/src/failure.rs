//! A trial that failed, told in one line: the phase, and what was and was not seen.

use std::fmt;
use std::time::Duration;

use rustix::io::Errno;

use crate::probe::Answer;
use crate::{Armed, StopError, SubjectError};

/// The phases of a trial, each of them bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The event, the scheduler and its thread are made.
    SetUp,
    /// The task that waits for the event is started; until its operation is armed and the worker
    /// parked.
    Arming,
    /// The backlog is started; until each of its tasks has run.
    BacklogStart,
    /// The event is triggered and the remote task submitted; until both have answered and the
    /// backlog has ended.
    Completion,
    /// The scheduler is shut down; until its thread is gone.
    Shutdown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetUp => "set-up",
            Self::Arming => "arming",
            Self::BacklogStart => "backlog start",
            Self::Completion => "completion",
            Self::Shutdown => "shutdown",
        })
    }
}

/// One of the tasks whose resumption is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The task that waits for the event.
    Io,
    /// The task that is submitted from another thread.
    Remote,
    /// The task that sleeps until a time.
    Timer,
    /// The task that issues an operation which is ready at once.
    Submit,
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io => "the I/O task",
            Self::Remote => "the remote task",
            Self::Timer => "the timer task",
            Self::Submit => "the task with an operation",
        })
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The phase took longer than this.
    TimedOut(Duration),
    /// The subject did not do what it was asked for.
    Subject(SubjectError),
    /// The awaited operation failed; the task's own words.
    Refused(Awaited, String),
    /// A task ran before there was any reason to.
    Early(Awaited),
    /// A task ran more than once.
    Repeated(Awaited),
    /// The eventfd could not be made.
    Event(Errno),
    /// The eventfd could not be written.
    Trigger(Errno),
    /// The scheduler did not stop as it should.
    Stop(StopError),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(bound) => {
                write!(f, "not done within {} ms (--timeout-ms)", bound.as_millis())
            }
            Self::Subject(reason) => reason.fmt(f),
            Self::Refused(awaited, reason) => write!(f, "{awaited} could not wait: {reason}"),
            Self::Early(awaited) => write!(f, "{awaited} answered before it was triggered"),
            Self::Repeated(awaited) => write!(f, "{awaited} answered twice"),
            Self::Event(errno) => write!(f, "cannot create an eventfd: {errno}"),
            Self::Trigger(errno) => write!(f, "cannot write to the eventfd: {errno}"),
            Self::Stop(reason) => reason.fmt(f),
        }
    }
}

/// What was seen of a trial by some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What the subject said last while it was being armed.
    pub armed: Armed,
    /// Of so many tasks in the backlog...
    pub tasks: u32,
    /// ... so many have begun...
    pub started: u32,
    /// ... and so many have ended.
    pub finished: u32,
    /// What came back from the I/O task.
    pub io: Answer,
    /// What came back from the remote task.
    pub remote: Answer,
    /// What came back from the timer task, if the subject has timers.
    pub timer: Option<Answer>,
    /// What came back from the task with an operation, if the subject offers one.
    pub submit: Option<Answer>,
}

/// A failed trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where it failed.
    pub phase: Phase,
    /// Why.
    pub cause: Cause,
    /// How far it had come.
    pub seen: Box<Seen>,
    /// What went wrong besides, when the failed trial was shut down.
    pub aftermath: Option<Cause>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.phase, self.cause)?;
        let (seen, unseen) = self.seen.by_the_end_of(self.phase);
        if !seen.is_empty() {
            write!(f, "; seen: {}", seen.join(", "))?;
        }
        if !unseen.is_empty() {
            write!(f, "; not seen: {}", unseen.join(", "))?;
        }
        if let Some(aftermath) = &self.aftermath {
            write!(f, "; then {}: {aftermath}", Phase::Shutdown)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl Seen {
    /// What was seen, and what should have been by the end of `phase` and was not.
    fn by_the_end_of(&self, phase: Phase) -> (Vec<String>, Vec<String>) {
        let mut seen = Vec::new();
        let mut unseen = Vec::new();
        let mut note = |is_seen: bool, what: String| {
            if is_seen { seen.push(what) } else { unseen.push(what) }
        };

        if phase >= Phase::Arming {
            match self.armed {
                Armed::Yes => note(true, "operation armed and worker parked".into()),
                Armed::NotYet(missing) => note(false, missing.into()),
            }
        }
        if phase >= Phase::BacklogStart {
            note(self.started == self.tasks, self.backlog("started", self.started));
        }
        if phase >= Phase::Completion {
            note(has_run(&self.io), format!("answer of {}", Awaited::Io));
            note(has_run(&self.remote), format!("answer of {}", Awaited::Remote));
            for (awaited, answer) in
                [(Awaited::Timer, &self.timer), (Awaited::Submit, &self.submit)]
            {
                if let Some(answer) = answer {
                    note(has_run(answer), format!("answer of {awaited}"));
                }
            }
            note(self.finished == self.tasks, self.backlog("ended", self.finished));
        }
        (seen, unseen)
    }

    /// What so many of the backlog's tasks have done.
    fn backlog(&self, done: &str, count: u32) -> String {
        match (self.tasks, count) {
            (1, _) => format!("the backlog task {done}"),
            (tasks, count) if count == tasks => format!("all {tasks} backlog tasks {done}"),
            (tasks, count) => format!("all {tasks} backlog tasks {done} (only {count})"),
        }
    }
}

fn has_run(answer: &Answer) -> bool {
    matches!(answer, Answer::At(_) | Answer::Repeated)
}
