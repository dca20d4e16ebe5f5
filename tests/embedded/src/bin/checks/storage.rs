//! Tasks in statics: pools, reservations, places that are used again.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m_semihosting::hprintln;
use evenkeel::{Handle, JoinError, TaskStorage, task_size, yield_now};

use evenkeel_embedded::reactor::{Board, Operation};

const PLACES: usize = 3;

static POOL: TaskStorage<{ task_size(&doubled) }, PLACES> = TaskStorage::new("pool");
static WAITING: TaskStorage<{ task_size(&waits) }> = TaskStorage::new("waiting");

async fn doubled(number: usize) -> usize {
    yield_now().await;
    number * 2
}

async fn nothing() {}

async fn waits(handle: Handle<Board>, _told: Told) {
    let byte = handle.submit(Operation::ReadByte).expect("there is room");
    let _ = byte.await;
}

static DROPPED: AtomicU32 = AtomicU32::new(0);

/// Tells when it is dropped.
struct Told;

impl Drop for Told {
    fn drop(&mut self) {
        // Ordering: Relaxed: one thread.
        DROPPED.store(DROPPED.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// All of it.
pub async fn pools(handle: &Handle<Board>) {
    is_small();
    is_full_and_says_so();
    for round in 0..100 {
        is_used_again(handle, round).await;
    }
    is_aborted(handle).await;
}

/// Eight words of header, one waker for the join handle, and room for future or output.
fn is_small() {
    let words = task_size(&nothing).div_ceil(size_of::<usize>());
    hprintln!("  a task that does nothing takes {} words of a storage", words);
    assert!(words <= 8 + 2 + 1, "the header has grown");
}

fn is_full_and_says_so() {
    let mut places: [_; PLACES] = core::array::from_fn(|_| Some(POOL.reserve().expect("vacant")));
    let full = POOL.reserve().expect_err("no place is left");
    hprintln!("  {}", full);
    assert_eq!((full.name(), full.places()), ("pool", PLACES));
    places[1] = None;
    let again = POOL.reserve().expect("one was given back");
    assert!(POOL.reserve().is_err());
    drop((places, again));
}

async fn is_used_again(handle: &Handle<Board>, round: usize) {
    let tasks: [_; PLACES] = core::array::from_fn(|number| {
        let place = POOL.reserve().expect("those of the last round have ended");
        handle.spawn_in(place, doubled(round + number))
    });
    assert!(POOL.reserve().is_err());
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.ok(), Some((round + number) * 2));
    }
}

/// Its operation is cancelled with it, and the place is vacant again.
async fn is_aborted(handle: &Handle<Board>) {
    // Ordering: Relaxed: one thread.
    let dropped = DROPPED.load(Ordering::Relaxed);
    for round in 1..=20 {
        let place = WAITING.reserve().expect("the last one has ended");
        let task = handle.spawn_in(place, waits(handle.clone(), Told));
        // So that it waits for its byte.
        yield_now().await;
        yield_now().await;
        task.abort();
        assert!(matches!(task.await, Err(JoinError::Cancelled)));
        assert_eq!(DROPPED.load(Ordering::Relaxed) - dropped, round);
    }
}
