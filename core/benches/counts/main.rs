//! How many instructions things take: what `.ci/instruction-counts` runs under callgrind, and
//! compares with what `counts/recorded.toml` says.
//!
//! `counts FIGURE OPERATIONS` does that many operations and nothing else that depends on their
//! number. So the difference of two runs of different length, divided by the difference in
//! operations, is what one of them takes, to the instruction: start and end of the process cancel
//! out. For that nothing here depends on the time, on addresses or on the system's allocator, and
//! there is one thread.
//!
//! Without arguments it runs every figure once, to see that they run. `--list` names them.
//!
//! What is counted in one figure depends a little on what else is in the program, since that is
//! what the compiler goes by when it decides what to inline. Whoever adds a figure records anew.

mod allocator;
#[path = "../common/null.rs"]
mod null;
#[cfg(feature = "std")]
mod operations;
#[cfg(feature = "std")]
mod queues;
#[cfg(feature = "std")]
mod spawns;
#[cfg(feature = "std")]
mod timers;
mod workers;

/// Operations come in multiples of this.
const BATCH: usize = 1024;
/// Nobody asks for more.
const MOST: usize = 16 * BATCH;

/// A name, and what does so many operations.
type Figure = (&'static str, fn(usize));

/// Where a thread knows the worker that ticks on it.
#[cfg(feature = "std")]
const FIGURES: &[Figure] = &[
    ("dispatch-pinned-1", workers::dispatch_pinned::<1>),
    ("dispatch-pinned-16", workers::dispatch_pinned::<16>),
    ("dispatch-pinned-256", workers::dispatch_pinned::<256>),
    ("dispatch-pinned-in-team-16", workers::dispatch_pinned_in_team::<16>),
    ("dispatch-stealable-1", workers::dispatch_stealable::<1>),
    ("dispatch-stealable-16", workers::dispatch_stealable::<16>),
    ("dispatch-stealable-256", workers::dispatch_stealable::<256>),
    ("wake-local-and-dispatch", workers::wake_local),
    ("wake-remote-and-dispatch", workers::wake_remote),
    ("inbox-push", queues::inbox_push),
    ("inbox-take", queues::inbox_take),
    ("run-queue-push-and-pop", queues::fifo),
    ("steal-queue-push", queues::steal_queue_push),
    ("steal-queue-pop", queues::steal_queue_pop),
    ("steal-queue-push-and-pop-lone", queues::steal_queue_lone),
    ("steal-one", queues::steal_one),
    ("steal-half-each", queues::steal_half),
    ("timer-set-and-fire-of-256", timers::fire),
    ("timer-set-and-cancel-of-256", timers::cancel),
    ("spawn-boxed-and-end", spawns::boxed),
    ("spawn-static-and-end", spawns::in_storage),
    ("operation-submit-to-dispatch", operations::submit_to_dispatch),
];

/// Where it does not, and every wake takes the inbox.
#[cfg(not(feature = "std"))]
const FIGURES: &[Figure] = &[
    ("dispatch-pinned-1-without-identity", workers::dispatch_pinned::<1>),
    ("dispatch-pinned-16-without-identity", workers::dispatch_pinned::<16>),
    ("dispatch-pinned-256-without-identity", workers::dispatch_pinned::<256>),
    ("wake-local-and-dispatch-without-identity", workers::wake_local),
];

fn main() {
    let is_cargos = |argument: &String| argument == "--bench" || argument == "--test";
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| !is_cargos(it)).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            for (name, run) in FIGURES {
                run(BATCH);
                println!("{name}: runs");
            }
            println!(".ci/instruction-counts counts them");
        }
        ["--list"] => FIGURES.iter().for_each(|(name, _)| println!("{name}")),
        [figure, operations] => {
            let (_, run) = FIGURES
                .iter()
                .find(|(name, _)| name == figure)
                .unwrap_or_else(|| panic!("there is no figure {figure}; see --list"));
            let operations = operations.parse().expect("the second argument is a number");
            assert!(
                (BATCH..=MOST).contains(&operations) && operations % BATCH == 0,
                "operations come in multiples of {BATCH}, up to {MOST}"
            );
            run(operations);
        }
        _ => panic!("usage: counts [--list | FIGURE OPERATIONS]"),
    }
}
