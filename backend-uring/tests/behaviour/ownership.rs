//! Which thread, which process, and what is left in the end.

use std::fs;
use std::io::ErrorKind;
use std::thread;

use evenkeel::{Completion, Completions, Reactor, Wait};
use evenkeel_uring::{Mode, UringReactor};

use crate::support::{IN, arm, child, event, in_each_mode, is_child, poll, raise, readable, token};

fn is_send<T: Send>(_: &T) {}

#[test]
fn a_reactor_made_on_one_thread_is_used_on_another() {
    // Each test of each mode does so; here the first thread stays, and even queues something.
    for mode in Mode::ALL {
        let mut reactor = UringReactor::builder().at_most(mode).build().unwrap();
        is_send(&reactor);
        let event = event();
        raise(&event);
        reactor.submit(token(1), readable(&event)).unwrap();
        let found = thread::spawn(move || poll(&mut reactor, Wait::Forever)).join().unwrap();
        assert_eq!(found, [Completion { token: token(1), result: IN }]);
    }
}

#[test]
fn a_ring_that_belongs_to_one_thread_is_refused_to_another() {
    let mut reactor = UringReactor::new().unwrap();
    assert_eq!(reactor.mode(), Mode::Deferred);
    poll(&mut reactor, Wait::Never);
    let event = event();
    arm(&mut reactor, token(1), readable(&event));
    let error = thread::spawn(move || {
        reactor.submit(token(2), readable(&event)).unwrap();
        reactor.poll(Wait::Never, &mut Completions::new()).unwrap_err()
    });
    let error = error.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("belongs to the thread"), "{error}");
}

/// `dc` among a mapping's flags: do not copy on fork.
#[test]
fn a_child_does_not_inherit_the_mappings() {
    let _reactor = UringReactor::new().unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut rings = 0;
    let mut in_ring = false;
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if in_ring {
                assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
                rings += 1;
            }
            in_ring = false;
        } else if line.ends_with("[io_uring]") {
            in_ring = true;
        }
    }
    assert!(rings > 0);
}

/// Counted in a process of its own, where nobody else opens anything.
#[test]
fn dropping_a_reactor_frees_its_descriptors_and_mappings() {
    fn held() -> (usize, usize) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        (fs::read_dir("/proc/self/fd").unwrap().count(), maps.matches("[io_uring]").count())
    }
    if !is_child() {
        let name = "ownership::dropping_a_reactor_frees_its_descriptors_and_mappings";
        let output = child(name).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let event = event();
    let before = held();
    for mode in Mode::ALL {
        for _ in 0..50 {
            let mut reactor = UringReactor::builder().at_most(mode).build().unwrap();
            for index in 0..100 {
                arm(&mut reactor, token(index), readable(&event));
            }
            reactor.submit(token(100), readable(&event)).unwrap();
            reactor.cancel(token(1));
            assert!(held() > before);
        }
    }
    assert_eq!(held(), before);
}

#[test]
fn descriptors_are_closed_on_exec() {
    let reactor = UringReactor::new().unwrap();
    // This process's own, by name.
    let mut checked = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let Ok(entry) = entry else { continue };
        let is_ring = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy() == "anon_inode:[io_uring]");
        if !is_ring {
            continue;
        }
        let fd = entry.file_name().into_string().unwrap();
        // Another test's ring may be gone by now.
        let Ok(info) = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & 0o2_000_000, 0, "O_CLOEXEC");
        checked += 1;
    }
    assert!(checked > 0);
    drop(reactor);
}

#[test]
fn operations_in_flight_end_with_the_reactor() {
    in_each_mode(|mut reactor| {
        let event = event();
        arm(&mut reactor, token(1), readable(&event));
        drop(reactor);
        // Nobody is left to tell.
        raise(&event);
    });
}
