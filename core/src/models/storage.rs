//! The places of a [`TaskStorage`]: reserving one that is being given back, from wherever the last
//! reference to its task is dropped.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;

use loom::thread;

use super::{Bench, Dropped, Tally, explore, join_all, waker_of};
use crate::service::join::task_in;
use crate::task::state::State;
use crate::task::storage::{Place, TaskStorage};

/// Enough for a task whose atomics and cells are loom's.
const BYTES: usize = 2048;

/// What is there as long as a model, and static to what it models.
struct Static<T: 'static>(*mut T);

impl<T> Static<T> {
    fn new(value: T) -> Self {
        Self(Box::into_raw(Box::new(value)))
    }
}

impl<T> Deref for Static<T> {
    type Target = &'static T;

    fn deref(&self) -> &&'static T {
        // SAFETY: a box's, and as good as static: every model keeps it until all else is gone.
        unsafe { &*(&raw const self.0).cast() }
    }
}

impl<T> Drop for Static<T> {
    fn drop(&mut self) {
        // SAFETY: it came out of a box, and nobody uses it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn storage<const PLACES: usize>() -> Static<TaskStorage<BYTES, PLACES>> {
    Static::new(TaskStorage::new("model"))
}

/// A task that ends at its first poll, in a place.
fn run_in(bench: &Bench, place: Place<BYTES>, ended: &Tally) -> core::task::Waker {
    let future = Dropped(ended.clone());
    let (task, handle) =
        task_in(place, bench.remote(), async move { drop(future) }, State::spawned_here());
    bench.home.adopt_and_queue(task);
    let waker = waker_of(task);
    drop(handle);
    bench.run_until(|| true);
    waker
}

fn wait_for_place(storage: &'static TaskStorage<BYTES, 1>) -> Place<BYTES> {
    loop {
        match storage.reserve() {
            Ok(place) => return place,
            Err(_) => thread::yield_now(),
        }
    }
}

/// The last waker of a task is dropped elsewhere, which gives its place back; the next task is put
/// there as soon as it is vacant.
#[test]
fn a_place_is_used_again() {
    explore(6, || {
        let storage = storage::<1>();
        let bench = Bench::new(0);
        let ended = Tally::default();
        let waker = run_in(&bench, storage.reserve().unwrap(), &ended);
        assert!(storage.reserve().is_err(), "its waker is there");
        let dropping = thread::spawn(move || drop(waker));
        let place = wait_for_place(&storage);
        drop(run_in(&bench, place, &ended));
        assert_eq!(ended.get(), 2);
        dropping.join().unwrap();
        assert!(storage.reserve().is_ok());
        bench.end();
    });
}

/// As above, but somebody else may reserve the place first, and gives it back unused.
#[test]
fn a_place_that_was_reserved_in_vain_is_used() {
    explore(4, || {
        let storage = storage::<1>();
        let bench = Bench::new(0);
        let ended = Tally::default();
        let waker = run_in(&bench, storage.reserve().unwrap(), &ended);
        let dropping = thread::spawn(move || drop(waker));
        let reserving = {
            let storage: &'static TaskStorage<BYTES, 1> = *storage;
            thread::spawn(move || drop(storage.reserve()))
        };
        let place = wait_for_place(&storage);
        drop(run_in(&bench, place, &ended));
        assert_eq!(ended.get(), 2);
        join_all([dropping, reserving]);
        bench.end();
    });
}

/// Several threads reserve the last place: one has it, and puts a task there.
fn one_has_the_last_place(threads: usize, preemptions: usize) {
    explore(preemptions, move || {
        let storage = storage::<2>();
        let first = storage.reserve().unwrap();
        let had = Tally::default();
        let reserve = |_| {
            let storage: &'static TaskStorage<BYTES, 2> = *storage;
            let had = had.clone();
            thread::spawn(move || {
                if let Ok(place) = storage.reserve() {
                    had.add();
                    core::mem::forget(place);
                }
            })
        };
        let threads: Vec<_> = (0..threads).map(reserve).collect();
        join_all(threads);
        assert_eq!(had.get(), 1);
        let full = storage.reserve().unwrap_err();
        assert_eq!(full.places(), 2);
        drop(first);
        assert!(storage.reserve().is_ok());
    });
}

#[test]
fn two_reserve_the_last_place() {
    one_has_the_last_place(2, 8);
}

#[test]
fn three_reserve_the_last_place() {
    one_has_the_last_place(3, 4);
}
