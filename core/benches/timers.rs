//! The timer queue against what the standard library offers: nanoseconds for one operation while so
//! many timers are live.
//!
//! *fire*: the clock moves to the next deadline, its timer fires, and is set again for later.
//! *cancel*: a timer, any one, is set anew before it has fired, and the clock moves on a little.
//! In `random` the spans are random; in `equal` all are the same, as with many connections that
//! have one timeout.
//!
//! The binary heap can't remove: what is cancelled stays until it comes up, or until more than
//! half of the heap is such, when it is rebuilt, in one long step.

mod common;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use common::interleaved;
use evenkeel::Instant;
use evenkeel::timers::{Sleep, TimerQueue};

const ROUNDS: usize = 31;
const OPERATIONS: u64 = 20_000;

static NUMBERED: RawWakerVTable =
    RawWakerVTable::new(|data| RawWaker::new(data, &NUMBERED), |_| (), |_| (), |_| ());

/// A waker that is worth its number, and costs as little as one can.
fn numbered(timer: usize) -> Waker {
    // SAFETY: the number is never used as a pointer.
    unsafe { Waker::new(std::ptr::without_provenance(timer), &NUMBERED) }
}

fn number_of(waker: &Waker) -> usize {
    waker.data().addr()
}

/// What the timers are set by.
#[derive(Clone)]
struct Load {
    live: usize,
    spans: Spans,
    state: u64,
    now: Instant,
}

#[derive(Clone, Copy)]
enum Spans {
    Random,
    Equal,
}

impl Load {
    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn timer(&mut self) -> usize {
        let timer = self.random() % self.live as u64;
        usize::try_from(timer).expect("it is less than another one")
    }

    fn deadline(&mut self) -> Instant {
        let most = self.live as u64 * 1_000;
        let span = match self.spans {
            Spans::Random => 1 + self.random() % most,
            Spans::Equal => most,
        };
        self.now + Duration::from_nanos(span)
    }

    /// A little later: within the span of a timer, all are set anew a few times.
    fn pass(&mut self) {
        self.now = self.now + Duration::from_nanos(100);
    }
}

/// A set of timers, of which each is always set.
trait Timers {
    fn set(&mut self, timer: usize, deadline: Instant);
    fn cancel(&mut self, timer: usize);
    fn next_deadline(&mut self) -> Instant;
    /// Gives the number of one that is due.
    fn fire(&mut self, now: Instant) -> Option<usize>;
}

struct Ours<'a> {
    queue: &'a TimerQueue,
    sleeps: Vec<Pin<Box<Sleep<&'a TimerQueue>>>>,
}

impl Timers for Ours<'_> {
    fn set(&mut self, timer: usize, deadline: Instant) {
        let sleep = &mut self.sleeps[timer];
        sleep.as_mut().reset(deadline);
        let waker = numbered(timer);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }

    fn cancel(&mut self, timer: usize) {
        let queue = self.queue;
        self.sleeps[timer].set(queue.sleep_until(Instant::FAR_FUTURE));
    }

    fn next_deadline(&mut self) -> Instant {
        self.queue.next_deadline().expect("all are set")
    }

    fn fire(&mut self, now: Instant) -> Option<usize> {
        let fired = Cell::new(None);
        let _ = self.queue.expire(now, 1, |waker| fired.set(Some(number_of(&waker))));
        fired.get()
    }
}

/// Each remembers by what key it was set.
struct Map {
    wakers: BTreeMap<(Instant, u64), Waker>,
    keys: Vec<(Instant, u64)>,
    sequence: u64,
}

impl Timers for Map {
    fn set(&mut self, timer: usize, deadline: Instant) {
        self.sequence += 1;
        self.keys[timer] = (deadline, self.sequence);
        self.wakers.insert(self.keys[timer], numbered(timer));
    }

    fn cancel(&mut self, timer: usize) {
        self.wakers.remove(&self.keys[timer]);
    }

    fn next_deadline(&mut self) -> Instant {
        self.wakers.first_key_value().expect("all are set").0.0
    }

    fn fire(&mut self, now: Instant) -> Option<usize> {
        let first = self.wakers.first_entry()?;
        (first.key().0 <= now).then(|| number_of(&first.remove()))
    }
}

/// Each remembers by what sequence number it was set: an older one is of a cancelled timer.
struct Lazy {
    heap: BinaryHeap<Reverse<Entry>>,
    set: Vec<u64>,
    sequence: u64,
}

struct Entry {
    key: (Instant, u64),
    waker: Waker,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Lazy {
    fn drop_cancelled(&mut self) {
        while let Some(Reverse(first)) = self.heap.peek()
            && self.set[number_of(&first.waker)] != first.key.1
        {
            self.heap.pop();
        }
    }
}

impl Timers for Lazy {
    fn set(&mut self, timer: usize, deadline: Instant) {
        self.sequence += 1;
        self.set[timer] = self.sequence;
        let key = (deadline, self.sequence);
        self.heap.push(Reverse(Entry { key, waker: numbered(timer) }));
    }

    fn cancel(&mut self, timer: usize) {
        self.set[timer] = 0;
        if self.heap.len() > 2 * self.set.len() {
            let set = &self.set;
            self.heap.retain(|Reverse(entry)| set[number_of(&entry.waker)] == entry.key.1);
        }
    }

    fn next_deadline(&mut self) -> Instant {
        self.drop_cancelled();
        self.heap.peek().expect("all are set").0.key.0
    }

    fn fire(&mut self, now: Instant) -> Option<usize> {
        self.drop_cancelled();
        let due = self.heap.peek().is_some_and(|Reverse(first)| first.key.0 <= now);
        let fired = due.then(|| self.heap.pop()).flatten();
        fired.map(|Reverse(entry)| number_of(&entry.waker))
    }
}

fn set_all(load: &mut Load, timers: &mut impl Timers) {
    for timer in 0..load.live {
        let deadline = load.deadline();
        load.pass();
        timers.set(timer, deadline);
    }
}

fn fire(load: &mut Load, timers: &mut impl Timers) -> u64 {
    for _ in 0..OPERATIONS {
        load.now = timers.next_deadline();
        let timer = timers.fire(load.now).expect("one is due now");
        let deadline = load.deadline();
        timers.set(timer, deadline);
    }
    OPERATIONS
}

fn cancel(load: &mut Load, timers: &mut impl Timers) -> u64 {
    for _ in 0..OPERATIONS {
        load.pass();
        while let Some(timer) = timers.fire(load.now) {
            let deadline = load.deadline();
            timers.set(timer, deadline);
        }
        let timer = load.timer();
        timers.cancel(timer);
        let deadline = load.deadline();
        timers.set(timer, deadline);
    }
    OPERATIONS
}

fn compare(live: usize, spans: Spans, label: &str) {
    let load = Load { live, spans, state: 0x9e37_79b9_7f4a_7c15, now: Instant::ZERO };
    let queue = TimerQueue::new();
    let sleeps = (0..live).map(|_| Box::pin(queue.sleep_until(Instant::ZERO))).collect();
    let mut ours = (load.clone(), Ours { queue: &queue, sleeps });
    let mut map = {
        let keys = vec![(Instant::ZERO, 0); live];
        (load.clone(), Map { wakers: BTreeMap::new(), keys, sequence: 0 })
    };
    let mut lazy = {
        let heap = BinaryHeap::with_capacity(2 * live + 1);
        (load, Lazy { heap, set: vec![0; live], sequence: 0 })
    };
    set_all(&mut ours.0, &mut ours.1);
    set_all(&mut map.0, &mut map.1);
    set_all(&mut lazy.0, &mut lazy.1);
    interleaved(
        &format!("fire, {label}, {live} live"),
        ROUNDS,
        &mut [
            ("TimerQueue", &mut || fire(&mut ours.0, &mut ours.1)),
            ("BTreeMap", &mut || fire(&mut map.0, &mut map.1)),
            ("BinaryHeap", &mut || fire(&mut lazy.0, &mut lazy.1)),
        ],
    );
    interleaved(
        &format!("cancel, {label}, {live} live"),
        ROUNDS,
        &mut [
            ("TimerQueue", &mut || cancel(&mut ours.0, &mut ours.1)),
            ("BTreeMap", &mut || cancel(&mut map.0, &mut map.1)),
            ("BinaryHeap", &mut || cancel(&mut lazy.0, &mut lazy.1)),
        ],
    );
}

fn main() {
    for (spans, label) in [(Spans::Random, "random"), (Spans::Equal, "equal")] {
        for live in [10, 1_000, 100_000] {
            compare(live, spans, label);
        }
    }
    let empty = TimerQueue::new();
    let mut look = || {
        for _ in 0..OPERATIONS {
            assert_eq!(black_box(&empty).next_deadline(), None);
        }
        OPERATIONS
    };
    interleaved("a look at an empty queue", ROUNDS, &mut [("TimerQueue", &mut look)]);
}
