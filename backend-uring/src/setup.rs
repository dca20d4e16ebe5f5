#![forbid(unsafe_code)]
//! The ladder: the best set of flags first, then down until the kernel knows them all.

use std::{fmt, io};

use io_uring::IoUring;
use rustix::io::Errno;

use crate::error::SetupError;

/// How the kernel hands completions over, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mode {
    /// On request only, and a flag in shared memory says when to ask. The kernel holds the ring to
    /// one thread. Linux 6.1.
    Deferred,
    /// At the thread's next system call, and the flag says that there is something. Linux 5.19.
    Cooperative,
    /// At once: the kernel interrupts the thread, which costs about 10 µs, and the completion queue
    /// itself says that there is something.
    Plain,
}

impl Mode {
    /// All of them, best first.
    ///
    /// ```
    /// use evenkeel_uring::{Mode, UringReactor};
    ///
    /// for mode in Mode::ALL {
    ///     if let Ok(reactor) = UringReactor::builder().at_most(mode).build() {
    ///         assert!(reactor.mode() >= mode);
    ///     }
    /// }
    /// ```
    pub const ALL: [Self; 3] = [Self::Deferred, Self::Cooperative, Self::Plain];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deferred => "deferred",
            Self::Cooperative => "cooperative",
            Self::Plain => "plain",
        })
    }
}

/// A set of flags that is asked for together.
#[derive(PartialEq, Debug)]
pub(crate) struct Rung {
    pub(crate) mode: Mode,
    /// Whether one SQE that fails does not keep those behind it from being submitted. Linux 5.18.
    submit_all: bool,
    /// The flags that tell it from the others.
    pub(crate) detail: &'static str,
}

const LADDER: [Rung; 4] = [
    Rung {
        mode: Mode::Deferred,
        submit_all: true,
        detail: "SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG",
    },
    Rung { mode: Mode::Cooperative, submit_all: true, detail: "COOP_TASKRUN|TASKRUN_FLAG" },
    Rung { mode: Mode::Plain, submit_all: true, detail: "plain" },
    Rung { mode: Mode::Plain, submit_all: false, detail: "plain, without SUBMIT_ALL" },
];

/// How many entries are asked for. The kernel rounds up to powers of two, and down to its maximum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) submissions: u32,
    pub(crate) completions: u32,
}

/// A ring, and what was granted.
pub(crate) fn set_up(best: Mode, sizes: Sizes) -> Result<(IoUring, &'static Rung), SetupError> {
    let (ring, granted) = climb_down(best, |rung| attempt(rung, sizes))
        .map_err(|error| SetupError::of_call("io_uring_setup", error))?;
    if !ring.params().is_feature_nodrop() {
        return Err(SetupError::drops_completions());
    }
    // A sandbox may allow one of the three calls and refuse another: better known now than in the
    // midst of things.
    if granted.mode == Mode::Deferred {
        ring.submitter()
            .register_probe(&mut io_uring::Probe::new())
            .map_err(|error| SetupError::of_call("io_uring_register", error))?;
    }
    match ring.submit() {
        // A disabled ring says that it is disabled.
        Err(error) if Errno::from_io_error(&error) != Some(Errno::BADFD) => {
            Err(SetupError::of_call("io_uring_enter", error))
        }
        _ => Ok((ring, granted)),
    }
}

/// Steps down when the kernel does not know a flag, and for no other reason.
fn climb_down<R>(
    best: Mode,
    mut attempt: impl FnMut(&Rung) -> io::Result<R>,
) -> io::Result<(R, &'static Rung)> {
    let mut unknown = io::Error::from(Errno::INVAL);
    for rung in LADDER.iter().filter(|rung| rung.mode >= best) {
        match attempt(rung) {
            Ok(ring) => return Ok((ring, rung)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => unknown = error,
            Err(error) => return Err(error),
        }
    }
    Err(unknown)
}

fn attempt(rung: &Rung, sizes: Sizes) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(sizes.completions);
    if rung.submit_all {
        builder.setup_submit_all();
    }
    match rung.mode {
        // Disabled until its thread is known: a single issuer is whoever enables the ring.
        Mode::Deferred => builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled(),
        Mode::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
        Mode::Plain => &mut builder,
    };
    builder.build(sizes.submissions)
}

/// A ring of the lowest rung, which only kernels before 5.18 would be asked for.
#[cfg(test)]
pub(crate) fn lowest(sizes: Sizes) -> (IoUring, &'static Rung) {
    let rung = LADDER.last().unwrap();
    (attempt(rung, sizes).unwrap(), rung)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that knows the flags of the rungs from this one on.
    fn descent(best: Mode, known_from: usize) -> (Vec<&'static str>, io::Result<&'static str>) {
        let mut tried = Vec::new();
        let got = climb_down(best, |rung| {
            let place = LADDER.iter().position(|other| other == rung).unwrap();
            tried.push(LADDER[place].detail);
            if place < known_from { Err(Errno::INVAL.into()) } else { Ok(()) }
        });
        (tried, got.map(|((), rung)| rung.detail))
    }

    #[test]
    fn the_best_rung_is_tried_first_and_kept() {
        let (tried, got) = descent(Mode::Deferred, 0);
        assert_eq!(tried, ["SINGLE_ISSUER|DEFER_TASKRUN|TASKRUN_FLAG"]);
        assert_eq!(got.unwrap(), tried[0]);
    }

    #[test]
    fn an_unknown_flag_leads_one_rung_down() {
        for (known_from, rung) in LADDER.iter().enumerate() {
            let (tried, got) = descent(Mode::Deferred, known_from);
            assert_eq!(tried.len(), known_from + 1);
            assert_eq!(got.unwrap(), rung.detail);
        }
    }

    #[test]
    fn rungs_above_the_best_allowed_are_not_tried() {
        assert_eq!(descent(Mode::Cooperative, 0).0, ["COOP_TASKRUN|TASKRUN_FLAG"]);
        assert_eq!(descent(Mode::Plain, 3).0, ["plain", "plain, without SUBMIT_ALL"]);
    }

    #[test]
    fn below_the_last_rung_the_kernels_answer_remains() {
        let (tried, got) = descent(Mode::Deferred, LADDER.len());
        assert_eq!(tried.len(), LADDER.len());
        assert_eq!(Errno::from_io_error(&got.unwrap_err()), Some(Errno::INVAL));
    }

    #[test]
    fn a_refusal_is_not_a_reason_to_step_down() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::NOMEM, Errno::MFILE] {
            let mut attempts = 0;
            let refused = climb_down::<()>(Mode::Deferred, |_| {
                attempts += 1;
                Err(errno.into())
            });
            assert_eq!(Errno::from_io_error(&refused.unwrap_err()), Some(errno));
            assert_eq!(attempts, 1);
        }
    }
}
