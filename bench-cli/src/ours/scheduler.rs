#![forbid(unsafe_code)]
//! evenkeel as a subject: one worker over one reactor.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use evenkeel::io::Interest;
use evenkeel::{
    Instant, StartError, StopError as WorkerStopError, ThreadConfig, WorkerThread, yield_now,
};

use crate::ours::backend::Backend;
use crate::{
    Armed, Backlog, Counters, Description, Offered, Probe, Setup, StopError, Subject, SubjectError,
    Subjects, affinity, clock,
};

/// Makes workers over one kind of reactor.
#[derive(Clone, Copy, Debug)]
pub struct Schedulers<B>(pub B);

/// One worker on a thread of its own.
pub struct Scheduler<B: Backend> {
    worker: WorkerThread<B::Reactor>,
    description: Description,
}

impl<B: Backend> Subjects for Schedulers<B> {
    type Subject = Scheduler<B>;

    fn start(&self, setup: &Setup) -> Result<Scheduler<B>, SubjectError> {
        let (Self(backend), cpu) = (*self, setup.worker_cpu);
        let (told, description) = mpsc::sync_channel(1);
        let make_reactor = move || {
            if let Some(cpu) = cpu {
                affinity::pin_current_thread(cpu).map_err(SubjectError::new)?;
            }
            let reactor = backend.open()?;
            // The receiver is there until this function has returned.
            let _ = told.send(B::describe(&reactor));
            Ok(reactor)
        };
        let config = ThreadConfig { timeout: setup.timeout, ..ThreadConfig::default() };
        let worker = WorkerThread::start(config, make_reactor).map_err(|error| match error {
            StartError::Reactor(reason) => reason,
            other => SubjectError::new(other),
        })?;
        let description = description.recv().map_err(SubjectError::new)?;
        Ok(Scheduler { worker, description })
    }
}

impl<B: Backend> Subject for Scheduler<B> {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn arm(&mut self, event: Arc<OwnedFd>, probe: Probe) -> Result<(), SubjectError> {
        let task = self.worker.remote().spawn_with(|handle| async move {
            match handle.ready(event, Interest::Readable).await {
                Ok(_) => probe.stamp(),
                Err(reason) => probe.refuse(reason),
            }
        });
        drop(task);
        Ok(())
    }

    fn armed(&mut self) -> Armed {
        let remote = self.worker.remote();
        match (remote.armed() > 0, remote.is_parked()) {
            (true, true) => Armed::Yes,
            (true, false) => Armed::NotYet("park of the worker"),
            (false, _) => Armed::NotYet("operation armed"),
        }
    }

    fn start_backlog(&mut self, backlog: &Arc<Backlog>) -> Result<(), SubjectError> {
        let backlog = Arc::clone(backlog);
        let starter = self.worker.remote().spawn_with(|handle| async move {
            for _ in 0..backlog.tasks() {
                drop(handle.spawn(Arc::clone(&backlog).run(yield_now)));
            }
        });
        drop(starter);
        Ok(())
    }

    fn submit(&mut self, probe: Probe) -> Result<(), SubjectError> {
        drop(self.worker.remote().spawn(async move { probe.stamp() }));
        Ok(())
    }

    fn start_timer(&mut self, due_ns: u64, probe: Probe) -> Result<Offered, SubjectError> {
        let task = self.worker.remote().spawn_with(move |handle| async move {
            let deadline = on_its_clock(due_ns, || handle.now());
            handle.sleep_until(deadline).await;
            probe.stamp();
        });
        drop(task);
        Ok(Offered::Yes)
    }

    fn start_operation(
        &mut self,
        event: Arc<OwnedFd>,
        issued: Probe,
        resumed: Probe,
    ) -> Result<Offered, SubjectError> {
        let task = self.worker.remote().spawn_with(move |handle| async move {
            issued.stamp();
            match handle.ready(event, Interest::Readable).await {
                Ok(_) => resumed.stamp(),
                Err(reason) => resumed.refuse(reason),
            }
        });
        drop(task);
        Ok(Offered::Yes)
    }

    fn counters(&self) -> Counters {
        let stats = self.worker.remote().stats();
        Counters {
            dry_polls: stats.dry_polls as u64,
            polls: stats.polls as u64,
            dispatches: stats.dispatches as u64,
            parks: stats.parks as u64,
            wake_writes: stats.notifications as u64,
        }
    }

    fn stop(self, within: Duration) -> Result<(), StopError> {
        self.worker.stop_within(within).map_err(|error| match error {
            WorkerStopError::TimedOut(_) => {
                StopError::Overdue { left_behind: "its thread, its reactor and its tasks".into() }
            }
            other => StopError::Badly(SubjectError::new(other)),
        })
    }
}

/// This time of [`clock::now_ns`] on the worker's clock, which counts the same nanoseconds from an
/// origin of its own. Never earlier; later by what passes between two reads of a clock, about 25 ns.
fn on_its_clock(due_ns: u64, now: impl Fn() -> Instant) -> Instant {
    // The closest of a few, since this thread may be interrupted in between.
    (0..8)
        .map(|_| {
            let left = due_ns.saturating_sub(clock::now_ns());
            now() + Duration::from_nanos(left)
        })
        .min()
        .expect("there are some")
}
