#![forbid(unsafe_code)]
//! Who of a team idles, and who is called when there is work to share.
//!
//! A worker announces that it idles and then looks once more at everybody's queue; who makes a task
//! runnable pushes it and then looks at the announcements. Each has a full fence between its store
//! and its load, so at least one sees the other. At most one worker is *called* at a time: it
//! searches, and when its search is over it looks whether another has to be called. So a burst of
//! pushes wakes one after the other, as long as there is something for them, and not everybody at
//! once.

use crate::sync::{AtomicUsize, Ordering, fence};

/// One bit for each member that idles, the highest for a search.
pub(crate) struct Idle(AtomicUsize);

/// Somebody was called and has not ended its search.
const SEARCH: usize = 1 << (usize::BITS - 1);

/// How many members a team can have: one bit for each, beside the one for the search.
pub(crate) const MOST_MEMBERS: usize = usize::BITS as usize - 1;

/// What a member finds when it takes its announcement back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    None,
    /// Somebody has called it: it searches, and ends the search.
    Pending,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// By a member, before its last look at the queues.
    pub(crate) fn announce(&self, member: usize) {
        // Ordering: Relaxed, it publishes nothing: that the member parks it has announced before,
        // with a fence behind it, so who finds the bit and has passed the fence of
        // `Park::handed_over` finds that too.
        self.0.fetch_or(1 << member, Ordering::Relaxed);
        // Ordering: SeqCst, pairs with the fence of `call`.
        fence(Ordering::SeqCst);
    }

    /// By a member that has announced itself, when it goes on.
    pub(crate) fn retract(&self, member: usize) -> Call {
        // Ordering: Acquire, pairs with the fence of `call`: what it was called for is visible.
        let before = self.0.fetch_and(!(1 << member), Ordering::Acquire);
        if before & (1 << member) == 0 { Call::Pending } else { Call::None }
    }

    /// A member that idles, for who has something for anybody.
    pub(crate) fn somebody(&self) -> Option<usize> {
        // Ordering: Relaxed, a hint.
        let idle = self.0.load(Ordering::Relaxed) & !SEARCH;
        (idle != 0).then(|| idle.trailing_zeros() as usize)
    }

    /// Whether somebody idles and nobody searches, for who looks again soon.
    pub(crate) fn could_be_called(&self) -> bool {
        // Ordering: Relaxed, it decides nothing but whether to look closer.
        can_be_called(self.0.load(Ordering::Relaxed))
    }

    /// By who has pushed something, or has ended a search and seen that there is more: the member
    /// that the caller has to wake.
    pub(crate) fn call(&self) -> Option<usize> {
        // Ordering: SeqCst, pairs with the fences of `announce` and of `end_search`; for the
        // exchange it is the Release that `retract` acquires.
        fence(Ordering::SeqCst);
        // Ordering: Relaxed, the exchange tells whether it is still so.
        let mut seen = self.0.load(Ordering::Relaxed);
        while can_be_called(seen) {
            let member = seen.trailing_zeros();
            // Ordering: Relaxed, the fence is before it.
            match self.0.compare_exchange_weak(
                seen,
                seen & !(1 << member) | SEARCH,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(member as usize),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// By the member that was called. It then looks at the queues again: who has pushed meanwhile
    /// has called nobody.
    pub(crate) fn end_search(&self) {
        // Ordering: Relaxed, it publishes nothing; the fence orders it before the look.
        self.0.fetch_and(!SEARCH, Ordering::Relaxed);
        // Ordering: SeqCst, pairs with the fence of `call`.
        fence(Ordering::SeqCst);
    }
}

fn can_be_called(word: usize) -> bool {
    word != 0 && word & SEARCH == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_is_called_at_a_time() {
        let idle = Idle::new();
        idle.announce(0);
        idle.announce(2);
        assert_eq!(idle.call(), Some(0));
        assert_eq!(idle.call(), None, "member 0 searches");
        idle.end_search();
        assert_eq!(idle.call(), Some(2));
    }

    #[test]
    fn who_was_called_knows_it() {
        let idle = Idle::new();
        idle.announce(1);
        assert_eq!(idle.retract(1), Call::None);
        idle.announce(1);
        assert_eq!(idle.call(), Some(1));
        assert_eq!(idle.retract(1), Call::Pending);
    }

    #[test]
    fn who_does_not_idle_is_not_called() {
        let idle = Idle::new();
        assert!(!idle.could_be_called());
        assert_eq!(idle.call(), None);
        idle.announce(MOST_MEMBERS - 1);
        assert!(idle.could_be_called());
        assert_eq!(idle.call(), Some(MOST_MEMBERS - 1));
    }
}
