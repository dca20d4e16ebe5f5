#![forbid(unsafe_code)]
//! Flows: one operation that gives many results.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::IoReactor;
use super::future::Io;
use super::pool::BufferPool;
use super::requests::{AcceptMany, NextAccepted, NextReceived, ReceiveMany};
use crate::handle::Handle;
use crate::reactor::Token;

/// A flow of connections, made by [`Handle::accept_many`].
///
/// Dropping it cancels the flow. Connections that were accepted and not taken are closed then.
pub struct Accepts<'h, R: 'static, F> {
    handle: &'h Handle<R>,
    token: Token,
    flow: Io<'h, R, F, AcceptMany>,
}

impl<'h, R: IoReactor + 'static, F: AsFd> Accepts<'h, R, F> {
    pub(super) fn open(handle: &'h Handle<R>, listener: F) -> io::Result<Self> {
        let number = listener.as_fd().as_raw_fd();
        let mut flow = Io::new(handle, listener, AcceptMany { fd: number });
        let token = begin(&mut flow)?;
        Ok(Self { handle, token, flow })
    }

    /// The next connection, oldest first, when there is one. Dropping the future loses none.
    ///
    /// # Errors
    /// The system's. The next call tries anew: where the process has no descriptor left (`EMFILE`)
    /// connections wait until it has, so give way for a while.
    pub fn next_connection(&mut self) -> Io<'_, R, (), NextAccepted> {
        Io::new(self.handle, (), NextAccepted { flow: self.token, unused: None })
    }

    /// The listener.
    pub fn get_ref(&self) -> &F {
        self.flow.descriptor()
    }
}

/// A flow of received pieces, made by [`Handle::receive_many`].
///
/// Dropping it cancels the flow. What was received and not taken is lost then.
pub struct Receives<'h, R: 'static, F> {
    handle: &'h Handle<R>,
    token: Token,
    pool: BufferPool,
    flow: Io<'h, R, F, ReceiveMany>,
}

impl<'h, R: IoReactor + 'static, F: AsFd> Receives<'h, R, F> {
    pub(super) fn open(handle: &'h Handle<R>, socket: F, pool: &BufferPool) -> io::Result<Self> {
        let number = socket.as_fd().as_raw_fd();
        let mut flow = Io::new(handle, socket, ReceiveMany { fd: number, pool: pool.clone() });
        let token = begin(&mut flow)?;
        Ok(Self { handle, token, pool: pool.clone(), flow })
    }

    /// The next piece, oldest first, when there is one; none at the end of the stream. Dropping the
    /// future loses none.
    ///
    /// # Errors
    /// The system's. `ENOBUFS` if all buffers of the pool are lent: drop a piece and try again.
    pub fn next_piece(&mut self) -> Io<'_, R, (), NextReceived> {
        let request = NextReceived { flow: self.token, pool: self.pool.clone(), buffer: None };
        Io::new(self.handle, (), request)
    }

    /// The socket.
    pub fn get_ref(&self) -> &F {
        self.flow.descriptor()
    }
}

/// Submits the operation of a flow. Nobody waits for its end but by dropping it.
fn begin<R, F, Q>(flow: &mut Io<'_, R, F, Q>) -> io::Result<Token>
where
    R: IoReactor + 'static,
    Q: super::Request<Output = io::Result<()>>,
{
    match Pin::new(&mut *flow).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => Err(error),
        Poll::Ready(Ok(())) => unreachable!("a flow does not end as soon as it begins"),
        Poll::Pending => Ok(flow.token().expect("it is in flight")),
    }
}

impl<R, F: fmt::Debug> fmt::Debug for Accepts<'_, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepts").field("flow", &self.flow).finish_non_exhaustive()
    }
}

impl<R, F: fmt::Debug> fmt::Debug for Receives<'_, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receives").field("flow", &self.flow).finish_non_exhaustive()
    }
}
