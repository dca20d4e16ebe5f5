//! Tasks from their spawn to their end: a stride of them is spawned, dispatched once, and gone.

use std::array;

use evenkeel::{JoinHandle, TaskStorage, Worker, task_size};

use crate::null::Null;
use crate::workers::{STRIDE, Still, lengthen_strides, tick, worker};

async fn answer() -> usize {
    42
}

const PLACE: usize = task_size(&answer);
static PLACES: [TaskStorage<PLACE>; STRIDE] = [const { TaskStorage::new("an answer") }; STRIDE];

pub(crate) fn boxed(spawns: usize) {
    spawn_all(spawns, |worker, _| worker.handle().spawn(answer()));
}

pub(crate) fn in_storage(spawns: usize) {
    spawn_all(spawns, |worker, number| {
        let place = PLACES[number].reserve().expect("the last task is gone");
        worker.handle().spawn_in(place, answer())
    });
}

fn spawn_all(spawns: usize, spawn: impl Fn(&Worker<Null, Still>, usize) -> JoinHandle<usize>) {
    let mut worker = worker(Null);
    lengthen_strides(&mut worker);
    for _ in 0..spawns / STRIDE {
        let handles: [_; STRIDE] = array::from_fn(|number| spawn(&worker, number));
        tick(&mut worker, STRIDE);
        drop(handles);
    }
}
