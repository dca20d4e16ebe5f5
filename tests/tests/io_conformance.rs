//! The conformance kit for operations on descriptors: on the simulated kernel from thousands of seeds,
//! and on the machine's own through each reactor, in each of its modes.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel::MonotonicClock;
use evenkeel::io::IoReactor;
use evenkeel::testing::VirtualClock;
use evenkeel::testing::conformance::io::{Broken, World, check, rule_names};
use evenkeel::testing::io::{Faults, SimIo, SimIoReactor};
use evenkeel_epoll::{EpollReactor, Looks};
use evenkeel_tests::seeds;
use evenkeel_uring::{Mode, UringReactor};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The simulated world.
struct Simulated {
    clock: VirtualClock,
    sim: SimIo,
    make: fn(&SimIo, &VirtualClock) -> SimIoReactor,
}

impl World for Simulated {
    type Reactor = SimIoReactor;
    type Clock = VirtualClock;

    fn reactor(&mut self) -> SimIoReactor {
        (self.make)(&self.sim, &self.clock)
    }

    fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    fn pass(&mut self) {
        self.clock.advance(Duration::from_nanos(300));
    }

    fn pair(&mut self) -> (OwnedFd, OwnedFd) {
        self.sim.pair()
    }

    fn pipe(&mut self) -> (OwnedFd, OwnedFd) {
        self.sim.pipe()
    }

    fn file(&mut self) -> OwnedFd {
        self.sim.file()
    }

    fn socket(&mut self) -> OwnedFd {
        self.sim.socket()
    }

    fn listener(&mut self) -> (OwnedFd, SocketAddr) {
        self.sim.listener()
    }

    fn datagrams(&mut self) -> (OwnedFd, SocketAddr) {
        self.sim.datagrams()
    }
}

fn simulated(
    count: u64,
    faults: Faults,
    make: fn(&SimIo, &VirtualClock) -> SimIoReactor,
) -> Result<(), Broken> {
    seeds(count).try_for_each(|seed| {
        let sim = SimIo::new(seed, faults);
        check(&mut Simulated { clock: VirtualClock::new(), sim, make }, seed)
    })
}

fn kept(outcome: Result<(), Broken>) {
    if let Err(broken) = outcome {
        panic!("{broken}");
    }
}

#[test]
fn the_simulated_reactor_keeps_the_rules() {
    kept(simulated(300, Faults::NONE, SimIo::reactor));
}

#[test]
fn whatever_a_reactor_may_do_the_futures_keep_their_word() {
    kept(simulated(800, Faults::USUAL, SimIo::reactor));
}

#[test]
fn also_where_only_a_poll_can_tell() {
    kept(simulated(500, Faults::USUAL, SimIo::blind_reactor));
}

#[test]
fn also_where_operations_are_refused_and_polls_fail() {
    let faults = Faults { refused: 100, failed: 50, ..Faults::USUAL };
    kept(simulated(400, faults, SimIo::reactor));
}

/// The machine's own kernel.
struct Real<R> {
    make: fn() -> io::Result<R>,
}

impl<R: IoReactor + 'static> World for Real<R> {
    type Reactor = R;
    type Clock = MonotonicClock;

    fn reactor(&mut self) -> R {
        (self.make)().expect("there was one before")
    }

    fn clock(&self) -> MonotonicClock {
        MonotonicClock::new()
    }

    fn pass(&mut self) {}

    fn pair(&mut self) -> (OwnedFd, OwnedFd) {
        let (near, far) = UnixStream::pair().unwrap();
        (near.into(), far.into())
    }

    fn pipe(&mut self) -> (OwnedFd, OwnedFd) {
        let (reads, writes) = io::pipe().unwrap();
        (reads.into(), writes.into())
    }

    fn file(&mut self) -> OwnedFd {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("evenkeel-conformance-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(path).unwrap();
        file.into()
    }

    fn socket(&mut self) -> OwnedFd {
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn listener(&mut self) -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    fn datagrams(&mut self) -> (OwnedFd, SocketAddr) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        (socket.into(), address)
    }
}

fn real<R: IoReactor + 'static>(make: fn() -> io::Result<R>) {
    if let Err(error) = make() {
        eprintln!("skipped, for there is no such reactor here: {error}");
        return;
    }
    // Fewer: here time is real.
    for seed in seeds(20).take(200) {
        kept(check(&mut Real { make }, seed));
    }
}

fn uring(mode: Mode) -> io::Result<UringReactor> {
    UringReactor::builder().at_most(mode).build().map_err(io::Error::other)
}

#[test]
fn io_uring_in_its_best_mode_keeps_the_rules() {
    real(|| uring(Mode::Deferred));
}

#[test]
fn io_uring_in_its_cooperative_mode_keeps_the_rules() {
    real(|| uring(Mode::Cooperative));
}

#[test]
fn io_uring_in_its_plainest_mode_keeps_the_rules() {
    real(|| uring(Mode::Plain));
}

#[test]
fn io_uring_with_the_smallest_queues_keeps_the_rules() {
    real(|| UringReactor::builder().entries(8).completions(8).build().map_err(io::Error::other));
}

#[test]
fn epoll_keeps_the_rules() {
    real(|| Ok(EpollReactor::new()?));
}

#[test]
fn epoll_by_system_calls_keeps_the_rules() {
    real(|| Ok(EpollReactor::builder().at_most(Looks::BySystemCall).build()?));
}

#[test]
fn the_rules_have_names() {
    let names: Vec<_> = rule_names::<Simulated>().collect();
    assert!(names.len() >= 19);
    assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1));
}

/// That the kit finds faults out. What these reactors never take back leaks: they are left out where
/// leaks are looked for.
mod faulty {
    use std::io;
    use std::net::SocketAddr;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::task::Waker;

    use evenkeel::io::{Interest, IoReactor, Offset, Operation};
    use evenkeel::testing::VirtualClock;
    use evenkeel::testing::conformance::io::{World, check_rule};
    use evenkeel::testing::io::{Faults, SimIo, SimIoReactor};
    use evenkeel::{
        Completion, Completions, Polled, Reactor, Readiness, Refused, Submitted, Token, Wait,
    };

    use super::Simulated;

    /// What is wrong with a reactor.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        /// Every fortieth completion is lost.
        LosesACompletion,
        /// Every tenth transfer says that it has moved a byte less than it has.
        SaysOneLess,
        /// Every tenth transfer that is done is said to have been cancelled.
        SaysCancelled,
        /// Nothing that has begun is cancelled.
        NeverCancels,
        /// A broken pipe is another error.
        AnotherError,
        /// An end of a stream is no end but an error.
        NoEnd,
        /// Every third connection is accepted, and closed.
        ClosesConnections,
        /// A datagram has no sender.
        NoSender,
        /// An offset is not looked at.
        IgnoresOffsets,
        /// A shutdown does nothing.
        IgnoresShutdown,
    }

    /// The simulated reactor with a fault.
    struct Faulty {
        inner: SimIoReactor,
        fault: Fault,
        count: usize,
        accepts: Vec<Token>,
        transfers: Vec<Token>,
        shutdowns: Vec<Token>,
    }

    impl Reactor for Faulty {
        type Operation = Operation;
        type Error = io::Error;

        fn name(&self) -> &'static str {
            "faulty"
        }

        fn readiness(&mut self) -> Readiness {
            self.inner.readiness()
        }

        fn submit(
            &mut self,
            token: Token,
            operation: Operation,
        ) -> Result<Submitted, Refused<Operation, io::Error>> {
            self.accepts.retain(|&other| other != token);
            self.transfers.retain(|&other| other != token);
            let operation = match (self.fault, operation) {
                (Fault::IgnoresOffsets, Operation::Read { fd, into, .. }) => {
                    Operation::Read { fd, into, at: Offset::CURRENT }
                }
                (Fault::NoSender, Operation::ReceiveFrom { fd, into, .. }) => {
                    Operation::Receive { fd, into }
                }
                (Fault::IgnoresShutdown, Operation::Shutdown { fd, .. }) => {
                    self.shutdowns.push(token);
                    Operation::Poll { fd, interest: Interest::Writable }
                }
                (_, operation) => operation,
            };
            match &operation {
                Operation::Accept { .. } => self.accepts.push(token),
                Operation::Receive { .. } | Operation::Send { .. } => self.transfers.push(token),
                _ => {}
            }
            self.inner.submit(token, operation)
        }

        fn cancel(&mut self, token: Token) {
            if self.fault != Fault::NeverCancels {
                self.inner.cancel(token);
            }
        }

        fn poll(&mut self, wait: Wait, found: &mut Completions) -> io::Result<Polled> {
            let mut batch = Completions::new();
            let polled = self.inner.poll(wait, &mut batch);
            for &completion in batch.as_slice() {
                let Completion { token, mut result } = completion;
                self.count += 1;
                let now_and_then = |every: usize| self.count.is_multiple_of(every);
                let (moved, is_transfer) = (result > 1, self.transfers.contains(&token));
                match self.fault {
                    Fault::LosesACompletion if now_and_then(40) => continue,
                    Fault::SaysOneLess if moved && is_transfer && now_and_then(10) => result -= 1,
                    Fault::SaysCancelled if moved && is_transfer && now_and_then(10) => {
                        result = -125;
                    }
                    Fault::AnotherError if result == -32 => result = -5,
                    Fault::NoEnd if result == 0 && is_transfer => result = -104,
                    Fault::ClosesConnections
                        if result >= 0 && self.accepts.contains(&token) && now_and_then(3) =>
                    {
                        // SAFETY: accepted just now, and nobody's.
                        drop(unsafe { OwnedFd::from_raw_fd(result) });
                        result = -103;
                    }
                    Fault::IgnoresShutdown if self.shutdowns.contains(&token) => {
                        result = result.min(0);
                    }
                    _ => {}
                }
                found.push(Completion { token, result });
            }
            polled
        }

        fn notifier(&self) -> Waker {
            self.inner.notifier()
        }
    }

    // SAFETY: no fault of it says that more was moved than was.
    unsafe impl IoReactor for Faulty {}

    struct Broke(Simulated, Fault);

    impl World for Broke {
        type Reactor = Faulty;
        type Clock = VirtualClock;

        fn reactor(&mut self) -> Faulty {
            Faulty {
                inner: self.0.reactor(),
                fault: self.1,
                count: 0,
                accepts: Vec::new(),
                transfers: Vec::new(),
                shutdowns: Vec::new(),
            }
        }

        fn clock(&self) -> VirtualClock {
            self.0.clock()
        }

        fn pass(&mut self) {
            self.0.pass();
        }

        fn pair(&mut self) -> (OwnedFd, OwnedFd) {
            self.0.pair()
        }

        fn pipe(&mut self) -> (OwnedFd, OwnedFd) {
            self.0.pipe()
        }

        fn file(&mut self) -> OwnedFd {
            self.0.file()
        }

        fn socket(&mut self) -> OwnedFd {
            self.0.socket()
        }

        fn listener(&mut self) -> (OwnedFd, SocketAddr) {
            self.0.listener()
        }

        fn datagrams(&mut self) -> (OwnedFd, SocketAddr) {
            self.0.datagrams()
        }
    }

    #[test]
    fn a_reactor_with_a_fault_is_found_out() {
        use Fault::{
            AnotherError, ClosesConnections, IgnoresOffsets, IgnoresShutdown, LosesACompletion,
            NeverCancels, NoEnd, NoSender, SaysCancelled, SaysOneLess,
        };
        for (fault, rules) in [
            (LosesACompletion, &["a stream carries all bytes in order"][..]),
            (SaysOneLess, &["a stream carries all bytes in order"]),
            (SaysCancelled, &["a cancelled transfer says what it has moved"]),
            (NeverCancels, &["what takes too long brings its buffer back"]),
            (AnotherError, &["a half-close ends one direction", "an error brings the buffer back"]),
            (NoEnd, &["a close is seen by the peer"]),
            (ClosesConnections, &["each connection is made and taken"]),
            (NoSender, &["a datagram comes whole and says from where"]),
            (IgnoresOffsets, &["a file keeps what is written where it is said"]),
            (IgnoresShutdown, &["a half-close ends one direction"]),
        ] {
            for rule in rules {
                let found_out = (0..20).any(|seed| {
                    let (clock, sim) = (VirtualClock::new(), SimIo::new(seed, Faults::NONE));
                    let world = Simulated { clock, sim, make: SimIo::reactor };
                    check_rule(&mut Broke(world, fault), rule, seed).is_err()
                });
                assert!(found_out, "{fault:?} breaks no rule of '{rule}'");
            }
        }
    }
}
