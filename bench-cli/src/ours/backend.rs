#![forbid(unsafe_code)]
//! The reactors that come with evenkeel.

use std::io;

use evenkeel::Reactor;
use evenkeel::io::Operation;
use evenkeel_epoll::{EpollReactor, Looks};
use evenkeel_uring::UringReactor;

use crate::{Description, Readiness, SubjectError};

/// The share of its time that a worker gives to polls that find nothing.
const POLL_SHARE: f64 = 0.05;

/// A kind of reactor.
pub trait Backend: Copy + Send + 'static {
    /// The reactor.
    type Reactor: Reactor<Operation = Operation, Error = io::Error> + 'static;

    /// Makes one, on the thread that will run it.
    ///
    /// # Errors
    ///
    /// What happened, why, and what to do.
    fn open(self) -> Result<Self::Reactor, SubjectError>;

    /// What was really granted to it.
    fn describe(reactor: &Self::Reactor) -> Description;
}

/// `io_uring`.
#[derive(Clone, Copy, Debug)]
pub struct Uring;

impl Backend for Uring {
    type Reactor = UringReactor;

    fn open(self) -> Result<UringReactor, SubjectError> {
        UringReactor::new().map_err(SubjectError::new)
    }

    fn describe(reactor: &UringReactor) -> Description {
        Description {
            backend: reactor.name().into(),
            detail: reactor.detail().to_string(),
            readiness: Readiness::Known,
        }
    }
}

/// epoll.
#[derive(Clone, Copy, Debug)]
pub struct Epoll;

impl Backend for Epoll {
    type Reactor = EpollReactor;

    fn open(self) -> Result<EpollReactor, SubjectError> {
        EpollReactor::new().map_err(SubjectError::new)
    }

    fn describe(reactor: &EpollReactor) -> Description {
        Description {
            backend: reactor.name().into(),
            detail: reactor.detail().to_string(),
            readiness: match reactor.looks() {
                Looks::FromMemory => Readiness::Known,
                Looks::BySystemCall => Readiness::Unknown { poll_share: POLL_SHARE },
            },
        }
    }
}
