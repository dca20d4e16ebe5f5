//! What the reactor promises, one test for each promise, in every mode that the kernel grants.

mod cancel;
mod completions;
mod flows;
mod lending;
mod notifier;
mod ownership;
mod pressure;
mod readiness;
mod refusal;
mod support;
mod wait;
