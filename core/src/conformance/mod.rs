//! What a queue, or a reactor, owes to whoever uses it, as checks that any implementation can be put
//! to.
//!
//! | file | what it holds |
//! |---|---|
//! | `ledger` | what the kit puts into a queue, and what became of it |
//! | `rules` | the rules, and how a breach is told |
//! | `sequence` | the checks that one thread makes, the same for both kinds |
//! | `run_queue` | the kit for run queues |
//! | `inbox` | the kit for inboxes: the same checks, and those that take threads |
//! | `reactor` | the kit for reactors |
//! | `io` | the kit for reactors of operations on descriptors |
//! | `ours` | our own queues, put to it |
//! | `faulty` | queues with a fault, each of which has to be found out |

#[cfg(all(test, not(loom), feature = "std"))]
#[allow(unsafe_code)]
mod faulty;
#[allow(unsafe_code)]
mod inbox;
#[cfg(feature = "io")]
pub mod io;
mod ledger;
#[cfg(all(test, not(loom)))]
#[allow(unsafe_code)]
mod ours;
pub mod reactor;
mod rules;
mod run_queue;
mod sequence;

pub use inbox::inbox;
pub use ledger::Parcel;
pub use run_queue::run_queue;

/// Where counters begin: at nothing, and where those of 16, 32 and 64 bits are about to wrap.
const STARTS: [u64; 4] = [0, (1 << 16) - 3, WRAPS_AT_32_BITS, u64::MAX - 2];

const WRAPS_AT_32_BITS: u64 = (1 << 32) - 3;
