#![forbid(unsafe_code)]
//! Flows: one operation that gives many results.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use super::IoReactor;
use super::future::Io;
use super::pool::{BufferPool, Received};
use super::requests::{AcceptMany, NextAccepted, NextReceived, ReceiveMany};
use crate::handle::Handle;
use crate::reactor::Token;

/// What a flow has of its requests: one is in flight at a time, so that what comes keeps its order,
/// and what came when nobody waited any more is for the next.
#[derive(Debug)]
pub(super) struct Line<T> {
    items: RefCell<VecDeque<T>>,
    state: Cell<InLine>,
    waits: RefCell<Option<Waker>>,
}

/// Whether a request is in flight, or dropped and not ended yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InLine {
    Nobody,
    One,
}

impl<T> Line<T> {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            items: RefCell::default(),
            state: Cell::new(InLine::Nobody),
            waits: RefCell::default(),
        })
    }

    /// An item that nobody waits for, or the turn to ask for one.
    async fn turn(self: &Rc<Self>) -> Turn<T> {
        poll_fn(|context| {
            if let Some(item) = self.items.borrow_mut().pop_front() {
                return Poll::Ready(Turn::Item(item));
            }
            if self.state.get() == InLine::Nobody {
                self.state.set(InLine::One);
                return Poll::Ready(Turn::Ask(Ticket(Rc::clone(self))));
            }
            *self.waits.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

enum Turn<T> {
    Item(T),
    Ask(Ticket<T>),
}

/// The one request of a flow that is in flight. It goes along with it, and is dropped at its end.
#[derive(Debug)]
pub(super) struct Ticket<T>(Rc<Line<T>>);

impl<T> Ticket<T> {
    /// What has come for nobody.
    pub(super) fn leave(&self, item: T) {
        self.0.items.borrow_mut().push_back(item);
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        self.0.state.set(InLine::Nobody);
        let waits = self.0.waits.borrow_mut().take();
        waits.into_iter().for_each(Waker::wake);
    }
}

/// A flow of connections, made by [`Handle::accept_many`].
///
/// Dropping it cancels the flow. Connections that were accepted and not taken are closed then, and so
/// is one that comes before the cancel has reached the kernel, which it does with the reactor's next
/// poll.
pub struct Accepts<'h, R: 'static, F> {
    handle: &'h Handle<R>,
    token: Token,
    line: Rc<Line<OwnedFd>>,
    flow: Io<'h, R, F, AcceptMany>,
}

impl<'h, R: IoReactor + 'static, F: AsFd> Accepts<'h, R, F> {
    pub(super) fn open(handle: &'h Handle<R>, listener: F) -> io::Result<Self> {
        let number = listener.as_fd().as_raw_fd();
        let mut flow = Io::new(handle, listener, AcceptMany { fd: number });
        let token = begin(&mut flow)?;
        Ok(Self { handle, token, line: Line::new(), flow })
    }

    /// The next connection, when there is one. Dropping the future loses none.
    ///
    /// # Errors
    /// The system's. The next call tries anew: where the process has no descriptor left (`EMFILE`)
    /// connections wait until it has, so give way for a while.
    pub async fn next_connection(&mut self) -> io::Result<OwnedFd> {
        match self.line.turn().await {
            Turn::Item(connection) => Ok(connection),
            Turn::Ask(ticket) => {
                let request = NextAccepted { flow: self.token, unused: None, ticket };
                Io::new(self.handle, (), request).await
            }
        }
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
    line: Rc<Line<Received>>,
    flow: Io<'h, R, F, ReceiveMany>,
}

impl<'h, R: IoReactor + 'static, F: AsFd> Receives<'h, R, F> {
    pub(super) fn open(handle: &'h Handle<R>, socket: F, pool: &BufferPool) -> io::Result<Self> {
        let number = socket.as_fd().as_raw_fd();
        let mut flow = Io::new(handle, socket, ReceiveMany { fd: number, pool: pool.clone() });
        let token = begin(&mut flow)?;
        Ok(Self { handle, token, pool: pool.clone(), line: Line::new(), flow })
    }

    /// The next piece, when there is one; none at the end of the stream. Dropping the future loses
    /// none, as long as the flow is there.
    ///
    /// # Errors
    /// The system's. `ENOBUFS` if all buffers of the pool are lent: drop a piece and try again.
    pub async fn next_piece(&mut self) -> io::Result<Option<Received>> {
        match self.line.turn().await {
            Turn::Item(piece) => Ok(Some(piece)),
            Turn::Ask(ticket) => {
                let (flow, pool) = (self.token, self.pool.clone());
                let request = NextReceived { flow, pool, buffer: None, ticket };
                Io::new(self.handle, (), request).await
            }
        }
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
