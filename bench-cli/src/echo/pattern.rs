//! What requests are made of: bytes that tell a connection and a request from their neighbours.

/// A prime, so that the pattern does not repeat with any buffer's size.
const PERIOD: usize = 251;

/// The bytes of all requests, of one length.
pub(super) struct Pattern {
    bytes: Vec<u8>,
    length: usize,
}

impl Pattern {
    pub(super) fn new(length: usize) -> Self {
        let byte = |place: usize| u8::try_from((place % PERIOD) * 167 % PERIOD).expect("below 251");
        Self { bytes: (0..length + PERIOD).map(byte).collect(), length }
    }

    /// Those of one request.
    pub(super) fn of(&self, connection: u32, request: u64) -> &[u8] {
        let shift = (u64::from(connection) * 7 + request % 251 * 13) % PERIOD as u64;
        let shift = usize::try_from(shift).expect("below 251");
        &self.bytes[shift..shift + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_every_byte() {
        let pattern = Pattern::new(600);
        let one = pattern.of(3, 8);
        for other in [pattern.of(3, 9), pattern.of(4, 8), pattern.of(2, 8)] {
            assert_eq!(other.len(), 600);
            assert!(one.iter().zip(other).all(|(one, other)| one != other));
        }
        assert_eq!(one, pattern.of(3, 8));
        assert!(one.windows(2).all(|pair| pair[0] != pair[1]), "a lost byte shows");
        assert_eq!(pattern.of(u32::MAX, u64::MAX).len(), 600);
    }
}
