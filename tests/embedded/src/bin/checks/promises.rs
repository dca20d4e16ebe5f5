#![forbid(unsafe_code)]
//! What is promised, and whether it is kept. A check that fails panics, which ends the run.

use core::time::Duration;

use evenkeel::{Clock, Handle, Parked, Remote, Wait, Worker};
use evenkeel_embedded::clock::{PERIOD, SysTickClock};
use evenkeel_embedded::reactor::Board;

use crate::{
    alarm, idle, latency, parking, spawn_by_handler, stamp, storage, time, timers, watchdog,
};

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
    spawn_by_handler::spawns(&handle, &remote, wakes).await;
    latency::latencies(&handle, wakes).await;
    time::goes_on(&handle).await;
    timers::keep_time(&handle, wakes).await;
    parking::no_wake_is_lost(&handle).await;
    idle::idles(&handle, &remote).await;
    remote.stop();
}

/// Parks a worker that has nothing to do until a deadline: not a tick less, and about a period more
/// at most.
pub fn sleep_until_deadlines(worker: &mut Worker<Board, SysTickClock>) {
    for micros in [0, 1, 999, 1_000, 1_001, 12_345] {
        let deadline = SysTickClock.now() + Duration::from_micros(micros);
        let Ok(parked) = worker.park(Wait::Until(deadline));
        let now = SysTickClock.now();
        assert_eq!(parked, Parked::Waited);
        assert!(now >= deadline, "woken {:?} before its deadline", deadline - now);
        assert!(now - deadline < PERIOD + PERIOD / 10, "woken {:?} after it", now - deadline);
    }
}
