//! The life of a task, in exact counts of polls and drops after each step.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{self, AssertUnwindSafe, panic_any, resume_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use evenkeel::testing::{SimOperation, SimReactor};
use evenkeel::{Handle, JoinError, JoinHandle, Lane, Rest, yield_now};
use evenkeel_tests::{Rig, Tally, WakeCount, WakerSlot, elsewhere, poll_once, ready, seen};

#[allow(clippy::needless_pass_by_value)] // what a handle gives is passed right on
fn is_cancelled<T>(result: Result<T, JoinError>) -> bool {
    matches!(result, Err(JoinError::Cancelled))
}

/// What a task panicked with.
fn panic_of<T>(result: Result<T, JoinError>) -> String {
    match result {
        Err(JoinError::Panicked(payload)) => {
            (*payload.downcast::<&str>().expect("these tests panic with text")).to_owned()
        }
        Err(JoinError::Cancelled) => panic!("cancelled"),
        Ok(_) => panic!("it has an output"),
    }
}

/// A panic that says nothing on stderr.
fn panics(text: &'static str) -> ! {
    resume_unwind(Box::new(text))
}

// Spawning.

#[test]
fn a_task_is_polled_until_it_is_ready_and_its_output_reaches_the_handle() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let mut task = rig.handle.spawn(tally.yielding(2));
    assert_eq!(tally.seen(), seen(0, 0, 0), "a spawn polls nothing");
    for polls in 1..=2 {
        rig.dispatch().unwrap();
        assert_eq!(tally.seen(), seen(polls, 0, 0));
        assert!(!task.is_finished());
    }
    rig.dispatch().unwrap();
    assert_eq!(tally.seen(), seen(3, 1, 0), "the future is gone, the output waits");
    assert!(task.is_finished());
    let Poll::Ready(Ok(output)) = poll_once(&mut task) else { panic!("it is ready") };
    drop(task);
    assert_eq!(tally.seen(), seen(3, 1, 0));
    drop(output);
    assert_eq!(tally.seen(), seen(3, 1, 1));
    assert_eq!(rig.settle(), 0);
}

#[test]
fn a_task_submitted_from_another_thread_runs_and_is_dropped_on_its_worker() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let (remote, counted) = (rig.remote.clone(), tally.clone());
    let task = elsewhere(move || remote.spawn(counted.yielding(1)));
    assert_eq!(tally.seen(), seen(0, 0, 0));
    assert_eq!(rig.settle(), 2);
    assert_eq!(tally.seen(), seen(2, 1, 0));
    assert_eq!(tally.dropped_on(), Some(thread::current().id()));
    drop(ready(task));
    assert_eq!(tally.seen(), seen(2, 1, 1));
}

#[test]
fn a_future_may_be_made_on_the_worker_and_need_not_be_send() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let (remote, counted) = (rig.remote.clone(), tally.clone());
    let task = elsewhere(move || {
        remote.spawn_with(move |handle: Handle<SimReactor>| async move {
            let shared = Rc::new(Cell::new(20));
            let also = Rc::clone(&shared);
            let other = handle.spawn(async move { also.set(also.get() + 1) });
            other.await.unwrap();
            let _output = counted.yielding(1).await;
            shared.get() * 2
        })
    });
    rig.settle();
    assert_eq!(ready(task).unwrap(), 42);
    assert_eq!(tally.seen(), seen(2, 1, 1));
}

#[test]
fn a_maker_that_panics_tells_the_handle() {
    let mut rig = Rig::knowing();
    let maker = |_: Handle<SimReactor>| -> std::future::Ready<()> { panics("in the maker") };
    let task = rig.remote.spawn_with(maker);
    rig.settle();
    assert_eq!(panic_of(ready(task)), "in the maker");
}

#[test]
fn what_a_maker_holds_is_dropped_once_when_it_is_never_called() {
    let rig = Rig::knowing();
    let tally = Tally::new();
    let held = tally.output();
    let task = rig.remote.spawn_with(move |_| async move { drop(held) });
    drop(rig.worker);
    assert_eq!(tally.seen(), seen(0, 0, 1));
    assert!(is_cancelled(ready(task)));
}

#[test]
fn a_task_that_is_ready_at_once_takes_one_dispatch() {
    let mut rig = Rig::knowing();
    let task = rig.handle.spawn(async { 5 });
    assert_eq!(rig.settle(), 1);
    assert_eq!(ready(task).unwrap(), 5);
}

// The join handle.

#[test]
fn a_handle_dropped_before_the_end_leaves_the_output_to_the_worker() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    drop(rig.handle.spawn(tally.yielding(0)));
    assert_eq!(tally.seen(), seen(0, 0, 0), "detached, not cancelled");
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 1));
}

#[test]
fn a_handle_dropped_after_the_end_drops_the_output() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = rig.handle.spawn(tally.yielding(0));
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0));
    drop(task);
    assert_eq!(tally.seen(), seen(1, 1, 1));
}

#[test]
fn an_awaited_handle_wakes_once_and_only_the_last_waker() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(Tally::new().yielding(1));
    let (first, last) = (WakeCount::new(), WakeCount::new());
    for waker in [&first, &first, &last] {
        let waker = Waker::from(Arc::clone(waker));
        assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&first), 1, "replaced");
    rig.dispatch().unwrap();
    assert_eq!((first.wakes(), last.wakes()), (0, 0));
    rig.dispatch().unwrap();
    assert_eq!((first.wakes(), last.wakes()), (0, 1));
    assert!(ready(task).is_ok());
    assert_eq!(Arc::strong_count(&last), 1, "nothing keeps the waker");
}

#[test]
fn a_handle_polled_after_the_end_wakes_nobody() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(async {});
    rig.settle();
    let count = WakeCount::new();
    let waker = Waker::from(Arc::clone(&count));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(count.wakes(), 0);
}

#[test]
fn a_handle_dropped_while_its_waker_is_there_wakes_nobody() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(async {});
    let count = WakeCount::new();
    let waker = Waker::from(Arc::clone(&count));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    drop(task);
    rig.settle();
    assert_eq!((count.wakes(), Arc::strong_count(&count)), (0, 1));
}

#[test]
fn a_task_awaits_another_and_is_polled_once_for_it() {
    let mut rig = Rig::knowing();
    let (outer, inner) = (Tally::new(), Tally::new());
    let mut task = rig.handle.spawn(inner.yielding(3));
    let joins = rig.handle.spawn(outer.future(move |context| Pin::new(&mut task).poll(context)));
    rig.settle();
    assert_eq!(inner.seen(), seen(4, 1, 0));
    assert_eq!(outer.seen(), seen(2, 1, 0));
    drop(ready(joins));
    assert_eq!(inner.seen(), seen(4, 1, 1));
}

#[test]
#[should_panic(expected = "polled after it had given its output")]
fn a_handle_polled_after_its_output_says_so() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(async {});
    rig.settle();
    assert!(poll_once(&mut task).is_ready());
    let _ = poll_once(&mut task);
}

#[test]
fn the_future_is_gone_before_its_handle_is_woken() {
    struct Looks(Tally, Arc<Mutex<Option<usize>>>);
    impl std::task::Wake for Looks {
        fn wake(self: Arc<Self>) {
            *self.1.lock().unwrap() = Some(self.0.seen().future_drops);
        }
    }
    let mut rig = Rig::knowing();
    let (tally, found) = (Tally::new(), Arc::default());
    let mut task = rig.handle.spawn(tally.yielding(0));
    let waker = Waker::from(Arc::new(Looks(tally, Arc::clone(&found))));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    rig.settle();
    assert_eq!(*found.lock().unwrap(), Some(1));
}

#[test]
fn a_handle_may_be_awaited_and_dropped_on_another_thread() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let (awaited, dropped) =
        (rig.handle.spawn(tally.yielding(1)), rig.handle.spawn(tally.yielding(1)));
    let (send, receive) = std::sync::mpsc::channel();
    let other = thread::spawn(move || {
        drop(dropped);
        send.send(()).unwrap();
        drop(evenkeel_tests::wait_for("the output", awaited));
    });
    receive.recv().unwrap();
    rig.settle();
    other.join().unwrap();
    assert_eq!(tally.seen(), seen(4, 2, 2));
}

// Aborting.

#[test]
fn a_task_aborted_before_its_first_poll_is_never_polled() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let submitted = rig.remote.spawn(tally.pending());
    submitted.abort();
    assert_eq!(tally.seen(), seen(0, 0, 0), "its worker drops it, not the caller");
    rig.settle();
    assert_eq!(tally.seen(), seen(0, 1, 0));
    assert!(is_cancelled(ready(submitted)));
}

#[test]
fn an_aborted_task_ends_at_the_remote_lanes_next_turn_wherever_it_stands() {
    let mut rig = Rig::knowing();
    let (yields, waits) = (Tally::new(), Tally::new());
    let yields_task = rig.handle.spawn(yields.yielding(1_000));
    let waits_task = rig.handle.spawn(waits.pending());
    rig.dispatches(10);
    let (yielded, waited) = (yields.seen().polls, waits.seen().polls);
    yields_task.abort();
    waits_task.abort();
    rig.settle();
    assert!(yields.seen().polls <= yielded + 2, "two turns of the remote lane for two aborts");
    assert_eq!((yields.seen().future_drops, yields.seen().output_drops), (1, 0));
    assert_eq!(waits.seen(), seen(waited, 1, 0));
    assert!(is_cancelled(ready(yields_task)) && is_cancelled(ready(waits_task)));
}

#[test]
fn a_queued_task_that_is_aborted_is_not_polled_again() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = rig.handle.spawn(tally.yielding(1_000));
    let backlog = rig.backlog(20);
    rig.dispatch().unwrap();
    // It has just gone to the back of the others.
    assert_eq!(tally.seen(), seen(1, 0, 0));
    task.abort();
    rig.dispatches(60);
    assert_eq!(tally.seen(), seen(1, 1, 0));
    backlog.set(true);
    rig.settle();
}

#[test]
fn an_abort_after_the_end_leaves_the_output() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = rig.handle.spawn(tally.yielding(0));
    rig.settle();
    task.abort();
    assert_eq!(rig.settle(), 0);
    assert_eq!(tally.seen(), seen(1, 1, 0));
    assert!(ready(task).is_ok());
}

#[test]
fn aborts_are_counted_once_and_may_come_from_any_thread() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = Arc::new(rig.handle.spawn(tally.pending()));
    rig.settle();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| task.abort());
        }
    });
    let tick = rig.tick();
    assert_eq!((tick.dispatches.total(), tick.settled), (0, 1));
    assert_eq!(tally.seen(), seen(1, 1, 0));
    assert!(is_cancelled(ready(Arc::into_inner(task).unwrap())));
}

#[test]
fn a_task_that_aborts_itself_finishes_its_poll() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
    let reached = Rc::clone(&own);
    let task = rig.handle.spawn(tally.future(move |_| {
        reached.borrow().iter().for_each(JoinHandle::abort);
        Poll::Pending
    }));
    *own.borrow_mut() = Some(task);
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0));
    assert!(is_cancelled(ready(own.take().unwrap())));
}

#[test]
fn a_task_that_aborts_itself_and_is_ready_has_an_output() {
    let mut rig = Rig::knowing();
    let own: Rc<RefCell<Option<JoinHandle<u32>>>> = Rc::default();
    let reached = Rc::clone(&own);
    let task = rig.handle.spawn(async move {
        reached.borrow().iter().for_each(JoinHandle::abort);
        9
    });
    *own.borrow_mut() = Some(task);
    rig.settle();
    assert_eq!(ready(own.take().unwrap()).unwrap(), 9);
}

#[test]
fn an_aborted_task_wakes_who_awaits_it() {
    let mut rig = Rig::knowing();
    let waits = rig.handle.spawn(pending::<()>());
    let waits = Rc::new(RefCell::new(waits));
    let joined = Rc::clone(&waits);
    let task = rig.handle.spawn(poll_fn(move |context| {
        Pin::new(&mut *joined.borrow_mut()).poll(context).map(is_cancelled)
    }));
    rig.settle();
    waits.borrow().abort();
    rig.settle();
    assert!(ready(task).unwrap());
}

// Panics.

#[test]
fn a_panic_in_a_poll_reaches_the_handle_and_the_worker_lives_on() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let panicking = rig.handle.spawn(tally.future(|_| -> Poll<()> { panics("in the poll") }));
    let after = rig.handle.spawn(async { 3 });
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0), "dropped once, and never polled again");
    assert_eq!(panic_of(ready(panicking)), "in the poll");
    assert_eq!(ready(after).unwrap(), 3);
}

#[test]
fn a_panic_of_a_detached_task_is_forgotten() {
    let mut rig = Rig::knowing();
    drop(rig.handle.spawn(async { panics("nobody hears it") }));
    rig.settle();
    assert_eq!(ready_after(&mut rig), 1);
}

/// The worker still works.
fn ready_after(rig: &mut Rig) -> u32 {
    let task = rig.handle.spawn(async { 1 });
    rig.settle();
    ready(task).unwrap()
}

/// Panics when it is dropped, after it has counted that.
struct PanicsInDrop(Tally);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        drop(self.0.output());
        if !thread::panicking() {
            panics("in a drop");
        }
    }
}

#[test]
fn a_panic_in_the_futures_drop_reaches_the_handle() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    for aborts in [false, true] {
        let guard = PanicsInDrop(tally.clone());
        let task = rig.handle.spawn(async move {
            let _guard = guard;
            if aborts {
                pending::<()>().await;
            }
        });
        if aborts {
            rig.settle();
            task.abort();
        }
        rig.settle();
        assert_eq!(panic_of(ready(task)), "in a drop");
    }
    assert_eq!(tally.seen().output_drops, 2);
    assert_eq!(ready_after(&mut rig), 1);
}

#[test]
fn a_panic_in_the_drop_of_an_output_that_nobody_takes_is_caught() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let output = PanicsInDrop(tally.clone());
    drop(rig.handle.spawn(async move { output }));
    rig.settle();
    assert_eq!(tally.seen().output_drops, 1);
    let output = PanicsInDrop(tally.clone());
    let task = rig.handle.spawn(async move { output });
    rig.settle();
    drop(task);
    assert_eq!(tally.seen().output_drops, 2);
    assert_eq!(ready_after(&mut rig), 1);
}

/// A future that is ready at once, and panics in its drop as well as in that of its output.
struct PanicsTwice(Tally);

impl Future for PanicsTwice {
    type Output = PanicsInDrop;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<PanicsInDrop> {
        Poll::Ready(PanicsInDrop(self.0.clone()))
    }
}

impl Drop for PanicsTwice {
    fn drop(&mut self) {
        drop(self.0.future(|_| Poll::<()>::Pending));
        panics("in the future's drop");
    }
}

#[test]
fn a_future_and_its_output_that_both_panic_in_their_drops_are_dropped_once() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = rig.handle.spawn(PanicsTwice(tally.clone()));
    let ran = panic::catch_unwind(AssertUnwindSafe(|| rig.settle()));
    drop(rig.worker);
    assert_eq!(tally.seen(), seen(0, 1, 1));
    assert!(ran.is_ok(), "the panic does not reach the worker");
    assert!(matches!(ready(task), Err(JoinError::Panicked(_))));
}

/// A future that panics in its poll, with a payload that panics in its drop; and perhaps in its own
/// drop as well.
struct PanicsInPoll(Tally, bool);

impl Future for PanicsInPoll {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        resume_unwind(Box::new(PanicsInDrop(self.0.clone())))
    }
}

impl Drop for PanicsInPoll {
    fn drop(&mut self) {
        drop(self.0.future(|_| Poll::<()>::Pending));
        if self.1 {
            panics("in the future's drop");
        }
    }
}

#[test]
fn a_payload_that_panics_in_its_drop_does_not_reach_the_worker() {
    for drop_panics in [false, true] {
        let mut rig = Rig::knowing();
        let tally = Tally::new();
        drop(rig.handle.spawn(PanicsInPoll(tally.clone(), drop_panics)));
        let ran = panic::catch_unwind(AssertUnwindSafe(|| rig.settle()));
        assert_eq!(ready_after(&mut rig), 1);
        drop(rig.worker);
        assert_eq!(tally.seen(), seen(0, 1, 1));
        assert!(ran.is_ok(), "the panic does not reach the worker");
    }
}

#[test]
fn any_payload_reaches_the_handle() {
    let mut rig = Rig::knowing();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let task = rig.handle.spawn(async { panic_any(17_u64) });
    rig.settle();
    panic::set_hook(hook);
    let Err(JoinError::Panicked(payload)) = ready::<JoinHandle<()>>(task) else {
        panic!("it panicked")
    };
    assert_eq!(payload.downcast_ref::<u64>(), Some(&17));
}

/// A waker that panics when it is woken.
fn panicking_waker() -> Waker {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panics("in a waker");
        }
    }
    Waker::from(Arc::new(Panics))
}

#[test]
fn a_join_waker_that_panics_leaves_the_worker_whole() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let mut joined = rig.handle.spawn(tally.yielding(0));
    let waker = panicking_waker();
    assert!(Pin::new(&mut joined).poll(&mut Context::from_waker(&waker)).is_pending());
    // Whether it unwinds through the tick is left open.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| rig.settle()));
    assert_eq!(ready_after(&mut rig), 1);
    drop(joined);
    assert_eq!(tally.seen(), seen(1, 1, 1));
}

#[test]
fn a_join_waker_that_panics_at_the_workers_end_does_not_keep_the_other_tasks() {
    let rig = Rig::knowing();
    let tally = Tally::new();
    let mut tasks: Vec<_> = (0..3).map(|_| rig.handle.spawn(tally.pending())).collect();
    let waker = panicking_waker();
    for task in &mut tasks {
        assert!(Pin::new(task).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(rig.worker)));
    assert_eq!(tally.seen(), seen(0, 3, 0));
    assert!(rig.remote.is_ended());
    assert!(tasks.into_iter().all(|task| is_cancelled(ready(task))));
}

#[test]
fn an_operations_waker_that_panics_leaves_the_lanes_whole() {
    let mut rig = Rig::knowing();
    let mut operations: Vec<_> =
        (0..2).map(|event| rig.handle.submit(SimOperation::Event(event)).unwrap()).collect();
    let waker = panicking_waker();
    for operation in &mut operations {
        assert!(Pin::new(operation).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    rig.settle();
    assert!(rig.sim.fire(0, 5) && rig.sim.fire(1, 6));
    let _ = panic::catch_unwind(AssertUnwindSafe(|| rig.settle()));
    let results: Vec<_> = operations.into_iter().map(ready).collect();
    assert_eq!(results, [Ok(5), Ok(6)], "the second does not suffer from the first");
    drop(rig.handle.spawn(yield_now()));
    let lanes: Vec<Lane> = rig.dispatches(2).iter().map(|step| step.lane).collect();
    assert_eq!(lanes, [Lane::Local, Lane::Local]);
}

// The worker's end.

#[test]
fn the_workers_end_drops_every_task_once_and_on_its_thread() {
    let mut rig = Rig::knowing();
    let tallies: Vec<Tally> = (0..5).map(|_| Tally::new()).collect();
    let mut tasks =
        vec![rig.handle.spawn(tallies[0].pending()), rig.remote.spawn(tallies[1].pending())];
    rig.settle();
    // And some that it never saw run.
    tasks.push(rig.handle.spawn(tallies[2].pending()));
    tasks.push(rig.remote.spawn(tallies[3].pending()));
    let (remote, counted) = (rig.remote.clone(), tallies[4].clone());
    tasks.push(elsewhere(move || remote.spawn(counted.pending())));
    let counts = [1, 1, 0, 0, 0];
    for (tally, polls) in tallies.iter().zip(counts) {
        assert_eq!(tally.seen(), seen(polls, 0, 0));
    }
    drop(rig.worker);
    for (tally, polls) in tallies.iter().zip(counts) {
        assert_eq!(tally.seen(), seen(polls, 1, 0));
        assert_eq!(tally.dropped_on(), Some(thread::current().id()));
    }
    assert!(tasks.into_iter().all(|task| is_cancelled(ready(task))));
    assert!(rig.remote.is_ended());
}

#[test]
fn the_workers_end_wakes_who_awaits_its_tasks() {
    let rig = Rig::knowing();
    let mut task = rig.handle.spawn(pending::<()>());
    let count = WakeCount::new();
    let waker = Waker::from(Arc::clone(&count));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(rig.worker);
    assert_eq!(count.wakes(), 1);
    assert!(is_cancelled(ready(task)));
}

#[test]
fn a_stopped_worker_runs_nothing_more() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let task = rig.handle.spawn(tally.yielding(5));
    rig.dispatch().unwrap();
    rig.remote.stop();
    for _ in 0..3 {
        let tick = rig.tick();
        assert_eq!((tick.rest, tick.dispatches.total()), (Rest::Stopped, 0));
    }
    assert!(!rig.remote.is_ended(), "not before it is dropped");
    drop(rig.worker);
    assert_eq!(tally.seen(), seen(1, 1, 0));
    assert!(is_cancelled(ready(task)));
}

#[test]
fn a_spawn_after_the_workers_end_is_cancelled_at_once() {
    let rig = Rig::knowing();
    drop(rig.worker);
    let tally = Tally::new();
    let local = rig.handle.spawn(tally.pending());
    assert_eq!(tally.seen(), seen(0, 1, 0));
    let (remote, counted) = (rig.remote.clone(), tally.clone());
    let submitted = elsewhere(move || remote.spawn(counted.pending()));
    assert_eq!(tally.seen(), seen(0, 2, 0));
    let held = tally.output();
    let made = rig.remote.spawn_with(move |_| async move { drop(held) });
    assert_eq!(tally.seen(), seen(0, 2, 1));
    assert!(is_cancelled(ready(local)) && is_cancelled(ready(submitted)));
    assert!(is_cancelled(ready(made)));
    rig.remote.stop();
}

#[test]
fn spawns_that_race_the_workers_end_are_all_cancelled_or_run() {
    for _ in 0..50 {
        let mut rig = Rig::knowing();
        let tally = Tally::new();
        let (remote, counted) = (rig.remote.clone(), tally.clone());
        let go = Arc::new(std::sync::Barrier::new(2));
        let gate = Arc::clone(&go);
        let producer = thread::spawn(move || {
            gate.wait();
            (0..200).map(|_| remote.spawn(counted.yielding(1))).collect::<Vec<_>>()
        });
        go.wait();
        for _ in 0..5 {
            rig.tick();
        }
        drop(rig.worker);
        let tasks = producer.join().unwrap();
        let results: Vec<_> = tasks.into_iter().map(ready).collect();
        let outputs = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(tally.seen().future_drops, 200);
        assert_eq!(tally.seen().output_drops, 0);
        drop(results);
        assert_eq!(tally.seen().output_drops, outputs);
    }
}

#[test]
fn a_future_that_spawns_and_wakes_in_its_drop_at_the_workers_end_is_harmless() {
    struct SpawnsInDrop(Handle<SimReactor>, Tally, WakerSlot, u32);
    impl Drop for SpawnsInDrop {
        fn drop(&mut self) {
            self.2.get().wake_by_ref();
            drop(self.0.remote().spawn(self.1.pending()));
            drop(self.0.spawn(self.1.pending()));
            if self.3 > 0 {
                let next = Self(self.0.clone(), self.1.clone(), self.2.clone(), self.3 - 1);
                drop(self.0.spawn(async move {
                    let _next = next;
                    pending::<()>().await;
                }));
            }
        }
    }
    let mut rig = Rig::knowing();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    for _ in 0..3 {
        let held = SpawnsInDrop(rig.handle.clone(), tally.clone(), slot.clone(), 2);
        let leave = slot.clone();
        drop(rig.handle.spawn(async move {
            let _held = held;
            poll_fn(|context| {
                leave.put(context.waker());
                Poll::<()>::Pending
            })
            .await;
        }));
    }
    rig.settle();
    drop(rig.worker);
    assert_eq!(tally.seen(), seen(0, 3 * 3 * 2, 0));
}

#[test]
fn a_task_may_end_its_own_worker() {
    let mut rig = Rig::knowing();
    let remote = rig.remote.clone();
    let task = rig.handle.spawn(async move {
        remote.stop();
        yield_now().await;
    });
    for _ in 0..10 {
        rig.worker.tick().unwrap();
    }
    assert!(!task.is_finished(), "stopped before its next dispatch");
    drop(rig.worker);
    assert!(is_cancelled(ready(task)));
}

#[test]
fn tasks_that_await_each_other_are_dropped_once_at_the_workers_end() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let handles: Rc<RefCell<Vec<Option<JoinHandle<()>>>>> = Rc::default();
    for me in 0..3 {
        let (handles_here, counted) = (Rc::clone(&handles), tally.clone());
        let task = rig.handle.spawn(async move {
            let _counted = counted.future(|_| Poll::<()>::Pending);
            let next = handles_here.borrow_mut()[(me + 1) % 3].take().unwrap();
            let _ = next.await;
        });
        handles.borrow_mut().push(Some(task));
    }
    rig.settle();
    assert!(handles.borrow().iter().all(Option::is_none), "each awaits the next");
    drop(rig.worker);
    assert_eq!(tally.seen().future_drops, 3);
}

#[test]
fn many_tasks_are_dropped_in_any_order() {
    let mut rig = Rig::knowing();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut tasks: Vec<_> = (0..1_000)
        .map(|number| {
            let ran = Arc::clone(&ran);
            rig.handle.spawn(async move {
                for _ in 0..number % 7 {
                    yield_now().await;
                }
                ran.fetch_add(1, Ordering::SeqCst);
                if number % 3 == 0 {
                    pending::<()>().await;
                }
            })
        })
        .collect();
    let mut random = evenkeel_tests::Random::new(4);
    rig.dispatches(1_500);
    while tasks.len() > 500 {
        let task = tasks.swap_remove(random.below(tasks.len()));
        if random.once_in(2) {
            task.abort();
        }
    }
    rig.settle();
    drop(rig.worker);
    for task in tasks {
        assert!(task.is_finished());
        drop(ready(task));
    }
    assert!(ran.load(Ordering::SeqCst) >= 700);
}
