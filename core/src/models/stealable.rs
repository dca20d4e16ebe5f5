//! Stealable tasks: their state alone, the real ones in a worker that is alone in its team, and in
//! a team of two. What is lost is a deadlock; what two poll at once is a data race.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{self, Future};
use core::task::{Poll, Waker};

use loom::thread;

use super::{
    Bell, Bench, Dropped, Sealed, Tally, explore, join_all, poll, stealable_waker_of, wait_for,
};
use crate::service::home_ref::HomeRef;
use crate::sync::{AtomicUsize, Ordering, SharedCell};
use crate::task::cell::JoinError;
use crate::task::state::{Activated, References, Retired, State};
use crate::team::Team;

/// A task that is nothing but its state and what its polls touch. Whoever has it polls it at once.
struct Bare {
    state: State,
    events: Vec<AtomicUsize>,
    /// What whoever puts the task into a queue touches, and whoever takes it out.
    place: SharedCell<()>,
    /// What the future would hold: how many events the last poll has seen. None: it was dropped.
    seen: SharedCell<Option<usize>>,
}

// SAFETY: the cells are touched by who has the task; loom sees to it.
unsafe impl Send for Bare {}
// SAFETY: as above.
unsafe impl Sync for Bare {}

/// Whether a bare task ends by itself, when it has seen all events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Never,
    ByItself,
}

impl Bare {
    fn new(events: usize) -> Arc<Self> {
        Arc::new(Self {
            state: State::spawned_stealable(),
            events: (0..events).map(|_| AtomicUsize::new(0)).collect(),
            place: SharedCell::new(()),
            seen: SharedCell::new(Some(0)),
        })
    }

    /// By who has the task, until nobody has it.
    fn run(&self, ends: Ends) {
        loop {
            self.place.with_mut(|_| ());
            if self.state.take_active().is_aborted() {
                return self.end();
            }
            // Ordering: Relaxed: it is the wake that has to carry it over.
            let seen =
                self.events.iter().filter(|event| event.load(Ordering::Relaxed) == 1).count();
            // SAFETY: who has the task polls it; loom sees to it.
            self.seen.with_mut(|place| unsafe {
                assert!(place.replace(Some(seen)).is_some(), "polled after its end");
            });
            if ends == Ends::ByItself && seen == self.events.len() {
                return self.end();
            }
            if self.state.retire() == Retired::Idle {
                return;
            }
        }
    }

    fn end(&self) {
        // SAFETY: as in `run`.
        let last = self.seen.with_mut(|place| unsafe { place.replace(None) });
        assert!(last.is_some(), "ended twice");
        self.state.complete();
        assert_eq!(self.state.drop_reference(), References::Some, "the model has the handle's");
    }

    fn wake(&self, event: usize, ends: Ends) {
        // Ordering: Relaxed, as above.
        self.events[event].store(1, Ordering::Relaxed);
        if self.state.activate() == Activated::Owed {
            self.run(ends);
        }
    }
}

/// Threads that wake a bare task, each after so many events, one by one, while the first polls it
/// for the first time: the last poll sees all events.
fn the_last_poll_sees_all(events_of: &'static [usize], ends: Ends, preemptions: usize) {
    explore(preemptions, move || {
        let task = Bare::new(events_of.iter().sum());
        let mut first = 0;
        let spawn = |&count| {
            let task = Arc::clone(&task);
            let mine = first..first + count;
            first += count;
            thread::spawn(move || mine.for_each(|event| task.wake(event, ends)))
        };
        let threads: Vec<_> = events_of.iter().map(spawn).collect();
        task.run(ends);
        join_all(threads);
        // SAFETY: all threads are gone; loom sees to it.
        let seen = task.seen.with(|place| unsafe { *place });
        assert_eq!(seen, (ends == Ends::Never).then_some(task.events.len()));
        assert_eq!(task.state.load().is_complete(), ends == Ends::ByItself);
    });
}

#[test]
fn one_wakes_twice() {
    the_last_poll_sees_all(&[2], Ends::Never, 8);
}

#[test]
fn two_wake() {
    the_last_poll_sees_all(&[1, 1], Ends::Never, 4);
}

#[test]
fn two_wake_what_ends() {
    the_last_poll_sees_all(&[1, 1], Ends::ByItself, 4);
}

#[test]
fn deep_two_wake_twice() {
    the_last_poll_sees_all(&[2, 2], Ends::Never, 3);
}

/// An abort meets polls and a wake: the task ends once, and whoever ends it sees what was done
/// before the abort.
#[test]
fn an_abort_is_never_lost() {
    explore(4, || {
        let task = Bare::new(2);
        let aborting = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                // Ordering: Relaxed: it is the abort that has to carry it over.
                task.events[0].store(1, Ordering::Relaxed);
                if task.state.activate_and_abort() == Activated::Owed {
                    task.run(Ends::Never);
                }
            })
        };
        let waking = {
            let task = Arc::clone(&task);
            thread::spawn(move || task.wake(1, Ends::Never))
        };
        task.run(Ends::Never);
        join_all([aborting, waking]);
        assert!(task.state.load().is_complete(), "an abort was lost");
    });
}

/// Who ends what was aborted sees what was done before the abort.
#[test]
fn an_abort_carries_what_came_before() {
    explore(6, || {
        let task = Bare::new(1);
        let aborting = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                // Ordering: Relaxed: it is the abort that has to carry it over.
                task.events[0].store(1, Ordering::Relaxed);
                task.state.activate_and_abort()
            })
        };
        let ended_here = loop {
            if task.state.take_active().is_aborted() {
                // Ordering: as above.
                assert_eq!(task.events[0].load(Ordering::Relaxed), 1);
                break true;
            }
            // SAFETY: who has the task polls it; loom sees to it.
            task.seen.with_mut(|place| unsafe { *place = Some(1) });
            if task.state.retire() == Retired::Idle {
                break false;
            }
        };
        match aborting.join().unwrap() {
            Activated::Owed => {
                assert!(!ended_here);
                assert!(task.state.take_active().is_aborted());
            }
            Activated::Nothing => assert!(ended_here, "an abort was lost"),
        }
    });
}

/// Whoever an abort gives the task to ends it, having seen what its last poll did.
#[test]
fn an_abort_takes_what_is_idle() {
    explore(6, || {
        let task = Bare::new(0);
        let aborting = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                if task.state.activate_and_abort() == Activated::Owed {
                    task.run(Ends::Never);
                }
            })
        };
        task.run(Ends::Never);
        aborting.join().unwrap();
        assert!(task.state.load().is_complete());
    });
}

/// What a task waits for: each must be seen by the poll that answers the wake after it.
struct Events(Vec<AtomicUsize>);

impl Events {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| AtomicUsize::new(0)).collect()))
    }

    fn happens(&self, which: usize) {
        // Ordering: Relaxed: it is the wake that has to carry it over.
        self.0[which].store(1, Ordering::Relaxed);
    }

    fn all_happened(&self) -> bool {
        self.0.iter().all(|event| event.load(Ordering::Relaxed) == 1)
    }
}

/// A number that every poll of a future changes.
struct Polls(SharedCell<usize>);

// SAFETY: who polls the future touches it; loom sees to it.
unsafe impl Send for Polls {}

impl Polls {
    fn new() -> Self {
        Self(SharedCell::new(0))
    }

    /// How many there were before.
    fn count(&self) -> usize {
        // SAFETY: who polls the future touches it; loom sees to it.
        self.0.with_mut(|place| unsafe { place.replace(*place + 1) })
    }
}

/// Ready when all events have happened; its first polls yield.
fn waiting(
    events: Arc<Events>,
    yields: usize,
    end: Dropped,
) -> impl Future<Output = ()> + Send + 'static {
    let polls = Polls::new();
    future::poll_fn(move |context| {
        let _ = &end;
        if polls.count() < yields {
            context.waker().wake_by_ref();
        }
        if events.all_happened() { Poll::Ready(()) } else { Poll::Pending }
    })
}

/// A worker alone in its team.
fn alone() -> Bench {
    Bench::in_team(&Team::new(1).unwrap())
}

/// Threads that wake a task of a worker, each after so many events, one by one.
fn no_wake_is_lost(events_of: &'static [usize], yields: usize, preemptions: usize) {
    explore(preemptions, move || {
        let bench = alone();
        let events = Events::new(events_of.iter().sum());
        let ended = Tally::default();
        let (task, handle) =
            bench.spawn_stealable(waiting(Arc::clone(&events), yields, Dropped(ended.clone())));
        drop(handle);
        let mut first = 0;
        let spawn = |&count| {
            let (events, waker) = (Arc::clone(&events), stealable_waker_of(task));
            let mine = first..first + count;
            first += count;
            thread::spawn(move || {
                for event in mine {
                    events.happens(event);
                    waker.wake_by_ref();
                }
            })
        };
        let threads: Vec<_> = events_of.iter().map(spawn).collect();
        bench.run_until(|| ended.get() == 1);
        join_all(threads);
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

#[test]
fn one_wakes_what_waits() {
    no_wake_is_lost(&[1], 0, 4);
}

#[test]
fn one_wakes_what_yields() {
    no_wake_is_lost(&[1], 1, 3);
}

#[test]
fn deep_one_wakes_what_yields() {
    no_wake_is_lost(&[2], 1, 4);
}

#[test]
fn deep_two_wake_what_waits() {
    no_wake_is_lost(&[1, 1], 0, 3);
}

/// A wake, and the end of the task at its first poll.
#[test]
fn a_wake_meets_the_end() {
    explore(5, || {
        let bench = alone();
        let ended = Tally::default();
        let end = Dropped(ended.clone());
        let (task, handle) = bench.spawn_stealable(async move { drop(end) });
        let waker = stealable_waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        drop(handle);
        bench.run_until(|| ended.get() == 1);
        waking.join().unwrap();
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

/// As above, but the worker closes at once, and with it its team.
#[test]
fn a_wake_meets_the_close() {
    explore(4, || {
        let bench = alone();
        let ended = Tally::default();
        let future = waiting(Events::new(1), 0, Dropped(ended.clone()));
        let (task, handle) = bench.spawn_stealable(future);
        bench.run_until(|| true);
        let waker = stealable_waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        drop(handle);
        bench.close();
        waking.join().unwrap();
        assert_eq!(ended.get(), 1);
        bench.end();
    });
}

/// References come and go on two threads while the task ends: it is freed once, by the last.
#[test]
fn the_last_reference_frees() {
    explore(5, || {
        let bench = alone();
        let (task, handle) = bench.spawn_stealable(async {});
        let waker = stealable_waker_of(task);
        let others = thread::spawn(move || drop(waker.clone()));
        let handles = thread::spawn(move || drop(handle));
        bench.run_until(|| true);
        others.join().unwrap();
        handles.join().unwrap();
        bench.end();
    });
}

/// An abort races with the poll that would end the task by itself, and with a wake.
fn aborted(ends_by_itself: bool, woken: bool, preemptions: usize) {
    explore(preemptions, move || {
        let bench = alone();
        let ended = Tally::default();
        let events = Events::new(usize::from(!ends_by_itself));
        let (task, handle) = bench.spawn_stealable(waiting(events, 0, Dropped(ended.clone())));
        let waking = woken.then(|| {
            let waker = stealable_waker_of(task);
            thread::spawn(move || waker.wake())
        });
        let aborting = thread::spawn(move || {
            handle.abort();
            handle
        });
        bench.run_until(|| ended.get() == 1);
        join_all(waking);
        let mut handle = aborting.join().unwrap();
        match poll(&mut handle, Waker::noop()) {
            Poll::Ready(Ok(())) => assert!(ends_by_itself),
            Poll::Ready(Err(JoinError::Cancelled)) => {}
            _ => panic!("an ended task has its output"),
        }
        drop(handle);
        bench.end();
        assert_eq!(ended.get(), 1);
    });
}

#[test]
fn an_abort_ends_what_waits() {
    aborted(false, false, 4);
}

#[test]
fn an_abort_meets_the_end() {
    aborted(true, false, 4);
}

#[test]
fn deep_an_abort_and_a_wake_end_what_waits() {
    aborted(false, true, 3);
}

/// A handle is polled on another thread, with one waker and then another, until the task's end
/// wakes it.
#[test]
fn an_output_is_awaited_elsewhere() {
    explore(5, || {
        let bench = alone();
        let ended = Tally::default();
        let end = Dropped(ended.clone());
        let (_, mut handle) = bench.spawn_stealable(async move {
            drop(end);
            Sealed::new(7)
        });
        let awaiting = thread::spawn(move || {
            let other = Bell::new();
            let output = match poll(&mut handle, &Waker::from(Arc::clone(&other))) {
                Poll::Ready(output) => output,
                Poll::Pending => wait_for(&mut handle),
            };
            assert_eq!(output.unwrap().open(), 7);
            drop(handle);
            other
        });
        bench.run_until(|| ended.get() == 1);
        let other = awaiting.join().unwrap();
        bench.end();
        assert_eq!(Arc::strong_count(&other), 1, "each waker is dropped");
    });
}

/// The output of a task whose handle goes away is dropped once, whoever comes last.
#[test]
fn a_handle_leaves() {
    explore(5, || {
        let bench = alone();
        let (ended, dropped) = (Tally::default(), Tally::default());
        let (end, output) = (Dropped(ended.clone()), Dropped(dropped.clone()));
        let (_, handle) = bench.spawn_stealable(async move {
            drop(end);
            (Sealed::new(7), output)
        });
        let detaching = thread::spawn(move || drop(handle));
        bench.run_until(|| ended.get() == 1);
        detaching.join().unwrap();
        assert_eq!(dropped.get(), 1);
        bench.end();
    });
}

/// When dropped, asks the workers to stop.
struct StopsAll([HomeRef; 2]);

impl Drop for StopsAll {
    fn drop(&mut self) {
        self.0.iter().for_each(|home| home.request_stop());
    }
}

/// A task that yields, in a team of two, is polled by whichever worker has it: each poll sees what
/// the one before did.
fn polled_by_both(yields: usize, preemptions: usize) {
    explore(preemptions, move || {
        let team = Team::new(2).unwrap();
        let (one, other) = (Bench::in_team(&team), Bench::in_team(&team));
        let ended = Tally::default();
        let end = StopsAll([one.remote(), other.remote()]);
        let future = waiting(Events::new(0), 0, Dropped(ended.clone()));
        let polls = Polls::new();
        let yielding = future::poll_fn(move |context| {
            if polls.count() == yields {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        drop(one.spawn_stealable(async move {
            let _end = end;
            yielding.await;
            future.await;
        }));
        let other = thread::spawn(move || {
            other.run_until(|| false);
            other.close();
            other
        });
        one.run_until(|| false);
        one.close();
        let other = other.join().unwrap();
        assert_eq!(ended.get(), 1);
        one.end();
        other.end();
    });
}

#[test]
fn both_poll_what_yields() {
    polled_by_both(1, 3);
}

#[test]
fn deep_both_poll_what_yields() {
    polled_by_both(2, 3);
}
