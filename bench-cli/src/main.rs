//! `bench-cli`: measures the service latency of evenkeel's schedulers.

use std::env;
use std::process::ExitCode;

use evenkeel_bench::args::{self, Options};
use evenkeel_bench::command::{self, Error};
use evenkeel_bench::ours::backend::{Backend, Epoll, Uring};
use evenkeel_bench::ours::bare::Bare;
use evenkeel_bench::ours::scheduler::Schedulers;
use evenkeel_bench::report::Report;

fn main() -> ExitCode {
    command::main(env::args_os().skip(1), measure)
}

fn measure(options: &Options) -> Result<Report, Error> {
    // Asked before the first trial, so that a refusal is told as what it is.
    let uring = || Uring.open().map(drop);
    match options.backend {
        args::Backend::Uring => {
            uring().map_err(|reason| Error::Unavailable(format!("{reason} (--backend epoll)")))?;
            measure_over(Uring, options, None)
        }
        args::Backend::Epoll => measure_over(Epoll, options, None),
        args::Backend::Auto => match uring() {
            Ok(()) => measure_over(Uring, options, None),
            Err(reason) => {
                command::say(format_args!("measuring epoll instead: {reason}"));
                measure_over(Epoll, options, Some(format!("uring: {reason}")))
            }
        },
    }
}

fn measure_over(
    backend: impl Backend,
    options: &Options,
    instead_of: Option<String>,
) -> Result<Report, Error> {
    command::measure(options, &Schedulers(backend), &Bare(backend), instead_of)
}
