//! Answers every request of HTTP/1.1 with the same few words.
//!
//! ```sh
//! cargo run --release --example http -- 127.0.0.1:8080
//! curl http://127.0.0.1:8080/
//! ```

mod shared;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;

use evenkeel::Handle;
use evenkeel::io::{Buffer, IoReactor};

const BODY: &str = "an even keel\n";

/// The longest head of a request.
const LONGEST: usize = 16 << 10;

struct Http {
    address: String,
}

impl shared::Program for Http {
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
        answer(handle, peer)
    }
}

/// What a request's head asks for.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Get,
    Head,
    Other,
}

/// Whether the connection goes on after the answer.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    KeepAlive,
    Close,
}

struct Request {
    method: Method,
    then: Then,
    /// Its head's bytes, the empty line included.
    length: usize,
}

/// The first request among the bytes, if its head is whole. Bodies are not read: there is nothing to
/// send here.
fn first_request(bytes: &[u8]) -> Option<Request> {
    let length = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..length]).to_ascii_lowercase();
    let method = match head.split(' ').next() {
        Some("get") => Method::Get,
        Some("head") => Method::Head,
        _ => Method::Other,
    };
    let closes = head.lines().any(|line| line.trim_end() == "connection: close")
        || head.lines().next().is_some_and(|line| line.ends_with("http/1.0"));
    let then = if closes || method == Method::Other { Then::Close } else { Then::KeepAlive };
    Some(Request { method, then, length })
}

fn put_answer(request: &Request, answers: &mut Vec<u8>) {
    let (status, body) = match request.method {
        Method::Get | Method::Head => ("200 OK", BODY),
        Method::Other => ("405 Method Not Allowed", "only GET and HEAD\n"),
    };
    let connection = match request.then {
        Then::KeepAlive => "keep-alive",
        Then::Close => "close",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: \
         {connection}\r\n\r\n",
        body.len()
    );
    answers.extend_from_slice(head.as_bytes());
    if request.method != Method::Head {
        answers.extend_from_slice(body.as_bytes());
    }
}

/// All requests that have come are answered together: they may come in a row.
async fn answer<R: IoReactor>(handle: Handle<R>, peer: TcpStream) -> io::Result<()> {
    peer.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(LONGEST);
    let mut answers = Vec::with_capacity(LONGEST);
    loop {
        let before = bytes.len();
        let (received, part) = handle.recv(&peer, bytes.slice(before..)).await;
        bytes = part.into_inner();
        if received? == 0 {
            return handle.shutdown(&peer, Shutdown::Write).await;
        }
        let mut then = Then::KeepAlive;
        while then == Then::KeepAlive
            && let Some(request) = first_request(&bytes)
        {
            put_answer(&request, &mut answers);
            bytes.drain(..request.length);
            then = request.then;
        }
        let (sent, mut rest) = handle.send_all(&peer, answers).await;
        sent?;
        rest.clear();
        answers = rest;
        if then == Then::Close {
            return handle.shutdown(&peer, Shutdown::Both).await;
        }
        if bytes.len() >= LONGEST {
            return Err(io::Error::other("the head of a request is too long"));
        }
    }
}

fn main() -> ExitCode {
    shared::main::<Http>()
}
