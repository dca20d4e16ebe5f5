//! Descriptors on virtual time: a simulated kernel, and a reactor over it that may be as unpleasant
//! as real ones are.
//!
//! | file | what it holds |
//! |---|---|
//! | `kernel` | descriptors, and what a call on them does |
//! | `reactor` | operations in flight: what takes how long, what goes wrong |
//! | `random` | numbers from a seed |

mod kernel;
mod random;
mod reactor;

pub use random::Random;
pub use reactor::{Faults, SimIo, SimIoReactor};
