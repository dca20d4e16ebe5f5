//! A board for `evenkeel`: no standard library, no allocator, no operating system.
//!
//! ```text
//! bin/checks   holds the scheduler to what it promises
//! bin/echo     the least that a firmware is made of
//!
//! reactor      the board as a reactor        notifier  sleep
//! signal       from a handler to a task      context
//! uart  clock  the devices                   vectors
//! ring  mmio   what they are made of
//! ```
#![no_std]

pub mod clock;
pub mod context;
mod mmio;
mod notifier;
pub mod reactor;
mod ring;
pub mod signal;
pub mod sleep;
pub mod uart;
pub mod vectors;
