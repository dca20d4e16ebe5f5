#![forbid(unsafe_code)]
//! The rules, and how a breach is told.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// What a queue owes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    InOrder,
    NoneLost,
    NoneTwice,
    NoneDenied,
    NoFalseBusy,
    EmptinessAgrees,
    HandsBack,
    KeepsItsRoom,
    DropsNoneInside,
    DropsTheRest,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InOrder => "what one thread puts in comes out in that order",
            Self::NoneLost => "no item is lost",
            Self::NoneTwice => "no item comes out twice",
            Self::NoneDenied => "a queue that holds an item does not say that it is empty",
            Self::NoFalseBusy => "Busy is said only while a push is half done",
            Self::EmptinessAgrees => "is_empty agrees with the next pop",
            Self::HandsBack => "a full queue hands back the item that it refuses",
            Self::KeepsItsRoom => {
                "a queue has room for as many items as ever, and for one at least"
            }
            Self::DropsNoneInside => "an item is dropped by whoever took it, and once",
            Self::DropsTheRest => "a queue that is dropped drops each item that it holds, once",
        })
    }
}

/// A rule is broken, and how it was seen.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) seen: String,
}

impl Broken {
    /// By a queue that began with this count.
    pub(crate) fn made_at(mut self, count: u64) -> Self {
        self.seen = format!("{}; `make` was given the count {count}", self.seen);
        self
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue breaks a rule: {}; {}", self.rule, self.seen)
    }
}

macro_rules! broken {
    ($rule:ident, $($seen:tt)*) => {
        crate::conformance::rules::Broken {
            rule: crate::conformance::rules::Rule::$rule,
            seen: alloc::format!($($seen)*),
        }
    };
}

pub(crate) use broken;
