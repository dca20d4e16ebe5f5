//! The tree of the timers: intrusive, and no operation is long.
//!
//! A search tree that is balanced by ranks, a *weak AVL tree* (B. Haeupler, S. Sen, R. E. Tarjan,
//! "Rank-Balanced Trees", ACM Transactions on Algorithms 11, 2015). Who embeds a [`Node`] lends it
//! to the tree; the tree allocates nothing.
//!
//! # Its shape
//! Nodes are in the order of their keys, from left to right. Each has a *rank*: 1 that of a leaf,
//! and 0 stands for no node. A child's rank is one or two less than its parent's. From this follows
//! that ranks, and so the height, are at most 2 log₂ *n* + 1; and of a tree that has only grown,
//! 1.44 log₂ *n*, as it is an AVL tree then.
//!
//! # Its cost
//! The ends are known. What comes before all others or after all others, as a timeout does that is
//! as long as those before it, finds its place by one or two comparisons, and the earliest leaves
//! without any. Any other insert walks down once; a node with two children is replaced by the next
//! one, another walk down. Then the ranks are set right on the way up: each step changes a rank, or
//! ends it with at most two rotations. So an operation visits at most 4 log₂ *n* + 4 nodes, which a
//! test counts. Most walks up end at once: over many operations they take a constant number of
//! steps each.

use core::marker::PhantomPinned;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::sync::{Cell, const_but_under_loom};
use crate::time::Instant;

#[cfg(all(test, not(loom)))]
#[allow(unsafe_code)]
mod tests;

/// What is before [`Instant::FAR_FUTURE`], which time never reaches.
const LAST: Instant = Instant::from_nanos(Instant::FAR_FUTURE.as_nanos() - 1);

/// How far a leaf is ahead of the children that it has not.
const LEAF: u8 = 1;

/// The order of the tree. No two nodes are equal.
#[derive(Clone, Copy)]
struct Key {
    due: Instant,
    /// Of the insertion. With one each nanosecond it lasts for 584 years.
    sequence: u64,
}

impl Key {
    /// As one number, which is compared without a branch: on the way down none could be foretold.
    #[inline]
    fn joined(self) -> u128 {
        u128::from(self.due.as_nanos()) << 64 | u128::from(self.sequence)
    }
}

/// A timer's place in a tree, and what its owner keeps in it.
pub(crate) struct Node<P> {
    key: Cell<Key>,
    parent: Cell<Option<Member<P>>>,
    /// Left and right: see [`Side`].
    children: [Cell<Option<Member<P>>>; 2],
    /// By how much its rank is more than that of each child; 0 while it stands in no tree. Ranks
    /// themselves are nowhere kept: so a walk up touches no node that is not above.
    leads: [Cell<u8>; 2],
    payload: P,
    _pinned: PhantomPinned,
}

/// A tree of nodes for one owner.
pub(crate) struct Tree<P> {
    root: Cell<Option<Member<P>>>,
    first: Cell<Option<Member<P>>>,
    last: Cell<Option<Member<P>>>,
    /// When the first is due, or the far future: what is looked at most often takes one load.
    first_due: Cell<Instant>,
    /// The latest time that a sweep was made for.
    reached: Cell<Instant>,
    /// Of the next insertion.
    sequence: Cell<u64>,
    #[cfg(test)]
    visits: core::cell::Cell<usize>,
}

/// One pass over what is due.
#[derive(Clone, Copy)]
pub(crate) struct Sweep {
    now: Instant,
    /// What is inserted from here on is left to the next.
    before: u64,
}

/// A direction, and the index of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Left,
    Right,
}

impl Side {
    #[inline]
    fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// A node in a tree, or on its way in or out: by the contract of [`Tree::insert`] it is there.
struct Member<P>(NonNull<Node<P>>);

impl<P> Clone for Member<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Member<P> {}

impl<P> PartialEq for Member<P> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<P> Deref for Member<P> {
    type Target = Node<P>;

    #[inline]
    fn deref(&self) -> &Node<P> {
        // SAFETY: made from what `insert` was given, and used only within the tree's operations,
        // during which nobody's code runs but the tree's: the node has not left, or is just about
        // to, so its owner still keeps it in place. All that changes in it is in cells.
        unsafe { self.0.as_ref() }
    }
}

impl<P> Member<P> {
    #[inline]
    fn is_before(self, other: Self) -> bool {
        self.key.get().joined() < other.key.get().joined()
    }

    /// Where a node with this one's key would stand below it.
    #[inline]
    fn side_for(self, node: Self) -> Side {
        if self.is_before(node) { Side::Right } else { Side::Left }
    }

    /// Where this child is.
    #[inline]
    fn side_of(self, child: Self) -> Side {
        if self.child(Side::Left) == Some(child) { Side::Left } else { Side::Right }
    }

    #[inline]
    fn child(self, side: Side) -> Option<Self> {
        self.children[side as usize].get()
    }

    #[inline]
    fn put(self, side: Side, child: Option<Self>) {
        self.children[side as usize].set(child);
        if let Some(child) = child {
            child.parent.set(Some(self));
        }
    }

    /// Its parent, and where it is of that.
    #[inline]
    fn place(self) -> Option<(Self, Side)> {
        let above = self.parent.get()?;
        Some((above, above.side_of(self)))
    }

    #[inline]
    fn is_leaf(self) -> bool {
        self.child(Side::Left).is_none() && self.child(Side::Right).is_none()
    }

    /// By how much its rank is more than that of its child, or of none.
    #[inline]
    fn lead(self, side: Side) -> u8 {
        self.leads[side as usize].get()
    }

    #[inline]
    fn set_lead(self, side: Side, lead: u8) {
        self.leads[side as usize].set(lead);
    }

    #[inline]
    fn set_leads(self, both: u8) {
        self.set_lead(Side::Left, both);
        self.set_lead(Side::Right, both);
    }
}

impl<P> Node<P> {
    const_but_under_loom! {
        /// A node that stands in no tree.
        pub(crate) const fn new(payload: P) -> Self {
            Self {
                key: Cell::new(Key { due: Instant::FAR_FUTURE, sequence: 0 }),
                parent: Cell::new(None),
                children: [Cell::new(None), Cell::new(None)],
                leads: [Cell::new(0), Cell::new(0)],
                payload,
                _pinned: PhantomPinned,
            }
        }
    }

    /// Whether it stands in a tree.
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        self.leads[0].get() != 0
    }

    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }
}

impl<P> Tree<P> {
    const_but_under_loom! {
        pub(crate) const fn new() -> Self {
            Self {
                root: Cell::new(None),
                first: Cell::new(None),
                last: Cell::new(None),
                first_due: Cell::new(Instant::FAR_FUTURE),
                reached: Cell::new(Instant::ZERO),
                sequence: Cell::new(0),
                #[cfg(test)]
                visits: core::cell::Cell::new(0),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.get().is_none()
    }

    /// When the earliest node is due; the far future if that is never.
    #[inline]
    pub(crate) fn first_due(&self) -> Instant {
        self.first_due.get()
    }

    /// Puts a node in, due at `deadline`. If a sweep was made for a later time already, it counts
    /// as due at that time: it comes after all that were due before, so that who inserts what has
    /// long been due, again and again, holds nobody up.
    ///
    /// # Safety
    /// The node stands in no tree. Until it has left this one, by [`remove`](Self::remove) or
    /// [`take_due`](Self::take_due), it stays in place, and the pointer may be used to share it;
    /// from which thread, is that of the tree.
    pub(crate) unsafe fn insert(&self, node: NonNull<Node<P>>, deadline: Instant) {
        let node = Member(node);
        debug_assert!(!node.is_queued(), "a timer is inserted once");
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        node.key.set(Key { due: deadline.max(self.reached.get()), sequence });
        node.set_leads(LEAF);
        self.visit();
        let (Some(root), Some(first), Some(last)) =
            (self.root.get(), self.first.get(), self.last.get())
        else {
            self.root.set(Some(node));
            self.last.set(Some(node));
            return self.set_first(Some(node));
        };
        if last.is_before(node) {
            self.last.set(Some(node));
            self.attach(last, Side::Right, node);
        } else if node.is_before(first) {
            self.set_first(Some(node));
            self.attach(first, Side::Left, node);
        } else {
            let (mut above, mut side) = (root, root.side_for(node));
            while let Some(child) = above.child(side) {
                self.visit();
                (above, side) = (child, child.side_for(node));
            }
            self.attach(above, side, node);
        }
    }

    /// Puts a leaf where nothing is, and sets the ranks above right.
    fn attach(&self, above: Member<P>, side: Side, node: Member<P>) {
        above.put(side, Some(node));
        let mut place = Some((above, side));
        while let Some((above, side)) = place {
            self.visit();
            // The child there has gained a rank.
            if above.lead(side) == 2 {
                return above.set_lead(side, 1);
            }
            if above.lead(side.other()) == 2 {
                return self.turn_gained(above, side);
            }
            // Level with one child and one ahead of the other: it gains one too.
            above.set_lead(side.other(), 2);
            place = above.place();
        }
    }

    /// Where a child has come level, two ahead of the other: it, or the nearer of its own, rises.
    fn turn_gained(&self, above: Member<P>, side: Side) {
        let far = side.other();
        let Some(child) = above.child(side) else { unreachable!("who has gained a rank is there") };
        above.set_lead(far, 1);
        match child.child(far) {
            Some(inner) if child.lead(far) == 1 => {
                child.set_lead(side, 1);
                child.set_lead(far, inner.lead(side));
                above.set_lead(side, inner.lead(far));
                inner.set_leads(1);
                self.raise(inner, child, far);
                self.raise(inner, above, side);
            }
            _ => {
                above.set_lead(side, 1);
                child.set_lead(far, 1);
                self.raise(child, above, side);
            }
        }
    }

    /// Takes a node out.
    ///
    /// # Safety
    /// It stands in this tree.
    pub(crate) unsafe fn remove(&self, node: NonNull<Node<P>>) {
        let node = Member(node);
        debug_assert!(node.is_queued(), "what is removed was inserted");
        self.detach(node);
    }

    /// Begins a pass over what is due. `now` should be no less than for the pass before; time never
    /// reaches the far future, so that this is taken for the nanosecond before.
    pub(crate) fn sweep(&self, now: Instant) -> Sweep {
        let now = now.min(LAST);
        self.reached.set(self.reached.get().max(now));
        Sweep { now, before: self.sequence.get() }
    }

    /// Whether a node is due that this pass, or the next, may take.
    #[inline]
    pub(crate) fn is_due(&self, sweep: Sweep) -> bool {
        self.first_due.get() <= sweep.now
    }

    /// Takes out the earliest node if it is due and was there when the pass began. The pointer is
    /// what was inserted; its owner may do with the node as he likes, from his next turn on.
    #[inline]
    pub(crate) fn take_due(&self, sweep: Sweep) -> Option<NonNull<Node<P>>> {
        if !self.is_due(sweep) {
            return None;
        }
        // What was inserted since is behind all that was due: it counts as due now, or later.
        let first = self.first.get().filter(|first| first.key.get().sequence < sweep.before)?;
        self.detach(first);
        Some(first.0)
    }

    fn detach(&self, node: Member<P>) {
        self.visit();
        // Who has no left child has at most a leaf to the right, which then comes next; and so the
        // other way round.
        if self.first.get() == Some(node) {
            self.set_first(node.child(Side::Right).or(node.parent.get()));
        }
        if self.last.get() == Some(node) {
            self.last.set(node.child(Side::Left).or(node.parent.get()));
        }
        let gap = match (node.child(Side::Left), node.child(Side::Right)) {
            (Some(left), Some(right)) => Some(self.replace_by_next(node, left, right)),
            (one, other) => {
                let gap = node.place();
                self.hang(gap, one.or(other));
                gap
            }
        };
        node.parent.set(None);
        node.put(Side::Left, None);
        node.put(Side::Right, None);
        node.set_leads(0);
        self.close(gap);
    }

    /// Puts the node that comes next in the place of one with two children. Gives where a node is
    /// missing now.
    fn replace_by_next(
        &self,
        node: Member<P>,
        left: Member<P>,
        right: Member<P>,
    ) -> (Member<P>, Side) {
        let mut next = right;
        while let Some(before) = next.child(Side::Left) {
            self.visit();
            next = before;
        }
        let gap = match next.parent.get() {
            Some(above) if next != right => {
                above.put(Side::Left, next.child(Side::Right));
                next.put(Side::Right, Some(right));
                (above, Side::Left)
            }
            _ => (next, Side::Right),
        };
        next.put(Side::Left, Some(left));
        next.set_lead(Side::Left, node.lead(Side::Left));
        next.set_lead(Side::Right, node.lead(Side::Right));
        self.hang(node.place(), Some(next));
        gap
    }

    /// Sets the ranks right from where a child was lost, or was exchanged for its own.
    fn close(&self, gap: Option<(Member<P>, Side)>) {
        let mut place = gap;
        while let Some((above, side)) = place {
            self.visit();
            let far = side.other();
            // The child there has lost a rank.
            match (above.lead(side), above.lead(far)) {
                (1, 2) if above.is_leaf() => above.set_leads(LEAF),
                (1, _) => return above.set_lead(side, 2),
                (_, 2) => above.set_lead(far, 1),
                _ => {
                    let Some(sibling) = above.child(far) else {
                        unreachable!("a rank of three or more has two children")
                    };
                    if (sibling.lead(side), sibling.lead(far)) != (2, 2) {
                        return self.turn_lost(above, side, sibling);
                    }
                    sibling.set_leads(1);
                }
            }
            place = above.place();
        }
    }

    /// Where a child has fallen three behind, and its sibling is one behind: the sibling, or the
    /// nearer of its own, rises.
    fn turn_lost(&self, above: Member<P>, side: Side, sibling: Member<P>) {
        let far = side.other();
        match sibling.child(side) {
            Some(inner) if sibling.lead(far) == 2 => {
                above.set_lead(side, 1);
                above.set_lead(far, inner.lead(side));
                sibling.set_lead(side, inner.lead(far));
                sibling.set_lead(far, 1);
                inner.set_leads(2);
                self.raise(inner, sibling, side);
                self.raise(inner, above, far);
            }
            _ => {
                above.set_lead(far, sibling.lead(side));
                sibling.set_lead(side, 1);
                sibling.set_lead(far, 2);
                self.raise(sibling, above, far);
                if above.is_leaf() {
                    above.set_leads(LEAF);
                    sibling.set_lead(side, 2);
                }
            }
        }
    }

    /// Turns a node and its child at that side, so that the child is above.
    fn raise(&self, child: Member<P>, above: Member<P>, side: Side) {
        self.hang(above.place(), Some(child));
        above.put(side, child.child(side.other()));
        child.put(side.other(), Some(above));
    }

    /// Puts a node, or none, there; nowhere is the root's place.
    fn hang(&self, place: Option<(Member<P>, Side)>, node: Option<Member<P>>) {
        if let Some((above, side)) = place {
            return above.put(side, node);
        }
        self.root.set(node);
        if let Some(node) = node {
            node.parent.set(None);
        }
    }

    #[inline]
    fn set_first(&self, first: Option<Member<P>>) {
        self.first.set(first);
        self.first_due.set(first.map_or(Instant::FAR_FUTURE, |first| first.key.get().due));
    }

    /// Counted by the tests, which bound it.
    #[inline]
    #[cfg_attr(not(test), allow(clippy::unused_self))] // nobody counts
    fn visit(&self) {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
    }
}
