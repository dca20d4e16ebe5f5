#![allow(clippy::items_after_statements)] // a waker's or a future's type stands in its test

#[cfg(not(feature = "std"))]
extern crate std;

use core::cell::{Cell, RefCell};
use core::future::{Future, pending, poll_fn, ready};
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use core::time::Duration;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::vec;
use std::vec::Vec;
use std::{format, string::ToString, thread_local};

use super::*;
use crate::time::{Clock, Instant};

const BATCH: usize = 64;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn fired(queue: &TimerQueue, now: u64) -> usize {
    queue.expire(at(now), BATCH, Waker::wake).fired
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl WakeCount {
    fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that writes its number down.
struct Signs(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Signs {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// A clock that shows what it is set to.
#[derive(Default)]
struct Hand(Cell<u64>);

impl Clock for Hand {
    fn now(&self) -> Instant {
        at(self.0.get())
    }
}

#[test]
fn a_sleep_is_over_at_its_deadline_and_not_before() {
    let queue = TimerQueue::new();
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let context = &mut Context::from_waker(&waker);
    for deadline in [1, 1_000, u64::MAX - 1] {
        let mut sleep = pin!(queue.sleep_until(at(deadline)));
        assert!(sleep.as_mut().poll(context).is_pending());
        let before = count.wakes();
        assert_eq!(queue.next_deadline(), Some(at(deadline)));
        assert_eq!(fired(&queue, deadline - 1), 0);
        assert!(sleep.as_mut().poll(context).is_pending());
        assert!(!sleep.is_elapsed());
        assert_eq!(fired(&queue, deadline), 1);
        assert_eq!(count.wakes(), before + 1);
        assert!(sleep.is_elapsed());
        assert!(sleep.as_mut().poll(context).is_ready());
        assert!(sleep.as_mut().poll(context).is_ready(), "it stays so");
        assert!(queue.is_empty());
    }
}

#[test]
fn a_deadline_that_has_passed_gives_way_once() {
    let queue = TimerQueue::new();
    assert_eq!(fired(&queue, 1_000), 0);
    for deadline in [0, 999, 1_000] {
        let mut sleep = pin!(queue.sleep_until(at(deadline)));
        assert!(!sleep.is_elapsed());
        assert!(poll(sleep.as_mut()).is_pending());
        assert_eq!(queue.next_deadline(), Some(at(1_000)));
        assert_eq!(fired(&queue, 1_000), 1);
        assert!(poll(sleep.as_mut()).is_ready());
        assert_eq!(sleep.deadline(), at(deadline));
    }
}

#[test]
fn the_far_future_never_comes() {
    let queue = TimerQueue::new();
    {
        let mut never = pin!(queue.sleep_until(Instant::FAR_FUTURE));
        let mut last = pin!(queue.sleep_until(at(u64::MAX - 1)));
        assert!(poll(never.as_mut()).is_pending());
        assert_eq!(queue.next_deadline(), None);
        assert!(poll(last.as_mut()).is_pending());
        assert_eq!(fired(&queue, u64::MAX), 1);
        assert!(poll(last).is_ready());
        assert!(poll(never).is_pending());
        assert_eq!(queue.next_deadline(), None);
        assert!(!queue.is_empty());
    }
    assert!(queue.is_empty());
}

#[test]
fn a_batch_is_bounded_and_goes_on_in_order() {
    let queue = TimerQueue::new();
    let order = Arc::default();
    let mut sleeps: Vec<_> = (0..6).map(|_| Box::pin(queue.sleep_until(at(5)))).collect();
    for (number, sleep) in sleeps.iter_mut().enumerate() {
        let waker = Waker::from(Arc::new(Signs(number, Arc::clone(&order))));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let expire = |at_most| queue.expire(at(5), at_most, Waker::wake);
    assert_eq!(expire(0), Expired { fired: 0, more: More::Due });
    assert_eq!(expire(4), Expired { fired: 4, more: More::Due });
    assert_eq!(expire(2), Expired { fired: 2, more: More::NotDue });
    assert_eq!(expire(2), Expired { fired: 0, more: More::NotDue });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn who_sleeps_for_no_time_again_and_again_holds_nobody_up() {
    let queue = TimerQueue::new();
    let mut patient = pin!(queue.sleep_until(at(10)));
    assert!(poll(patient.as_mut()).is_pending());
    let mut hasty = pin!(queue.sleep_until(Instant::ZERO));
    assert!(poll(hasty.as_mut()).is_pending());
    let mut passes = 0;
    while poll(patient.as_mut()).is_pending() {
        passes += 1;
        assert!(passes <= 2, "the patient one was overtaken");
        assert_eq!(queue.expire(at(10), 1, Waker::wake).fired, 1);
        if poll(hasty.as_mut()).is_ready() {
            hasty.as_mut().reset(Instant::ZERO);
            assert!(poll(hasty.as_mut()).is_pending());
        }
    }
}

#[test]
fn what_is_set_while_a_pass_runs_waits_for_the_next() {
    let queue = TimerQueue::new();
    let mut first = pin!(queue.sleep_until(at(5)));
    let mut second = pin!(queue.sleep_until(at(3)));
    assert!(poll(first.as_mut()).is_pending());
    let expired = queue.expire(at(9), BATCH, |_| assert!(poll(second.as_mut()).is_pending()));
    assert_eq!(expired, Expired { fired: 1, more: More::Due });
    assert_eq!(fired(&queue, 9), 1);
    assert!(poll(second).is_ready());
}

#[test]
fn the_waker_of_the_last_poll_is_woken_and_no_other_is_kept() {
    let queue = TimerQueue::new();
    let counts = [const { WakeCount(AtomicUsize::new(0)) }; 2].map(Arc::new);
    let wakers = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
    let mut sleep = pin!(queue.sleep_until(at(5)));
    for _ in 0..3 {
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
        assert_eq!(Arc::strong_count(&counts[0]), 3);
    }
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    assert_eq!(counts.each_ref().map(Arc::strong_count), [2, 3]);
    assert_eq!(fired(&queue, 5), 1);
    assert_eq!(counts.each_ref().map(|count| count.wakes()), [0, 1]);
    assert_eq!(counts.each_ref().map(Arc::strong_count), [2, 2]);
}

/// A combinator of somebody else: each child has a waker of its own, and is polled only if that one
/// was woken.
struct Children<'a> {
    children: Vec<(Pin<AnyFuture<'a>>, Arc<Child>)>,
}

type AnyFuture<'a> = Box<dyn Future<Output = ()> + 'a>;

#[derive(Default)]
struct Child {
    woken: AtomicUsize,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Child {
    fn wake(self: Arc<Self>) {
        self.woken.store(1, Ordering::SeqCst);
        let parent = self.parent.lock().unwrap().clone();
        parent.into_iter().for_each(Waker::wake);
    }
}

impl<'a> Children<'a> {
    fn new(children: Vec<Pin<AnyFuture<'a>>>) -> Self {
        let woken = || Arc::new(Child { woken: 1.into(), ..Child::default() });
        Self { children: children.into_iter().map(|child| (child, woken())).collect() }
    }

    /// Polls those that were woken, and forgets those that are ready. Gives how many are left.
    fn poll_woken(&mut self, context: &mut Context<'_>) -> usize {
        self.children.retain_mut(|(child, state)| {
            *state.parent.lock().unwrap() = Some(context.waker().clone());
            let waker = Waker::from(Arc::clone(state));
            state.woken.swap(0, Ordering::SeqCst) == 0
                || child.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        self.children.len()
    }
}

#[test]
fn sleeps_work_through_the_wakers_of_a_combinator() {
    let queue = TimerQueue::new();
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let context = &mut Context::from_waker(&waker);

    let sleeps = |deadlines: &[u64]| {
        let sleep = |&deadline: &u64| Box::pin(queue.sleep_until(at(deadline))) as Pin<Box<_>>;
        Children::new(deadlines.iter().map(|deadline| sleep(deadline) as _).collect())
    };
    // Join: ready when all are.
    let mut all = sleeps(&[30, 10, 20, 20]);
    assert_eq!(all.poll_woken(context), 4);
    for (now, left) in [(10, 3), (20, 1), (30, 0)] {
        let before = count.wakes();
        assert!(fired(&queue, now) > 0);
        assert!(count.wakes() > before);
        assert_eq!(all.poll_woken(context), left);
    }
    // Select: dropped when one is.
    let mut one = sleeps(&[50, 40, 60]);
    assert_eq!(one.poll_woken(context), 3);
    assert_eq!(fired(&queue, 40), 1);
    assert_eq!(one.poll_woken(context), 2);
    drop(one);
    assert!(queue.is_empty());

    // Two of them nested, and an async block around: a timer and the rest of a race.
    let mut race = Box::pin(async {
        let mut inner = sleeps(&[70, 80]);
        let first = poll_fn(|context| match inner.poll_woken(context) {
            2 => Poll::Pending,
            _ => Poll::Ready(()),
        });
        queue.timeout_at(at(75), first).await
    });
    assert!(race.as_mut().poll(context).is_pending());
    assert_eq!(fired(&queue, 70), 1);
    assert_eq!(race.as_mut().poll(context), Poll::Ready(Ok(())));
    drop(race);
    assert!(queue.is_empty());
}

#[test]
fn sleeps_are_dropped_in_any_order() {
    let rounds = if cfg!(miri) { 5 } else { 300 };
    for round in 0..rounds {
        let queue = TimerQueue::new();
        let mut sleeps: Vec<_> = (0..12_usize)
            .map(|number| Box::pin(queue.sleep_until(at((number as u64 * 7 + round) % 10))))
            .collect();
        for sleep in &mut sleeps {
            assert!(poll(sleep.as_mut()).is_pending());
        }
        let mut state = round;
        while !sleeps.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            drop(sleeps.swap_remove(usize::try_from(state >> 33).unwrap() % sleeps.len()));
            let first = sleeps.iter().map(|sleep| sleep.deadline()).min();
            assert_eq!(queue.next_deadline(), first);
        }
        assert!(queue.is_empty());
    }
}

#[test]
fn a_sleep_that_was_never_polled_leaves_no_trace() {
    let queue = TimerQueue::new();
    drop(queue.sleep_until(at(5)));
    assert!(queue.is_empty());
}

#[test]
fn a_queue_may_move_and_end_with_a_leaked_sleep_in_it() {
    /// Where the leak sanitizer finds that it was meant.
    static LEAKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let queue = TimerQueue::new();
    for deadline in [5, 1, 9] {
        let mut sleep = Box::pin(queue.sleep_until(at(deadline)));
        assert!(poll(sleep.as_mut()).is_pending());
        LEAKED.lock().unwrap().push(core::ptr::from_ref(sleep.as_ref().get_ref()).addr());
        core::mem::forget(sleep);
    }
    let queue = Box::new(queue);
    {
        let mut sleep = pin!(queue.sleep_until(at(3)));
        assert!(poll(sleep.as_mut()).is_pending());
        assert_eq!(fired(&queue, 5), 3);
        assert!(poll(sleep).is_ready());
    }
    assert_eq!(queue.next_deadline(), Some(at(9)));
}

#[test]
fn a_reset_moves_what_waits_and_rearms_what_has_fired() {
    let queue = TimerQueue::new();
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let context = &mut Context::from_waker(&waker);
    let mut sleep = pin!(queue.sleep_until(at(5)));
    sleep.as_mut().reset(at(7));
    assert!(queue.is_empty(), "it was not polled yet");
    assert!(sleep.as_mut().poll(context).is_pending());

    sleep.as_mut().reset(at(20));
    assert_eq!((sleep.deadline(), queue.next_deadline()), (at(20), Some(at(20))));
    assert_eq!(fired(&queue, 19), 0);
    sleep.as_mut().reset(at(15));
    assert_eq!(fired(&queue, 19), 1);
    assert_eq!(count.wakes(), 1);
    assert!(sleep.as_mut().poll(context).is_ready());

    sleep.as_mut().reset(at(30));
    assert!(!sleep.is_elapsed());
    assert!(sleep.as_mut().poll(context).is_pending());
    assert_eq!(fired(&queue, 30), 1);
    sleep.as_mut().reset(at(40));
    assert!(sleep.as_mut().poll(context).is_pending(), "it has not fired since");
}

#[test]
fn what_a_waker_does_finds_the_queue_in_order() {
    type Sleeps<'a> = RefCell<Vec<Option<Pin<Box<Sleep<&'a TimerQueue>>>>>>;
    let rounds = if cfg!(miri) { 3 } else { 200 };
    for seed in 0..rounds {
        let queue = TimerQueue::new();
        let sleeps: Sleeps<'_> = RefCell::new((0..20).map(|_| None).collect());
        let state = Cell::<u64>::new(seed);
        let random = |below: u64| {
            let next = state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.set(next);
            (next >> 33) % below
        };
        let now = Cell::new(0);
        let total = Cell::new(0);
        fn meddle<'a>(
            queue: &'a TimerQueue,
            sleeps: &Sleeps<'a>,
            random: &dyn Fn(u64) -> u64,
            now: &Cell<u64>,
            total: &Cell<usize>,
            depth: u32,
        ) {
            let index = usize::try_from(random(20)).unwrap();
            match random(4) {
                0 => drop(sleeps.borrow_mut()[index].take()),
                1 if depth < 4 => {
                    now.set(now.get() + random(5));
                    let at_most = usize::try_from(random(4)).unwrap();
                    let expired = queue.expire(at(now.get()), at_most, |_| {
                        total.set(total.get() + 1);
                        meddle(queue, sleeps, random, now, total, depth + 1);
                    });
                    assert!(expired.fired <= at_most);
                }
                _ => {
                    let mut sleep = Box::pin(queue.sleep_until(at(now.get() + random(9))));
                    assert!(poll(sleep.as_mut()).is_pending());
                    drop(sleeps.borrow_mut()[index].replace(sleep));
                }
            }
        }
        for _ in 0..100 {
            meddle(&queue, &sleeps, &random, &now, &total, 0);
            let waiting =
                sleeps.borrow().iter().flatten().filter(|sleep| !sleep.is_elapsed()).count();
            assert_eq!(queue.is_empty(), waiting == 0);
        }
        let waiting = sleeps.borrow().iter().flatten().filter(|sleep| !sleep.is_elapsed()).count();
        assert_eq!(fired(&queue, 1_000_000), waiting);
        assert!(queue.is_empty());
        assert!(total.get() > 0);
    }
}

thread_local! {
    /// What the next clone of a meddling waker does.
    static ON_CLONE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A waker whose clone runs code.
fn meddling_waker() -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            if let Some(call) = ON_CLONE.take() {
                call();
            }
            RawWaker::new(data, &TABLE)
        },
        |_| (),
        |_| (),
        |_| (),
    );
    // SAFETY: it refers to nothing; clones are never woken from another thread.
    unsafe { Waker::new(core::ptr::null(), &TABLE) }
}

#[test]
fn a_clone_of_the_waker_may_fire_the_timer_that_it_is_for() {
    let queue = Rc::new(TimerQueue::new());
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut sleep = pin!((*queue).sleep_until(at(5)));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let other = Rc::clone(&queue);
    ON_CLONE.set(Some(Box::new(move || assert_eq!(fired(&other, 5), 1))));
    let meddling = meddling_waker();
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&meddling)).is_ready());
    assert_eq!(count.wakes(), 1);
}

#[test]
fn the_waker_is_cloned_once_and_not_at_all_when_there_is_nothing_to_wait_for() {
    let queue = TimerQueue::new();
    let mut sleep = pin!(queue.sleep_until(at(5)));
    let meddling = meddling_waker();
    let context = &mut Context::from_waker(&meddling);
    assert!(sleep.as_mut().poll(context).is_pending());
    ON_CLONE.set(Some(Box::new(|| panic!("a needless clone"))));
    assert!(sleep.as_mut().poll(context).is_pending());
    assert_eq!(fired(&queue, 5), 1);
    assert!(sleep.as_mut().poll(context).is_ready());
    assert!(sleep.as_mut().poll(context).is_ready());
    ON_CLONE.take();
}

#[test]
fn a_clone_of_the_waker_may_panic() {
    let queue = TimerQueue::new();
    let mut sleep = pin!(queue.sleep_until(at(5)));
    let meddling = meddling_waker();
    let context = &mut Context::from_waker(&meddling);
    ON_CLONE.set(Some(Box::new(|| panic!("a clone that panics"))));
    assert!(catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(context))).is_err());
    assert!(queue.is_empty() && !sleep.is_elapsed());
    assert!(sleep.as_mut().poll(context).is_pending());
    assert_eq!(fired(&queue, 5), 1);
    assert!(sleep.as_mut().poll(context).is_ready());
}

#[test]
fn a_stale_waker_may_panic_when_it_is_dropped() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a drop that panics");
        }
    }
    let queue = TimerQueue::new();
    let mut sleep = pin!(queue.sleep_until(at(5)));
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(&bomb)).is_pending());
    // The sleep's own is now the last.
    drop(bomb);
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(Arc::clone(&count));
    let context = &mut Context::from_waker(&waker);
    assert!(catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(context))).is_err());
    assert_eq!(fired(&queue, 5), 1);
    assert_eq!(count.wakes(), 1);
    assert!(sleep.as_mut().poll(context).is_ready());
}

#[test]
fn a_wake_that_panics_ends_the_pass_and_loses_no_other() {
    let queue = TimerQueue::new();
    let mut sleeps: Vec<_> = (0..3).map(|_| Box::pin(queue.sleep_until(at(5)))).collect();
    for sleep in &mut sleeps {
        assert!(poll(sleep.as_mut()).is_pending());
    }
    let pass = AssertUnwindSafe(|| queue.expire(at(5), BATCH, |_| panic!("a wake that panics")));
    assert!(catch_unwind(pass).is_err());
    let elapsed: Vec<_> = sleeps.iter().map(|sleep| sleep.is_elapsed()).collect();
    assert_eq!(elapsed, [true, false, false]);
    assert_eq!(fired(&queue, 5), 2);
}

#[test]
fn a_queue_is_reached_by_whatever_keeps_the_contract() {
    let queue = TimerQueue::new();
    let clock = Hand::default();
    let time = Timed::new(&queue, &clock);
    let borrowed = &&queue;
    let mut sleep = pin!(Timers::sleep_until(borrowed, at(1)));
    assert!(poll(sleep.as_mut()).is_pending());
    let mut timed = pin!(time.sleep(nanos(2)));
    assert!(poll(timed.as_mut()).is_pending());
    assert_eq!(fired(&queue, 2), 2);

    clock.0.set(7);
    assert_eq!(time.sleep(Duration::MAX).deadline(), Instant::FAR_FUTURE);
    assert_eq!(time.sleep(Duration::ZERO).deadline(), at(7));
}

#[cfg(feature = "alloc")]
#[test]
fn a_counted_queue_lives_as_long_as_its_sleeps() {
    let queue = Rc::new(TimerQueue::new());
    let weak = Rc::downgrade(&queue);
    let mut sleep = Box::pin(Rc::clone(&queue).sleep_until(at(5)));
    assert!(poll(sleep.as_mut()).is_pending());
    assert_eq!(fired(&queue, 4), 0);
    drop(queue);
    assert!(weak.upgrade().is_some());
    drop(sleep);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_timeout_prefers_the_future() {
    let queue = TimerQueue::new();
    let at_once = pin!(queue.timeout_at(Instant::ZERO, ready(1)));
    assert_eq!(poll(at_once), Poll::Ready(Ok(1)));
    assert!(queue.is_empty());

    let is_ready = Cell::new(false);
    let future = poll_fn(|_| if is_ready.get() { Poll::Ready(2) } else { Poll::Pending });
    let mut late = pin!(queue.timeout_at(at(5), future));
    assert_eq!(poll(late.as_mut()), Poll::Pending);
    assert_eq!(fired(&queue, 5), 1);
    is_ready.set(true);
    assert_eq!(poll(late), Poll::Ready(Ok(2)), "both are ready");
}

#[test]
fn a_timeout_gives_up_at_its_deadline() {
    let queue = TimerQueue::new();
    let clock = Hand::default();
    clock.0.set(100);
    let mut timeout = pin!(Timed::new(&queue, &clock).timeout(nanos(5), pending::<()>()));
    assert_eq!(timeout.deadline(), at(105));
    assert_eq!(poll(timeout.as_mut()), Poll::Pending);
    assert_eq!(fired(&queue, 104), 0);
    assert_eq!(poll(timeout.as_mut()), Poll::Pending);
    assert_eq!(fired(&queue, 105), 1);
    assert_eq!(poll(timeout.as_mut()), Poll::Ready(Err(Elapsed)));
    assert_eq!(poll(timeout), Poll::Ready(Err(Elapsed)));
    assert_eq!(Elapsed.to_string(), "the deadline passed before the future was ready");
}

#[test]
fn a_timeout_of_no_time_asks_the_future_twice() {
    let queue = TimerQueue::new();
    let polls = Cell::new(0);
    let future = poll_fn(|_| {
        polls.set(polls.get() + 1);
        Poll::<()>::Pending
    });
    let mut timeout = pin!(queue.timeout_at(Instant::ZERO, future));
    assert_eq!(poll(timeout.as_mut()), Poll::Pending);
    assert_eq!(fired(&queue, 0), 1);
    assert_eq!(poll(timeout), Poll::Ready(Err(Elapsed)));
    assert_eq!(polls.get(), 2);
}

/// Takes a tick at each of these times, and gives when it was due.
fn ticks(missed: MissedTicks, taken: &[u64]) -> Vec<u64> {
    let queue = TimerQueue::new();
    let clock = Hand::default();
    let interval = Timed::new(&queue, &clock).interval(nanos(100)).unwrap();
    let mut interval = pin!(interval.missed_ticks(missed));
    let take = |&now: &u64| {
        assert!(poll(pin!(interval.as_mut().tick())).is_pending(), "it gives way before each");
        clock.0.set(now);
        assert_eq!(fired(&queue, now), 1, "the tick for {now}");
        let Poll::Ready(due) = poll(pin!(interval.as_mut().tick())) else {
            panic!("the tick for {now} was due");
        };
        due.as_nanos()
    };
    taken.iter().map(take).collect()
}

#[test]
fn an_interval_does_not_drift() {
    for missed in [MissedTicks::Burst, MissedTicks::Skip] {
        assert_eq!(ticks(missed, &[100, 250, 399, 400]), [100, 200, 300, 400]);
    }
}

#[test]
fn missed_ticks_come_at_once() {
    let taken = [110, 455, 455, 455, 500, 600];
    assert_eq!(ticks(MissedTicks::Burst, &taken), [100, 200, 300, 400, 500, 600]);
}

#[test]
fn missed_ticks_are_skipped() {
    assert_eq!(ticks(MissedTicks::Skip, &[110, 455, 500, 600]), [100, 200, 500, 600]);
    assert_eq!(ticks(MissedTicks::Skip, &[199, 200]), [100, 200], "none was missed");
    assert_eq!(ticks(MissedTicks::Skip, &[200, 300]), [100, 300], "what is due just now is one");
    assert_eq!(ticks(MissedTicks::Skip, &[299, 300]), [100, 300], "what is not due yet is none");
}

#[test]
fn missed_ticks_delay_the_others() {
    assert_eq!(ticks(MissedTicks::Delay, &[110, 455, 555]), [100, 210, 555]);
}

#[test]
fn an_interval_needs_a_period() {
    let queue = TimerQueue::new();
    let time = Timed::new(&queue, Hand::default());
    let error = time.interval(Duration::ZERO).unwrap_err();
    assert_eq!(
        error.to_string(),
        "an interval needs a period of at least a nanosecond; to give way, yield"
    );
}

#[test]
fn an_interval_ends_with_time() {
    for missed in [MissedTicks::Burst, MissedTicks::Skip, MissedTicks::Delay] {
        let queue = TimerQueue::new();
        let clock = Hand::default();
        let first = at(u64::MAX - 50);
        let interval = Timed::new(&queue, &clock).interval_at(first, nanos(100)).unwrap();
        let mut interval = pin!(interval.missed_ticks(missed));
        assert!(poll(pin!(interval.as_mut().tick())).is_pending());
        clock.0.set(first.as_nanos());
        assert_eq!(fired(&queue, first.as_nanos()), 1);
        assert_eq!(poll(pin!(interval.as_mut().tick())), Poll::Ready(first));
        assert!(poll(pin!(interval.as_mut().tick())).is_pending());
        assert_eq!((interval.deadline(), queue.next_deadline()), (Instant::FAR_FUTURE, None));
        assert_eq!(fired(&queue, u64::MAX), 0);
    }
    let queue = TimerQueue::new();
    let slow = Timed::new(&queue, Hand::default()).interval(Duration::MAX).unwrap();
    assert_eq!(slow.deadline(), Instant::FAR_FUTURE);
}

#[test]
fn a_tick_is_not_lost_with_the_future_that_waited_for_it() {
    let queue = TimerQueue::new();
    let clock = Hand::default();
    let mut interval = pin!(Timed::new(&queue, &clock).interval(nanos(10)).unwrap());
    assert!(poll(pin!(interval.as_mut().tick())).is_pending());
    clock.0.set(10);
    assert_eq!(fired(&queue, 10), 1);
    drop(interval.as_mut().tick());
    assert_eq!(poll(pin!(interval.as_mut().tick())), Poll::Ready(at(10)));
}

#[test]
fn a_clock_behind_the_queue_gives_no_tick_twice() {
    for missed in [MissedTicks::Burst, MissedTicks::Skip, MissedTicks::Delay] {
        let queue = TimerQueue::new();
        let mut interval = Timed::new(&queue, Hand::default()).interval(nanos(10)).unwrap();
        interval = interval.missed_ticks(missed);
        let mut interval = pin!(interval);
        assert!(poll(pin!(interval.as_mut().tick())).is_pending());
        assert_eq!(fired(&queue, 10), 1);
        assert_eq!(poll(pin!(interval.as_mut().tick())), Poll::Ready(at(10)));
        assert_eq!(interval.deadline(), at(20));
    }
}

#[test]
fn what_can_be_printed_says_where_it_stands() {
    let queue = TimerQueue::new();
    let mut sleep = pin!(queue.sleep_until(at(5)));
    assert!(poll(sleep.as_mut()).is_pending());
    let shown = format!("{:?}", vec![&sleep]);
    assert!(shown.contains("deadline: Instant(5), is_elapsed: false"), "{shown}");
    assert!(format!("{queue:?}").contains("Some(Instant(5))"));
}
