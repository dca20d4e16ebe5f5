//! Bytes in, bytes out. The host sends them, and looks at what comes back.

use cortex_m_semihosting::hprintln;
use evenkeel::{Handle, Remote};
use evenkeel_embedded::reactor::{Board, Operation};
use evenkeel_embedded::uart;

use crate::{backlog, watchdog};

/// Two messages, one under a backlog and one without. A message is its length, two bytes with the
/// lower first, and so many bytes, which are sent back.
pub async fn echoes(handle: Handle<Board>, remote: Remote<Board>) {
    // While all sleep, time passes as fast as the host can make it. So whether the host's bytes come
    // at all is for the host to time.
    watchdog::allow(u32::MAX);
    uart::start();
    let backlog = backlog::start(&handle);
    let busy = echo(&handle).await;
    backlog.stop().await;
    let idle = echo(&handle).await;
    hprintln!("  echoed {} bytes under a backlog, {} without", busy, idle);
    remote.stop();
}

async fn echo(handle: &Handle<Board>) -> u16 {
    let length = u16::from_le_bytes([read(handle).await, read(handle).await]);
    let mut left = usize::from(length);
    // More at once than there is room for on their way in: while nothing is sent, what did not fit
    // has to come by itself.
    let mut some = [0; 2 * uart::CAPACITY];
    while left > 0 {
        let some = &mut some[..left.min(2 * uart::CAPACITY)];
        for byte in &mut *some {
            *byte = read(handle).await;
        }
        for &byte in &*some {
            let sent = handle.submit(Operation::WriteByte(byte)).expect("there is room");
            sent.await.expect("the worker is there");
        }
        left -= some.len();
    }
    length
}

async fn read(handle: &Handle<Board>) -> u8 {
    let byte = handle.submit(Operation::ReadByte).expect("there is room");
    let byte = byte.await.expect("the worker is there");
    u8::try_from(byte).expect("it is one")
}
