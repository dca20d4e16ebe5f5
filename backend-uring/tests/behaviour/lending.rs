//! Operations that lend memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use evenkeel::io::{Memory, Offset, Operation};
use evenkeel::{Completions, Reactor, Wait};
use evenkeel_uring::{Mode, UringReactor};
use rustix::fs::inotify;
use rustix::io::Errno;

use crate::support::{
    CANCELED, Call, TINY, bounded, collect, drain, in_each_mode, in_each_mode_tiny, poll, refuse,
    tiny, token,
};

/// Memory of a buffer that the caller keeps until the operation has ended.
fn lend(bytes: &mut [u8]) -> Memory {
    // SAFETY: each test waits for the end of its operations before it looks at the bytes again.
    unsafe { Memory::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn receive(fd: &impl AsRawFd, bytes: &mut [u8]) -> Operation {
    Operation::Receive { fd: fd.as_raw_fd(), into: lend(bytes) }
}

fn write(fd: &impl AsRawFd, bytes: &mut [u8]) -> Operation {
    Operation::Write { fd: fd.as_raw_fd(), from: lend(bytes), at: Offset::CURRENT }
}

#[test]
fn more_than_the_queue_holds_are_flushed_and_all_end() {
    in_each_mode_tiny(|mut reactor| {
        let pairs: Vec<_> = (0..40).map(|_| UnixStream::pair().unwrap()).collect();
        let mut bytes = [[0; 4]; 40];
        for ((index, (_, far)), bytes) in (0..).zip(&pairs).zip(&mut bytes) {
            reactor.submit(token(index), receive(far, bytes)).unwrap();
        }
        drain(&mut reactor);
        // All at once, into a completion queue that holds 16.
        for (index, (near, _)) in (0..).zip(&pairs) {
            { near }.write_all(&[index; 4]).unwrap();
        }
        let found = collect(&mut reactor, 40);
        assert!(found.iter().all(|it| it.result == 4), "{found:?}");
        assert!((0..).zip(bytes).all(|(index, bytes)| bytes == [index; 4]));
    });
}

#[test]
fn what_the_kernel_can_not_take_at_the_moment_comes_back_whole() {
    for error in [Errno::AGAIN, Errno::BUSY] {
        for mode in Mode::ALL {
            bounded(move || {
                let mut reactor = tiny(mode);
                refuse(&[Call::Enter], error, Some(TINY));
                let (near, far) = UnixStream::pair().unwrap();
                let mut bytes = [[0; 1]; TINY as usize + 1];
                let mut places = bytes.iter_mut();
                for index in 0..TINY {
                    reactor.submit(token(index), receive(&far, places.next().unwrap())).unwrap();
                }
                let refused = reactor
                    .submit(token(99), receive(&far, places.next().unwrap()))
                    .expect_err("there is no room");
                assert!(
                    matches!(refused.operation, Operation::Receive { into, .. } if into.len() == 1)
                );
                // The others are none the worse for it, and it can be tried again.
                poll(&mut reactor, Wait::Never);
                let again = bytes.last_mut().unwrap();
                reactor.submit(token(99), receive(&far, again)).unwrap();
                { &near }.write_all(&[7; TINY as usize + 1]).unwrap();
                collect(&mut reactor, TINY as usize + 1);
                assert_eq!(bytes, [[7]; TINY as usize + 1]);
            });
        }
    }
}

#[test]
fn a_write_that_was_cancelled_in_the_queue_is_for_its_own_descriptor() {
    in_each_mode(|mut reactor| {
        let (near, far) = UnixStream::pair().unwrap();
        let number = near.as_raw_fd();
        let mut bytes = *b"first";
        reactor.submit(token(1), write(&near, &mut bytes)).unwrap();
        reactor.cancel(token(1));
        // From now on the number is somebody else's.
        drop(near);
        let (next, mut peer) = UnixStream::pair().unwrap();
        let next = if next.as_raw_fd() == number {
            OwnedFd::from(next)
        } else {
            // Another test's thread was faster; so it is put there.
            return;
        };
        let result = collect(&mut reactor, 1)[0].result;
        assert!(result == 5 || result == CANCELED, "{result}");
        drop(next);
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "nothing but the end");
        drop(far);
    });
}

/// Of an inotify descriptor that does not block the kernel says at once that there is nothing.
#[test]
fn a_descriptor_that_does_not_block_is_waited_for() {
    in_each_mode(|mut reactor| {
        let directory = std::env::temp_dir().join(format!(
            "evenkeel-lending-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir(&directory).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &directory, inotify::WatchFlags::CREATE).unwrap();
        let mut bytes = [0; 64];
        let read = |bytes: &mut [u8]| Operation::Read {
            fd: watch.as_raw_fd(),
            into: lend(bytes),
            at: Offset::CURRENT,
        };
        reactor.submit(token(1), read(&mut bytes)).unwrap();
        assert_eq!(drain(&mut reactor), []);
        File::create(directory.join("one")).unwrap();
        assert!(collect(&mut reactor, 1)[0].result > 0);

        // It can be cancelled while it waits for that.
        reactor.submit(token(2), read(&mut bytes)).unwrap();
        assert_eq!(drain(&mut reactor), []);
        reactor.cancel(token(2));
        assert_eq!(collect(&mut reactor, 1)[0].result, CANCELED);
        File::create(directory.join("two")).unwrap();
        assert_eq!(drain(&mut reactor), [], "it takes nothing any more");
        std::fs::remove_dir_all(directory).unwrap();
    });
}

#[test]
fn a_reactor_that_ends_has_its_memory_back_before() {
    in_each_mode(|mut reactor: UringReactor| {
        let (near, far) = UnixStream::pair().unwrap();
        let mut bytes = [0; 8];
        reactor.submit(token(1), receive(&far, &mut bytes)).unwrap();
        poll(&mut reactor, Wait::Never);
        drop(reactor);
        { &near }.write_all(b"too late").unwrap();
        // The kernel has let go of it: what was sent is there for others.
        let mut read = [0; 8];
        { &far }.read_exact(&mut read).unwrap();
        assert_eq!((&read, bytes), (b"too late", [0; 8]));
    });
}

#[test]
fn a_file_is_read_where_it_is_said() {
    in_each_mode(|mut reactor| {
        let file = File::open("/proc/self/exe").unwrap();
        let mut bytes = [0; 4];
        let into = lend(&mut bytes);
        let at = Offset::at(0).unwrap();
        reactor.submit(token(1), Operation::Read { fd: file.as_raw_fd(), into, at }).unwrap();
        let mut found = Completions::new();
        while found.as_slice().is_empty() {
            reactor.poll(Wait::Forever, &mut found).unwrap();
        }
        assert_eq!((found.as_slice()[0].result, &bytes), (4, b"\x7fELF"));
    });
}
