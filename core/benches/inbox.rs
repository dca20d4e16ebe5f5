//! The inbox against what it could have been: `cargo bench -p evenkeel --features std --bench inbox`.
//!
//! All contenders hand over the same nodes, made before: ours and the stack by the link in them,
//! the others as pointers. A node stands for a task: its producer sets a mark in it before the push
//! and the consumer clears it after the take, each by a read-modify-write, as a wake and a worker
//! do. With `-- --bare` neither does: then a queue of pointers has the advantage that its producer
//! needs no node in its cache, and its consumer no node to find the next.
//!
//! In each round every contender has its turn, beginning with another one each time. The figures
//! are medians over the rounds, in nanoseconds per item, and in brackets how many times ours.
//!
//! - `push`: all producers at once, while nobody takes; of a producer's own time.
//! - `take`: then one consumer, until all is out.
//! - `both`: producers and consumer at the same time, from the first push until all is out.
//! - `step`: in `take`, the most items that one step of the consumer touched. It is counted, not
//!   measured: how long the oldest item, and all else that the consumer does, waits for one take.

mod common;

use std::alloc::Layout;
use std::collections::VecDeque;
use std::hint::{black_box, spin_loop};
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::{ArrayQueue, SegQueue};
use evenkeel::inbox::{MpscQueue, Take};
use evenkeel::link::{Link, Linked};

const PRODUCERS: [usize; 4] = [1, 2, 4, 8];
/// Items in a burst, and how many rounds are enough for a median.
const BURSTS: [(usize, usize); 3] = [(1_000, 301), (30_000, 101), (1_000_000, 11)];

/// As large as a task's header and a small future.
#[repr(C)]
struct Node {
    link: Link,
    /// The stack's link.
    next: AtomicPtr<Node>,
    mark: AtomicUsize,
    number: usize,
    future: [usize; 12],
}

/// Whether a node is marked and cleared, as a task is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    Tasks,
    Bare,
}

/// A node on its way.
struct Entry(NonNull<Node>);

// SAFETY: a node is one thread's at a time: the queue's contract.
unsafe impl Send for Entry {}

// SAFETY: the nodes outlive the queues, and each has one entry; the link is the first field.
unsafe impl Linked for Entry {
    #[inline]
    fn into_link(self) -> NonNull<Link> {
        self.0.cast()
    }

    #[inline]
    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

/// A contender. One thread takes.
trait Contender: Sync {
    const NAME: &'static str;

    fn new(burst: usize) -> Self;
    fn push(&self, entry: Entry);
    /// The oldest item, if it can be had, and how many items the step touched.
    fn take(&self) -> (Option<Entry>, usize);
}

struct Ours(MpscQueue<Entry>);

impl Contender for Ours {
    const NAME: &'static str = "ours";

    fn new(_: usize) -> Self {
        Self(MpscQueue::new())
    }

    #[inline]
    fn push(&self, entry: Entry) {
        self.0.push(entry);
    }

    #[inline]
    fn take(&self) -> (Option<Entry>, usize) {
        // SAFETY: one thread takes.
        match unsafe { self.0.take() } {
            Take::Item(entry) => (Some(entry), 1),
            Take::Empty | Take::Busy => (None, 0),
        }
    }
}

/// Treiber's stack; the consumer swaps all of it out and turns it round.
struct SwapAll {
    youngest: AtomicPtr<Node>,
    /// The consumer's: what it has turned round.
    oldest: AtomicPtr<Node>,
}

impl Contender for SwapAll {
    const NAME: &'static str = "swap-all stack";

    fn new(_: usize) -> Self {
        Self { youngest: AtomicPtr::new(ptr::null_mut()), oldest: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn push(&self, entry: Entry) {
        let node = entry.0;
        // Ordering: Relaxed: the loop below publishes it, by the Release of its success.
        let mut youngest = self.youngest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is the pusher's until the exchange.
            unsafe { &(*node.as_ptr()).next }.store(youngest, Ordering::Relaxed);
            // Ordering: Release, pairs with the Acquire of the consumer's swap.
            match self.youngest.compare_exchange_weak(
                youngest,
                node.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => youngest = now,
            }
        }
    }

    #[inline]
    fn take(&self) -> (Option<Entry>, usize) {
        // Ordering: Relaxed, here and below: the consumer's own.
        let mut oldest = self.oldest.load(Ordering::Relaxed);
        let mut touched = 1;
        if oldest.is_null() {
            // Ordering: Acquire, pairs with the Release of each push.
            let mut rest = self.youngest.swap(ptr::null_mut(), Ordering::Acquire);
            touched = 0;
            while let Some(node) = NonNull::new(rest) {
                // SAFETY: swapped out, and thus the consumer's.
                let next = unsafe { &(*node.as_ptr()).next };
                rest = next.load(Ordering::Relaxed);
                next.store(oldest, Ordering::Relaxed);
                oldest = node.as_ptr();
                touched += 1;
            }
        }
        let Some(node) = NonNull::new(oldest) else { return (None, touched) };
        // SAFETY: as above.
        let next = unsafe { &(*node.as_ptr()).next }.load(Ordering::Relaxed);
        self.oldest.store(next, Ordering::Relaxed);
        (Some(Entry(node)), touched)
    }
}

impl Contender for SegQueue<Entry> {
    const NAME: &'static str = "SegQueue";

    fn new(_: usize) -> Self {
        SegQueue::new()
    }

    #[inline]
    fn push(&self, entry: Entry) {
        self.push(entry);
    }

    #[inline]
    fn take(&self) -> (Option<Entry>, usize) {
        (self.pop(), 1)
    }
}

impl Contender for ArrayQueue<Entry> {
    const NAME: &'static str = "ArrayQueue";

    /// The burst fits, or its producers would wait.
    fn new(burst: usize) -> Self {
        ArrayQueue::new(burst)
    }

    #[inline]
    fn push(&self, entry: Entry) {
        assert!(self.push(entry).is_ok(), "it has room for the burst");
    }

    #[inline]
    fn take(&self) -> (Option<Entry>, usize) {
        (self.pop(), 1)
    }
}

impl Contender for Mutex<VecDeque<Entry>> {
    const NAME: &'static str = "Mutex<VecDeque>";

    /// The room is there: a push that grows it would move all that waits.
    fn new(burst: usize) -> Self {
        Mutex::new(VecDeque::with_capacity(burst))
    }

    #[inline]
    fn push(&self, entry: Entry) {
        self.lock().unwrap().push_back(entry);
    }

    #[inline]
    fn take(&self) -> (Option<Entry>, usize) {
        (self.lock().unwrap().pop_front(), 1)
    }
}

/// The nodes of a burst, two cache lines each.
struct Nodes {
    marks: Marks,
    first: NonNull<Node>,
    count: usize,
}

// SAFETY: each producer has its own range of them; whoever takes one has that.
unsafe impl Sync for Nodes {}

impl Nodes {
    const LAYOUT: Layout = Layout::new::<Node>();

    fn new(count: usize, marks: Marks) -> Self {
        let nodes: Box<[Node]> = (0..count)
            .map(|number| Node {
                link: Link::new(),
                next: AtomicPtr::new(ptr::null_mut()),
                mark: AtomicUsize::new(0),
                number,
                future: [0; 12],
            })
            .collect();
        Self { marks, first: NonNull::from(Box::leak(nodes)).cast(), count }
    }

    /// The producer's part.
    #[inline]
    fn entry(&self, number: usize) -> Entry {
        assert!(number < self.count);
        // SAFETY: within the slice.
        let node = unsafe { self.first.add(number) };
        if self.marks == Marks::Tasks {
            // SAFETY: the producer's. Ordering: AcqRel, as a task's.
            unsafe { node.as_ref() }.mark.fetch_or(1, Ordering::AcqRel);
        }
        Entry(node)
    }
}

impl Nodes {
    /// The consumer's part: the number.
    #[inline]
    fn open(&self, node: NonNull<Node>) -> usize {
        // SAFETY: taken, and thus the consumer's.
        let node = unsafe { node.as_ref() };
        if self.marks == Marks::Tasks {
            // Ordering: AcqRel, as a task's.
            node.mark.fetch_and(!1, Ordering::AcqRel);
        }
        node.number + node.future[0]
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let nodes = ptr::slice_from_raw_parts_mut(self.first.as_ptr(), self.count);
        // SAFETY: it came out of a box, and no queue holds any of it.
        drop(unsafe { Box::from_raw(nodes) });
    }
}

/// What one contender took in one round.
#[derive(Clone, Copy, Default)]
struct Trial {
    push: Duration,
    take: Duration,
    both: Duration,
    step: usize,
}

/// Lets each producer push its share, and calls `meanwhile` beside them; their time in all, and when
/// the first of them began.
fn produce<C: Contender>(
    queue: &C,
    nodes: &Nodes,
    producers: usize,
    meanwhile: impl FnOnce(),
) -> (Duration, Instant) {
    // A barrier wakes its threads one after the other, which takes longer than a small burst: the
    // last to come lets them all go.
    let awaited = AtomicUsize::new(producers + 1);
    let wait = || {
        // Ordering: Relaxed, here and below: nothing is read by its leave.
        awaited.fetch_sub(1, Ordering::Relaxed);
        while awaited.load(Ordering::Relaxed) > 0 {
            if producers == 1 { spin_loop() } else { thread::yield_now() }
        }
        Instant::now()
    };
    let produce = |producer| {
        let share = |producer| producer * nodes.count / producers;
        let began = wait();
        for number in share(producer)..share(producer + 1) {
            queue.push(nodes.entry(number));
        }
        (began.elapsed(), began)
    };
    let produce = &produce;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..producers).map(|producer| scope.spawn(move || produce(producer))).collect();
        wait();
        meanwhile();
        let times = threads.into_iter().map(|thread| thread.join().unwrap());
        times.reduce(|one, other| (one.0 + other.0, one.1.min(other.1))).unwrap()
    })
}

/// Takes so many items; the most that one step touched.
fn take_all<C: Contender>(queue: &C, nodes: &Nodes) -> usize {
    let count = nodes.count;
    let (mut taken, mut longest, mut sum) = (0, 0, 0);
    while taken < count {
        let (entry, touched) = queue.take();
        longest = longest.max(touched);
        if let Some(entry) = entry {
            sum += nodes.open(entry.0);
            taken += 1;
        } else {
            thread::yield_now();
        }
    }
    assert_eq!(black_box(sum), count * (count - 1) / 2, "each item once");
    longest
}

fn trial<C: Contender>(nodes: &Nodes, producers: usize) -> Trial {
    let queue = C::new(nodes.count);
    let (push, _) = produce(&queue, nodes, producers, || ());
    let began = Instant::now();
    let step = take_all(&queue, nodes);
    let take = began.elapsed();
    let mut ended = began;
    let (_, began) = produce(&queue, nodes, producers, || {
        take_all(&queue, nodes);
        ended = Instant::now();
    });
    let both = ended - began;
    Trial { push, take, both, step }
}

struct Runner {
    name: &'static str,
    trial: fn(&Nodes, usize) -> Trial,
    trials: Vec<Trial>,
}

fn runner<C: Contender>() -> Runner {
    Runner { name: C::NAME, trial: trial::<C>, trials: Vec::new() }
}

impl Runner {
    fn median(&self, of: fn(&Trial) -> Duration) -> f64 {
        let mut times: Vec<_> = self.trials.iter().map(of).collect();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    }
}

fn main() {
    let measures = common::measures();
    let bare = std::env::args().any(|argument| argument == "--bare");
    let marks = if bare { Marks::Bare } else { Marks::Tasks };
    println!("{} bytes per node; ns per item, and (times ours)", Nodes::LAYOUT.size());
    for (burst, rounds) in BURSTS {
        if !measures && burst > 1_000 {
            break;
        }
        let nodes = Nodes::new(burst, marks);
        for producers in PRODUCERS {
            let mut runners = [
                runner::<Ours>(),
                runner::<SwapAll>(),
                runner::<SegQueue<Entry>>(),
                runner::<ArrayQueue<Entry>>(),
                runner::<Mutex<VecDeque<Entry>>>(),
            ];
            for round in 0..if measures { rounds } else { 1 } {
                for turn in 0..runners.len() {
                    let runner = &mut runners[(round + turn) % 5];
                    runner.trials.push((runner.trial)(&nodes, producers));
                }
            }
            println!("\nburst {burst}, producers {producers}, rounds {}", runners[0].trials.len());
            println!("{:16} {:>15} {:>15} {:>15} {:>9}", "", "push", "take", "both", "step");
            let times: [fn(&Trial) -> Duration; 3] = [|t| t.push, |t| t.take, |t| t.both];
            for runner in &runners {
                print!("{:16}", runner.name);
                for time in times {
                    let (this, ours) = (runner.median(time), runners[0].median(time));
                    #[allow(clippy::cast_precision_loss)] // a million is a float
                    let each = this / burst as f64 * 1e9;
                    print!(" {each:>7.1} ({:>5.2})", this / ours);
                }
                let step = runner.trials.iter().map(|trial| trial.step).max();
                println!(" {:>9}", step.unwrap_or(0));
            }
        }
    }
}
