#![forbid(unsafe_code)]
//! Numbers from a seed.

/// Knuth's MMIX generator, of which the upper bits are used. The same seed gives the same numbers, on
/// every machine.
///
/// ```
/// use evenkeel::testing::io::Random;
///
/// let (mut one, mut other) = (Random::new(7), Random::new(7));
/// assert!((0..100).all(|_| one.below(10) == other.below(10)));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed ^ 0x9e37_79b9_7f4a_7c15);
        random.next();
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number below the bound.
    ///
    /// # Panics
    /// If the bound is 0.
    #[allow(clippy::cast_possible_truncation)] // 31 bits
    pub fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// Yes, once in so many times.
    ///
    /// # Panics
    /// If that is 0.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Yes, so many times in a thousand.
    pub fn per_mille(&mut self, times: u32) -> bool {
        self.below(1000) < times as usize
    }

    /// So many bytes.
    #[allow(clippy::cast_possible_truncation)] // the low byte of what is left
    pub fn bytes(&mut self, length: usize) -> alloc::vec::Vec<u8> {
        (0..length).map(|_| (self.next() >> 7) as u8).collect()
    }
}
