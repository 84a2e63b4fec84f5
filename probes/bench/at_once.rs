//! Decides which rounds run at once, and which are compared with one pair alone.

use std::collections::{HashMap, HashSet};

use model::placement::{Engine, Path, Side};
use model::units::Bytes;

/// Interval of comparisons: in every fourth round of a kind, pairs copied at once are compared with one of them alone.
const COMPARED_EVERY: usize = 4;
/// The properties that similar rounds share: engine, issuer, path, and bytes, which follow the rate of the route.
pub(crate) type RoundKey = (Engine, Side, Path, Bytes);

/// The results so far for pairs that are copied at once.
#[derive(Debug, Default)]
pub(crate) struct AtOnce {
    /// Number of rounds of each kind so far.
    rounds: HashMap<RoundKey, usize>,
    /// Kinds that were slower at once than alone. They are measured one at a time.
    apart: HashSet<RoundKey>,
}

impl AtOnce {
    /// Counts a round. Returns the number of the comparison if one of its pairs must be compared with itself alone.
    pub(crate) fn next(&mut self, kind: RoundKey) -> Option<usize> {
        let count = self.rounds.entry(kind).or_default();
        let number = *count;
        *count += 1;
        number.is_multiple_of(COMPARED_EVERY).then_some(number / COMPARED_EVERY)
    }

    pub(crate) fn is_apart(&self, kind: RoundKey) -> bool {
        self.apart.contains(&kind)
    }

    pub(crate) fn keep_apart(&mut self, kind: RoundKey) {
        self.apart.insert(kind);
    }
}
