//! What the benches of this package share.

use std::time::Instant;

/// Runs the rivals in turns, so that what disturbs the machine disturbs them all, and prints the
/// median time of one operation of each, in nanoseconds. A rival does a round, and says how many
/// operations that was; the first round of each is not counted.
#[allow(clippy::cast_precision_loss)] // no round has 2^52 operations
pub(crate) fn interleaved(
    name: &str,
    rounds: usize,
    rivals: &mut [(&str, &mut dyn FnMut() -> u64)],
) {
    let mut times = vec![Vec::with_capacity(rounds); rivals.len()];
    for round in 0..=rounds {
        for ((_, run), times) in rivals.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let operations = run();
            let elapsed = start.elapsed();
            if round > 0 {
                times.push(elapsed.as_secs_f64() * 1e9 / operations as f64);
            }
        }
    }
    print!("{name:32}");
    for ((rival, _), times) in rivals.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        print!("  {rival} {:8.1}", times[times.len() / 2]);
    }
    println!();
}
