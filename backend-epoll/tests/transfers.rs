//! Sockets, pipes and terminals: what transfers end with.

#[allow(dead_code)] // each file uses a part
mod common;
#[allow(dead_code)]
#[path = "common/lent.rs"]
mod lent;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use common::*;
use evenkeel::io::Interest::Readable;
use evenkeel::io::{Address, Offset, Operation};
use evenkeel::{Reactor, Readiness, Wait};
use evenkeel_epoll::EpollReactor;
use lent::*;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{FdFlags, fcntl_getfd, ioctl_fionbio};
use rustix::time::{ClockId, clock_gettime};

const EINVAL: i32 = 22;
const ESPIPE: i32 = 29;
const EPIPE: i32 = 32;
const ENOTSOCK: i32 = 88;
const EISCONN: i32 = 106;
const ENOTCONN: i32 = 107;
const ECONNREFUSED: i32 = 111;

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("a pair")
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let ours = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    (ours, listener.accept().expect("it is connected").0)
}

fn blocks(fd: &impl AsRawFd) -> bool {
    // SAFETY: it is open as long as it is borrowed.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd.as_raw_fd()) };
    !fcntl_getfl(fd).expect("it is open").contains(OFlags::NONBLOCK)
}

fn own(number: i32) -> OwnedFd {
    assert!(number >= 0, "error {number}");
    // SAFETY: an operation has brought it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Fills what the socket has room for.
fn fill(socket: &UnixStream) {
    socket.set_nonblocking(true).expect("it is a socket");
    while (&*socket).write(&[7; 8_192]).is_ok() {}
    socket.set_nonblocking(false).expect("it is a socket");
}

fn drain(socket: &UnixStream) -> usize {
    socket.set_nonblocking(true).expect("it is a socket");
    let mut bytes = vec![0; 65_536];
    let mut all = 0;
    while let Ok(read) = (&*socket).read(&mut bytes) {
        all += read;
        if read == 0 {
            break;
        }
    }
    socket.set_nonblocking(false).expect("it is a socket");
    all
}

fn soon() -> Wait {
    Wait::Until(after(Duration::from_millis(5)))
}

#[test]
fn what_is_there_is_received_at_once() {
    let mut reactor = reactor();
    for nonblocking in [false, true] {
        let (ours, mut theirs) = tcp();
        ours.set_nonblocking(nonblocking).expect("it is a socket");
        theirs.write_all(b"hello").expect("there is room");
        let mut bytes = [0; 8];
        start(&mut reactor, 1, receive(&ours, &mut bytes[..2]));
        assert_eq!(reactor.readiness(), Readiness::Ready);
        assert_eq!(look(&mut reactor), [(1, 2)]);
        start(&mut reactor, 2, receive(&ours, &mut bytes[2..]));
        assert_eq!(look(&mut reactor), [(2, 3)]);
        assert_eq!(&bytes[..5], b"hello");
        assert_eq!(blocks(&ours), !nonblocking);
    }
}

#[test]
fn what_comes_later_is_received_then() {
    let mut reactor = without_memory();
    for nonblocking in [false, true] {
        let (ours, mut theirs) = pair();
        ours.set_nonblocking(nonblocking).expect("it is a socket");
        for round in 0..12 {
            let mut bytes = [0; 8];
            let operation =
                if round % 2 == 0 { receive(&ours, &mut bytes) } else { read(&ours, &mut bytes) };
            start(&mut reactor, 1, operation);
            assert_eq!(look(&mut reactor), []);
            assert_eq!(reactor.readiness(), Readiness::Unknown);
            theirs.write_all(b"later").expect("there is room");
            assert_eq!(ended(&mut reactor), [(1, 5)], "round {round}");
            assert_eq!(&bytes[..5], b"later");
        }
    }
}

#[test]
fn the_end_of_the_stream_is_no_bytes() {
    let mut reactor = reactor();
    let (ours, theirs) = pair();
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    theirs.shutdown(Shutdown::Write).expect("it is connected");
    assert_eq!(ended(&mut reactor), [(1, 0)]);
    assert_eq!(run(&mut reactor, read(&ours, &mut bytes)), 0);
}

#[test]
fn receives_of_one_socket_are_served_in_their_order() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 20];
    for (index, byte) in (0..).zip(bytes.chunks_mut(1)) {
        start(&mut reactor, index, receive(&ours, byte));
    }
    theirs.write_all(b"abcdefghijklmnopqrst").expect("there is room");
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let found = ended(&mut reactor);
        assert!((1..=8).contains(&found.len()), "a few attempts for each poll: {found:?}");
        seen.extend(found);
    }
    assert_eq!(seen, (0..20).map(|index| (index, 1)).collect::<Vec<_>>());
    assert_eq!(&bytes, b"abcdefghijklmnopqrst");
}

#[test]
fn who_comes_later_does_not_overtake_who_waits() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 2];
    let [first, second] = &mut bytes;
    start(&mut reactor, 1, receive(&ours, std::slice::from_mut(first)));
    // Seven are armed without an attempt after one in vain, and this is to be about the eighth.
    for _ in 0..7 {
        theirs.write_all(b"x").expect("there is room");
        assert_eq!(ended(&mut reactor), [(1, 1)]);
        start(&mut reactor, 1, receive(&ours, std::slice::from_mut(first)));
    }
    theirs.write_all(b"ab").expect("there is room");
    start(&mut reactor, 2, receive(&ours, std::slice::from_mut(second)));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(ended(&mut reactor));
    }
    assert_eq!(seen, [(1, 1), (2, 1)]);
    assert_eq!(&bytes, b"ab");
}

#[test]
fn a_send_waits_for_room_and_may_be_partial() {
    static LARGE: [u8; 1 << 20] = [7; 1 << 20];
    let mut reactor = reactor();
    for nonblocking in [false, true] {
        let (ours, theirs) = pair();
        fill(&ours);
        ours.set_nonblocking(nonblocking).expect("it is a socket");
        start(&mut reactor, 1, send(&ours, &LARGE));
        assert_eq!(look(&mut reactor), []);
        drain(&theirs);
        let found = ended(&mut reactor);
        assert_eq!((found.len(), found[0].0), (1, 1));
        assert!((1..1 << 20).contains(&found[0].1), "as much as there is room for: {found:?}");
        assert_eq!(drain(&theirs), usize::try_from(found[0].1).expect("it is a count"));
    }
}

#[test]
fn a_writer_that_waits_is_not_busy_when_the_peer_has_half_closed() {
    let mut reactor = reactor();
    let (ours, theirs) = pair();
    fill(&ours);
    start(&mut reactor, 1, send(&ours, b"more"));
    theirs.shutdown(Shutdown::Write).expect("it is connected");
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let deadline = after(Duration::from_millis(100));
    assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
    let used = clock_gettime(ClockId::ThreadCPUTime) - before;
    assert!(used.tv_nsec < 20_000_000, "of 100 ms it ran for {used:?}");
    drain(&theirs);
    assert_eq!(ended(&mut reactor), [(1, 4)]);
}

#[test]
fn an_event_that_lets_nobody_on_does_not_keep_the_reactor_busy() {
    let mut reactor = reactor();
    let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let on = 1_i32;
    // SAFETY: an option of one number.
    let set = unsafe {
        libc::setsockopt(
            ours.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_RECVERR,
            (&raw const on).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    // Nobody is there: an error comes back, and stays in the socket's error queue.
    let nobody = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let theirs = nobody.local_addr().expect("it is bound");
    drop(nobody);
    ours.send_to(b"x", theirs).expect("there is room");
    let mut bytes = [0; 8];
    assert_eq!(run(&mut reactor, receive(&ours, &mut bytes)), -ECONNREFUSED);
    for _ in 0..3 {
        start(&mut reactor, 1, receive(&ours, &mut bytes));
        let before = clock_gettime(ClockId::ThreadCPUTime);
        let deadline = after(Duration::from_millis(100));
        assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
        assert!(now() >= deadline);
        let used = clock_gettime(ClockId::ThreadCPUTime) - before;
        assert!(used.tv_nsec < 20_000_000, "of 100 ms it ran for {used:?}");
        ours.send_to(b"self", ours.local_addr().expect("it is bound")).expect("there is room");
        assert_eq!(ended(&mut reactor), [(1, 4)]);
    }
}

#[test]
fn what_somebody_else_was_faster_to_take_is_waited_for_again() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    for _ in 0..3 {
        theirs.write_all(b"x").expect("there is room");
        assert_eq!(drain(&ours), 1);
        let Wait::Until(deadline) = soon() else { unreachable!() };
        assert_eq!(poll(&mut reactor, Wait::Until(deadline)), []);
        assert!(now() >= deadline, "nothing has ended, so the wait goes on");
    }
    theirs.write_all(b"yz").expect("there is room");
    assert_eq!(ended(&mut reactor), [(1, 2)]);
    // And then nobody is told of what comes.
    theirs.write_all(b"x").expect("there is room");
    assert_eq!(poll(&mut reactor, soon()), []);
    assert_eq!(run(&mut reactor, receive(&ours, &mut bytes)), 1);
}

#[test]
fn nothing_is_transferred_as_the_call_does_it() {
    let mut reactor = reactor();
    let (ours, mut theirs) = tcp();
    assert_eq!(run(&mut reactor, send(&ours, b"")), 0);
    assert_eq!(run(&mut reactor, write(&ours, b"")), 0);
    assert_eq!(run(&mut reactor, read(&ours, &mut [])), 0);
    theirs.write_all(b"x").expect("there is room");
    assert_eq!(run(&mut reactor, receive(&ours, &mut [])), 0);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(run(&mut reactor, write(&writer, b"")), 0);
    assert_eq!(run(&mut reactor, read(&reader, &mut [])), 0);

    let (one, other) = UnixDatagram::pair().expect("a pair");
    assert_eq!(run(&mut reactor, write(&one, b"")), 0);
    assert_eq!(run(&mut reactor, send(&one, b"")), 0);
    assert_eq!(run(&mut reactor, send(&one, b"full")), 4);
    let mut bytes = [0; 8];
    let received = [(); 3].map(|()| run(&mut reactor, receive(&other, &mut bytes)));
    assert_eq!(received, [0, 0, 4], "an empty datagram is one");
}

#[test]
fn a_pipe_is_read_and_written() {
    let mut reactor = reactor();
    for nonblocking in [false, true] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        for end in [
            &OwnedFd::from(reader.try_clone().expect("a duplicate")),
            &OwnedFd::from(writer.try_clone().expect("a duplicate")),
        ] {
            ioctl_fionbio(end, nonblocking).expect("it is a pipe");
        }
        let mut bytes = [0; 8];
        start(&mut reactor, 1, read(&reader, &mut bytes));
        assert_eq!(look(&mut reactor), []);
        assert_eq!(run_beside(&mut reactor, 2, write(&writer, b"pipe"), 1), [4, 4]);
        assert_eq!(&bytes[..4], b"pipe");

        ioctl_fionbio(&writer, true).expect("it is a pipe");
        while writer.write(&[0; 4096]).is_ok() {}
        ioctl_fionbio(&writer, nonblocking).expect("it is a pipe");
        start(&mut reactor, 1, write(&writer, b"more"));
        assert_eq!(look(&mut reactor), [], "it is full");
        let mut all = vec![0; 65_536];
        assert_eq!(run_beside(&mut reactor, 2, read(&reader, &mut all), 1), [65_536, 4]);
        drop(writer);
        assert_eq!(run(&mut reactor, read(&reader, &mut bytes)), 4);
        assert_eq!(run(&mut reactor, read(&reader, &mut bytes)), 0, "the end");
    }
}

/// Submits one operation, by which another one ends too; the results of the two.
fn run_beside(
    reactor: &mut EpollReactor,
    index: u32,
    operation: Operation,
    other: usize,
) -> [i32; 2] {
    start(reactor, index, operation);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(ended(reactor));
    }
    seen.sort_by_key(|&(index, _)| index == other);
    [seen[0].1, seen[1].1]
}

#[test]
fn pieces_are_transferred_one_after_the_other() {
    let mut reactor = reactor();
    let (ours, theirs) = pair();
    let mut pieces = [text(b"on"), text(b""), text(b"e two")];
    let fd = ours.as_raw_fd();
    let from = list(&mut pieces);
    let written = Operation::WriteVectored { fd, from, at: Offset::CURRENT };
    assert_eq!(run(&mut reactor, written), 7);
    let (mut first, mut second) = ([0; 3], [0; 8]);
    let mut pieces = [memory(&mut first), memory(&mut second)];
    let into = list(&mut pieces);
    let fd = theirs.as_raw_fd();
    assert_eq!(run(&mut reactor, Operation::ReadVectored { fd, into, at: Offset::CURRENT }), 7);
    assert_eq!((&first, &second[..4]), (b"one", &b" two"[..]));
}

#[test]
fn what_has_no_offset_says_so() {
    let mut reactor = reactor();
    let (ours, _theirs) = pair();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let at = Offset::at(3).expect("there is one");
    let mut bytes = [0; 8];
    for fd in [ours.as_raw_fd(), reader.as_raw_fd()] {
        let operation = Operation::Read { fd, into: memory(&mut bytes), at };
        assert_eq!(run(&mut reactor, operation), -ESPIPE);
    }
    for fd in [ours.as_raw_fd(), writer.as_raw_fd()] {
        assert_eq!(run(&mut reactor, Operation::Write { fd, from: text(b"x"), at }), -ESPIPE);
    }
}

#[test]
fn an_eventfd_counts_what_is_written() {
    let mut reactor = reactor();
    let event = event(0);
    let mut count = [0; 8];
    start(&mut reactor, 1, read(&event, &mut count));
    assert_eq!(look(&mut reactor), []);
    signal(&event);
    assert_eq!(ended(&mut reactor), [(1, 8)]);
    assert_eq!(u64::from_ne_bytes(count), 1);
    signal(&event);
    assert_eq!(run(&mut reactor, read(&event, &mut count[..4])), -EINVAL);
}

/// What refuses `RWF_NOWAIT` on many kernels.
#[test]
fn a_timer_is_read_when_it_has_expired() {
    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
    let mut reactor = reactor();
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)
        .expect("a timer");
    let span = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Itimerspec { it_interval: never, it_value: span };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).expect("it is one");
    let mut count = [0; 8];
    assert_eq!(run(&mut reactor, read(&timer, &mut count)), 8);
    assert_eq!(u64::from_ne_bytes(count), 1);
}

/// Terminals refuse `RWF_NOWAIT`.
#[test]
fn a_terminal_is_waited_for_and_blocks_afterwards_as_before() {
    let mut reactor = reactor();
    let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).expect("a terminal");
    rustix::pty::unlockpt(&master).expect("it is one");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("it opens");
    let mut bytes = [0; 16];
    for nonblocking in [false, true] {
        ioctl_fionbio(&terminal, nonblocking).expect("it is a terminal");
        start(&mut reactor, 1, read(&terminal, &mut bytes));
        assert_eq!(look(&mut reactor), []);
        rustix::io::write(&master, b"line\n").expect("there is room");
        assert_eq!(ended(&mut reactor), [(1, 5)]);
        assert_eq!(&bytes[..5], b"line\n");
        assert_eq!(run(&mut reactor, write(&terminal, b"answer")), 6);
        assert_eq!(blocks(&terminal), !nonblocking);
    }
}

#[test]
fn a_connection_is_made_and_accepted() {
    let mut reactor = reactor();
    for nonblocking in [false, true] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(nonblocking).expect("it is a socket");
        start(&mut reactor, 1, Operation::Accept { fd: listener.as_raw_fd() });
        assert_eq!(look(&mut reactor), []);
        let socket = socket(rustix::net::AddressFamily::INET, nonblocking);
        let mut to = Address::from(listener.local_addr().expect("it is bound"));
        let results = run_beside(&mut reactor, 2, connect(socket.as_raw_fd(), &mut to), 1);
        assert_eq!(results[0], 0);
        let accepted = own(results[1]);
        assert!(blocks(&accepted));
        assert_eq!(fcntl_getfd(&accepted).expect("it is open"), FdFlags::CLOEXEC);
        assert_eq!((blocks(&listener), blocks(&socket)), (!nonblocking, !nonblocking));
        let stream = TcpStream::from(accepted);
        assert_eq!(run(&mut reactor, send(&socket, b"hi")), 2);
        let mut bytes = [0; 2];
        assert_eq!(run(&mut reactor, receive(&stream, &mut bytes)), 2);
        assert_eq!(run(&mut reactor, connect(socket.as_raw_fd(), &mut to)), -EISCONN);
    }
}

fn socket(family: rustix::net::AddressFamily, nonblocking: bool) -> OwnedFd {
    let kind = rustix::net::SocketType::STREAM;
    let socket = rustix::net::socket(family, kind, None).expect("a socket");
    ioctl_fionbio(&socket, nonblocking).expect("it is a socket");
    socket
}

/// Each sets `O_NONBLOCK` for its attempt and puts it back: none may be left in a call that blocks.
#[test]
fn reactors_that_share_a_listener_which_blocks_do_not_block() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let fd = listener.as_raw_fd();
    let (done, both) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let done = done.clone();
        std::thread::spawn(move || {
            let mut reactor = reactor();
            for _ in 0..50_000 {
                start(&mut reactor, 1, Operation::Accept { fd });
                reactor.cancel(token(1));
                assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
            }
            done.send(()).expect("the test waits for it");
        });
    }
    for _ in 0..2 {
        both.recv_timeout(Duration::from_secs(30)).expect("none blocks");
    }
    assert!(blocks(&listener));
}

#[test]
fn a_connection_that_nobody_wants_is_refused() {
    let mut reactor = reactor();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let mut to = Address::from(listener.local_addr().expect("it is bound"));
    drop(listener);
    for nonblocking in [false, true] {
        let socket = socket(rustix::net::AddressFamily::INET, nonblocking);
        assert_eq!(run(&mut reactor, connect(socket.as_raw_fd(), &mut to)), -ECONNREFUSED);
        assert_eq!(blocks(&socket), !nonblocking);
    }
}

#[test]
fn a_unix_socket_is_connected_by_its_name() {
    use std::os::linux::net::SocketAddrExt;
    let mut reactor = reactor();
    let name =
        SocketAddr::from_abstract_name(format!("evenkeel-{}", std::process::id())).expect("a name");
    let listener = UnixListener::bind_addr(&name).expect("it is free");
    let socket = socket(rustix::net::AddressFamily::UNIX, false);
    let mut to = Address::from(name);
    assert_eq!(run(&mut reactor, connect(socket.as_raw_fd(), &mut to)), 0);
    drop(own(run(&mut reactor, Operation::Accept { fd: listener.as_raw_fd() })));
}

#[test]
fn datagrams_come_with_their_sender() {
    let mut reactor = reactor();
    let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let theirs = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let (mut bytes, mut sender) = ([0; 4], None);
    let fd = ours.as_raw_fd();
    let into = memory(&mut bytes);
    start(&mut reactor, 1, Operation::ReceiveFrom { fd, into, sender: place(&mut sender) });
    assert_eq!(look(&mut reactor), []);
    let mut to = Address::from(ours.local_addr().expect("it is bound"));
    let fd = theirs.as_raw_fd();
    let operation = Operation::SendTo { fd, from: text(b"datagram"), to: place(&mut to) };
    assert_eq!(run_beside(&mut reactor, 2, operation, 1), [8, 4], "the rest is lost");
    let sender = sender.expect("it has one").to_string();
    assert_eq!(sender, theirs.local_addr().expect("it is bound").to_string());

    let (one, other) = UnixDatagram::pair().expect("a pair");
    one.send(b"x").expect("there is room");
    let mut sender = None;
    let fd = other.as_raw_fd();
    let into = memory(&mut bytes);
    let operation = Operation::ReceiveFrom { fd, into, sender: place(&mut sender) };
    assert_eq!(run(&mut reactor, operation), 1);
    assert!(sender.is_none(), "who has no name has no address");
}

#[test]
fn a_shutdown_ends_the_stream() {
    let mut reactor = reactor();
    let (ours, theirs) = pair();
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&theirs, &mut bytes));
    let shutdown = Operation::Shutdown { fd: ours.as_raw_fd(), how: Shutdown::Write };
    assert_eq!(run_beside(&mut reactor, 2, shutdown, 1), [0, 0]);
    assert_eq!(run(&mut reactor, send(&ours, b"x")), -EPIPE);
    let unconnected = socket(rustix::net::AddressFamily::INET, false);
    let shutdown = Operation::Shutdown { fd: unconnected.as_raw_fd(), how: Shutdown::Both };
    assert_eq!(run(&mut reactor, shutdown), -ENOTCONN);
}

#[test]
fn a_close_makes_the_number_free() {
    let mut reactor = reactor();
    let event = event(0);
    let number = at(800, &event);
    let mut count = [0; 8];
    start(&mut reactor, 1, read(&number, &mut count));
    let fd = std::os::fd::IntoRawFd::into_raw_fd(number);
    start(&mut reactor, 2, Operation::Close { fd });
    assert_eq!(look(&mut reactor), [(1, -EBADF), (2, 0)], "the duplicate is watched no more");
    let number = at(800, &event);
    start(&mut reactor, 1, read(&number, &mut count));
    signal(&event);
    assert_eq!(ended(&mut reactor), [(1, 8)]);
    assert_eq!(run(&mut reactor, Operation::Close { fd: 801 }), -EBADF);
    assert_eq!(run(&mut reactor, Operation::Close { fd: -1 }), -EBADF);
}

#[test]
fn a_number_that_is_not_open_or_of_another_kind_is_an_error() {
    let mut reactor = reactor();
    let mut bytes = [0; 8];
    let (mut to, mut sender) = (Address::from((Ipv4Addr::LOCALHOST, 1)), None);
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    for (fd, errno) in [(-1, EBADF), (900_000, EBADF), (reader.as_raw_fd(), ENOTSOCK)] {
        let operations = [
            Operation::Receive { fd, into: memory(&mut bytes) },
            Operation::Send { fd, from: text(b"x") },
            Operation::SendTo { fd, from: text(b"x"), to: place(&mut to) },
            Operation::ReceiveFrom { fd, into: memory(&mut bytes), sender: place(&mut sender) },
            Operation::Accept { fd },
            connect(fd, &mut to),
            Operation::Shutdown { fd, how: Shutdown::Both },
        ];
        for operation in operations {
            let said = format!("{operation:?}");
            assert_eq!(run(&mut reactor, operation), -errno, "{said}");
        }
    }
    for fd in [-1, 900_000] {
        let at = Offset::CURRENT;
        assert_eq!(run(&mut reactor, Operation::Read { fd, into: memory(&mut bytes), at }), -EBADF);
        assert_eq!(run(&mut reactor, Operation::Write { fd, from: text(b"x"), at }), -EBADF);
    }
    assert_eq!(run(&mut reactor, write(&reader, b"x")), -EBADF, "the end to read from");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    assert_eq!(run(&mut reactor, receive(&listener, &mut bytes)), -ENOTCONN);
    let (ours, _theirs) = pair();
    assert_eq!(run(&mut reactor, Operation::Accept { fd: ours.as_raw_fd() }), -EINVAL);
}

#[test]
fn a_cancel_leaves_the_bytes_to_the_next_one() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    reactor.cancel(token(1));
    theirs.write_all(b"bytes").expect("there is room");
    assert_eq!(ended(&mut reactor), [(1, -ECANCELED)]);
    assert_eq!((bytes, reactor.readiness()), ([0; 8], Readiness::Quiet));
    assert_eq!(run(&mut reactor, receive(&ours, &mut bytes)), 5);
}

#[test]
fn a_cancel_takes_one_out_of_the_middle_of_a_line() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 3];
    for (index, byte) in (0..).zip(bytes.chunks_mut(1)) {
        start(&mut reactor, index, receive(&ours, byte));
    }
    reactor.cancel(token(1));
    theirs.write_all(b"ab").expect("there is room");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(ended(&mut reactor));
    }
    assert_eq!(seen, [(1, -ECANCELED), (0, 1), (2, 1)]);
    assert_eq!(&bytes, b"a\0b");
}

#[test]
fn a_cancel_of_one_that_has_ended_changes_nothing() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").expect("there is room");
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    reactor.cancel(token(1));
    reactor.cancel(token(2));
    assert_eq!(look(&mut reactor), [(1, 1)]);
}

/// More are ready than one poll tries, so the last one waits for its turn when it is cancelled.
#[test]
fn a_cancel_comes_in_time_for_one_that_waits_for_its_turn() {
    let mut reactor = reactor();
    let mut pairs: Vec<_> = (0..10).map(|_| pair()).collect();
    let mut bytes = [0; 10];
    for ((index, byte), (ours, _)) in (0..).zip(bytes.chunks_mut(1)).zip(&pairs) {
        start(&mut reactor, index, receive(ours, byte));
    }
    for (_, theirs) in &mut pairs {
        theirs.write_all(b"x").expect("there is room");
    }
    assert_eq!(look(&mut reactor).len(), 8);
    assert_eq!(reactor.readiness(), Readiness::Ready);
    reactor.cancel(token(9));
    // Its number is another's by now, who must keep what is his.
    let (last, _theirs) = pairs.pop().expect("there are ten");
    let mut seen = look(&mut reactor);
    seen.sort_unstable();
    assert_eq!(seen, [(8, 1), (9, -ECANCELED)]);
    assert_eq!(drain(&last), 1);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
}

#[test]
fn a_descriptor_that_is_always_ready_starves_nobody() {
    let mut reactor = reactor();
    let (flood, mut flooder) = pair();
    let (ours, mut theirs) = pair();
    let mut bytes = [0; 201];
    let mut chunks = bytes.chunks_mut(1);
    for index in 0..200 {
        start(&mut reactor, index, receive(&flood, chunks.next().expect("there are 201")));
    }
    start(&mut reactor, 200, receive(&ours, chunks.next().expect("there are 201")));
    flooder.write_all(&[0; 200]).expect("there is room");
    theirs.write_all(b"x").expect("there is room");
    let found = look(&mut reactor);
    assert!(found.len() <= 8);
    assert!(found.contains(&(200, 1)), "one poll has a turn for each: {found:?}");
}

#[test]
fn transfers_that_end_at_once_do_not_keep_an_event_from_being_seen() {
    let mut reactor = reactor();
    let (flood, mut flooder) = pair();
    flooder.write_all(&[0; 200]).expect("there is room");
    let event = event(1);
    watch(&mut reactor, 0, &event, Readable);
    let mut byte = [0; 1];
    for polls in 0.. {
        assert!(polls <= evenkeel::POLL_BATCH, "it looks after as many at the latest");
        start(&mut reactor, 1, receive(&flood, &mut byte));
        let found = look(&mut reactor);
        assert!(found.contains(&(1, 1)), "and the others go on");
        if found.contains(&(0, POLLIN)) {
            break;
        }
    }
}

#[test]
fn a_reader_and_a_writer_of_one_socket_do_not_hinder_each_other() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    fill(&ours);
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    start(&mut reactor, 2, send(&ours, b"more"));
    watch(&mut reactor, 3, &ours, Readable);
    assert_eq!(look(&mut reactor), []);
    theirs.write_all(b"x").expect("there is room");
    let mut seen = ended(&mut reactor);
    seen.sort_unstable();
    assert_eq!(seen, [(1, 1), (3, POLLIN)]);
    assert_eq!(poll(&mut reactor, soon()), []);
    drain(&theirs);
    assert_eq!(ended(&mut reactor), [(2, 4)]);
}

#[test]
fn a_hang_up_wakes_both_directions() {
    let mut reactor = reactor();
    let (ours, theirs) = pair();
    fill(&ours);
    let mut bytes = [0; 8];
    start(&mut reactor, 1, receive(&ours, &mut bytes));
    start(&mut reactor, 2, send(&ours, b"more"));
    drop(theirs);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(ended(&mut reactor));
    }
    seen.sort_unstable();
    // It had bytes that were not read, so the first to look is told of the reset.
    assert_eq!(seen[0].0, 1);
    assert_eq!(seen[1], (2, -EPIPE));
}

#[test]
fn a_number_in_other_hands_is_waited_for_anew() {
    let mut reactor = reactor();
    let mut bytes = [0; 8];
    for _ in 0..10 {
        let (ours, mut theirs) = pair();
        let number = at(810, &OwnedFd::from(ours));
        start(&mut reactor, 1, receive(&number, &mut bytes));
        assert_eq!(look(&mut reactor), []);
        theirs.write_all(b"x").expect("there is room");
        assert_eq!(ended(&mut reactor), [(1, 1)]);
    }
}

/// Where a socket was not tried because of one in vain, it is not for a thread to wait for a file.
#[test]
fn a_file_at_the_number_of_a_socket_is_no_socket() {
    let mut reactor = reactor();
    let mut bytes = [0; 8];
    let (ours, _theirs) = pair();
    let number = at(830, &OwnedFd::from(ours));
    start(&mut reactor, 1, receive(&number, &mut bytes));
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
    drop(number);
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").expect("it is there"));
    let number = at(830, &file);
    start(&mut reactor, 1, receive(&number, &mut bytes));
    assert_eq!(reactor.readiness(), Readiness::Ready);
    assert_eq!(look(&mut reactor), [(1, -ENOTSOCK)]);
}

#[test]
fn after_an_attempt_in_vain_seven_are_armed_without_one() {
    let mut reactor = without_memory();
    let (ours, mut theirs) = pair();
    let mut byte = [0; 1];
    start(&mut reactor, 1, receive(&ours, &mut byte));
    theirs.write_all(&[0; 9]).expect("there is room");
    assert_eq!(ended(&mut reactor), [(1, 1)]);
    for _ in 0..7 {
        start(&mut reactor, 1, receive(&ours, &mut byte));
        assert_eq!(reactor.readiness(), Readiness::Unknown, "it waits for the event");
        assert_eq!(look(&mut reactor), [(1, 1)]);
    }
    start(&mut reactor, 1, receive(&ours, &mut byte));
    assert_eq!(reactor.readiness(), Readiness::Ready, "it was tried");
    assert_eq!(look(&mut reactor), [(1, 1)]);
}

#[test]
fn two_numbers_of_one_socket_are_served_both() {
    let mut reactor = reactor();
    let (ours, mut theirs) = pair();
    let duplicate = ours.try_clone().expect("there is a number left");
    let mut bytes = [0; 2];
    let (first, second) = bytes.split_at_mut(1);
    start(&mut reactor, 1, receive(&ours, first));
    start(&mut reactor, 2, receive(&duplicate, second));
    theirs.write_all(b"ab").expect("there is room");
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(ended(&mut reactor));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, 1), (2, 1)]);
}
