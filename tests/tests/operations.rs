//! Operations: in flight, ended, cancelled, refused, orphaned; on the simulated reactor.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::testing::{SimError, SimOperation, SimReactor};
use evenkeel::{
    Completion, Handle, InFlight, Orphaned, Rest, SubmitError, Token, Wait, WorkerConfig,
};
use evenkeel_tests::{Rig, Sight, WakeCount, elsewhere, poll_once, ready};

fn event(rig: &Rig, number: u32) -> InFlight {
    rig.handle.submit(SimOperation::Event(number)).unwrap()
}

fn room_for(operations: usize) -> Rig {
    Rig::with(Sight::Knowing, WorkerConfig::default().operations(operations), |reactor| reactor)
}

/// Polls with a waker that counts.
fn poll_counted(operation: &mut InFlight, count: &Arc<WakeCount>) -> Poll<Result<i32, Orphaned>> {
    let waker = Waker::from(Arc::clone(count));
    Pin::new(operation).poll(&mut Context::from_waker(&waker))
}

/// Spawns a task that awaits an operation, and leaves the result.
fn awaited(rig: &Rig, operation: InFlight) -> Rc<RefCell<Option<Result<i32, Orphaned>>>> {
    let result: Rc<RefCell<Option<Result<i32, Orphaned>>>> = Rc::default();
    let leave = Rc::clone(&result);
    drop(rig.handle.spawn(async move {
        let ended = operation.await;
        *leave.borrow_mut() = Some(ended);
    }));
    result
}

#[test]
fn an_operation_gives_its_result_once() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let result = awaited(&rig, event(&rig, 7));
        rig.settle();
        assert_eq!(*result.borrow(), None);
        assert!(rig.sim.fire(7, 42));
        assert!(!rig.sim.fire(7, 43), "nobody waits for it any more");
        rig.worker.park(Wait::Forever).unwrap();
        assert_eq!(rig.settle(), 1);
        assert_eq!(*result.borrow(), Some(Ok(42)));
    }
}

#[test]
fn an_operation_that_ended_before_it_was_polled_is_ready_at_once() {
    let mut rig = Rig::knowing();
    let mut operation = event(&rig, 0);
    rig.settle();
    assert!(rig.sim.fire(0, -5));
    let tick = rig.tick();
    assert_eq!((tick.completions, tick.dispatches.total()), (1, 0));
    let count = WakeCount::new();
    assert_eq!(poll_counted(&mut operation, &count), Poll::Ready(Ok(-5)));
    assert_eq!(count.wakes(), 0);
    assert_eq!(operation.token(), None, "the slot was left");
}

#[test]
fn only_the_last_waker_is_woken() {
    let mut rig = Rig::knowing();
    let mut operation = event(&rig, 0);
    let (first, last) = (WakeCount::new(), WakeCount::new());
    for count in [&first, &first, &last] {
        assert!(poll_counted(&mut operation, count).is_pending());
    }
    rig.settle();
    assert!(rig.sim.fire(0, 1));
    rig.settle();
    assert_eq!((first.wakes(), last.wakes()), (0, 1));
    assert_eq!((Arc::strong_count(&first), Arc::strong_count(&last)), (1, 1));
    assert_eq!(ready(operation), Ok(1));
}

#[test]
#[should_panic(expected = "polled after it had given its result")]
fn an_operation_polled_after_its_result_says_so() {
    let mut rig = Rig::knowing();
    let mut operation = event(&rig, 0);
    rig.settle();
    assert!(rig.sim.fire(0, 1));
    rig.settle();
    assert!(poll_once(&mut operation).is_ready());
    let _ = poll_once(&mut operation);
}

// Cancelling.

#[test]
fn a_dropped_operation_is_cancelled_and_its_slot_held_until_the_last_completion() {
    for by_a_task in [false, true] {
        let mut rig = room_for(1);
        let operation = event(&rig, 0);
        rig.settle();
        assert_eq!((rig.sim.held(), rig.remote.armed()), (1, 1));
        if by_a_task {
            // On its own worker, in a tick: the reactor is asked at once.
            let handle = rig.handle.clone();
            let task = rig.handle.spawn(async move {
                drop(operation);
                matches!(
                    handle.submit(SimOperation::Event(1)),
                    Err(SubmitError::Full { capacity: 1, .. })
                )
            });
            assert_eq!(rig.dispatch().unwrap().completions, 0);
            assert!(ready(task).unwrap(), "not free before the completion");
        } else {
            drop(operation);
            assert!(
                matches!(
                    rig.handle.submit(SimOperation::Event(1)),
                    Err(SubmitError::Full { operation: SimOperation::Event(1), capacity: 1 })
                ),
                "not free before the completion"
            );
        }
        rig.settle();
        assert_eq!((rig.sim.held(), rig.remote.armed()), (0, 0));
        let next = event(&rig, 2);
        assert_eq!(next.token(), Some(Token::new(0, 1)), "the same slot, the next generation");
        drop(next);
    }
}

#[test]
fn a_dropped_operations_waker_is_not_woken_nor_kept() {
    let mut rig = Rig::knowing();
    let count = WakeCount::new();
    let mut operation = event(&rig, 0);
    assert!(poll_counted(&mut operation, &count).is_pending());
    rig.settle();
    drop(operation);
    rig.settle();
    assert_eq!((count.wakes(), Arc::strong_count(&count)), (0, 1));
}

#[test]
fn an_operation_dropped_after_its_end_frees_its_slot_at_once_in_a_tick() {
    let mut rig = room_for(1);
    let operation = event(&rig, 0);
    rig.settle();
    assert!(rig.sim.fire(0, 1));
    rig.settle();
    let handle = rig.handle.clone();
    let task = rig.handle.spawn(async move {
        drop(operation);
        handle.submit(SimOperation::Event(1)).is_ok()
    });
    rig.settle();
    assert!(ready(task).unwrap());
}

#[test]
fn a_completion_and_a_cancel_that_cross_are_settled_once() {
    for by_a_task in [false, true] {
        let mut rig = room_for(2);
        let operation = event(&rig, 0);
        rig.settle();
        assert!(rig.sim.fire(0, 1), "reported by the next poll");
        if by_a_task {
            let task = rig.handle.spawn(async move { drop(operation) });
            rig.settle();
            assert!(task.is_finished());
        } else {
            drop(operation);
        }
        rig.settle();
        assert_eq!((rig.sim.held(), rig.remote.armed()), (0, 0));
        let both = [event(&rig, 1), event(&rig, 2)];
        assert!(rig.handle.submit(SimOperation::Event(3)).is_err(), "no slot was freed twice");
        drop(both);
    }
}

#[test]
fn an_operation_dropped_before_it_is_armed_never_ends_for_anybody() {
    let mut rig = room_for(1);
    drop(event(&rig, 0));
    rig.settle();
    assert_eq!((rig.sim.held(), rig.remote.armed()), (0, 0));
    assert!(!rig.sim.fire(0, 1));
    drop(event(&rig, 0));
}

#[test]
fn slots_are_reused_for_ever() {
    let mut rig = room_for(3);
    for round in 0..1_000 {
        let operations = [event(&rig, 0), event(&rig, 1), event(&rig, 2)];
        assert!(matches!(
            rig.handle.submit(SimOperation::Event(9)),
            Err(SubmitError::Full { capacity: 3, .. })
        ));
        rig.settle();
        assert!(rig.sim.fire(round % 3, 0));
        rig.settle();
        drop(operations);
        rig.settle();
        assert_eq!((rig.sim.held(), rig.remote.armed()), (0, 0), "round {round}");
    }
}

// Completions out of the blue.

#[test]
fn stale_and_doubled_completions_reach_nobody() {
    let mut rig = Rig::knowing();
    let count = WakeCount::new();
    let mut first = event(&rig, 0);
    let token = first.token().unwrap();
    assert!(poll_counted(&mut first, &count).is_pending());
    rig.settle();
    // Twice in one poll, then again while the result waits to be taken.
    rig.sim.report(Completion { token, result: 1 });
    rig.sim.report(Completion { token, result: 2 });
    rig.settle();
    rig.sim.report(Completion { token, result: 3 });
    rig.settle();
    assert_eq!(count.wakes(), 1);
    assert_eq!(rig.remote.armed(), 0);
    assert_eq!(ready(first), Ok(1));
    rig.settle();
    // Then while the slot is vacant, and while the next tenant has it.
    rig.sim.report(Completion { token, result: 4 });
    rig.settle();
    let mut next = event(&rig, 1);
    assert_eq!(next.token().unwrap().index(), token.index());
    assert!(poll_counted(&mut next, &count).is_pending());
    rig.sim.report(Completion { token, result: 5 });
    // And such as never were.
    rig.sim.report(Completion { token: Token::new(4_095, 0), result: 6 });
    rig.sim.report(Completion { token: Token::new(u32::MAX, 7), result: 6 });
    let tick = rig.tick();
    assert_eq!(tick.completions, 0);
    rig.settle();
    assert!(poll_counted(&mut next, &count).is_pending());
    assert_eq!((count.wakes(), rig.remote.armed()), (1, 1));
    assert!(rig.sim.fire(1, 7));
    rig.settle();
    assert_eq!(ready(next), Ok(7));
}

#[test]
fn a_completion_after_a_cancels_own_reaches_nobody() {
    let mut rig = room_for(1);
    let first = event(&rig, 0);
    let token = first.token().unwrap();
    rig.settle();
    drop(first);
    rig.settle();
    let mut next = event(&rig, 0);
    rig.sim.report(Completion { token, result: 1 });
    rig.settle();
    assert!(poll_once(&mut next).is_pending());
}

// Refusals.

#[test]
fn a_full_table_gives_the_operation_back_and_names_its_capacity() {
    for capacity in [0, 1, 5] {
        let rig = room_for(capacity);
        let held: Vec<_> = (0..capacity).map(|_| event(&rig, 0)).collect();
        let error = rig.handle.submit(SimOperation::Event(8)).unwrap_err();
        assert!(error.to_string().contains(&format!("all {capacity} operations")), "{error}");
        let SubmitError::Full { operation, capacity: named } = error else {
            panic!("{error:?}");
        };
        assert_eq!((operation, named), (SimOperation::Event(8), capacity));
        drop(held);
    }
}

#[test]
fn a_refused_operation_comes_back_and_its_slot_is_free() {
    let mut rig = room_for(1);
    rig.sim.refuse_next(2);
    for _ in 0..2 {
        let error = rig.handle.submit(SimOperation::Event(3)).unwrap_err();
        assert!(matches!(
            error,
            SubmitError::Refused { operation: SimOperation::Event(3), error: SimError::Refused }
        ));
    }
    let operation = event(&rig, 3);
    rig.settle();
    assert_eq!((rig.sim.held(), rig.remote.armed()), (1, 1));
    drop(operation);
}

#[test]
fn an_operation_submitted_after_the_workers_end_comes_back() {
    let rig = Rig::knowing();
    drop(rig.worker);
    assert!(matches!(
        rig.handle.submit(SimOperation::Event(3)),
        Err(SubmitError::Ended(SimOperation::Event(3)))
    ));
}

// The worker's end.

#[test]
fn an_operation_in_flight_at_the_workers_end_is_orphaned() {
    let mut rig = Rig::knowing();
    let count = WakeCount::new();
    let [mut polled, never_polled, ended] = [0, 1, 2].map(|number| event(&rig, number));
    assert!(poll_counted(&mut polled, &count).is_pending());
    rig.settle();
    assert!(rig.sim.fire(2, 9));
    rig.settle();
    drop(rig.worker);
    assert_eq!((count.wakes(), Arc::strong_count(&count)), (1, 1));
    assert_eq!(ready(polled), Err(Orphaned));
    assert_eq!(ready(never_polled), Err(Orphaned));
    assert_eq!(ready(ended), Ok(9), "its result was there");
}

#[test]
fn an_operation_may_outlive_worker_and_handles() {
    let rig = Rig::knowing();
    let [kept, moved, dropped] = [0, 1, 2].map(|number| event(&rig, number));
    drop(rig);
    drop(dropped);
    assert_eq!(elsewhere(move || ready(moved)), Err(Orphaned));
    assert_eq!(ready(kept), Err(Orphaned));
}

#[test]
fn a_task_dropped_at_the_workers_end_cancels_its_operations() {
    let mut rig = Rig::knowing();
    for number in 0..3 {
        awaited(&rig, event(&rig, number));
    }
    rig.settle();
    assert_eq!(rig.sim.held(), 3);
    drop(rig.worker);
    assert_eq!(rig.sim.held(), 0, "each was cancelled in the reactor");
}

#[test]
fn an_operation_submitted_in_a_drop_at_the_workers_end_is_refused_or_orphaned() {
    type Kept = Rc<RefCell<Vec<InFlight>>>;
    struct SubmitsInDrop(Handle<SimReactor>, Kept);
    impl Drop for SubmitsInDrop {
        fn drop(&mut self) {
            if let Ok(operation) = self.0.submit(SimOperation::Event(0)) {
                self.1.borrow_mut().push(operation);
            }
        }
    }
    let mut rig = Rig::knowing();
    let kept = Kept::default();
    let held = SubmitsInDrop(rig.handle.clone(), Rc::clone(&kept));
    drop(rig.handle.spawn(async move {
        let _held = held;
        std::future::pending::<()>().await;
    }));
    rig.settle();
    drop(rig.worker);
    for operation in kept.take() {
        assert_eq!(ready(operation), Err(Orphaned));
    }
}

#[test]
fn an_operation_submitted_by_a_waker_at_the_workers_end_is_refused_or_orphaned() {
    thread_local! {
        static HANDLE: RefCell<Option<Handle<SimReactor>>> = const { RefCell::new(None) };
        static KEPT: RefCell<Vec<InFlight>> = const { RefCell::new(Vec::new()) };
    }
    struct Submits;
    impl Wake for Submits {
        fn wake(self: Arc<Self>) {
            HANDLE.with_borrow(|handle| {
                let handle = handle.as_ref().expect("set below");
                if let Ok(operation) = handle.submit(SimOperation::Event(0)) {
                    KEPT.with_borrow_mut(|kept| kept.push(operation));
                }
            });
        }
    }
    let rig = Rig::knowing();
    // The slot of the one that is waited for comes after the one that is vacant.
    let vacated = event(&rig, 0);
    let mut waits = event(&rig, 1);
    let mut rig = rig;
    drop(vacated);
    rig.settle();
    HANDLE.set(Some(rig.handle.clone()));
    let waker = Waker::from(Arc::new(Submits));
    assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(rig.worker);
    HANDLE.set(None);
    for operation in KEPT.take() {
        assert_eq!(ready(operation), Err(Orphaned));
    }
}

// Other threads.

#[test]
fn an_operation_is_polled_and_dropped_on_other_threads_while_its_worker_runs() {
    let mut rig = room_for(8);
    let (send, receive) = mpsc::channel::<InFlight>();
    let other = thread::spawn(move || {
        let mut ended = 0;
        while let Ok(operation) = receive.recv() {
            match operation.token().unwrap().index() % 3 {
                // Dropped at once.
                0 => drop(operation),
                // Polled once, then dropped.
                1 => {
                    let mut operation = operation;
                    ended += usize::from(poll_once(&mut operation).is_ready());
                }
                _ => {
                    assert_eq!(evenkeel_tests::wait_for("the result", operation), Ok(6));
                    ended += 1;
                }
            }
        }
        ended
    });
    let mut submitted = 0_u32;
    let start = std::time::Instant::now();
    while submitted < 3_000 {
        assert!(start.elapsed() < evenkeel_tests::DEADLINE, "{submitted} submitted");
        match rig.handle.submit(SimOperation::Event(0)) {
            Ok(operation) => {
                send.send(operation).unwrap();
                submitted += 1;
            }
            Err(error) => assert!(matches!(error, SubmitError::Full { .. }), "{error:?}"),
        }
        rig.tick();
        while rig.sim.fire(0, 6) {}
    }
    drop(send);
    let start = std::time::Instant::now();
    while !other.is_finished() {
        assert!(start.elapsed() < evenkeel_tests::DEADLINE);
        while rig.sim.fire(0, 6) {}
        rig.tick();
    }
    assert!(other.join().unwrap() > 0);
    rig.settle();
    assert_eq!((rig.sim.held(), rig.remote.armed()), (0, 0));
    let all: Vec<_> = (0..8).map(|number| event(&rig, number)).collect();
    assert_eq!(all.len(), 8, "every slot came back");
}

#[test]
fn an_operation_awaited_by_a_task_of_another_worker_wakes_that_one() {
    let (mut one, mut two) = (Rig::knowing(), Rig::knowing());
    let operation = event(&one, 0);
    let result = awaited(&two, operation);
    two.settle();
    one.settle();
    assert!(one.sim.fire(0, 4));
    one.settle();
    assert_eq!(*result.borrow(), None, "not before its worker runs");
    assert_eq!(two.settle(), 1);
    assert_eq!(*result.borrow(), Some(Ok(4)));
    // And dropped there: the cancel is routed to the owner.
    let operation = event(&one, 1);
    one.settle();
    drop(two.handle.spawn(async move { drop(operation) }));
    two.settle();
    assert_eq!(one.sim.held(), 1, "not before its owner runs");
    one.settle();
    assert_eq!((one.sim.held(), one.remote.armed()), (0, 0));
}

#[test]
fn operations_race_the_workers_end() {
    for _ in 0..100 {
        let mut rig = Rig::knowing();
        let operations: Vec<_> = (0..8).map(|number| event(&rig, number)).collect();
        rig.settle();
        let other = thread::spawn(move || {
            for (number, mut operation) in operations.into_iter().enumerate() {
                if number % 2 == 0 && poll_once(&mut operation).is_ready() {
                    continue;
                }
                if number % 3 == 0 {
                    let ended = evenkeel_tests::wait_for("its end", &mut operation);
                    assert!(ended == Err(Orphaned) || ended == Ok(1));
                }
            }
        });
        assert!(rig.sim.fire(3, 1));
        rig.tick();
        drop(rig);
        other.join().unwrap();
    }
}

// What is armed.

#[test]
fn armed_counts_what_the_kernel_has() {
    for sight in Sight::BOTH {
        let mut rig = Rig::new(sight);
        let armed_at_once = usize::from(sight == Sight::Blind);
        let mut operations: Vec<_> = (0..3).map(|number| event(&rig, number)).collect();
        assert_eq!(rig.remote.armed(), 3 * armed_at_once, "{sight:?}");
        rig.settle();
        assert_eq!(rig.remote.armed(), 3);
        assert!(rig.sim.fire(1, 0));
        assert_eq!(rig.remote.armed(), 3, "until it is reported");
        rig.worker.park(Wait::Never).unwrap();
        rig.settle();
        assert_eq!(rig.remote.armed(), 2);
        drop(operations.remove(0));
        rig.settle();
        rig.worker.park(Wait::Never).unwrap();
        assert_eq!(rig.remote.armed(), 1);
        drop(operations);
        rig.settle();
        rig.worker.park(Wait::Never).unwrap();
        assert_eq!((rig.remote.armed(), rig.sim.held()), (0, 0));
    }
}

#[test]
fn an_operation_cancelled_before_it_was_armed_leaves_the_count_of_the_others() {
    let mut rig = Rig::knowing();
    let armed = event(&rig, 0);
    rig.settle();
    assert_eq!(rig.remote.armed(), 1);
    let task = rig.handle.spawn({
        let handle = rig.handle.clone();
        async move { drop(handle.submit(SimOperation::Event(1))) }
    });
    rig.settle();
    assert!(task.is_finished());
    assert_eq!(rig.remote.armed(), 1, "the other is armed still");
    drop(armed);
}

#[test]
fn an_operation_that_ends_in_the_poll_that_arms_it_counts_up_and_down() {
    let mut rig = Rig::knowing();
    let result = awaited(&rig, rig.handle.submit(SimOperation::After(Duration::ZERO)).unwrap());
    rig.settle();
    assert_eq!(*result.borrow(), Some(Ok(0)));
    assert_eq!(rig.remote.armed(), 0);
}

#[test]
fn a_reactor_that_failed_may_be_run_again() {
    let mut rig = Rig::knowing();
    rig.settle();
    assert_eq!(rig.worker.park(Wait::Forever), Err(SimError::Hang));
    let result = awaited(&rig, event(&rig, 0));
    rig.settle();
    assert!(rig.sim.fire(0, 1));
    rig.settle();
    assert_eq!(*result.borrow(), Some(Ok(1)));
    assert_eq!(rig.tick().rest, Rest::Idle);
}

#[test]
fn two_operations_are_awaited_at_once() {
    let mut rig = Rig::knowing();
    let (mut one, mut two) = (Some(event(&rig, 0)), Some(event(&rig, 1)));
    let task = rig.handle.spawn(poll_fn(move |context| {
        for side in [&mut one, &mut two] {
            if side.as_mut().is_some_and(|operation| Pin::new(operation).poll(context).is_ready()) {
                *side = None;
            }
        }
        if one.is_none() && two.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }));
    rig.settle();
    // Both in one poll of the reactor: one wake, one dispatch.
    assert!(rig.sim.fire(0, 0) && rig.sim.fire(1, 0));
    assert_eq!(rig.settle(), 1);
    assert!(task.is_finished());
}

#[test]
fn what_a_failing_poll_found_is_delivered() {
    let mut rig = Rig::knowing();
    let (first, second) = (awaited(&rig, event(&rig, 1)), awaited(&rig, event(&rig, 2)));
    rig.settle();
    assert!(rig.sim.fire(1, 10));
    rig.sim.fail_next_poll();
    let failed = (0..4).find_map(|_| rig.worker.tick().err());
    assert_eq!(failed, Some(SimError::Failed));
    rig.settle();
    assert_eq!((*first.borrow(), *second.borrow()), (Some(Ok(10)), None));
    assert_eq!(rig.remote.armed(), 1);
    assert!(rig.sim.fire(2, 20));
    rig.settle();
    assert_eq!((*second.borrow(), rig.remote.armed()), (Some(Ok(20)), 0));
}

#[test]
fn nothing_is_armed_when_the_worker_has_ended() {
    let mut rig = Rig::knowing();
    let waiting = event(&rig, 1);
    rig.settle();
    assert_eq!(rig.remote.armed(), 1);
    let Rig { worker, remote, .. } = rig;
    drop(worker);
    assert_eq!(remote.armed(), 0);
    assert_eq!(ready(waiting), Err(Orphaned));
}
