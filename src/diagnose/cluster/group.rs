//! Bad pairs with one likely cause, and the words for them.

use std::collections::HashSet;

use crate::words;
use model::finding::Subject;
use model::node::NodeId;
use model::placement::Pair;

/// The common part of a group of bad pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Common {
    /// Every pair of at least three GPUs is bad.
    Everything,
    Gpu(u32),
    /// A link that all of them pass, by its ends.
    Link([NodeId; 2]),
    /// Nothing: one pair by itself.
    OnePair,
}

/// Bad pairs with one likely cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub common: Common,
    /// The ordered pairs, as they were given.
    pub pairs: Vec<Pair>,
    /// True if the other direction of one of them was checked as well, and is not bad.
    pub seen_back: bool,
}

impl Group {
    /// Returns its pairs as a set for look-ups: a machine of 72 GPUs has 5112.
    pub(crate) fn pair_set(&self) -> HashSet<Pair> {
        self.pairs.iter().copied().collect()
    }

    /// Returns the GPU that all of its pairs have, or all of theirs.
    pub(crate) fn gpus(&self) -> Vec<u32> {
        match self.common {
            Common::Gpu(gpu) => vec![gpu],
            _ => {
                let ends = |pair: &Pair| [pair.source, pair.destination];
                words::unique(self.pairs.iter().flat_map(ends))
            }
        }
    }

    /// Returns the subject of a finding on this group.
    pub(crate) fn subject(&self) -> Subject {
        match (&self.common, self.pairs.first()) {
            (Common::Gpu(index), _) => Subject::Gpu { index: *index },
            (Common::OnePair, Some(&pair)) => Subject::Pair(pair),
            (Common::Link([NodeId::Pci(_), NodeId::Pci(lower)]), _) => {
                Subject::PcieLink { address: *lower }
            }
            _ => Subject::Machine,
        }
    }
}

/// Returns the end of a link as words for people: `NUMA node 0` for `numa0`.
pub(crate) fn end(id: NodeId) -> String {
    match id {
        NodeId::Numa(Some(node)) => format!("NUMA node {node}"),
        id => id.to_string(),
    }
}
