//! The futures of operations on descriptors, over a reactor whose every step the test takes.
#![cfg(all(feature = "io", feature = "testing"))]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use evenkeel::io::{Buffer, BufferMut, BufferPool, IoReactor, Memory, Operation};
use evenkeel::testing::VirtualClock;
use evenkeel::{
    Completion, Completions, Handle, Polled, Reactor, Readiness, Refused, Remote, Rest, StopError,
    Submitted, ThreadConfig, Token, Wait, Worker, WorkerConfig, WorkerThread,
};

const CANCELED: i32 = 125;

/// What happens to an operation that is cancelled.
#[derive(Clone, Copy, PartialEq)]
enum Cancels {
    /// It ends with `-ECANCELED`, at the next poll.
    End,
    /// Nothing: the kernel holds on to it.
    Linger,
}

#[derive(Default)]
struct State {
    in_flight: Vec<(Token, Operation)>,
    ended: Vec<Completion>,
    cancelled: Vec<Token>,
    refuses: Cell<Option<i32>>,
}

/// A reactor that does nothing by itself.
#[derive(Clone)]
struct Manual {
    state: Rc<RefCell<State>>,
    cancels: Cancels,
    clock: VirtualClock,
}

impl Reactor for Manual {
    type Operation = Operation;
    type Error = io::Error;

    fn name(&self) -> &'static str {
        "manual"
    }

    fn readiness(&mut self) -> Readiness {
        if self.state.borrow().ended.is_empty() { Readiness::Quiet } else { Readiness::Ready }
    }

    fn submit(
        &mut self,
        token: Token,
        operation: Operation,
    ) -> Result<Submitted, Refused<Operation, io::Error>> {
        let mut state = self.state.borrow_mut();
        if let Some(errno) = state.refuses.take() {
            return Err(Refused { operation, error: io::Error::from_raw_os_error(errno) });
        }
        state.in_flight.push((token, operation));
        Ok(Submitted::Armed)
    }

    fn cancel(&mut self, token: Token) {
        let mut state = self.state.borrow_mut();
        state.cancelled.push(token);
        if self.cancels == Cancels::End {
            let place = state.in_flight.iter().position(|(other, _)| *other == token);
            if let Some(place) = place {
                drop(state.in_flight.remove(place));
                state.ended.push(Completion { token, result: -CANCELED });
            }
        }
    }

    fn poll(&mut self, wait: Wait, found: &mut Completions) -> io::Result<Polled> {
        let mut state = self.state.borrow_mut();
        if let (Wait::Until(deadline), true) = (wait, state.ended.is_empty()) {
            self.clock.advance(deadline - evenkeel::Clock::now(&self.clock));
        }
        while found.room() > 0 && !state.ended.is_empty() {
            found.push(state.ended.remove(0));
        }
        Ok(Polled::default())
    }

    fn notifier(&self) -> Waker {
        Waker::noop().clone()
    }
}

// SAFETY: the tests give results that fit what they have done with the memory.
unsafe impl IoReactor for Manual {}

struct Bench {
    worker: Worker<Manual, VirtualClock>,
    reactor: Manual,
    clock: VirtualClock,
}

impl Bench {
    fn new(cancels: Cancels) -> Self {
        let clock = VirtualClock::new();
        let reactor = Manual { state: Rc::default(), cancels, clock: clock.clone() };
        let config = WorkerConfig::default().operations(4);
        Self { worker: Worker::new(reactor.clone(), clock.clone(), config), reactor, clock }
    }

    fn handle(&self) -> Handle<Manual> {
        self.worker.handle()
    }

    /// The one operation in flight.
    fn take(&self) -> (Token, Operation) {
        let mut state = self.reactor.state.borrow_mut();
        assert_eq!(state.in_flight.len(), 1);
        state.in_flight.remove(0)
    }

    fn complete(&mut self, token: Token, result: i32) {
        self.reactor.state.borrow_mut().ended.push(Completion { token, result });
        while self.worker.tick().unwrap().rest != Rest::Idle {}
    }

    fn settle(&mut self) {
        while self.worker.tick().unwrap().rest != Rest::Idle {}
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn fill(memory: &mut Memory, bytes: &[u8]) {
    // SAFETY: in flight, and given to be written to.
    let room = unsafe { memory.room() };
    for (place, byte) in room.iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

/// A descriptor, and its peer, which sees whether it is open. Its number would not do: another test's
/// thread may have it by then.
fn watched() -> (OwnedFd, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    (near.into(), far)
}

fn is_open(mut peer: &UnixStream) -> bool {
    peer.read(&mut [0; 1]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// A buffer that counts its drops.
struct Counted(Vec<u8>, Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

// SAFETY: as for the vector.
unsafe impl Buffer for Counted {
    fn start(&self) -> *const u8 {
        self.0.start()
    }

    fn filled(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: as for the vector.
unsafe impl BufferMut for Counted {
    fn start_mut(&mut self) -> *mut u8 {
        self.0.start_mut()
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    unsafe fn set_filled(&mut self, count: usize) {
        // SAFETY: the caller's.
        unsafe { self.0.set_filled(count) };
    }
}

/// What has to leak is known to the leak sanitizer by this.
fn keep(remote: Remote<Manual>) {
    static KEPT: Mutex<Vec<Remote<Manual>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap().push(remote);
}

#[test]
fn nothing_is_asked_for_before_the_first_poll() {
    let bench = Bench::new(Cancels::End);
    let handle = bench.handle();
    let file = null();
    drop(handle.read(&file, vec![0; 4]));
    assert!(bench.reactor.state.borrow().in_flight.is_empty());
    assert!(bench.reactor.state.borrow().cancelled.is_empty());
}

#[test]
fn a_read_fills_the_buffer_and_brings_it_back() {
    let mut bench = Bench::new(Cancels::End);
    let (handle, file) = (bench.handle(), null());
    let mut read = pin!(handle.read(&file, Vec::with_capacity(8)));
    assert!(poll(read.as_mut()).is_pending());
    let (token, operation) = bench.take();
    let Operation::Read { fd, mut into, at } = operation else { panic!("it is {operation:?}") };
    assert_eq!((fd, into.len(), at.as_i64()), (file.as_raw_fd(), 8, -1));
    fill(&mut into, b"abc");
    bench.complete(token, 3);
    let Poll::Ready((result, buffer)) = poll(read.as_mut()) else { panic!("it has ended") };
    assert_eq!((result.unwrap(), &buffer[..]), (3, &b"abc"[..]));
}

#[test]
fn an_array_is_read_into_where_it_lies_in_the_slot() {
    let mut bench = Bench::new(Cancels::End);
    let (handle, file) = (bench.handle(), null());
    let mut read = pin!(handle.read_at(&file, [0_u8; 64].slice(1..5), 9));
    assert!(poll(read.as_mut()).is_pending());
    let (token, operation) = bench.take();
    let Operation::Read { mut into, at, .. } = operation else { panic!("it is {operation:?}") };
    assert_eq!((into.len(), at.bytes()), (4, Some(9)));
    fill(&mut into, b"wxyz");
    bench.complete(token, 4);
    let Poll::Ready((Ok(4), part)) = poll(read.as_mut()) else { panic!("it has ended") };
    assert_eq!(part.into_inner()[..6], *b"\0wxyz\0");
}

#[test]
fn several_buffers_are_filled_one_after_the_other() {
    let mut bench = Bench::new(Cancels::End);
    let (handle, file) = (bench.handle(), null());
    let buffers = [Vec::with_capacity(2), Vec::with_capacity(2), Vec::with_capacity(2)];
    let mut read = pin!(handle.read_vectored(&file, buffers));
    assert!(poll(read.as_mut()).is_pending());
    let (token, operation) = bench.take();
    let Operation::ReadVectored { mut into, .. } = operation else { panic!("{operation:?}") };
    fill(&mut into.pieces_mut()[0], b"ab");
    fill(&mut into.pieces_mut()[1], b"c");
    bench.complete(token, 3);
    let Poll::Ready((Ok(3), buffers)) = poll(read.as_mut()) else { panic!("it has ended") };
    assert_eq!(buffers, [b"ab".to_vec(), b"c".to_vec(), vec![]]);
}

#[test]
fn what_is_refused_comes_back_with_the_reason() {
    let bench = Bench::new(Cancels::End);
    let (handle, file) = (bench.handle(), null());
    bench.reactor.state.borrow().refuses.set(Some(12));
    let Poll::Ready((result, buffer)) = poll(pin!(handle.write(&file, vec![1, 2]))) else {
        panic!("it was refused")
    };
    assert_eq!((result.unwrap_err().raw_os_error(), buffer), (Some(12), vec![1, 2]));

    // The kernel has no such offset.
    let Poll::Ready((result, buffer)) = poll(pin!(handle.write_at(&file, vec![3], 1 << 63))) else {
        panic!("it can't be asked for")
    };
    assert_eq!((result.unwrap_err().raw_os_error(), buffer), (Some(22), vec![3]));
    assert!(bench.reactor.state.borrow().in_flight.is_empty());

    // None of them has kept its slot: there is room for four.
    let mut reads: Vec<_> = (0..5).map(|_| Box::pin(handle.read(&file, vec![7]))).collect();
    let last = reads.pop().unwrap();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut()).is_pending()));
    let mut last = last;
    let Poll::Ready((result, buffer)) = poll(last.as_mut()) else { panic!("there is no room") };
    assert_eq!((result.unwrap_err().kind(), buffer), (io::ErrorKind::QuotaExceeded, vec![7]));
}

#[test]
fn a_dropped_operation_is_cancelled_and_keeps_its_buffer_to_its_end() {
    let mut bench = Bench::new(Cancels::Linger);
    let (handle, file, drops) = (bench.handle(), null(), Rc::new(Cell::new(0)));
    let buffer = Counted(vec![0; 4], Rc::clone(&drops));
    let mut read = Box::pin(handle.read(&file, buffer));
    assert!(poll(read.as_mut()).is_pending());
    let (token, operation) = bench.take();
    drop(read);
    bench.settle();
    assert_eq!(bench.reactor.state.borrow().cancelled.len(), 1);
    assert_eq!(drops.get(), 0, "the kernel may still write to it");
    let Operation::Read { mut into, .. } = operation else { panic!("it is {operation:?}") };
    fill(&mut into, b"late");
    bench.complete(token, 4);
    assert_eq!(drops.get(), 1);
    bench.complete(token, 4);
    assert_eq!(drops.get(), 1, "once");
}

#[test]
fn a_result_that_nobody_takes_is_dropped_with_its_future() {
    let mut bench = Bench::new(Cancels::End);
    let (handle, file, drops) = (bench.handle(), null(), Rc::new(Cell::new(0)));
    let mut read = Box::pin(handle.read(&file, Counted(vec![0; 4], Rc::clone(&drops))));
    assert!(poll(read.as_mut()).is_pending());
    let (token, _) = bench.take();
    bench.complete(token, 2);
    assert_eq!(drops.get(), 0);
    drop(read);
    bench.settle();
    assert_eq!(drops.get(), 1);
}

#[test]
fn a_cancel_tells_the_outcome_and_brings_the_buffer_back() {
    let mut bench = Bench::new(Cancels::End);
    let (handle, file) = (bench.handle(), null());
    let mut read = handle.read(&file, vec![1; 4]);
    assert!(poll(Pin::new(&mut read)).is_pending());
    let mut read = read.cancel();
    bench.settle();
    let Poll::Ready((result, buffer)) = poll(Pin::new(&mut read)) else { panic!("cancelled") };
    assert_eq!((result.unwrap_err().raw_os_error(), buffer), (Some(CANCELED), vec![1; 4]));

    // One that ends all the same has its result.
    let mut bench = Bench::new(Cancels::Linger);
    let handle = bench.handle();
    let mut write = handle.write(&file, vec![1; 4]);
    assert!(poll(Pin::new(&mut write)).is_pending());
    let mut write = write.cancel();
    let (token, _) = bench.take();
    bench.complete(token, 3);
    assert!(matches!(poll(Pin::new(&mut write)), Poll::Ready((Ok(3), _))));

    // One that has not begun does not begin.
    let Poll::Ready((result, buffer)) = poll(pin!(handle.read(&file, vec![2]).cancel())) else {
        panic!("there is nothing to wait for")
    };
    assert_eq!((result.unwrap_err().raw_os_error(), buffer), (Some(CANCELED), vec![2]));
}

#[test]
fn an_operation_that_takes_too_long_brings_its_buffer_back() {
    let mut bench = Bench::new(Cancels::End);
    let handle = bench.handle();
    let task = bench.worker.handle().spawn(async move {
        let file = null();
        handle.read(&file, vec![5; 2]).within(Duration::from_millis(3)).await
    });
    bench.settle();
    assert!(!task.is_finished());
    bench.clock.advance(Duration::from_millis(3));
    bench.settle();
    let Poll::Ready(Ok((result, buffer))) = poll(pin!(task)) else { panic!("it is over") };
    assert_eq!((result.unwrap_err().kind(), buffer), (io::ErrorKind::TimedOut, vec![5; 2]));
}

#[test]
fn a_connection_that_nobody_waits_for_is_closed() {
    let mut bench = Bench::new(Cancels::Linger);
    let (handle, listener) = (bench.handle(), null());
    let mut accept = Box::pin(handle.accept(&listener));
    assert!(poll(accept.as_mut()).is_pending());
    let (token, _) = bench.take();
    drop(accept);
    let (connection, peer) = watched();
    bench.complete(token, connection.into_raw_fd());
    assert!(!is_open(&peer));
}

#[test]
fn a_descriptor_is_closed_once_by_whoever_comes_to_it() {
    let mut bench = Bench::new(Cancels::End);
    let handle = bench.handle();
    // By the kernel: nobody else closes the number, which may be another's by then.
    let (fd, peer) = watched();
    let number = fd.as_raw_fd();
    let mut close = pin!(handle.close(fd));
    assert!(poll(close.as_mut()).is_pending());
    let (token, _) = bench.take();
    bench.complete(token, 0);
    assert!(matches!(poll(close.as_mut()), Poll::Ready(Ok(()))));
    assert!(is_open(&peer), "the test's reactor has not really closed it");
    // SAFETY: it is open and nobody's.
    drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });

    // By the future: dropped before it began, refused, or cancelled.
    for stage in 0..3 {
        let (fd, peer) = watched();
        let mut close = Box::pin(handle.close(fd));
        match stage {
            0 => {}
            1 => {
                bench.reactor.state.borrow().refuses.set(Some(11));
                assert!(matches!(poll(close.as_mut()), Poll::Ready(Err(_))));
            }
            _ => assert!(poll(close.as_mut()).is_pending()),
        }
        drop(close);
        bench.settle();
        assert!(!is_open(&peer), "stage {stage}");
    }
}

#[test]
fn what_holds_the_descriptor_is_dropped_after_the_cancel() {
    struct Watches<'a>(OwnedFd, &'a Manual);
    impl AsFd for Watches<'_> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    impl Drop for Watches<'_> {
        fn drop(&mut self) {
            assert_eq!(self.1.state.borrow().cancelled.len(), 1);
        }
    }
    let mut bench = Bench::new(Cancels::End);
    let (handle, reactor) = (bench.handle(), bench.reactor.clone());
    {
        let watches = Watches(null(), &reactor);
        let task = async {
            let mut read = pin!(handle.read(watches, vec![0; 4]));
            assert!(poll(read.as_mut()).is_pending());
        };
        let mut task = pin!(task);
        // The cancel is the worker's own, made at once: so it is in a task.
        bench.settle();
        let _ = poll(task.as_mut());
        bench.settle();
    }
}

#[test]
fn a_pools_buffer_goes_to_the_taker_and_back() {
    let mut bench = Bench::new(Cancels::Linger);
    let (handle, socket, pool) = (bench.handle(), null(), BufferPool::new(2, 16));
    let mut pieces = handle.receive_many(&socket, &pool).unwrap();
    let (flow, operation) = bench.take();
    assert!(matches!(operation, Operation::ReceiveMany { .. }));
    for dropped in [false, true] {
        let mut next = Box::pin(pieces.next_piece());
        assert!(poll(next.as_mut()).is_pending());
        let (token, operation) = bench.take();
        let Operation::Next { flow: of, mut buffer } = operation else { panic!("{operation:?}") };
        assert_eq!(of, flow);
        let (number, mut memory) = pool.take().unwrap();
        fill(&mut memory, b"piece");
        buffer.put(Some(number));
        let next = if dropped {
            drop(next);
            None
        } else {
            Some(next)
        };
        bench.complete(token, 5);
        if let Some(mut next) = next {
            let Poll::Ready(Ok(Some(piece))) = poll(next.as_mut()) else { panic!("it is there") };
            assert_eq!((&piece[..], pool.vacant()), (&b"piece"[..], 1));
            drop(piece);
            assert_eq!(pool.vacant(), 2);
        }
    }
    // What came for nobody is there for the next, who asks for nothing.
    {
        let Poll::Ready(Ok(Some(piece))) = poll(pin!(pieces.next_piece())) else { panic!("lost") };
        assert_eq!((&piece[..], pool.vacant()), (&b"piece"[..], 1));
        assert!(bench.reactor.state.borrow().in_flight.is_empty());
    }
    assert_eq!(pool.vacant(), 2);
    // While one that was dropped has not ended nobody else asks: what comes keeps its order.
    let mut dropped = Box::pin(pieces.next_piece());
    assert!(poll(dropped.as_mut()).is_pending());
    drop(dropped);
    let (token, _) = bench.take();
    let mut after = Box::pin(pieces.next_piece());
    assert!(poll(after.as_mut()).is_pending());
    assert!(bench.reactor.state.borrow().in_flight.is_empty());
    bench.complete(token, -CANCELED);
    assert!(poll(after.as_mut()).is_pending());
    let (token, _) = bench.take();
    bench.complete(token, -CANCELED);
    drop(after);
    bench.settle();
    let mut next = Box::pin(pieces.next_piece());
    assert!(poll(next.as_mut()).is_pending());
    let (token, _) = bench.take();
    bench.complete(token, 0);
    assert!(matches!(poll(next.as_mut()), Poll::Ready(Ok(None))), "the end");
    drop(next);
    drop(pieces);
    bench.settle();
    assert_eq!(bench.reactor.state.borrow().cancelled.last(), Some(&flow));
    bench.complete(flow, -CANCELED);
}

#[test]
fn a_worker_that_ends_takes_its_operations_back() {
    let bench = Bench::new(Cancels::End);
    let drops = Rc::new(Cell::new(0));
    let (handle, file) = (bench.handle(), null());
    let buffer = Counted(vec![0; 4], Rc::clone(&drops));
    let task = {
        let handle = bench.handle();
        bench.handle().spawn(async move { handle.read(null(), buffer).await })
    };
    // One whose future is not in a task of the worker's.
    let mut outside = Box::pin(handle.read(&file, Counted(vec![0; 4], Rc::clone(&drops))));
    assert!(poll(outside.as_mut()).is_pending());
    let Bench { mut worker, reactor, .. } = bench;
    while worker.tick().unwrap().rest != Rest::Idle {}
    assert_eq!(reactor.state.borrow().in_flight.len(), 2);
    let remote = worker.remote();
    drop(worker);
    assert!(task.is_finished());
    assert_eq!((drops.get(), remote.leaked()), (1, 0));
    let Poll::Ready((result, buffer)) = poll(outside.as_mut()) else { panic!("it was drained") };
    assert_eq!(result.unwrap_err().raw_os_error(), Some(CANCELED));
    drop(buffer);

    // Nothing more is begun.
    let Poll::Ready((result, _)) = poll(pin!(handle.read(&file, vec![0]))) else { panic!("ended") };
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[test]
fn what_the_kernel_keeps_is_never_freed() {
    let bench = Bench::new(Cancels::Linger);
    let drops = Rc::new(Cell::new(0));
    let handle = bench.handle();
    let buffer = Counted(vec![0; 4], Rc::clone(&drops));
    drop(bench.handle().spawn(async move { handle.read(null(), buffer).await.0.is_ok() }));
    let Bench { mut worker, reactor, clock } = bench;
    while worker.tick().unwrap().rest != Rest::Idle {}
    let (remote, before) = (worker.remote(), evenkeel::Clock::now(&clock));
    drop(worker);
    assert_eq!((drops.get(), remote.leaked()), (0, 1));
    assert_eq!(evenkeel::Clock::now(&clock) - before, Duration::from_secs(1), "the bound");
    let mut state = reactor.state.borrow_mut();
    let Operation::Read { mut into, .. } = state.in_flight.remove(0).1 else { unreachable!() };
    fill(&mut into, b"late");
    drop(state);
    keep(remote);
}

#[test]
fn a_worker_thread_says_what_was_left_to_the_kernel() {
    let config = WorkerConfig::default().drain(Duration::from_millis(1));
    let config = ThreadConfig { worker: config, ..ThreadConfig::default() };
    let make = || {
        let reactor =
            Manual { state: Rc::default(), cancels: Cancels::Linger, clock: VirtualClock::new() };
        Ok::<_, io::Error>(reactor)
    };
    let thread = WorkerThread::start(config, make).unwrap();
    let started = thread.remote().spawn_with(|handle| async move {
        let inner = handle.clone();
        drop(handle.spawn(async move { inner.recv(null(), [0_u8; 8]).await.0.is_ok() }));
        evenkeel::yield_now().await;
    });
    started.wait_within(Duration::from_secs(10)).unwrap().unwrap();
    keep(thread.remote().clone());
    let error = thread.stop_within(Duration::from_secs(10)).unwrap_err();
    assert!(matches!(error, StopError::Leaked(1)), "{error}");
    assert!(error.to_string().contains("never freed"), "{error}");
}
