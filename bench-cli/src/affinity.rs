//! Which CPUs threads may run on.

use std::fmt;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::plan::Pin;

/// The CPUs that the calling thread may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed(Vec<usize>);

impl Allowed {
    /// Asks the system.
    ///
    /// # Errors
    ///
    /// What the system answered, if it would not say.
    pub fn now() -> Result<Self, Errno> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()))
    }

    /// The lowest of them; a thread always has one.
    ///
    /// # Panics
    ///
    /// Never: the system gives no thread an empty set.
    #[must_use]
    pub fn first(&self) -> usize {
        self.0[0]
    }

    /// The first of the two CPUs that is not among these.
    #[must_use]
    pub fn missing(&self, pin: Pin) -> Option<usize> {
        [pin.worker, pin.remote].into_iter().find(|cpu| !self.0.contains(cpu))
    }
}

/// As people write CPU lists: `0-3, 8`.
impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|before, cpu| before + 1 == *cpu);
        for (nth, run) in runs.enumerate() {
            if nth > 0 {
                f.write_str(", ")?;
            }
            match run {
                [only] => write!(f, "{only}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Binds the calling thread to one CPU. A subject calls this on its worker's thread: a new thread
/// inherits the CPUs of the thread that made it, and that one may be pinned elsewhere.
///
/// # Errors
///
/// What the system answered, if the CPU does not exist or is not allowed.
pub fn pin_current_thread(cpu: usize) -> Result<(), Errno> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)
}

/// The calling thread is bound to one CPU until this is dropped on the same thread.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Binds the calling thread.
    ///
    /// # Errors
    ///
    /// What the system answered, if the CPU does not exist or is not allowed.
    pub fn to(cpu: usize) -> Result<Self, Errno> {
        let before = sched_getaffinity(None)?;
        pin_current_thread(cpu)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Going back can fail only if those CPUs were taken away meanwhile; then the system has
        // chosen others, and there is nothing better to go back to.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_bound_and_then_free_again() {
        let before = Allowed::now().unwrap();
        let cpu = before.first();
        let pinned = Pinned::to(cpu).unwrap();
        assert_eq!(Allowed::now().unwrap(), Allowed(vec![cpu]));
        drop(pinned);
        assert_eq!(Allowed::now().unwrap(), before);
    }

    #[test]
    fn an_impossible_cpu_is_refused() {
        assert_eq!(pin_current_thread(1_000_000), Err(Errno::INVAL));
    }

    #[test]
    fn the_missing_one_of_two_is_named() {
        let allowed = Allowed(vec![0, 1, 4]);
        assert_eq!(allowed.missing(Pin { worker: 0, remote: 4 }), None);
        assert_eq!(allowed.missing(Pin { worker: 1, remote: 1 }), None);
        assert_eq!(allowed.missing(Pin { worker: 0, remote: 2 }), Some(2));
        assert_eq!(allowed.missing(Pin { worker: 9, remote: 2 }), Some(9));
    }

    #[test]
    fn is_written_as_people_write_cpu_lists() {
        assert_eq!(Allowed(vec![0, 1, 2, 3, 8]).to_string(), "0-3, 8");
        assert_eq!(Allowed(vec![5]).to_string(), "5");
    }
}
