//! evenkeel's echo servers beside tokio's, in one run and by the same client.
//!
//! The servers take turns, round by round, so that what the machine does besides meets all of them.
//! Absolute figures mean nothing on another machine or another day; the ratios within a round do.
//!
//! ```sh
//! cargo run --release --manifest-path bench-cli/peers/Cargo.toml -- --pin 1,0
//! ```

mod tokio_echo;

use std::fmt::Display;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use evenkeel_bench::Pin;
use evenkeel_bench::echo::{self, EchoFailure, EchoPlan, Load, Loop};
use evenkeel_bench::ours::backend::{Backend, Epoll, Uring};
use evenkeel_bench::ours::echo::Echoes;
use evenkeel_bench::stats::{Percentile, Quartiles};

use crate::tokio_echo::Tokio;

const HELP: &str = "\
Compares echo servers: evenkeel over io_uring and over epoll, and tokio, single-threaded.

Usage: evenkeel-peers [OPTIONS]

  --rounds N           of all servers in turn [5]
  --connections N      [64]
  --bytes N            of each request [64]
  --rate N             requests due in a second
                       [each connection asks again when it is answered]
  --duration-ms N      of each server in each round [1000]
  --tasks N            tasks that yield on the server's worker [0]
  --pin WORKER,REMOTE  CPUs of the server and of the client [not pinned]

Exit status: 0 success; 1 a server failed; 2 bad usage.
";

struct Options {
    rounds: u32,
    plan: EchoPlan,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return failed(2, &format!("{error}; see --help")),
    };
    match compare(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((server, failure)) => failed(1, &format!("{server}: {failure}")),
    }
}

fn failed(status: u8, why: &dyn Display) -> ExitCode {
    eprintln!("evenkeel-peers: {why}");
    ExitCode::from(status)
}

fn options() -> Result<Option<Options>, String> {
    let mut given = pico_args::Arguments::from_env();
    if given.contains(["-h", "--help"]) {
        return Ok(None);
    }
    let mut number = |option: &'static str, otherwise: u32| {
        let number = given.opt_value_from_str(option).map_err(|error| error.to_string())?;
        NonZeroU32::new(number.unwrap_or(otherwise)).ok_or(format!("{option} must not be 0"))
    };
    let rounds = number("--rounds", 5)?.get();
    let connections = number("--connections", 64)?;
    let bytes = number("--bytes", 64)?;
    let duration = Duration::from_millis(number("--duration-ms", 1000)?.get().into());
    let optional = |error: pico_args::Error| error.to_string();
    let rate: Option<NonZeroU32> = given.opt_value_from_str("--rate").map_err(optional)?;
    let tasks: Option<u32> = given.opt_value_from_str("--tasks").map_err(optional)?;
    let pin = given.opt_value_from_fn("--pin", pin).map_err(optional)?;
    if let Some(unexpected) = given.finish().first() {
        return Err(format!("unexpected argument '{}'", unexpected.to_string_lossy()));
    }
    let plan = EchoPlan {
        connections,
        bytes,
        pace: rate.map_or(Loop::Closed, Loop::Open),
        duration,
        tasks: tasks.unwrap_or(0),
        timeout: Duration::from_secs(10),
        pin,
    };
    Ok(Some(Options { rounds, plan }))
}

fn pin(given: &str) -> Result<Pin, String> {
    let numbers = given.split_once(',').and_then(|(worker, remote)| {
        Some(Pin { worker: worker.parse().ok()?, remote: remote.parse().ok()? })
    });
    numbers.ok_or_else(|| format!("--pin must be two CPU numbers, not '{given}'"))
}

/// What one server did, round by round.
struct Rounds {
    server: &'static str,
    per_s: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
}

impl Rounds {
    fn new(server: &'static str) -> Self {
        Self { server, per_s: Vec::new(), p50_us: Vec::new(), p99_us: Vec::new() }
    }

    #[allow(clippy::cast_precision_loss)] // far below 2^52
    fn add(&mut self, plan: &EchoPlan, load: &Load) {
        let latencies = match plan.pace {
            Loop::Closed => &load.from_sent,
            Loop::Open(_) => &load.from_due,
        };
        let at = |percentile| latencies.percentile(percentile).ns as f64 / 1e3;
        self.per_s.push(load.requests as f64 / plan.duration.as_secs_f64());
        self.p50_us.push(at(Percentile::P50));
        self.p99_us.push(at(Percentile::P99));
    }
}

fn compare(options: &Options) -> Result<(), (&'static str, EchoFailure)> {
    let Options { rounds, plan } = options;
    let mut all: Vec<_> = ["tokio", "epoll", "uring"].map(Rounds::new).into();
    if let Err(reason) = Uring.open() {
        eprintln!("evenkeel-peers: without io_uring: {reason}");
        all.pop();
    }
    for round in 0..*rounds {
        // Nobody is always the first after a pause.
        for turn in 0..all.len() {
            let place = (turn + round as usize) % all.len();
            let server = all[place].server;
            let ran = match place {
                0 => echo::run(&Tokio, plan),
                1 => echo::run(&Echoes(Epoll), plan),
                _ => echo::run(&Echoes(Uring), plan),
            };
            let (_, load) = ran.map_err(|failure| (server, failure))?;
            all[place].add(plan, &load);
        }
    }
    print(options, &all);
    Ok(())
}

fn print(options: &Options, all: &[Rounds]) {
    let Options { rounds, plan } = options;
    let load = match plan.pace {
        Loop::Closed => "each asks again when it is answered".into(),
        Loop::Open(rate) => format!("{rate} requests a second are due"),
    };
    println!(
        "echo: {} connections, {} bytes, {load}; {} tasks that yield; {rounds} rounds",
        plan.connections, plan.bytes, plan.tasks
    );
    println!("medians, and the median and quartiles of the ratios to tokio in the same round\n");
    println!(
        "  {:<6} {:>11} {:>10} {:>10}   {:<20} {:<20}",
        "server", "requests/s", "p50 µs", "p99 µs", "requests/s : tokio", "p99 : tokio"
    );
    let tokio = &all[0];
    for server in all {
        let median = |numbers: &[f64]| Quartiles::of(numbers).median;
        let ratio = |ours: &[f64], theirs: &[f64]| {
            let ratios: Vec<_> = ours.iter().zip(theirs).map(|(one, other)| one / other).collect();
            let Quartiles { q1, median, q3 } = Quartiles::of(&ratios);
            format!("{median:.2} [{q1:.2} – {q3:.2}]")
        };
        println!(
            "  {:<6} {:>11.0} {:>10.1} {:>10.1}   {:<20} {:<20}",
            server.server,
            median(&server.per_s),
            median(&server.p50_us),
            median(&server.p99_us),
            ratio(&server.per_s, &tokio.per_s),
            ratio(&server.p99_us, &tokio.p99_us),
        );
    }
}
