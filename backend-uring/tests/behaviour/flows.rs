//! Flows: one request, many items.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;

use evenkeel::io::{BufferPool, Operation, Place};
use evenkeel::{Reactor, Token, Wait};
use evenkeel_uring::UringReactor;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::support::{
    CANCELED, TINY, collect, drain, event, in_each_mode, in_each_mode_tiny, poll, readable, token,
};

const FLOW: Token = Token::new(0, 9);

fn next(index: u32, place: &mut Option<u16>) -> (Token, Operation) {
    // SAFETY: each test waits for the end of its operations before it looks at the place again.
    let buffer = unsafe { Place::new(NonNull::from(place)) };
    (token(index), Operation::Next { flow: FLOW, buffer })
}

fn take(reactor: &mut UringReactor, index: u32, place: &mut Option<u16>) -> i32 {
    let (token, operation) = next(index, place);
    reactor.submit(token, operation).unwrap();
    let found = collect(reactor, 1);
    assert_eq!((found.len(), found[0].token), (1, token));
    found[0].result
}

fn close(number: i32) {
    assert!(number >= 0, "{number}");
    // SAFETY: a flow has brought it, to nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

fn listener() -> (TcpListener, impl Fn() -> TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, move || TcpStream::connect(address).unwrap())
}

/// Whether somebody waits to be accepted.
fn has_waiting(listener: &TcpListener) -> bool {
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn connections_are_accepted_ahead_of_who_takes_them() {
    in_each_mode(|mut reactor| {
        let (listener, connect) = listener();
        let flow = Operation::AcceptMany { fd: listener.as_raw_fd() };
        reactor.submit(FLOW, flow).unwrap();
        let _first = connect();
        close(take(&mut reactor, 1, &mut None));
        // Nobody has asked for these, and they are taken from the listener all the same.
        let _others: Vec<_> = (0..10).map(|_| connect()).collect();
        while has_waiting(&listener) {
            poll(&mut reactor, Wait::Never);
        }
        for index in 2..12 {
            close(take(&mut reactor, index, &mut None));
        }
        reactor.cancel(FLOW);
        let ended = collect(&mut reactor, 1)[0];
        assert_eq!((ended.token, ended.result), (FLOW, CANCELED));
    });
}

#[test]
fn a_flood_is_held_back_and_nobody_is_lost() {
    in_each_mode_tiny(|mut reactor| {
        let (listener, connect) = listener();
        let flow = Operation::AcceptMany { fd: listener.as_raw_fd() };
        reactor.submit(FLOW, flow).unwrap();
        let mut peers: Vec<_> = (0..3).map(|_| connect()).collect();
        close(take(&mut reactor, 1, &mut None));
        for _ in 0..20 {
            peers.extend((0..5).map(|_| connect()));
            drain(&mut reactor);
        }
        assert!(has_waiting(&listener), "the listener's queue is for the rest");
        for index in 2..=peers.len() {
            close(take(&mut reactor, u32::try_from(index).unwrap(), &mut None));
        }
        reactor.cancel(FLOW);
        collect(&mut reactor, 1);
    });
}

#[test]
fn what_nobody_takes_is_closed_with_the_flow() {
    in_each_mode(|mut reactor| {
        let (listener, connect) = listener();
        let flow = Operation::AcceptMany { fd: listener.as_raw_fd() };
        reactor.submit(FLOW, flow).unwrap();
        let _first = connect();
        close(take(&mut reactor, 1, &mut None));
        let mut untaken = connect();
        while has_waiting(&listener) {
            poll(&mut reactor, Wait::Never);
        }
        drain(&mut reactor);
        let mut place = None;
        let (waits, operation) = next(2, &mut place);
        // It has the connection that waits, and this one waits for the next.
        reactor.submit(waits, operation).unwrap();
        close(collect(&mut reactor, 1)[0].result);
        let _ = untaken.read(&mut [0; 1]);
        let (waits, operation) = next(3, &mut place);
        reactor.submit(waits, operation).unwrap();
        drain(&mut reactor);
        let mut last = connect();
        reactor.cancel(FLOW);
        let ended = collect(&mut reactor, 2);
        // Whether the last connection came to its taker, or was nobody's, is a matter of luck.
        for completion in ended {
            if completion.token == waits && completion.result >= 0 {
                close(completion.result);
            } else {
                assert_eq!(completion.result, CANCELED);
            }
        }
        drop(listener);
        assert!(matches!(last.read(&mut [0; 1]), Ok(0) | Err(_)), "it is closed");
    });
}

#[test]
fn pieces_come_in_buffers_that_the_kernel_takes() {
    in_each_mode(|mut reactor| {
        let (near, far) = UnixStream::pair().unwrap();
        let pool = BufferPool::new(4, 8);
        let flow = Operation::ReceiveMany { fd: far.as_raw_fd(), pool: pool.clone() };
        reactor.submit(FLOW, flow).unwrap();
        assert_eq!(pool.vacant(), 4, "nothing is taken before somebody asks");
        for round in 0..50_u8 {
            { &near }.write_all(&[round; 5]).unwrap();
            let mut place = None;
            assert_eq!(take(&mut reactor, 1, &mut place), 5);
            // SAFETY: it came with the completion.
            unsafe { pool.give_back(place.expect("it is in a buffer")) };
        }
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut place = None;
        assert_eq!((take(&mut reactor, 1, &mut place), place), (0, None));
        assert_eq!(take(&mut reactor, 1, &mut place), 0, "the end stays");
        reactor.cancel(FLOW);
        assert_eq!(collect(&mut reactor, 1)[0].result, CANCELED);
        assert_eq!(pool.vacant(), 4, "all are back");
    });
}

#[test]
fn one_who_waits_can_be_cancelled_and_the_piece_is_for_the_next() {
    in_each_mode(|mut reactor| {
        let (near, far) = UnixStream::pair().unwrap();
        let pool = BufferPool::new(2, 8);
        let flow = Operation::ReceiveMany { fd: far.as_raw_fd(), pool: pool.clone() };
        reactor.submit(FLOW, flow).unwrap();
        let mut place = None;
        let (waits, operation) = next(1, &mut place);
        reactor.submit(waits, operation).unwrap();
        assert_eq!(drain(&mut reactor), []);
        reactor.cancel(waits);
        let ended = collect(&mut reactor, 1)[0];
        assert_eq!((ended.token, ended.result), (waits, CANCELED));
        { &near }.write_all(b"kept").unwrap();
        drain(&mut reactor);
        let mut place = None;
        assert_eq!(take(&mut reactor, 2, &mut place), 4);
        // SAFETY: it came with the completion.
        unsafe { pool.give_back(place.expect("it is in a buffer")) };
        // A reactor that ends gives back what the kernel had.
        drop(reactor);
        assert_eq!(pool.vacant(), 2);
    });
}

#[test]
fn the_end_of_a_flow_finds_its_place_in_a_full_queue() {
    in_each_mode_tiny(|mut reactor| {
        let (listener, _) = listener();
        let flow = Operation::AcceptMany { fd: listener.as_raw_fd() };
        reactor.submit(FLOW, flow).unwrap();
        let event = event();
        for index in 1..=TINY {
            reactor.submit(token(index), readable(&event)).unwrap();
        }
        reactor.cancel(FLOW);
        let ended = collect(&mut reactor, 1)[0];
        assert_eq!((ended.token, ended.result), (FLOW, CANCELED));
    });
}

#[test]
fn without_a_flow_there_is_no_next() {
    in_each_mode(|mut reactor| {
        let mut place = None;
        let (token, operation) = next(1, &mut place);
        let refused = reactor.submit(token, operation).expect_err("there is no flow");
        assert_eq!(refused.error.raw_os_error(), Some(9));
    });
}
