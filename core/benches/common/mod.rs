//! What the benches of this package share.

use std::time::Instant;

/// Whether to measure, as `cargo bench` asks for, or only to see that everything runs: `cargo test
/// --bench NAME`, or `cargo bench --bench NAME -- --test`.
pub(crate) fn measures() -> bool {
    let asks_for = |wanted| std::env::args().skip(1).any(|argument| argument == wanted);
    asks_for("--bench") && !asks_for("--test")
}

/// Runs the rivals in turns, so that what disturbs the machine disturbs them all, and gives the
/// median time of one operation of each, in nanoseconds. A rival does a round, and says how many
/// operations that was; the first round of each is not counted. One round is, if nothing is to be
/// [measured](measures).
#[allow(dead_code)] // not by each bench
#[allow(clippy::cast_precision_loss)] // no round has 2^52 operations
pub(crate) fn medians(rounds: usize, rivals: &mut [impl FnMut() -> u64]) -> Vec<f64> {
    let rounds = if measures() { rounds } else { 1 };
    let mut times = vec![Vec::with_capacity(rounds); rivals.len()];
    for round in 0..=rounds {
        for (run, times) in rivals.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let operations = run();
            let elapsed = start.elapsed();
            if round > 0 {
                times.push(elapsed.as_secs_f64() * 1e9 / operations as f64);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    times.into_iter().map(median).collect()
}

/// As [`medians`], with a name for each rival; prints them in one line.
#[allow(dead_code)] // not by each bench
pub(crate) fn interleaved(
    name: &str,
    rounds: usize,
    rivals: &mut [(&str, &mut dyn FnMut() -> u64)],
) {
    let mut runs: Vec<_> = rivals.iter_mut().map(|(_, run)| || run()).collect();
    let medians = medians(rounds, &mut runs);
    print!("{name:32}");
    for ((rival, _), median) in rivals.iter().zip(medians) {
        print!("  {rival} {median:8.1}");
    }
    println!();
}
