//! A run: a server, a client, and an end.

use std::net::{Ipv4Addr, TcpListener};

use super::client::{self, Load};
use super::failure::EchoFailure;
use super::plan::EchoPlan;
use super::server::{EchoServer, EchoServers};
use crate::Setup;
use crate::affinity::Pinned;

/// Starts a server, puts the load on it, and stops it. On every path a server that was started has
/// been told to stop, and was waited for, when this returns. The server's description, and what came
/// of the load.
///
/// # Errors
///
/// The first thing that went wrong.
pub fn run<S: EchoServers>(
    servers: &S,
    plan: &EchoPlan,
) -> Result<((String, String), Load), EchoFailure> {
    let _pinned = plan
        .pin
        .map(|pin| {
            Pinned::to(pin.remote).map_err(|errno| EchoFailure::Pin(pin.remote, errno.into()))
        })
        .transpose()?;
    let system = |call| move |error| EchoFailure::System(call, error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("bind"))?;
    let address = listener.local_addr().map_err(system("getsockname"))?;
    let setup = Setup { worker_cpu: plan.pin.map(|pin| pin.worker), timeout: plan.timeout };
    let server = servers.start(listener, &setup, plan.tasks).map_err(EchoFailure::Server)?;
    let described = server.describe();
    let load = client::run(plan, address);
    let stopped = server.stop(plan.timeout).map_err(EchoFailure::Stop);
    let load = load?;
    stopped?;
    Ok((described, load))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use super::*;
    use crate::echo::plan::Loop;
    use crate::{StopError, SubjectError};

    /// A thread for each connection, and what may be wrong with its answers.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        /// Each answer comes this much later.
        Delay(Duration),
        /// One answer in a hundred does.
        Rare(Duration),
        /// The hundredth piece has a wrong byte.
        WrongByte,
        /// A byte of the hundredth piece is left out.
        LostByte,
        /// The connection is closed in place of the hundredth answer.
        Closes,
        /// The hundredth piece is not answered.
        Silent,
        /// The hundredth piece is answered twice.
        Twice,
        /// It refuses to start.
        Refuses,
        /// It does not stop.
        GoesOn,
    }

    struct Threads {
        fault: Fault,
        stop: Arc<AtomicBool>,
        acceptor: JoinHandle<()>,
        address: std::net::SocketAddr,
    }

    impl EchoServers for Fault {
        type Server = Threads;

        fn start(&self, listener: TcpListener, _: &Setup, _: u32) -> Result<Threads, SubjectError> {
            if *self == Self::Refuses {
                return Err(SubjectError::new("not today"));
            }
            let (fault, stop) = (*self, Arc::new(AtomicBool::new(false)));
            let address = listener.local_addr().unwrap();
            let stopped = Arc::clone(&stop);
            let pieces = Arc::new(AtomicU64::new(0));
            let acceptor = thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    if stopped.load(Ordering::SeqCst) {
                        return;
                    }
                    let pieces = Arc::clone(&pieces);
                    thread::spawn(move || serve(fault, &stream, &pieces));
                }
            });
            Ok(Threads { fault, stop, acceptor, address })
        }
    }

    impl EchoServer for Threads {
        fn describe(&self) -> (String, String) {
            ("threads".into(), "one for each connection".into())
        }

        fn stop(self, _: Duration) -> Result<(), StopError> {
            self.stop.store(true, Ordering::SeqCst);
            drop(TcpStream::connect(self.address));
            self.acceptor.join().unwrap();
            if self.fault == Fault::GoesOn {
                return Err(StopError::Overdue { left_behind: "its threads".into() });
            }
            Ok(())
        }
    }

    fn serve(fault: Fault, mut stream: &TcpStream, pieces: &AtomicU64) {
        stream.set_nodelay(true).unwrap();
        let mut room = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stream.read(&mut room) {
            let nth = pieces.fetch_add(1, Ordering::SeqCst) + 1;
            let mut answer = room[..length].to_vec();
            match fault {
                Fault::Delay(delay) => thread::sleep(delay),
                Fault::Rare(delay) if nth.is_multiple_of(100) => thread::sleep(delay),
                Fault::WrongByte if nth == 100 => answer[length / 2] ^= 1,
                Fault::LostByte if nth == 100 => drop(answer.remove(length / 2)),
                Fault::Closes if nth == 100 => return,
                Fault::Silent if nth == 100 => continue,
                Fault::Twice if nth == 100 => answer.extend_from_slice(&room[..length]),
                _ => {}
            }
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }

    fn plan(pace: Loop) -> EchoPlan {
        EchoPlan {
            connections: NonZeroU32::new(4).unwrap(),
            bytes: NonZeroU32::new(100).unwrap(),
            pace,
            duration: Duration::from_millis(200),
            tasks: 0,
            timeout: Duration::from_secs(20),
            pin: None,
        }
    }

    fn load(fault: Fault, plan: &EchoPlan) -> Load {
        run(&fault, plan).unwrap().1
    }

    fn failure(fault: Fault, timeout: Duration) -> String {
        run(&fault, &EchoPlan { timeout, ..plan(Loop::Closed) }).unwrap_err().to_string()
    }

    #[test]
    fn a_closed_loop_counts_each_answer_once() {
        let load = load(Fault::None, &plan(Loop::Closed));
        assert!(load.requests > 0);
        assert!(load.from_sent.count() >= load.requests);
        assert!(load.from_sent.count() <= load.requests + 4, "those at the end are not counted");
        assert_eq!((load.from_due.count(), load.unsent), (0, 0));
    }

    #[test]
    fn a_request_larger_than_all_buffers_comes_back_whole() {
        let bytes = NonZeroU32::new(8 << 20).unwrap();
        let connections = NonZeroU32::new(2).unwrap();
        // The server reads and answers by turns, so both directions fill up.
        let load = load(Fault::None, &EchoPlan { connections, bytes, ..plan(Loop::Closed) });
        assert!(load.from_sent.count() > 0);
    }

    #[test]
    fn an_open_loop_keeps_to_its_schedule() {
        let load = load(Fault::None, &plan(Loop::Open(NonZeroU32::new(1000).unwrap())));
        assert!((1..=200).contains(&load.from_due.count()), "{}", load.from_due.count());
        assert_eq!(load.from_due.count(), load.from_sent.count());
    }

    #[test]
    fn a_delay_is_measured_and_none_is_made_up() {
        let delay = Duration::from_millis(3);
        let summary = load(Fault::Delay(delay), &plan(Loop::Closed)).from_sent.summary();
        assert!(summary.min_ns >= 3_000_000, "{summary:?}");
        let summary = load(Fault::Rare(delay), &plan(Loop::Closed)).from_sent.summary();
        assert!(summary.max_ns >= 3_000_000 && summary.min_ns < 3_000_000, "{summary:?}");
    }

    #[test]
    fn a_server_that_falls_behind_is_seen_from_when_requests_were_due() {
        // 4 connections at 5 ms each are 800 a second at most.
        let pace = Loop::Open(NonZeroU32::new(4000).unwrap());
        let load = load(Fault::Delay(Duration::from_millis(5)), &plan(pace));
        let (due, sent) = (load.from_due.summary(), load.from_sent.summary());
        assert!(due.max_ns > 10 * sent.min_ns, "{due:?} {sent:?}");
        assert!(load.unsent > 0);
    }

    #[test]
    fn wrong_answers_are_named() {
        let long = Duration::from_secs(20);
        for (fault, words) in [
            (Fault::WrongByte, "differs from it in byte 50"),
            (Fault::LostByte, "differs from it in byte 50"),
            (Fault::Closes, "after 0 bytes of the answer to request"),
        ] {
            let line = failure(fault, long);
            assert!(line.contains(words), "{line}");
        }
        let line = failure(Fault::Twice, long);
        assert!(line.contains("differs") || line.contains("more than was asked for"), "{line}");
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_within_a_bound() {
        let line = failure(Fault::Silent, Duration::from_millis(300));
        assert!(line.contains("not whole within 300 ms (--timeout-ms); 0 bytes"), "{line}");
    }

    #[test]
    fn a_server_that_does_not_start_or_stop_says_so() {
        let long = Duration::from_secs(20);
        let line = failure(Fault::Refuses, long);
        assert_eq!(line, "the echo server could not be started: not today");
        let line = failure(Fault::GoesOn, long);
        assert_eq!(line, "the worker did not stop in time, left behind: its threads");
    }
}
