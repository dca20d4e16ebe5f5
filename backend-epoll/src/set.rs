#![forbid(unsafe_code)]
//! The epoll set: every call on the epoll descriptor.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use evenkeel::POLL_BATCH;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::aio::AioPoll;
use crate::builder::Looks;
use crate::descriptor;
use crate::notifier::Notifier;
use crate::setup::SetupError;
use crate::wait::{Pause, Timer, timespec};

/// Room for the events of one look. What does not fit stays in the kernel, in its order.
pub(crate) type Events = [MaybeUninit<Event>; POLL_BATCH];

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whose event it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Notifier,
    Timer,
    /// A descriptor, and the generation of its registration when it was last armed.
    Descriptor {
        fd: RawFd,
        generation: u32,
    },
}

impl Source {
    // A descriptor's number has 31 bits, so these two can't be one's.
    const NOTIFIER: u64 = u64::MAX;
    const TIMER: u64 = u64::MAX - 1;

    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Notifier => Self::NOTIFIER,
            Self::Timer => Self::TIMER,
            Self::Descriptor { fd, generation } => {
                u64::from(generation) << 32 | u64::from(fd.cast_unsigned())
            }
        })
    }

    #[allow(clippy::cast_possible_truncation)] // the two halves, each 32 bits
    pub(crate) fn of(event: &Event) -> Self {
        match { event.data }.u64() {
            Self::NOTIFIER => Self::Notifier,
            Self::TIMER => Self::Timer,
            data => Self::Descriptor {
                fd: (data as u32).cast_signed(),
                generation: (data >> 32) as u32,
            },
        }
    }
}

/// What is known of events without a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sight {
    /// There may be some.
    Events,
    /// There are none.
    Nothing,
    /// Only a look can tell.
    Blind,
}

/// The epoll descriptor, with the notifier and the timer in it from the start.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) epoll: OwnedFd,
    pub(crate) notifier: Arc<Notifier>,
    /// None where a sandbox refuses timers.
    timer: Option<Timer>,
    /// None where there is nothing of the kind, or it is not wanted.
    pub(crate) aio: Option<AioPoll>,
}

/// What ends every wait, asked for or not: an error, a hang-up, and the peer's half-close. The last
/// one has to be asked for here; `io_uring` adds it by itself.
pub(crate) const UNASKED: EventFlags =
    EventFlags::ERR.union(EventFlags::HUP).union(EventFlags::RDHUP);

impl Set {
    pub(crate) fn new(looks: Looks) -> Result<Self, SetupError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(SetupError::of("epoll_create1"))?;
        let notifier = Arc::new(Notifier::new()?);
        let edge = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &notifier.eventfd, Source::Notifier.data(), edge)
            .map_err(SetupError::of("epoll_ctl"))?;
        let timer = match Timer::new() {
            Ok(timer) => {
                epoll::add(&epoll, &timer.timerfd, Source::Timer.data(), edge)
                    .map_err(SetupError::of("epoll_ctl"))?;
                Some(timer)
            }
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => None,
            Err(errno) => return Err(SetupError::of("timerfd_create")(errno)),
        };
        let aio = match looks {
            Looks::FromMemory => AioPoll::new(&epoll),
            Looks::BySystemCall => None,
        };
        let set = Self { epoll, notifier, timer, aio };
        // A sandbox may allow the set and refuse the wait.
        set.look(&mut [MaybeUninit::uninit(); POLL_BATCH])
            .map_err(SetupError::of("epoll_pwait"))?;
        Ok(set)
    }

    /// How a wait ends at its deadline, and how it is known that there are events.
    pub(crate) fn detail(&self) -> &'static str {
        match (&self.timer, self.looks()) {
            (Some(_), Looks::FromMemory) => "epoll_pwait + timerfd + aio",
            (Some(_), Looks::BySystemCall) => "epoll_pwait + timerfd",
            (None, Looks::FromMemory) => "epoll_pwait + ppoll + aio",
            (None, Looks::BySystemCall) => "epoll_pwait + ppoll",
        }
    }

    pub(crate) fn looks(&self) -> Looks {
        if self.aio.is_some() { Looks::FromMemory } else { Looks::BySystemCall }
    }

    /// What is known of events without a system call.
    #[inline]
    pub(crate) fn sight(&self) -> Sight {
        match &self.aio {
            Some(aio) if !aio.is_armed() => Sight::Blind,
            Some(aio) if aio.has_fired() => Sight::Events,
            Some(_) => Sight::Nothing,
            None => Sight::Blind,
        }
    }

    /// Before the events are taken: what the memory tells of them is taken in.
    #[inline]
    pub(crate) fn before_look(&mut self) {
        if let Some(aio) = &mut self.aio
            && aio.has_fired()
        {
            aio.take();
        }
    }

    /// From now on the memory tells. One system call, unless it does already.
    #[inline]
    pub(crate) fn watch_from_memory(&mut self) {
        if let Some(aio) = &mut self.aio {
            aio.arm();
        }
    }

    /// Whether the number is one of the set's own. Registering these anew would make the reactor
    /// deaf.
    #[inline]
    pub(crate) fn owns(&self, fd: RawFd) -> bool {
        fd == self.epoll.as_raw_fd()
            || fd == self.notifier.eventfd.as_raw_fd()
            || self.timer.as_ref().is_some_and(|timer| fd == timer.timerfd.as_raw_fd())
    }

    /// Watches a descriptor that is not in the set.
    pub(crate) fn add(&self, fd: RawFd, generation: u32, flags: EventFlags) -> Result<(), Errno> {
        let descriptor = descriptor::borrow(fd).ok_or(Errno::BADF)?;
        let data = Source::Descriptor { fd, generation }.data();
        epoll::add(&self.epoll, descriptor, data, flags)
    }

    /// Watches a descriptor that is in the set.
    pub(crate) fn arm(&self, fd: RawFd, generation: u32, flags: EventFlags) -> Result<(), Errno> {
        let descriptor = descriptor::borrow(fd).ok_or(Errno::BADF)?;
        let data = Source::Descriptor { fd, generation }.data();
        epoll::modify(&self.epoll, descriptor, data, flags)
    }

    /// Takes a descriptor out of the set.
    pub(crate) fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, descriptor::borrow(fd).ok_or(Errno::BADF)?)
    }

    /// The timer has reported.
    pub(crate) fn timer_reported(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.reported();
        }
    }

    /// Takes what events there are.
    #[inline]
    pub(crate) fn look<'room>(&self, room: &'room mut Events) -> Result<&'room [Event], Errno> {
        epoll::wait(&self.epoll, room, Some(&NO_TIME)).map(|(events, _)| &*events)
    }

    /// Takes what events there are, and blocks for them as long as `pause` says. May end early with
    /// none.
    ///
    /// A deadline is the timer's. `epoll_pwait2` would save the call that sets it, but ends about
    /// 50 µs late (the thread's timer slack, from which timers are exempt), and rustix either uses
    /// it for every wait, which makes a dry look a third dearer, or rounds the time up to whole
    /// milliseconds. Without a timer `ppoll` waits on the epoll descriptor: as exact as
    /// `epoll_pwait2`, and known to every sandbox.
    pub(crate) fn wait<'room>(
        &mut self,
        pause: Pause,
        room: &'room mut Events,
    ) -> Result<&'room [Event], Errno> {
        match pause {
            Pause::Never => return self.look(room),
            Pause::Forever => {}
            Pause::Until { deadline, left } => {
                // A sandbox may have closed since the set was made.
                if let Some(timer) = &mut self.timer
                    && timer.set(deadline, left).is_err()
                {
                    self.timer = None;
                }
                if self.timer.is_none() {
                    poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timespec(left)))?;
                    return self.look(room);
                }
            }
        }
        epoll::wait(&self.epoll, room, None).map(|(events, _)| &*events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_survives_its_way_through_the_kernel() {
        for source in [
            Source::Notifier,
            Source::Timer,
            Source::Descriptor { fd: 0, generation: 0 },
            Source::Descriptor { fd: RawFd::MAX, generation: u32::MAX },
        ] {
            assert_eq!(Source::of(&Event { flags: EventFlags::IN, data: source.data() }), source);
        }
    }
}
