#![forbid(unsafe_code)]
//! Why a task does not fit its place, as a compile error can tell it: with the numbers.

/// A text that is put together at compile time.
pub(super) struct Text {
    bytes: [u8; 192],
    length: usize,
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; 192], length: 0 }
    }

    const fn text(mut self, text: &str) -> Self {
        let mut next = 0;
        while next < text.len() {
            self.bytes[self.length] = text.as_bytes()[next];
            self.length += 1;
            next += 1;
        }
        self
    }

    const fn number(self, number: usize) -> Self {
        const DIGITS: &str = "0123456789";
        let this = if number >= 10 { self.number(number / 10) } else { self };
        let (_, from) = DIGITS.split_at(number % 10);
        this.text(from.split_at(1).0)
    }

    pub(super) const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => "the task does not fit its place",
        }
    }
}

pub(super) const fn too_large(needed: usize, place: usize) -> Text {
    Text::new()
        .text("the task needs ")
        .number(needed)
        .text(" bytes, and its place has ")
        .number(place)
        .text(": declare the storage as `TaskStorage<{ task_size(&f) }>`, `f` being what gives the future")
}

pub(super) const fn too_aligned(needed: usize, place: usize) -> Text {
    Text::new()
        .text("the task has to be aligned to ")
        .number(needed)
        .text(" bytes, and a place is to ")
        .number(place)
        .text(": box what asks for that")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_told() {
        assert!(
            too_large(4136, 512)
                .as_str()
                .starts_with("the task needs 4136 bytes, and its place has 512: declare")
        );
        assert!(too_aligned(64, 16).as_str().contains("aligned to 64 bytes, and a place is to 16"));
        assert!(too_large(usize::MAX, usize::MAX).as_str().ends_with("gives the future"));
    }
}
