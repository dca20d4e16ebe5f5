//! The future of an operation that holds its buffers in its slot.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use super::IoReactor;
use super::operation::Operation;
use crate::handle::{Handle, NotStarted};
use crate::operation::Held;
use crate::reactor::Token;
use crate::time::Instant;

/// `ECANCELED` of Linux, the end of a cancelled operation.
const CANCELED: i32 = 125;

/// What is asked for, with all that it needs. Which there are is said by the methods of
/// [`Handle`]; it can't be implemented elsewhere.
pub trait Request: sealed::Request {}

impl<Q: sealed::Request> Request for Q {}

pub(super) mod sealed {
    use super::{Operation, io};

    pub trait Request: Sized + 'static {
        /// What comes of it: the result, and what was lent.
        type Output;

        /// The operation, made when this is at the place where it stays until that has ended.
        fn operation(&mut self) -> io::Result<Operation>;

        /// The reactor has not taken the operation that was made.
        fn refused(&mut self) {}

        /// It has ended, or never begun.
        fn finish(self, result: io::Result<i32>) -> Self::Output;

        /// It has ended, and nobody waits for it any more.
        fn abandon(self, result: io::Result<i32>) {
            drop(self.finish(result));
        }
    }
}

impl<Q: sealed::Request> Held for Q {
    fn abandon(self, result: i32) {
        sealed::Request::abandon(self, checked(result));
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// An operation on a descriptor: made by the methods of [`Handle`], such as [`Handle::recv`].
///
/// It does nothing before it is first polled, and submits the operation then. Its output brings the
/// result and whatever was lent, such as the buffer, whatever happens. It allocates nothing, and makes
/// no system call but what the reactor makes.
///
/// # Cancelling it
/// Dropping it cancels the operation, if it has begun, and never blocks. What was lent stays with the
/// slot until the reactor has reported the operation's end, and is dropped then. Bytes may have been
/// transferred that nobody will know of. To know, and to have the buffer back, [`cancel`](Self::cancel) it
/// instead, or give it a time, [`within`](Self::within) which it ends.
///
/// The descriptor is held, or borrowed, until the future is gone, and may be closed as soon as it is.
/// Who [forgets](core::mem::forget) the future and then closes a borrowed descriptor gets what was asked
/// for done on who has that number next.
///
/// # Errors
/// The system's, as [`io::Error`]; when the operation was not begun, of the kind `QuotaExceeded` (all
/// operations of the worker are in flight) or `NotConnected` (the worker has ended).
///
/// # Panics
/// If it is polled again after it has given its output; if it is polled from inside the reactor; and if
/// it is polled after the worker has ended without getting the operation back from the kernel within
/// [`WorkerConfig::drain`](crate::WorkerConfig::drain), since then there is no buffer to be given.
#[must_use = "an operation does nothing until it is awaited"]
pub struct Io<'h, R: 'static, F, Q: Request> {
    handle: &'h Handle<R>,
    /// The descriptor is not closed before the operation is left: this is dropped after that.
    fd: F,
    state: State<Q>,
    /// What a cancel is called, if it ends by one.
    ends: Ends,
}

enum State<Q> {
    Unstarted(Q),
    /// Not to be started any more.
    Cancelled(Q),
    InFlight(Token),
    Over,
}

#[derive(Clone, Copy)]
enum Ends {
    Asked,
    TimedOut,
}

impl<R: 'static, F, Q: Request> Unpin for Io<'_, R, F, Q> {}

impl<'h, R: IoReactor + 'static, F, Q: Request> Io<'h, R, F, Q> {
    /// What is asked for, on the descriptor of `fd`.
    pub(super) fn new(handle: &'h Handle<R>, fd: F, request: Q) -> Self {
        Self { handle, fd, state: State::Unstarted(request), ends: Ends::Asked }
    }

    /// Asks for an early end. The output is then the result that the operation has had all the same,
    /// or an error with the number `ECANCELED`, and what was lent, in either case when the reactor
    /// has reported its end: after its next poll, as a rule. Not begun, it does not begin.
    ///
    /// A transfer that was partly done when it was cancelled has that part as its result.
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # {
    /// use std::os::fd::OwnedFd;
    /// use evenkeel::Handle;
    /// use evenkeel::io::IoReactor;
    ///
    /// async fn not_now<R: IoReactor>(handle: &Handle<R>, socket: &OwnedFd, buffer: Vec<u8>) -> Vec<u8> {
    ///     let receive = handle.recv(socket, buffer);
    ///     let (result, buffer) = receive.cancel().await;
    ///     assert_eq!(result.unwrap_err().raw_os_error(), Some(125)); // ECANCELED
    ///     buffer
    /// }
    /// # }
    /// ```
    ///
    /// # Panics
    /// If called from inside the reactor.
    pub fn cancel(mut self) -> Self {
        self.ask_for_end();
        self
    }

    /// The same operation, which is cancelled at this time if it has not ended by then. Ended so, its
    /// error is of the kind `TimedOut`. What was lent comes back in either case.
    pub async fn until(mut self, deadline: Instant) -> Q::Output {
        let mut sleep = pin!(self.handle.sleep_until(deadline));
        let in_time = poll_fn(|context| match Pin::new(&mut self).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        if let Some(output) = in_time.await {
            return output;
        }
        self.ends = Ends::TimedOut;
        self.ask_for_end();
        self.await
    }

    /// The same operation, which is cancelled so long after now if it has not ended by then: see
    /// [`until`](Self::until).
    ///
    /// ```
    /// # #[cfg(feature = "testing")]
    /// # {
    /// use std::io;
    /// use std::net::TcpStream;
    /// use std::time::Duration;
    /// use evenkeel::Handle;
    /// use evenkeel::io::IoReactor;
    ///
    /// async fn greeting<R: IoReactor>(handle: &Handle<R>, peer: &TcpStream) -> io::Result<Vec<u8>> {
    ///     let receive = handle.recv(peer, Vec::with_capacity(512));
    ///     let (received, buffer) = receive.within(Duration::from_secs(5)).await;
    ///     received.map(|_| buffer)
    /// }
    /// # }
    /// ```
    pub fn within(self, span: Duration) -> impl Future<Output = Q::Output> + use<'h, R, F, Q> {
        let deadline = self.handle.now() + span;
        self.until(deadline)
    }

    /// The operation's token while it is in flight.
    pub(super) fn token(&self) -> Option<Token> {
        match self.state {
            State::InFlight(token) => Some(token),
            State::Unstarted(_) | State::Cancelled(_) | State::Over => None,
        }
    }

    /// What holds the descriptor.
    pub(super) fn descriptor(&self) -> &F {
        &self.fd
    }

    fn ask_for_end(&mut self) {
        self.state = match core::mem::replace(&mut self.state, State::Over) {
            State::Unstarted(request) => State::Cancelled(request),
            State::InFlight(token) => {
                self.handle.cancel(token);
                State::InFlight(token)
            }
            state @ (State::Cancelled(_) | State::Over) => state,
        };
    }

    fn start(&mut self, request: Q) -> Poll<Q::Output> {
        match self.handle.submit_holding(request, sealed::Request::operation) {
            Ok(token) => {
                self.state = State::InFlight(token);
                Poll::Pending
            }
            Err((mut request, why)) => {
                request.refused();
                Poll::Ready(request.finish(Err(not_started(why))))
            }
        }
    }

    fn ended(&self, result: i32) -> io::Result<i32> {
        match self.ends {
            Ends::TimedOut if result == -CANCELED => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the operation did not end in time and was cancelled",
            )),
            Ends::TimedOut | Ends::Asked => checked(result),
        }
    }
}

fn not_started(why: NotStarted<io::Error>) -> io::Error {
    match why {
        NotStarted::Refused(error) => error,
        NotStarted::Full { capacity } => io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "all {capacity} operations of the worker are in flight; await one of them, or give \
                 the worker more room"
            ),
        ),
        NotStarted::Ended => io::Error::new(
            io::ErrorKind::NotConnected,
            "the worker has ended and takes no more operations",
        ),
    }
}

impl<R: IoReactor + 'static, F, Q: Request> Future for Io<'_, R, F, Q> {
    type Output = Q::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Q::Output> {
        let this = self.get_mut();
        match core::mem::replace(&mut this.state, State::Over) {
            State::Unstarted(request) => {
                if let Poll::Ready(output) = this.start(request) {
                    return Poll::Ready(output);
                }
            }
            State::Cancelled(request) => {
                return Poll::Ready(request.finish(this.ended(-CANCELED)));
            }
            state @ State::InFlight(_) => this.state = state,
            State::Over => panic!("an operation was polled after it had given its output"),
        }
        let State::InFlight(token) = this.state else { unreachable!("it is in flight by now") };
        // SAFETY: it was submitted by `start`, with a `Q`, and is left by this alone: here, after
        // which the state is `Over`, or in the drop. A handle stays on the worker's thread, and so
        // does this, which refers to one.
        let polled = unsafe { this.handle.poll_holding::<Q>(token, context.waker()) };
        polled.map(|ended| {
            this.state = State::Over;
            let (request, result) = ended.expect(
                "an operation was awaited whose worker had ended without getting it back from the \
                 kernel",
            );
            request.finish(this.ended(result))
        })
    }
}

impl<R: 'static, F, Q: Request> Drop for Io<'_, R, F, Q> {
    fn drop(&mut self) {
        if let State::InFlight(token) = self.state {
            // SAFETY: as in the poll; this is the future's end.
            unsafe { self.handle.leave(token) };
        }
    }
}

impl<R, F: fmt::Debug, Q: Request> fmt::Debug for Io<'_, R, F, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Unstarted(_) => "unstarted",
            State::Cancelled(_) => "cancelled",
            State::InFlight(_) => "in flight",
            State::Over => "over",
        };
        f.debug_struct("Io").field("fd", &self.fd).field("state", &state).finish_non_exhaustive()
    }
}
