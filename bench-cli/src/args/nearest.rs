//! The option that was probably meant.

/// The candidate that is nearest to what was given, if it is near enough to be worth mentioning:
/// what it was cut short from, or a few typing mistakes away.
pub(super) fn of<'a>(
    given: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter(|candidate| candidate.starts_with("--"))
        .map(|candidate| (mistakes(given, candidate), candidate))
        .filter(|&(mistakes, candidate)| {
            let cut_short = given.len() > 3 && candidate.starts_with(given);
            cut_short || mistakes <= candidate.len() / 4
        })
        .min_by_key(|&(mistakes, _)| mistakes)
        .map(|(_, candidate)| candidate)
}

/// How many letters were left out, added, replaced or swapped with their neighbour to make one
/// word of the other (the optimal string alignment distance).
fn mistakes(one: &str, other: &str) -> usize {
    let (one, other): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut fewest = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                fewest = fewest.min(rows[i - 2][j - 2] + 1);
            }
            row.push(fewest);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: [&str; 5] = ["--trials", "--tasks", "--backlog-ms", "--timeout-ms", "-h"];

    #[test]
    fn mistakes_are_counted() {
        assert_eq!(mistakes("", "abc"), 3);
        assert_eq!(mistakes("trials", "trials"), 0);
        assert_eq!(mistakes("trails", "trials"), 1);
        assert_eq!(mistakes("trial", "trials"), 1);
        assert_eq!(mistakes("kitten", "sitting"), 3);
    }

    #[test]
    fn a_near_one_is_found() {
        assert_eq!(of("--trails", OPTIONS), Some("--trials"));
        assert_eq!(of("--task", OPTIONS), Some("--tasks"));
        assert_eq!(of("--timeout", OPTIONS), Some("--timeout-ms"));
        assert_eq!(of("--backlogms", OPTIONS), Some("--backlog-ms"));
        assert_eq!(of("-trials", OPTIONS), Some("--trials"));
    }

    #[test]
    fn a_far_one_is_not() {
        assert_eq!(of("--colour", OPTIONS), None);
        assert_eq!(of("--", OPTIONS), None);
        assert_eq!(of("-x", OPTIONS), None);
    }
}
