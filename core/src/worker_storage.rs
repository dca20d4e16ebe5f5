//! Room for a worker in a static.

use core::cell::RefCell;
use core::fmt;
use core::mem::MaybeUninit;

use crate::handle::Driver;
use crate::operation::{Slot, Slots};
use crate::reactor::Reactor;
use crate::service::context::Identity;
use crate::service::home::Home;
use crate::service::home_ref::HomeRef;
use crate::sync::{AtomicU32, Ordering, SharedCell};
use crate::time::Clock;

const VACANT: u32 = 0;
const TAKEN: u32 = 1;

/// Room for one worker in a static, with its reactor, its clock and `OPERATIONS` operations in
/// flight: what [`Worker::new_in`](crate::Worker::new_in) needs in place of an allocator.
///
/// It serves once: wakers and handles of the worker are valid for ever, so the room is not given
/// back. The reactor and the clock are not dropped with the worker, as statics never are.
///
/// ```
/// # use core::task::Waker;
/// # use evenkeel::{Completions, Polled, Readiness, Refused, Submitted, Token, Wait};
/// use evenkeel::{Clock, Instant, Reactor, Worker, WorkerConfig, WorkerStorage};
///
/// struct Idle;
/// # impl Reactor for Idle {
/// #     type Operation = ();
/// #     type Error = core::convert::Infallible;
/// #     fn name(&self) -> &'static str { "idle" }
/// #     fn readiness(&mut self) -> Readiness { Readiness::Quiet }
/// #     fn submit(&mut self, _: Token, _: ()) -> Result<Submitted, Refused<(), Self::Error>> {
/// #         Ok(Submitted::Armed)
/// #     }
/// #     fn cancel(&mut self, _: Token) {}
/// #     fn poll(&mut self, _: Wait, _: &mut Completions) -> Result<Polled, Self::Error> {
/// #         Ok(Polled::default())
/// #     }
/// #     fn notifier(&self) -> Waker { Waker::noop().clone() }
/// # }
/// struct Stopped;
///
/// impl Clock for Stopped {
///     fn now(&self) -> Instant {
///         Instant::ZERO
///     }
/// }
///
/// static WORKER: WorkerStorage<Idle, Stopped, 8> = WorkerStorage::new();
///
/// let worker = Worker::new_in(&WORKER, Idle, Stopped, WorkerConfig::default()).unwrap();
/// // It serves once.
/// assert!(Worker::new_in(&WORKER, Idle, Stopped, WorkerConfig::default()).is_err());
/// ```
pub struct WorkerStorage<R, C, const OPERATIONS: usize> {
    taken: AtomicU32,
    slots: [Slot; OPERATIONS],
    home: SharedCell<MaybeUninit<Home>>,
    driver: SharedCell<MaybeUninit<Driver<R, C>>>,
}

// SAFETY: what is in it is written once, by the one who took it, who is the worker and stays on one
// thread; of the rest only the home and the slots are reached from elsewhere, which are `Sync`. The
// reactor and the clock are made and used on that one thread.
unsafe impl<R, C, const OPERATIONS: usize> Sync for WorkerStorage<R, C, OPERATIONS> {}

impl<R: Reactor, C: Clock, const OPERATIONS: usize> WorkerStorage<R, C, OPERATIONS> {
    /// Empty room.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            taken: AtomicU32::new(VACANT),
            slots: [const { Slot::new() }; OPERATIONS],
            home: SharedCell::new(MaybeUninit::uninit()),
            driver: SharedCell::new(MaybeUninit::uninit()),
        }
    }

    /// The same; loom's atomics are not const.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            taken: AtomicU32::new(VACANT),
            slots: core::array::from_fn(|_| Slot::new()),
            home: SharedCell::new(MaybeUninit::uninit()),
            driver: SharedCell::new(MaybeUninit::uninit()),
        }
    }

    /// Takes it for a worker that stays on the caller's thread.
    pub(crate) fn fill(
        &'static self,
        reactor: R,
        clock: C,
        identity: Identity,
    ) -> Result<&'static Driver<R, C>, StorageTaken<R, C>> {
        // Ordering: Relaxed, nothing is read by the leave of an earlier holder: there is none.
        if self.taken.swap(TAKEN, Ordering::Relaxed) == TAKEN {
            return Err(StorageTaken { reactor, clock });
        }
        let home = Home::in_static(reactor.notifier(), Slots::Static(&self.slots), identity);
        // SAFETY: taken just now, for good: nobody else has come or will come here.
        let home: &'static Home = self.home.with_mut(|place| unsafe { (*place).write(home) });
        let driver = Driver { home: HomeRef::Static(home), reactor: RefCell::new(reactor), clock };
        // SAFETY: as above.
        Ok(self.driver.with_mut(|place| unsafe { (*place).write(driver) }))
    }
}

impl<R: Reactor, C: Clock, const OPERATIONS: usize> Default for WorkerStorage<R, C, OPERATIONS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R, C, const OPERATIONS: usize> fmt::Debug for WorkerStorage<R, C, OPERATIONS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerStorage").field("operations", &OPERATIONS).finish_non_exhaustive()
    }
}

/// A [`WorkerStorage`] has its worker already, or had it. What was to go into it comes back.
pub struct StorageTaken<R, C> {
    /// The reactor.
    pub reactor: R,
    /// The clock.
    pub clock: C,
}

impl<R, C> fmt::Debug for StorageTaken<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What `unwrap` shows.
        write!(f, "StorageTaken: {self}")
    }
}

impl<R, C> fmt::Display for StorageTaken<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the worker storage has had its worker, and serves once since wakers of it are valid \
             for ever; declare one static for each worker",
        )
    }
}

impl<R, C> core::error::Error for StorageTaken<R, C> {}
