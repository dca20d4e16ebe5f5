#![forbid(unsafe_code)]
//! The rules, one function each. What they say stands beside their names in the module above.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::bench::{Bench, Outcome, each_once, require};
use super::{Arranged, Harness};
use crate::reactor::{Completion, Completions, POLL_BATCH, Readiness, Submitted, Token, Wait};

/// How many polls a reactor may be ready for, on account of its own affairs, with nothing to show.
const HOUSEKEEPING: usize = 8;

/// The highest generation.
const HIGHEST: u32 = Token::GENERATIONS;

pub(super) fn queued_is_ready_until_armed<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let many = bench.many();
    let mut queued = 0;
    for number in 0..many {
        queued += usize::from(bench.submit(Token::new(number, 1), number)? == Submitted::Queued);
        ready_until_armed(queued, 0, &mut bench)?;
    }
    let mut armed = 0;
    // One poll at least, for what it should not count.
    for _ in 0..=queued {
        ready_until_armed(queued, armed, &mut bench)?;
        armed += bench.look(&mut Completions::new())?;
        if armed >= queued {
            break;
        }
    }
    counted(armed, queued)?;
    counted(armed + bench.look(&mut Completions::new())?, queued)?;

    let mut bench = bench.renew();
    let (mut queued, mut at_once, mut armed, mut ended) = (0, 0, 0, 0);
    for number in 0..many {
        let token = Token::new(number, 2);
        match bench.submit(token, number)? {
            Submitted::Queued => queued += 1,
            Submitted::Armed => at_once += 1,
        }
        bench.cancel(token);
    }
    for _ in 0..=2 * many {
        let mut found = Completions::new();
        armed += bench.look(&mut found)?;
        ended += found.as_slice().len();
        require(at_once + armed >= ended, || {
            format!("{ended} operations had ended when `Polled.armed` had counted {armed}")
        })?;
    }
    counted(armed, queued)
}

fn ready_until_armed<H: Harness>(queued: usize, armed: usize, bench: &mut Bench<'_, H>) -> Outcome {
    let readiness = bench.readiness();
    require(queued == armed || readiness == Readiness::Ready, || {
        format!(
            "the readiness was `{readiness:?}` with {queued} operations queued, of which \
             `Polled.armed` had counted {armed}"
        )
    })
}

fn counted(armed: usize, queued: usize) -> Outcome {
    require(armed == queued, || {
        format!("{queued} operations were queued, and `Polled.armed` has counted {armed}")
    })
}

pub(super) fn armed_needs_no_poll<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let mut armed = Vec::new();
    for number in 0..bench.many() {
        let token = Token::new(number, 3);
        if bench.submit(token, number)? == Submitted::Armed {
            bench.trigger(number);
            armed.push(token);
        }
    }
    each_once(&armed, &bench.gather(armed.len())?)
}

pub(super) fn each_operation_completes_once<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let tokens = bench.armed(bench.many(), 4)?;
    bench.nothing_comes("before it had come to its end")?;
    for number in (0..bench.many()).rev() {
        bench.trigger(number);
    }
    each_once(&tokens, &bench.gather(tokens.len())?)?;
    // The same slots again, some of them while others wait.
    let tokens = bench.armed(bench.many(), 5)?;
    let (even, odd): (Vec<_>, Vec<_>) = tokens.iter().partition(|token| token.index() % 2 == 0);
    for (parity, tokens) in [(0, even), (1, odd)] {
        for number in (0..bench.many()).filter(|number| number % 2 == parity) {
            bench.trigger(number);
        }
        each_once(&tokens, &bench.gather(tokens.len())?)?;
    }
    Ok(())
}

pub(super) fn tokens_come_back_unharmed<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let highest = bench.highest_index();
    let bits = |highest: u32| {
        let single = (0..u32::BITS).map(|bit| 1 << bit);
        single.chain([0, 0x5555_5555, 0x2aaa_aaaa]).map(move |bits| bits & highest)
    };
    let generations = bits(HIGHEST).chain([HIGHEST]).map(|generation| (highest, generation));
    let indices = bits(u32::MAX).filter(|&index| index <= highest);
    for (index, generation) in generations.chain(indices.map(|index| (index, HIGHEST))) {
        let token = Token::new(index, generation);
        bench.submit(token, 0)?;
        bench.arm()?;
        bench.trigger(0);
        comes_back(token, &bench.gather(1)?)?;
        bench.submit(token, 0)?;
        bench.arm()?;
        bench.cancel(token);
        comes_back(token, &bench.gather(1)?)?;
    }
    Ok(())
}

fn comes_back(token: Token, found: &[Completion]) -> Outcome {
    let back = found[0].token;
    require(back == token, || format!("{token:?} came back as {back:?}"))?;
    each_once(&[token], found)
}

pub(super) fn a_poll_keeps_to_the_room<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    for (generation, room) in (6..).zip([0, 1, 5, POLL_BATCH - 1, POLL_BATCH]) {
        let tokens = bench.armed(bench.many(), generation)?;
        for number in 0..bench.many() {
            bench.trigger(number);
        }
        let mut all = Vec::new();
        // One poll without any room, and then as many as are needed.
        for (tries, room) in core::iter::once(0).chain(core::iter::repeat(room.max(1))).enumerate()
        {
            if all.len() >= tokens.len() || tries > 4 * tokens.len() {
                break;
            }
            let before = others(POLL_BATCH - room);
            let mut found = Completions::new();
            for &completion in &before {
                found.push(completion);
            }
            require(bench.readiness() != Readiness::Quiet, || {
                let left = tokens.len() - all.len();
                format!("the readiness was `Quiet` with {left} completions left over")
            })?;
            bench.look(&mut found)?;
            let reported = found.as_slice().strip_prefix(&*before).ok_or_else(|| {
                String::from("a poll took completions out of the batch, or changed them")
            })?;
            all.extend_from_slice(reported);
        }
        each_once(&tokens, &all)?;
        bench.nothing_comes("though all had been")?;
    }
    Ok(())
}

/// Completions that another has put into the batch.
fn others(count: usize) -> Vec<Completion> {
    let token = |number| Token::new(number, HIGHEST - 1);
    (0..).take(count).map(|number| Completion { token: token(number), result: -1 }).collect()
}

pub(super) fn quiet_means_that_nothing_waits<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let few = bench.capacity().min(3);
    is_quiet_truly(&mut bench, "nothing in flight")?;
    let tokens: Vec<_> = (0..few).map(|number| Token::new(number, 12)).collect();
    for (number, &token) in (0..).zip(&tokens) {
        bench.submit(token, number)?;
        is_quiet_truly(&mut bench, "an operation just submitted")?;
    }
    bench.arm()?;
    is_quiet_truly(&mut bench, "all operations armed")?;
    for (number, &token) in (0..).zip(&tokens) {
        if number == 1 {
            bench.cancel(token);
            is_quiet_truly(&mut bench, "an operation just cancelled")?;
        } else {
            bench.trigger(number);
            let readiness = bench.readiness();
            require(readiness != Readiness::Quiet, || {
                String::from("the readiness was `Quiet` with a completion waiting")
            })?;
        }
        bench.gather(usize::from(number != 1))?;
        is_quiet_truly(&mut bench, "its completion taken")?;
    }
    Ok(())
}

fn is_quiet_truly<H: Harness>(bench: &mut Bench<'_, H>, with: &str) -> Outcome {
    if bench.readiness() != Readiness::Quiet {
        return Ok(());
    }
    let mut found = Completions::new();
    let armed = bench.look(&mut found)?;
    let found = found.as_slice().len();
    require(found == 0 && armed == 0, || {
        format!("`Quiet` with {with}, but a poll found {found} completions and armed {armed}")
    })
}

pub(super) fn ready_means_that_something_waits<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    comes_to_rest(&mut bench, "nothing in flight")?;
    let few = bench.capacity().min(3);
    for number in 0..few {
        bench.submit(Token::new(number, 13), number)?;
        if bench.readiness() == Readiness::Ready {
            shows_something(&mut bench, "an operation just submitted")?;
        }
    }
    bench.arm()?;
    comes_to_rest(&mut bench, "all operations armed and waiting")?;
    for number in 0..few {
        bench.trigger(number);
        if bench.readiness() == Readiness::Ready {
            shows_something(&mut bench, "a completion waiting")?;
        }
        comes_to_rest(&mut bench, "the completion taken")?;
    }
    Ok(())
}

fn shows_something<H: Harness>(bench: &mut Bench<'_, H>, with: &str) -> Outcome {
    let mut found = Completions::new();
    let armed = bench.look(&mut found)?;
    require(armed > 0 || !found.as_slice().is_empty(), || {
        format!("`Ready` with {with}, but a poll found nothing and armed nothing")
    })
}

fn comes_to_rest<H: Harness>(bench: &mut Bench<'_, H>, with: &str) -> Outcome {
    for _ in 0..HOUSEKEEPING {
        if bench.readiness() != Readiness::Ready {
            return Ok(());
        }
        bench.look(&mut Completions::new())?;
    }
    Err(format!("still `Ready` with {with}, after {HOUSEKEEPING} polls"))
}

pub(super) fn a_cancelled_operation_completes_once<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let armed = Token::new(0, 14);
    bench.submit(armed, 0)?;
    bench.arm()?;
    bench.cancel(armed);
    ends_once(&mut bench, armed, "when it was armed")?;

    let submitted = Token::new(0, 15);
    bench.submit(submitted, 0)?;
    bench.cancel(submitted);
    ends_once(&mut bench, submitted, "right after it was submitted")?;

    let ended = Token::new(0, 16);
    bench.submit(ended, 0)?;
    bench.arm()?;
    bench.trigger(0);
    bench.cancel(ended);
    ends_once(&mut bench, ended, "when it had come to its end")?;

    let twice = Token::new(0, 17);
    bench.submit(twice, 0)?;
    bench.arm()?;
    bench.cancel(twice);
    bench.cancel(twice);
    ends_once(&mut bench, twice, "twice")?;

    // One of several.
    let tokens = bench.armed(bench.many(), 18)?;
    let last = tokens.len() - 1;
    bench.cancel(tokens[last]);
    ends_once(&mut bench, tokens[last], "beside others")?;
    for number in 0..bench.many() {
        bench.trigger(number);
    }
    each_once(&tokens[..last], &bench.gather(last)?)
}

fn ends_once<H: Harness>(bench: &mut Bench<'_, H>, token: Token, cancelled: &str) -> Outcome {
    let seen = bench.gather(1).and_then(|found| each_once(&[token], &found));
    seen.map_err(|what| format!("of an operation that was cancelled {cancelled}: {what}"))
}

pub(super) fn a_cancel_of_the_unknown_is_ignored<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let highest = bench.highest_index();
    for unknown in [Token::new(0, 19), Token::new(highest, HIGHEST)] {
        bench.cancel(unknown);
    }
    bench.nothing_comes("by a cancel, with nothing in flight")?;

    let ended = Token::new(0, 19);
    bench.submit(ended, 0)?;
    bench.arm()?;
    bench.trigger(0);
    each_once(&[ended], &bench.gather(1)?)?;
    bench.cancel(ended);
    bench.nothing_comes("by a cancel, when its operation had ended")?;

    let next = Token::new(0, 20);
    bench.submit(next, 0)?;
    bench.arm()?;
    for stranger in [ended, Token::new(0, 21), Token::new(highest, HIGHEST)] {
        bench.cancel(stranger);
        bench.nothing_comes("by a cancel of another")?;
    }
    bench.trigger(0);
    each_once(&[next], &bench.gather(1)?)
}

pub(super) fn a_refused_operation_comes_back<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    let number = bench.capacity() - 1;
    let token = Token::new(0, 22);
    let Some(back) = bench.submit_refused(token, number)? else {
        return Ok(());
    };
    require(back == number, || format!("operation {number} was refused, {back} came back"))?;
    bench.nothing_comes("though it was refused")?;
    bench.submit(token, number)?;
    bench.arm()?;
    bench.trigger(number);
    each_once(&[token], &bench.gather(1)?)
}

pub(super) fn never_does_not_wait<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    bench.look_without_wait(&mut Completions::new())?;
    let tokens = bench.armed(1, 23)?;
    bench.look_without_wait(&mut Completions::new())?;
    bench.trigger(0);
    let mut found = Completions::new();
    bench.look_without_wait(&mut found)?;
    each_once(&tokens, found.as_slice())?;
    bench.look_without_wait(&mut Completions::new())
}

pub(super) fn a_wait_ends_at_its_deadline<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    bench.wait_for_the_past()?;
    bench.armed(1, 24)?;
    bench.wait_for_the_past()?;
    for micros in [0, 1, 100, 3_000] {
        bench.wait_for(Duration::from_micros(micros))?;
    }
    Ok(())
}

pub(super) fn a_wait_lasts_to_its_deadline<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    bench.wait_undisturbed("with nothing in flight")?;
    bench.notifier().wake();
    bench.wait_for(Duration::ZERO)?;
    bench.wait_undisturbed("after one that took the only wake")?;
    bench.armed(1, 32)?;
    bench.wait_undisturbed("with an operation armed and waiting")?;
    bench.trigger(0);
    bench.gather(1)?;
    bench.wait_undisturbed("after the only completion was taken")
}

pub(super) fn a_wait_ends_with_a_completion<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    // The endless wait last: by then it is known that a completion ends one.
    for (generation, endless) in [(25, false), (26, true)] {
        let tokens = bench.armed(1, generation)?;
        bench.trigger(0);
        let mut found = Completions::new();
        if endless {
            bench.poll(Wait::Forever, &mut found)?;
        } else {
            bench.wait(&mut found, "a completion that was there")?;
        }
        each_once(&tokens, found.as_slice())?;
    }
    Ok(())
}

pub(super) fn the_notifier_ends_the_next_wait<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    for _ in 0..3 {
        let notifier = bench.notifier();
        let another = notifier.clone();
        notifier.wake_by_ref();
        bench.wait(&mut Completions::new(), "a wake")?;
        drop(notifier);
        #[allow(clippy::waker_clone_wake)] // `wake` is a function of its own
        another.clone().wake();
        bench.wait(&mut Completions::new(), "the wake of a clone")?;
        another.wake_by_ref();
        bench.look(&mut Completions::new())?;
        bench.wait(&mut Completions::new(), "a wake that a poll without a wait came before")?;
        another.wake_by_ref();
        bench.notifier().wake();
        bench.wait(&mut Completions::new(), "a second wake")?;
        another.wake();
        bench.poll(Wait::Forever, &mut Completions::new())?;
        bench.armed(1, 27)?;
        bench.notifier().wake();
        bench.wait(&mut Completions::new(), "a wake with an operation in flight")?;
        bench.trigger(0);
        bench.gather(1)?;
    }
    Ok(())
}

pub(super) fn the_notifier_is_heard_from_elsewhere<H: Harness>(mut bench: Bench<'_, H>) -> Outcome {
    // A reactor that is deaf is told from here, without an endless wait.
    bench.notifier().wake();
    bench.wait(&mut Completions::new(), "a wake")?;
    for _ in 0..50 {
        if bench.wake_elsewhere() == Arranged::Impossible {
            return Ok(());
        }
        bench.poll(Wait::Forever, &mut Completions::new())?;
    }
    Ok(())
}

#[allow(clippy::unnecessary_wraps)] // as all the others
pub(super) fn the_notifier_outlives_the_reactor<H: Harness>(bench: Bench<'_, H>) -> Outcome {
    let notifier = bench.end();
    notifier.wake_by_ref();
    let another = notifier.clone();
    notifier.wake();
    another.wake();
    Ok(())
}

pub(super) fn a_reactor_is_dropped_with_operations_in_flight<H: Harness>(
    mut bench: Bench<'_, H>,
) -> Outcome {
    for round in 28..31 {
        let most = bench.capacity().min(8);
        bench.armed(most.div_ceil(2), round)?;
        for number in most.div_ceil(2)..most {
            bench.submit(Token::new(number, round), number)?;
        }
        bench.trigger(0);
        bench.cancel(Token::new(most - 1, round));
        bench.cancel(Token::new(0, round));
        bench = bench.renew();
        // The next one knows nothing of it.
        bench.nothing_comes("by a reactor that is new")?;
    }
    let tokens = bench.armed(1, 31)?;
    bench.trigger(0);
    each_once(&tokens, &bench.gather(1)?)
}
