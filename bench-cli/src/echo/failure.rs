//! A run that failed, told in one line.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::{StopError, SubjectError};

/// Why there is nothing to report.
#[derive(Debug)]
pub enum EchoFailure {
    /// The measuring thread could not be bound to this CPU.
    Pin(usize, io::Error),
    /// The system lacks what the client needs: which call failed.
    System(&'static str, io::Error),
    /// The server could not be started.
    Server(SubjectError),
    /// A connection could not be made.
    Connect(u32, io::Error),
    /// An answer differs from its request.
    Mismatch {
        /// On this connection, from 0.
        connection: u32,
        /// The how manieth, from 0.
        request: u64,
        /// In this byte, from 0.
        offset: usize,
    },
    /// The server closed a connection.
    Closed {
        /// On this connection, from 0.
        connection: u32,
        /// The how manieth, from 0.
        request: u64,
        /// So much of the answer had come.
        received: usize,
    },
    /// A connection failed.
    Broken(u32, io::Error),
    /// More came than was asked for.
    Unasked(u32),
    /// An answer did not come in time.
    Silent {
        /// On this connection, from 0.
        connection: u32,
        /// The how manieth, from 0.
        request: u64,
        /// So much of the answer had come.
        received: usize,
        /// Within this.
        bound: Duration,
    },
    /// The server did not stop as it should.
    Stop(StopError),
}

impl fmt::Display for EchoFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(cpu, error) => {
                write!(f, "cannot bind the measuring thread to CPU {cpu}: {error}")
            }
            Self::System(call, error) => write!(f, "the client cannot work: {call}: {error}"),
            Self::Server(reason) => write!(f, "the echo server could not be started: {reason}"),
            Self::Connect(connection, error) => {
                write!(f, "connection {connection} could not be made: {error}")?;
                if error.raw_os_error() == Some(24) {
                    f.write_str("; raise the limit of open files (ulimit -n), two for each")?;
                }
                Ok(())
            }
            Self::Mismatch { connection, request, offset } => write!(
                f,
                "the answer to request {request} of connection {connection} differs from it in \
                 byte {offset}"
            ),
            Self::Closed { connection, request, received } => write!(
                f,
                "the server closed connection {connection} after {received} bytes of the answer \
                 to request {request}"
            ),
            Self::Broken(connection, error) => write!(f, "connection {connection} failed: {error}"),
            Self::Unasked(connection) => {
                write!(f, "connection {connection} brought more than was asked for")
            }
            Self::Silent { connection, request, received, bound } => write!(
                f,
                "the answer to request {request} of connection {connection} was not whole within \
                 {} ms (--timeout-ms); {received} bytes of it had come",
                bound.as_millis()
            ),
            Self::Stop(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for EchoFailure {}
