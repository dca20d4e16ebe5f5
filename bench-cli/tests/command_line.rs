//! The program as a user meets it: arguments in; lines and an exit status out.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;

mod common;

use common::{bench_cli, end, run};

/// Bad usage: status 2, one line, nothing on standard output.
#[track_caller]
fn refused(arguments: &[&str], line: &str) {
    let ended = run(arguments);
    assert_eq!(ended.err, format!("bench-cli: {line}\n"));
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
}

#[test]
fn help_goes_to_standard_output() {
    for arguments in [&["--help"][..], &["-h"], &["--trials", "0", "--help"]] {
        let ended = run(arguments);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(ended.out.contains("Usage: bench-cli [OPTIONS]"));
    }
}

#[test]
fn version_is_one_line() {
    for argument in ["--version", "-V"] {
        let ended = run(&[argument]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert_eq!(ended.out, concat!("bench-cli ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn unknown_options_are_told_their_nearest_neighbour() {
    refused(&["--trails", "4"], "unknown option '--trails': did you mean --trials?");
    refused(&["--jsno"], "unknown option '--jsno': did you mean --json?");
    refused(&["--frobnicate"], "unknown option '--frobnicate': see --help");
    refused(&["-x"], "unknown option '-x': see --help");
}

#[test]
fn repeated_options_are_refused() {
    for (option, value) in [
        ("--backend", "epoll"),
        ("--trials", "4"),
        ("--backlog-ms", "4"),
        ("--tasks", "4"),
        ("--timeout-ms", "4"),
        ("--pin", "0,0"),
    ] {
        let line = format!("{option} is given more than once; once is allowed");
        refused(&[option, value, option, value], &line);
        refused(&[option, value, &format!("{option}={value}")], &line);
    }
    for flag in ["--smoke", "--json"] {
        refused(&[flag, flag], &format!("{flag} is given more than once; once is allowed"));
    }
}

/// What each option that takes a value allows, as its errors say it.
const ALLOWED: [(&str, &str); 6] = [
    ("--backend", "uring, epoll or auto"),
    ("--trials", "a whole number from 1 to 100000"),
    ("--backlog-ms", "a whole number from 1 to 60000"),
    ("--tasks", "a whole number from 1 to 1000000"),
    ("--timeout-ms", "a whole number from 1 to 600000"),
    ("--pin", "two CPU numbers, WORKER,REMOTE, for example 0,1"),
];

#[test]
fn incomplete_options_say_what_is_missing() {
    for (option, allowed) in ALLOWED {
        let line = format!("{option} needs a value: {allowed}");
        refused(&[option], &line);
        refused(&[option, "--json"], &line);
        refused(&[option, ""], &line);
        refused(&[&format!("{option}=")], &line);
    }
}

#[test]
fn values_that_are_not_allowed_are_quoted_beside_those_that_are() {
    for (option, allowed) in ALLOWED {
        for bad in ["0", "-5", "4.5", "four", "0x4", "4294967297", "99999999999999999999999"] {
            let line = format!("{option} must be {allowed}, not '{bad}'");
            refused(&[option, bad], &line);
            refused(&[&format!("{option}={bad}")], &line);
        }
    }
    refused(&["--pin", "0,1,2"], &format!("--pin must be {}, not '0,1,2'", ALLOWED[5].1));
}

#[test]
fn each_limit_is_named_by_what_exceeds_it() {
    for (option, beyond) in [
        ("--trials", "100001"),
        ("--backlog-ms", "60001"),
        ("--tasks", "1000001"),
        ("--timeout-ms", "600001"),
    ] {
        let allowed = ALLOWED.iter().find(|(name, _)| *name == option).unwrap().1;
        refused(&[option, beyond], &format!("{option} must be {allowed}, not '{beyond}'"));
    }
}

#[test]
fn free_arguments_are_refused() {
    refused(&["epoll"], "unexpected argument 'epoll': only options are allowed, see --help");
    refused(
        &["--trials", "4", "5"],
        "unexpected argument '5': only options are allowed, see --help",
    );
}

#[test]
fn flags_take_no_value() {
    refused(&["--json=yes"], "--json takes no value, but '--json=yes' gives one");
    refused(&["--smoke=1"], "--smoke takes no value, but '--smoke=1' gives one");
}

#[test]
fn what_is_not_utf8_is_refused_like_anything_else() {
    let broken = OsStr::from_bytes(b"\xff4");
    let ended = end(bench_cli().arg("--tasks").arg(broken));
    assert_eq!(ended.status, 2);
    assert_eq!(
        ended.err,
        "bench-cli: --tasks must be a whole number from 1 to 1000000, \
         not '\u{fffd}4' (which is not UTF-8)\n"
    );
    let ended = end(bench_cli().arg(broken));
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("'\u{fffd}4' (which is not UTF-8)"), "{}", ended.err);
}

#[test]
fn a_cpu_that_is_not_allowed_is_named_beside_those_that_are() {
    let ended = run(&["--smoke", "--pin", "0,999999"]);
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    assert!(ended.err.starts_with("bench-cli: --pin: CPU "), "{}", ended.err);
    assert!(ended.err.contains(" is not available; this process may use "), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1);
}

#[test]
fn a_closed_standard_output_ends_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = end(bench_cli().arg("--help").stdout(writer));
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
}

#[test]
fn a_full_disk_is_not_a_closed_pipe() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = end(bench_cli().arg("--version").stdout(full));
    assert_eq!(ended.status, 1);
    assert!(ended.err.starts_with("bench-cli: cannot write to standard output: "), "{}", ended.err);
}
