#![forbid(unsafe_code)]
//! evenkeel as an echo server: one worker over one reactor.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use evenkeel::io::{Buffer, IoReactor};
use evenkeel::{
    Handle, StartError, StopError as WorkerStopError, ThreadConfig, WorkerConfig, WorkerThread,
    yield_now,
};

use crate::echo::{EchoServer, EchoServers};
use crate::ours::backend::Backend;
use crate::{Description, Setup, StopError, SubjectError, affinity};

/// How much is received at once.
const ROOM: usize = 1 << 14;

/// How many operations may be in flight: one for each of the most connections there may be, and some.
const OPERATIONS: usize = 10_100;

/// Makes servers over one kind of reactor.
#[derive(Clone, Copy, Debug)]
pub struct Echoes<B>(pub B);

/// A server on a thread of its own.
pub struct Echo<B: Backend> {
    worker: WorkerThread<B::Reactor>,
    description: Description,
}

impl<B: Backend<Reactor: IoReactor>> EchoServers for Echoes<B> {
    type Server = Echo<B>;

    fn start(
        &self,
        listener: TcpListener,
        setup: &Setup,
        tasks: u32,
    ) -> Result<Echo<B>, SubjectError> {
        let (Self(backend), cpu) = (*self, setup.worker_cpu);
        let (told, description) = mpsc::sync_channel(1);
        let make_reactor = move || {
            if let Some(cpu) = cpu {
                affinity::pin_current_thread(cpu).map_err(SubjectError::new)?;
            }
            let reactor = backend.open()?;
            // The receiver is there until this function has returned.
            let _ = told.send(B::describe(&reactor));
            Ok(reactor)
        };
        let worker = WorkerConfig::default().operations(OPERATIONS);
        let config = ThreadConfig { worker, timeout: setup.timeout, ..ThreadConfig::default() };
        let worker = WorkerThread::start(config, make_reactor).map_err(|error| match error {
            StartError::Reactor(reason) => reason,
            other => SubjectError::new(other),
        })?;
        let description = description.recv().map_err(SubjectError::new)?;
        drop(worker.remote().spawn_with(move |handle| serve(handle, listener, tasks)));
        Ok(Echo { worker, description })
    }
}

impl<B: Backend> EchoServer for Echo<B> {
    fn describe(&self) -> (String, String) {
        (self.description.backend.clone(), self.description.detail.clone())
    }

    fn stop(self, within: Duration) -> Result<(), StopError> {
        self.worker.stop_within(within).map_err(|error| match error {
            WorkerStopError::TimedOut(_) => {
                StopError::Overdue { left_behind: "its thread, its reactor and its tasks".into() }
            }
            other => StopError::Badly(SubjectError::new(other)),
        })
    }
}

async fn serve<R: IoReactor>(handle: Handle<R>, listener: TcpListener, tasks: u32) {
    for _ in 0..tasks {
        drop(handle.spawn(async {
            loop {
                yield_now().await;
            }
        }));
    }
    let Ok(mut connections) = handle.accept_many(&listener) else { return };
    while let Ok(connection) = connections.next_connection().await {
        let (peer, inner) = (TcpStream::from(connection), handle.clone());
        // Who can't be served sees the connection end.
        drop(handle.spawn(async move { answer(&inner, &peer).await }));
    }
}

async fn answer<R: IoReactor>(handle: &Handle<R>, peer: &TcpStream) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut buffer = vec![0; ROOM].into_boxed_slice();
    loop {
        let (received, filled) = handle.recv(peer, buffer).await;
        let length = received?;
        if length == 0 {
            return Ok(());
        }
        let (sent, rest) = handle.send_all(peer, filled.slice(..length)).await;
        sent?;
        buffer = rest.into_inner();
    }
}
