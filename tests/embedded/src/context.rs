//! Which context of execution this is: thread mode, or which handler.

use core::arch::asm;

/// For [`WorkerConfig::context`](evenkeel::WorkerConfig::context): 1 in thread mode, in a handler
/// the number of its exception plus one. One instruction and an addition.
pub fn context() -> usize {
    let number: usize;
    // SAFETY: reads a register that any code may read. Not `pure`: a handler reads another value.
    unsafe { asm!("mrs {}, IPSR", out(reg) number, options(nomem, nostack, preserves_flags)) };
    number + 1
}
