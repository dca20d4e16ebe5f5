//! The report as one JSON object, for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::{Report, Service, milliseconds};
use crate::stats::{self, Quartiles, Summary};

/// Counts up whenever a key changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    backend: &'a str,
    backend_detail: String,
    trials: u32,
    backlog_ms: u128,
    tasks: u32,
    pinned: Option<Pinned>,
    yields: u64,
    yields_per_s: f64,
    ns_per_dispatch: f64,
    floor_ns_per_dispatch: f64,
    dry_polls: u64,
    poll_share: f64,
    io: Latency,
    remote: Latency,
    floor_io: Latency,
    floor_remote: Latency,
    ratio_io: Ratio,
    ratio_remote: Ratio,
    timer: Option<Latency>,
    submit: Option<Latency>,
    floor_timer: Option<Latency>,
    floor_submit: Option<Latency>,
    ratio_timer: Option<Ratio>,
    ratio_submit: Option<Ratio>,
    trigger_us: f64,
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
    p99_us: f64,
    max_us: f64,
}

#[derive(Serialize)]
struct Ratio {
    q1: f64,
    median: f64,
    q3: f64,
}

/// Writes the report as one line.
///
/// # Errors
///
/// What `out` answered.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Document::of(report))?;
    writeln!(out)
}

impl<'a> Document<'a> {
    fn of(report: &'a Report) -> Self {
        let Report { description, plan, environment, io, remote, .. } = report;
        let backend_detail = match &report.instead_of {
            None => description.detail.clone(),
            Some(other) => format!("{}; instead of {other}", description.detail),
        };
        let (io, floor_io, ratio_io) = service(io);
        let (remote, floor_remote, ratio_remote) = service(remote);
        let (timer, floor_timer, ratio_timer) = offered(report.timer.as_ref());
        let (submit, floor_submit, ratio_submit) = offered(report.submit.as_ref());
        Self {
            schema_version: SCHEMA_VERSION,
            backend: &description.backend,
            backend_detail,
            trials: plan.trials.get(),
            backlog_ms: milliseconds(plan.backlog),
            tasks: plan.tasks.get(),
            pinned: plan.pin.map(|pin| Pinned { worker: pin.worker, remote: pin.remote }),
            yields: report.yields,
            yields_per_s: report.yields_per_s.round(),
            ns_per_dispatch: rounded(report.ns_per_dispatch, 3),
            floor_ns_per_dispatch: rounded(report.floor_ns_per_dispatch, 3),
            dry_polls: report.dry_polls,
            poll_share: rounded(report.poll_share, 6),
            io,
            remote,
            floor_io,
            floor_remote,
            ratio_io,
            ratio_remote,
            timer,
            submit,
            floor_timer,
            floor_submit,
            ratio_timer,
            ratio_submit,
            trigger_us: microseconds(report.trigger.p50.ns),
            kernel: &environment.kernel,
            cpu: &environment.cpu,
            version: environment.version,
        }
    }
}

fn service(service: &Service) -> (Latency, Latency, Ratio) {
    (latency(&service.latency), latency(&service.floor), ratio(&service.ratio))
}

/// Of a class that not every subject has.
fn offered(of: Option<&Service>) -> (Option<Latency>, Option<Latency>, Option<Ratio>) {
    match of.map(service) {
        Some((latency, floor, ratio)) => (Some(latency), Some(floor), Some(ratio)),
        None => (None, None, None),
    }
}

fn latency(summary: &Summary) -> Latency {
    Latency {
        n: summary.n,
        min_us: microseconds(summary.min_ns),
        p50_us: microseconds(summary.p50.ns),
        p99_us: microseconds(summary.p99.ns),
        max_us: microseconds(summary.max_ns),
    }
}

fn ratio(quartiles: &Quartiles) -> Ratio {
    let Quartiles { q1, median, q3 } = *quartiles;
    Ratio { q1: rounded(q1, 4), median: rounded(median, 4), q3: rounded(q3, 4) }
}

fn microseconds(ns: u64) -> f64 {
    stats::to_f64(ns) / 1000.0
}

/// To so many decimals: as many as the clock can tell, and no noise of the arithmetic.
fn rounded(number: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (number * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::tests::{known, report, unknown};

    fn written(report: &Report) -> Value {
        let mut out = Vec::new();
        write(report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.find('\n'), Some(text.len() - 1), "one line");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn has_these_keys_in_this_order_and_no_others() {
        let mut out = Vec::new();
        write(&report(&known(), None), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let keys = [
            "schema_version",
            "backend",
            "backend_detail",
            "trials",
            "backlog_ms",
            "tasks",
            "pinned",
            "yields",
            "yields_per_s",
            "ns_per_dispatch",
            "floor_ns_per_dispatch",
            "dry_polls",
            "poll_share",
            "io",
            "remote",
            "floor_io",
            "floor_remote",
            "ratio_io",
            "ratio_remote",
            "timer",
            "submit",
            "floor_timer",
            "floor_submit",
            "ratio_timer",
            "ratio_submit",
            "trigger_us",
            "kernel",
            "cpu",
            "version",
        ];
        let mut rest = text.as_str();
        for key in keys {
            let place = rest.find(&format!("\"{key}\":")).expect(key);
            rest = &rest[place..];
        }
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_object().unwrap().len(), 29);
    }

    #[test]
    fn values_carry_the_unit_of_their_key() {
        let value = written(&report(&known(), None));
        assert_eq!(value["pinned"], json!({ "worker": 0, "remote": 1 }));
        assert_eq!(value["backlog_ms"], 20);
        assert_eq!(
            value["remote"],
            json!({ "n": 40, "min_us": 0.301, "p50_us": 0.32, "p99_us": 0.34, "max_us": 0.34 })
        );
        assert_eq!(value["ratio_remote"]["median"], 1.282);
        assert_eq!(value["trigger_us"], 1.21);
        assert_eq!(value["poll_share"], 0.0001);
    }

    #[test]
    fn a_backend_taken_instead_of_another_says_so() {
        let value = written(&report(&unknown(), Some("uring: the kernel lacks it")));
        assert_eq!(value["backend_detail"], "epoll_pwait2; instead of uring: the kernel lacks it");
    }

    #[test]
    fn a_class_that_the_subject_lacks_is_null() {
        let mut report = report(&known(), None);
        assert_eq!(written(&report)["submit"]["n"], 40);
        (report.timer, report.submit) = (None, None);
        let value = written(&report);
        for key in ["timer", "submit", "floor_timer", "floor_submit", "ratio_timer"] {
            assert_eq!(value[key], Value::Null, "{key}");
        }
    }

    #[test]
    fn unpinned_threads_are_null() {
        let mut report = report(&known(), None);
        report.plan.pin = None;
        assert_eq!(written(&report)["pinned"], Value::Null);
    }
}
