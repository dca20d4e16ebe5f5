#![forbid(unsafe_code)]
//! Who sees to it that a check ends.

#[cfg(feature = "std")]
mod guarded {
    use alloc::string::{String, ToString};
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicBool, Ordering};
    use core::task::Waker;
    use core::time::Duration;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::thread::{self, JoinHandle};

    /// A thread that ends a check which does not end by itself.
    pub(in super::super) struct Watchdog {
        aid: Aid,
        over: Sender<()>,
        watch: JoinHandle<()>,
    }

    /// Whether the watchdog had to help.
    #[derive(Clone)]
    pub(in super::super) struct Aid(Arc<AtomicBool>);

    impl Aid {
        /// A call has come back: by itself?
        pub(in super::super) fn was_not_needed(&self) -> Result<(), String> {
            // Ordering: SeqCst: it counts for nothing here.
            if !self.0.load(Ordering::SeqCst) {
                return Ok(());
            }
            Err(String::from("a call came back only when the notifier was woken in its aid"))
        }
    }

    impl Watchdog {
        pub(in super::super) fn new(
            rule: &'static str,
            reactor: &'static str,
            notifier: Waker,
            patience: Duration,
        ) -> Self {
            let (over, end) = channel();
            let aid = Aid(Arc::default());
            let given = aid.clone();
            let watch = thread::spawn(move || {
                let limit = 3 * patience;
                if is_over(&end, limit) {
                    return;
                }
                // Ordering: SeqCst, as above.
                given.0.store(true, Ordering::SeqCst);
                for _ in 0..3 {
                    notifier.wake_by_ref();
                    if is_over(&end, limit) {
                        return;
                    }
                }
                std::eprintln!(
                    "the reactor `{reactor}` breaks the rule `{rule}`: a call does not come back, \
                     and waking the notifier does not help"
                );
                std::process::abort()
            });
            Self { aid, over, watch }
        }

        pub(in super::super) fn aid(&self) -> Aid {
            self.aid.clone()
        }

        /// The check has ended.
        pub(in super::super) fn dismiss(self) -> Result<(), String> {
            // Its end is the message too.
            let _ = self.over.send(());
            match self.watch.join() {
                Ok(()) => self.aid.was_not_needed(),
                Err(_) => Err(String::from("the notifier panicked when it was woken")),
            }
        }
    }

    fn is_over(end: &Receiver<()>, limit: Duration) -> bool {
        end.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }

    /// Calls what may panic, and tells of it.
    pub(in super::super) fn caught(
        call: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
            let text = payload
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| payload.downcast_ref::<String>().cloned());
            Err(match text {
                Some(text) => alloc::format!("it panicked: {text}"),
                None => String::from("it panicked"),
            })
        })
    }
}

#[cfg(not(feature = "std"))]
mod guarded {
    use alloc::string::String;
    use core::task::Waker;
    use core::time::Duration;

    /// There is no thread for it.
    pub(in super::super) struct Watchdog;

    /// There is none.
    pub(in super::super) struct Aid;

    impl Aid {
        #[allow(clippy::unused_self)] // with std there may have been some
        #[allow(clippy::unnecessary_wraps)] // as above
        pub(in super::super) fn was_not_needed(&self) -> Result<(), String> {
            Ok(())
        }
    }

    impl Watchdog {
        pub(in super::super) fn new(
            _: &'static str,
            _: &'static str,
            _: Waker,
            _: Duration,
        ) -> Self {
            Self
        }

        #[allow(clippy::unused_self)] // with std it is told apart from others
        pub(in super::super) fn aid(&self) -> Aid {
            Aid
        }

        #[allow(clippy::unused_self)] // with std there is somebody to dismiss
        #[allow(clippy::unnecessary_wraps)] // and somebody who has seen something
        pub(in super::super) fn dismiss(self) -> Result<(), String> {
            Ok(())
        }
    }

    /// A panic can't be caught.
    pub(in super::super) fn caught(
        call: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        call()
    }
}

pub(super) use guarded::{Aid, Watchdog, caught};
