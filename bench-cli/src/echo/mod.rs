//! The workload `echo`: connections over which a server sends back what it gets.
//!
//! To have another server measured, implement [`EchoServers`] and [`EchoServer`]; the client sees
//! nothing else of it.
//!
//! ```text
//! report (text, json)      what is printed
//!    │
//! run                      a server, a client, and an end
//!    │
//! client ── connection     the load, and what came of it
//!    │
//! failure, pattern, plan, server
//! ```

mod client;
mod connection;
mod failure;
mod pattern;
pub mod plan;
pub mod report;
mod run;
mod server;

pub use client::Load;
pub use failure::EchoFailure;
pub use plan::{EchoPlan, Loop};
pub use report::EchoReport;
pub use run::run;
pub use server::{EchoServer, EchoServers};
