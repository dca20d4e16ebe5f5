//! Do a reactor's operations on descriptors mean what they should, whatever the order in which
//! things happen?
//!
//! Write a [`World`], a few lines that make the reactor and descriptors for it, and call [`check`] in a
//! test, with a seed, and better with many. Each rule runs as tasks of a worker, through the futures
//! that a service would use. What the tasks do, and in what order, comes of the seed: a failure names
//! it, and the same seed does the same again, as far as the world does.
//!
//! ```
//! use std::net::SocketAddr;
//! use std::os::fd::OwnedFd;
//! use core::time::Duration;
//! use evenkeel::testing::VirtualClock;
//! use evenkeel::testing::conformance::io::{self, World};
//! use evenkeel::testing::io::{Faults, SimIo, SimIoReactor};
//!
//! struct Simulated {
//!     clock: VirtualClock,
//!     sim: SimIo,
//! }
//!
//! impl World for Simulated {
//!     type Reactor = SimIoReactor;
//!     type Clock = VirtualClock;
//!
//!     fn reactor(&mut self) -> SimIoReactor {
//!         self.sim.reactor(&self.clock)
//!     }
//!     fn clock(&self) -> VirtualClock {
//!         self.clock.clone()
//!     }
//!     fn pass(&mut self) {
//!         self.clock.advance(Duration::from_nanos(500));
//!     }
//!     fn pair(&mut self) -> (OwnedFd, OwnedFd) {
//!         self.sim.pair()
//!     }
//!     fn pipe(&mut self) -> (OwnedFd, OwnedFd) {
//!         self.sim.pipe()
//!     }
//!     fn file(&mut self) -> OwnedFd {
//!         self.sim.file()
//!     }
//!     fn socket(&mut self) -> OwnedFd {
//!         self.sim.socket()
//!     }
//!     fn listener(&mut self) -> (OwnedFd, SocketAddr) {
//!         self.sim.listener()
//!     }
//!     fn datagrams(&mut self) -> (OwnedFd, SocketAddr) {
//!         self.sim.datagrams()
//!     }
//! }
//!
//! let (clock, sim) = (VirtualClock::new(), SimIo::new(7, Faults::USUAL));
//! if let Err(broken) = io::check(&mut Simulated { clock, sim }, 7) {
//!     panic!("{broken}");
//! }
//! ```

#[allow(unsafe_code)]
mod counted;
mod rules;
mod run;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::io::IoReactor;
use crate::time::Clock;

pub use run::{Broken, check, check_rule, rule_names};

/// Where the rules are put to a reactor.
pub trait World {
    /// The reactor.
    type Reactor: IoReactor + 'static;
    /// The clock of its worker.
    type Clock: Clock + 'static;

    /// A new reactor. The one before is gone.
    fn reactor(&mut self) -> Self::Reactor;

    /// The clock that it waits by.
    fn clock(&self) -> Self::Clock;

    /// Time passes between two ticks of the worker: on virtual time somebody has to say so.
    fn pass(&mut self);

    /// Two connected sockets of streams.
    fn pair(&mut self) -> (OwnedFd, OwnedFd);

    /// A pipe's two ends, the one to read from first.
    fn pipe(&mut self) -> (OwnedFd, OwnedFd);

    /// An empty file, to be read and written.
    fn file(&mut self) -> OwnedFd;

    /// A socket of streams that can be connected to a [`listener`](Self::listener).
    fn socket(&mut self) -> OwnedFd;

    /// A socket that connections are taken from, eight at once at least, and where it is.
    fn listener(&mut self) -> (OwnedFd, SocketAddr);

    /// A socket of datagrams, and where it is.
    fn datagrams(&mut self) -> (OwnedFd, SocketAddr);
}
