//! UART0 of the LM3S6965, which is a PL011.
//!
//! The interrupt handler alone touches the registers, so no access to them needs a lock. Who has
//! something for it (bytes to send, room for more) makes the interrupt pending, and the handler
//! looks at everything.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cortex_m::peripheral::NVIC;

use crate::mmio::Register;
use crate::ring::Ring;
use crate::vectors::Interrupt;

/// How many bytes may wait on their way in, and on their way out.
pub const CAPACITY: usize = 64;

/// The handler puts, the reactor takes.
static INCOMING: Ring<CAPACITY> = Ring::new();
/// The reactor puts, the handler takes.
static OUTGOING: Ring<CAPACITY> = Ring::new();
/// How many bytes the handler has sent. It wraps.
static SENT: AtomicU32 = AtomicU32::new(0);
/// The handler has left bytes in the device, for want of room.
static STALLED: AtomicBool = AtomicBool::new(false);

// SAFETY: the addresses are the manual's; the device has no access to memory. `CLOCK_GATES` is
// touched before interrupts are on, the others by the handler alone from then on.
const DATA: Register = unsafe { Register::at(0x4000_c000) };
// SAFETY: as above.
const FLAGS: Register = unsafe { Register::at(0x4000_c018) };
// SAFETY: as above.
const LINE_CONTROL: Register = unsafe { Register::at(0x4000_c02c) };
// SAFETY: as above.
const CONTROL: Register = unsafe { Register::at(0x4000_c030) };
// SAFETY: as above.
const INTERRUPT_MASK: Register = unsafe { Register::at(0x4000_c038) };
// SAFETY: as above.
const INTERRUPT_CLEAR: Register = unsafe { Register::at(0x4000_c044) };
// SAFETY: as above.
const CLOCK_GATES: Register = unsafe { Register::at(0x400f_e104) };

const FLAG_RECEIVE_EMPTY: u32 = 1 << 4;
const FLAG_TRANSMIT_FULL: u32 = 1 << 5;
const LINE_8_BITS: u32 = 3 << 5;
const CONTROL_ON: u32 = 1 | 1 << 8 | 1 << 9; // the device, its sender, its receiver
const RECEIVED: u32 = 1 << 4 | 1 << 6; // so many bytes, or some byte for some time
const TRANSMITTED: u32 = 1 << 5;

/// Switches it on. The speed is left as it is: a line that only qemu has does not mind.
pub fn start() {
    CLOCK_GATES.write(CLOCK_GATES.read() | 1);
    // Without its FIFO: switching that on empties it, and a byte may have come already.
    LINE_CONTROL.write(LINE_8_BITS);
    CONTROL.write(CONTROL_ON);
    // SAFETY: no critical section is made of this interrupt's mask.
    unsafe { NVIC::unmask(Interrupt::Uart0) };
    look();
}

/// Makes the handler look at everything.
fn look() {
    NVIC::pend(Interrupt::Uart0);
}

/// The handler.
pub fn on_interrupt() {
    receive();
    send();
    let mut wanted = RECEIVED;
    // Ordering: Relaxed, the handler alone writes it.
    if STALLED.load(Ordering::Relaxed) {
        // It would come again at once, and find no room again. `receive_byte` lets it in later.
        wanted &= !RECEIVED;
    }
    if !OUTGOING.is_empty() {
        wanted |= TRANSMITTED;
    }
    INTERRUPT_MASK.write(wanted);
}

/// From the device into the ring. What finds no room stays in the device, which holds the sender
/// back: nothing is dropped. (The interrupt ends when the device is empty, not by being cleared.)
fn receive() {
    let mut stalled = false;
    while FLAGS.read() & FLAG_RECEIVE_EMPTY == 0 {
        if INCOMING.is_full() {
            stalled = true;
            break;
        }
        // The upper bits tell of errors on the line.
        let [byte, ..] = DATA.read().to_le_bytes();
        INCOMING.put(byte);
    }
    // Ordering: Relaxed: on one core a handler runs as a whole, before or after what the worker
    // does. A second core would need a fence here and in `receive_byte`, both ways round.
    STALLED.store(stalled, Ordering::Relaxed);
}

/// From the ring into the device.
fn send() {
    INTERRUPT_CLEAR.write(TRANSMITTED);
    while FLAGS.read() & FLAG_TRANSMIT_FULL == 0 {
        let Some(byte) = OUTGOING.take() else { break };
        DATA.write(u32::from(byte));
        // Ordering: Relaxed: not a read-modify-write, since the handler alone writes it; a count
        // orders nothing.
        SENT.store(SENT.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Whether a byte has come in. By the reactor.
pub fn has_received() -> bool {
    !INCOMING.is_empty()
}

/// Takes the oldest byte that has come in. By the reactor.
pub fn receive_byte() -> Option<u8> {
    let byte = INCOMING.take();
    // Looked at after room was made: if the handler comes between, it finds the room by itself.
    // Ordering: Relaxed, see `receive`.
    if byte.is_some() && STALLED.load(Ordering::Relaxed) {
        look();
    }
    byte
}

/// Hands a byte over to be sent, if there is room. By the reactor.
pub fn send_byte(byte: u8) -> bool {
    let accepted = OUTGOING.put(byte);
    look();
    accepted
}

/// How many bytes the device has been given. It wraps.
pub fn sent() -> u32 {
    // Ordering: Relaxed, a count orders nothing.
    SENT.load(Ordering::Relaxed)
}
