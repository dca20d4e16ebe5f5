//! The report as text, for people.

use std::io::{self, Write};

use super::{Report, Service, milliseconds};
use crate::stats::{Estimate, Support, to_f64};
use crate::{Plan, Readiness};

/// Stands behind a percentile that means nothing yet; explained under the table.
const MARK: &str = "*";

/// Writes the report.
///
/// # Errors
///
/// What `out` answered.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "evenkeel {}: service latency of a busy worker", report.environment.version)?;
    if cfg!(debug_assertions) && !cfg!(test) {
        writeln!(out, "(a debug build: its figures say nothing of a release build)")?;
    }
    writeln!(out)?;
    definitions(&facts(report), out)?;
    writeln!(out)?;
    table(report, out)?;
    writeln!(out)?;
    definitions(&legend(report), out)
}

/// Lines that each begin with the word they are about; without one they continue the line above.
fn definitions(lines: &[(&str, String)], out: &mut impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|(word, what)| writeln!(out, "  {word:<9}  {what}"))
}

/// What was measured, how and where, and what each dispatch cost.
fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let Report { description, plan, environment, .. } = report;
    let mut facts = vec![("backend", description.to_string())];
    if let Some(other) = &report.instead_of {
        facts.push(("", format!("instead of {other}")));
    }
    facts.push(("machine", format!("{}, {}", environment.cpu, environment.kernel)));
    facts.push(("threads", threads(plan)));
    facts.push(("trials", trials(plan)));
    facts.push((
        "yields",
        format!("{}, {:.1} million per second", grouped(report.yields), report.yields_per_s / 1e6),
    ));
    facts.push((
        "dispatch",
        format!(
            "{:.2} ns each, where a bare loop takes {:.2} ns",
            report.ns_per_dispatch, report.floor_ns_per_dispatch
        ),
    ));
    facts.push(("polling", polling(report)));
    if let (Some(interval), Readiness::Unknown { poll_share }) =
        (report.poll_interval_ns, description.readiness)
    {
        let (interval, percent) = (interval / 1e3, poll_share * 100.0);
        facts.push(("", format!("a poll every {interval:.2} µs is {percent} % of the time")));
    }
    facts.push((
        "trigger",
        format!("{} to write the eventfd (median)", microseconds(report.trigger.p50.ns)),
    ));
    facts
}

fn threads(plan: &Plan) -> String {
    match plan.pin {
        Some(pin) => format!("worker on CPU {}, remote on CPU {}", pin.worker, pin.remote),
        None => "not pinned".into(),
    }
}

fn trials(plan: &Plan) -> String {
    format!(
        "{} of {} ms, with a backlog of {}",
        grouped(plan.trials.get().into()),
        milliseconds(plan.backlog),
        counted(plan.tasks.get().into(), "task"),
    )
}

fn polling(report: &Report) -> String {
    if report.dry_polls == 0 {
        return "no dry polls".into();
    }
    format!(
        "{}, which found nothing, at {:.0} ns: {:.2} % of the time",
        counted(report.dry_polls, "dry poll"),
        report.dry_poll_ns,
        report.poll_share * 100.0
    )
}

/// One row of the table; the first cell is its name.
type Row = [String; 7];

fn table(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let head = ["latency", "n", "p50 ", "p99 ", "max", "floor p50 ", "ratio [quartiles]"];
    let rows = [
        head.map(String::from),
        row("I/O", &report.io),
        row("remote", &report.remote),
        offered("timer", report.timer.as_ref()),
        offered("submit", report.submit.as_ref()),
    ];
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    for row in &rows {
        write!(out, "  {:<7}", row[0])?;
        for (column, cell) in row.iter().enumerate().skip(1) {
            write!(out, "  {cell:>width$}", width = width(column).unwrap_or(0))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn row(name: &str, service: &Service) -> Row {
    let Service { latency, floor, ratio } = service;
    [
        name.into(),
        grouped(latency.n),
        estimate(latency.p50),
        estimate(latency.p99),
        microseconds(latency.max_ns),
        estimate(floor.p50),
        format!("{} [{} – {}]", short(ratio.median), short(ratio.q1), short(ratio.q3)),
    ]
}

/// The row of a class that not every subject has.
fn offered(name: &str, service: Option<&Service>) -> Row {
    match service {
        Some(service) => row(name, service),
        None => [name, "–", "– ", "– ", "–", "– ", "–"].map(String::from),
    }
}

fn estimate(estimate: Estimate) -> String {
    let mark = match estimate.support {
        Support::Enough => " ",
        Support::TooFew { .. } => MARK,
    };
    format!("{}{mark}", microseconds(estimate.ns))
}

/// What the words in the table mean, and the mark, if there is one.
fn legend(report: &Report) -> Vec<(&'static str, String)> {
    let mut legend = vec![
        ("floor", "the same trial with no scheduler in between".into()),
        ("ratio", "latency over floor, pair by pair: median and quartiles".into()),
    ];
    let needs: Vec<_> = [("p50", report.io.latency.p50), ("p99", report.io.latency.p99)]
        .into_iter()
        .filter_map(|(name, estimate)| match estimate.support {
            Support::Enough => None,
            Support::TooFew { needed } => Some(format!("{name} needs {needed}")),
        })
        .collect();
    if !needs.is_empty() {
        legend.push((MARK, format!("too few samples to mean anything: {}", needs.join(", "))));
    }
    legend
}

fn microseconds(ns: u64) -> String {
    format!("{} µs", short(to_f64(ns) / 1e3))
}

/// With three digits or as many as there are before the point, two of them behind it at most: so a row
/// keeps to 80 columns up to ten milliseconds.
fn short(number: f64) -> String {
    let decimals = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

/// A number and what it counts.
fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}

/// A whole number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{known, report, unknown};

    fn written(report: &Report) -> String {
        let mut out = Vec::new();
        write(report, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn reads_like_this() {
        let expected = "\
evenkeel 0.1.0: service latency of a busy worker

  backend    uring (SINGLE_ISSUER | DEFER_TASKRUN | TASKRUN_FLAG)
  machine    AMD EPYC, Linux 6.18.1
  threads    worker on CPU 0, remote on CPU 1
  trials     40 of 20 ms, with a backlog of 1 task
  yields     160,000,000, 200.0 million per second
  dispatch   5.00 ns each, where a bare loop takes 2.50 ns
  polling    400 dry polls, which found nothing, at 200 ns: 0.01 % of the time
  trigger    1.21 µs to write the eventfd (median)

  latency   n      p50       p99       max  floor p50    ratio [quartiles]
  I/O      40  2.20 µs   2.40 µs*  2.40 µs    2.00 µs   1.10 [1.05 – 1.15]
  remote   40  0.32 µs   0.34 µs*  0.34 µs    0.25 µs   1.28 [1.24 – 1.32]
  timer    40  1.10 µs   1.20 µs*  1.20 µs    1.00 µs   1.10 [1.05 – 1.15]
  submit   40  0.64 µs   0.68 µs*  0.68 µs    0.50 µs   1.28 [1.24 – 1.32]

  floor      the same trial with no scheduler in between
  ratio      latency over floor, pair by pair: median and quartiles
  *          too few samples to mean anything: p99 needs 299
";
        assert_eq!(written(&report(&known(), None)), expected);
    }

    #[test]
    fn a_reactor_that_must_be_polled_shows_how_often() {
        let text = written(&report(&unknown(), None));
        assert!(
            text.contains("\n             a poll every 4.00 µs is 5 % of the time\n"),
            "{text}"
        );
    }

    #[test]
    fn a_backend_taken_instead_of_another_says_so() {
        let text = written(&report(&unknown(), Some("uring: the kernel lacks it")));
        let lines = "  backend    epoll (epoll_pwait2)\n             instead of uring: the kernel \
                     lacks it\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn what_was_not_done_is_said_too() {
        let mut report = report(&known(), None);
        report.plan.pin = None;
        report.dry_polls = 0;
        let text = written(&report);
        assert!(text.contains("  threads    not pinned\n"), "{text}");
        assert!(text.contains("  polling    no dry polls\n"), "{text}");
    }

    #[test]
    fn with_enough_samples_nothing_is_marked() {
        let mut report = report(&known(), None);
        let Report { io, remote, timer, submit, .. } = &mut report;
        for service in [io, remote].into_iter().chain(timer).chain(submit) {
            service.latency.p99.support = Support::Enough;
        }
        assert!(!written(&report).contains(MARK));
    }

    #[test]
    fn columns_stay_aligned_whatever_the_numbers() {
        let mut report = report(&known(), None);
        report.io.latency.n = 1_234_567;
        report.remote.latency.max_ns = 2_000_000_000;
        let text = written(&report);
        let ends: Vec<_> = text
            .lines()
            .filter(|line| ["  latency", "  I/O", "  remote"].iter().any(|w| line.starts_with(w)))
            .map(|line| line.chars().count())
            .collect();
        assert_eq!(ends.len(), 3, "{text}");
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
    }

    #[test]
    fn numbers_are_short_and_rows_keep_to_80_columns() {
        let written = [0.0, 1.234, 9.994, 9.996, 99.94, 99.96, 1234.5].map(short);
        assert_eq!(written, ["0.00", "1.23", "9.99", "10.0", "99.9", "100", "1234"]);

        let mut report = report(&known(), None);
        for service in [&mut report.io, &mut report.remote] {
            service.latency.n = 100_000;
            service.latency.max_ns = 9_999_000;
            service.latency.p99.ns = 9_999_000;
            service.latency.p50.ns = 9_999_000;
            service.floor.p50.ns = 123_000;
            service.ratio = crate::stats::Quartiles { q1: 51.23, median: 60.12, q3: 99.12 };
        }
        let text = super::tests::written(&report);
        let rows = text.lines().skip_while(|line| !line.starts_with("  latency")).take(5);
        for row in rows {
            assert!(row.chars().count() <= 80, "{row}");
        }
    }

    #[test]
    fn big_numbers_are_grouped() {
        let written = [0, 7, 999, 1000, 123_456, 1_234_567].map(grouped);
        assert_eq!(written, ["0", "7", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(counted(1, "task"), "1 task");
        assert_eq!(counted(10_000, "task"), "10,000 tasks");
    }
}
