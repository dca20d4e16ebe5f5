//! The schedulers that this program measures unasked: evenkeel over each of its reactors, and what
//! the machine can do with no scheduler in between.
//!
//! | module | what it holds |
//! |---|---|
//! | [`backend`] | the two reactors, by the name they have on the command line |
//! | [`scheduler`] | a worker over one of them, as a [`Subject`](crate::Subject) |
//! | [`echo`] | a worker as an echo server |
//! | [`bare`] | the reactor alone: the [`Floor`](crate::Floor) |
//! | `hand_over` | one heap node through one atomic pointer |

pub mod backend;
pub mod bare;
pub mod echo;
mod hand_over;
pub mod scheduler;
