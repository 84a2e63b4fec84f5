//! Which rounds are run at once, and which are compared with one pair alone.

use std::collections::{HashMap, HashSet};

use crate::model::placement::{Engine, Path, Side};
use crate::model::units::Bytes;

/// Pairs that are copied at once are compared with one of them alone in every so many of the rounds of a
/// kind.
const COMPARED_EVERY: usize = 4;
/// Rounds that are alike: engine, issuer, path, and bytes, which follow the rate of the route.
pub(super) type Kind = (Engine, Side, Path, Bytes);

/// What is known of pairs that are copied at once.
#[derive(Debug, Default)]
pub(super) struct AtOnce {
    /// Rounds of each kind so far.
    rounds: HashMap<Kind, usize>,
    /// Kinds that were slower than alone: they are measured one at a time.
    apart: HashSet<Kind>,
}

impl AtOnce {
    /// Counts a round. Where one of its pairs is to be compared with itself alone, the number of that comparison.
    pub(super) fn next(&mut self, kind: Kind) -> Option<usize> {
        let rounds = self.rounds.entry(kind).or_default();
        let number = *rounds;
        *rounds += 1;
        number
            .is_multiple_of(COMPARED_EVERY)
            .then_some(number / COMPARED_EVERY)
    }

    pub(super) fn is_apart(&self, kind: Kind) -> bool {
        self.apart.contains(&kind)
    }

    pub(super) fn keep_apart(&mut self, kind: Kind) {
        self.apart.insert(kind);
    }
}
