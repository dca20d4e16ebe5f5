//! Who is served when: the shared half of a worker, and the rules by which lanes take turns and the
//! reactor is polled.
//!
//! | file | what it holds |
//! |---|---|
//! | `home` | the half of a worker that tasks, wakers and other threads reach |
//! | `home_ref` | a reference to it, counted or into a static |
//! | `context` | which worker ticks on this thread |
//! | `waker` | a task's waker: the cheap local wake, and the other one |
//! | `stealable` | stealable tasks on a worker |
//! | `alone` | what stands in for it without threads |
//! | `crew` | what the workers of a team share |
//! | `idle` | who of a team idles, and who is called |
//! | `join` | join handles |
//! | `in_flight` | the future of an operation |
//! | `slot_timer` | timers of futures that may move from worker to worker |
//! | `start` | a future that is made where it runs |
//! | `turns` | which lane is next |
//! | `poll_budget` | how often a reactor is polled that can't tell whether it has something |
//! | `stride` | how many dispatches pass between two looks at the clock |
//! | `slice` | whether a task that does not give way keeps somebody waiting |
//! | `stats` | what a worker counts |

#[cfg(not(feature = "std"))]
#[allow(unsafe_code)]
mod alone;
#[allow(unsafe_code)]
pub(crate) mod context;
#[cfg(feature = "std")]
#[allow(unsafe_code)]
pub(crate) mod crew;
#[allow(unsafe_code)]
pub(crate) mod home;
#[allow(unsafe_code)]
pub(crate) mod home_ref;
#[cfg(feature = "std")]
pub(crate) mod idle;
#[allow(unsafe_code)]
pub(crate) mod in_flight;
#[allow(unsafe_code)]
pub(crate) mod join;
pub(crate) mod poll_budget;
pub(crate) mod slice;
#[cfg(feature = "std")]
#[allow(unsafe_code)]
pub(crate) mod slot_timer;
#[allow(unsafe_code)]
pub(crate) mod start;
pub(crate) mod stats;
#[cfg(feature = "std")]
#[allow(unsafe_code)]
pub(crate) mod stealable;
pub(crate) mod stride;
pub(crate) mod turns;
#[allow(unsafe_code)]
pub(crate) mod waker;
