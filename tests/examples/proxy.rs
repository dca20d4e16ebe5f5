//! Passes on what comes, in both directions.
//!
//! ```sh
//! cargo run --release --example proxy -- --backend epoll 127.0.0.1:7001 127.0.0.1:7000
//! ```

mod shared;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;

use evenkeel::Handle;
use evenkeel::io::{Buffer, IoReactor};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

struct Proxy {
    address: String,
    target: SocketAddr,
}

impl shared::Program for Proxy {
    const USAGE: &'static str = "ADDRESS TARGET";

    fn new(arguments: &[String]) -> Result<Self, String> {
        let [address, target] = arguments else { return Err("two addresses are needed".into()) };
        let target = target.parse().map_err(|error| format!("{target}: {error}"))?;
        Ok(Self { address: address.clone(), target })
    }

    fn listens_at(&self) -> &str {
        &self.address
    }

    fn serve<R: IoReactor>(
        &self,
        handle: Handle<R>,
        peer: TcpStream,
    ) -> impl Future<Output = io::Result<()>> + 'static {
        proxy(handle, peer, self.target)
    }
}

async fn proxy<R: IoReactor>(
    handle: Handle<R>,
    client: TcpStream,
    target: SocketAddr,
) -> io::Result<()> {
    let server = connect(&handle, target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client, server) = (Rc::new(client), Rc::new(server));
    // Each direction is a task of its own: one that is full does not hold up the other.
    let upwards = {
        let (handle, client, server) = (handle.clone(), Rc::clone(&client), Rc::clone(&server));
        let spawner = handle.clone();
        spawner.spawn(async move { pass_on(&handle, &client, &server).await })
    };
    let downwards = pass_on(&handle, &server, &client).await;
    // Where one direction has failed, so has the other.
    if downwards.is_err() {
        upwards.abort();
    }
    match upwards.await {
        Ok(upwards) => downwards.and(upwards),
        Err(_) => downwards,
    }
}

async fn connect<R: IoReactor>(handle: &Handle<R>, target: SocketAddr) -> io::Result<TcpStream> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    handle.connect(&socket, target).await?;
    Ok(TcpStream::from(socket))
}

/// Until there is no more, and says so to the receiver. If it fails the two know it at once.
async fn pass_on<R: IoReactor>(
    handle: &Handle<R>,
    from: &TcpStream,
    to: &TcpStream,
) -> io::Result<()> {
    let passed = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let (received, filled) = handle.recv(from, buffer).await;
            let length = received?;
            if length == 0 {
                return handle.shutdown(to, Shutdown::Write).await;
            }
            let (sent, rest) = handle.send_all(to, filled.slice(..length)).await;
            sent?;
            buffer = rest.into_inner();
        }
    };
    let passed = passed.await;
    if passed.is_err() {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
    passed
}

fn main() -> ExitCode {
    shared::main::<Proxy>()
}
