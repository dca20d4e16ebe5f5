//! What the examples share: their arguments, a worker over the chosen reactor, and an accept loop that
//! loses nobody when the process runs out of descriptors.

use std::fmt::Display;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use evenkeel::io::IoReactor;
use evenkeel::{Handle, MonotonicClock, Worker, WorkerConfig};
use evenkeel_epoll::EpollReactor;
use evenkeel_uring::UringReactor;

/// `EMFILE` and `ENFILE`: the process, or the system, has no descriptor left.
const NO_DESCRIPTOR: [i32; 2] = [24, 23];

/// How long nobody is accepted then.
const BACK_OFF: Duration = Duration::from_millis(10);

/// A program that serves, made over either reactor.
pub(crate) trait Program {
    /// What its arguments are called, after `--backend`.
    const USAGE: &'static str;

    /// Understands the arguments.
    fn new(arguments: &[String]) -> Result<Self, String>
    where
        Self: Sized;

    /// Where to listen.
    fn listens_at(&self) -> &str;

    /// What becomes of each connection.
    fn serve<R: IoReactor>(
        &self,
        handle: Handle<R>,
        peer: TcpStream,
    ) -> impl Future<Output = io::Result<()>> + 'static;
}

/// Runs a program as its arguments say.
pub(crate) fn main<P: Program + 'static>() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let backend = match arguments.iter().position(|argument| argument == "--backend") {
        None => "auto".to_owned(),
        Some(place) if place + 1 < arguments.len() => {
            arguments.drain(place..=place + 1).next_back().unwrap_or_default()
        }
        Some(_) => return bad_usage::<P>("--backend needs a value: uring, epoll or auto"),
    };
    let program = match P::new(&arguments) {
        Ok(program) => program,
        Err(reason) => return bad_usage::<P>(reason),
    };
    let ran = match backend.as_str() {
        "uring" => UringReactor::new().map_err(io::Error::other).and_then(|it| run(program, it)),
        "epoll" => EpollReactor::new().map_err(io::Error::other).and_then(|it| run(program, it)),
        "auto" => match UringReactor::new() {
            Ok(reactor) => run(program, reactor),
            Err(refused) => {
                eprintln!("epoll in place of io_uring: {refused}");
                EpollReactor::new().map_err(io::Error::other).and_then(|it| run(program, it))
            }
        },
        other => {
            let reason = format!("--backend must be uring, epoll or auto, not '{other}'");
            return bad_usage::<P>(reason);
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bad_usage<P: Program>(reason: impl Display) -> ExitCode {
    eprintln!("{reason}; usage: [--backend uring|epoll|auto] {}", P::USAGE);
    ExitCode::from(2)
}

fn run<P: Program + 'static, R: IoReactor + 'static>(program: P, reactor: R) -> io::Result<()> {
    let listener = TcpListener::bind(program.listens_at()).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", program.listens_at()))
    })?;
    // The first line, for who gave port 0.
    println!("{}", listener.local_addr()?);
    let config = WorkerConfig::default().operations(16_384);
    let mut worker = Worker::new(reactor, MonotonicClock::new(), config);
    let handle = worker.handle();
    drop(worker.handle().spawn(async move {
        if let Err(error) = accept(program, &handle, &listener).await {
            eprintln!("nobody is accepted any more: {error}");
            handle.remote().stop();
        }
    }));
    worker.run()
}

/// Takes connections, oldest first, for ever. Where there is no descriptor for one, it waits in the
/// listener's queue until there is.
async fn accept<P: Program, R: IoReactor>(
    program: P,
    handle: &Handle<R>,
    listener: &TcpListener,
) -> io::Result<()> {
    let mut connections = handle.accept_many(listener)?;
    loop {
        match connections.next_connection().await {
            Ok(connection) => {
                let service = program.serve(handle.clone(), TcpStream::from(connection));
                drop(handle.spawn(async move {
                    if let Err(error) = service.await {
                        eprintln!("a connection failed: {error}");
                    }
                }));
            }
            Err(error) if error.raw_os_error().is_some_and(|it| NO_DESCRIPTOR.contains(&it)) => {
                handle.sleep(BACK_OFF).await;
            }
            // It was gone before it was taken.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}
