//! What a runtime's author implements to have an echo server measured.

use std::net::TcpListener;
use std::time::Duration;

use crate::{Setup, StopError, SubjectError};

/// Makes servers of one kind.
pub trait EchoServers {
    /// The kind.
    type Server: EchoServer;

    /// Starts a server with one worker on a thread of its own, pinned as `setup` says. It accepts
    /// whoever comes to `listener`, which blocks as it is made, and sends back what it gets, on each
    /// connection until the peer sends no more. `TCP_NODELAY` is to be set. Beside that, `tasks` tasks
    /// on the same worker do nothing but yield.
    ///
    /// # Errors
    ///
    /// Why there is none; also when it did not run within `setup.timeout`.
    fn start(
        &self,
        listener: TcpListener,
        setup: &Setup,
        tasks: u32,
    ) -> Result<Self::Server, SubjectError>;
}

/// A running server.
pub trait EchoServer {
    /// One word, and what was really granted.
    fn describe(&self) -> (String, String);

    /// Shuts it down and joins its thread, whatever connections there are.
    ///
    /// # Errors
    ///
    /// [`StopError::Overdue`] when that was not done within the bound.
    fn stop(self, within: Duration) -> Result<(), StopError>;
}
