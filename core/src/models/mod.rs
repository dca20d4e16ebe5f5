//! Models of what is concurrent in this crate, explored by loom: `RUSTFLAGS="--cfg loom" cargo test
//! --release --lib --features std,testing models`. Those named `deep_` take longer, and none of the
//! faults below needs them; `--skip deep_` leaves them out.
//!
//! They drive the code itself, not a copy of its protocols: the inbox, the park state, the table of
//! operations, tasks in a worker's shared half, and the worker's own `run`. Each states how many
//! preemptions an execution may have, so that it is the same however it is called.
//!
//! | file | what races |
//! |---|---|
//! | `inbox` | pushes with takes, and with the push of the same node right after its take |
//! | `park` | announcement, last look and end with push and claim |
//! | `task_state` | wakes, aborts, handles and references with take, poll, end and close |
//! | `operation` | a future that looks, changes its waker and leaves, with the end of its operation |
//! | `operations` | the table that stands alone: leaving with an owner that waits, or ends |
//! | `hand_over` | submissions with a worker that parks, that is asked to stop, that ends |
//! | `steal` | pushes and pops of a queue's owner with thieves of one, and of many into their own |
//! | `stealable` | the same for stealable tasks: their state alone, in a worker, in a team of two |
//! | `team` | who idles with who has work to share; joining, submissions and wakes with the end of members |
//! | `storage` | the places of a storage: reserving with giving back |
//!
//! # How a fault shows
//! - What is lost is waited for: a deadlock, which loom reports, or a spin that does not end.
//! - Every cell is loom's: two accesses that nothing orders are a data race.
//! - What is freed keeps its memory until the execution is over, and knows that it is gone:
//!   [`Life`](crate::sync::Life).
//! - At its end each model counts what is left: tasks, wakers, outputs, slots, notifications.
//!
//! # What they were seen to find
//! Each of these changes was made, by itself, and failed the model named beside it, mostly among
//! others.
//!
//! | mutation | model that fails |
//! |---|---|
//! | inbox, push: store `Release` → `Relaxed` | `inbox::two_producers` |
//! | inbox, push: swap `AcqRel` → `Release`, `Relaxed` | `inbox::one_producer_empties_and_refills` |
//! | inbox, push: swap `AcqRel` → `Acquire` | `inbox::two_producers` |
//! | inbox, push: the link is not nulled | `inbox::a_node_is_pushed_again_right_after_its_take` |
//! | inbox, take: the compare-and-swap → a look and a store | `inbox::two_producers` |
//! | inbox, take: the compare-and-swap `Release` → `Relaxed` | `inbox::one_producer_empties_and_refills` |
//! | inbox, take: first or second look at the link, or at `first`, `Acquire` → `Relaxed` | `inbox::two_producers` |
//! | inbox, take: `first` is not cleared | `inbox::one_producer_empties_and_refills` |
//! | inbox, take: says `Empty` for `Busy`, at the cut or where nothing is in reach | `inbox::busy_is_not_empty` |
//! | inbox, take: forgets its place at the cut | `inbox::two_producers` |
//! | inbox: is drained when nothing is visible | `inbox::busy_is_not_empty` |
//! | inbox, `consumer`: `Acquire` → `Relaxed`, or its end `Release` → `Relaxed` | `inbox::one_consumer_after_the_other` |
//! | inbox, `consumer`: by load and store | `inbox::one_consumer_after_the_other` |
//! | park: no fence in `announce` or in `handed_over`, or a `SeqCst` load for it | `park::one_producer_and_a_worker_that_parks` |
//! | park: no fence in `close` | `park::closed_or_found` |
//! | park, `close`: `Release` → `Relaxed`; the failed claim: `Acquire` → `Relaxed` | `park::closed_or_found` |
//! | park: a claim by load and store | `park::an_announcement_is_claimed_once` |
//! | park: what is claimed is claimed again | `park::an_announcement_is_claimed_once` |
//! | worker: no last look at the inbox | `hand_over::a_worker_runs_what_is_submitted_and_is_stopped` |
//! | worker: no last look at the stop mark | `hand_over::a_worker_is_stopped` |
//! | task, `take`: load and store | `task_state::one_wakes_twice` |
//! | task, `take`: `AcqRel` → `Release`, `Relaxed` | `task_state::one_wakes_twice` |
//! | task, `take`: `AcqRel` → `Acquire` | `inbox::a_node_is_pushed_again_right_after_its_take` |
//! | task: `take` after the poll | `task_state::one_wakes_twice` |
//! | task, `schedule`: what is owed, by an earlier load | `task_state::a_wake_meets_the_end` |
//! | task, `schedule`: `AcqRel` → `Acquire`, `Relaxed` | `task_state::one_wakes_twice` |
//! | task, `schedule`: `AcqRel` → `Release` | `inbox::a_node_is_pushed_again_right_after_its_take` |
//! | task, `abort`: `AcqRel` → `Acquire`, `Relaxed` | `task_state::an_abort_and_a_wake_end_what_waits` |
//! | task, `abort`: `AcqRel` → `Release` | `inbox::a_node_is_pushed_again_by_an_abort` |
//! | task, `abort`: without `SCHEDULED`, or always pushed | `task_state::an_abort_meets_the_end` |
//! | task, `complete`: `AcqRel` → `Acquire`, `Release`, `Relaxed` | `task_state::an_output_is_awaited_elsewhere` |
//! | task: an ended one is pushed | `task_state::a_wake_meets_the_end` |
//! | task: an ended one is released while its entry is to come | `task_state::a_wake_meets_the_end` |
//! | task: `AWAITED` stays when the entry is taken | `task_state::a_wake_meets_the_end` |
//! | task, `drop_reference`: `AcqRel` → `Acquire`, `Release`, `Relaxed` | `task_state::the_last_reference_frees` |
//! | join, `load`: `Acquire` → `Relaxed` | `task_state::an_output_is_awaited_elsewhere` |
//! | join, `lend_waker`: `AcqRel` → `Acquire`, `Release`, `Relaxed` | `task_state::an_output_is_awaited_elsewhere` |
//! | join: the waker is not reclaimed, or by load and store, or its failure `Relaxed` | `task_state::an_output_is_awaited_elsewhere` |
//! | join, `detach`: `Release` → `Relaxed` | `task_state::the_last_reference_frees` |
//! | join, `detach`: does not look at `COMPLETE`, or load and store | `task_state::a_handle_leaves` |
//! | join, `drop_handle`: `Acquire` → `Relaxed` | `task_state::a_handle_leaves` |
//! | join: the output is dropped by the worker always, or by the handle never | `task_state::a_handle_leaves` |
//! | operation, `finish`: `AcqRel` → `Acquire`, `Release`, `Relaxed` | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `finish`: takes a waker that is not `LENT` | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `finish`: vacates what is `ROUTED` | `operation::a_future_leaves` |
//! | operation, `finish`: never vacates | `operation::a_cancel_is_routed` |
//! | operation, `poll`: the look, or a failed taking back, `Acquire` → `Relaxed` | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `poll`: the waker is changed without being taken back | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `poll`: lends by load and store; `AcqRel` → `Acquire`, `Release`, `Relaxed` | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `leave`: without `ROUTED` | `operation::a_future_leaves` |
//! | operation, `take_routed`: `ROUTED` stays | `operation::a_cancel_is_routed` |
//! | operation, `vacate`: the generation stays | `operation::a_slot_is_used_again` |
//! | operation, `complete`: does not look at `DONE` | `operation::a_result_is_awaited_elsewhere` |
//! | operation, `orphan_all`: does not wake | `operation::an_orphan_is_told_elsewhere` |
//! | operations, `next_cancel`: no announcement, or no look after it | `operations::a_cancel_ends_the_wait_of_the_owner` |
//! | operations, `next_cancel`: an announcement that is claimed still counts | `operations::two_cancels_reach_a_waiting_owner` |
//! | operations, `leave`: does not wake the notifier | `operations::a_cancel_ends_the_wait_of_the_owner` |
//! | end: a producer that finds the worker gone, or the worker itself, does not clear | `hand_over::one_submits_at_the_end` |
//! | end, `clear`: two at a time, or no second look | `hand_over::one_submits_at_the_end` |
//! | end, `clear`: coming `AcqRel` → `Release`, `Relaxed`; leaving `Release` → `Relaxed`; staying `Acquire` → `Relaxed` | `hand_over::one_submits_at_the_end` |
//! | end: the list of tasks is looked at for one that was never in it | `hand_over::both_sides_submit_after_the_end` |
//! | stealable, `activate`: `AcqRel` → `Acquire`, `Release`, `Relaxed` | `stealable::one_wakes_twice` |
//! | stealable, `activate`: what is owed, by an earlier load; a push is owed though it is `ACTIVE` | `stealable::a_wake_meets_the_close` |
//! | stealable, `activate`: without `SCHEDULED` | `stealable::one_wakes_twice` |
//! | stealable, `activate_and_abort`: `AcqRel` → `Acquire`, `Relaxed`; without `SCHEDULED` | `stealable::an_abort_carries_what_came_before` |
//! | stealable, `activate_and_abort`: `AcqRel` → `Release` | `stealable::an_abort_takes_what_is_idle` |
//! | stealable, `take_active`: `Acquire` → `Relaxed`; by load and store; `SCHEDULED` stays | `stealable::one_wakes_twice` |
//! | stealable: `take_active` after the poll | `stealable::one_wakes_what_waits` |
//! | stealable, `retire`: `Release` → `Relaxed`; by load and store; does not look at `SCHEDULED` | `stealable::an_abort_takes_what_is_idle` |
//! | stealable: what woke itself is retired | `stealable::both_poll_what_yields` |
//! | stealable: any wake during a poll is taken for the polled task's own | `team::one_task_wakes_another` |
//! | stealable: what ends stays in the register | `stealable::a_handle_leaves` |
//! | stealable: a worker at its end still takes into its queue | `team::what_the_last_end_wakes_ends` |
//! | idle: no fence in `announce` or in `call` | `team::what_is_pushed_is_found` |
//! | idle: no fence in `end_search` | `team::what_is_pushed_during_a_search_is_found` |
//! | idle, `announce`, `end_search`: by load and store | `team::marks_are_not_lost` |
//! | idle, `retract`: `Acquire` → `Relaxed`; by load and store | `team::a_call_is_known_and_carries_what_it_is_for` |
//! | idle, `call`: by load and store; one while somebody searches; without the mark of the search | `team::one_searches_at_a_time` |
//! | idle, `end_search`: the mark stays | `team::one_searches_at_a_time` |
//! | worker: no last look at the team's queues | `team::a_worker_that_parks_takes_over` |
//! | team: who pushes does not call, or calls without telling | `team::a_member_that_parks_takes_over` |
//! | team: no second look after a search | `team::the_end_of_a_search_calls_the_next` |
//! | team: a member that was called, or leaves, does not end its search | `team::a_stopped_member_passes_the_call_on` |
//! | team, `join`: the member is found before it knows its team | `team::one_submits_as_the_first_joins` |
//! | team, `join`: the member is found after the register's lock is given up | `team::one_joins_as_the_last_leaves` |
//! | team, `leave`: the queue is not emptied | `team::one_joins_as_the_last_leaves` |
//! | team, `leave`: the `io` lane is not emptied | `team::what_the_end_itself_wakes_is_handed_on` |
//! | team, `leave`: the last one cancels nothing, or not what is idle | `team::what_the_last_end_wakes_ends` |
//! | team, `leave`: the last one also cancels what somebody has | `team::one_submits_at_the_end` |
//! | team, `leave`: the last one counts no reference | `team::a_wake_meets_the_end_of_both` |
//! | team, `hand_to_anybody`: what nobody is left for is forgotten | `team::one_submits_at_the_end` |
//! | storage, `reserve`: `Acquire` → `Relaxed` | `storage::a_place_is_used_again` |
//! | storage, `reserve`: by load and store | `storage::two_reserve_the_last_place` |
//! | storage, giving back: `Release` → `Relaxed`; before the task is dropped | `storage::a_place_is_used_again` |
//! | storage, giving back unused: `Release` → `Relaxed` | `storage::a_place_that_was_reserved_in_vain_is_used` |
//!
//! ## In the stealable queue
//! | mutation | model that fails |
//! |---|---|
//! | push: the tail `Release` → `Relaxed` | `steal::one_thief` |
//! | flow back: the tail `Release` → `Relaxed` | `steal::the_overflow_flows_back` |
//! | flow back: no flow when what is reserved is not in the ring | `steal::what_is_reserved_flows_back` |
//! | push: past what is in the overflow | `steal::the_overflow_flows_back` |
//! | push: into slots that are reserved | `steal::what_is_reserved_flows_back` |
//! | reserve: the compare-and-swap → a look and a store | `steal::the_last_item_is_taken_once` |
//! | pop before: the ticket is looked at only once | `steal::what_is_popped_is_older_than_the_ticket` |
//! | steal one: the tail `Acquire` → `Relaxed` | `steal::one_thief` |
//! | steal one: the slot is read after the compare-and-swap | `steal::slots_are_used_again` |
//! | steal, one or many: the compare-and-swap → a look and a store | `steal::the_last_item_is_taken_once` |
//! | steal, one or many: a front that is ahead of the tail is not seen | `steal::numbers_wrap` |
//! | steal many: the tail `Acquire` → `Relaxed` | `steal::half_is_stolen` |
//! | steal many: the thief's tail `Release` → `Relaxed` | `steal::what_was_stolen_is_stolen_back` |
//! | steal many: the slots are read after the compare-and-swap | `steal::half_is_stolen_twice` |
//! | steal many: shown to other thieves before the compare-and-swap | `steal::what_was_stolen_is_stolen_back` |
//! | steal many: into more than there is room for | `steal::a_full_thief_steals` |
//! | numbers of three bits, which come round within one steal | `steal::a_thief_is_slow` |
//! | claim: `Acquire` → `Relaxed`, or a look and a store | `steal::owners_take_turns` |
//! | claim, given up: `Release` → `Relaxed` | `steal::owners_take_turns` |
//!
//! # What they can't find
//! - Loom orders what stands before one `SeqCst` fence before what stands after the next, for plain
//!   memory too. The language does so only where an atomic is read.
//! - A load sees no store that is yet to be made, as it may on some machines. So nothing fails if a
//!   thief moves the front of a stealable queue on by `Relaxed`, or if the owner looks at it so: the
//!   `Release` and the two `Acquire`s there keep a thief from reading what the owner puts into the
//!   slot once it sees that the thief has passed it.
//! - Loom lets a plain store come between the halves of another thread's read-modify-write, which
//!   no machine does: `Park::set` is a swap under loom, for this.
//! - Executions with more preemptions than the model's bound.
//! - A call for help that comes late. Tasks that yield are put back without one: the next look at
//!   the clock makes up for it, by a relaxed load that may be outdated, so no model can rely on it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};

use crate::reactor::Completion;
use crate::service::context::{Identity, Ticking};
use crate::service::home::{Delivery, Home};
use crate::service::home_ref::HomeRef;
use crate::service::join::{JoinHandle, stealable_of, task_of};
use crate::service::{stealable as stealable_tasks, waker};
use crate::sync;
use crate::task::TaskRef;
use crate::task::state::State;
use crate::team::Team;

mod hand_over;
#[allow(unsafe_code)]
mod inbox;
#[allow(unsafe_code)]
mod operation;
mod operations;
#[allow(unsafe_code)]
mod park;
#[allow(unsafe_code)]
mod steal;
#[allow(unsafe_code)]
mod stealable;
#[allow(unsafe_code)]
mod storage;
mod task_state;
#[allow(unsafe_code)]
mod team;

/// Explores a model with at most so many preemptions in one execution.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        sync::bury();
        model();
    });
}

fn join_all(threads: impl IntoIterator<Item = loom::thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Counts what happened. Not loom's: it is the test's own, and orders nothing.
#[derive(Clone, Default)]
struct Tally(Arc<AtomicUsize>);

impl Tally {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts that it was dropped.
struct Dropped(Tally);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// An eventfd, or what else a thread waits for. A wait may end for nothing.
#[derive(Default)]
struct Bell {
    notify: loom::sync::Notify,
    rings: Tally,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    fn wait(&self) {
        self.notify.wait();
    }

    fn rings(&self) -> usize {
        self.rings.get()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rings.add();
        self.notify.notify();
    }
}

/// A worker without lanes, clock and reactor, on the model's first thread. Dropping it ends the
/// worker.
struct Bench {
    home: HomeRef,
    bell: Arc<Bell>,
    announcements: Tally,
}

impl Bench {
    fn new(operations: usize) -> Self {
        let bell = Bell::new();
        let notifier = Waker::from(Arc::clone(&bell));
        let home = Home::counted(notifier, operations, Identity::new(None));
        Self { home, bell, announcements: Tally::default() }
    }

    /// One that is in a team.
    fn in_team(team: &Team) -> Self {
        let bench = Self::new(0);
        team.take_in(&bench.home).expect("the team has room");
        bench
    }

    /// What other threads have of it.
    fn remote(&self) -> HomeRef {
        self.home.clone()
    }

    fn spawn<F: Future>(&self, future: F) -> (TaskRef, JoinHandle<F::Output>) {
        let (task, handle) = task_of(self.remote(), future, State::spawned_here());
        self.home.adopt_and_queue(task);
        (task, handle)
    }

    /// The worker is in a team.
    fn spawn_stealable<F>(&self, future: F) -> (TaskRef, JoinHandle<F::Output>)
    where
        F: Future<Output: Send> + Send,
    {
        let (task, handle) = stealable_of(self.remote(), future);
        self.home.take_in_and_queue_stealable(task);
        (task, handle)
    }

    /// Ticks and parks until `ended`, which only what the worker itself does may bring about, or
    /// until it is asked to stop.
    fn run_until(&self, ended: impl Fn() -> bool) {
        let home = &*self.home;
        let _ticking = Ticking::enter(home);
        while !home.is_stopping() {
            home.keep_up_with_team();
            match home.next_remote() {
                Delivery::Task(task) => home.dispatch(task),
                Delivery::Settled => {}
                Delivery::Cancel(token) => drop(home.complete(Completion { token, result: -125 })),
                Delivery::Busy => loom::thread::yield_now(),
                Delivery::Empty => {
                    if let Some(task) = home.next_io().or_else(|| home.next_local()) {
                        home.dispatch(task);
                        continue;
                    }
                    if home.steal() > 0 {
                        continue;
                    }
                    if ended() {
                        return;
                    }
                    self.announcements.add();
                    home.announce_park();
                    if home.could_steal() {
                        loom::thread::yield_now();
                    } else if home.is_drained() && !home.is_stopping() {
                        self.bell.wait();
                    }
                    home.resume();
                }
            }
        }
    }

    fn close(&self) {
        let _ticking = Ticking::enter(&self.home);
        self.home.close(|| ());
    }

    /// At the end of a model: closes, and sees that nothing is left of the worker nor of any task.
    fn end(self) {
        assert!(self.bell.rings() <= self.announcements.get());
        if !self.home.is_closed() {
            // What has come in meanwhile is the worker's, and only what comes later is cleared.
            self.run_until(|| true);
            self.close();
        }
        let Self { home, bell, .. } = self;
        drop(home);
        // The home has a waker of it, and every task has a reference to the home.
        assert_eq!(
            Arc::strong_count(&bell),
            1,
            "a task, or its worker's shared half, is left over"
        );
    }
}

/// Submits a task from outside.
fn spawn_into<F: Future>(home: &HomeRef, future: F) -> JoinHandle<F::Output> {
    let (task, handle) = task_of(home.clone(), future, State::spawned_elsewhere());
    home.hand_over(task);
    handle
}

/// A waker that counts as one of the task's references.
fn waker_of(task: TaskRef) -> Waker {
    task.header().state.add_reference();
    // SAFETY: counted above.
    unsafe { waker::of(task) }
}

/// The same, of a stealable task.
fn stealable_waker_of(task: TaskRef) -> Waker {
    task.header().state.add_reference();
    // SAFETY: counted above.
    unsafe { stealable_tasks::waker_of(task) }
}

/// Polls a future that is not pinned.
fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    core::pin::Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future until it is ready, waiting at a bell of its own.
fn wait_for<F: Future + Unpin>(future: &mut F) -> F::Output {
    let bell = Bell::new();
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(output) = poll(future, &waker) {
            return output;
        }
        bell.wait();
    }
}

/// A value that must have been handed over to be read: on the heap, and loom looks at it.
struct Sealed(Box<sync::SharedCell<usize>>);

impl Sealed {
    fn new(value: usize) -> Self {
        let sealed = Self(Box::new(sync::SharedCell::new(0)));
        // SAFETY: just made.
        sealed.0.with_mut(|place| unsafe { *place = value });
        sealed
    }

    fn open(self) -> usize {
        // SAFETY: loom has seen to it that nobody writes meanwhile.
        self.0.with(|place| unsafe { *place })
    }
}
