//! Who is served when: the shared half of a worker, and the rules by which lanes take turns and the
//! reactor is polled.
//!
//! | file | what it holds |
//! |---|---|
//! | `home` | the half of a worker that tasks, wakers and other threads reach |
//! | `home_ref` | a reference to it, counted or into a static |
//! | `context` | which worker ticks on this thread |
//! | `waker` | a task's waker: the cheap local wake, and the other one |
//! | `join` | join handles |
//! | `in_flight` | the future of an operation |
//! | `start` | a future that is made where it runs |
//! | `turns` | which lane is next |
//! | `poll_budget` | how often a reactor is polled that can't tell whether it has something |
//! | `stride` | how many dispatches pass between two looks at the clock |
//! | `stats` | what a worker counts |

pub(crate) mod context;
pub(crate) mod home;
pub(crate) mod home_ref;
pub(crate) mod in_flight;
pub(crate) mod join;
pub(crate) mod poll_budget;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stride;
pub(crate) mod turns;
pub(crate) mod waker;
