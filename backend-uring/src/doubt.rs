#![forbid(unsafe_code)]
//! Whether the kernel's word that it holds something back is to be believed.
//!
//! The kernel adds deferred work to a list and then raises its flag. If the ring's thread empties
//! the list in between, the flag is raised for nothing, and stays up: only work that is done takes
//! it down. Seen on Linux 6.18, once in about 500,000 wakes from another thread. Who believed it
//! would enter the kernel for ever, and never wait.

/// So many enters in a row that found nothing and left the flag up raise it. One may be chance:
/// the flag was raised anew.
const ENOUGH: u32 = 2;

/// How often the flag has been up for nothing.
#[derive(Default)]
pub(crate) struct Doubt {
    fruitless: u32,
}

/// What the flag says after an enter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    Down,
    Up,
}

impl Doubt {
    /// After an enter for events, and how many it found.
    pub(crate) fn learn(&mut self, events: usize, flag: Flag) {
        self.fruitless = match flag {
            Flag::Up if events == 0 => self.fruitless.saturating_add(1),
            Flag::Up | Flag::Down => 0,
        };
    }

    /// Whether the flag tells nothing: only an enter can tell.
    pub(crate) fn is_raised(&self) -> bool {
        self.fruitless >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(enters: &[(usize, Flag)]) -> bool {
        let mut doubt = Doubt::default();
        for &(events, flag) in enters {
            doubt.learn(events, flag);
        }
        doubt.is_raised()
    }

    #[test]
    fn a_flag_that_stays_up_for_nothing_is_doubted() {
        assert!(!after(&[(0, Flag::Up)]));
        assert!(after(&[(0, Flag::Up), (0, Flag::Up)]));
    }

    #[test]
    fn what_is_found_or_a_flag_that_goes_down_ends_the_doubt() {
        let doubted = [(0, Flag::Up), (0, Flag::Up)];
        assert!(!after(&[doubted[0], doubted[1], (1, Flag::Up)]));
        assert!(!after(&[doubted[0], doubted[1], (0, Flag::Down)]));
    }
}
