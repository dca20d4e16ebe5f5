//! What the reactor vouches for.

use evenkeel::io::IoReactor;

use crate::reactor::EpollReactor;

// SAFETY: the numbers are the kernel's own, of calls that were given the memory that was lent and no
// more than that. A descriptor that is brought comes of `accept4` and is kept nowhere else. What is
// lent is in the operation's place in the table, and the report takes it out of there.
unsafe impl IoReactor for EpollReactor {}
