//! Wakes: from inside the worker's tick, from outside of it, from other threads and other workers.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use evenkeel::testing::SimOperation;
use evenkeel::{Lane, Rest, yield_now};
use evenkeel_tests::{Rig, Tally, WakeCount, WakerSlot, elsewhere, ready, seen};

/// Spawns a task that leaves its waker and waits for ever, with its polls counted.
fn waiting(rig: &Rig) -> (Tally, WakerSlot) {
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    let leave = slot.clone();
    drop(rig.handle.spawn(tally.future(move |context| {
        leave.put(context.waker());
        Poll::<()>::Pending
    })));
    (tally, slot)
}

#[test]
fn three_wakes_make_one_poll() {
    let mut rig = Rig::knowing();
    let (tally, slot) = waiting(&rig);
    rig.settle();
    let waker = slot.get();
    // From outside of the tick.
    (0..3).for_each(|_| waker.wake_by_ref());
    assert_eq!(rig.settle(), 1);
    // From another thread.
    let remote = waker.clone();
    elsewhere(move || (0..3).for_each(|_| remote.wake_by_ref()));
    assert_eq!(rig.settle(), 1);
    // By another task.
    let local = waker.clone();
    drop(rig.handle.spawn(async move { (0..3).for_each(|_| local.wake_by_ref()) }));
    assert_eq!(rig.settle(), 2);
    assert_eq!(tally.seen(), seen(4, 0, 0));
}

#[test]
fn a_task_that_wakes_itself_three_times_in_a_poll_is_polled_once_more() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let mut first = true;
    let task = rig.handle.spawn(tally.future(move |context| {
        if std::mem::take(&mut first) {
            (0..3).for_each(|_| context.waker().wake_by_ref());
            let clone = context.waker().clone();
            clone.wake();
        }
        Poll::<()>::Pending
    }));
    assert_eq!(rig.settle(), 2);
    assert_eq!(tally.seen(), seen(2, 0, 0));
    drop(task);
}

#[test]
fn a_wake_from_another_thread_during_the_poll_is_not_lost() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let mut left = 5;
    drop(rig.handle.spawn(tally.future(move |context| {
        if left > 0 {
            left -= 1;
            let waker = context.waker().clone();
            elsewhere(move || waker.wake());
        }
        Poll::<()>::Pending
    })));
    let lanes: Vec<Lane> = rig.dispatches(6).iter().map(|step| step.lane).collect();
    assert_eq!((lanes[0], lanes[1..].to_vec()), (Lane::Local, vec![Lane::Remote; 5]));
    assert_eq!(rig.settle(), 0);
    assert_eq!(tally.seen(), seen(6, 0, 0));
}

/// Runs named tasks and notes their turns.
#[derive(Clone, Default)]
struct Turns(Rc<RefCell<String>>);

impl Turns {
    /// A task that notes its polls and waits.
    fn waiting(&self, rig: &Rig, name: char) -> WakerSlot {
        let (turns, slot) = (self.clone(), WakerSlot::new());
        let leave = slot.clone();
        drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
            leave.put(context.waker());
            turns.0.borrow_mut().push(name);
            Poll::Pending
        })));
        slot
    }

    /// A task that notes its one poll.
    fn once(&self, rig: &Rig, name: char) {
        let turns = self.clone();
        drop(rig.handle.spawn(async move { turns.0.borrow_mut().push(name) }));
    }

    fn take(&self) -> String {
        self.0.take()
    }
}

#[test]
fn a_wake_of_a_queued_task_leaves_it_in_its_place() {
    let mut rig = Rig::knowing();
    let turns = Turns::default();
    let a = turns.waiting(&rig, 'a');
    rig.settle();
    turns.take();
    // A task wakes it, and others queue up behind it; then it is woken again.
    let (handle, waker, then) = (rig.handle.clone(), a.get(), turns.clone());
    let by_task = rig.handle.spawn(async move {
        waker.wake_by_ref();
        for name in ['b', 'c'] {
            let turns = then.clone();
            drop(handle.spawn(async move { turns.0.borrow_mut().push(name) }));
        }
        waker.wake();
    });
    rig.settle();
    assert_eq!(turns.take(), "abc");
    assert!(by_task.is_finished());
}

#[test]
fn a_wake_from_another_thread_leaves_a_task_at_the_back_of_a_long_lane() {
    let mut rig = Rig::knowing();
    let (tally, slot) = waiting(&rig);
    rig.settle();
    rig.backlog(50);
    let waker = slot.get();
    drop(rig.handle.spawn(async move { waker.wake() }));
    rig.dispatches(51);
    // Queued behind fifty now; the inbox entry does not move it.
    let waker = slot.take();
    elsewhere(move || waker.wake());
    let steps = rig.dispatches(50);
    assert!(steps.iter().all(|step| step.lane == Lane::Local));
    assert_eq!(steps.iter().map(|step| step.settled).sum::<u32>(), 1);
    assert_eq!(tally.seen(), seen(1, 0, 0));
    rig.dispatch().unwrap();
    assert_eq!(tally.seen(), seen(2, 0, 0), "and it is polled once for both");
    rig.dispatches(200);
    assert_eq!(tally.seen(), seen(2, 0, 0));
}

#[test]
fn a_task_woken_first_from_outside_and_then_by_a_task_keeps_its_earlier_turn() {
    let mut rig = Rig::knowing();
    let (tally, slot) = waiting(&rig);
    let from_inside = WakerSlot::new();
    let wakes = {
        let (slot, leave) = (slot.clone(), from_inside.clone());
        let mut polls = 0;
        rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
            leave.put(context.waker());
            polls += 1;
            if polls == 2 {
                // Out of the inbox, before the other is taken from there.
                slot.get().wake();
            }
            Poll::Pending
        }))
    };
    rig.settle();
    rig.backlog(50);
    rig.dispatches(50);
    from_inside.get().wake();
    slot.get().wake();
    let lanes: Vec<Lane> = rig.dispatches(4).iter().map(|step| step.lane).collect();
    assert_eq!(lanes.iter().filter(|&&lane| lane == Lane::Remote).count(), 2, "{lanes:?}");
    assert_eq!(tally.seen(), seen(2, 0, 0), "not behind the backlog");
    // Its entry in the local lane may poll it once in vain.
    rig.dispatches(200);
    assert!(tally.seen().polls <= 3);
    drop(wakes);
}

#[test]
fn wakes_by_a_running_task_go_to_the_back_of_the_local_lane() {
    let mut rig = Rig::knowing();
    let turns = Turns::default();
    let (a, b) = (turns.waiting(&rig, 'a'), turns.waiting(&rig, 'b'));
    rig.settle();
    turns.take();
    let wakers = [b.get(), a.get()];
    drop(rig.handle.spawn(async move { wakers.into_iter().for_each(Waker::wake) }));
    turns.once(&rig, 'x');
    rig.settle();
    assert_eq!(turns.take(), "xba");
}

#[test]
fn a_task_woken_by_a_completion_comes_from_the_io_lane_and_whom_it_wakes_from_the_local_one() {
    let mut rig = Rig::knowing();
    let (_, slot) = waiting(&rig);
    let handle = rig.handle.clone();
    drop(rig.handle.spawn(async move {
        handle.submit(SimOperation::Event(0)).unwrap().await.unwrap();
        slot.get().wake();
    }));
    rig.settle();
    assert!(rig.sim.fire(0, 0));
    let lanes: Vec<Lane> = rig.dispatches(2).iter().map(|step| step.lane).collect();
    assert_eq!(lanes, [Lane::Io, Lane::Local]);
}

// Wakers that outlive.

#[test]
fn a_waker_that_outlives_its_task_wakes_nobody_and_keeps_only_memory() {
    let mut rig = Rig::knowing();
    let (tally, slot) = (Tally::new(), WakerSlot::new());
    let leave = slot.clone();
    drop(rig.handle.spawn(tally.future(move |context| {
        leave.put(context.waker());
        Poll::Ready(())
    })));
    rig.settle();
    assert_eq!(tally.seen(), seen(1, 1, 0), "the waker keeps no future alive");
    let waker = slot.take();
    waker.wake_by_ref();
    let clone = waker.clone();
    elsewhere(move || clone.wake());
    drop(rig.handle.spawn(async move { waker.wake() }));
    let tick = rig.tick();
    assert_eq!((tick.dispatches.total(), tick.settled), (1, 0));
    assert_eq!(tally.seen(), seen(1, 1, 0));
}

#[test]
fn a_waker_that_outlives_its_worker_wakes_nobody() {
    let mut rig = Rig::knowing();
    let (tally, slot) = waiting(&rig);
    rig.settle();
    let waker = slot.take();
    drop(rig.worker);
    drop((rig.handle, rig.remote, rig.sim));
    assert_eq!(tally.seen(), seen(1, 1, 0));
    let clones: Vec<Waker> = (0..4).map(|_| waker.clone()).collect();
    thread::scope(|scope| {
        for clone in clones {
            scope.spawn(|| {
                clone.wake_by_ref();
                let again = clone.clone();
                drop(clone);
                again.wake();
            });
        }
    });
    waker.wake();
    assert_eq!(tally.seen(), seen(1, 1, 0));
}

#[test]
fn wakes_race_the_workers_end() {
    for _ in 0..100 {
        let mut rig = Rig::knowing();
        let tasks: Vec<_> = (0..8).map(|_| waiting(&rig)).collect();
        rig.settle();
        let wakers: Vec<Waker> = tasks.iter().map(|(_, slot)| slot.take()).collect();
        let other = thread::spawn(move || {
            for _ in 0..20 {
                wakers.iter().for_each(Waker::wake_by_ref);
            }
        });
        for _ in 0..3 {
            rig.tick();
        }
        drop(rig.worker);
        other.join().unwrap();
        for (tally, _) in tasks {
            assert_eq!(tally.seen().future_drops, 1);
        }
    }
}

#[test]
fn a_waker_is_told_from_that_of_another_task() {
    let mut rig = Rig::knowing();
    let (a, b) = (waiting(&rig).1, waiting(&rig).1);
    rig.settle();
    assert!(a.get().will_wake(&a.get()));
    assert!(!a.get().will_wake(&b.get()));
    let before = a.get();
    before.wake_by_ref();
    rig.settle();
    assert!(a.get().will_wake(&before), "the same from poll to poll");
}

// Several workers.

#[test]
fn two_workers_ticked_in_turn_on_one_thread_wake_their_own() {
    let (mut one, mut two) = (Rig::knowing(), Rig::knowing());
    let (first, second) = (waiting(&one), waiting(&two));
    one.settle();
    two.settle();
    // Each wakes the other's task: through the other's inbox.
    let waker = second.1.get();
    drop(one.handle.spawn(async move { waker.wake() }));
    let waker = first.1.get();
    drop(two.handle.spawn(async move { waker.wake() }));
    assert_eq!(one.tick().dispatches.total(), 1);
    assert_eq!((first.0.seen(), second.0.seen()), (seen(1, 0, 0), seen(1, 0, 0)));
    let mut lanes: Vec<Lane> = two.dispatches(2).iter().map(|step| step.lane).collect();
    lanes.dedup();
    assert_eq!(lanes.len(), 2, "one wake through the inbox, one new task");
    assert_eq!(one.dispatch().unwrap().lane, Lane::Remote);
    assert_eq!((one.settle(), two.settle()), (0, 0));
    assert_eq!((first.0.seen(), second.0.seen()), (seen(2, 0, 0), seen(2, 0, 0)));
}

#[test]
fn a_worker_ticked_inside_a_task_of_another_leaves_its_wakes_alone() {
    let (mut outer, inner) = (Rig::knowing(), Rig::knowing());
    let (waits, slot) = waiting(&outer);
    outer.settle();
    let (own_before, own_after) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (before, after) = (Rc::clone(&own_before), Rc::clone(&own_after));
    let from_inner = slot.get();
    let _spawned = inner.handle.spawn(async move {
        // By a task of the inner worker: the outer one's inbox.
        from_inner.wake();
        yield_now().await;
    });
    let remote = outer.remote.clone();
    let mut inner = Some(inner);
    let task = outer.handle.spawn(poll_fn(move |context| {
        let Some(mut inner) = inner.take() else { return Poll::Ready(()) };
        before.set(remote.stats().dispatches);
        assert_eq!(inner.settle(), 2);
        drop(inner);
        after.set(remote.stats().dispatches);
        // By the outer worker's own task, after the nested tick: cheap, and its local lane.
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    let lanes: Vec<Lane> = outer.dispatches(3).iter().map(|step| step.lane).collect();
    assert_eq!(lanes.iter().filter(|&&lane| lane == Lane::Local).count(), 2, "{lanes:?}");
    assert_eq!(outer.settle(), 0);
    assert_eq!(waits.seen(), seen(2, 0, 0));
    assert_eq!(own_before.get(), own_after.get());
    assert!(task.is_finished());
}

// Combinators.

/// Wakes a task's waker, and counts.
struct Relay(Waker, Arc<WakeCount>);

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        Arc::clone(&self.1).wake();
        self.0.wake_by_ref();
    }
}

#[test]
fn an_operation_polled_through_a_combinators_waker_wakes_the_task() {
    let mut rig = Rig::knowing();
    let count = WakeCount::new();
    let (handle, counted) = (rig.handle.clone(), Arc::clone(&count));
    let task = rig.handle.spawn(async move {
        // A select, by hand: each branch has a waker of its own.
        let mut branches =
            [0, 1].map(|event| Some(Box::pin(handle.submit(SimOperation::Event(event)).unwrap())));
        let mut ended = Vec::new();
        poll_fn(move |context| {
            for branch in &mut branches {
                let waker = Arc::new(Relay(context.waker().clone(), Arc::clone(&counted))).into();
                let polled =
                    branch.as_mut().map(|it| it.as_mut().poll(&mut Context::from_waker(&waker)));
                if let Some(Poll::Ready(result)) = polled {
                    *branch = None;
                    ended.push(result.unwrap());
                }
            }
            if ended.len() == 2 { Poll::Ready(std::mem::take(&mut ended)) } else { Poll::Pending }
        })
        .await
    });
    rig.settle();
    assert!(rig.sim.fire(1, 11));
    assert_eq!(rig.dispatch().unwrap().lane, Lane::Io, "the relay is woken by the completion");
    assert!(rig.sim.fire(0, 10));
    assert_eq!(rig.settle(), 1);
    assert_eq!(ready(task).unwrap(), [11, 10]);
    assert_eq!(count.wakes(), 2);
}

#[test]
fn a_race_drops_the_loser() {
    let mut rig = Rig::knowing();
    let handle = rig.handle.clone();
    let loser = Tally::new();
    let slow = loser.pending();
    let task = rig.handle.spawn(async move {
        let mut fast = pin!(handle.submit(SimOperation::Event(0)).unwrap());
        let mut slow = slow;
        let won = poll_fn(|context| {
            let _ = Pin::new(&mut slow).poll(context);
            fast.as_mut().poll(context)
        })
        .await;
        drop(slow);
        won.unwrap()
    });
    rig.settle();
    assert!(rig.sim.fire(0, 8));
    rig.settle();
    assert_eq!(ready(task).unwrap(), 8);
    assert_eq!(loser.seen(), seen(2, 1, 0));
}

#[test]
fn a_task_polled_in_anothers_executor_does_not_confuse_its_own() {
    // A future that polls a boxed one with a waker of no worker.
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let mut foreign = tally.yielding(2);
    let task = rig.handle.spawn(poll_fn(move |_| {
        for _ in 0..2 {
            assert!(
                Pin::new(&mut foreign).poll(&mut Context::from_waker(Waker::noop())).is_pending()
            );
        }
        Poll::Ready(())
    }));
    assert_eq!(rig.settle(), 1);
    assert!(ready(task).is_ok());
    assert_eq!(tally.seen(), seen(2, 1, 0));
}

#[test]
fn an_idle_worker_with_waiting_tasks_rests() {
    let mut rig = Rig::knowing();
    for _ in 0..10 {
        drop(rig.handle.spawn(pending::<()>()));
    }
    assert_eq!(rig.settle(), 10);
    for _ in 0..3 {
        let tick = rig.tick();
        assert_eq!((tick.dispatches.total(), tick.polls, tick.rest), (0, 0, Rest::Idle));
    }
}
