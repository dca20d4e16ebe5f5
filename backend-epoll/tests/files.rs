//! What waits where epoll can't: files, and the threads that wait for them.

#[allow(dead_code)] // each file uses a part
mod common;
#[allow(dead_code)]
#[path = "common/lent.rs"]
mod lent;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use common::*;
use evenkeel::io::Interest::Readable;
use evenkeel::io::{Address, Offset, Operation, SyncExtent};
use evenkeel::{Reactor, Readiness, Wait};
use evenkeel_epoll::EpollReactor;
use lent::*;
use rustix::fs::{Advice, fadvise};
use rustix::net::{AddressFamily, SocketType};

const EINVAL: i32 = 22;

/// A file of its own, without a name.
fn file() -> File {
    let path = std::env::temp_dir().join(format!(
        "evenkeel-epoll-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    fs::remove_file(path).expect("it is there");
    file.expect("it is new")
}

fn sync(fd: &impl AsRawFd, extent: SyncExtent) -> Operation {
    Operation::Sync { fd: fd.as_raw_fd(), extent }
}

/// How many threads of the pool this process has.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("it is readable");
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with("evenkeel-blocki"))
        .count()
}

/// The signals that the threads of the pool block, as one set.
fn blocked_signals() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("it is readable");
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter(|status| status.contains("evenkeel-blocki"))
        .map(|status| {
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
            u64::from_str_radix(blocked.expect("it is there"), 16).expect("it is hexadecimal")
        })
        .fold(u64::MAX, |all, blocked| all & blocked)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// A socket that takes long to close: the peer does not read what it was sent.
fn lingering() -> (RawFd, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let ours = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let theirs = listener.accept().expect("it is connected").0;
    ours.set_nonblocking(true).expect("it is a socket");
    while (&ours).write(&[7; 8_192]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&ours, Some(Duration::from_secs(1_000)))
        .expect("it is a socket");
    (ours.into_raw_fd(), theirs)
}

/// What ends first; a poll may end before with nothing, when a nap is over.
fn first_found(reactor: &mut EpollReactor) -> Vec<(usize, i32)> {
    let deadline = after(Duration::from_secs(10));
    loop {
        let found = poll(reactor, Wait::Until(deadline));
        if !found.is_empty() || now() >= deadline {
            return found;
        }
    }
}

fn is_open(fd: RawFd) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{fd}")).is_ok()
}

#[test]
fn a_file_is_written_and_read() {
    let mut reactor = reactor();
    let file = file();
    let fd = file.as_raw_fd();
    assert_eq!(run(&mut reactor, write(&file, b"hello ")), 6);
    assert_eq!(run(&mut reactor, write(&file, b"world")), 5);
    let at = |bytes| Offset::at(bytes).expect("there is one");
    assert_eq!(run(&mut reactor, Operation::Write { fd, from: text(b"W"), at: at(6) }), 1);
    let mut bytes = [0; 16];
    let mut read_at = |bytes: &mut [u8], from| {
        run(&mut reactor, Operation::Read { fd, into: memory(bytes), at: at(from) })
    };
    assert_eq!(read_at(&mut bytes, 0), 11);
    assert_eq!(&bytes[..11], b"hello World");
    assert_eq!(read_at(&mut bytes, 11), 0, "the end");
    assert_eq!(run(&mut reactor, read(&file, &mut bytes)), 0, "it stands at the end");
}

#[test]
fn what_is_not_in_memory_is_read_by_a_thread() {
    let mut reactor = reactor();
    let file = file();
    (&file).write_all(&vec![7; 100_000]).expect("there is room");
    let mut bytes = vec![0; 100_000];
    for _ in 0..3 {
        file.sync_all().expect("it is a file");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
        let mut read = 0;
        while read < bytes.len() {
            let fd = file.as_raw_fd();
            let at = Offset::at(u64::try_from(read).expect("it is small")).expect("there is one");
            let into = memory(&mut bytes[read..]);
            let result = run(&mut reactor, Operation::Read { fd, into, at });
            assert!(result > 0, "{result}");
            read += usize::try_from(result).expect("it is a count");
        }
        assert!(bytes.iter().all(|&byte| byte == 7));
        bytes.fill(0);
    }
}

#[test]
fn a_file_of_the_kernels_is_read() {
    let mut reactor = reactor();
    let mut bytes = [0; 64];
    let status = File::open("/proc/self/status").expect("it is there");
    assert_eq!(run(&mut reactor, read(&status, &mut bytes)), 64);
    assert_eq!(&bytes[..5], b"Name:");
    let zero = File::open("/dev/zero").expect("it is there");
    assert_eq!(run(&mut reactor, read(&zero, &mut bytes)), 64);
    assert_eq!(bytes, [0; 64]);
    let null = OpenOptions::new().write(true).open("/dev/null").expect("it is there");
    assert_eq!(run(&mut reactor, write(&null, b"x")), 1);
    assert_eq!(run(&mut reactor, read(&null, &mut bytes)), -EBADF, "it is open to be written");
}

#[test]
fn a_file_is_synced_and_nothing_else_is() {
    let mut reactor = reactor();
    let file = file();
    for extent in [SyncExtent::All, SyncExtent::Data] {
        assert_eq!(run(&mut reactor, write(&file, b"x")), 1);
        assert_eq!(run(&mut reactor, sync(&file, extent)), 0);
        assert_eq!(run(&mut reactor, sync(&event(0), extent)), -EINVAL);
        for fd in [-1, 900_000] {
            assert_eq!(run(&mut reactor, Operation::Sync { fd, extent }), -EBADF);
        }
    }
}

#[test]
fn a_wait_without_end_ends_when_a_thread_is_done() {
    let mut reactor = reactor();
    let file = file();
    for _ in 0..100 {
        start(&mut reactor, 1, sync(&file, SyncExtent::Data));
        assert_eq!(ended(&mut reactor), [(1, 0)]);
    }
    for index in 0..20 {
        start(&mut reactor, index, sync(&file, SyncExtent::Data));
    }
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let found = ended(&mut reactor);
        assert!(found.len() <= 20);
        seen.extend(found);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).map(|index| (index, 0)).collect::<Vec<_>>());
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn threads_are_started_when_they_are_needed_and_are_few() {
    if role().is_none() {
        let test = "threads_are_started_when_they_are_needed_and_are_few";
        let output = child(test, "counts").output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let mut reactor = reactor();
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    start(&mut reactor, 2, send(&theirs, b"x"));
    let mut seen = 0;
    while seen < 2 {
        seen += ended(&mut reactor).len();
    }
    assert_eq!(run(&mut reactor, read(&File::open("/dev/zero").expect("it is"), &mut bytes)), 8);
    assert_eq!(threads(), 0, "none was needed");
    let file = file();
    for _ in 0..10 {
        assert_eq!(run(&mut reactor, sync(&file, SyncExtent::Data)), 0);
        assert_eq!(threads(), 1, "one is enough for one after the other");
    }

    for signal in [libc::SIGTERM, libc::SIGCHLD, libc::SIGUSR1, libc::SIGPIPE] {
        assert_ne!(blocked_signals() & 1 << (signal - 1), 0, "signal {signal} is not for it");
    }

    let (numbers, peers): (Vec<_>, Vec<_>) = (0..6).map(|_| lingering()).unzip();
    for (index, &fd) in (10..).zip(&numbers) {
        start(&mut reactor, index, Operation::Close { fd });
    }
    // A thread has its name when it has begun; and a number is closed before the wait for the peer.
    until("four have begun", || numbers.iter().filter(|&&fd| is_open(fd)).count() == 2);
    assert_eq!(threads(), 4);

    // The worker goes on, and what waits for threads does not tell it to look.
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    for _ in 0..100 {
        let event = event(0);
        watch(&mut reactor, 1, &event, Readable);
        assert_eq!(look(&mut reactor), []);
        signal(&event);
        assert_eq!(look(&mut reactor), [(1, POLLIN)]);
    }

    // The last one is not begun: it ends, and the number stays as it was. One that is begun goes on.
    start(&mut reactor, 1, sync(&file, SyncExtent::Data));
    for index in [1, 10, 15] {
        reactor.cancel(token(index));
    }
    assert_eq!(look(&mut reactor), [(1, -ECANCELED), (15, -ECANCELED)]);
    assert!(is_open(numbers[5]));
    assert_eq!(reactor.readiness(), Readiness::Quiet);

    drop(peers);
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.extend(ended(&mut reactor));
    }
    seen.sort_unstable();
    assert_eq!(seen, (10..15).map(|index| (index, 0)).collect::<Vec<_>>());
    assert!(numbers[..5].iter().all(|&fd| !is_open(fd)));

    drop(reactor);
    until("they end with the reactor", || threads() == 0);
}

#[test]
fn a_reactor_that_is_dropped_does_not_wait_for_a_call_that_takes_long() {
    let mut reactor = reactor();
    let (fd, peer) = lingering();
    start(&mut reactor, 1, Operation::Close { fd });
    let begun = Instant::now();
    drop(reactor);
    assert!(begun.elapsed() < Duration::from_secs(10), "of 1,000 that it lingers");
    drop(peer);
}

#[test]
fn a_unix_socket_whose_backlog_is_full_is_connected_when_it_has_room() {
    let mut reactor = reactor();
    let name = SocketAddr::from_abstract_name(format!("evenkeel-full-{}", std::process::id()))
        .expect("a name");
    let listener = UnixListener::bind_addr(&name).expect("it is free");
    rustix::net::listen(&listener, 0).expect("it is bound");
    let mut to = Address::from(name);
    for nonblocking in [false, true] {
        let sockets: Vec<OwnedFd> = (0..3)
            .map(|_| {
                let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None);
                let socket = socket.expect("a socket");
                rustix::io::ioctl_fionbio(&socket, nonblocking).expect("it is a socket");
                socket
            })
            .collect();
        for (index, socket) in (0..).zip(&sockets) {
            start(&mut reactor, index, connect(socket.as_raw_fd(), &mut to));
        }
        assert_eq!(look(&mut reactor), [(0, 0)], "there is room for one");
        for _ in 0..5 {
            let deadline = after(Duration::from_millis(2));
            assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
        }
        // A cancel reaches it also between a nap and the next attempt.
        until("a nap is over", || reactor.readiness() == Readiness::Ready);
        reactor.cancel(token(1));
        assert_eq!(first_found(&mut reactor), [(1, -ECANCELED)]);
        drop(listener.accept().expect("there is one"));
        assert_eq!(first_found(&mut reactor), [(2, 0)]);
        drop(listener.accept().expect("there is one"));
    }
}

#[test]
fn a_datagram_waits_until_its_receiver_has_room() {
    let mut reactor = reactor();
    let name = SocketAddr::from_abstract_name(format!("evenkeel-room-{}", std::process::id()))
        .expect("a name");
    let theirs = UnixDatagram::bind_addr(&name).expect("it is free");
    let ours = UnixDatagram::unbound().expect("a socket");
    ours.set_nonblocking(true).expect("it is a socket");
    let mut sent = 0;
    while ours.send_to_addr(b"x", &name).is_ok() {
        sent += 1;
    }
    let mut to = Address::from(name);
    let fd = ours.as_raw_fd();
    start(&mut reactor, 1, Operation::SendTo { fd, from: text(b"last"), to: place(&mut to) });
    let deadline = after(Duration::from_millis(5));
    assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
    let mut bytes = [0; 8];
    for _ in 0..sent {
        theirs.recv(&mut bytes).expect("they were sent");
    }
    assert_eq!(first_found(&mut reactor), [(1, 4)]);
    assert_eq!(theirs.recv(&mut bytes).expect("it was sent"), 4);
}

#[test]
fn a_close_that_does_not_linger_needs_no_thread() {
    let mut reactor = reactor();
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    start(&mut reactor, 1, Operation::Close { fd: ours.into_raw_fd() });
    assert_eq!(reactor.readiness(), Readiness::Ready);
    assert_eq!(look(&mut reactor), [(1, 0)]);
    assert_eq!(theirs.read(&mut [0; 8]).expect("it was closed well"), 0);
    let _ = theirs.shutdown(Shutdown::Both);
}
