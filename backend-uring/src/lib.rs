#![deny(unsafe_code)]
//! The reactor of `evenkeel` over `io_uring`.
//!
//! Its readiness is always known: a few loads from memory that the kernel shares, no system call.
//! A worker can therefore look on every dispatch.
//!
//! ```
//! use std::os::fd::AsRawFd;
//! use std::os::unix::net::UnixStream;
//!
//! use evenkeel::io::{Interest, Operation};
//! use evenkeel::{Completions, Reactor, Readiness, Token, Wait};
//! use evenkeel_uring::UringReactor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reactor = match UringReactor::new() {
//!     Ok(reactor) => reactor,
//!     Err(refused) => {
//!         eprintln!("{refused}");
//!         return Ok(());
//!     }
//! };
//! let (near, far) = UnixStream::pair()?;
//! let readable = Operation::Poll { fd: near.as_raw_fd(), interest: Interest::Readable };
//! reactor.submit(Token::new(0, 0), readable).map_err(|refused| refused.error)?;
//!
//! let mut found = Completions::new();
//! assert_eq!(reactor.poll(Wait::Never, &mut found)?.armed, 1);
//! assert_eq!(reactor.readiness(), Readiness::Quiet);
//!
//! std::io::Write::write_all(&mut &far, b"!")?;
//! reactor.poll(Wait::Forever, &mut found)?;
//! assert_eq!(found.as_slice()[0].token, Token::new(0, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//! ```text
//! builder    sizes, the best mode to try                Builder
//! reactor    the trait: submit, cancel, poll            UringReactor
//! kept       operations, until they have ended
//! call       their requests, and what the answers lead to
//! flow       one request, many items  buffers   for the kernel to take
//! setup      the ladder of modes      notifier  the eventfd        Mode
//! error      why there is none        ring      shared memory      SetupError, Refusal
//! ```
//! Each line imports only lines below it. All unsafe code is in `ring`, `call`, `kept` and `buffers`.
//!
//! # System calls
//! `poll` makes one `io_uring_enter`, or none when what it is to report lies in memory already and
//! nothing is queued. `submit` and `cancel` make none, except when the submission queue is full:
//! then one `io_uring_enter` that does not wait. The first of these calls enables the ring and so
//! binds it to its thread. A wake is one `write`. `readiness` makes none. The first flow of a pool makes
//! one `io_uring_register`, and so does the end of the last. A `cancel` of what is queued still is one
//! `io_uring_enter`.

#[allow(unsafe_code)]
mod buffers;
mod builder;
#[allow(unsafe_code)]
mod call;
mod doubt;
mod error;
mod flow;
#[allow(unsafe_code)]
mod kept;
mod notifier;
mod reactor;
#[allow(unsafe_code)]
mod ring;
mod setup;

pub use builder::Builder;
pub use error::{Refusal, SetupError};
pub use reactor::UringReactor;
pub use setup::Mode;

/// The example in the README is run with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
