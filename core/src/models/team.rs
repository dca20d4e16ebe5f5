//! Teams: who idles and who is called, over a bare piece of work; the real queues with members that
//! park; and what becomes of tasks when members join, stop and leave.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{self, Future};
use core::task::{Poll, Waker};

use loom::thread;

use super::hand_over::worker;
use super::{
    Bell, Bench, Dropped, Sealed, Tally, explore, join_all, poll, stealable_waker_of, wait_for,
};
use crate::park::{Owed, Park};
use crate::reactor::{Completion, Wait};
use crate::service::context::Ticking;
use crate::service::idle::{Call, Idle};
use crate::service::in_flight::InFlight;
use crate::service::join::JoinHandle;
use crate::sync::{AtomicUsize, Ordering};
use crate::task::TaskRef;
use crate::task::cell::JoinError;
use crate::team::Team;
use crate::worker::Rest;

/// Two members whose queues are one number: how many pieces of work there are.
struct Members {
    idle: Idle,
    park: Park,
    bell: Arc<Bell>,
    work: AtomicUsize,
}

impl Members {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(),
            park: Park::new(),
            bell: Bell::new(),
            work: AtomicUsize::new(0),
        })
    }

    /// As the queues: published by a release, and seen by a relaxed look.
    fn push(&self) {
        self.work.fetch_add(1, Ordering::Release);
    }

    fn has_work(&self) -> bool {
        self.work.load(Ordering::Relaxed) > 0
    }

    /// Takes one, as a thief: who finds none by an outdated look goes without.
    fn steal(&self) -> bool {
        let seen = self.work.load(Ordering::Relaxed);
        seen > 0
            && self
                .work
                .compare_exchange(seen, seen - 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Whom the call went to.
    fn call(&self) -> Option<usize> {
        let called = self.idle.call();
        if called == Some(PARKING) && self.park.handed_over() == Owed::Notification {
            self.bell.notify.notify();
        }
        called
    }

    /// The end of a search: whom it has called.
    fn end_search(&self) -> Option<usize> {
        self.idle.end_search();
        if self.has_work() { self.call() } else { None }
    }

    /// A member with nothing to do, until it has stolen a piece of work.
    fn park_until_stolen(&self) {
        loop {
            self.park.announce();
            self.idle.announce(PARKING);
            if !self.has_work() {
                self.bell.wait();
            }
            self.park.resume();
            let call = self.idle.retract(PARKING);
            let stolen = self.steal();
            if call == Call::Pending {
                self.end_search();
            }
            if stolen {
                return;
            }
            thread::yield_now();
        }
    }
}

/// The member that parks; another one idles, but nobody waits there.
const PARKING: usize = 1;

/// Somebody makes a task runnable, and then is long in a dispatch: who parks finds it.
#[test]
fn what_is_pushed_is_found() {
    explore(6, || {
        let members = Members::new();
        let pusher = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.push();
                members.call();
            })
        };
        members.park_until_stolen();
        pusher.join().unwrap();
    });
}

#[test]
fn what_two_push_is_found() {
    two_push(2);
}

#[test]
fn deep_what_two_push_is_found() {
    two_push(3);
}

fn two_push(preemptions: usize) {
    explore(preemptions, || {
        let members = Members::new();
        let push = |()| {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.push();
                members.call();
            })
        };
        let pushers = [(), ()].map(push);
        members.park_until_stolen();
        members.park_until_stolen();
        join_all(pushers);
    });
}

/// Who pushes while somebody searches calls nobody: the end of the search does.
#[test]
fn what_is_pushed_during_a_search_is_found() {
    explore(6, || {
        let members = Members::new();
        members.idle.announce(0);
        assert_eq!(members.idle.call(), Some(0));
        assert_eq!(members.idle.retract(0), Call::Pending);
        members.idle.announce(PARKING);
        let pusher = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.push();
                members.idle.call()
            })
        };
        let stolen = members.steal();
        members.idle.end_search();
        let called = if members.has_work() { members.idle.call() } else { None };
        let called_by_pusher = pusher.join().unwrap();
        let calls = [called, called_by_pusher];
        assert!(stolen || calls.contains(&Some(PARKING)), "pushed, and nobody is called");
        assert!(!calls.iter().all(Option::is_some), "one is called once");
    });
}

/// Two push while two idle: one is called, and then the other, when the first has searched.
#[test]
fn one_searches_at_a_time() {
    explore(6, || {
        let members = Members::new();
        members.idle.announce(0);
        members.idle.announce(PARKING);
        let push = |()| {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.push();
                members.idle.call()
            })
        };
        let calls = [(), ()].map(push).map(|pusher| pusher.join().unwrap());
        assert_eq!(calls.iter().flatten().count(), 1);
        let called = calls.into_iter().flatten().next().unwrap();
        assert_eq!(members.idle.call(), None, "one searches");
        assert_eq!(members.idle.retract(called), Call::Pending);
        members.idle.end_search();
        assert_eq!(members.idle.call(), Some(1 - called));
    });
}

/// Two whose searches are over, and two that idle: no announcement, and no end of a search, is lost.
#[test]
fn marks_are_not_lost() {
    explore(6, || {
        let members = Members::new();
        members.idle.announce(2);
        assert_eq!(members.idle.call(), Some(2));
        let announcing = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.idle.announce(0);
                members.idle.retract(0)
            })
        };
        let other = {
            let members = Arc::clone(&members);
            thread::spawn(move || members.idle.announce(PARKING))
        };
        members.idle.end_search();
        let call = announcing.join().unwrap();
        other.join().unwrap();
        assert_eq!(call, Call::None);
        assert_eq!(members.idle.call(), Some(PARKING));
    });
}

/// A member takes its announcement back while it is called: it knows of the call, or there was
/// none; and the call carries what it is for.
#[test]
fn a_call_is_known_and_carries_what_it_is_for() {
    explore(6, || {
        let members = Members::new();
        let pusher = {
            let members = Arc::clone(&members);
            thread::spawn(move || {
                members.push();
                members.call()
            })
        };
        members.park.announce();
        members.idle.announce(PARKING);
        members.park.resume();
        let pending = members.idle.retract(PARKING) == Call::Pending;
        assert!(!pending || members.steal(), "called, and finds nothing");
        assert_eq!(pusher.join().unwrap().is_some(), pending);
    });
}

/// Ready when it was polled so often, having yielded.
fn yielding(times: usize) -> impl Future<Output = ()> + Send + 'static {
    let mut polls = 0;
    future::poll_fn(move |context| {
        if polls == times {
            return Poll::Ready(());
        }
        polls += 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Two members of a team.
fn two() -> (Team, Bench, Bench) {
    let team = Team::new(2).unwrap();
    let (one, other) = (Bench::in_team(&team), Bench::in_team(&team));
    (team, one, other)
}

/// A member that runs until it is stopped, and then leaves.
fn run_and_leave(bench: Bench) -> thread::JoinHandle<Bench> {
    thread::spawn(move || {
        bench.run_until(|| false);
        bench.close();
        bench
    })
}

/// Who makes a task runnable and then does not give way is helped: the other one parks, and finds
/// it or is called.
fn helped(tasks: usize, preemptions: usize) {
    explore(preemptions, move || {
        let (_team, one, other) = two();
        let bell = Bell::new();
        let stop = other.remote();
        let helper = run_and_leave(other);
        let ran = Tally::default();
        {
            // One long dispatch: what it spawns is not its to run meanwhile.
            let _ticking = Ticking::enter(&one.home);
            for _ in 0..tasks {
                let (bell, ran, sealed) = (Arc::clone(&bell), ran.clone(), Sealed::new(7));
                drop(one.spawn_stealable(async move {
                    assert_eq!(sealed.open(), 7);
                    ran.add();
                    bell.notify.notify();
                }));
            }
            while ran.get() < tasks {
                bell.wait();
            }
        }
        stop.request_stop();
        drop(stop);
        let other = helper.join().unwrap();
        one.end();
        other.end();
    });
}

#[test]
fn a_member_that_parks_takes_over() {
    helped(1, 3);
}

#[test]
fn deep_a_member_that_parks_takes_over_two() {
    helped(2, 2);
}

/// Who pushes while somebody searches calls nobody; whose search ends calls the next.
#[test]
fn the_end_of_a_search_calls_the_next() {
    explore(1, || {
        let team = Team::new(3).unwrap();
        let [one, second, third] = [(), (), ()].map(|()| Bench::in_team(&team));
        for idle in [&second, &third] {
            idle.announcements.add();
            idle.home.announce_park();
        }
        {
            let _ticking = Ticking::enter(&one.home);
            (0..2).for_each(|_| drop(one.spawn_stealable(async {})));
        }
        assert_eq!((second.bell.rings(), third.bell.rings()), (1, 0));
        second.home.resume();
        {
            let _ticking = Ticking::enter(&second.home);
            second.home.keep_up_with_team();
        }
        assert_eq!(third.bell.rings(), 1, "there is more than one can do");
        third.home.resume();
        [one, second, third].into_iter().for_each(Bench::end);
    });
}

/// Submissions to a team whose last member leaves: each future is dropped once, by whichever
/// thread, and each handle has its answer.
fn submitted_at_the_end(from: usize, runs: bool, preemptions: usize) {
    explore(preemptions, move || {
        let team = Team::new(1).unwrap();
        let bench = Bench::in_team(&team);
        let dropped = Tally::default();
        let spawn = |_| {
            let (team, future) = (team.clone(), Dropped(dropped.clone()));
            thread::spawn(move || {
                if let Ok(mut handle) = team.spawn(async move { drop(future) }) {
                    assert!(matches!(wait_for(&mut handle), Ok(()) | Err(JoinError::Cancelled)));
                }
            })
        };
        let threads: Vec<_> = (0..from).map(spawn).collect();
        if runs {
            bench.run_until(|| true);
        }
        bench.close();
        join_all(threads);
        assert!(bench.home.is_drained());
        assert_eq!(dropped.get(), from);
        bench.end();
    });
}

#[test]
fn one_submits_at_the_end() {
    submitted_at_the_end(1, true, 3);
}

#[test]
fn two_submit_at_the_end() {
    submitted_at_the_end(2, false, 2);
}

#[test]
fn deep_two_submit_at_the_end() {
    submitted_at_the_end(2, true, 2);
}

/// A stealable task that is idle when its worker leaves, and its waker elsewhere: whatever comes of
/// it, it ends once and its handle is told.
fn idle_task(bench: &Bench, ended: &Tally) -> (TaskRef, JoinHandle<()>) {
    let end = Dropped(ended.clone());
    let mut polls = 0;
    let spawned = bench.spawn_stealable(future::poll_fn(move |_| {
        let _ = &end;
        polls += 1;
        if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
    }));
    bench.run_until(|| true);
    spawned
}

/// A wake while both members of the task's team leave, one of them the one that spawned it.
fn woken_as_both_end(preemptions: usize) {
    explore(preemptions, || {
        let (_team, one, other) = two();
        let ended = Tally::default();
        let (task, handle) = idle_task(&one, &ended);
        drop(handle);
        let waker = stealable_waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        let leaving = thread::spawn(move || {
            other.close();
            other
        });
        one.close();
        let other = leaving.join().unwrap();
        waking.join().unwrap();
        assert_eq!(ended.get(), 1);
        one.end();
        other.end();
    });
}

#[test]
fn a_wake_meets_the_end_of_both() {
    woken_as_both_end(3);
}

#[test]
fn deep_a_wake_meets_the_end_of_both() {
    woken_as_both_end(4);
}

/// A wake into a worker that has ended, or is at it: another member of the team runs the task.
#[test]
fn a_wake_into_a_worker_that_ends_is_handed_on() {
    woken_into_what_ends(2);
}

#[test]
fn deep_a_wake_into_a_worker_that_ends_is_handed_on() {
    woken_into_what_ends(3);
}

fn woken_into_what_ends(preemptions: usize) {
    explore(preemptions, || {
        let (_team, one, other) = two();
        let ended = Tally::default();
        let (task, mut handle) = idle_task(&one, &ended);
        let waker = stealable_waker_of(task);
        let waking = thread::spawn(move || waker.wake());
        let leaving = thread::spawn(move || {
            one.close();
            one
        });
        other.run_until(|| ended.get() == 1);
        waking.join().unwrap();
        let one = leaving.join().unwrap();
        assert!(matches!(wait_for(&mut handle), Ok(())), "one is there to run it");
        drop(handle);
        one.end();
        other.end();
    });
}

/// What a member leaves in its queue, another one runs.
fn left_behind(tasks: usize, preemptions: usize) {
    explore(preemptions, move || {
        let (_team, one, other) = two();
        let ran = Tally::default();
        let spawn = |_| {
            let (ran, sealed) = (ran.clone(), Sealed::new(7));
            let (_, handle) = one.spawn_stealable(async move {
                yielding(1).await;
                assert_eq!(sealed.open(), 7);
                ran.add();
            });
            handle
        };
        let handles: Vec<_> = (0..tasks).map(spawn).collect();
        let leaving = thread::spawn(move || {
            one.close();
            one
        });
        other.run_until(|| ran.get() == tasks);
        let one = leaving.join().unwrap();
        for mut handle in handles {
            assert!(matches!(wait_for(&mut handle), Ok(())));
        }
        one.end();
        other.end();
    });
}

#[test]
fn one_is_left_behind() {
    left_behind(1, 4);
}

#[test]
fn deep_three_are_left_behind() {
    left_behind(3, 2);
}

/// What a completion has woken, and what a pinned task wakes and spawns when it is dropped with its
/// worker, another one runs.
#[test]
fn what_the_end_itself_wakes_is_handed_on() {
    woken_by_the_end(1);
}

#[test]
fn deep_what_the_end_itself_wakes_is_handed_on() {
    woken_by_the_end(2);
}

fn woken_by_the_end(preemptions: usize) {
    explore(preemptions, || {
        let team = Team::new(2).unwrap();
        let one = Bench::new(2);
        team.take_in(&one.home).unwrap();
        let other = Bench::in_team(&team);
        let ran = Tally::default();
        // One waits for an operation that ends, one for an operation that is orphaned.
        let submit = |()| {
            // SAFETY: by the owner; just allocated.
            let (token, future) = unsafe {
                let token = one.home.operations().allocate().unwrap();
                (token, InFlight::new(one.remote(), token))
            };
            let ran = ran.clone();
            drop(one.spawn_stealable(async move {
                let _ = future.await;
                ran.add();
            }));
            token
        };
        let [token, _] = [(), ()].map(submit);
        // One is woken by the end of a pinned task.
        let (task, handle) = idle_task(&one, &ran);
        drop(handle);
        let wakes = WakesWhenDropped(stealable_waker_of(task));
        drop(one.spawn(async move {
            let _wakes = wakes;
            future::pending::<()>().await;
        }));
        one.run_until(|| true);
        {
            let _ticking = Ticking::enter(&one.home);
            assert!(one.home.complete(Completion { token, result: 0 }));
        }
        let leaving = thread::spawn(move || {
            one.close();
            one
        });
        other.run_until(|| ran.get() == 3);
        let one = leaving.join().unwrap();
        one.end();
        other.end();
    });
}

struct WakesWhenDropped(Waker);

impl Drop for WakesWhenDropped {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

/// The last member ends, and with it its tasks: the end of one wakes the other.
#[test]
fn what_the_last_end_wakes_ends() {
    explore(1, || {
        let team = Team::new(1).unwrap();
        let bench = Bench::in_team(&team);
        let ended = Tally::default();
        let (first, first_handle) = idle_task(&bench, &ended);
        let wakes = WakesWhenDropped(stealable_waker_of(first));
        drop(bench.spawn_stealable(async move {
            let _wakes = wakes;
            future::pending::<()>().await;
        }));
        bench.run_until(|| true);
        drop(first_handle);
        bench.close();
        assert_eq!(ended.get(), 1);
        bench.end();
    });
}

/// A task that is being polled wakes another one, which was polled by the other member.
#[test]
fn one_task_wakes_another() {
    explore(2, || {
        let (_team, one, other) = two();
        let ended = Tally::default();
        let (task, handle) = idle_task(&one, &ended);
        drop(handle);
        let waker = stealable_waker_of(task);
        let waking = thread::spawn(move || {
            drop(other.spawn_stealable(async move { waker.wake() }));
            other.run_until(|| true);
            other
        });
        let other = waking.join().unwrap();
        one.run_until(|| true);
        other.run_until(|| true);
        assert_eq!(ended.get(), 1);
        other.end();
        one.end();
    });
}

/// The real workers: one has spawned a task and does not give way, the other one finds it, or is
/// called.
#[test]
fn a_worker_that_parks_takes_over() {
    explore(3, || {
        let team = Team::new(2).unwrap();
        let mut one = worker();
        one.join(&team).unwrap();
        let (ran, bell) = (Tally::default(), Bell::new());
        let helping = {
            let (team, ran) = (team.clone(), ran.clone());
            thread::spawn(move || {
                let mut other = worker();
                other.join(&team).unwrap();
                while ran.get() == 0 {
                    let Ok(tick) = other.tick();
                    if tick.rest == Rest::Idle {
                        let Ok(_) = other.park(Wait::Forever);
                    }
                }
            })
        };
        {
            let (ran, bell) = (ran.clone(), Arc::clone(&bell));
            drop(one.handle().spawn_stealable(async move {
                ran.add();
                bell.notify.notify();
            }));
        }
        while ran.get() == 0 {
            bell.wait();
        }
        helping.join().unwrap();
    });
}

/// A worker joins while the only member leaves a task behind: it is too late, or it is heir to it.
#[test]
fn one_joins_as_the_last_leaves() {
    explore(4, || {
        let team = Team::new(2).unwrap();
        let one = Bench::in_team(&team);
        let (_, mut handle) = one.spawn_stealable(async {});
        let leaving = thread::spawn(move || {
            one.close();
            one
        });
        let other = Bench::new(0);
        let joined = team.take_in(&other.home).is_ok();
        let one = leaving.join().unwrap();
        if joined {
            other.run_until(|| true);
            assert!(matches!(poll(&mut handle, Waker::noop()), Poll::Ready(Ok(()))));
        } else {
            assert!(matches!(wait_for(&mut handle), Err(JoinError::Cancelled)));
        }
        drop(handle);
        one.end();
        other.end();
    });
}

/// A submission to a team that a worker is just joining: it runs there, or is given back.
#[test]
fn one_submits_as_the_first_joins() {
    explore(6, || {
        let team = Team::new(1).unwrap();
        let submitting = {
            let team = team.clone();
            thread::spawn(move || team.spawn(async {}).ok())
        };
        let bench = Bench::in_team(&team);
        if let Some(mut handle) = submitting.join().unwrap() {
            bench.run_until(|| true);
            assert!(matches!(poll(&mut handle, Waker::noop()), Poll::Ready(Ok(()))));
        }
        bench.end();
    });
}

/// A member that is stopped while others idle leaves no search unended.
#[test]
fn a_stopped_member_passes_the_call_on() {
    stopped(2);
}

#[test]
fn deep_a_stopped_member_passes_the_call_on() {
    stopped(3);
}

fn stopped(preemptions: usize) {
    explore(preemptions, || {
        let (team, one, other) = two();
        let (stop, ran) = (other.remote(), Tally::default());
        let helper = run_and_leave(other);
        let stopping = {
            let stop = stop.clone();
            thread::spawn(move || stop.request_stop())
        };
        {
            let ran = ran.clone();
            let _ticking = Ticking::enter(&one.home);
            drop(one.spawn_stealable(async move { ran.add() }));
        }
        one.run_until(|| true);
        stopping.join().unwrap();
        let other = helper.join().unwrap();
        // It may have taken the task over, and left it behind.
        one.run_until(|| true);
        assert_eq!(ran.get(), 1);
        // Who makes a task runnable while somebody idles, be it itself, calls.
        let before = one.bell.rings();
        one.announcements.add();
        one.home.announce_park();
        {
            let _ticking = Ticking::enter(&one.home);
            drop(one.spawn_stealable(async {}));
        }
        one.home.resume();
        assert_eq!(one.bell.rings(), before + 1, "a search was never ended");
        drop((team, stop));
        one.end();
        other.end();
    });
}
