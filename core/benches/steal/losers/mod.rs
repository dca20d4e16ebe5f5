//! Algorithms that were not taken, for the comparison alone: they have no overflow, and of their
//! atomics only what the measurement needs is argued.

pub(crate) mod bwos;
pub(crate) mod ring;
