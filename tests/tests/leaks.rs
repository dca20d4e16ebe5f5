//! A worker that has ended leaves no descriptor and no thread. Alone in its process, for it counts
//! those of all.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use evenkeel::io::Interest;
use evenkeel::{ThreadConfig, WorkerConfig, WorkerThread, yield_now};
use evenkeel_epoll::EpollReactor;
use evenkeel_tests::{DEADLINE, Live, SetupError, start, wait_until};
use evenkeel_uring::UringReactor;
use rustix::event::{EventfdFlags, eventfd};

fn entries(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// A worker with operations in flight, a backlog, and submissions that it may never see.
fn start_busy<R: Live>(descriptors: &[Arc<OwnedFd>]) -> Option<WorkerThread<R>> {
    let worker = start::<R>(WorkerConfig::default())?;
    let remote = worker.remote();
    for fd in descriptors {
        let fd = Arc::clone(fd);
        drop(remote.spawn_with(move |handle| async move {
            handle.ready(fd, Interest::Readable).await.unwrap()
        }));
    }
    wait_until("all are armed", || remote.armed() == descriptors.len());
    drop(remote.spawn(async {
        loop {
            yield_now().await;
        }
    }));
    for _ in 0..100 {
        drop(remote.spawn(yield_now()));
    }
    Some(worker)
}

fn start_and_end<R: Live>(descriptors: &[Arc<OwnedFd>]) {
    for _ in 0..10 {
        let Some(worker) = start_busy::<R>(descriptors) else { return };
        worker.stop_within(DEADLINE).unwrap();
        let worker = start_busy::<R>(descriptors).expect("as before");
        let remote = worker.remote().clone();
        drop(worker);
        wait_until("the worker's end", || remote.is_ended());
        // One whose reactor was made and is not wanted.
        let refused = WorkerThread::<R>::start(ThreadConfig::default(), || {
            drop(R::make()?);
            Err::<R, SetupError>("refused".into())
        });
        assert!(refused.is_err());
    }
}

#[test]
fn a_worker_that_ended_with_operations_in_flight_leaves_no_descriptor_and_no_thread() {
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let descriptors: Vec<_> = (0..50).map(|_| Arc::new(eventfd(0, flags).unwrap())).collect();
    let before = (entries("/proc/self/fd"), entries("/proc/self/task"));
    start_and_end::<EpollReactor>(&descriptors);
    start_and_end::<UringReactor>(&descriptors);
    // A thread that was joined may be listed for a moment longer.
    wait_until("threads and descriptors are gone", || {
        (entries("/proc/self/fd"), entries("/proc/self/task")) == before
    });
    assert!(descriptors.iter().all(|fd| Arc::strong_count(fd) == 1));
}
