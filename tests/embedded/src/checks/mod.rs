#![forbid(unsafe_code)]
//! What is promised, and whether it is kept. A check that fails panics, which ends the run.

mod alarm;
mod backlog;
pub mod echo;
mod idle;
mod latency;
mod parking;
mod spawn_by_handler;
mod stamp;
mod storage;
mod watchdog;

use core::time::Duration;

use evenkeel::{Clock, Handle, Parked, Remote, Wait, Worker};

use crate::clock::{PERIOD_TICKS, SysTickClock, TICK_NANOS};
use crate::reactor::Board;

/// Which way the wakes take that a worker gives itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// To its own lanes: it knows its context by the hook.
    Local,
    /// Through its inbox, as those by handlers do.
    ThroughInbox,
}

/// By the SysTick's handler.
pub fn on_period() {
    // The latency counts from here.
    stamp::set();
    alarm::on_period();
    spawn_by_handler::on_period();
    watchdog::on_period();
}

/// All that the board does by itself. The last thing is to stop the worker.
pub async fn promises(handle: Handle<Board>, remote: Remote<Board>, wakes: Wakes) {
    watchdog::allow(20_000);
    storage::pools(&handle).await;
    spawn_by_handler::spawns(&handle, &remote).await;
    latency::latencies(&handle, wakes).await;
    parking::no_wake_is_lost(&handle).await;
    idle::idles(&handle, &remote).await;
    remote.stop();
}

/// Parks a worker that has nothing to do until a deadline: not a tick less, and about a period more
/// at most.
pub fn sleep_until_deadlines(worker: &mut Worker<Board, SysTickClock>) {
    const PERIOD: Duration = Duration::from_nanos(PERIOD_TICKS as u64 * TICK_NANOS);
    for micros in [0, 1, 999, 1_000, 1_001, 12_345] {
        let deadline = SysTickClock.now() + Duration::from_micros(micros);
        let Ok(parked) = worker.park(Wait::Until(deadline));
        let now = SysTickClock.now();
        assert_eq!(parked, Parked::Waited);
        assert!(now >= deadline, "woken {:?} before its deadline", deadline - now);
        assert!(now - deadline < PERIOD + PERIOD / 10, "woken {:?} after it", now - deadline);
    }
}
