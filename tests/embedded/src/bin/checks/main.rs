//! Holds the scheduler to what it promises, on the board.
#![no_std]
#![no_main]

mod alarm;
mod backlog;
mod echo;
mod idle;
mod latency;
mod parking;
mod promises;
mod report;
mod spawn_by_handler;
mod stamp;
mod storage;
mod time;
mod timers;
mod watchdog;
mod work;

use core::future::Future;

use cortex_m_rt::{entry, exception};
use cortex_m_semihosting::hprintln;
use evenkeel::{
    ContextHook, Handle, Place, Remote, TaskStorage, Worker, WorkerConfig, WorkerStorage, task_size,
};
use evenkeel_embedded::clock::{self, SysTickClock};
use evenkeel_embedded::context::context;
use evenkeel_embedded::reactor::{Board, OPERATIONS};

use crate::promises::{Wakes, promises};

type Storage = WorkerStorage<Board, SysTickClock, OPERATIONS>;

#[entry]
fn main() -> ! {
    static HOOKED: Storage = Storage::new();
    static UNHOOKED: Storage = Storage::new();
    static ECHO: Storage = Storage::new();
    static PROMISES: TaskStorage<{ task_size(&promises) }> = TaskStorage::new("promises");
    static ECHOES: TaskStorage<{ task_size(&echo::echoes) }> = TaskStorage::new("echoes");

    let peripherals = cortex_m::Peripherals::take().expect("taken once, here");
    clock::start(peripherals.SYST);

    hprintln!("with a context hook: wakes by tasks and completions are local");
    run(&HOOKED, Some(context), reserve(&PROMISES), |handle, remote| {
        promises(handle, remote, Wakes::Local)
    });
    hprintln!("without one: every wake takes the inbox");
    run(&UNHOOKED, None, reserve(&PROMISES), |handle, remote| {
        promises(handle, remote, Wakes::ThroughInbox)
    });
    hprintln!("bytes");
    run(&ECHO, Some(context), reserve(&ECHOES), echo::echoes);
    report::pass()
}

#[exception]
fn SysTick() {
    clock::on_period();
    promises::on_period();
}

fn reserve<const BYTES: usize>(storage: &'static TaskStorage<BYTES>) -> Place<BYTES> {
    storage.reserve().unwrap_or_else(|full| panic!("{full}"))
}

/// Makes a worker, gives it one task, and lets it run until that stops it.
fn run<F: Future<Output = ()> + 'static, const BYTES: usize>(
    storage: &'static Storage,
    hook: Option<ContextHook>,
    place: Place<BYTES>,
    task: impl FnOnce(Handle<Board>, Remote<Board>) -> F,
) {
    let config = match hook {
        // SAFETY: it is this board's `context`, and the board has one core.
        Some(hook) => unsafe { WorkerConfig::default().context(hook) },
        None => WorkerConfig::default(),
    };
    let mut worker = Worker::new_in(storage, Board::new(), SysTickClock, config)
        .unwrap_or_else(|taken| panic!("{taken}"));
    let again = Worker::new_in(storage, Board::new(), SysTickClock, config);
    assert!(again.is_err(), "a worker storage serves once");
    promises::sleep_until_deadlines(&mut worker);

    let task = worker.handle().spawn_in(place, task(worker.handle(), worker.remote()));
    let Ok(()) = worker.run();
    assert!(task.is_finished(), "the task has stopped the worker as the last thing that it did");
}
