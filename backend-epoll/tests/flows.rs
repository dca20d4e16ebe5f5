//! Flows: one operation, many results.

#[allow(dead_code)] // each file uses a part
mod common;
#[allow(dead_code)]
#[path = "common/lent.rs"]
mod lent;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::*;
use evenkeel::io::{BufferPool, Operation};
use evenkeel::{Reactor, Readiness, Token};
use evenkeel_epoll::EpollReactor;
use lent::*;

const ENOTSOCK: i32 = 88;
const ENOBUFS: i32 = 105;

fn listener() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.set_nonblocking(true).expect("it is a socket");
    listener
}

fn client(listener: &TcpListener) -> TcpStream {
    TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens")
}

fn next(flow: Token, buffer: &mut Option<u16>) -> Operation {
    Operation::Next { flow, buffer: place(buffer) }
}

fn next_accepted(reactor: &mut EpollReactor, flow: u32) -> OwnedFd {
    let mut unused = None;
    let number = run(reactor, next(token(flow), &mut unused));
    assert!(number >= 0, "error {number}");
    // SAFETY: an operation has brought it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn pieces(reactor: &mut EpollReactor, flow: u32, fd: &impl AsRawFd, pool: &BufferPool) {
    let operation = Operation::ReceiveMany { fd: fd.as_raw_fd(), pool: pool.clone() };
    start(reactor, flow, operation);
}

#[test]
fn connections_are_taken_as_they_come() {
    let mut reactor = reactor();
    for blocking in [false, true] {
        let listener = listener();
        listener.set_nonblocking(!blocking).expect("it is a socket");
        start(&mut reactor, 1, Operation::AcceptMany { fd: listener.as_raw_fd() });
        assert_eq!(reactor.readiness(), Readiness::Quiet, "nobody asks");
        let _two = [client(&listener), client(&listener)];
        drop(next_accepted(&mut reactor, 1));
        drop(next_accepted(&mut reactor, 1));
        let mut unused = None;
        start(&mut reactor, 2, next(token(1), &mut unused));
        assert_eq!(look(&mut reactor), []);
        let _third = client(&listener);
        let found = ended(&mut reactor);
        assert_eq!((found.len(), found[0].0), (1, 2));
        // SAFETY: an operation has brought it.
        drop(unsafe { OwnedFd::from_raw_fd(found[0].1) });
        reactor.cancel(token(1));
        assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
        assert_eq!(run(&mut reactor, next(token(1), &mut unused)), -EBADF, "it is not open");
    }
}

#[test]
fn those_who_wait_for_items_get_them_in_their_order() {
    let mut reactor = reactor();
    let pool = BufferPool::new(4, 1);
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    pieces(&mut reactor, 1, &ours, &pool);
    let mut buffers = [None; 3];
    for (index, buffer) in (2..).zip(&mut buffers) {
        start(&mut reactor, index, next(token(1), buffer));
    }
    assert_eq!(look(&mut reactor), []);
    assert_eq!(pool.vacant(), 4, "who waits holds no buffer");
    reactor.cancel(token(3));
    theirs.write_all(b"ab").expect("there is room");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(ended(&mut reactor));
    }
    assert_eq!(seen, [(3, -ECANCELED), (2, 1), (4, 1)]);
    assert_eq!(buffers.map(|buffer| buffer.is_some()), [true, false, true]);
    assert_eq!(pool.vacant(), 2);
}

#[test]
fn a_piece_comes_in_a_buffer_of_the_pool() {
    let mut reactor = reactor();
    let pool = BufferPool::new(2, 4);
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    pieces(&mut reactor, 1, &ours, &pool);
    theirs.write_all(b"0123456789").expect("there is room");
    let (mut first, mut second, mut third) = (None, None, None);
    assert_eq!(run(&mut reactor, next(token(1), &mut first)), 4);
    assert_eq!(run(&mut reactor, next(token(1), &mut second)), 4);
    assert_ne!(first, second);
    assert_eq!(run(&mut reactor, next(token(1), &mut third)), -ENOBUFS);
    assert_eq!(third, None);
    // SAFETY: it was taken, and this test is done with it.
    unsafe { pool.give_back(first.expect("it was filled")) };
    assert_eq!(run(&mut reactor, next(token(1), &mut third)), 2, "after an error it goes on");
    drop(theirs);
    // SAFETY: as above.
    unsafe { pool.give_back(second.expect("it was filled")) };
    let mut none = None;
    assert_eq!(run(&mut reactor, next(token(1), &mut none)), 0, "the end");
    assert_eq!((none, pool.vacant()), (None, 1));
}

#[test]
fn without_a_vacant_buffer_it_waits_for_a_piece_all_the_same() {
    let mut reactor = reactor();
    let pool = BufferPool::new(1, 4);
    let _taken = pool.take();
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    pieces(&mut reactor, 1, &ours, &pool);
    let mut buffer = None;
    start(&mut reactor, 2, next(token(1), &mut buffer));
    assert_eq!(look(&mut reactor), []);
    theirs.write_all(b"x").expect("there is room");
    assert_eq!(ended(&mut reactor), [(2, -ENOBUFS)]);
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
    let mut byte = [0; 1];
    assert_eq!(run(&mut reactor, receive(&ours, &mut byte)), 1, "it was left there");
}

#[test]
fn when_a_flow_is_cancelled_who_waits_for_it_ends_first() {
    let mut reactor = reactor();
    let listener = listener();
    start(&mut reactor, 1, Operation::AcceptMany { fd: listener.as_raw_fd() });
    let mut unused = [None; 40];
    for (index, unused) in (2..).zip(&mut unused) {
        start(&mut reactor, index, next(token(1), unused));
    }
    reactor.cancel(token(1));
    let _later = client(&listener);
    let mut seen = Vec::new();
    while reactor.readiness() == Readiness::Ready {
        seen.extend(look(&mut reactor));
    }
    let mut all: Vec<_> = (2..42).map(|index| (index, -ECANCELED)).collect();
    all.push((1, -ECANCELED));
    assert_eq!(seen, all);
    assert_eq!(reactor.readiness(), Readiness::Quiet);
    listener.accept().expect("the connection was left there");
}

/// A cancel that comes late for one of an earlier flow does not reach the next flow at its place.
#[test]
fn a_late_cancel_reaches_nobody() {
    let mut reactor = reactor();
    let listener = listener();
    let open = Operation::AcceptMany { fd: listener.as_raw_fd() };
    start(&mut reactor, 1, open);
    let mut unused = [None; 2];
    let [first, second] = &mut unused;
    start(&mut reactor, 2, next(token(1), first));
    reactor.cancel(token(1));
    reactor.cancel(token(2));
    assert_eq!(look(&mut reactor), [(2, -ECANCELED), (1, -ECANCELED)]);

    start(&mut reactor, 1, Operation::AcceptMany { fd: listener.as_raw_fd() });
    start(&mut reactor, 2, next(token(1), first));
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [(2, -ECANCELED), (1, -ECANCELED)]);
    let again = Token::new(1, 2);
    let operation = Operation::AcceptMany { fd: listener.as_raw_fd() };
    reactor.submit(again, operation).expect("there is room");
    start(&mut reactor, 3, next(again, second));
    reactor.cancel(token(2));
    assert_eq!(look(&mut reactor), []);
    reactor.cancel(token(3));
    assert_eq!(look(&mut reactor), [(3, -ECANCELED)]);
    reactor.cancel(token(1));
    assert_eq!(look(&mut reactor), [], "that is not its token");
    reactor.cancel(again);
    assert_eq!(look(&mut reactor), [(1, -ECANCELED)]);
}

#[test]
fn a_cancelled_taker_of_an_ended_flow_has_ended() {
    let mut reactor = reactor();
    let listener = listener();
    start(&mut reactor, 1, Operation::AcceptMany { fd: listener.as_raw_fd() });
    let mut unused = None;
    start(&mut reactor, 2, next(token(1), &mut unused));
    let later = Token::new(5, 1);
    reactor.cancel(token(1));
    let operation = Operation::AcceptMany { fd: listener.as_raw_fd() };
    reactor.submit(later, operation).expect("there is room");
    reactor.cancel(token(2));
    assert_eq!(look(&mut reactor), [(2, -ECANCELED), (1, -ECANCELED)]);
    reactor.cancel(later);
    assert_eq!(look(&mut reactor), [(5, -ECANCELED)]);
}

#[test]
fn a_flow_of_the_wrong_kind_says_so_at_each_item() {
    let mut reactor = reactor();
    let event = event(1);
    let pool = BufferPool::new(1, 4);
    start(&mut reactor, 1, Operation::AcceptMany { fd: event.as_raw_fd() });
    pieces(&mut reactor, 2, &event, &pool);
    start(&mut reactor, 3, Operation::AcceptMany { fd: -1 });
    let mut buffer = None;
    for _ in 0..2 {
        assert_eq!(run(&mut reactor, next(token(1), &mut buffer)), -ENOTSOCK);
        assert_eq!(run(&mut reactor, next(token(2), &mut buffer)), -ENOTSOCK);
        assert_eq!(run(&mut reactor, next(token(3), &mut buffer)), -EBADF);
    }
    assert_eq!((buffer, pool.vacant()), (None, 1));
    for index in 1..4 {
        reactor.cancel(token(index));
    }
    let found = look(&mut reactor);
    assert_eq!(found, [(1, -ECANCELED), (2, -ECANCELED), (3, -ECANCELED)]);
}

#[test]
fn datagrams_are_pieces() {
    let mut reactor = reactor();
    let pool = BufferPool::new(8, 16);
    let ours = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let to = ours.local_addr().expect("it is bound");
    pieces(&mut reactor, 1, &ours, &pool);
    for round in 0..3 {
        let mut buffers = [None; 2];
        let [first, second] = &mut buffers;
        start(&mut reactor, 2, next(token(1), first));
        assert_eq!(look(&mut reactor), [], "round {round}");
        ours.send_to(b"one", to).expect("there is room");
        ours.send_to(b"three", to).expect("there is room");
        assert_eq!(ended(&mut reactor), [(2, 3)]);
        assert_eq!(run(&mut reactor, next(token(1), second)), 5);
        for buffer in buffers {
            // SAFETY: it was taken, and this test is done with it.
            unsafe { pool.give_back(buffer.expect("it was filled")) };
        }
    }
}

#[test]
fn when_the_descriptor_of_a_flow_is_closed_who_waits_for_it_ends() {
    let mut reactor = reactor();
    let listener = listener();
    let number = at(820, &OwnedFd::from(listener));
    start(&mut reactor, 1, Operation::AcceptMany { fd: 820 });
    let mut unused = None;
    start(&mut reactor, 2, next(token(1), &mut unused));
    let fd = std::os::fd::IntoRawFd::into_raw_fd(number);
    start(&mut reactor, 3, Operation::Close { fd });
    reactor.cancel(token(1));
    let mut seen = Vec::new();
    while reactor.readiness() == Readiness::Ready {
        seen.extend(look(&mut reactor));
    }
    assert_eq!(seen, [(1, -EBADF), (3, 0), (2, -ECANCELED)]);
}

#[test]
fn what_was_accepted_and_not_reported_is_closed_with_the_reactor() {
    let listener = listener();
    let (mut one, mut two) = (client(&listener), client(&listener));
    let mut reactor = reactor();
    start(&mut reactor, 1, Operation::Accept { fd: listener.as_raw_fd() });
    start(&mut reactor, 2, Operation::AcceptMany { fd: listener.as_raw_fd() });
    let mut unused = None;
    start(&mut reactor, 3, next(token(2), &mut unused));
    assert_eq!(reactor.readiness(), Readiness::Ready);
    drop(reactor);
    for client in [&mut one, &mut two] {
        client.set_read_timeout(Some(Duration::from_secs(10))).expect("it is a socket");
        assert_eq!(std::io::Read::read(client, &mut [0; 1]).expect("its peer is closed"), 0);
    }
}
