//! Misuse: each is an error value or a documented panic, and leaves the others whole. What is a
//! compile error is shown in the documentation of what it concerns, and of this package's library.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::link::{Link, Linked};
use evenkeel::operation::Operations;
use evenkeel::steal::{Haul, StealQueue, Stolen};
use evenkeel::testing::{Sim, SimOperation, SimReactor, VirtualClock};
use evenkeel::{
    Completion, Handle, JoinError, Lane, Rest, SubmitError, TaskStorage, Wait, Worker,
    WorkerConfig, WorkerStorage, yield_now,
};
use evenkeel_tests::{Random, Rig, Sight, Tally, WakerSlot, elsewhere, poll_once, ready, seen};

/// A static worker's room.
type Storage<const OPERATIONS: usize> = WorkerStorage<SimReactor, VirtualClock, OPERATIONS>;
type SimWorker = Worker<SimReactor, VirtualClock>;

fn worker_in<const OPERATIONS: usize>(storage: &'static Storage<OPERATIONS>) -> (SimWorker, Sim) {
    let clock = VirtualClock::new();
    let reactor = SimReactor::new(&clock);
    let sim = reactor.control();
    (Worker::new_in(storage, reactor, clock, WorkerConfig::default()).unwrap(), sim)
}

fn settle(worker: &mut SimWorker) {
    while worker.tick().unwrap().rest != Rest::Idle {}
}

/// What a documented panic says.
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { panic!("it did not panic") };
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).expect("a message")
}

// Task storage.

#[test]
fn a_full_storage_names_itself_and_its_size() {
    static POOL: TaskStorage<512, 3> = TaskStorage::new("connections");
    let places = [(); 3].map(|()| POOL.reserve().unwrap());
    let full = POOL.reserve().unwrap_err();
    assert_eq!((full.name(), full.places()), ("connections", 3));
    let text = full.to_string();
    assert!(text.contains("`connections`") && text.contains("3 of 3"), "{text}");
    drop(places);
    assert!(POOL.reserve().is_ok());
}

#[test]
fn a_place_that_is_dropped_unused_is_given_back_on_any_thread() {
    static POOL: TaskStorage<512> = TaskStorage::new("one");
    for _ in 0..100 {
        let place = POOL.reserve().unwrap();
        assert!(POOL.reserve().is_err());
        elsewhere(move || drop(place));
    }
}

#[test]
fn a_task_may_be_spawned_again_in_the_place_of_one_that_has_ended() {
    static POOL: TaskStorage<512> = TaskStorage::new("again");
    let (mut rig, tally) = (Rig::knowing(), Tally::new());
    for round in 1..=100 {
        let task = rig.handle.spawn_in(POOL.reserve().unwrap(), tally.yielding(1));
        assert!(POOL.reserve().is_err(), "it runs");
        rig.settle();
        assert!(POOL.reserve().is_err(), "its output is there");
        drop(ready(task).unwrap());
        assert_eq!(tally.seen(), seen(2 * round, round, round));
        assert_eq!(format!("{:?}", POOL.reserve().unwrap()), "Place { bytes: 512, .. }");
    }
}

#[test]
fn a_place_is_held_by_the_last_clone_of_a_waker() {
    static POOL: TaskStorage<512> = TaskStorage::new("woken");
    let (mut rig, slot) = (Rig::knowing(), WakerSlot::new());
    let leave = slot.clone();
    let ends = poll_fn(move |context| {
        leave.put(context.waker());
        Poll::Ready(())
    });
    drop(rig.handle.spawn_in(POOL.reserve().unwrap(), ends));
    rig.settle();
    let waker = slot.take();
    let clone = waker.clone();
    waker.wake();
    assert!(POOL.reserve().is_err(), "a clone is left");
    rig.settle();
    elsewhere(move || drop(clone));
    assert!(POOL.reserve().is_ok());
}

#[test]
fn a_place_is_vacant_again_however_its_task_ends() {
    static POOL: TaskStorage<512> = TaskStorage::new("ends");
    let mut rig = Rig::knowing();
    let task = rig.handle.spawn_in(POOL.reserve().unwrap(), async { panic!("on purpose") });
    rig.settle();
    assert!(matches!(ready(task), Err(JoinError::Panicked(_))));
    let task = rig.handle.spawn_in(POOL.reserve().unwrap(), pending::<()>());
    rig.settle();
    task.abort();
    drop(task);
    assert!(POOL.reserve().is_err(), "not aborted yet");
    rig.settle();
    drop(rig.handle.spawn_in(POOL.reserve().unwrap(), pending::<()>()));
    drop(rig.worker);
    assert!(POOL.reserve().is_ok());
}

#[test]
fn of_eight_threads_that_reserve_at_once_exactly_as_many_succeed_as_there_are_places() {
    const PLACES: usize = 13;
    static POOL: TaskStorage<256, PLACES> = TaskStorage::new("shared");
    for _ in 0..50 {
        let start = Barrier::new(8);
        let won = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let mine: Vec<_> = (0..PLACES).filter_map(|_| POOL.reserve().ok()).collect();
                    won.fetch_add(mine.len(), Ordering::SeqCst);
                    // Held until all have tried.
                    start.wait();
                    drop(mine);
                });
            }
        });
        assert_eq!(won.load(Ordering::SeqCst), PLACES);
    }
}

#[test]
fn threads_that_share_a_storage_never_share_a_place() {
    static POOL: TaskStorage<512, 4> = TaskStorage::new("contended");
    let ran = Arc::new(AtomicUsize::new(0));
    let counts: Vec<usize> = thread::scope(|scope| {
        let spawn = |_| {
            let ran = Arc::clone(&ran);
            scope.spawn(move || {
                let (mut rig, mut spawned) = (Rig::knowing(), 0);
                for round in 0..2_000_usize {
                    let Ok(place) = POOL.reserve() else { continue };
                    let count = Arc::clone(&ran);
                    let task = rig.handle.spawn_in(place, async move {
                        let mine = [round; 8];
                        yield_now().await;
                        count.fetch_add(1, Ordering::SeqCst);
                        mine
                    });
                    rig.settle();
                    assert_eq!(ready(task).unwrap(), [round; 8], "nobody else wrote there");
                    spawned += 1;
                }
                spawned
            })
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<usize>(), ran.load(Ordering::SeqCst));
}

// Workers in statics.

#[test]
fn a_static_serves_one_worker_for_ever() {
    static WORKER: Storage<2> = WorkerStorage::new();
    let (worker, _) = worker_in(&WORKER);
    let refuse = || {
        let clock = VirtualClock::new();
        clock.advance(Duration::from_nanos(77));
        let reactor = SimReactor::new(&clock);
        let config = WorkerConfig::default();
        let taken = Worker::new_in(&WORKER, reactor, clock.clone(), config).unwrap_err();
        assert!(taken.to_string().contains("serves once"), "{taken}");
        // What was to go into it comes back.
        assert_eq!(evenkeel::Clock::now(&taken.clock).as_nanos(), 77);
        drop(taken.reactor);
    };
    refuse();
    drop(worker);
    refuse();
    thread::scope(|scope| scope.spawn(refuse).join().unwrap());
}

#[test]
fn of_eight_threads_that_take_a_static_worker_at_once_one_gets_it() {
    static WORKER: Storage<1> = WorkerStorage::new();
    let (start, won) = (Barrier::new(8), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let clock = VirtualClock::new();
                let reactor = SimReactor::new(&clock);
                start.wait();
                if let Ok(mut worker) =
                    Worker::new_in(&WORKER, reactor, clock, WorkerConfig::default())
                {
                    won.fetch_add(1, Ordering::SeqCst);
                    drop(worker.handle().spawn(yield_now()));
                    settle(&mut worker);
                }
            });
        }
    });
    assert_eq!(won.load(Ordering::SeqCst), 1);
}

/// Leaves the waker of a task that waits, ends its worker, and uses the waker in every way.
fn use_a_waker_after_its_workers_end(handle: &Handle<SimReactor>, mut worker: SimWorker) {
    let (slot, tally) = (WakerSlot::new(), Tally::new());
    let leave = slot.clone();
    let task = handle.spawn(tally.future(move |context| -> Poll<()> {
        leave.put(context.waker());
        Poll::Pending
    }));
    settle(&mut worker);
    drop(worker);
    assert!(matches!(ready(task), Err(JoinError::Cancelled)));
    let waker = slot.take();
    waker.wake_by_ref();
    let clone = waker.clone();
    elsewhere(move || {
        clone.wake_by_ref();
        clone.wake();
    });
    waker.wake();
    assert_eq!(tally.seen(), seen(1, 1, 0));
}

#[test]
fn a_waker_that_outlives_a_counted_worker_is_harmless() {
    let Rig { worker, handle, remote, .. } = Rig::knowing();
    drop(remote);
    use_a_waker_after_its_workers_end(&handle, worker);
}

#[test]
fn a_waker_that_outlives_a_static_worker_is_harmless() {
    static WORKER: Storage<2> = WorkerStorage::new();
    let (worker, _) = worker_in(&WORKER);
    use_a_waker_after_its_workers_end(&worker.handle(), worker);
}

#[test]
fn a_static_worker_does_all_that_a_counted_one_does() {
    static WORKER: Storage<2> = WorkerStorage::new();
    static TASKS: TaskStorage<1_024, 3> = TaskStorage::new("tasks");
    let (mut worker, sim) = worker_in(&WORKER);
    let (handle, remote) = (worker.handle(), worker.remote());
    let operations = handle.clone();
    let answer = handle.spawn_in(TASKS.reserve().unwrap(), async move {
        operations.submit(SimOperation::Event(3)).unwrap().await.unwrap()
    });
    let submitted = elsewhere({
        let remote = remote.clone();
        move || {
            remote.spawn_with_in(TASKS.reserve().unwrap(), |handle| async move {
                handle.sleep(Duration::from_nanos(900)).await;
                8
            })
        }
    });
    settle(&mut worker);
    assert!(sim.fire(3, 42));
    settle(&mut worker);
    worker.park(Wait::Forever).unwrap();
    settle(&mut worker);
    assert_eq!((ready(answer).unwrap(), ready(submitted).unwrap()), (42, 8));
    remote.stop();
    assert_eq!(worker.tick().unwrap().rest, Rest::Stopped);
    drop(worker);
    assert!(remote.is_ended());
}

// Nothing at all.

#[test]
fn a_worker_without_room_for_operations_says_so() {
    static WORKER: Storage<0> = WorkerStorage::new();
    let (worker, _) = worker_in(&WORKER);
    let mut rig = Rig::with(Sight::Knowing, WorkerConfig::default().operations(0), |it| it);
    for handle in [rig.handle.clone(), worker.handle()] {
        let error = handle.submit(SimOperation::Event(5)).unwrap_err();
        assert!(error.to_string().contains("all 0 operations"), "{error}");
        let SubmitError::Full { operation, capacity } = error else { panic!("{error:?}") };
        assert_eq!((operation, capacity), (SimOperation::Event(5), 0));
    }
    // Everything else it does.
    let handle = rig.handle.clone();
    let task = rig.handle.spawn(async move { handle.sleep(Duration::from_nanos(5)).await });
    rig.settle();
    rig.worker.park(Wait::Forever).unwrap();
    rig.settle();
    assert!(task.is_finished());
}

#[test]
fn a_table_without_room_is_always_full() {
    let operations = Operations::new(0, Waker::noop().clone());
    let full = operations.start().unwrap_err();
    assert_eq!(full.capacity(), 0);
    assert!(full.to_string().contains("all 0 operations"), "{full}");
    assert_eq!(operations.next_cancel(), None);
}

#[test]
fn a_completion_of_an_operation_that_never_was_reaches_nobody() {
    let mut rig = Rig::with(Sight::Knowing, WorkerConfig::default().operations(1), |it| it);
    let token = evenkeel::Token::new(u32::MAX, u32::MAX);
    rig.sim.report(Completion { token, result: 1 });
    assert_eq!(rig.settle(), 0);
}

// Queues whose numbers wrap.

#[repr(C)]
struct Job {
    link: Link,
    number: usize,
}

struct Boxed(Box<Job>);

// SAFETY: a box is the only handle on what it holds, which stays where it is; the link comes first.
unsafe impl Linked for Boxed {
    fn into_link(self) -> NonNull<Link> {
        NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        // SAFETY: made by `into_link`, and given back once, by the contract.
        Self(unsafe { Box::from_raw(link.cast().as_ptr()) })
    }
}

#[test]
fn a_queue_keeps_its_order_past_the_wrap_of_its_numbers() {
    let wraps = [usize::MAX, u32::MAX as usize, (1 << 31) - 1, u16::MAX as usize];
    for (seed, last) in (0..).zip(wraps) {
        let mut random = Random::new(seed);
        let queue = StealQueue::<Boxed, 8>::starting_at(last - 300);
        let other = StealQueue::<Boxed, 8>::starting_at(last - 40);
        let (owner, thief) = (queue.claim().unwrap(), other.claim().unwrap());
        let (mut pushed, mut taken) = (0, vec![Vec::new(); 2]);
        while pushed < 1_000 {
            for _ in 0..random.below(20) {
                owner.push(Boxed(Box::new(Job { link: Link::new(), number: pushed })));
                pushed += 1;
            }
            for _ in 0..random.below(12) {
                taken[0].extend(owner.pop().map(|job| job.0.number));
            }
            if let Stolen::Item(job) = queue.steal() {
                taken[1].push(job.0.number);
            }
            if let Haul::Moved(count) = thief.steal_from(&queue) {
                taken[1].extend((0..count.get()).map(|_| thief.pop().unwrap().0.number));
            }
        }
        taken[0].extend(std::iter::from_fn(|| owner.pop()).map(|job| job.0.number));
        assert!(taken.iter().all(|numbers| numbers.is_sorted()), "from {last}: {taken:?}");
        assert!(taken[1].len() > 100, "{} stolen", taken[1].len());
        let mut all = taken.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..pushed), "each once");
    }
}

#[test]
fn a_queue_has_one_owner_at_a_time() {
    let queue = StealQueue::<Boxed, 2>::new();
    let owner = queue.claim().unwrap();
    assert!(queue.claim().is_none());
    drop(owner);
    assert!(queue.claim().is_some());
}

// Ticks inside of ticks.

#[test]
fn a_worker_ticked_from_inside_its_own_task_is_a_panic_of_that_task_and_nothing_more() {
    let clock = VirtualClock::new();
    let reactor = SimReactor::new(&clock);
    let worker = Worker::new(reactor, clock, WorkerConfig::default());
    let handle = worker.handle();
    let worker = Rc::new(RefCell::new(worker));
    let inner = Rc::clone(&worker);
    let ticks = handle.spawn(async move {
        let _ = inner.borrow_mut().tick();
    });
    let inner = Rc::clone(&worker);
    let parks = handle.spawn(async move {
        let _ = inner.borrow_mut().park(Wait::Never);
    });
    let tally = Tally::new();
    let other = handle.spawn(tally.yielding(3));
    settle(&mut worker.borrow_mut());
    for task in [ticks, parks] {
        let Err(JoinError::Panicked(_)) = ready(task) else { panic!("it was borrowed") };
    }
    drop(ready(other).unwrap());
    assert_eq!(tally.seen(), seen(4, 1, 1));
    // Who asks first is told, and goes on.
    let inner = Rc::clone(&worker);
    let asks = handle.spawn(async move {
        assert!(inner.try_borrow_mut().is_err());
        yield_now().await;
        5
    });
    settle(&mut worker.borrow_mut());
    assert_eq!(ready(asks).unwrap(), 5);
}

#[test]
fn workers_nested_three_deep_wake_their_own_tasks_and_each_others() {
    static WORKER: Storage<2> = WorkerStorage::new();
    let (innermost, _) = worker_in(&WORKER);
    let (mut outer, middle) = (Rig::knowing(), Rig::knowing());
    let waiting = |handle: &Handle<SimReactor>, tally: &Tally| {
        let slot = WakerSlot::new();
        let leave = slot.clone();
        drop(handle.spawn(tally.future(move |context| -> Poll<()> {
            leave.put(context.waker());
            Poll::Pending
        })));
        slot
    };
    let tallies = [(); 3].map(|()| Tally::new());
    let (middle, innermost) = (RefCell::new(middle), RefCell::new(innermost));
    let slots = Rc::new([
        waiting(&outer.handle, &tallies[0]),
        waiting(&middle.borrow().handle, &tallies[1]),
        waiting(&innermost.borrow().handle(), &tallies[2]),
    ]);
    outer.settle();
    middle.borrow_mut().settle();
    settle(&mut innermost.borrow_mut());
    let wake_all = {
        let slots = Rc::clone(&slots);
        move || slots.iter().for_each(|slot| slot.get().wake())
    };
    // In each depth all three are woken, before and after what is inside.
    let (wakes, handle) = (wake_all.clone(), innermost.borrow().handle());
    let deepest = move || {
        drop(handle.spawn(async move { wakes() }));
        settle(&mut innermost.borrow_mut());
    };
    let (wakes, handle) = (wake_all.clone(), middle.borrow().handle.clone());
    let between = move || {
        drop(handle.spawn(async move {
            wakes();
            deepest();
            wakes();
        }));
        middle.borrow_mut().settle();
        middle
    };
    let kept = Rc::new(Cell::new(None));
    let keeps = Rc::clone(&kept);
    let last = Tally::new();
    let woken_last = waiting(&outer.handle, &last);
    outer.settle();
    drop(outer.handle.spawn(async move {
        wake_all();
        keeps.set(Some(between()));
        wake_all();
        woken_last.take().wake();
    }));
    let mut lanes = Vec::new();
    while last.seen().polls < 2 {
        lanes.push(outer.dispatch().expect("it was woken").lane);
    }
    assert_eq!(
        lanes.last(),
        Some(&Lane::Local),
        "when the inner ticks are over it is its turn again"
    );
    outer.settle();
    let middle = kept.take().unwrap();
    let lanes = middle.borrow_mut().tick().dispatches;
    assert_eq!((lanes.local, lanes.remote), (0, 1), "the last wake was from outside");
    for (depth, tally) in tallies.iter().enumerate() {
        let polls = tally.seen().polls;
        assert!(polls >= 2, "depth {depth}: {polls} polls");
    }
    assert_eq!(outer.settle(), 0);
}

#[test]
fn two_workers_ticked_in_turn_with_tasks_that_join_each_other() {
    static WORKER: Storage<2> = WorkerStorage::new();
    let (mut one, _) = worker_in(&WORKER);
    let mut other = Rig::knowing();
    let first = one.handle().spawn(Tally::new().yielding(2));
    let second = other.handle.spawn(async move { first.await.is_ok() });
    let third = one.handle().spawn(async move { second.await.unwrap() });
    while !third.is_finished() {
        one.tick().unwrap();
        other.tick();
    }
    assert!(ready(third).unwrap());
}

// After the end.

#[test]
fn a_handle_whose_worker_has_ended_refuses_what_it_is_asked() {
    static WORKER: Storage<2> = WorkerStorage::new();
    static TASKS: TaskStorage<512> = TaskStorage::new("refused");
    let counted = Rig::knowing();
    let (in_static, _) = worker_in(&WORKER);
    let handles = [
        (counted.handle.clone(), counted.remote.clone()),
        (in_static.handle(), in_static.remote()),
    ];
    drop((counted, in_static));
    for (handle, remote) in handles {
        let tally = Tally::new();
        let tasks = [
            handle.spawn(tally.pending()),
            handle.spawn_in(TASKS.reserve().unwrap(), tally.pending()),
            handle.spawn_stealable(tally.pending()),
            remote.spawn(tally.pending()),
        ];
        for task in tasks {
            assert!(matches!(ready(task), Err(JoinError::Cancelled)));
        }
        let made = remote.spawn_in(TASKS.reserve().unwrap(), tally.pending());
        assert!(matches!(ready(made), Err(JoinError::Cancelled)));
        let future = tally.pending();
        let made = remote.spawn_with_in(TASKS.reserve().unwrap(), move |_| future);
        assert!(matches!(ready(made), Err(JoinError::Cancelled)));
        assert_eq!(tally.seen(), seen(0, 6, 0), "each is dropped, and none polled");
        assert!(TASKS.reserve().is_ok(), "and its place given back");
        let error = handle.submit(SimOperation::Event(1)).unwrap_err();
        assert!(matches!(error, SubmitError::Ended(SimOperation::Event(1))), "{error:?}");
        let mut sleep = Box::pin(handle.sleep(Duration::ZERO));
        assert!(poll_once(&mut sleep).is_pending());
        let mut times_out = Box::pin(handle.timeout(Duration::ZERO, async { 5 }));
        assert_eq!(poll_once(&mut times_out), Poll::Ready(Ok(5)));
        assert!(remote.is_ended() && !remote.is_parked());
        assert_eq!(remote.armed(), 0);
        remote.stop();
        let _ = remote.stats();
        drop(handle.remote());
    }
}

#[test]
fn a_handle_that_outlives_its_worker_is_dropped_in_peace_in_any_order() {
    for order in 0..3 {
        let rig = Rig::knowing();
        let (handle, remote) = (rig.handle.clone(), rig.remote.clone());
        let mut sleep = Box::pin(handle.sleep(Duration::from_nanos(5)));
        assert!(poll_once(&mut sleep).is_pending());
        let task = handle.spawn(pending::<()>());
        drop(rig);
        match order {
            0 => drop((handle, remote, sleep, task)),
            1 => drop((task, sleep, remote, handle)),
            _ => drop((sleep, handle, task, remote)),
        }
    }
}

#[test]
fn a_join_handle_polled_after_its_output_panics_and_says_so() {
    let mut rig = Rig::knowing();
    let mut task = rig.handle.spawn(async { 5 });
    let mut stealable = rig.handle.spawn_stealable(async { 5 });
    rig.settle();
    for task in [&mut task, &mut stealable] {
        let Poll::Ready(Ok(5)) = poll_once(task) else { panic!("it has ended") };
        let message = panic_of(|| poll_once(task).is_ready());
        assert!(message.contains("polled") || message.contains("taken"), "{message}");
        assert!(task.is_finished());
        task.abort();
    }
    drop((task, stealable));
    drop(rig.handle.spawn(async {}));
    assert_eq!(rig.settle(), 1, "the worker is whole");
}

#[test]
fn an_operation_polled_after_its_result_panics_and_says_so() {
    let mut rig = Rig::knowing();
    let mut operation = rig.handle.submit(SimOperation::Event(0)).unwrap();
    rig.settle();
    assert!(rig.sim.fire(0, 9));
    rig.settle();
    assert_eq!(poll_once(&mut operation), Poll::Ready(Ok(9)));
    assert_eq!(operation.token(), None);
    let message = panic_of(|| poll_once(&mut operation).is_ready());
    assert!(message.contains("polled") || message.contains("result"), "{message}");
    // Its slot is another's, and its drop is nobody's cancel.
    let next = rig.handle.submit(SimOperation::Event(1)).unwrap();
    drop(operation);
    rig.settle();
    assert!(rig.sim.fire(1, 3));
    rig.settle();
    assert_eq!(ready(next), Ok(3));
}

#[test]
fn a_panic_by_a_handle_polled_too_often_stays_within_its_task() {
    let mut rig = Rig::knowing();
    let mut awaited = rig.handle.spawn(async {});
    let polls_on = rig.handle.spawn(poll_fn(move |context: &mut Context<'_>| {
        let _ = Pin::new(&mut awaited).poll(context);
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
    rig.settle();
    assert!(matches!(ready(polls_on), Err(JoinError::Panicked(_))));
}

#[test]
fn a_stopped_worker_that_is_ticked_and_parked_does_nothing() {
    let mut rig = Rig::knowing();
    let tally = Tally::new();
    let _task = rig.handle.spawn(tally.pending());
    rig.remote.stop();
    for _ in 0..3 {
        assert_eq!(rig.tick().rest, Rest::Stopped);
        assert_eq!(rig.worker.park(Wait::Forever), Ok(evenkeel::Parked::Retracted));
        assert_eq!(rig.worker.run(), Ok(()));
    }
    assert_eq!(tally.seen(), seen(0, 0, 0));
}
