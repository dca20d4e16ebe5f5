//! The least that a firmware is made of: one task sends back what it receives, another does
//! something every so often, and between them the processor sleeps. No formatting, so that its size
//! is that of what it does.
#![no_std]
#![no_main]

use core::panic::PanicInfo;
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use cortex_m_rt::{entry, exception};
use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use evenkeel::{Handle, Remote, TaskStorage, Worker, WorkerConfig, WorkerStorage, task_size};
use evenkeel_embedded::clock::{self, SysTickClock};
use evenkeel_embedded::context::context;
use evenkeel_embedded::reactor::{Board, OPERATIONS, Operation};
use evenkeel_embedded::uart;

static WORKER: WorkerStorage<Board, SysTickClock, OPERATIONS> = WorkerStorage::new();
static ECHO: TaskStorage<{ task_size(&echo) }> = TaskStorage::new("echo");
static BEAT: TaskStorage<{ task_size(&beat) }> = TaskStorage::new("beat");

static BEATS: AtomicU32 = AtomicU32::new(0);

#[entry]
fn main() -> ! {
    let peripherals = cortex_m::Peripherals::take().expect("taken once, here");
    clock::start(peripherals.SYST);
    uart::start();

    // SAFETY: there is one core, and each of its handlers has a number of its own.
    let config = unsafe { WorkerConfig::default().context(context) };
    let Ok(mut worker) = Worker::new_in(&WORKER, Board::new(), SysTickClock, config) else {
        panic!("the storage serves this worker alone")
    };
    let (Ok(echo_place), Ok(beat_place)) = (ECHO.reserve(), BEAT.reserve()) else {
        panic!("each is reserved once")
    };
    // Detached: they end with the worker.
    drop(worker.handle().spawn_in(echo_place, echo(worker.handle(), worker.remote())));
    drop(worker.handle().spawn_in(beat_place, beat(worker.handle())));
    let Ok(()) = worker.run();
    // Ordering: Relaxed: one thread.
    debug::exit(if BEATS.load(Ordering::Relaxed) > 0 { EXIT_SUCCESS } else { EXIT_FAILURE });
    unreachable!("the debugger has not ended the run")
}

/// Until the byte that says "end of transmission".
async fn echo(handle: Handle<Board>, remote: Remote<Board>) {
    const END: i32 = 0x04;
    while let Ok(read) = handle.submit(Operation::ReadByte)
        && let Ok(byte) = read.await
        && byte != END
        && let Ok(byte) = u8::try_from(byte)
        && let Ok(write) = handle.submit(Operation::WriteByte(byte))
    {
        // It can only fail with the worker's end, and then this task is no more.
        let _ = write.await;
    }
    // So that there are some beats.
    handle.sleep(Duration::from_millis(25)).await;
    remote.stop();
}

/// A hundred times a second.
async fn beat(handle: Handle<Board>) {
    let Ok(interval) = handle.interval(Duration::from_millis(10)) else { return };
    let mut interval = pin!(interval);
    loop {
        interval.as_mut().tick().await;
        // Ordering: Relaxed: one thread.
        BEATS.store(BEATS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

#[exception]
fn SysTick() {
    clock::on_period();
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        debug::exit(EXIT_FAILURE);
    }
}
