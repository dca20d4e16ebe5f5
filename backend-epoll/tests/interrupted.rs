//! A wait that is interrupted: a process that is stopped and goes on gets `EINTR` from its wait, with
//! no handler needed.
#![forbid(unsafe_code)]

#[allow(dead_code)] // each file uses a part
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use evenkeel::{Reactor, Wait};
use rustix::process::{Pid, Signal, kill_process};

const TIMES: usize = 3;

/// In the child: says which thread waits, waits, and says how far from the deadline it ended.
fn wait_and_tell(waits_for: &str) {
    let mut reactor = reactor();
    let span = Duration::from_millis(if waits_for == "deadline" { 1_000 } else { 0 });
    let deadline = after(span);
    let wait = if waits_for == "deadline" { Wait::Until(deadline) } else { Wait::Forever };
    if wait == Wait::Forever {
        let notifier = reactor.notifier();
        thread::spawn(move || {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).expect("the parent ends it");
            notifier.wake();
        });
    }
    println!("\nthread {}", rustix::thread::gettid().as_raw_nonzero());
    let found = poll(&mut reactor, wait);
    assert_eq!(found, []);
    println!("\nended {} early", if now() >= deadline { 0 } else { (deadline - now()).as_nanos() });
}

/// A child process, which does not stay behind when the test fails.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the thread is in this state (S sleeps, T is stopped, also by a tracer).
fn until_state(pid: Pid, thread: &str, state: &str) {
    let path = format!("/proc/{}/task/{thread}/stat", pid.as_raw_nonzero());
    let since = Instant::now();
    loop {
        let stat = fs::read_to_string(&path).expect("it has not ended");
        let after_name = stat.rsplit(')').next().expect("there is a name");
        if after_name.split_whitespace().next().is_some_and(|now| now.eq_ignore_ascii_case(state)) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "it never was {state}: {stat}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs the child and interrupts its wait `TIMES` times; returns the rest of what it says.
fn interrupt(test: &str, waits_for: &str, end: impl FnOnce(&mut Child)) -> String {
    let mut command = child(test, waits_for);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut child = Guarded(child);
    let mut lines = BufReader::new(child.0.stdout.take().expect("it is piped"));
    let thread = loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).expect("it is text"), 0, "it says who waits");
        if let Some(thread) = line.strip_prefix("thread ") {
            break thread.trim().to_owned();
        }
    };
    let pid = Pid::from_child(&child.0);
    for _ in 0..TIMES {
        until_state(pid, &thread, "S");
        kill_process(pid, Signal::STOP).expect("it is ours");
        until_state(pid, &thread, "T");
        kill_process(pid, Signal::CONT).expect("it is ours");
    }
    until_state(pid, &thread, "S");
    end(&mut child.0);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it is text");
    assert!(child.0.wait().expect("it ends").success(), "{rest}");
    rest
}

#[test]
fn an_interrupted_wait_goes_on_until_its_deadline() {
    const NAME: &str = "an_interrupted_wait_goes_on_until_its_deadline";
    if let Some(waits_for) = role() {
        return wait_and_tell(&waits_for);
    }
    let rest = interrupt(NAME, "deadline", |_| {});
    assert!(rest.contains("ended 0 early"), "{rest}");
}

#[test]
fn an_interrupted_wait_without_deadline_goes_on() {
    const NAME: &str = "an_interrupted_wait_without_deadline_goes_on";
    if let Some(waits_for) = role() {
        return wait_and_tell(&waits_for);
    }
    // It still sleeps after the interruptions, or `interrupt` fails; a line of input wakes it.
    let rest = interrupt(NAME, "wake", |child| drop(child.stdin.take()));
    assert!(rest.contains("ended 0 early"), "{rest}");
}
