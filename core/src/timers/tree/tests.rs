#[cfg(not(feature = "std"))]
extern crate std;

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use super::*;

/// Numbers from a seed (Steele, Vigna: `SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }
}

/// A tree, and nodes which are numbered.
struct Rig {
    tree: Tree<usize>,
    nodes: Vec<Node<usize>>,
}

impl Rig {
    fn new(nodes: usize) -> Self {
        Self { tree: Tree::new(), nodes: (0..nodes).map(Node::new).collect() }
    }

    fn insert(&self, node: usize, due: u64) {
        assert!(!self.nodes[node].is_queued());
        // SAFETY: in no tree; the nodes stay where they are until tree and nodes end together.
        unsafe { self.tree.insert(NonNull::from(&self.nodes[node]), Instant::from_nanos(due)) };
    }

    fn remove(&self, node: usize) {
        assert!(self.nodes[node].is_queued());
        // SAFETY: in the tree, as there is no other.
        unsafe { self.tree.remove(NonNull::from(&self.nodes[node])) };
    }

    fn take_due(&self, sweep: Sweep) -> Option<usize> {
        let node = self.tree.take_due(sweep)?;
        // SAFETY: the nodes are still there.
        let node = unsafe { node.as_ref() };
        assert!(!node.is_queued());
        Some(*node.payload())
    }

    fn expire(&self, now: u64) -> Vec<usize> {
        let sweep = self.tree.sweep(Instant::from_nanos(now));
        core::iter::from_fn(|| self.take_due(sweep)).collect()
    }

    /// How many nodes an operation visits.
    fn visits(&self, operation: impl FnOnce()) -> usize {
        self.tree.visits.set(0);
        operation();
        self.tree.visits.get()
    }

    /// Checks all that the tree's docs say of its shape. Gives the number of nodes.
    fn check(&self) -> usize {
        let root = self.tree.root.get();
        assert!(root.is_none_or(|root| root.parent.get().is_none()), "the root hangs somewhere");
        let mut in_order = Vec::new();
        let mut ranks = vec![0; self.nodes.len()];
        // Each node is met three times: before, between and after its children.
        let mut walk: Vec<_> = root.map(|root| (root, 0)).into_iter().collect();
        while let Some((node, turn)) = walk.pop() {
            let down = match turn {
                0 => Side::Left,
                1 => {
                    in_order.push(node);
                    Side::Right
                }
                _ => {
                    let by_side = [Side::Left, Side::Right].map(|side| {
                        assert!((1..=2).contains(&node.lead(side)), "{side:?} of {}", node.payload);
                        let rank_of = |child: Member<usize>| ranks[child.payload];
                        usize::from(node.lead(side)) + node.child(side).map_or(0, rank_of)
                    });
                    assert_eq!(by_side[0], by_side[1], "the rank of {}", node.payload);
                    assert_eq!(by_side[0] == 1, node.is_leaf());
                    ranks[node.payload] = by_side[0];
                    continue;
                }
            };
            walk.push((node, turn + 1));
            if let Some(child) = node.child(down) {
                assert!(child.parent.get() == Some(node), "a child has another parent");
                walk.push((child, 0));
            }
        }
        assert!(in_order.is_sorted_by(|&one, &other| one.is_before(other)));
        assert!(self.tree.first.get() == in_order.first().copied());
        assert!(self.tree.last.get() == in_order.last().copied());
        let first_due = in_order.first().map_or(Instant::FAR_FUTURE, |node| node.key.get().due);
        assert_eq!(self.tree.first_due(), first_due);
        let queued = self.nodes.iter().filter(|node| node.is_queued()).count();
        assert_eq!(in_order.len(), queued);
        in_order.len()
    }
}

#[test]
fn it_does_what_a_sorted_map_does() {
    let (seeds, operations) = if cfg!(miri) { (2, 300) } else { (40, 3_000) };
    for seed in 0..seeds {
        let mut numbers = Numbers(seed);
        let rig = Rig::new(1 + numbers.index(80));
        let mut model = BTreeMap::new();
        let mut keys = vec![None; rig.nodes.len()];
        let (mut now, mut sequence) = (0, 0_u64);
        for _ in 0..operations {
            let node = numbers.index(rig.nodes.len());
            match keys[node] {
                None => {
                    let due = match numbers.below(10) {
                        0 => 0,
                        1 => u64::MAX - numbers.below(3),
                        2 => now,
                        _ => now + numbers.below(40),
                    };
                    rig.insert(node, due);
                    let key = (due.max(now), sequence);
                    model.insert(key, node);
                    keys[node] = Some(key);
                    sequence += 1;
                }
                Some(key) if numbers.below(3) > 0 => {
                    rig.remove(node);
                    model.remove(&key);
                    keys[node] = None;
                }
                Some(_) => {
                    now += numbers.below(15);
                    let sweep = rig.tree.sweep(Instant::from_nanos(now));
                    for _ in 0..numbers.below(6) {
                        let due = model.first_entry().filter(|first| first.key().0 <= now);
                        let due = due.map(std::collections::btree_map::OccupiedEntry::remove);
                        assert_eq!(rig.take_due(sweep), due, "seed {seed}");
                        if let Some(node) = due {
                            keys[node] = None;
                        }
                    }
                }
            }
            assert_eq!(rig.check(), model.len(), "seed {seed}");
        }
    }
}

#[test]
fn equal_deadlines_keep_the_order_of_insertion() {
    let rig = Rig::new(9);
    for node in [3, 0, 8, 1, 7, 2, 6, 4, 5] {
        rig.insert(node, 50);
    }
    rig.remove(7);
    rig.insert(7, 50);
    assert_eq!(rig.expire(50), [3, 0, 8, 1, 2, 6, 4, 5, 7]);
}

#[test]
fn nothing_comes_early() {
    let rig = Rig::new(1);
    for due in [1, 2, 1_000, u64::MAX / 2, u64::MAX - 1] {
        rig.insert(0, due);
        assert_eq!(rig.expire(due - 1), []);
        assert_eq!(rig.expire(due), [0]);
    }
}

#[test]
fn the_far_future_never_comes() {
    let rig = Rig::new(3);
    rig.insert(0, u64::MAX);
    rig.insert(1, u64::MAX - 1);
    rig.insert(2, 4);
    assert_eq!(rig.expire(u64::MAX), [2, 1]);
    // Nor has it come for who is inserted after that.
    rig.insert(1, 0);
    assert_eq!(rig.expire(u64::MAX), [1]);
    assert_eq!((rig.tree.first_due(), rig.check()), (Instant::FAR_FUTURE, 1));
}

#[test]
fn what_is_due_when_it_is_inserted_comes_after_what_was_due() {
    let rig = Rig::new(4);
    for (node, due) in [(0, 7), (1, 5), (2, 6)] {
        rig.insert(node, due);
    }
    assert_eq!(rig.take_due(rig.tree.sweep(Instant::from_nanos(7))), Some(1));
    rig.insert(3, 0);
    rig.insert(1, 0);
    assert_eq!(rig.expire(8), [2, 0, 3, 1]);
}

#[test]
fn a_pass_leaves_what_is_inserted_meanwhile_to_the_next() {
    let rig = Rig::new(3);
    rig.insert(0, 5);
    rig.insert(1, 5);
    let sweep = rig.tree.sweep(Instant::from_nanos(5));
    assert_eq!(rig.take_due(sweep), Some(0));
    rig.insert(0, 0);
    rig.insert(2, 5);
    assert_eq!(rig.take_due(sweep), Some(1));
    assert_eq!(rig.take_due(sweep), None);
    assert!(rig.tree.is_due(sweep));
    assert_eq!(rig.expire(5), [0, 2]);
}

#[test]
fn a_clock_that_goes_back_makes_nothing_early() {
    let rig = Rig::new(2);
    assert_eq!(rig.expire(100), []);
    rig.insert(0, 120);
    rig.insert(1, 90);
    assert_eq!(rig.expire(95), []);
    assert_eq!(rig.expire(110), [1]);
    // What was reached stays reached.
    assert_eq!(rig.expire(105), []);
    rig.insert(1, 0);
    assert_eq!(rig.expire(109), []);
    assert_eq!(rig.expire(110), [1]);
    assert_eq!(rig.expire(120), [0]);
}

/// The most nodes that an operation on so many may visit.
fn bound(nodes: usize) -> usize {
    let height = ((nodes as u64).pow(2).ilog2() + 1) as usize;
    2 * height + 2
}

/// Fills, and then empties, checking what each operation visits. Gives the most that any insert and
/// any removal visited.
fn visits_at_most(
    nodes: usize,
    due: impl Fn(usize) -> u64,
    mut next_out: impl FnMut(&Rig) -> usize,
) -> (usize, usize) {
    let rig = Rig::new(nodes);
    let (mut most_in, mut most_out) = (0, 0);
    for node in 0..nodes {
        let visits = rig.visits(|| rig.insert(node, due(node)));
        assert!(visits <= bound(node + 1), "insert {node} of {nodes} visited {visits}");
        most_in = most_in.max(visits);
    }
    rig.check();
    for left in (1..=nodes).rev() {
        let node = next_out(&rig);
        let visits = rig.visits(|| rig.remove(node));
        assert!(visits <= bound(left), "a removal from {left} visited {visits}");
        most_out = most_out.max(visits);
        if left.is_power_of_two() {
            rig.check();
        }
    }
    (most_in, most_out)
}

/// Goes down to a leaf, to the chosen side wherever there is one.
fn walk_down(rig: &Rig, choose: impl Fn(Member<usize>) -> Side) -> usize {
    let mut node = rig.tree.root.get().unwrap();
    while let Some(child) = node.child(choose(node)).or(node.child(choose(node).other())) {
        node = child;
    }
    node.payload
}

#[test]
fn no_operation_is_long() {
    let sizes: &[usize] = if cfg!(miri) { &[60] } else { &[1, 2, 3, 1_000, 10_000, 100_000] };
    for &nodes in sizes {
        let scattered = |node: usize| Numbers(node as u64).below(u64::MAX);
        let zigzag = |node: usize| {
            let half = node as u64 / 2;
            if node.is_multiple_of(2) { half } else { u64::MAX / 2 - half }
        };
        let sorted = |node: usize| node as u64;
        let reverse = |node: usize| u64::MAX / 2 - node as u64;
        let orders: [&dyn Fn(usize) -> u64; 5] = [&sorted, &reverse, &|_| 7, &scattered, &zigzag];
        for order in orders {
            // The earliest: what expiring does.
            visits_at_most(nodes, order, |rig| rig.tree.first.get().unwrap().payload);
            // A leaf where the tree is lowest: what is above leans over soonest.
            visits_at_most(nodes, order, |rig| {
                let lower = |node: Member<usize>| {
                    if node.lead(Side::Left) == 2 { Side::Left } else { Side::Right }
                };
                walk_down(rig, lower)
            });
            if nodes > 10_000 {
                continue; // the others take their time
            }
            // The root: the next one is far below.
            visits_at_most(nodes, order, |rig| rig.tree.root.get().unwrap().payload);
            let mut in_turn = 0..nodes;
            visits_at_most(nodes, order, |_| in_turn.next().unwrap());
        }
    }
}

#[test]
fn what_comes_first_or_last_needs_no_walk() {
    let nodes = if cfg!(miri) { 63 } else { 65_535 };
    let rig = Rig::new(nodes);
    let all = (0..nodes).map(|node| rig.visits(|| rig.insert(node, 5))).sum::<usize>();
    assert!(all < 4 * nodes, "{nodes} inserts of one deadline visited {all}");
    let all = (0..nodes).map(|node| rig.visits(|| rig.remove(node))).sum::<usize>();
    assert!(all < 4 * nodes, "as many removals of the first visited {all}");
}

#[test]
fn the_counted_steps_are_those_that_grow() {
    // The bounds above would hold for a count of nothing.
    let nodes = if cfg!(miri) { 63 } else { 65_535 };
    let scattered = |node: usize| Numbers(node as u64).below(u64::MAX);
    let (most_in, most_out) =
        visits_at_most(nodes, scattered, |rig| rig.tree.root.get().unwrap().payload);
    let depth = (nodes + 1).ilog2() as usize;
    assert!(most_in >= depth, "an insert of {nodes} visited {most_in} at most");
    assert!(most_out >= depth, "a removal of {nodes} visited {most_out} at most");
}
