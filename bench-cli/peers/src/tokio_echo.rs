//! tokio as an echo server: its single-threaded runtime on a thread of its own.

use std::io;
use std::net::TcpListener;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_bench::echo::{EchoServer, EchoServers};
use evenkeel_bench::{Setup, StopError, SubjectError, affinity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// How much is read at once: as much as by ours.
const ROOM: usize = 1 << 14;

/// Makes tokio's servers.
pub struct Tokio;

/// One of them.
pub struct Server {
    stop: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
    thread: JoinHandle<()>,
}

impl EchoServers for Tokio {
    type Server = Server;

    fn start(
        &self,
        listener: TcpListener,
        setup: &Setup,
        tasks: u32,
    ) -> Result<Server, SubjectError> {
        listener.set_nonblocking(true).map_err(SubjectError::new)?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        let (started, start) = mpsc::channel();
        let cpu = setup.worker_cpu;
        let thread = std::thread::spawn(move || {
            let runtime = cpu
                .map_or(Ok(()), |cpu| affinity::pin_current_thread(cpu).map_err(io::Error::from))
                .and_then(|()| Builder::new_current_thread().enable_io().build());
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener);
                let listener = match listener {
                    Ok(listener) => listener,
                    Err(error) => return drop(started.send(Err(error))),
                };
                let _ = started.send(Ok(()));
                for _ in 0..tasks {
                    tokio::spawn(async {
                        loop {
                            tokio::task::yield_now().await;
                        }
                    });
                }
                tokio::spawn(async move {
                    while let Ok((peer, _)) = listener.accept().await {
                        tokio::spawn(answer(peer));
                    }
                });
                let _ = stopped.await;
            });
            drop(runtime);
            let _ = end.send(());
        });
        match start.recv_timeout(setup.timeout) {
            Ok(Ok(())) => Ok(Server { stop, ended, thread }),
            Ok(Err(error)) => Err(SubjectError::new(error)),
            Err(error) => Err(SubjectError::new(error)),
        }
    }
}

async fn answer(mut peer: TcpStream) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut buffer = vec![0; ROOM];
    loop {
        let length = peer.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        peer.write_all(&buffer[..length]).await?;
    }
}

impl EchoServer for Server {
    fn describe(&self) -> (String, String) {
        ("tokio".into(), "current_thread".into())
    }

    fn stop(self, within: Duration) -> Result<(), StopError> {
        // It fails if the server has ended, which the wait tells as well.
        let _ = self.stop.send(());
        match self.ended.recv_timeout(within) {
            Err(RecvTimeoutError::Timeout) => {
                return Err(StopError::Overdue { left_behind: "its thread and its tasks".into() });
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
        }
        let panicked = |_| StopError::Badly(SubjectError::new("its thread panicked"));
        self.thread.join().map_err(panicked)
    }
}
