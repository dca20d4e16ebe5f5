//! The program over real backends. Timing decides nothing here: the bounds of a trial do.

use std::io::Read;
use std::process::Stdio;
use std::thread;

use evenkeel_bench::affinity::{Allowed, pin_current_thread};
use evenkeel_bench::ours::backend::{Backend, Uring};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::Value;

mod common;

use common::{Ended, bench_cli, end, run};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// `io_uring_setup`, `io_uring_enter` and `io_uring_register` have these numbers everywhere.
const IO_URING_CALLS: std::ops::RangeInclusive<i64> = 425..=427;

/// The backends that this machine has, said aloud: a sandbox may refuse `io_uring`.
fn backends() -> Vec<&'static str> {
    match Uring.open() {
        Ok(_) => vec!["uring", "epoll"],
        Err(reason) => {
            eprintln!("not tested over io_uring: {reason}");
            vec!["epoll"]
        }
    }
}

/// Runs the program in a child that is refused `io_uring`, as a sandbox or an old kernel would.
fn run_refused(errno: u32, arguments: &[&str]) -> Ended {
    let rules = IO_URING_CALLS.map(|call| (call, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let (pass, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno));
    let filter: BpfProgram =
        SeccompFilter::new(rules, pass, refuse, arch).unwrap().try_into().unwrap();
    // A filter goes to the children of the thread that takes it on, and ends with them.
    thread::scope(|scope| {
        let refused = scope.spawn(|| {
            seccompiler::apply_filter(&filter).unwrap();
            run(arguments)
        });
        refused.join().unwrap()
    })
}

fn json(ended: &Ended) -> Value {
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert_eq!(ended.out.lines().count(), 1, "one object and nothing else");
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn the_smoke_reports_what_was_measured() {
    for backend in backends() {
        let ended = run(&["--smoke", "--backend", backend]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(ended.out.contains(&format!("backend    {backend} (")), "{}", ended.out);
        assert!(ended.out.contains("trials     3 of 5 ms"), "{}", ended.out);
    }
}

#[test]
fn json_has_each_key_of_the_schema_and_no_other() {
    const LATENCY: [&str; 5] = ["max_us", "min_us", "n", "p50_us", "p99_us"];
    for backend in backends() {
        let report = json(&run(&["--smoke", "--json", "--backend", backend]));
        let keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
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
        expected.sort_unstable();
        assert_eq!(keys, expected);
        for latency in [
            "io",
            "remote",
            "floor_io",
            "floor_remote",
            "timer",
            "submit",
            "floor_timer",
            "floor_submit",
        ] {
            let keys: Vec<_> = report[latency].as_object().unwrap().keys().collect();
            assert_eq!(keys, LATENCY);
            assert_eq!(report[latency]["n"], 3);
        }
        for ratio in ["ratio_io", "ratio_remote", "ratio_timer", "ratio_submit"] {
            let keys: Vec<_> = report[ratio].as_object().unwrap().keys().collect();
            assert_eq!(keys, ["median", "q1", "q3"]);
        }
        assert_eq!((&report["backend"], &report["trials"]), (&backend.into(), &3.into()));
        assert!(report["yields"].as_u64().unwrap() > 0);
        assert_eq!(report["pinned"], Value::Null);
    }
}

#[test]
fn readiness_from_memory_polls_nothing_dry() {
    if backends().contains(&"uring") {
        let report = json(&run(&["--smoke", "--json", "--backend", "uring"]));
        assert_eq!((&report["dry_polls"], &report["poll_share"]), (&0.into(), &0.0.into()));
    }
    // A wake that comes while the worker runs, or a timer of a wait that ended early, is an event too
    // and concerns nobody: once in a trial, say, not at each look.
    let report = json(&run(&["--smoke", "--json", "--backend", "epoll"]));
    let (dry, yields) = (&report["dry_polls"], &report["yields"]);
    if report["backend_detail"].as_str().unwrap().contains("aio") {
        assert!(dry.as_u64().unwrap() <= 9, "{dry} dry polls");
    } else {
        assert!(dry.as_u64().unwrap() > 9, "{dry} dry polls of {yields} yields");
    }
}

#[test]
fn what_is_said_explicitly_wins_over_smoke() {
    for arguments in [
        ["--smoke", "--trials", "1", "--backlog-ms", "2", "--tasks", "3", "--json"],
        ["--tasks", "3", "--json", "--backlog-ms", "2", "--trials", "1", "--smoke"],
    ] {
        let report = json(&run(&[&arguments[..], &["--backend", "epoll"]].concat()));
        let said = ["trials", "backlog_ms", "tasks"].map(|key| report[key].as_u64().unwrap());
        assert_eq!(said, [1, 2, 3]);
    }
}

#[test]
fn a_long_backlog_is_started_and_ended() {
    for backend in backends() {
        let report =
            json(&run(&["--smoke", "--trials=1", "--tasks=10000", "--json", "--backend", backend]));
        assert!(report["yields"].as_u64().unwrap() > 0);
    }
}

#[test]
fn both_threads_may_share_one_cpu() {
    let only = Allowed::now().unwrap().first();
    pin_current_thread(only).unwrap();
    let only = only.to_string();
    // This thread, and so the program, has one CPU from here on.
    assert_eq!(Allowed::now().unwrap().to_string(), only);
    for backend in backends() {
        let arguments = ["--smoke", "--trials", "1", "--json", "--backend", backend];
        assert_eq!(json(&run(&arguments))["trials"], 1);
        let pin = format!("{only},{only}");
        let report = json(&run(&[&arguments[..], &["--pin", &pin]].concat()));
        assert_eq!(report["pinned"]["worker"].to_string(), only);
    }
}

#[test]
fn refused_io_uring_says_by_whom_and_what_works() {
    for (errno, by) in [(EPERM, "sandbox"), (ENOSYS, "kernel")] {
        let ended = run_refused(errno, &["--smoke", "--backend", "uring"]);
        assert_eq!((ended.status, ended.out.as_str()), (1, ""));
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        for word in [by, "--backend epoll"] {
            assert!(ended.err.contains(word), "{word} is not in: {}", ended.err);
        }
    }
}

#[test]
fn auto_falls_back_and_says_so() {
    let ended = run_refused(EPERM, &["--smoke", "--trials", "1"]);
    assert_eq!(ended.status, 0, "{}", ended.err);
    assert!(ended.err.starts_with("bench-cli: measuring epoll instead: "), "{}", ended.err);
    assert!(ended.out.contains("backend    epoll ("), "{}", ended.out);
    assert!(ended.out.contains("instead of"), "{}", ended.out);

    let ended = run_refused(ENOSYS, &["--smoke", "--trials", "1", "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["backend"], "epoll");
    assert!(report["backend_detail"].as_str().unwrap().contains("instead of uring"));
}

#[test]
fn auto_takes_io_uring_where_it_is_to_be_had() {
    if backends().contains(&"uring") {
        for arguments in [&["--smoke", "--json"][..], &["--smoke", "--json", "--backend", "auto"]] {
            assert_eq!(json(&run(arguments))["backend"], "uring");
        }
    }
}

#[test]
fn a_reader_who_has_left_is_no_error() {
    let mut child = bench_cli()
        .args(["--smoke", "--trials", "1", "--backend", "epoll"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_bound_that_is_too_short_fails_the_trial_in_words() {
    // Ten thousand tasks do not all start within a millisecond on any machine that runs this
    // under a debug build; where they do, nothing has failed.
    let ended = end(bench_cli().args(["--trials=1", "--tasks=1000000", "--timeout-ms=1"]));
    if ended.status != 0 {
        assert_eq!((ended.status, ended.out.as_str()), (1, ""));
        assert!(ended.err.starts_with("bench-cli: trial 1 of 1 failed: "), "{}", ended.err);
    }
}
