//! A scheduler of a few lines, with every fault that the measuring must notice.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{
    Armed, Backlog, Counters, Description, Floor, Offered, Plan, Prices, Probe, Readiness, Setup,
    StopError, Subject, SubjectError, Subjects, affinity, clock, wait,
};

/// How a task answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// This much later than it could.
    After(Duration),
    /// When the backlog has ended: the worker starves it.
    AfterTheBacklog,
    /// Before it was triggered: at once.
    Early,
    /// Before it was triggered: when the backlog starts.
    WithTheBacklog,
    Twice,
    /// And once more when the worker ends.
    AgainInTheEnd,
    Never,
    /// It cannot wait for its event.
    Refusing,
}

pub(crate) const AT_ONCE: Answering = Answering::After(Duration::ZERO);

/// How a worker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    Properly,
    /// Not within the bound.
    Never,
    /// By a panic.
    Badly,
    /// After its bound, and without saying so.
    Late,
}

/// A kind of scheduler; without faults by default.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    pub(crate) io: Answering,
    pub(crate) remote: Answering,
    pub(crate) timer: Answering,
    pub(crate) submit: Answering,
    /// Whether it has timers, and operations that a task can issue.
    pub(crate) offers: Offered,
    pub(crate) armed: Armed,
    /// At most so many tasks of the backlog are started.
    pub(crate) starts_at_most: usize,
    pub(crate) stopping: Stopping,
    pub(crate) refuses_to: Option<Call>,
    pub(crate) detail: &'static str,
}

/// A call that a subject may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Start,
    Arm,
    StartBacklog,
    Submit,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            io: AT_ONCE,
            remote: AT_ONCE,
            timer: AT_ONCE,
            submit: AT_ONCE,
            offers: Offered::Yes,
            armed: Armed::Yes,
            starts_at_most: usize::MAX,
            stopping: Stopping::Properly,
            refuses_to: None,
            detail: "of a few lines",
        }
    }
}

/// A short run of it, whose bounds even a crowded machine keeps.
pub(crate) fn plan(tasks: u32) -> Plan {
    Plan {
        trials: NonZeroU32::new(2).unwrap(),
        backlog: Duration::from_millis(4),
        tasks: NonZeroU32::new(tasks).unwrap(),
        timeout: Duration::from_secs(30),
        pin: None,
    }
}

/// The same for a run that will fail by its bound.
pub(crate) fn impatient(plan: Plan) -> Plan {
    Plan { timeout: Duration::from_millis(500), ..plan }
}

pub(crate) struct Running {
    kind: Fake,
    orders: Sender<Order>,
    stop: Arc<AtomicBool>,
    worker: JoinHandle<()>,
}

enum Order {
    Arm(Arc<OwnedFd>, Probe),
    Backlog(Arc<Backlog>),
    Submit(Probe),
    Timer(u64, Probe),
    Operation(Probe, Probe),
}

impl Fake {
    fn allow(&self, call: Call) -> Result<(), SubjectError> {
        if self.refuses_to == Some(call) {
            return Err(SubjectError::new(format_args!("no {call:?} today")));
        }
        Ok(())
    }
}

impl Subjects for Fake {
    type Subject = Running;

    fn start(&self, setup: &Setup) -> Result<Running, SubjectError> {
        self.allow(Call::Start)?;
        let (orders, inbox) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = thread::spawn({
            let (kind, stop, cpu) = (self.clone(), Arc::clone(&stop), setup.worker_cpu);
            move || {
                if let Some(cpu) = cpu {
                    affinity::pin_current_thread(cpu).unwrap();
                }
                work(&kind, &inbox, &stop);
            }
        });
        Ok(Running { kind: self.clone(), orders, stop, worker })
    }
}

impl Subject for Running {
    fn describe(&self) -> Description {
        Description {
            backend: "fake".into(),
            detail: self.kind.detail.into(),
            readiness: Readiness::Known,
        }
    }

    fn arm(&mut self, event: Arc<OwnedFd>, probe: Probe) -> Result<(), SubjectError> {
        self.kind.allow(Call::Arm)?;
        match self.kind.io {
            Answering::Early => probe.stamp(),
            Answering::Refusing => probe.refuse("cannot wait for descriptor"),
            _ => self.order(Order::Arm(event, probe)),
        }
        Ok(())
    }

    fn armed(&mut self) -> Armed {
        self.kind.armed
    }

    fn start_backlog(&mut self, backlog: &Arc<Backlog>) -> Result<(), SubjectError> {
        self.kind.allow(Call::StartBacklog)?;
        self.order(Order::Backlog(Arc::clone(backlog)));
        Ok(())
    }

    fn submit(&mut self, probe: Probe) -> Result<(), SubjectError> {
        self.kind.allow(Call::Submit)?;
        self.order(Order::Submit(probe));
        Ok(())
    }

    fn start_timer(&mut self, due_ns: u64, probe: Probe) -> Result<Offered, SubjectError> {
        if self.kind.offers == Offered::Yes {
            self.order(Order::Timer(due_ns, probe));
        }
        Ok(self.kind.offers)
    }

    fn start_operation(
        &mut self,
        _event: Arc<OwnedFd>,
        issued: Probe,
        resumed: Probe,
    ) -> Result<Offered, SubjectError> {
        if self.kind.offers == Offered::Yes {
            self.order(Order::Operation(issued, resumed));
        }
        Ok(self.kind.offers)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn stop(self, within: Duration) -> Result<(), StopError> {
        // Ordering: Relaxed; the join below publishes everything else.
        self.stop.store(true, Ordering::Relaxed);
        wait::until(within, || self.worker.is_finished());
        if !self.worker.is_finished() {
            return Err(StopError::Overdue { left_behind: "a busy thread".into() });
        }
        let badly = || StopError::Badly(SubjectError::new("it panicked"));
        self.worker.join().map_err(|_| badly())?;
        match self.kind.stopping {
            Stopping::Properly => Ok(()),
            Stopping::Never => Err(StopError::Overdue { left_behind: "its thread".into() }),
            Stopping::Badly => Err(badly()),
            Stopping::Late => {
                thread::sleep(within + Duration::from_millis(1));
                Ok(())
            }
        }
    }
}

impl Running {
    fn order(&self, order: Order) {
        self.orders.send(order).expect("the worker lives until it is stopped");
    }
}

impl Floor for Fake {
    fn prices(&self, _: &Setup, _: Duration) -> Result<Prices, SubjectError> {
        Ok(Prices { dispatch_ns: 2.0, dry_poll_ns: 100.0 })
    }
}

/// The worker: a loop that looks at everything at every turn, and ends when it is told to and its
/// tasks have ended.
fn work(kind: &Fake, inbox: &Receiver<Order>, stop: &AtomicBool) {
    let (mut armed, mut again) = (None, Vec::new());
    let mut due: Vec<(u64, Answering, Probe)> = Vec::new();
    let (mut busy, mut turn) = (Busy(Vec::new()), Turn::Over);
    // Ordering: Relaxed; see `stop`.
    while turn == Turn::Taken || !stop.load(Ordering::Relaxed) {
        match inbox.try_recv() {
            Ok(Order::Arm(event, probe)) => armed = Some((event, probe)),
            Ok(Order::Backlog(started)) => {
                if let (Answering::WithTheBacklog, Some((_, probe))) = (kind.io, &armed) {
                    probe.stamp();
                }
                busy = Busy::with(&started, kind.starts_at_most);
            }
            Ok(Order::Submit(probe)) => {
                again.extend((kind.remote == Answering::AgainInTheEnd).then(|| probe.clone()));
                due.push((clock::now_ns(), kind.remote, probe));
            }
            Ok(Order::Timer(due_ns, probe)) => match kind.timer {
                Answering::Early => probe.stamp(),
                how => due.push((due_ns, how, probe)),
            },
            Ok(Order::Operation(issued, probe)) => match kind.submit {
                Answering::Early => probe.stamp(),
                Answering::Refusing => probe.refuse("no such operation"),
                how => {
                    issued.stamp();
                    due.push((clock::now_ns(), how, probe));
                }
            },
            Err(_) => {}
        }
        if armed.as_ref().is_some_and(|(event, _)| is_readable(event)) {
            due.extend(armed.take().map(|(_, probe)| (clock::now_ns(), kind.io, probe)));
        }
        turn = busy.turn();
        due.retain(|(since, how, probe)| !answer(*since, *how, probe, turn));
        if turn == Turn::Over {
            thread::yield_now();
        }
    }
    again.iter().for_each(Probe::stamp);
}

/// Answers if it is time to; whether it has.
fn answer(since: u64, how: Answering, probe: &Probe, turn: Turn) -> bool {
    match how {
        _ if clock::now_ns() < since => false,
        Answering::After(delay) if clock::now_ns() < since + wait::nanoseconds(delay) => false,
        Answering::AfterTheBacklog if turn == Turn::Taken => false,
        Answering::Never => false,
        Answering::Twice => {
            probe.stamp();
            probe.stamp();
            true
        }
        _ => {
            probe.stamp();
            true
        }
    }
}

fn is_readable(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// The tasks of a backlog that still run.
struct Busy(Vec<Pin<Box<dyn Future<Output = ()>>>>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Taken,
    Over,
}

impl Busy {
    fn with(backlog: &Arc<Backlog>, at_most: usize) -> Self {
        let tasks = usize::try_from(backlog.tasks()).unwrap().min(at_most);
        let task = || Box::pin(Arc::clone(backlog).run(yield_now)) as Pin<Box<_>>;
        Self(std::iter::repeat_with(task).take(tasks).collect())
    }

    /// Every task once.
    fn turn(&mut self) -> Turn {
        let mut context = Context::from_waker(Waker::noop());
        self.0.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        if self.0.is_empty() { Turn::Over } else { Turn::Taken }
    }
}

async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_yielded, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
