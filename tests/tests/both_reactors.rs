//! The same test bodies, unchanged, on both reactors and the machine's own kernel. Nothing here is
//! decided by time: each wait ends when what it waits for is there, or fails at its deadline.

use std::fs::File;
use std::future::{pending, poll_fn};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use evenkeel::io::{Interest, Operation};
use evenkeel::{InFlight, JoinError, JoinHandle, Remote, WorkerConfig, WorkerThread, yield_now};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::{DEADLINE, Live, Tally, start, wait_for, wait_until};
use evenkeel_uring::UringReactor;
use rustix::event::{EventfdFlags, PollFlags, eventfd};

/// Each of these bodies becomes two tests. Where there is no `io_uring` its half is skipped.
macro_rules! on_both_reactors {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { super::on::<super::EpollReactor>(super::$name); })*
        }
        mod uring {
            $(#[test] fn $name() { super::on::<super::UringReactor>(super::$name); })*
        }
    };
}

on_both_reactors! {
    an_eventfd_is_readable_past_a_backlog
    an_eventfd_that_is_readable_already_is_ready_at_once
    a_parked_worker_is_unparked_by_an_event
    two_tasks_wait_for_one_descriptor
    reading_and_writing_are_waited_for_apart
    a_wait_that_is_dropped_before_its_descriptor_is_closed_wakes_nobody
    a_branch_that_lost_is_dropped_while_the_worker_runs
    more_events_than_a_batch_all_arrive
    one_descriptor_is_waited_for_again_and_again
    a_hang_up_counts_as_ready
    a_regular_file_is_always_ready
    a_descriptor_that_is_none_is_an_error
    a_full_table_is_an_error_that_names_its_size
    armed_counts_the_waits
    a_storm_from_several_threads_loses_nothing_and_notifies_once_a_park
    submissions_to_a_worker_that_runs_cost_no_notification
    a_worker_stops_in_time_whatever_it_does
    a_stopped_worker_cancels_what_comes_after
    an_operation_is_awaited_and_dropped_on_another_thread
    a_wait_ends_with_its_worker
}

/// Runs a body on a worker of this reactor, which it stops.
fn on<R: Live>(body: impl FnOnce(WorkerThread<R>)) {
    on_sized(WorkerConfig::default(), body);
}

fn on_sized<R: Live>(config: WorkerConfig, body: impl FnOnce(WorkerThread<R>)) {
    if let Some(worker) = start(config) {
        body(worker);
    }
}

fn stop<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote().clone();
    worker.stop_within(DEADLINE).unwrap();
    assert!(remote.is_ended() && !remote.is_parked());
}

fn an_eventfd() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
}

fn signal(fd: &OwnedFd) {
    rustix::io::write(fd, &1_u64.to_ne_bytes()).unwrap();
}

fn unsignal(fd: &OwnedFd) {
    let mut count = [0; 8];
    rustix::io::read(fd, &mut count).unwrap();
}

/// Submits a task that waits until a descriptor is readable.
fn readable<R: Live>(remote: &Remote<R>, fd: &Arc<OwnedFd>) -> JoinHandle<std::io::Result<u32>> {
    let fd = Arc::clone(fd);
    remote.spawn_with(move |handle| async move { handle.ready(fd, Interest::Readable).await })
}

fn assert_readable(bits: std::io::Result<u32>) {
    let bits = bits.unwrap();
    assert_ne!(bits & u32::from(PollFlags::IN.bits()), 0, "{bits:#x}");
}

fn wait_armed<R: Live>(remote: &Remote<R>, operations: usize) {
    wait_until("the operations are armed", || remote.armed() == operations);
}

/// Spawns tasks that yield until told to stop, and waits until each has run.
fn backlog<R: Live>(remote: &Remote<R>, tasks: usize) -> Arc<AtomicBool> {
    let (stop, running) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..tasks {
        let (stop, running) = (Arc::clone(&stop), Arc::clone(&running));
        drop(remote.spawn(async move {
            running.fetch_add(1, Ordering::SeqCst);
            while !stop.load(Ordering::Relaxed) {
                yield_now().await;
            }
        }));
    }
    wait_until("the backlog runs", || running.load(Ordering::SeqCst) == tasks);
    stop
}

// Readiness.

fn an_eventfd_is_readable_past_a_backlog<R: Live>(worker: WorkerThread<R>) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    let task = readable(remote, &fd);
    wait_armed(remote, 1);
    wait_until("the worker parks", || remote.is_parked());
    let done = backlog(remote, 100);
    assert!(!task.is_finished());
    signal(&fd);
    assert_readable(wait_for("the event", task).unwrap());
    let submitted = wait_for("a submission", remote.spawn(async { 5 }));
    assert_eq!(submitted.unwrap(), 5);
    assert_eq!(remote.armed(), 0);
    done.store(true, Ordering::Relaxed);
    wait_until("the worker parks again", || remote.is_parked());
    stop(worker);
}

fn an_eventfd_that_is_readable_already_is_ready_at_once<R: Live>(worker: WorkerThread<R>) {
    let fd = an_eventfd();
    signal(&fd);
    for _ in 0..10 {
        // It stays readable: nobody reads it.
        assert_readable(wait_for("the event", readable(worker.remote(), &fd)).unwrap());
    }
    stop(worker);
}

fn a_parked_worker_is_unparked_by_an_event<R: Live>(worker: WorkerThread<R>) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    for _ in 0..100 {
        let task = readable(remote, &fd);
        wait_armed(remote, 1);
        wait_until("the worker parks", || remote.is_parked());
        signal(&fd);
        assert_readable(wait_for("the event", task).unwrap());
        unsignal(&fd);
    }
    stop(worker);
}

fn two_tasks_wait_for_one_descriptor<R: Live>(worker: WorkerThread<R>) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    let (one, two) = (readable(remote, &fd), readable(remote, &fd));
    wait_armed(remote, 2);
    signal(&fd);
    assert_readable(wait_for("the event", one).unwrap());
    assert_readable(wait_for("the event, for the other", two).unwrap());
    // One of two leaves: the other still waits.
    unsignal(&fd);
    let (one, two) = (readable(remote, &fd), readable(remote, &fd));
    wait_armed(remote, 2);
    one.abort();
    assert!(matches!(wait_for("its end", one), Err(JoinError::Cancelled)));
    wait_armed(remote, 1);
    assert!(!two.is_finished());
    signal(&fd);
    assert_readable(wait_for("the event", two).unwrap());
    stop(worker);
}

fn reading_and_writing_are_waited_for_apart<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote();
    let (near, mut far) = UnixStream::pair().unwrap();
    let near: Arc<OwnedFd> = Arc::new(near.into());
    let reads = readable(remote, &near);
    wait_armed(remote, 1);
    let fd = Arc::clone(&near);
    let writes =
        remote.spawn_with(move |handle| async move { handle.ready(fd, Interest::Writable).await });
    let bits = wait_for("room to write", writes).unwrap().unwrap();
    assert_ne!(bits & u32::from(PollFlags::OUT.bits()), 0, "{bits:#x}");
    assert!(!reads.is_finished());
    far.write_all(b"x").unwrap();
    assert_readable(wait_for("something to read", reads).unwrap());
    stop(worker);
}

fn a_wait_that_is_dropped_before_its_descriptor_is_closed_wakes_nobody<R: Live>(
    worker: WorkerThread<R>,
) {
    let remote = worker.remote();
    for _ in 0..100 {
        let first = an_eventfd();
        let number = first.as_raw_fd();
        let task = readable(remote, &first);
        wait_armed(remote, 1);
        // An event that nobody will see: it and the cancel cross.
        signal(&first);
        task.abort();
        drop(first);
        let _ = wait_for("its end", task);
        wait_armed(remote, 0);
        // The number goes to the next owner, as a rule, and with it nothing else.
        let next = an_eventfd();
        let task = readable(remote, &next);
        wait_armed(remote, 1);
        wait_until("the worker parks", || remote.is_parked());
        assert!(!task.is_finished(), "descriptor {number}, then {}", next.as_raw_fd());
        signal(&next);
        assert_readable(wait_for("the event", task).unwrap());
    }
    stop(worker);
}

fn a_branch_that_lost_is_dropped_while_the_worker_runs<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote();
    let (loses, wins) = (an_eventfd(), an_eventfd());
    let done = backlog(remote, 3);
    for _ in 0..200 {
        let (lost, won) = (Arc::clone(&loses), Arc::clone(&wins));
        let task = remote.spawn_with(move |handle| async move {
            let mut lost = Box::pin(handle.ready(lost, Interest::Readable));
            let mut won = pin!(handle.ready(won, Interest::Readable));
            poll_fn(|context| {
                assert!(lost.as_mut().poll(context).is_pending());
                won.as_mut().poll(context)
            })
            .await
        });
        wait_armed(remote, 2);
        signal(&wins);
        assert_readable(wait_for("the event", task).unwrap());
        unsignal(&wins);
        wait_armed(remote, 0);
    }
    done.store(true, Ordering::Relaxed);
    stop(worker);
}

fn more_events_than_a_batch_all_arrive<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote();
    let fds: Vec<_> = (0..200).map(|_| an_eventfd()).collect();
    for busy in [false, true] {
        let tasks: Vec<_> = fds.iter().map(|fd| readable(remote, fd)).collect();
        wait_armed(remote, fds.len());
        let done = backlog(remote, usize::from(busy));
        for fd in &fds {
            signal(fd);
        }
        for task in tasks {
            assert_readable(wait_for("each event", task).unwrap());
        }
        for fd in &fds {
            unsignal(fd);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(remote.armed(), 0);
    }
    stop(worker);
}

fn one_descriptor_is_waited_for_again_and_again<R: Live>(worker: WorkerThread<R>) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    let waits = Arc::clone(&fd);
    let rounds = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&rounds);
    let task = remote.spawn_with(move |handle| async move {
        for _ in 0..2_000 {
            assert_readable(handle.ready(&waits, Interest::Readable).await);
            unsignal(&waits);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    for round in 0..2_000 {
        signal(&fd);
        wait_until("the round", || rounds.load(Ordering::SeqCst) > round);
    }
    wait_for("the last round", task).unwrap();
    stop(worker);
}

fn a_hang_up_counts_as_ready<R: Live>(worker: WorkerThread<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let near: Arc<OwnedFd> = Arc::new(near.into());
    let task = readable(worker.remote(), &near);
    wait_armed(worker.remote(), 1);
    drop(far);
    let bits = wait_for("the hang-up", task).unwrap().unwrap();
    assert_ne!(bits & u32::from(PollFlags::HUP.bits()), 0, "{bits:#x}");
    stop(worker);
}

fn a_regular_file_is_always_ready<R: Live>(worker: WorkerThread<R>) {
    let file: Arc<OwnedFd> = Arc::new(File::open("/proc/self/exe").unwrap().into());
    assert_readable(wait_for("a file", readable(worker.remote(), &file)).unwrap());
    stop(worker);
}

fn a_descriptor_that_is_none_is_an_error<R: Live>(worker: WorkerThread<R>) {
    // Far beyond what a process may have open.
    const NONE: i32 = 1 << 30;
    let operation = Operation::Poll { fd: NONE, interest: Interest::Readable };
    let task = worker.remote().spawn_with(move |handle| async move {
        match handle.submit(operation) {
            Ok(in_flight) => in_flight.await.expect("the worker lives"),
            Err(evenkeel::SubmitError::Refused { operation: same, error }) => {
                assert!(matches!(same, Operation::Poll { fd: NONE, .. }), "it comes back");
                -error.raw_os_error().expect("the kernel's number")
            }
            Err(error) => panic!("{error}"),
        }
    });
    let result = wait_for("the error", task).unwrap();
    assert_eq!(result, -rustix::io::Errno::BADF.raw_os_error());
    wait_armed(worker.remote(), 0);
    stop(worker);
}

fn a_full_table_is_an_error_that_names_its_size<R: Live>(unused: WorkerThread<R>) {
    stop(unused);
    on_sized::<R>(WorkerConfig::default().operations(1), |worker| {
        let (remote, fd) = (worker.remote(), an_eventfd());
        let waits = readable(remote, &fd);
        wait_armed(remote, 1);
        let error = wait_for("the error", readable(remote, &fd)).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("all 1 operations"), "{error}");
        signal(&fd);
        assert_readable(wait_for("the event", waits).unwrap());
        assert_readable(wait_for("room again", readable(remote, &fd)).unwrap());
        stop(worker);
    });
}

fn armed_counts_the_waits<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote();
    let fds: Vec<_> = (0..3).map(|_| an_eventfd()).collect();
    assert_eq!(remote.armed(), 0);
    let mut tasks: Vec<_> = fds.iter().map(|fd| readable(remote, fd)).collect();
    wait_armed(remote, 3);
    wait_until("the worker parks", || remote.is_parked());
    assert_eq!(remote.armed(), 3);
    signal(&fds[0]);
    assert_readable(wait_for("the event", tasks.remove(0)).unwrap());
    wait_armed(remote, 2);
    tasks[0].abort();
    wait_armed(remote, 1);
    wait_until("the worker parks", || remote.is_parked());
    assert_eq!(remote.armed(), 1);
    drop(tasks);
    assert_eq!(remote.armed(), 1, "detached, not cancelled");
    stop(worker);
}

// Other threads.

fn storm<R: Live>(remote: &Remote<R>, ran: &Arc<AtomicUsize>) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_500 {
                    let ran = Arc::clone(ran);
                    drop(remote.spawn(async move { ran.fetch_add(1, Ordering::SeqCst) }));
                }
            });
        }
    });
}

fn a_storm_from_several_threads_loses_nothing_and_notifies_once_a_park<R: Live>(
    worker: WorkerThread<R>,
) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    let waits = readable(remote, &fd);
    let ran = Arc::new(AtomicUsize::new(0));
    for round in 1..=5 {
        storm(remote, &ran);
        wait_until("all have run", || ran.load(Ordering::SeqCst) == round * 10_000);
        wait_until("the worker parks", || remote.is_parked());
    }
    for _ in 0..1_000 {
        // To a worker that is parked, or about to be.
        wait_for("a task's end", remote.spawn(async {})).unwrap();
    }
    signal(&fd);
    assert_readable(wait_for("the event", waits).unwrap());
    let stats = remote.stats();
    assert!(stats.notifications <= stats.parks + stats.retractions + 1, "{stats:?}");
    stop(worker);
}

fn submissions_to_a_worker_that_runs_cost_no_notification<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote();
    let done = backlog(remote, 1);
    let before = remote.stats();
    let ran = Arc::new(AtomicUsize::new(0));
    storm(remote, &ran);
    wait_until("all have run", || ran.load(Ordering::SeqCst) == 10_000);
    let after = remote.stats();
    assert_eq!(after.notifications, before.notifications);
    assert_eq!((after.parks, after.retractions), (before.parks, before.retractions));
    done.store(true, Ordering::Relaxed);
    stop(worker);
}

fn an_operation_is_awaited_and_dropped_on_another_thread<R: Live>(worker: WorkerThread<R>) {
    let (remote, fd) = (worker.remote(), an_eventfd());
    for drops in [false, true] {
        let (send, receive) = mpsc::channel::<InFlight>();
        let raw = fd.as_raw_fd();
        drop(remote.spawn_with(move |handle| async move {
            let operation = Operation::Poll { fd: raw, interest: Interest::Readable };
            send.send(handle.submit(operation).unwrap()).unwrap();
            pending::<()>().await;
        }));
        let operation = receive.recv_timeout(DEADLINE).unwrap();
        wait_armed(remote, 1);
        if drops {
            drop(operation);
        } else {
            signal(&fd);
            let result = wait_for("the event", operation).unwrap();
            assert!(result > 0);
            unsignal(&fd);
        }
        wait_armed(remote, 0);
    }
    stop(worker);
}

// The worker's end.

fn a_worker_stops_in_time_whatever_it_does<R: Live>(idle: WorkerThread<R>) {
    wait_until("the worker parks", || idle.remote().is_parked());
    stop(idle);
    for busy in [false, true] {
        on::<R>(|worker| {
            let fd = an_eventfd();
            let (ran, waits) = (Tally::new(), readable(worker.remote(), &fd));
            let task = worker.remote().spawn(ran.pending());
            wait_armed(worker.remote(), 1);
            let _done = backlog(worker.remote(), 10 * usize::from(busy));
            stop(worker);
            assert_eq!(ran.seen().future_drops, 1);
            assert!(matches!(wait_for("its end", task), Err(JoinError::Cancelled)));
            assert!(matches!(wait_for("its end", waits), Err(JoinError::Cancelled)));
            assert_eq!(Arc::strong_count(&fd), 1, "nothing holds the descriptor any more");
        });
    }
    // At once, and by being dropped.
    on::<R>(stop);
    on::<R>(|worker| {
        let remote = worker.remote().clone();
        drop(worker);
        wait_until("the worker's end", || remote.is_ended());
    });
}

fn a_stopped_worker_cancels_what_comes_after<R: Live>(worker: WorkerThread<R>) {
    let remote = worker.remote().clone();
    stop(worker);
    let tally = Tally::new();
    let task = remote.spawn(tally.pending());
    assert_eq!(tally.seen().future_drops, 1);
    assert!(matches!(wait_for("its end", task), Err(JoinError::Cancelled)));
}

fn a_wait_ends_with_its_worker<R: Live>(worker: WorkerThread<R>) {
    // The operation is not the worker's any more when that ends: it is told.
    let (fd, remote) = (an_eventfd(), worker.remote());
    let (send, receive) = mpsc::channel::<InFlight>();
    let raw = fd.as_raw_fd();
    let submitted = remote.spawn_with(move |handle| async move {
        let operation = Operation::Poll { fd: raw, interest: Interest::Readable };
        send.send(handle.submit(operation).unwrap()).unwrap();
    });
    wait_for("the submission", submitted).unwrap();
    let operation = receive.recv_timeout(DEADLINE).unwrap();
    wait_armed(remote, 1);
    stop(worker);
    assert_eq!(wait_for("its end", operation), Err(evenkeel::Orphaned));
}

// Both at once.

#[test]
fn a_task_of_one_reactors_worker_awaits_an_operation_of_the_others() {
    let workers = (start::<EpollReactor>(WorkerConfig::default()), start(WorkerConfig::default()));
    let (Some(epoll), Some(uring)) = workers else { return };
    awaits_across(&epoll, &uring);
    awaits_across(&uring, &epoll);
    stop::<EpollReactor>(epoll);
    stop::<UringReactor>(uring);
}

fn awaits_across<A: Live, B: Live>(owner: &WorkerThread<A>, other: &WorkerThread<B>) {
    let fd = an_eventfd();
    let (raw, elsewhere) = (fd.as_raw_fd(), other.remote().clone());
    let task = owner.remote().spawn_with(move |handle| async move {
        let readable = || Operation::Poll { fd: raw, interest: Interest::Readable };
        let mut awaited = handle.submit(readable()).unwrap();
        let dropped = handle.submit(readable()).unwrap();
        let there = elsewhere.spawn(async move {
            drop(dropped);
            poll_fn(move |context| match Pin::new(&mut awaited).poll(context) {
                Poll::Ready(result) => Poll::Ready(result.is_ok()),
                Poll::Pending => Poll::Pending,
            })
            .await
        });
        there.await.unwrap()
    });
    wait_armed(owner.remote(), 1);
    wait_until("both park", || owner.remote().is_parked() && other.remote().is_parked());
    signal(&fd);
    assert!(wait_for("the event", task).unwrap());
}
