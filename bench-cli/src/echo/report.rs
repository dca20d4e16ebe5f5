//! What a run of the workload `echo` found out, as text and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::client::Load;
use super::plan::{EchoPlan, Loop};
use crate::environment::Environment;
use crate::stats::{Latencies, Percentile, Support, to_f64};

/// The data of a finished run.
#[derive(Clone, Debug)]
pub struct EchoReport {
    /// One word for the server.
    pub backend: String,
    /// What was really granted to it; if another would have been better, also which and why not.
    pub detail: String,
    /// What was done.
    pub plan: EchoPlan,
    /// Where.
    pub environment: Environment,
    /// What came of it.
    pub load: Load,
}

/// The percentiles that are printed, by their names.
const PERCENTILES: [(&str, Percentile); 4] = [
    ("p50", Percentile::P50),
    ("p90", Percentile::P90),
    ("p99", Percentile::P99),
    ("p99.9", Percentile::P99_9),
];

impl EchoReport {
    /// Whole answers in a second.
    #[must_use]
    pub fn requests_per_s(&self) -> f64 {
        to_f64(self.load.requests) * 1e9 / to_f64(self.load.lasting_ns.max(1))
    }

    /// Writes it for people.
    ///
    /// # Errors
    ///
    /// What `out` answered.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { plan, environment, load, .. } = self;
        writeln!(out, "evenkeel {}: echo over TCP on this machine", environment.version)?;
        if cfg!(debug_assertions) && !cfg!(test) {
            writeln!(out, "(a debug build: its figures say nothing of a release build)")?;
        }
        writeln!(out)?;
        let mut line = |word: &str, what: String| writeln!(out, "  {word:<11}  {what}");
        line("backend", format!("{} ({})", self.backend, self.detail))?;
        line("machine", format!("{}, {}", environment.cpu, environment.kernel))?;
        line(
            "threads",
            match plan.pin {
                Some(pin) => format!("server on CPU {}, client on CPU {}", pin.worker, pin.remote),
                None => "not pinned".into(),
            },
        )?;
        line(
            "load",
            format!(
                "{} connections, {} bytes, {}",
                plan.connections,
                plan.bytes,
                match plan.pace {
                    Loop::Closed => "each asks again when it is answered".into(),
                    Loop::Open(rate) => format!("{rate} requests a second are due"),
                }
            ),
        )?;
        line("backlog", format!("{} tasks that yield, on the same worker", plan.tasks))?;
        line(
            "requests",
            format!("{:.0} a second for {} ms", self.requests_per_s(), plan.duration.as_millis()),
        )?;
        if load.unsent > 0 {
            line("unsent", format!("{} were due and found no connection free", load.unsent))?;
        }
        writeln!(out)?;
        let head = PERCENTILES.map(|(name, _)| format!("{name:>10} ")).concat();
        writeln!(out, "  latency (µs)        n {head}       max")?;
        row("from sent", &load.from_sent, out)?;
        if load.from_due.count() > 0 {
            row("from due", &load.from_due, out)?;
        }
        let marked = PERCENTILES
            .iter()
            .any(|(_, p)| load.from_sent.percentile(*p).support != Support::Enough);
        if marked {
            writeln!(out, "\n  *  too few samples to mean anything")?;
        }
        Ok(())
    }

    /// Writes it for programs: one JSON object, in a line.
    ///
    /// # Errors
    ///
    /// What `out` answered.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { plan, environment, load, .. } = self;
        let document = Document {
            schema_version: 1,
            workload: "echo",
            backend: &self.backend,
            backend_detail: &self.detail,
            connections: plan.connections.get(),
            bytes: plan.bytes.get(),
            rate: match plan.pace {
                Loop::Closed => None,
                Loop::Open(rate) => Some(rate.get()),
            },
            duration_ms: plan.duration.as_millis(),
            tasks: plan.tasks,
            pinned: plan.pin.map(|pin| Pinned { worker: pin.worker, remote: pin.remote }),
            requests: load.requests,
            requests_per_s: self.requests_per_s().round(),
            unsent: load.unsent,
            from_sent: Latency::of(&load.from_sent),
            from_due: (load.from_due.count() > 0).then(|| Latency::of(&load.from_due)),
            kernel: &environment.kernel,
            cpu: &environment.cpu,
            version: environment.version,
        };
        serde_json::to_writer(&mut *out, &document)?;
        writeln!(out)
    }
}

fn row(name: &str, latencies: &Latencies, out: &mut impl Write) -> io::Result<()> {
    write!(out, "  {name:<12}{:>9} ", latencies.count())?;
    for (_, percentile) in PERCENTILES {
        let estimate = latencies.percentile(percentile);
        let mark = if estimate.support == Support::Enough { " " } else { "*" };
        write!(out, "{:>10.1}{mark}", to_f64(estimate.ns) / 1e3)?;
    }
    writeln!(out, "{:>10.1}", to_f64(latencies.summary().max_ns) / 1e3)
}

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    workload: &'static str,
    backend: &'a str,
    backend_detail: &'a str,
    connections: u32,
    bytes: u32,
    rate: Option<u32>,
    duration_ms: u128,
    tasks: u32,
    pinned: Option<Pinned>,
    requests: u64,
    requests_per_s: f64,
    unsent: u64,
    from_sent: Latency,
    from_due: Option<Latency>,
    kernel: &'a str,
    cpu: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct Pinned {
    worker: usize,
    remote: usize,
}

#[derive(Serialize)]
struct Latency {
    n: u64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    max_us: f64,
}

impl Latency {
    fn of(latencies: &Latencies) -> Self {
        let micros = |ns| to_f64(ns) / 1e3;
        let at = |percentile| micros(latencies.percentile(percentile).ns);
        let summary = latencies.summary();
        Self {
            n: summary.n,
            min_us: micros(summary.min_ns),
            p50_us: at(Percentile::P50),
            p90_us: at(Percentile::P90),
            p99_us: at(Percentile::P99),
            p99_9_us: at(Percentile::P99_9),
            max_us: micros(summary.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::Pin;

    fn report(pace: Loop) -> EchoReport {
        let mut from_sent = Latencies::new();
        (1..=1000).for_each(|n| from_sent.record(n * 1000));
        EchoReport {
            backend: "uring".into(),
            detail: "DEFER_TASKRUN".into(),
            plan: EchoPlan {
                connections: NonZeroU32::new(64).unwrap(),
                bytes: NonZeroU32::new(128).unwrap(),
                pace,
                duration: Duration::from_secs(2),
                tasks: 16,
                timeout: Duration::from_secs(2),
                pin: Some(Pin { worker: 1, remote: 0 }),
            },
            environment: crate::report::tests::environment(),
            load: Load {
                requests: 1000,
                lasting_ns: 2_000_000_000,
                from_due: if pace == Loop::Closed { Latencies::new() } else { from_sent.clone() },
                from_sent,
                unsent: u64::from(pace != Loop::Closed) * 7,
            },
        }
    }

    #[test]
    fn reads_like_this() {
        let mut out = Vec::new();
        report(Loop::Open(NonZeroU32::new(500).unwrap())).write_text(&mut out).unwrap();
        let expected = "\
evenkeel 0.1.0: echo over TCP on this machine

  backend      uring (DEFER_TASKRUN)
  machine      AMD EPYC, Linux 6.18.1
  threads      server on CPU 1, client on CPU 0
  load         64 connections, 128 bytes, 500 requests a second are due
  backlog      16 tasks that yield, on the same worker
  requests     500 a second for 2000 ms
  unsent       7 were due and found no connection free

  latency (µs)        n        p50        p90        p99      p99.9        max
  from sent        1000      500.2      900.1      990.2      999.4*    1000.0
  from due         1000      500.2      900.1      990.2      999.4*    1000.0

  *  too few samples to mean anything
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_json_object_tells_an_open_loop_from_a_closed_one() {
        let written = |pace| {
            let mut out = Vec::new();
            report(pace).write_json(&mut out).unwrap();
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        let closed = written(Loop::Closed);
        assert_eq!((&closed["rate"], &closed["from_due"]), (&Value::Null, &Value::Null));
        assert_eq!(closed["requests_per_s"], 500.0);
        let open = written(Loop::Open(NonZeroU32::new(500).unwrap()));
        assert_eq!((&open["rate"], &open["unsent"]), (&500.into(), &7.into()));
        assert_eq!(open["from_due"]["p99_us"], 990.207);
    }
}
