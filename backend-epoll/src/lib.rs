#![deny(unsafe_code)]
//! evenkeel's reactor over epoll: [`EpollReactor`].
//!
//! It does all operations of [`evenkeel::io`] and means the same by them as the reactor over
//! `io_uring`. Whether something is waiting it can only know by a system call, so it answers
//! [`Readiness::Unknown`] while operations wait, and the worker polls it on a budget of time.
//!
//! # Map
//! Each module imports only modules below it.
//!
//! | module | holds |
//! |---|---|
//! | `reactor` | [`EpollReactor`]: the trait; what a poll does, and in what order |
//! | `promise` | what it vouches for, as an [`IoReactor`](evenkeel::io::IoReactor) |
//! | `registrations` | the registrations by descriptor number, and all that waits on them |
//! | `registrations::turns` | whose turn it is to be tried |
//! | `registrations::transfers` | operations from one attempt to the next |
//! | `registrations::flows` | operations of which many results are taken one by one |
//! | `registration` | one number: what the kernel watches it for, and who waits on it |
//! | `waiters` | the operations in flight, and those that have ended |
//! | `blocking` | the threads that wait for files, and `blocking::jobs`, their queue |
//! | `attempt` | one attempt at an operation |
//! | `calls` | the calls that operations are made of, so that none waits |
//! | `lent` | system calls on lent memory |
//! | `signals` | signals that a library must neither raise nor take |
//! | `paged` | the table under all of these, which grows a page at a time |
//! | `set` | the epoll set: every call on the epoll descriptor |
//! | `aio` | readiness from memory |
//! | `builder` | whether that is to be had: [`Builder`] |
//! | `wait` | a wait's time: what is left of it, and the timer that ends it |
//! | `notifier` | the eventfd that ends a wait from another thread |
//! | `descriptor` | numbers of descriptors, and why they may be used |
//! | `setup` | [`SetupError`] |
//!
//! # Example
//! ```
//! use std::io::Write;
//! use std::os::{fd::AsRawFd, unix::net::UnixStream};
//!
//! use evenkeel::io::{Interest, Operation};
//! use evenkeel::{Completions, Reactor, Token, Wait};
//! use evenkeel_epoll::EpollReactor;
//!
//! let mut reactor = EpollReactor::new()?;
//! let (ours, mut theirs) = UnixStream::pair()?;
//! let readable = Operation::Poll { fd: ours.as_raw_fd(), interest: Interest::Readable };
//! reactor.submit(Token::new(0, 0), readable).map_err(|refused| refused.error)?;
//!
//! theirs.write_all(b"hello")?;
//! let mut found = Completions::new();
//! reactor.poll(Wait::Forever, &mut found)?;
//! assert_eq!(found.as_slice()[0].token, Token::new(0, 0));
//! assert_eq!(found.as_slice()[0].result, 1); // POLLIN
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`Readiness::Unknown`]: evenkeel::Readiness::Unknown

#[allow(unsafe_code)] // calls that rustix lacks, and a ring shared with the kernel
mod aio;
mod attempt;
mod blocking;
mod builder;
mod calls;
#[allow(unsafe_code)] // numbers of descriptors, and why they may be used
mod descriptor;
#[allow(unsafe_code)] // memory that operations lend
mod lent;
mod notifier;
mod paged;
#[allow(unsafe_code)] // the promise of `IoReactor`
mod promise;
mod reactor;
mod registration;
mod registrations;
mod set;
mod setup;
#[allow(unsafe_code)] // calls that rustix lacks
mod signals;
mod wait;
mod waiters;

/// The README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use builder::{Builder, Looks};
pub use reactor::EpollReactor;
pub use setup::SetupError;
