#![forbid(unsafe_code)]
//! Which lane is next: while several of the three hold work, they take turns.

/// A class of runnable work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Lane {
    /// The backlog: tasks that yielded, that woke each other, that the worker spawned.
    Local,
    /// What came through the inbox: from other threads, and from interrupt handlers.
    Remote,
    /// What completions and timers woke.
    Io,
}

impl Lane {
    /// How many there are, which is the most turns that a lane waits for its own.
    pub const COUNT: usize = 3;

    pub(crate) fn after(self) -> Self {
        match self {
            Self::Local => Self::Remote,
            Self::Remote => Self::Io,
            Self::Io => Self::Local,
        }
    }
}
