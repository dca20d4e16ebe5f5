//! One line that says how far a run has come, for a person who watches.

use std::io::{self, IsTerminal, Stderr, Write};
use std::num::NonZeroU32;

/// The line. It is there only if someone can see it, and gone when this is dropped.
pub struct Progress<W: Write> {
    terminal: Option<W>,
    trials: NonZeroU32,
}

/// Back to the beginning of the line, and erase it.
const CLEAR_LINE: &str = "\r\x1b[K";

impl Progress<Stderr> {
    /// On standard error, if that is a terminal.
    #[must_use]
    pub fn on_stderr(trials: NonZeroU32) -> Self {
        let stderr = io::stderr();
        Self { terminal: stderr.is_terminal().then_some(stderr), trials }
    }
}

impl<W: Write> Progress<W> {
    /// Trial `number` begins.
    pub fn trial(&mut self, number: u32) {
        let trials = self.trials;
        self.show(format_args!("{CLEAR_LINE}trial {number} of {trials}"));
    }

    fn show(&mut self, what: std::fmt::Arguments<'_>) {
        if let Some(terminal) = &mut self.terminal {
            // A line that could not be shown is no reason to stop measuring.
            let _ = terminal.write_fmt(what).and_then(|()| terminal.flush());
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        self.show(format_args!("{CLEAR_LINE}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();

    #[test]
    fn a_terminal_sees_one_line_that_disappears() {
        let mut screen = Vec::new();
        let mut progress = Progress { terminal: Some(&mut screen), trials: TWO };
        progress.trial(1);
        progress.trial(2);
        drop(progress);
        let screen = String::from_utf8(screen).unwrap();
        assert_eq!(screen, "\r\x1b[Ktrial 1 of 2\r\x1b[Ktrial 2 of 2\r\x1b[K");
    }

    #[test]
    fn anything_else_sees_nothing() {
        let mut progress = Progress::<Vec<u8>> { terminal: None, trials: TWO };
        progress.trial(1);
        assert!(progress.terminal.is_none());
    }
}
