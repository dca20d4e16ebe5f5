//! A peripheral's registers.

/// One register of 32 bits.
#[derive(Clone, Copy)]
pub struct Register(*mut u32);

// SAFETY: it is an address that all contexts share. What two that read and write it at the same
// time would do to each other is said where the register is named.
unsafe impl Sync for Register {}

impl Register {
    /// # Safety
    /// There is a register of a device at this address, and neither reading nor writing it touches
    /// memory of the program.
    pub const unsafe fn at(address: usize) -> Self {
        Self(core::ptr::without_provenance_mut(address))
    }

    /// Reads it.
    pub fn read(self) -> u32 {
        // SAFETY: by the contract of `at`.
        unsafe { self.0.read_volatile() }
    }

    /// Writes it.
    pub fn write(self, value: u32) {
        // SAFETY: by the contract of `at`.
        unsafe { self.0.write_volatile(value) }
    }
}
