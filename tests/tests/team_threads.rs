//! The ends of a team's threads.

use std::time::Duration;

use evenkeel::testing::{SimReactor, VirtualClock};
use evenkeel::{TeamConfig, TeamThreads};

fn team(workers: usize) -> TeamThreads<SimReactor> {
    let config = TeamConfig { workers, ..TeamConfig::default() };
    let reactor =
        |_| Ok::<_, std::io::Error>(SimReactor::new(&VirtualClock::new()).waits_for_real());
    TeamThreads::start(&config, reactor).unwrap()
}

#[test]
fn who_waits_as_long_as_it_takes_waits_no_longer() {
    let team = team(2);
    let task = team.spawn(async { 42 }).unwrap();
    let waited = task.wait_within(Duration::MAX).unwrap();
    assert_eq!(waited.unwrap(), 42);
    team.stop_within(Duration::MAX).unwrap();
}

#[test]
fn a_handle_comes_back_from_a_wait_that_is_over() {
    let team = team(1);
    let task = team.spawn(std::future::pending::<()>()).unwrap();
    let task = task.wait_within(Duration::from_millis(1)).unwrap_err();
    assert!(!task.is_finished());
    team.stop_within(Duration::from_secs(20)).unwrap();
    assert!(task.wait_within(Duration::from_secs(20)).unwrap().is_err(), "it was cancelled");
}
