//! What is allocated, and that all of it is freed: nothing after the start but one allocation for
//! each boxed spawn, on both backends. Each thread counts its own allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use evenkeel::io::{Buffer, BufferPool, Interest};
use evenkeel::testing::SimOperation;
use evenkeel::{
    Clock, Handle, JoinHandle, MonotonicClock, Remote, Rest, TaskStorage, Team, Wait, Worker,
    WorkerConfig, WorkerStorage, yield_now,
};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::{DEADLINE, Live, Rig, Sight, WakerSlot, elsewhere};
use evenkeel_uring::UringReactor;
use rustix::event::{EventfdFlags, eventfd};

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator; the cells allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        LIVE.set(LIVE.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - 1);
        // SAFETY: the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this does allocate.
fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATED.get();
    run();
    ALLOCATED.get() - before
}

/// How many allocations this leaves behind.
fn left_by(run: impl Fn()) -> isize {
    run(); // Whatever is set up once.
    let before = LIVE.get();
    run();
    LIVE.get() - before
}

#[test]
fn a_busy_worker_allocates_nothing() {
    let mut rig = Rig::knowing();
    let slot = WakerSlot::new();
    let leave = slot.clone();
    drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
        leave.put(context.waker());
        Poll::Pending
    })));
    rig.backlog(100);
    rig.dispatches(1_000);
    let count = allocations(|| {
        for _ in 0..1_000 {
            rig.tick();
            slot.get().wake();
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn a_spawn_allocates_once() {
    let rig = Rig::knowing();
    let (mut local, mut remote) = (None, None);
    assert_eq!(allocations(|| local = Some(rig.handle.spawn(async { [0_u8; 100] }))), 1);
    assert_eq!(allocations(|| remote = Some(rig.remote.spawn(async { [0_u8; 100] }))), 1);
    drop((local, remote));
}

#[test]
fn a_join_and_an_abort_allocate_nothing() {
    let mut rig = Rig::knowing();
    let waits = rig.handle.spawn(pending::<()>());
    let ended = rig.handle.spawn(async {});
    let joins = rig.handle.spawn(ended);
    assert_eq!(allocations(|| waits.abort()), 0);
    assert_eq!(allocations(|| assert_eq!(rig.settle(), 3)), 0);
    drop(joins);
}

#[test]
fn an_operation_allocates_nothing() {
    let mut rig = Rig::knowing();
    // The simulated reactor's own tables grow in the first rounds.
    let round = |rig: &mut Rig| {
        let mut before = 0;
        for _ in 0..64 {
            before = allocations(|| {
                let kept = rig.handle.submit(SimOperation::Event(0)).unwrap();
                drop(rig.handle.submit(SimOperation::Event(0)).unwrap());
                rig.settle();
                assert!(rig.sim.fire(0, 0));
                rig.settle();
                drop(kept);
                rig.settle();
            });
        }
        before
    };
    let counts: Vec<usize> = (0..4).map(|_| round(&mut rig)).collect();
    assert!(counts.contains(&0), "{counts:?}");
}

#[test]
fn a_worker_leaves_nothing_behind() {
    for sight in Sight::BOTH {
        let left = left_by(|| {
            let mut rig = Rig::with(sight, WorkerConfig::default().operations(4), |sim| sim);
            let ended = rig.handle.spawn(async { String::from("an output") });
            drop(rig.handle.spawn(async { String::from("another") }));
            let handle = rig.handle.clone();
            drop(rig.handle.spawn(async move {
                let _ = handle.submit(SimOperation::Event(0)).unwrap().await;
            }));
            drop(rig.remote.spawn(pending::<()>()));
            drop(rig.handle.spawn(async { resume_unwind(Box::new(5)) }));
            rig.settle();
            drop(ended);
            drop(rig.handle.spawn(yield_now()));
            drop(rig.remote.spawn(async {}));
            rig.handle.spawn(pending::<()>()).abort();
        });
        assert_eq!(left, 0, "{sight:?}");
    }
}

#[test]
fn a_waker_that_outlives_everything_keeps_the_task_until_it_is_dropped() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let slot = WakerSlot::new();
        let leave = slot.clone();
        drop(rig.handle.spawn(poll_fn(move |context| -> Poll<()> {
            leave.put(context.waker());
            Poll::Pending
        })));
        rig.settle();
        let waker = slot.take();
        drop(rig);
        waker.wake_by_ref();
        let clone = waker.clone();
        clone.wake();
        drop(waker);
    });
    assert_eq!(left, 0);
}

#[test]
fn a_task_woken_in_every_way_before_its_end_is_freed() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        for ends in [false, true] {
            let slot = WakerSlot::new();
            let leave = slot.clone();
            let mut polls = 0;
            let task = rig.handle.spawn(poll_fn(move |context| {
                leave.put(context.waker());
                polls += 1;
                if polls == 2 {
                    // Queued and in the inbox, both behind this very poll.
                    context.waker().wake_by_ref();
                    let waker = context.waker().clone();
                    let inner = Rig::knowing();
                    let mut inner = inner;
                    drop(inner.handle.spawn(async move { waker.wake() }));
                    inner.settle();
                    if ends {
                        return Poll::Ready(());
                    }
                }
                Poll::Pending
            }));
            rig.settle();
            slot.get().wake();
            task.abort();
            slot.get().wake();
            rig.tick();
            drop(slot.take());
            drop(task);
            if ends {
                rig.settle();
            }
        }
    });
    assert_eq!(left, 0);
}

#[test]
fn a_task_that_awaits_its_own_handle_is_freed_at_its_abort() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let reached = Rc::clone(&own);
        let task = rig.handle.spawn(async move {
            yield_now().await;
            let mut own = reached.take().expect("put there below");
            let mut aborts = true;
            let _ = poll_fn(|context| {
                let polled = Pin::new(&mut own).poll(context);
                if std::mem::take(&mut aborts) {
                    own.abort();
                }
                polled
            })
            .await;
        });
        *own.borrow_mut() = Some(task);
        rig.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn tasks_that_await_each_other_are_freed_at_the_workers_end() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let handles: Rc<RefCell<Vec<Option<JoinHandle<()>>>>> = Rc::default();
        for me in 0..3_usize {
            let others = Rc::clone(&handles);
            let task = rig.handle.spawn(async move {
                let next = others.borrow_mut()[(me + 1) % 3].take().unwrap();
                let _ = next.await;
            });
            handles.borrow_mut().push(Some(task));
        }
        rig.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn tasks_of_two_workers_that_await_each_other_are_freed_at_their_end() {
    let left = left_by(|| {
        let (mut one, mut two) = (Rig::knowing(), Rig::knowing());
        let handle: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let reached = Rc::clone(&handle);
        let first = one.handle.spawn(async move {
            let other = reached.take().unwrap();
            let _ = other.await;
        });
        *handle.borrow_mut() = Some(two.handle.spawn(async move {
            let _ = first.await;
        }));
        two.settle();
        one.settle();
    });
    assert_eq!(left, 0);
}

#[test]
fn a_handle_that_is_dropped_gives_up_its_waker_at_the_tasks_end_at_the_latest() {
    let left = left_by(|| {
        let mut rig = Rig::knowing();
        let waits = Rc::new(RefCell::new(Some(rig.handle.spawn(pending::<()>()))));
        let also = Rc::clone(&waits);
        // Awaits it once, then drops the handle and ends.
        drop(rig.handle.spawn(async move {
            let mut handle = also.take().unwrap();
            poll_fn(|context: &mut Context<'_>| {
                let _ = Pin::new(&mut handle).poll(context);
                Poll::Ready(())
            })
            .await;
        }));
        rig.settle();
    });
    assert_eq!(left, 0);
}

// On both backends.

/// Each of these bodies becomes two tests. Where there is no `io_uring` its half is skipped.
macro_rules! on_both_backends {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name::<super::EpollReactor>(); })*
        }
        mod uring {
            $(#[test] fn $name() { super::$name::<super::UringReactor>(); })*
        }
    };
}

on_both_backends! {
    a_yield_allocates_nothing
    a_local_wake_allocates_nothing
    a_remote_wake_allocates_nothing
    a_wake_of_a_stealable_task_allocates_nothing
    a_timer_allocates_nothing
    a_steal_allocates_nothing
    an_io_operation_allocates_nothing
    transfers_allocate_nothing
    a_park_and_what_ends_it_allocate_nothing
    a_spawn_into_a_static_allocates_nothing_whoever_submits_it
    a_boxed_spawn_allocates_once_whoever_submits_it
}

/// A worker that is ticked by hand on the test's own thread.
struct Hand<R: Live> {
    worker: Worker<R, MonotonicClock>,
    handle: Handle<R>,
    remote: Remote<R>,
}

impl<R: Live> Hand<R> {
    /// One over this backend, unless the machine is without it.
    fn new() -> Option<Self> {
        let reactor = match R::make() {
            Ok(reactor) => reactor,
            Err(refused) if R::OPTIONAL => {
                eprintln!("skipped, for there is no such reactor here: {refused}");
                return None;
            }
            Err(refused) => panic!("{refused}"),
        };
        let config = WorkerConfig::default().operations(64);
        let worker = Worker::new(reactor, MonotonicClock::new(), config);
        let (handle, remote) = (worker.handle(), worker.remote());
        Some(Self { worker, handle, remote })
    }

    /// Ticks, and parks for a moment where there is nothing to run, until something holds.
    fn until(&mut self, holds: impl Fn() -> bool) {
        let clock = MonotonicClock::new();
        let start = clock.now();
        while !holds() {
            if self.worker.tick().unwrap().rest == Rest::Idle {
                let moment = clock.now() + Duration::from_micros(200);
                self.worker.park(Wait::Until(moment)).unwrap();
            }
            assert!(clock.now() - start < DEADLINE, "it does not come");
        }
    }

    fn settle(&mut self) {
        let clock = MonotonicClock::new();
        let start = clock.now();
        while self.worker.tick().unwrap().rest != Rest::Idle {
            assert!(clock.now() - start < DEADLINE, "it does not come to rest");
        }
    }
}

fn a_yield_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    for _ in 0..100 {
        drop(hand.handle.spawn(async {
            loop {
                yield_now().await;
            }
        }));
    }
    hand.worker.tick().unwrap();
    let before = hand.remote.stats().dispatches;
    let count = allocations(|| {
        for _ in 0..1_000 {
            hand.worker.tick().unwrap();
        }
    });
    assert_eq!(count, 0);
    assert!(hand.remote.stats().dispatches - before >= 1_000);
}

fn a_local_wake_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let pair: Rc<RefCell<[Option<Waker>; 2]>> = Rc::default();
    let rounds = Rc::new(Cell::new(0));
    for me in 0..2 {
        let (pair, count) = (Rc::clone(&pair), Rc::clone(&rounds));
        drop(hand.handle.spawn(poll_fn(move |context| -> Poll<()> {
            pair.borrow_mut()[me] = Some(context.waker().clone());
            let other = pair.borrow()[1 - me].clone();
            if let Some(other) = other {
                other.wake_by_ref();
                other.wake();
                count.set(count.get() + 1);
            }
            Poll::Pending
        })));
    }
    let count = allocations(|| hand.until(|| rounds.get() > 1_000));
    assert_eq!(count, 0);
}

fn a_remote_wake_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let (slot, polls) = (WakerSlot::new(), Arc::new(AtomicUsize::new(0)));
    let (leave, seen) = (slot.clone(), Arc::clone(&polls));
    drop(hand.handle.spawn(poll_fn(move |context| -> Poll<()> {
        leave.put(context.waker());
        seen.fetch_add(1, Ordering::SeqCst);
        Poll::Pending
    })));
    hand.settle();
    let (go, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&polls));
    let started = Arc::clone(&go);
    let waker = slot.get();
    let waking = thread::spawn(move || {
        while !started.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        allocations(|| {
            for round in 1..=500 {
                let clone = waker.clone();
                waker.wake_by_ref();
                clone.wake();
                while seen.load(Ordering::SeqCst) <= round {
                    thread::yield_now();
                }
            }
        })
    });
    let count = allocations(|| {
        go.store(true, Ordering::SeqCst);
        hand.until(|| polls.load(Ordering::SeqCst) > 500);
    });
    assert_eq!((count, waking.join().unwrap()), (0, 0));
}

fn a_wake_of_a_stealable_task_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    hand.worker.join(&Team::new(1).unwrap()).unwrap();
    let (slot, polls) = (WakerSlot::new(), Arc::new(AtomicUsize::new(0)));
    let (leave, seen) = (slot.clone(), Arc::clone(&polls));
    drop(hand.handle.spawn_stealable(poll_fn(move |context| -> Poll<()> {
        leave.put(context.waker());
        seen.fetch_add(1, Ordering::SeqCst);
        Poll::Pending
    })));
    // By a running task, and from outside of a tick.
    let wakes = slot.clone();
    drop(hand.handle.spawn(async move {
        loop {
            yield_now().await;
            wakes.get().wake();
        }
    }));
    hand.worker.tick().unwrap();
    hand.worker.tick().unwrap();
    let before = polls.load(Ordering::SeqCst);
    let count = allocations(|| {
        while polls.load(Ordering::SeqCst) < before + 500 {
            slot.get().wake();
            hand.worker.tick().unwrap();
        }
    });
    assert_eq!(count, 0);
}

fn a_timer_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let (handle, rounds) = (hand.handle.clone(), Rc::new(Cell::new(0)));
    let count = Rc::clone(&rounds);
    drop(hand.handle.spawn(async move {
        let span = Duration::from_micros(20);
        let mut interval = pin!(handle.interval(span).unwrap());
        loop {
            handle.sleep(span).await;
            handle.sleep_until(handle.now() + span).await;
            handle.timeout(span, pending::<()>()).await.unwrap_err();
            handle.timeout(DEADLINE, yield_now()).await.unwrap();
            interval.as_mut().tick().await;
            count.set(count.get() + 1);
        }
    }));
    // The first wait of epoll for less than a millisecond may set up a timer.
    hand.until(|| rounds.get() > 2);
    let until = rounds.get() + 50;
    assert_eq!(allocations(|| hand.until(|| rounds.get() > until)), 0);
}

fn a_steal_allocates_nothing<R: Live>() {
    let (Some(mut hand), Some(mut thief)) = (Hand::<R>::new(), Hand::<R>::new()) else { return };
    let team = Team::new(2).unwrap();
    hand.worker.join(&team).unwrap();
    thief.worker.join(&team).unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    for _ in 0..600 {
        let ended = Arc::clone(&ended);
        drop(hand.handle.spawn_stealable(async move {
            for _ in 0..10 {
                yield_now().await;
            }
            ended.fetch_add(1, Ordering::SeqCst);
        }));
    }
    let count = allocations(|| {
        while ended.load(Ordering::SeqCst) < 600 {
            thief.worker.tick().unwrap();
            hand.worker.tick().unwrap();
        }
    });
    assert_eq!(count, 0);
    assert!(thief.remote.stats().steals > 0);
}

fn an_io_operation_allocates_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let fd: Arc<OwnedFd> =
        Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap());
    let (handle, reads, rounds) = (hand.handle.clone(), Arc::clone(&fd), Rc::new(Cell::new(0)));
    let count = Rc::clone(&rounds);
    drop(hand.handle.spawn(async move {
        loop {
            handle.ready(&reads, Interest::Readable).await.unwrap();
            rustix::io::read(&reads, &mut [0; 8]).unwrap();
            // One that is dropped, and so cancelled.
            {
                let mut dropped = pin!(handle.ready(&reads, Interest::Readable));
                poll_fn(|context| {
                    assert!(dropped.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            count.set(count.get() + 1);
        }
    }));
    let mut round = |until| {
        while rounds.get() < until {
            rustix::io::write(&fd, &1_u64.to_ne_bytes()).unwrap();
            let before = rounds.get();
            hand.until(|| rounds.get() > before);
        }
    };
    // The reactor's tables get their first pages.
    round(10);
    assert_eq!(allocations(|| round(200)), 0);
}

/// A request and its answer, a receive that is cancelled, one that takes too long, pieces of a flow, a
/// file.
fn transfers_allocate_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let (rude, ignored) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let (handle, rounds) = (hand.handle.clone(), Rc::new(Cell::new(0)));
    let (answers, requests) = (handle.clone(), handle.clone());
    drop(hand.handle.spawn(async move {
        let mut buffer = vec![0; 256];
        loop {
            let (received, filled) = answers.recv(&far, buffer).await;
            let length = received.unwrap();
            let (sent, part) = answers.send_all(&far, filled.slice(..length)).await;
            sent.unwrap();
            buffer = part.into_inner();
        }
    }));
    let count = Rc::clone(&rounds);
    drop(hand.handle.spawn(async move {
        let pool = BufferPool::new(4, 64);
        let mut pieces = requests.receive_many(&near, &pool).unwrap();
        let mut buffer = vec![0; 16];
        loop {
            requests.write_all(&near, [7; 64]).await.0.unwrap();
            let mut left = 64;
            while left > 0 {
                left -= pieces.next_piece().await.unwrap().unwrap().len();
            }
            let mut unwanted = requests.recv(&ignored, buffer);
            poll_fn(|context| {
                assert!(Pin::new(&mut unwanted).poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            let (result, same) = unwanted.cancel().await;
            assert!(result.is_err());
            let (read, same) = requests.read_at(&file, same, 0).await;
            assert_eq!(read.unwrap(), 16);
            buffer = same;
            count.set(count.get() + 1);
        }
    }));
    // The reactor's tables grow to what is in flight at once.
    hand.until(|| rounds.get() > 50);
    let until = rounds.get() + 200;
    assert_eq!(allocations(|| hand.until(|| rounds.get() > until)), 0);
    drop(rude);
}

fn a_park_and_what_ends_it_allocate_nothing<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    hand.settle();
    let slot = WakerSlot::new();
    let leave = slot.clone();
    drop(hand.handle.spawn(poll_fn(move |context| -> Poll<()> {
        leave.put(context.waker());
        Poll::Pending
    })));
    hand.until(|| true);
    hand.settle();
    let (waker, remote) = (slot.get(), hand.remote.clone());
    let (wanted, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (wants, ends) = (Arc::clone(&wanted), Arc::clone(&done));
    let waking = thread::spawn(move || {
        allocations(|| {
            let mut woken = 0;
            while !ends.load(Ordering::SeqCst) {
                if wants.load(Ordering::SeqCst) > woken && remote.is_parked() {
                    waker.wake_by_ref();
                    woken += 1;
                } else {
                    thread::yield_now();
                }
            }
        })
    });
    let count = allocations(|| {
        for round in 1..=100 {
            wanted.store(round, Ordering::SeqCst);
            hand.worker.park(Wait::Forever).unwrap();
            hand.settle();
        }
    });
    done.store(true, Ordering::SeqCst);
    assert_eq!((count, waking.join().unwrap()), (0, 0));
}

fn a_spawn_into_a_static_allocates_nothing_whoever_submits_it<R: Live>() {
    static TASKS: TaskStorage<512, 4> = TaskStorage::new("tasks without an allocator");
    // One for both backends, whose tests may run at once.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let Some(mut hand) = Hand::<R>::new() else { return };
    for _ in 0..50 {
        let count = allocations(|| {
            let place = TASKS.reserve().unwrap();
            let task = hand.handle.spawn_in(place, yield_now());
            hand.settle();
            assert!(task.is_finished());
        });
        assert_eq!(count, 0);
        let remote = hand.remote.clone();
        let (count, tasks) = elsewhere(move || {
            let mut tasks = None;
            let count = allocations(|| {
                let submit = |place| remote.spawn_in(place, async { 5 });
                let make = |place| {
                    remote.spawn_with_in(place, |handle: Handle<R>| async move {
                        handle.sleep(Duration::ZERO).await;
                        6
                    })
                };
                tasks = Some((submit(TASKS.reserve().unwrap()), make(TASKS.reserve().unwrap())));
            });
            (count, tasks.unwrap())
        });
        assert_eq!(count, 0);
        let count = allocations(|| {
            hand.until(|| tasks.1.is_finished());
            assert_eq!(evenkeel_tests::ready(tasks.0).unwrap(), 5);
            assert_eq!(evenkeel_tests::ready(tasks.1).unwrap(), 6);
        });
        assert_eq!(count, 0);
    }
    let refused = allocations(|| {
        let all = [(); 4].map(|()| TASKS.reserve().unwrap());
        assert!(TASKS.reserve().is_err());
        drop(all);
    });
    assert_eq!(refused, 0);
}

fn a_boxed_spawn_allocates_once_whoever_submits_it<R: Live>() {
    let Some(mut hand) = Hand::<R>::new() else { return };
    let team = Team::new(1).unwrap();
    hand.worker.join(&team).unwrap();
    let large = || async {
        let held = [0_u8; 1_000];
        yield_now().await;
        held.len()
    };
    let count = |spawn: &dyn Fn() -> JoinHandle<usize>| {
        let mut task = None;
        let count = allocations(|| task = Some(spawn()));
        (count, task.unwrap())
    };
    let (remote, on_team) = (hand.remote.clone(), team.clone());
    let mut spawned = vec![
        count(&|| hand.handle.spawn(large())),
        count(&|| hand.handle.spawn_stealable(large())),
        count(&|| hand.remote.spawn(large())),
        count(&|| hand.remote.spawn_with(move |_| large())),
        count(&|| team.spawn(large()).unwrap()),
    ];
    spawned.extend(elsewhere(move || {
        [count(&|| remote.spawn(large())), count(&|| on_team.spawn(large()).unwrap())]
    }));
    let count = allocations(|| {
        hand.settle();
        for (_, task) in &spawned {
            assert!(task.is_finished());
        }
    });
    assert_eq!(count, 0, "it runs and ends without");
    for (number, (allocated, task)) in spawned.into_iter().enumerate() {
        assert_eq!(allocated, 1, "way {number}");
        assert_eq!(evenkeel_tests::ready(task).unwrap(), 1_000);
    }
}

#[test]
fn a_worker_in_a_static_allocates_nothing_not_even_at_its_start() {
    static WORKER: WorkerStorage<EpollReactor, MonotonicClock, 8> = WorkerStorage::new();
    static TASK: TaskStorage<256> = TaskStorage::new("the one task");
    let reactor = EpollReactor::make().unwrap();
    let count = allocations(|| {
        let config = WorkerConfig::default();
        let mut worker = Worker::new_in(&WORKER, reactor, MonotonicClock::new(), config).unwrap();
        let handle = worker.handle();
        let task = worker.handle().spawn_in(TASK.reserve().unwrap(), async move {
            handle.sleep(Duration::ZERO).await;
        });
        while !task.is_finished() {
            worker.tick().unwrap();
        }
        drop(worker);
    });
    assert_eq!(count, 0);
}
