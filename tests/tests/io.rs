//! The operations on descriptors over the machine's own kernel: the same bodies on each reactor, in
//! each of its modes.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use evenkeel::io::{Address, Buffer, BufferPool, Io, IoReactor, Request};
use evenkeel::{Handle, ThreadConfig, WorkerConfig, WorkerThread, yield_now};
use evenkeel_epoll::{EpollReactor, Looks};
use evenkeel_tests::{DEADLINE, Random, wait_for};
use evenkeel_uring::{Mode, UringReactor};
use rustix::event::{EventfdFlags, eventfd};

const EBADF: i32 = 9;
const EINVAL: i32 = 22;
const ESPIPE: i32 = 29;
const EPIPE: i32 = 32;
const ENOTSOCK: i32 = 88;
const ENOTCONN: i32 = 107;
const ECONNREFUSED: i32 = 111;
const ECANCELED: i32 = 125;

/// A reactor, in one of its modes.
trait Kind: 'static {
    type Reactor: IoReactor + 'static;

    fn make() -> io::Result<Self::Reactor>;

    /// Whether the machine may be without it.
    const OPTIONAL: bool;
}

struct Deferred;
struct Cooperative;
struct Plain;

fn uring(mode: Mode) -> io::Result<UringReactor> {
    let reactor = UringReactor::builder().at_most(mode).build().map_err(io::Error::other)?;
    assert!(reactor.mode() >= mode);
    Ok(reactor)
}

impl Kind for Deferred {
    type Reactor = UringReactor;

    fn make() -> io::Result<UringReactor> {
        uring(Mode::Deferred)
    }

    const OPTIONAL: bool = true;
}

impl Kind for Cooperative {
    type Reactor = UringReactor;

    fn make() -> io::Result<UringReactor> {
        uring(Mode::Cooperative)
    }

    const OPTIONAL: bool = true;
}

impl Kind for Plain {
    type Reactor = UringReactor;

    fn make() -> io::Result<UringReactor> {
        uring(Mode::Plain)
    }

    const OPTIONAL: bool = true;
}

struct Epoll;
struct EpollBySystemCall;

impl Kind for Epoll {
    type Reactor = EpollReactor;

    fn make() -> io::Result<EpollReactor> {
        Ok(EpollReactor::new()?)
    }

    const OPTIONAL: bool = false;
}

impl Kind for EpollBySystemCall {
    type Reactor = EpollReactor;

    fn make() -> io::Result<EpollReactor> {
        Ok(EpollReactor::builder().at_most(Looks::BySystemCall).build()?)
    }

    const OPTIONAL: bool = false;
}

fn start<K: Kind>() -> Option<WorkerThread<K::Reactor>> {
    let worker = WorkerConfig::default().operations(1024);
    let config = ThreadConfig { worker, timeout: DEADLINE, ..ThreadConfig::default() };
    match WorkerThread::start(config, K::make) {
        Ok(worker) => Some(worker),
        Err(error) if K::OPTIONAL => {
            eprintln!("skipped, for there is no such reactor here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a body as a task of a worker, within a bound, and has the worker end well.
fn run<K: Kind, F>(body: impl FnOnce(Handle<K::Reactor>) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let Some(worker) = start::<K>() else { return };
    wait_for("the body", worker.remote().spawn_with(body)).unwrap();
    worker.stop_within(DEADLINE).unwrap();
}

/// Each of these bodies becomes a test for each kind.
macro_rules! on_each {
    ($($name:ident)*) => {
        on_each! { @ deferred Deferred $($name)* }
        on_each! { @ cooperative Cooperative $($name)* }
        on_each! { @ plain Plain $($name)* }
        on_each! { @ epoll Epoll $($name)* }
        on_each! { @ epoll_by_system_call EpollBySystemCall $($name)* }
    };
    (@ $module:ident $kind:ident $($name:ident)*) => {
        mod $module {
            $(#[test] fn $name() { super::run::<super::$kind, _>(super::$name); })*
        }
    };
}

on_each! {
    a_file_is_written_and_read_where_it_is_said
    a_file_is_read_from_where_it_stands
    several_buffers_go_in_one_call
    a_file_is_synced
    a_stream_carries_what_is_sent
    a_stream_that_does_not_block_is_waited_for_all_the_same
    a_half_close_is_the_end_of_one_direction
    a_transfer_of_nothing_is_one
    a_full_peer_takes_a_part_and_then_waits
    whole_buffers_are_transferred_whole
    a_datagram_says_where_it_comes_from
    a_connection_is_made_and_taken
    a_connection_of_the_machine_is_made_and_taken
    a_refused_connection_says_so
    a_closed_descriptor_is_an_error_with_the_buffer
    a_wrong_descriptor_is_an_error_with_the_buffer
    an_impossible_offset_is_an_error_with_the_buffer
    a_peer_that_is_gone_is_an_error_and_no_signal
    a_pipe_is_read_and_written
    an_eventfd_is_read_when_it_is_raised
    a_close_frees_the_descriptor
    a_cancelled_receive_loses_nothing
    a_cancelled_accept_loses_nobody
    a_cancelled_connect_ends
    what_takes_too_long_is_given_up
    a_dropped_operation_leaves_its_descriptor_alone
    a_dropped_write_never_reaches_the_next_owner_of_the_number
    a_flow_of_connections_brings_all
    a_flow_of_pieces_brings_all_and_gives_its_buffers_back
    a_flow_without_a_buffer_says_so
    two_directions_of_a_socket_are_independent
    a_thousand_operations_wait_at_once
    an_always_ready_descriptor_starves_nobody
    an_operation_passes_any_backlog
    a_task_aborted_elsewhere_leaves_its_operation
}

/// A file of its own, without a name.
fn file() -> File {
    let path: PathBuf = std::env::temp_dir().join(format!(
        "evenkeel-io-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    fs::remove_file(path).unwrap();
    file
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    let error = result.unwrap_err();
    error.raw_os_error().unwrap_or_else(|| panic!("{error:?}"))
}

/// Polls once, and leaves it at that.
async fn begin<F: Future + Unpin>(future: &mut F) {
    poll_fn(|context| {
        assert!(Pin::new(&mut *future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Begins an operation and gives the kernel time to have it.
async fn begin_for_good<R: IoReactor + 'static, F, Q: Request>(operation: &mut Io<'_, R, F, Q>) {
    begin(operation).await;
    for _ in 0..300 {
        yield_now().await;
    }
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

async fn a_file_is_written_and_read_where_it_is_said<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    let (written, _) = handle.write_at(&file, b"hello, world", 3).await;
    assert_eq!(written.unwrap(), 12);
    let (read, buffer) = handle.read_at(&file, [0; 16], 0).await;
    assert_eq!((read.unwrap(), &buffer[..15]), (15, &b"\0\0\0hello, world"[..]));
    let (read, buffer) = handle.read_at(&file, Vec::with_capacity(5), 10).await;
    assert_eq!((read.unwrap(), &buffer[..]), (5, &b"world"[..]));
    let (read, buffer) = handle.read_at(&file, vec![7; 4], 100).await;
    assert_eq!((read.unwrap(), buffer), (0, vec![7; 4]), "the end");
    assert_eq!((&file).stream_position().unwrap(), 0, "the place is left alone");
}

async fn a_file_is_read_from_where_it_stands<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    let (written, _) = handle.write(&file, b"abcdef").await;
    assert_eq!((written.unwrap(), (&file).stream_position().unwrap()), (6, 6));
    (&file).rewind().unwrap();
    let (read, buffer) = handle.read(&file, [0; 4]).await;
    assert_eq!((read.unwrap(), &buffer), (4, b"abcd"));
    let (read, buffer) = handle.read(&file, [0; 4]).await;
    assert_eq!((read.unwrap(), &buffer[..2]), (2, &b"ef"[..]));
    assert_eq!(handle.read(&file, [0; 4]).await.0.unwrap(), 0);
}

async fn several_buffers_go_in_one_call<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    let parts = [b"one".to_vec(), b"".to_vec(), b"three".to_vec()];
    let (written, parts) = handle.write_vectored_at(&file, parts, 0).await;
    assert_eq!((written.unwrap(), parts[2].as_slice()), (8, &b"three"[..]));
    let buffers = [Vec::with_capacity(2), Vec::with_capacity(4), Vec::with_capacity(9)];
    let (read, buffers) = handle.read_vectored_at(&file, buffers, 0).await;
    assert_eq!((read.unwrap(), buffers), (8, [b"on".to_vec(), b"ethr".to_vec(), b"ee".to_vec()]));

    let (near, far) = UnixStream::pair().unwrap();
    let (written, _) = handle.write_vectored(&near, [b"ab", b"cd"]).await;
    let (read, buffers) = handle.read_vectored(&far, [[0; 3], [0; 3]]).await;
    assert_eq!((written.unwrap(), read.unwrap()), (4, 4));
    assert_eq!(buffers, [*b"abc", *b"d\0\0"]);
}

async fn a_file_is_synced<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    handle.write_all(&file, b"kept").await.0.unwrap();
    handle.sync_data(&file).await.unwrap();
    handle.sync_all(&file).await.unwrap();
    let socket = UnixStream::pair().unwrap().0;
    assert_eq!(errno(handle.sync_all(&socket).await), EINVAL);
}

async fn a_stream_carries_what_is_sent<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    // The receive comes first, and waits.
    let mut receive = handle.recv(&far, Vec::with_capacity(64));
    begin_for_good(&mut receive).await;
    let (sent, _) = handle.send(&near, b"to be").await;
    let (received, buffer) = receive.await;
    assert_eq!((sent.unwrap(), received.unwrap(), &buffer[..]), (5, 5, &b"to be"[..]));
    // The send comes first.
    let (sent, _) = handle.send(&near, "or not".to_owned()).await;
    let (received, buffer) = handle.recv(&far, vec![0; 64].into_boxed_slice()).await;
    assert_eq!((sent.unwrap(), received.unwrap(), &buffer[..6]), (6, 6, &b"or not"[..]));
}

async fn a_stream_that_does_not_block_is_waited_for_all_the_same<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let mut receive = handle.recv(&far, [0; 8]);
    let mut read = handle.read(&near, [0; 8]);
    begin_for_good(&mut receive).await;
    begin_for_good(&mut read).await;
    (&near).write_all(b"x").unwrap();
    (&far).write_all(b"yz").unwrap();
    let ((received, first), (read, second)) = (receive.await, read.await);
    assert_eq!((received.unwrap(), first[0]), (1, b'x'));
    assert_eq!((read.unwrap(), &second[..2]), (2, &b"yz"[..]));

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut accept = handle.accept(&listener);
    begin_for_good(&mut accept).await;
    let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    accept.await.unwrap();
}

async fn a_half_close_is_the_end_of_one_direction<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let mut receive = handle.recv(&far, [0; 8]);
    begin_for_good(&mut receive).await;
    handle.shutdown(&near, Shutdown::Write).await.unwrap();
    assert_eq!(receive.await.0.unwrap(), 0);
    handle.send(&far, b"still").await.0.unwrap();
    assert_eq!(handle.recv(&near, [0; 8]).await.0.unwrap(), 5);
    assert_eq!(errno(handle.send(&near, b"no more").await.0), EPIPE);
}

async fn a_transfer_of_nothing_is_one<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let file = file();
    assert_eq!(handle.write(&file, Vec::new()).await.0.unwrap(), 0);
    assert_eq!(handle.read(&file, Vec::new()).await.0.unwrap(), 0);
    assert_eq!(handle.send(&near, Vec::new()).await.0.unwrap(), 0);
    handle.send(&near, b"z").await.0.unwrap();
    assert_eq!(handle.recv(&far, Vec::new()).await.0.unwrap(), 0);
    assert_eq!(handle.recv(&far, [0; 1]).await.0.unwrap(), 1, "nothing was taken");
    assert_eq!(handle.write_vectored(&file, [b""]).await.0.unwrap(), 0);
    assert_eq!(handle.write_all(&near, b"").await.0.map_err(|error| error.kind()), Ok(()));
}

async fn a_full_peer_takes_a_part_and_then_waits<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let sent = bytes(1 << 20, 1);
    let sender = {
        let (handle, sent) = (handle.clone(), sent.clone());
        let spawner = handle.clone();
        spawner.spawn(async move {
            handle.send_all(&near, sent).await.0.unwrap();
        })
    };
    let mut received = Vec::with_capacity(1 << 20);
    while received.len() < 1 << 20 {
        let before = received.len();
        let (result, part) = handle.recv(&far, received.slice(before..)).await;
        assert!(result.unwrap() > 0);
        received = part.into_inner();
    }
    assert!(received == sent);
    sender.await.unwrap();
}

async fn whole_buffers_are_transferred_whole<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let writer = {
        let handle = handle.clone();
        let spawner = handle.clone();
        spawner.spawn(async move {
            for part in [&b"ab"[..], b"cdef", b"g"] {
                handle.write_all(&near, part).await.0.unwrap();
                for _ in 0..10 {
                    yield_now().await;
                }
            }
        })
    };
    let (result, buffer) = handle.read_exact(&far, [0; 6]).await;
    result.unwrap();
    assert_eq!(&buffer, b"abcdef");
    let (result, buffer) = handle.recv_exact(&far, Vec::with_capacity(4)).await;
    assert_eq!(result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(buffer, b"g");
    writer.await.unwrap();

    let file = file();
    handle.write_all_at(&file, bytes(5000, 2), 10).await.0.unwrap();
    let (result, buffer) = handle.read_exact_at(&file, vec![0; 5000], 10).await;
    result.unwrap();
    assert!(buffer == bytes(5000, 2));
}

async fn a_datagram_says_where_it_comes_from<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).into();
    let (near_at, far_at): (SocketAddr, SocketAddr) =
        (near.local_addr().unwrap(), far.local_addr().unwrap());
    let mut receive = handle.recv_from(&far, [0; 16]);
    begin_for_good(&mut receive).await;
    assert_eq!(handle.send_to(&near, b"datagram", far_at).await.0.unwrap(), 8);
    let (received, buffer) = receive.await;
    let (length, Some(Address::Inet(sender))) = received.unwrap() else { panic!("no sender") };
    assert_eq!((length, sender, &buffer[..8]), (8, near_at, &b"datagram"[..]));

    let path = std::env::temp_dir().join(format!("evenkeel-{:?}", near_at.port()));
    let _ = fs::remove_file(&path);
    let named = UnixDatagram::bind(&path).unwrap();
    let unnamed = UnixDatagram::unbound().unwrap();
    let to = std::os::unix::net::SocketAddr::from_pathname(&path).unwrap();
    handle.send_to(&unnamed, b"who", to.clone()).await.0.unwrap();
    handle.send_to(&named, b"me", to).await.0.unwrap();
    let (received, _) = handle.recv_from(&named, [0; 8]).await;
    assert!(matches!(received.unwrap(), (3, None)));
    let (received, _) = handle.recv_from(&named, [0; 8]).await;
    let (2, Some(sender)) = received.unwrap() else { panic!("no sender") };
    assert_eq!(sender.to_string(), path.display().to_string());
    fs::remove_file(path).unwrap();
}

async fn a_connection_is_made_and_taken<R: IoReactor>(handle: Handle<R>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut accept = handle.accept(&listener);
    begin_for_good(&mut accept).await;
    for nonblocking in [false, true] {
        let socket = tcp_socket();
        rustix::io::ioctl_fionbio(&socket, nonblocking).unwrap();
        handle.connect(&socket, listener.local_addr().unwrap()).await.unwrap();
        let peer = TcpStream::from(accept.await.unwrap());
        assert_eq!(peer.local_addr().unwrap(), listener.local_addr().unwrap());
        handle.send(&socket, b"hi").await.0.unwrap();
        assert_eq!(handle.recv(&peer, [0; 4]).await.0.unwrap(), 2);
        let flags = rustix::io::fcntl_getfd(&peer).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let flags = rustix::fs::fcntl_getfl(&socket).unwrap();
        assert_eq!(flags.contains(rustix::fs::OFlags::NONBLOCK), nonblocking, "as it was");
        accept = handle.accept(&listener);
    }
}

async fn a_connection_of_the_machine_is_made_and_taken<R: IoReactor>(handle: Handle<R>) {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("evenkeel-{}-{:?}", std::process::id(), std::thread::current().id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    handle.connect(&socket, address).await.unwrap();
    let peer = handle.accept(&listener).await.unwrap();
    handle.write(&peer, b"local").await.0.unwrap();
    assert_eq!(handle.read(&socket, [0; 8]).await.0.unwrap(), 5);
}

fn tcp_socket() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
}

async fn a_refused_connection_says_so<R: IoReactor>(handle: Handle<R>) {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for nonblocking in [false, true] {
        let socket = tcp_socket();
        rustix::io::ioctl_fionbio(&socket, nonblocking).unwrap();
        assert_eq!(errno(handle.connect(&socket, nobody).await), ECONNREFUSED);
    }
}

async fn a_closed_descriptor_is_an_error_with_the_buffer<R: IoReactor>(handle: Handle<R>) {
    // Far beyond what a process may have open.
    // SAFETY: the number is not -1, and nobody's.
    let none = unsafe { BorrowedFd::borrow_raw(1 << 30) };
    let (result, buffer) = handle.read(none, vec![1]).await;
    assert_eq!((errno(result), buffer), (EBADF, vec![1]));
    let (result, buffer) = handle.write_at(none, vec![2], 5).await;
    assert_eq!((errno(result), buffer), (EBADF, vec![2]));
    let (result, buffer) = handle.recv(none, vec![3]).await;
    assert_eq!((errno(result), buffer), (EBADF, vec![3]));
    let (result, buffer) = handle.send_to(none, vec![4], (Ipv4Addr::LOCALHOST, 9)).await;
    assert_eq!((errno(result), buffer), (EBADF, vec![4]));
    let (result, buffer) = handle.read_vectored(none, [vec![5]]).await;
    assert_eq!((errno(result), buffer), (EBADF, [vec![5]]));
    assert_eq!(errno(handle.accept(none).await), EBADF);
    assert_eq!(errno(handle.connect(none, (Ipv4Addr::LOCALHOST, 9)).await), EBADF);
    assert_eq!(errno(handle.shutdown(none, Shutdown::Both).await), EBADF);
    assert_eq!(errno(handle.sync_all(none).await), EBADF);
    let mut flow = handle.accept_many(none).unwrap();
    assert_eq!(errno(flow.next_connection().await), EBADF);
}

async fn a_wrong_descriptor_is_an_error_with_the_buffer<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    let (result, buffer) = handle.recv(&file, vec![1]).await;
    assert_eq!((errno(result), buffer), (ENOTSOCK, vec![1]));
    let (result, buffer) = handle.send(&file, vec![2]).await;
    assert_eq!((errno(result), buffer), (ENOTSOCK, vec![2]));
    assert_eq!(errno(handle.accept(&file).await), ENOTSOCK);
    assert_eq!(errno(handle.shutdown(&file, Shutdown::Write).await), ENOTSOCK);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (result, buffer) = handle.recv(&listener, vec![3]).await;
    assert_eq!((errno(result), buffer), (ENOTCONN, vec![3]));
    let (result, buffer) = handle.send(&listener, vec![4]).await;
    assert_eq!((errno(result), buffer), (EPIPE, vec![4]));
    let (near, _far) = UnixStream::pair().unwrap();
    assert_eq!(errno(handle.accept(&near).await), EINVAL);
    let (result, buffer) = handle.read_at(&near, vec![5], 1).await;
    assert_eq!((errno(result), buffer), (ESPIPE, vec![5]));
    // Opened for the other direction only.
    let write_only = OpenOptions::new().write(true).open("/dev/null").unwrap();
    assert_eq!(errno(handle.read(&write_only, vec![6]).await.0), EBADF);
}

async fn an_impossible_offset_is_an_error_with_the_buffer<R: IoReactor>(handle: Handle<R>) {
    let file = file();
    for offset in [1 << 63, u64::MAX] {
        let (result, buffer) = handle.read_at(&file, vec![1], offset).await;
        assert_eq!((errno(result), buffer), (EINVAL, vec![1]));
        let (result, buffer) = handle.write_at(&file, vec![1], offset).await;
        assert_eq!((errno(result), buffer), (EINVAL, vec![1]));
    }
}

async fn a_peer_that_is_gone_is_an_error_and_no_signal<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    assert_eq!(errno(handle.send(&near, vec![1]).await.0), EPIPE);
    assert_eq!(handle.recv(&near, vec![1]).await.0.unwrap(), 0);
}

async fn a_pipe_is_read_and_written<R: IoReactor>(handle: Handle<R>) {
    let (reads, writes) = io::pipe().unwrap();
    let mut read = handle.read(&reads, [0; 8]);
    begin_for_good(&mut read).await;
    assert_eq!(handle.write(&writes, b"pipe").await.0.unwrap(), 4);
    let (result, buffer) = read.await;
    assert_eq!((result.unwrap(), &buffer[..4]), (4, &b"pipe"[..]));
    let mut read = handle.read(&reads, [0; 8]);
    begin_for_good(&mut read).await;
    drop(writes);
    assert_eq!(read.await.0.unwrap(), 0);
}

async fn an_eventfd_is_read_when_it_is_raised<R: IoReactor>(handle: Handle<R>) {
    for flags in [EventfdFlags::empty(), EventfdFlags::NONBLOCK] {
        let event = eventfd(0, flags).unwrap();
        let mut read = handle.read(&event, [0; 8]);
        begin_for_good(&mut read).await;
        handle.write(&event, 7_u64.to_ne_bytes()).await.0.unwrap();
        let (result, buffer) = read.await;
        assert_eq!((result.unwrap(), u64::from_ne_bytes(buffer)), (8, 7));
    }
}

async fn a_close_frees_the_descriptor<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    handle.close(near).await.unwrap();
    assert_eq!(handle.recv(&far, [0; 1]).await.0.unwrap(), 0, "the peer sees it");
    // Not awaited, it is closed as well.
    let (near, far) = UnixStream::pair().unwrap();
    {
        let mut close = handle.close(near);
        poll_fn(|context| {
            let _ = Pin::new(&mut close).poll(context);
            Poll::Ready(())
        })
        .await;
    }
    assert_eq!(handle.recv(&far, [0; 1]).await.0.unwrap(), 0);
}

async fn a_cancelled_receive_loses_nothing<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    for turn in 0..50_u8 {
        let mut receive = handle.recv(&far, [0; 4]);
        begin(&mut receive).await;
        for _ in 0..turn % 7 {
            yield_now().await;
        }
        if turn % 3 == 0 {
            (&near).write_all(&[turn]).unwrap();
        }
        let (result, buffer) = receive.cancel().await;
        match result {
            Ok(length) => assert_eq!((length, buffer[0], turn % 3), (1, turn, 0)),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(ECANCELED));
                if turn % 3 == 0 {
                    let (result, buffer) = handle.recv(&far, [0; 4]).await;
                    assert_eq!((result.unwrap(), buffer[0]), (1, turn), "it is there still");
                }
            }
        }
    }
}

async fn a_cancelled_accept_loses_nobody<R: IoReactor>(handle: Handle<R>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for turn in 0..30 {
        let mut accept = handle.accept(&listener);
        begin(&mut accept).await;
        for _ in 0..turn % 7 {
            yield_now().await;
        }
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = match accept.cancel().await {
            Ok(connection) => connection,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(ECANCELED));
                handle.accept(&listener).await.unwrap()
            }
        };
        handle.send(&connection, b"!").await.0.unwrap();
        peer.read_exact(&mut [0; 1]).unwrap();
    }
}

async fn a_cancelled_connect_ends<R: IoReactor>(handle: Handle<R>) {
    // A listener whose queue is full does not answer.
    let listener = tcp_socket();
    rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address: SocketAddr = rustix::net::getsockname(&listener).unwrap().try_into().unwrap();
    let _fills: Vec<_> = (0..3)
        .map(|_| {
            let socket = tcp_socket();
            rustix::io::ioctl_fionbio(&socket, true).unwrap();
            let _ = rustix::net::connect(&socket, &address);
            socket
        })
        .collect();
    let socket = tcp_socket();
    let mut connect = handle.connect(&socket, address);
    begin_for_good(&mut connect).await;
    assert_eq!(errno(connect.cancel().await), ECANCELED);
}

async fn what_takes_too_long_is_given_up<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let (result, buffer) = handle.recv(&far, vec![9; 3]).within(Duration::from_millis(2)).await;
    assert_eq!((result.unwrap_err().kind(), buffer), (ErrorKind::TimedOut, vec![9; 3]));
    (&near).write_all(b"now").unwrap();
    let (result, _) = handle.recv(&far, vec![9; 3]).within(Duration::from_mins(1)).await;
    assert_eq!(result.unwrap(), 3);
}

async fn a_dropped_operation_leaves_its_descriptor_alone<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    for turn in 0..20 {
        let mut receive = handle.recv(&far, [0; 4]);
        begin(&mut receive).await;
        for _ in 0..turn % 5 {
            yield_now().await;
        }
        drop(receive);
        // Cancelled by now, or it takes nothing any more: the next one gets what comes.
        for _ in 0..300 {
            yield_now().await;
        }
        (&near).write_all(&[turn]).unwrap();
        let (result, buffer) = handle.recv(&far, [0; 4]).await;
        assert_eq!((result.unwrap(), buffer[0]), (1, turn));
    }
}

async fn a_dropped_write_never_reaches_the_next_owner_of_the_number<R: IoReactor>(
    handle: Handle<R>,
) {
    let mut taken_again = 0;
    for _ in 0..1000 {
        if taken_again == 20 {
            return;
        }
        let (near, far) = UnixStream::pair().unwrap();
        let number = near.as_raw_fd();
        let mut write = handle.write(&near, b"for the first");
        // It may end at once.
        poll_fn(|context| {
            let _ = Pin::new(&mut write).poll(context);
            Poll::Ready(())
        })
        .await;
        drop(write);
        drop(near);
        let (next, peer) = UnixStream::pair().unwrap();
        if ![next.as_raw_fd(), peer.as_raw_fd()].contains(&number) {
            continue; // Another test's thread was faster to take it.
        }
        taken_again += 1;
        for _ in 0..50 {
            yield_now().await;
        }
        for end in [&next, &peer] {
            end.set_nonblocking(true).unwrap();
            let read = { end }.read(&mut [0; 16]);
            assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
        }
        drop(far);
    }
    panic!("the number was taken again {taken_again} times only");
}

async fn a_flow_of_connections_brings_all<R: IoReactor>(handle: Handle<R>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut flow = handle.accept_many(&listener).unwrap();
    for burst in [1_usize, 5, 60] {
        let peers: Vec<_> = (0..burst).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut ports: Vec<_> =
            peers.iter().map(|peer| peer.local_addr().unwrap().port()).collect();
        let mut came = Vec::new();
        for turn in 0..burst {
            if turn % 4 == 3 {
                // One that is dropped takes nobody away.
                let mut next = pin!(flow.next_connection());
                poll_fn(|context| match next.as_mut().poll(context) {
                    Poll::Ready(connection) => {
                        let peer = TcpStream::from(connection.unwrap());
                        came.push(peer.peer_addr().unwrap().port());
                        Poll::Ready(())
                    }
                    Poll::Pending => Poll::Ready(()),
                })
                .await;
            }
        }
        while came.len() < burst {
            let peer = TcpStream::from(flow.next_connection().await.unwrap());
            came.push(peer.peer_addr().unwrap().port());
        }
        ports.sort_unstable();
        came.sort_unstable();
        assert_eq!(came, ports);
    }
    drop(flow);
    // When the cancel has come through the listener is as good as before.
    for _ in 0..300 {
        yield_now().await;
    }
    let _peer = TcpStream::connect(address).unwrap();
    handle.accept(&listener).await.unwrap();
}

async fn a_flow_of_pieces_brings_all_and_gives_its_buffers_back<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let pool = BufferPool::new(4, 100);
    let sent = bytes(10_000, 3);
    let writer = {
        let (handle, sent) = (handle.clone(), sent.clone());
        let spawner = handle.clone();
        spawner.spawn(async move {
            let mut rest = sent;
            while !rest.is_empty() {
                let more = rest.split_off(rest.len().min(37));
                handle.send_all(&near, rest).await.0.unwrap();
                rest = more;
            }
        })
    };
    let mut flow = handle.receive_many(&far, &pool).unwrap();
    let mut received = Vec::new();
    while let Some(piece) = flow.next_piece().await.unwrap() {
        received.extend_from_slice(&piece);
    }
    assert!(received == sent);
    writer.await.unwrap();
    drop(flow);
    for _ in 0..1000 {
        yield_now().await;
    }
    assert_eq!(pool.vacant(), 4);
}

async fn a_flow_without_a_buffer_says_so<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let pool = BufferPool::new(1, 4);
    let mut flow = handle.receive_many(&far, &pool).unwrap();
    handle.send(&near, b"12345678").await.0.unwrap();
    let first = flow.next_piece().await.unwrap().unwrap();
    assert_eq!(&first[..], b"1234");
    assert_eq!(errno(flow.next_piece().await), 105, "ENOBUFS");
    drop(first);
    assert_eq!(&flow.next_piece().await.unwrap().unwrap()[..], b"5678");
}

async fn two_directions_of_a_socket_are_independent<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let mut receive = handle.recv(&near, [0; 4]);
    begin_for_good(&mut receive).await;
    // Until it is full: then a send waits beside the receive.
    let filler = vec![0; 1 << 16];
    let mut total = 0;
    let waiting = loop {
        let mut send = Box::pin(handle.send(&near, filler.clone()));
        let mut done = None;
        for _ in 0..300 {
            poll_fn(|context| {
                if done.is_none()
                    && let Poll::Ready((result, _)) = send.as_mut().poll(context)
                {
                    done = Some(result.unwrap());
                }
                Poll::Ready(())
            })
            .await;
            if done.is_some() {
                break;
            }
            yield_now().await;
        }
        match done {
            Some(bytes) => total += bytes,
            None => break send,
        }
    };
    handle.send(&far, b"back").await.0.unwrap();
    assert_eq!(receive.await.0.unwrap(), 4);
    let mut read = 0;
    while read < total {
        read += handle.recv(&far, vec![0; 1 << 16]).await.0.unwrap();
    }
    assert!(waiting.await.0.unwrap() > 0);
}

async fn a_thousand_operations_wait_at_once<R: IoReactor>(handle: Handle<R>) {
    let pairs: Vec<_> = (0..250).map(|_| UnixStream::pair().unwrap()).collect();
    let mut receives: Vec<_> =
        pairs.iter().map(|(_, far)| Box::pin(handle.recv(far, [0; 2]))).collect();
    for receive in &mut receives {
        begin(receive).await;
    }
    for (index, (near, _)) in pairs.iter().enumerate() {
        let index = u16::try_from(index).unwrap();
        handle.send(near, index.to_ne_bytes()).await.0.unwrap();
    }
    for (index, receive) in receives.into_iter().enumerate() {
        let (result, buffer) = receive.await;
        assert_eq!((result.unwrap(), usize::from(u16::from_ne_bytes(buffer))), (2, index));
    }
}

async fn an_always_ready_descriptor_starves_nobody<R: IoReactor>(handle: Handle<R>) {
    let greedy = {
        let handle = handle.clone();
        let spawner = handle.clone();
        spawner.spawn(async move {
            let zeros = File::open("/dev/zero").unwrap();
            let mut buffer = vec![0; 64];
            for _ in 0..100_000 {
                let (result, same) = handle.read(&zeros, buffer).await;
                result.unwrap();
                buffer = same;
            }
        })
    };
    let (near, far) = UnixStream::pair().unwrap();
    let mut receive = pin!(handle.recv(&far, [0; 4]));
    poll_fn(|context| {
        assert!(receive.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    (&near).write_all(b"me").unwrap();
    assert_eq!(receive.await.0.unwrap(), 2);
    assert!(!greedy.is_finished(), "served while the other goes on");
    greedy.abort();
}

/// What is ready at once passes a backlog of thousands, in a number of dispatches that has nothing to
/// do with how many they are: a batch of completions and one of timers may come before, in turns with
/// the others.
async fn an_operation_passes_any_backlog<R: IoReactor>(handle: Handle<R>) {
    const TASKS: usize = 5000;
    let dispatches = Rc::new(Cell::new(0));
    let backlog: Vec<_> = (0..TASKS)
        .map(|_| {
            let dispatches = Rc::clone(&dispatches);
            handle.spawn(async move {
                loop {
                    dispatches.set(dispatches.get() + 1);
                    yield_now().await;
                }
            })
        })
        .collect();
    yield_now().await;
    let (near, far) = UnixStream::pair().unwrap();
    for _ in 0..20 {
        let before = dispatches.get();
        handle.send(&near, *b"past").await.0.unwrap();
        assert_eq!(handle.recv(&far, [0; 4]).await.0.unwrap(), 4);
        let passed = dispatches.get() - before;
        // Two operations, each within 6 x 32 + 3 until it is armed and as many until it is served.
        assert!(passed <= 4 * 195, "{passed} dispatches");
    }
    for task in &backlog {
        task.abort();
    }
}

async fn a_task_aborted_elsewhere_leaves_its_operation<R: IoReactor>(handle: Handle<R>) {
    let (near, far) = UnixStream::pair().unwrap();
    let far = Rc::new(far);
    let task = {
        let (inner, far) = (handle.clone(), Rc::clone(&far));
        handle.spawn(async move { inner.recv(&*far, vec![0; 64]).await.0.is_ok() })
    };
    for _ in 0..300 {
        yield_now().await;
    }
    // From another thread, to which it is a matter of a push.
    let aborting = std::thread::spawn(move || {
        task.abort();
        task
    });
    while !aborting.is_finished() {
        yield_now().await;
    }
    assert!(aborting.join().unwrap().await.is_err());
    for _ in 0..300 {
        yield_now().await;
    }
    // Nobody takes it but this one.
    (&near).write_all(b"mine").unwrap();
    assert_eq!(handle.recv(&*far, [0; 8]).await.0.unwrap(), 4);
}
