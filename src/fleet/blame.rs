//! Outlying figures, and the GPU or the pair of GPUs that they have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::summary::Ends;

/// An outlying figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Low {
    /// Index of its kind in [`super::outliers::Compared::kinds`].
    pub kind: usize,
    /// The GPUs of the figure.
    pub ends: Ends,
    pub value: f32,
    /// Median of the cohort.
    pub median: f32,
    /// Distance from the median in spreads.
    pub z: f32,
    /// Share of the median, per cent.
    pub percent: f32,
}

/// Share of the outlying figures that must have a GPU as an end for the GPU to be blamed. Chosen.
const BLAMED: f64 = 0.8;

/// The common cause of outlying figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blame {
    Gpu(u16),
    /// A pair of GPUs in one direction.
    Pair([u16; 2]),
    /// Several GPUs.
    Several(Vec<u16>),
    /// No GPU: only the rate of all flows of the machine together is an outlier.
    Machine,
}

impl Blame {
    /// Returns the common cause of these figures.
    pub(crate) fn of(low: &[Low]) -> Self {
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        let ends: Vec<[u16; 2]> = low.iter().filter_map(|low| low.ends.gpus()).collect();
        for [from, to] in &ends {
            *counts.entry(*from).or_default() += 1;
            if from != to {
                *counts.entry(*to).or_default() += 1;
            }
        }
        let pairs: BTreeSet<[u16; 2]> =
            ends.iter().copied().filter(|[from, to]| from != to).collect();
        let most = counts.values().max().copied().unwrap_or_default();
        let mut with_most = counts.iter().filter(|(_, count)| **count == most).map(|(gpu, _)| *gpu);
        #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
        let enough = most as f64 >= BLAMED * ends.len() as f64;
        match (with_most.next(), with_most.next(), pairs.first()) {
            (None, ..) => Self::Machine,
            (Some(gpu), None, _) if enough => Self::Gpu(gpu),
            (_, _, Some(pair)) if pairs.len() == 1 => Self::Pair(*pair),
            _ => Self::Several(counts.into_keys().collect()),
        }
    }

    pub(crate) fn gpus(&self) -> Vec<u32> {
        match self {
            Self::Gpu(gpu) => vec![(*gpu).into()],
            Self::Pair(pair) => pair.iter().map(|gpu| (*gpu).into()).collect(),
            Self::Several(gpus) => gpus.iter().map(|gpu| (*gpu).into()).collect(),
            Self::Machine => Vec::new(),
        }
    }
}

impl std::fmt::Display for Blame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gpu(gpu) => write!(f, "GPU {gpu}"),
            Self::Machine => f.write_str("the machine as a whole"),
            Self::Pair([from, to]) => write!(f, "GPU {from} → GPU {to}"),
            Self::Several(gpus) => {
                let gpus: Vec<_> = gpus.iter().map(ToString::to_string).collect();
                write!(f, "GPUs {}", gpus.join(","))
            }
        }
    }
}
