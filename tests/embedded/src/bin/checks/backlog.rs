//! Tasks that keep the run queue from being empty.

use core::sync::atomic::{AtomicBool, Ordering};

use cortex_m::asm;
use evenkeel::{Handle, JoinHandle, TaskStorage, task_size, yield_now};
use evenkeel_embedded::reactor::Board;

use crate::stamp;

/// How many there are.
pub const BACKLOG: usize = SEEDS.len();
/// What each begins its noise with.
const SEEDS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

static STORAGE: TaskStorage<{ task_size(&busy) }, BACKLOG> = TaskStorage::new("backlog");
static STOPPED: AtomicBool = AtomicBool::new(false);

/// A backlog that runs.
pub struct Backlog([JoinHandle<()>; BACKLOG]);

/// Starts it.
pub fn start(handle: &Handle<Board>) -> Backlog {
    // Ordering: Relaxed: one thread.
    STOPPED.store(false, Ordering::Relaxed);
    Backlog(SEEDS.map(|seed| {
        let place = STORAGE.reserve().unwrap_or_else(|full| panic!("{full}"));
        handle.spawn_in(place, busy(seed))
    }))
}

impl Backlog {
    /// Ends it, and waits for that.
    pub async fn stop(self) {
        // Ordering: Relaxed: one thread.
        STOPPED.store(true, Ordering::Relaxed);
        for task in self.0 {
            task.await.unwrap_or_else(|error| panic!("a task of the backlog: {error}"));
        }
    }
}

/// Works a little and yields, again and again. How long it works differs from time to time, so that
/// interrupts come at all points of a dispatch.
async fn busy(seed: u32) {
    let mut noise = seed;
    // Ordering: Relaxed: one thread.
    while !STOPPED.load(Ordering::Relaxed) {
        stamp::count_dispatch();
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        asm::delay(noise % 64);
        yield_now().await;
    }
}
