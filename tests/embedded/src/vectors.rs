//! The interrupts of the LM3S6965 that this firmware uses, and their handlers. (The
//! SysTick's is each firmware's own: it calls [`clock::on_period`](crate::clock::on_period) first.)

use cortex_m::interrupt::InterruptNumber;
use cortex_m_rt::exception;

use crate::uart;

/// The interrupts by their numbers.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Interrupt {
    /// The first serial port.
    Uart0 = 5,
}

// SAFETY: the number is that of the device's manual, and each has its entry in the table below.
unsafe impl InterruptNumber for Interrupt {
    fn number(self) -> u16 {
        self as u16
    }
}

/// An entry of the vector table.
#[repr(C)]
pub union Vector {
    handler: unsafe extern "C" fn(),
    reserved: usize,
}

unsafe extern "C" {
    /// The linker script puts `DefaultHandler` here if there is none.
    fn DefaultHandler();
}

const UNUSED: Vector = Vector { handler: DefaultHandler };

/// The part of the table that is the device's; `cortex-m-rt` puts it behind the processor's.
// SAFETY: the name and the section are those that `cortex-m-rt` asks for.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
pub static __INTERRUPTS: [Vector; 6] =
    [UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, Vector { handler: uart0 }];

extern "C" fn uart0() {
    uart::on_interrupt();
}

#[exception]
unsafe fn DefaultHandler(number: i16) {
    panic!("interrupt {number} has no handler");
}

#[exception]
unsafe fn HardFault(frame: &cortex_m_rt::ExceptionFrame) -> ! {
    panic!("hard fault: {frame:?}");
}
