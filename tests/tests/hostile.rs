//! What a user's code may do to a worker: wakers that panic when they are dropped, a reactor that
//! calls back, a name that is none.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use evenkeel::testing::{SimOperation, SimReactor, VirtualClock};
use evenkeel::{
    Completions, Handle, Polled, Reactor, Readiness, Refused, StartError, Submitted, ThreadConfig,
    Token, Wait, Worker, WorkerConfig, WorkerThread,
};
use evenkeel_tests::Rig;

/// Panics when its last waker is dropped.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        std::mem::forget(self);
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a waker that panics when it is dropped");
    }
}

/// Polls with a waker of which the future's own clone is the last.
fn leave_a_bomb<F: Future + Unpin>(future: &mut F) {
    let waker = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(future).poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn a_join_waker_that_panics_in_its_drop_does_not_unwind_out_of_the_tick() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(async {});
    leave_a_bomb(&mut task);
    drop(task);
    let other = rig.handle.spawn(async {});
    rig.settle();
    assert!(other.is_finished());
}

#[test]
fn a_join_waker_that_panics_in_its_drop_does_not_keep_a_worker_from_its_end() {
    let rig = Rig::knowing();
    let held = Rc::new(());
    let holding = Rc::clone(&held);
    let other = rig.handle.spawn(async move {
        pending::<()>().await;
        drop(holding);
    });
    let mut task = rig.handle.spawn(pending::<()>());
    leave_a_bomb(&mut task);
    drop(task);
    let Rig { worker, remote, .. } = rig;
    drop(worker);
    assert!(other.is_finished() && remote.is_ended());
    assert_eq!(Rc::strong_count(&held), 1);
    assert!(remote.spawn(async {}).is_finished());
}

#[test]
fn an_operations_waker_that_panics_in_its_drop_does_not_lose_the_batch() {
    let mut rig = Rig::knowing();
    let mut left = rig.handle.submit(SimOperation::Event(1)).unwrap();
    leave_a_bomb(&mut left);
    let handle = rig.handle.clone();
    let other = rig.handle.spawn(async move {
        handle.submit(SimOperation::Event(2)).unwrap().await.unwrap();
    });
    rig.settle();
    // The end of the one and the event of the other come in one batch.
    drop(left);
    assert!(rig.sim.fire(2, 7));
    rig.settle();
    assert!(other.is_finished());
}

/// Submits an operation whenever it is polled.
struct CallsBack(Rc<RefCell<Option<Handle<CallsBack>>>>);

impl Reactor for CallsBack {
    type Operation = ();
    type Error = &'static str;

    fn name(&self) -> &'static str {
        "calls-back"
    }

    fn readiness(&mut self) -> Readiness {
        Readiness::Quiet
    }

    fn submit(&mut self, _: Token, (): ()) -> Result<Submitted, Refused<(), &'static str>> {
        Ok(Submitted::Armed)
    }

    fn cancel(&mut self, _: Token) {}

    fn poll(&mut self, _: Wait, _: &mut Completions) -> Result<Polled, &'static str> {
        let handle = self.0.borrow();
        let submit = || handle.as_ref().map(|handle| handle.submit(()).map(drop));
        assert!(catch_unwind(AssertUnwindSafe(submit)).is_err(), "documented to panic");
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        Waker::noop().clone()
    }
}

#[test]
fn a_submission_from_inside_the_reactor_panics_and_takes_no_slot() {
    let place = Rc::default();
    let config = WorkerConfig::default().operations(1);
    let mut worker = Worker::new(CallsBack(Rc::clone(&place)), VirtualClock::new(), config);
    *place.borrow_mut() = Some(worker.handle());
    worker.park(Wait::Never).unwrap();
    assert!(worker.handle().submit(()).is_ok());
    *place.borrow_mut() = None;
}

#[test]
fn a_thread_name_with_a_null_byte_is_an_error() {
    let config = ThreadConfig { name: "a\0b".into(), ..ThreadConfig::default() };
    let make = || Ok::<_, std::convert::Infallible>(SimReactor::new(&VirtualClock::new()));
    assert!(matches!(WorkerThread::start(config, make), Err(StartError::Thread(_))));
}
