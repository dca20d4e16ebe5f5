//! A task with a long loop asks whether it keeps somebody waiting, and is told so for a reason only.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use evenkeel::testing::{Sim, SimOperation, SimReactor, VirtualClock};
use evenkeel::{Handle, Rest, Worker, WorkerConfig, yield_now};

/// Within so many questions it is told what only the clock can tell.
const STRIDE: u32 = 64;

struct Scene {
    clock: VirtualClock,
    sim: Sim,
    worker: Worker<SimReactor, VirtualClock>,
}

impl Scene {
    fn new(reactor: impl FnOnce(SimReactor) -> SimReactor) -> Self {
        let clock = VirtualClock::new();
        let reactor = reactor(SimReactor::new(&clock));
        let sim = reactor.control();
        let worker = Worker::new(reactor, clock.clone(), WorkerConfig::default());
        Self { clock, sim, worker }
    }

    /// Runs `ask` in the midst of a dispatch, with a backlog in the local lane.
    fn in_a_dispatch(
        mut self,
        ask: impl FnOnce(&Handle<SimReactor>, &VirtualClock, &Sim) + 'static,
    ) {
        while self.worker.tick().unwrap().rest != Rest::Idle {}
        let done = Rc::new(Cell::new(false));
        let (asked, handle) = (Rc::clone(&done), self.worker.handle());
        let (clock, sim) = (self.clock.clone(), self.sim.clone());
        let backlog = Rc::clone(&done);
        let _backlog = self.worker.handle().spawn(async move {
            while !backlog.get() {
                yield_now().await;
            }
        });
        let _asks = self.worker.handle().spawn(async move {
            ask(&handle, &clock, &sim);
            asked.set(true);
        });
        for _ in 0..100 {
            self.worker.tick().unwrap();
        }
        assert!(done.get());
    }
}

fn asked(handle: &Handle<SimReactor>, times: u32) -> bool {
    (0..times).any(|_| handle.should_yield())
}

#[test]
fn nobody_waits_who_stands_in_the_local_lane() {
    Scene::new(|sim| sim).in_a_dispatch(|handle, clock, _| {
        clock.advance(Duration::from_secs(1));
        assert!(!asked(handle, 10 * STRIDE));
    });
}

#[test]
fn a_submission_waits() {
    Scene::new(|sim| sim).in_a_dispatch(|handle, _, _| {
        assert!(!handle.should_yield());
        let _task = handle.remote().spawn(async {});
        assert!(handle.should_yield());
    });
}

#[test]
fn who_wants_the_worker_to_end_waits() {
    Scene::new(|sim| sim).in_a_dispatch(|handle, _, _| {
        handle.remote().stop();
        assert!(handle.should_yield());
    });
}

#[test]
fn a_completion_waits_that_the_reactor_can_tell_of() {
    let scene = Scene::new(|sim| sim);
    let handle = scene.worker.handle();
    let _waits = scene.worker.handle().spawn(async move {
        let _ = handle.submit(SimOperation::Event(1)).unwrap().await;
    });
    scene.in_a_dispatch(|handle, _, sim| {
        assert!(!handle.should_yield());
        assert!(sim.fire(1, 0));
        assert!(handle.should_yield());
    });
}

#[test]
fn a_poll_waits_that_has_become_due() {
    Scene::new(SimReactor::blind).in_a_dispatch(|handle, clock, _| {
        assert!(!asked(handle, STRIDE), "the worker has just polled");
        clock.advance(Duration::from_micros(50));
        assert!(asked(handle, STRIDE));
        assert!(handle.should_yield(), "once told it is told again");
    });
}

#[test]
fn a_timer_waits_that_has_become_due() {
    let scene = Scene::new(|sim| sim);
    let handle = scene.worker.handle();
    let _sleeps = scene.worker.handle().spawn(async move {
        handle.sleep(Duration::from_millis(1)).await;
    });
    scene.in_a_dispatch(|handle, clock, _| {
        clock.advance(Duration::from_micros(999));
        assert!(!asked(handle, STRIDE));
        clock.advance(Duration::from_micros(1));
        assert!(asked(handle, STRIDE));
    });
}
