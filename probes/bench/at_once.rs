//! Decides which rounds run at once, and which are compared with one pair alone.

use std::collections::{HashMap, HashSet};

use model::placement::{Engine, Path, Side};
use model::units::Bytes;

/// Interval of comparisons: in every fourth round of a kind, pairs copied at once are compared with one of them alone.
const COMPARED_EVERY: usize = 4;
/// The properties that similar rounds share: engine, issuer, path, and bytes, which follow the rate of the route.
pub(crate) type Kind = (Engine, Side, Path, Bytes);

/// The results so far for pairs that are copied at once.
#[derive(Debug, Default)]
pub(crate) struct AtOnce {
    /// Number of rounds of each kind so far.
    rounds: HashMap<Kind, usize>,
    /// Kinds that were slower at once than alone. They are measured one at a time.
    apart: HashSet<Kind>,
}

impl AtOnce {
    /// Counts a round. Returns the number of the comparison if one of its pairs must be compared with itself alone.
    pub(crate) fn next(&mut self, kind: Kind) -> Option<usize> {
        let rounds = self.rounds.entry(kind).or_default();
        let number = *rounds;
        *rounds += 1;
        number.is_multiple_of(COMPARED_EVERY).then_some(number / COMPARED_EVERY)
    }

    pub(crate) fn is_apart(&self, kind: Kind) -> bool {
        self.apart.contains(&kind)
    }

    pub(crate) fn keep_apart(&mut self, kind: Kind) {
        self.apart.insert(kind);
    }
}
