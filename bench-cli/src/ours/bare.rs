#![forbid(unsafe_code)]
//! The floor: the reactor alone, on a fresh thread that spins on it.

use std::collections::VecDeque;
use std::hint::{self, black_box};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use evenkeel::io::{Interest, Operation};
use evenkeel::{Completions, Reactor, Readiness, Token, Wait};
use rustix::event::{EventfdFlags, eventfd};

use crate::ours::backend::Backend;
use crate::ours::hand_over::HandOver;
use crate::{
    Armed, Backlog, Counters, Description, Floor, Offered, Prices, Probe, Setup, StopError,
    Subject, SubjectError, Subjects, affinity, clock,
};

/// How many steps are timed together, so that the clock's own cost, about 24 ns, and its resolution
/// are below a tenth of a nanosecond for each.
const BATCH: u32 = 512;

/// Makes floors of one kind of reactor.
#[derive(Clone, Copy, Debug)]
pub struct Bare<B>(pub B);

/// A reactor on a thread of its own, and nothing else.
pub struct BareReactor {
    orders: mpsc::Sender<Order>,
    shared: Arc<Shared>,
    description: Description,
    ended: mpsc::Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

struct Shared {
    remote: HandOver<Probe>,
    /// Each has a place of its own: where the thread was kept from running for a while, none may push
    /// another out.
    timer: HandOver<Timer>,
    ready: HandOver<Ready>,
    armed: AtomicBool,
    stopped: AtomicBool,
}

/// To be stamped at this time.
struct Timer {
    due_ns: u64,
    probe: Probe,
}

/// To be waited for, and stamped before and after.
struct Ready {
    event: Arc<OwnedFd>,
    issued: Probe,
    resumed: Probe,
}

/// What the thread is told to do, in this order. It ends when there is nobody left to tell it.
enum Order {
    Arm(Arc<OwnedFd>, Probe),
    Spin(Arc<Backlog>),
}

impl<B: Backend> Subjects for Bare<B> {
    type Subject = BareReactor;

    fn start(&self, setup: &Setup) -> Result<BareReactor, SubjectError> {
        let (Self(backend), cpu) = (*self, setup.worker_cpu);
        let shared = Arc::new(Shared {
            remote: HandOver::new(),
            timer: HandOver::new(),
            ready: HandOver::new(),
            armed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let (orders, received) = mpsc::channel();
        let (told, description) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::sync_channel(1);
        let body = {
            let shared = Arc::clone(&shared);
            move || match open(backend, cpu) {
                Ok(reactor) => {
                    let _ = told.send(Ok(B::describe(&reactor)));
                    let _ = end.send(obey(reactor, &received, &shared));
                }
                Err(reason) => drop(told.send(Err(reason))),
            }
        };
        let thread = spawn("floor", body)?;
        let description = within(setup.timeout, &description, "the reactor was not made")??;
        Ok(BareReactor { orders, shared, description, ended, thread })
    }
}

impl<B: Backend> Floor for Bare<B> {
    fn prices(&self, setup: &Setup, lasting: Duration) -> Result<Prices, SubjectError> {
        let (Self(backend), cpu) = (*self, setup.worker_cpu);
        let (told, prices) = mpsc::sync_channel(1);
        let body = move || {
            let measured = open(backend, cpu).and_then(|reactor| {
                let dry_poll_ns = dry_poll_ns(reactor, lasting / 2)?;
                Ok(Prices { dispatch_ns: dispatch_ns(lasting / 2), dry_poll_ns })
            });
            let _ = told.send(measured);
        };
        let thread = spawn("prices", body)?;
        let prices = within(setup.timeout + lasting, &prices, "single steps were not measured")?;
        thread.join().map_err(|_| SubjectError::new("the measuring thread panicked"))?;
        prices
    }
}

impl Subject for BareReactor {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn arm(&mut self, event: Arc<OwnedFd>, probe: Probe) -> Result<(), SubjectError> {
        self.order(Order::Arm(event, probe))
    }

    fn armed(&mut self) -> Armed {
        // Ordering: Acquire, pairs with the Release in `obey`.
        if self.shared.armed.load(Ordering::Acquire) {
            Armed::Yes
        } else {
            Armed::NotYet("operation armed")
        }
    }

    fn start_backlog(&mut self, backlog: &Arc<Backlog>) -> Result<(), SubjectError> {
        self.order(Order::Spin(Arc::clone(backlog)))
    }

    fn submit(&mut self, probe: Probe) -> Result<(), SubjectError> {
        self.shared.remote.put(probe);
        Ok(())
    }

    fn start_timer(&mut self, due_ns: u64, probe: Probe) -> Result<Offered, SubjectError> {
        self.shared.timer.put(Timer { due_ns, probe });
        Ok(Offered::Yes)
    }

    fn start_operation(
        &mut self,
        event: Arc<OwnedFd>,
        issued: Probe,
        resumed: Probe,
    ) -> Result<Offered, SubjectError> {
        self.shared.ready.put(Ready { event, issued, resumed });
        Ok(Offered::Yes)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn stop(self, bound: Duration) -> Result<(), StopError> {
        let Self { orders, shared, ended, thread, .. } = self;
        drop(orders);
        // Ordering: Relaxed, the flag says nothing about other memory.
        shared.stopped.store(true, Ordering::Relaxed);
        let badly = |reason: &dyn std::fmt::Display| StopError::Badly(SubjectError::new(reason));
        match ended.recv_timeout(bound) {
            Err(RecvTimeoutError::Timeout) => {
                Err(StopError::Overdue { left_behind: "its thread and its reactor".into() })
            }
            Err(RecvTimeoutError::Disconnected) => Err(badly(&"its thread panicked")),
            Ok(result) => {
                thread.join().map_err(|_| badly(&"its thread panicked"))?;
                result.map_err(|error| badly(&error))
            }
        }
    }
}

impl BareReactor {
    fn order(&self, order: Order) -> Result<(), SubjectError> {
        self.orders.send(order).map_err(|_| SubjectError::new("the floor's thread has ended"))
    }
}

/// The thread's life.
fn obey<R>(mut reactor: R, orders: &mpsc::Receiver<Order>, shared: &Shared) -> io::Result<()>
where
    R: Reactor<Operation = Operation, Error = io::Error>,
{
    let mut waiting = None;
    for order in orders {
        match order {
            Order::Arm(event, probe) => {
                arm(&mut reactor, &event)?;
                waiting = Some((event, probe));
                // Ordering: Release, pairs with the Acquire in `armed`.
                shared.armed.store(true, Ordering::Release);
            }
            Order::Spin(backlog) => spin(&mut reactor, shared, &backlog, waiting.take())?,
        }
    }
    Ok(())
}

/// The operation of the event that is to come, and that of the one which has come already.
const ARMED: Token = Token::new(0, 0);
const READY: Token = Token::new(1, 0);

fn submit<R>(reactor: &mut R, token: Token, event: &OwnedFd) -> io::Result<()>
where
    R: Reactor<Operation = Operation, Error = io::Error>,
{
    let operation = Operation::Poll { fd: event.as_raw_fd(), interest: Interest::Readable };
    reactor.submit(token, operation).map_err(|refused| refused.error)?;
    Ok(())
}

/// Hands the operation to the kernel.
fn arm<R>(reactor: &mut R, event: &OwnedFd) -> io::Result<()>
where
    R: Reactor<Operation = Operation, Error = io::Error>,
{
    submit(reactor, ARMED, event)?;
    let mut found = Completions::new();
    while reactor.readiness() == Readiness::Ready {
        reactor.poll(Wait::Never, &mut found)?;
    }
    Ok(())
}

/// Looks at the reactor and at the hand-over, and at nothing else, until the backlog is stopped.
/// Then it looks on, as a scheduler would, for what came while this thread was not running.
fn spin<R>(
    reactor: &mut R,
    shared: &Shared,
    backlog: &Backlog,
    mut waiting: Option<(Arc<OwnedFd>, Probe)>,
) -> io::Result<()>
where
    R: Reactor<Operation = Operation, Error = io::Error>,
{
    let mut found = Completions::new();
    let (mut handed_over, mut timer, mut ready) = (false, None::<Timer>, None);
    let mut look = || {
        if let Some(probe) = shared.remote.take() {
            probe.stamp();
            handed_over = true;
        }
        timer = timer.take().or_else(|| shared.timer.take());
        if let Some(Timer { due_ns, probe }) = &timer
            && clock::now_ns() >= *due_ns
        {
            probe.stamp();
            timer = None;
        }
        if let Some(Ready { event, issued, resumed }) = shared.ready.take() {
            issued.stamp();
            submit(reactor, READY, &event)?;
            ready = Some((event, resumed));
        }
        if reactor.readiness() != Readiness::Quiet {
            found.clear();
            reactor.poll(Wait::Never, &mut found)?;
            for completion in found.as_slice() {
                let waited = if completion.token == READY { &mut ready } else { &mut waiting };
                if let Some((_, probe)) = waited.take() {
                    probe.stamp();
                }
            }
        }
        Ok::<_, io::Error>(handed_over && waiting.is_none() && timer.is_none() && ready.is_none())
    };
    let mut share = backlog.begin();
    while share.goes_on() {
        look()?;
    }
    share.finish();
    // Ordering: Relaxed; see `stop`.
    while !look()? && !shared.stopped.load(Ordering::Relaxed) {
        hint::spin_loop();
    }
    Ok(())
}

/// The median poll of a reactor that has an operation in flight and nothing to report.
fn dry_poll_ns<R>(mut reactor: R, lasting: Duration) -> Result<f64, SubjectError>
where
    R: Reactor<Operation = Operation, Error = io::Error>,
{
    let event =
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(SubjectError::new)?;
    arm(&mut reactor, &event).map_err(SubjectError::new)?;
    let mut found = Completions::new();
    let mut failed = None;
    let mut samples = timed(lasting, || {
        if let Err(error) = reactor.poll(Wait::Never, &mut found) {
            failed = Some(error);
        }
    });
    if let Some(error) = failed {
        return Err(SubjectError::new(error));
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

/// What a pop, a call and a push of a boxed closure cost.
fn dispatch_ns(lasting: Duration) -> f64 {
    let mut calls = 0_u64;
    let mut queue: VecDeque<Box<dyn FnMut()>> = VecDeque::new();
    queue.push_back(Box::new(move || calls = black_box(calls + 1)));
    let mut samples = timed(lasting, || {
        if let Some(mut task) = queue.pop_front() {
            task();
            queue.push_back(task);
        }
    });
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Nanoseconds per step, batch by batch, for as long as said and at least once.
fn timed(lasting: Duration, mut step: impl FnMut()) -> Vec<f64> {
    let mut samples = Vec::new();
    let mut now = clock::now_ns();
    let end = now.saturating_add(u64::try_from(lasting.as_nanos()).unwrap_or(u64::MAX));
    while now < end || samples.is_empty() {
        for _ in 0..BATCH {
            step();
        }
        let after = clock::now_ns();
        #[allow(clippy::cast_precision_loss)] // a batch is far below 2^52 ns
        samples.push((after - now) as f64 / f64::from(BATCH));
        now = after;
    }
    samples
}

fn open<B: Backend>(backend: B, cpu: Option<usize>) -> Result<B::Reactor, SubjectError> {
    if let Some(cpu) = cpu {
        affinity::pin_current_thread(cpu).map_err(SubjectError::new)?;
    }
    backend.open()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SubjectError> {
    thread::Builder::new().name(name.into()).spawn(body).map_err(SubjectError::new)
}

/// What the thread says, within the bound.
fn within<T>(bound: Duration, said: &mpsc::Receiver<T>, else_: &str) -> Result<T, SubjectError> {
    said.recv_timeout(bound).map_err(|error| match error {
        RecvTimeoutError::Timeout => SubjectError::new(format!("{else_} within {bound:?}")),
        RecvTimeoutError::Disconnected => {
            SubjectError::new(format!("{else_}: its thread panicked"))
        }
    })
}
