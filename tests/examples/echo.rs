//! Sends back what comes.
//!
//! ```sh
//! cargo run --release --example echo -- --backend uring 127.0.0.1:7000
//! ```

mod shared;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;

use evenkeel::Handle;
use evenkeel::io::{Buffer, IoReactor};

struct Echo {
    address: String,
}

impl shared::Program for Echo {
    const USAGE: &'static str = "ADDRESS";

    fn new(arguments: &[String]) -> Result<Self, String> {
        match arguments {
            [address] => Ok(Self { address: address.clone() }),
            _ => Err("one address is needed".into()),
        }
    }

    fn listens_at(&self) -> &str {
        &self.address
    }

    fn serve<R: IoReactor>(
        &self,
        handle: Handle<R>,
        peer: TcpStream,
    ) -> impl Future<Output = io::Result<()>> + 'static {
        echo(handle, peer)
    }
}

/// One buffer for a connection: who does not read what comes back is not read from.
async fn echo<R: IoReactor>(handle: Handle<R>, peer: TcpStream) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut buffer = vec![0; 16 << 10];
    loop {
        let (received, filled) = handle.recv(&peer, buffer).await;
        let length = received?;
        if length == 0 {
            return handle.shutdown(&peer, Shutdown::Write).await;
        }
        let (sent, rest) = handle.send_all(&peer, filled.slice(..length)).await;
        sent?;
        buffer = rest.into_inner();
    }
}

fn main() -> ExitCode {
    shared::main::<Echo>()
}
