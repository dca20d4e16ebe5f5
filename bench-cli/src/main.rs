//! `bench-cli`: measures the service latency of evenkeel's schedulers.

use std::env;
use std::process::ExitCode;

use evenkeel_bench::args::{self, EchoOptions, Options};
use evenkeel_bench::command::{self, Error};
use evenkeel_bench::echo::EchoReport;
use evenkeel_bench::ours::backend::{Backend, Epoll, Uring};
use evenkeel_bench::ours::bare::Bare;
use evenkeel_bench::ours::echo::Echoes;
use evenkeel_bench::ours::scheduler::Schedulers;
use evenkeel_bench::report::Report;

fn main() -> ExitCode {
    command::main(env::args_os().skip(1), measure, echo)
}

/// The backend that there is, and in place of which.
enum Chosen {
    Uring,
    Epoll { instead_of: Option<String> },
}

/// Asked before the first trial, so that a refusal is told as what it is.
fn choose(backend: args::Backend) -> Result<Chosen, Error> {
    let uring = || Uring.open().map(drop);
    match backend {
        args::Backend::Uring => match uring() {
            Ok(()) => Ok(Chosen::Uring),
            Err(reason) => Err(Error::Unavailable(format!("{reason} (--backend epoll)"))),
        },
        args::Backend::Epoll => Ok(Chosen::Epoll { instead_of: None }),
        args::Backend::Auto => match uring() {
            Ok(()) => Ok(Chosen::Uring),
            Err(reason) => {
                command::say(format_args!("measuring epoll instead: {reason}"));
                Ok(Chosen::Epoll { instead_of: Some(format!("uring: {reason}")) })
            }
        },
    }
}

fn measure(options: &Options) -> Result<Report, Error> {
    match choose(options.backend)? {
        Chosen::Uring => command::measure(options, &Schedulers(Uring), &Bare(Uring), None),
        Chosen::Epoll { instead_of } => {
            command::measure(options, &Schedulers(Epoll), &Bare(Epoll), instead_of)
        }
    }
}

fn echo(options: &EchoOptions) -> Result<EchoReport, Error> {
    match choose(options.backend)? {
        Chosen::Uring => command::echo(options, &Echoes(Uring), None),
        Chosen::Epoll { instead_of } => command::echo(options, &Echoes(Epoll), instead_of),
    }
}
