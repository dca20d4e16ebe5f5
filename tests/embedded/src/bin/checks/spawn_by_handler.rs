//! Tasks that an interrupt handler spawns.

use core::cell::RefCell;
use core::sync::atomic::{AtomicUsize, Ordering};

use cortex_m_semihosting::hprintln;
use critical_section::Mutex;
use evenkeel::{Handle, Lane, Remote, TaskStorage, task_size};
use evenkeel_embedded::reactor::Board;

use crate::backlog::{self, BACKLOG};
use crate::latency::Way;
use crate::promises::Wakes;
use crate::stamp;

const PLACES: usize = 4;

static STORAGE: TaskStorage<{ task_size(&spawned) }, PLACES> =
    TaskStorage::new("spawned by the handler");
static REMOTE: Mutex<RefCell<Option<Remote<Board>>>> = Mutex::new(RefCell::new(None));

// Ordering: Relaxed for all of them: one core, and a handler runs as a whole.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static SPAWNED: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static RAN: AtomicUsize = AtomicUsize::new(0);
/// How many may stand before the first of them in its lane.
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// By the SysTick's handler: spawns as many as are wanted.
pub fn on_period() {
    let wanted = WANTED.load(Ordering::Relaxed);
    if wanted == 0 {
        return;
    }
    WANTED.store(0, Ordering::Relaxed);
    critical_section::with(|cs| {
        let remote = REMOTE.borrow_ref(cs);
        let remote = remote.as_ref().expect("there is a worker when tasks are wanted");
        for number in 0..wanted {
            match STORAGE.reserve() {
                Ok(place) => {
                    // Detached: it tells by `RAN` that it has run.
                    drop(remote.spawn_in(place, spawned(number)));
                    add_to(&SPAWNED, 1);
                }
                Err(full) => {
                    assert_eq!(full.places(), PLACES);
                    add_to(&REFUSED, 1);
                }
            }
        }
    });
}

fn add_to(count: &AtomicUsize, more: usize) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// The `number`-th of those that one interrupt spawned, from 0.
async fn spawned(number: usize) {
    assert_eq!(RAN.load(Ordering::Relaxed) % PLACES, number, "they run in their order");
    let place = BEFORE.load(Ordering::Relaxed) + number + 1;
    assert!(stamp::since().dispatches <= Lane::COUNT * place, "the bound of service is broken");
    add_to(&RAN, 1);
}

/// Asks for one more than there are places, again and again.
pub async fn spawns(handle: &Handle<Board>, remote: &Remote<Board>, wakes: Wakes) {
    const ROUNDS: usize = 50;
    critical_section::with(|cs| REMOTE.replace(cs, Some(remote.clone())));
    for count in [&SPAWNED, &REFUSED, &RAN] {
        count.store(0, Ordering::Relaxed);
    }
    // The signal that the same interrupt gives; and those who yield, where these take the inbox too.
    let before = match wakes {
        Wakes::Local => 1,
        Wakes::ThroughInbox => 1 + BACKLOG,
    };
    BEFORE.store(before, Ordering::Relaxed);
    let backlog = backlog::start(handle);
    for _ in 0..ROUNDS {
        WANTED.store(PLACES + 1, Ordering::Relaxed);
        // The second one, so that all have run whichever way is faster.
        Way::Signal.next_period(handle).await;
        Way::Signal.next_period(handle).await;
    }
    backlog.stop().await;
    critical_section::with(|cs| REMOTE.replace(cs, None));
    let [spawned, refused, ran] =
        [&SPAWNED, &REFUSED, &RAN].map(|count| count.load(Ordering::Relaxed));
    hprintln!("  a handler has spawned {} tasks and was refused {}; {} ran", spawned, refused, ran);
    assert_eq!((spawned, refused, ran), (ROUNDS * PLACES, ROUNDS, ROUNDS * PLACES));
}
