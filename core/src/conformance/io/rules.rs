//! The rules.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Debug;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;

use super::World;
use super::run::{Body, End, Rule, Scene, Seen};
use crate::io::{Address, BufferPool, Io, IoReactor, Request};
use crate::service::join::JoinHandle;
use crate::task::yield_now;

const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ESPIPE: i32 = 29;
const EPIPE: i32 = 32;
const ENOTSOCK: i32 = 88;
const ENOTCONN: i32 = 107;
const ECONNREFUSED: i32 = 111;
const ECANCELED: i32 = 125;

/// What takes a moment may take it 200 times.
const A_WHILE: Duration = Duration::from_micros(100);

pub(super) fn all<W: World>() -> Vec<Rule<W>> {
    let rule = |name, body: Body<W>| Rule { name, body, end: End::AfterTheTasks };
    vec![
        rule("a stream carries all bytes in order", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(a_stream_carries_all(scene, near, far))
        }),
        rule("a pipe carries all bytes in order", |world, scene| {
            let (reads, writes) = world.pipe();
            Box::pin(a_pipe_carries_all(scene, reads, writes))
        }),
        rule("several buffers are one stretch of bytes", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(several_buffers(scene, near, far))
        }),
        rule("a file keeps what is written where it is said", |world, scene| {
            let file = world.file();
            Box::pin(a_file_keeps(scene, file))
        }),
        rule("a transfer of nothing is one", |world, scene| {
            let ((near, far), file) = (world.pair(), world.file());
            Box::pin(a_transfer_of_nothing(scene, near, far, file))
        }),
        rule("a half-close ends one direction", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(a_half_close(scene, near, far))
        }),
        rule("a datagram comes whole and says from where", |world, scene| {
            let (near, far) = (world.datagrams(), world.datagrams());
            Box::pin(datagrams(scene, near, far))
        }),
        rule("each connection is made and taken", |world, scene| {
            let (listener, address) = world.listener();
            let sockets = (0..8).map(|_| world.socket()).collect();
            Box::pin(connections(scene, listener, address.into(), sockets))
        }),
        rule("a cancelled accept loses nobody", |world, scene| {
            let (listener, address) = world.listener();
            let sockets = (0..8).map(|_| world.socket()).collect();
            Box::pin(cancelled_accepts(scene, listener, address.into(), sockets))
        }),
        rule("a flow of connections brings each", |world, scene| {
            let (listener, address) = world.listener();
            let sockets = (0..8).map(|_| world.socket()).collect();
            Box::pin(a_flow_of_connections(scene, listener, address.into(), sockets))
        }),
        rule("a flow of pieces brings all bytes, and its buffers go back", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(a_flow_of_pieces(scene, near, far))
        }),
        rule("a cancelled transfer says what it has moved", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(cancelled_transfers(scene, near, far))
        }),
        rule("what takes too long brings its buffer back", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(too_long(scene, near, far))
        }),
        rule("an error brings the buffer back", |world, scene| {
            let (near, far) = world.pair();
            let (file, (listener, _), socket) = (world.file(), world.listener(), world.socket());
            Box::pin(errors(scene, [near, far, file, listener, socket]))
        }),
        rule("a close is seen by the peer", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(a_close(scene, near, far))
        }),
        rule("a full table is said, and passes", |world, scene| {
            let (near, far) = world.pair();
            Box::pin(a_full_table(scene, near, far))
        }),
        rule("a task that is aborted leaves nothing behind", |world, scene| {
            let pairs = (0..6).map(|_| world.pair()).collect();
            Box::pin(aborted(scene, pairs))
        }),
        rule("many at once get each its own", |world, scene| {
            let pairs = (0..6).map(|_| world.pair()).collect();
            Box::pin(many_at_once(scene, pairs))
        }),
        Rule {
            name: "a worker that ends takes all back",
            body: |world, scene| {
                let pairs = (0..6).map(|_| world.pair()).collect();
                Box::pin(many_at_once(scene, pairs))
            },
            end: End::InTheMidst,
        },
    ]
}

fn seen<T>(what: impl Into<String>) -> Result<T, String> {
    Err(what.into())
}

fn number<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

fn expect<T: Debug>(what: &str, result: &io::Result<T>, errno: i32) -> Seen {
    match number(result) {
        Some(found) if found == errno => Ok(()),
        _ => seen(format!("{what}: {result:?} where error {errno} was expected")),
    }
}

fn fine<T>(what: &str, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// An operation that the reactor had no room for at the moment may be tried again.
fn is_refusal<T>(result: &io::Result<T>) -> bool {
    matches!(number(result), Some(EAGAIN | ENOMEM))
}

async fn linger(random: &mut crate::sim_io::Random, most: usize) {
    for _ in 0..random.below(most) {
        yield_now().await;
    }
}

/// Begins an operation. None if it has ended by that.
async fn begin<R: IoReactor + 'static, F, Q: Request>(
    io: &mut Io<'_, R, F, Q>,
) -> Option<Q::Output> {
    poll_fn(|context| match Pin::new(&mut *io).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Begins an operation, and cancels it some turns later unless it has ended by then.
async fn give_up<R: IoReactor + 'static, F, Q: Request>(
    mut io: Io<'_, R, F, Q>,
    random: &mut crate::sim_io::Random,
    turns: usize,
) -> Q::Output {
    if let Some(output) = begin(&mut io).await {
        return output;
    }
    // Now and then it has all the time that it needs.
    if random.below(4) == 0 {
        return io.await;
    }
    linger(random, turns).await;
    io.cancel().await
}

async fn joined(task: JoinHandle<Seen>) -> Seen {
    task.await.unwrap_or_else(|_| seen("a task did not end well"))
}

/// Sends all of it in random pieces.
async fn send_all<R: IoReactor>(scene: &mut Scene<R>, to: &OwnedFd, bytes: &[u8]) -> Seen {
    let mut sent = 0;
    while sent < bytes.len() {
        let length = 1 + scene.random.below((bytes.len() - sent).min(3000));
        let buffer = scene.ledger.buffer(bytes[sent..sent + length].to_vec());
        let (result, buffer) = match scene.random.below(2) {
            0 => scene.handle.send(to, buffer).await,
            _ => scene.handle.write(to, buffer).await,
        };
        if buffer.bytes != bytes[sent..sent + length] {
            return seen("a buffer that was sent comes back with other bytes");
        }
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        let moved = fine("a send", result)?;
        if moved == 0 || moved > length {
            return seen(format!("a send of {length} bytes moves {moved}"));
        }
        sent += moved;
        linger(&mut scene.random, 3).await;
    }
    Ok(())
}

/// Receives so much in random pieces.
async fn receive<R: IoReactor>(
    scene: &mut Scene<R>,
    from: &OwnedFd,
    length: usize,
) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let room = 1 + scene.random.below(3000);
        let buffer = scene.ledger.buffer(Vec::with_capacity(room));
        let (result, buffer) = match scene.random.below(2) {
            0 => scene.handle.recv(from, buffer).await,
            _ => scene.handle.read(from, buffer).await,
        };
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        let moved = fine("a receive", result)?;
        if moved == 0 {
            return seen(format!("the end comes after {} of {length} bytes", bytes.len()));
        }
        if buffer.bytes.len() != moved {
            return seen(format!("a receive of {moved} bytes fills {}", buffer.bytes.len()));
        }
        bytes.extend_from_slice(&buffer.bytes);
        linger(&mut scene.random, 3).await;
    }
    Ok(bytes)
}

fn same(what: &str, got: &[u8], sent: &[u8]) -> Seen {
    if got == sent {
        return Ok(());
    }
    let differs = got.iter().zip(sent).position(|(got, sent)| got != sent);
    seen(format!(
        "{what}: {} bytes where {} were sent, alike up to {differs:?}",
        got.len(),
        sent.len()
    ))
}

async fn end_of<R: IoReactor>(scene: &Scene<R>, from: &OwnedFd) -> Seen {
    loop {
        let (result, _) = scene.handle.read(from, [0; 8]).await;
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        return match result {
            Ok(0) => Ok(()),
            other => seen(format!("{other:?} where the end was expected")),
        };
    }
}

async fn shut<R: IoReactor>(scene: &Scene<R>, socket: &OwnedFd) -> Seen {
    loop {
        let result = scene.handle.shutdown(socket, Shutdown::Write).await;
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        return fine("a shutdown", result);
    }
}

/// One direction of a stream, to its end.
async fn one_way<R: IoReactor>(mut scene: Scene<R>, from: Rc<OwnedFd>, to: Rc<OwnedFd>) -> Seen {
    let length = scene.random.below(20_000);
    let bytes = scene.random.bytes(length);
    let sender = {
        let (mut scene, bytes) = (scene.fork(), bytes.clone());
        let handle = scene.handle.clone();
        handle.spawn(async move {
            send_all(&mut scene, &from, &bytes).await?;
            shut(&scene, &from).await
        })
    };
    let got = receive(&mut scene, &to, length).await?;
    end_of(&scene, &to).await?;
    joined(sender).await?;
    same("a stream", &got, &bytes)
}

async fn a_stream_carries_all<R: IoReactor>(
    mut scene: Scene<R>,
    near: OwnedFd,
    far: OwnedFd,
) -> Seen {
    let (near, far) = (Rc::new(near), Rc::new(far));
    let other = {
        let (scene, near, far) = (scene.fork(), Rc::clone(&near), Rc::clone(&far));
        let handle = scene.handle.clone();
        handle.spawn(one_way(scene, far, near))
    };
    one_way(scene, near, far).await?;
    joined(other).await
}

async fn a_pipe_carries_all<R: IoReactor>(
    mut scene: Scene<R>,
    reads: OwnedFd,
    writes: OwnedFd,
) -> Seen {
    let length = scene.random.below(20_000);
    let bytes = scene.random.bytes(length);
    let sender = {
        let (mut scene, bytes) = (scene.fork(), bytes.clone());
        let handle = scene.handle.clone();
        handle.spawn(async move {
            let mut written = 0;
            while written < bytes.len() {
                let part = scene.ledger.buffer(bytes[written..].to_vec());
                let (result, _) = scene.handle.write(&writes, part).await;
                if is_refusal(&result) {
                    yield_now().await;
                    continue;
                }
                written += fine("a write", result)?;
                linger(&mut scene.random, 3).await;
            }
            Ok(())
        })
    };
    let mut got = Vec::new();
    loop {
        let room = 1 + scene.random.below(3000);
        let buffer = scene.ledger.buffer(Vec::with_capacity(room));
        let (result, buffer) = scene.handle.read(&reads, buffer).await;
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        if fine("a read", result)? == 0 {
            break;
        }
        got.extend_from_slice(&buffer.bytes);
    }
    joined(sender).await?;
    same("a pipe", &got, &bytes)
}

async fn several_buffers<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let mut sent = Vec::new();
    let mut got = Vec::new();
    for _ in 0..20 {
        let lengths = [(); 3].map(|()| scene.random.below(40));
        let parts = lengths.map(|length| scene.random.bytes(length));
        let (result, parts) = scene.handle.write_vectored(&near, parts).await;
        if is_refusal(&result) {
            continue;
        }
        let moved = fine("a write of several", result)?;
        let all: Vec<u8> = parts.concat();
        if moved > all.len() || (moved == 0 && !all.is_empty()) {
            return seen(format!("a write of {} bytes moves {moved}", all.len()));
        }
        sent.extend_from_slice(&all[..moved]);
        while got.len() < sent.len() {
            let rooms = [(); 3].map(|()| Vec::with_capacity(1 + scene.random.below(20)));
            let room: [usize; 3] = [0, 1, 2].map(|place: usize| rooms[place].capacity());
            let (result, parts) = scene.handle.read_vectored(&far, rooms).await;
            if is_refusal(&result) {
                continue;
            }
            let moved = fine("a read of several", result)?;
            let filled: usize = parts.iter().map(Vec::len).sum();
            let full_in_turn = parts
                .windows(2)
                .zip(room)
                .all(|(pair, room)| pair[0].len() == room || pair[1].is_empty());
            if filled != moved || !full_in_turn {
                return seen(format!("a read of {moved} bytes fills {filled}, or not in turn"));
            }
            for part in &parts {
                got.extend_from_slice(part);
            }
        }
    }
    same("several buffers", &got, &sent)
}

async fn a_file_keeps<R: IoReactor>(mut scene: Scene<R>, file: OwnedFd) -> Seen {
    let mut model: Vec<u8> = Vec::new();
    for _ in 0..40 {
        let at = scene.random.below(3000);
        match scene.random.below(4) {
            0 | 1 => {
                let length = scene.random.below(500);
                let bytes = scene.random.bytes(length);
                let buffer = scene.ledger.buffer(bytes.clone());
                let (result, _) = scene.handle.write_at(&file, buffer, at as u64).await;
                if is_refusal(&result) {
                    continue;
                }
                let written = fine("a write", result)?;
                if written > 0 && model.len() < at + written {
                    model.resize(at + written, 0);
                }
                if written > 0 {
                    model[at..at + written].copy_from_slice(&bytes[..written]);
                }
            }
            2 => {
                let room = scene.random.below(500);
                let buffer = scene.ledger.buffer(Vec::with_capacity(room));
                let (result, buffer) = scene.handle.read_at(&file, buffer, at as u64).await;
                if is_refusal(&result) {
                    continue;
                }
                let read = fine("a read", result)?;
                let there = model.get(at..).unwrap_or_default();
                if read == 0 && !there.is_empty() && buffer.bytes.capacity() > 0 {
                    return seen("the end of the file comes too early");
                }
                same("a file", &buffer.bytes, there.get(..read).unwrap_or_default())?;
            }
            _ => {
                let result = scene.handle.sync_all(&file).await;
                if !is_refusal(&result) {
                    fine("a sync", result)?;
                }
            }
        }
    }
    Ok(())
}

async fn a_transfer_of_nothing<R: IoReactor>(
    scene: Scene<R>,
    near: OwnedFd,
    far: OwnedFd,
    file: OwnedFd,
) -> Seen {
    let zero = |what: &str, result: io::Result<usize>| match result {
        Ok(0) => Ok(()),
        result if is_refusal(&result) => Ok(()),
        other => seen(format!("{what} of nothing: {other:?}")),
    };
    let handle = &scene.handle;
    zero("a send", handle.send(&near, Vec::new()).await.0)?;
    zero("a write", handle.write(&file, Vec::new()).await.0)?;
    zero("a read", handle.read(&file, Vec::new()).await.0)?;
    let mut scene = scene;
    send_all(&mut scene, &near, b"x").await?;
    let handle = &scene.handle;
    zero("a receive", handle.recv(&far, Vec::new()).await.0)?;
    same("what is left", &receive(&mut scene, &far, 1).await?, b"x")
}

async fn a_half_close<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let bytes = scene.random.bytes(100);
    send_all(&mut scene, &near, &bytes).await?;
    shut(&scene, &near).await?;
    same("what was sent before", &receive(&mut scene, &far, 100).await?, &bytes)?;
    end_of(&scene, &far).await?;
    send_all(&mut scene, &far, &bytes).await?;
    same("the other direction", &receive(&mut scene, &near, 100).await?, &bytes)?;
    loop {
        let (result, _) = scene.handle.send(&near, vec![1]).await;
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        return expect("a send after the half-close", &result, EPIPE);
    }
}

type Datagrams = (OwnedFd, std::net::SocketAddr);

async fn datagrams<R: IoReactor>(mut scene: Scene<R>, near: Datagrams, far: Datagrams) -> Seen {
    for _ in 0..10 {
        let length = 1 + scene.random.below(400);
        let bytes = scene.random.bytes(length);
        let mut receive = scene.handle.recv_from(&far.0, scene.ledger.buffer(vec![0; 500]));
        // The receive comes first, or not.
        let mut early = None;
        if scene.random.below(2) == 0 {
            early = begin(&mut receive).await;
        }
        let refused = match early {
            Some((result, _)) if is_refusal(&result) => true,
            Some((result, _)) => return seen(format!("a receive ends by itself: {result:?}")),
            None => false,
        };
        loop {
            let (sent, _) = scene.handle.send_to(&near.0, bytes.clone(), far.1).await;
            if is_refusal(&sent) {
                yield_now().await;
                continue;
            }
            if fine("a send of a datagram", sent)? != length {
                return seen("a datagram is sent in part");
            }
            break;
        }
        let (result, buffer) = if refused {
            scene.handle.recv_from(&far.0, scene.ledger.buffer(vec![0; 500])).await
        } else {
            receive.await
        };
        let (result, buffer) = if is_refusal(&result) {
            loop {
                let buffer = scene.ledger.buffer(vec![0; 500]);
                let (result, buffer) = scene.handle.recv_from(&far.0, buffer).await;
                if !is_refusal(&result) {
                    break (result, buffer);
                }
                yield_now().await;
            }
        } else {
            (result, buffer)
        };
        let (moved, sender) = fine("a receive of a datagram", result)?;
        same("a datagram", &buffer.bytes[..moved], &bytes)?;
        match sender {
            Some(Address::Inet(sender)) if sender == near.1 => {}
            other => return seen(format!("a datagram of {} says it is of {other:?}", near.1)),
        }
    }
    Ok(())
}

async fn connect_all<R: IoReactor>(
    mut scene: Scene<R>,
    sockets: Vec<OwnedFd>,
    address: Address,
) -> Seen {
    // Each says its number, and waits for it to come back.
    let mut tasks = VecDeque::new();
    for (index, socket) in sockets.into_iter().enumerate() {
        let (mut scene, address) = (scene.fork(), address.clone());
        let handle = scene.handle.clone();
        tasks.push_back(handle.spawn(async move {
            linger(&mut scene.random, 20).await;
            loop {
                let result = scene.handle.connect(&socket, address.clone()).await;
                if is_refusal(&result) {
                    yield_now().await;
                    continue;
                }
                fine("a connect", result)?;
                break;
            }
            let name = [u8::try_from(index).expect("they are few"); 3];
            send_all(&mut scene, &socket, &name).await?;
            same("the answer", &receive(&mut scene, &socket, 3).await?, &name)
        }));
    }
    while let Some(task) = tasks.pop_front() {
        joined(task).await?;
    }
    Ok(())
}

async fn greet<R: IoReactor>(mut scene: Scene<R>, connection: OwnedFd) -> Seen {
    let name = receive(&mut scene, &connection, 3).await?;
    send_all(&mut scene, &connection, &name).await
}

async fn connections<R: IoReactor>(
    mut scene: Scene<R>,
    listener: OwnedFd,
    address: Address,
    sockets: Vec<OwnedFd>,
) -> Seen {
    let count = sockets.len();
    let clients = {
        let scene = scene.fork();
        let handle = scene.handle.clone();
        handle.spawn(connect_all(scene, sockets, address))
    };
    let mut taken = 0;
    while taken < count {
        let result = scene.handle.accept(&listener).await;
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        let connection = fine("an accept", result)?;
        taken += 1;
        let scene = scene.fork();
        let handle = scene.handle.clone();
        drop(handle.spawn(greet(scene, connection)));
    }
    joined(clients).await
}

async fn cancelled_accepts<R: IoReactor>(
    mut scene: Scene<R>,
    listener: OwnedFd,
    address: Address,
    sockets: Vec<OwnedFd>,
) -> Seen {
    let count = sockets.len();
    let clients = {
        let scene = scene.fork();
        let handle = scene.handle.clone();
        handle.spawn(connect_all(scene, sockets, address))
    };
    let mut taken = 0;
    let handle = scene.handle.clone();
    while taken < count {
        let accept = handle.accept(&listener);
        let result = give_up(accept, &mut scene.random, 10).await;
        match result {
            Ok(connection) => {
                taken += 1;
                let scene = scene.fork();
                let handle = scene.handle.clone();
                drop(handle.spawn(greet(scene, connection)));
            }
            result if is_refusal(&result) => yield_now().await,
            result => {
                expect("a cancelled accept", &result, ECANCELED)?;
                yield_now().await;
            }
        }
    }
    joined(clients).await
}

async fn a_flow_of_connections<R: IoReactor>(
    mut scene: Scene<R>,
    listener: OwnedFd,
    address: Address,
    sockets: Vec<OwnedFd>,
) -> Seen {
    let count = sockets.len();
    let clients = {
        let scene = scene.fork();
        let handle = scene.handle.clone();
        handle.spawn(connect_all(scene, sockets, address))
    };
    let handle = scene.handle.clone();
    let mut flow = loop {
        match handle.accept_many(&listener) {
            result if is_refusal(&result.as_ref().map(drop).map_err(copy)) => yield_now().await,
            result => break fine("a flow", result)?,
        }
    };
    let mut taken = 0;
    while taken < count {
        let patience = scene.random.below(12);
        let Some(result) = patiently(flow.next_connection(), patience).await else { continue };
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        let connection = fine("a flow", result)?;
        taken += 1;
        let scene = scene.fork();
        drop(handle.spawn(greet(scene, connection)));
    }
    drop(flow);
    joined(clients).await
}

/// The same error, as far as it has a number.
fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Waits for so many turns, and drops the future then; for none it waits as long as it takes.
async fn patiently<F: Future>(future: F, turns: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    if turns == 0 {
        return Some(future.await);
    }
    for turn in 0..=turns {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        if turn < turns {
            yield_now().await;
        }
    }
    None
}

async fn a_flow_of_pieces<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let length = scene.random.below(4000);
    let bytes = scene.random.bytes(length);
    let sender = {
        let (mut scene, bytes) = (scene.fork(), bytes.clone());
        let handle = scene.handle.clone();
        handle.spawn(async move {
            send_all(&mut scene, &near, &bytes).await?;
            shut(&scene, &near).await
        })
    };
    let pool = BufferPool::new(3, 1 + scene.random.below(200));
    let handle = scene.handle.clone();
    let mut flow = loop {
        match handle.receive_many(&far, &pool) {
            result if is_refusal(&result.as_ref().map(drop).map_err(copy)) => yield_now().await,
            result => break fine("a flow", result)?,
        }
    };
    let mut got = Vec::new();
    loop {
        let patience = scene.random.below(12);
        let Some(result) = patiently(flow.next_piece(), patience).await else { continue };
        if is_refusal(&result) {
            yield_now().await;
            continue;
        }
        match fine("a flow", result)? {
            Some(piece) => got.extend_from_slice(&piece),
            None => break,
        }
    }
    drop(flow);
    joined(sender).await?;
    same("a flow", &got, &bytes)?;
    // The flow's own end brings back what the reactor holds.
    for _ in 0..200 {
        if pool.vacant() == 3 {
            return Ok(());
        }
        handle.sleep(A_WHILE).await;
    }
    seen(format!("{} of 3 buffers are back in their pool", pool.vacant()))
}

async fn cancelled_transfers<R: IoReactor>(
    mut scene: Scene<R>,
    near: OwnedFd,
    far: OwnedFd,
) -> Seen {
    let length = 3000;
    let bytes = scene.random.bytes(length);
    let sender = {
        let (mut scene, bytes) = (scene.fork(), bytes.clone());
        let handle = scene.handle.clone();
        handle.spawn(async move {
            let mut sent = 0;
            while sent < bytes.len() {
                let end = bytes.len().min(sent + 1 + scene.random.below(200));
                let part = scene.ledger.buffer(bytes[sent..end].to_vec());
                let handle = scene.handle.clone();
                let transfer = handle.send(&near, part);
                let (result, _) = give_up(transfer, &mut scene.random, 6).await;
                match result {
                    Ok(moved) => sent += moved,
                    result if is_refusal(&result) => yield_now().await,
                    result => expect("a cancelled send", &result, ECANCELED)?,
                }
            }
            Ok(())
        })
    };
    let mut got = Vec::new();
    while got.len() < length {
        let room = 1 + scene.random.below(300);
        let buffer = scene.ledger.buffer(Vec::with_capacity(room));
        let handle = scene.handle.clone();
        let receive = handle.recv(&far, buffer);
        let (result, buffer) = give_up(receive, &mut scene.random, 6).await;
        match result {
            Ok(0) => return seen("the end comes before all bytes"),
            Ok(moved) => got.extend_from_slice(&buffer.bytes[..moved]),
            result if is_refusal(&result) => yield_now().await,
            result => expect("a cancelled receive", &result, ECANCELED)?,
        }
        yield_now().await;
    }
    joined(sender).await?;
    same("what was not cancelled", &got, &bytes)
}

async fn too_long<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let span = Duration::from_micros(1 + scene.random.below(300) as u64);
    let buffer = scene.ledger.buffer(vec![7; 10]);
    let (result, buffer) = scene.handle.recv(&far, buffer).within(span).await;
    match result {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
        result if is_refusal(&result) => return Ok(()),
        other => return seen(format!("{other:?} where nothing came")),
    }
    if buffer.bytes.len() != 10 {
        return seen("another buffer comes back");
    }
    send_all(&mut scene, &near, b"in time").await?;
    let (result, _) = scene.handle.recv_exact(&far, vec![0; 7]).await;
    if is_refusal(&result) { Ok(()) } else { fine("a receive after that", result) }
}

async fn errors<R: IoReactor>(scene: Scene<R>, fds: [OwnedFd; 5]) -> Seen {
    let [near, far, file, listener, socket] = fds;
    let handle = &scene.handle;
    let back = |what: &str, (result, buffer): (io::Result<usize>, Vec<u8>), errno| {
        if buffer != [1, 2, 3] {
            return seen(format!("{what}: another buffer comes back"));
        }
        if is_refusal(&result) { Ok(()) } else { expect(what, &result, errno) }
    };
    let buffer = || vec![1, 2, 3];
    back("a receive from a file", handle.recv(&file, buffer()).await, ENOTSOCK)?;
    back("a send to a file", handle.send(&file, buffer()).await, ENOTSOCK)?;
    back("a receive from a listener", handle.recv(&listener, buffer()).await, ENOTCONN)?;
    back("a read of a socket at an offset", handle.read_at(&near, buffer(), 1).await, ESPIPE)?;
    back("an offset that there is not", handle.write_at(&file, buffer(), 1 << 63).await, EINVAL)?;
    let none = |what: &str, result: io::Result<()>, errno| {
        if is_refusal(&result) { Ok(()) } else { expect(what, &result, errno) }
    };
    none("a sync of a socket", handle.sync_all(&near).await, EINVAL)?;
    none("an accept of a file", handle.accept(&file).await.map(drop), ENOTSOCK)?;
    none("an accept of a connection", handle.accept(&near).await.map(drop), EINVAL)?;
    let nobody = (std::net::Ipv4Addr::LOCALHOST, 1);
    none("a connect to nobody", handle.connect(&socket, nobody).await, ECONNREFUSED)?;
    drop(far);
    back("a send to nobody", handle.send(&near, buffer()).await, EPIPE)?;
    Ok(())
}

async fn a_close<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let mut receive = scene.handle.recv(&far, [0; 4]);
    let early = begin(&mut receive).await;
    linger(&mut scene.random, 10).await;
    let closed = scene.handle.close(near).await;
    if !is_refusal(&closed) {
        fine("a close", closed)?;
    }
    let result = match early {
        Some((result, _)) => result,
        None => receive.await.0,
    };
    match result {
        Ok(0) => Ok(()),
        result if is_refusal(&result) => Ok(()),
        other => seen(format!("{other:?} where the end was expected")),
    }
}

async fn a_full_table<R: IoReactor>(mut scene: Scene<R>, near: OwnedFd, far: OwnedFd) -> Seen {
    let handle = scene.handle.clone();
    let mut waiting = Vec::new();
    loop {
        let mut receive = Box::pin(handle.recv(&far, scene.ledger.buffer(vec![0; 1])));
        match begin(&mut receive).await {
            None => waiting.push(receive),
            Some((Err(error), _)) if error.kind() == io::ErrorKind::QuotaExceeded => break,
            Some((result, _)) if is_refusal(&result) => {}
            Some((result, _)) => return seen(format!("a receive ends by itself: {result:?}")),
        }
        if waiting.len() > 64 {
            return seen("there is room for more operations than there should be");
        }
    }
    let count = waiting.len();
    // One of them makes room for the send.
    if let Some(one) = waiting.pop() {
        let (result, _) = one.map_cancel().await;
        if result.is_ok() {
            return seen("a receive is done though nothing was sent");
        }
    }
    let bytes = scene.random.bytes(count.saturating_sub(1));
    send_all(&mut scene, &near, &bytes).await?;
    let mut got = Vec::new();
    for receive in waiting {
        let (result, buffer) = receive.await;
        if fine("a receive", result)? != 1 {
            return seen("a receive of one byte moves another number");
        }
        got.push(buffer.bytes[0]);
    }
    let (mut got, mut bytes) = (got, bytes);
    got.sort_unstable();
    bytes.sort_unstable();
    same("one byte for each", &got, &bytes)
}

/// A cancel through a box.
trait MapCancel<T> {
    fn map_cancel(self) -> T;
}

impl<'h, R: IoReactor + 'static, F, Q: Request> MapCancel<Io<'h, R, F, Q>>
    for Pin<Box<Io<'h, R, F, Q>>>
{
    fn map_cancel(self) -> Io<'h, R, F, Q> {
        // An operation may be moved wherever it is.
        Pin::into_inner(self).cancel()
    }
}

async fn aborted<R: IoReactor>(mut scene: Scene<R>, pairs: Vec<(OwnedFd, OwnedFd)>) -> Seen {
    let pairs: Vec<_> =
        pairs.into_iter().map(|(near, far)| (Rc::new(near), Rc::new(far))).collect();
    let mut tasks = Vec::new();
    for (near, far) in &pairs {
        let (scene_of_task, near, far) = (scene.fork(), Rc::clone(near), Rc::clone(far));
        let handle = scene.handle.clone();
        tasks.push(handle.spawn(one_way(scene_of_task, near, far)));
    }
    linger(&mut scene.random, 60).await;
    for task in &tasks {
        if scene.random.below(2) == 0 {
            task.abort();
        }
        linger(&mut scene.random, 5).await;
    }
    // Those of the streams that go on may wait for one that was aborted: all go.
    for task in &tasks {
        task.abort();
    }
    for task in tasks {
        let _ = task.await;
    }
    // What they had spawned ends with their streams.
    for (near, far) in &pairs {
        while let result = scene.handle.shutdown(near, Shutdown::Both).await
            && is_refusal(&result)
        {}
        while let result = scene.handle.shutdown(far, Shutdown::Both).await
            && is_refusal(&result)
        {}
    }
    for _ in 0..200 {
        if scene.ledger.alive() == 0 {
            return Ok(());
        }
        scene.handle.sleep(A_WHILE).await;
    }
    seen(format!("{} buffers are left of tasks that are gone", scene.ledger.alive()))
}

async fn many_at_once<R: IoReactor>(mut scene: Scene<R>, pairs: Vec<(OwnedFd, OwnedFd)>) -> Seen {
    let results = Rc::new(RefCell::new(Vec::new()));
    let mut tasks = Vec::new();
    for (near, far) in pairs {
        let scene_of_task = scene.fork();
        let handle = scene.handle.clone();
        let results = Rc::clone(&results);
        tasks.push(handle.spawn(async move {
            let seen = a_stream_carries_all(scene_of_task, near, far).await;
            results.borrow_mut().push(());
            seen
        }));
    }
    let count = tasks.len();
    for task in tasks {
        joined(task).await?;
        linger(&mut scene.random, 5).await;
    }
    if results.borrow().len() == count { Ok(()) } else { seen("a task was lost") }
}
