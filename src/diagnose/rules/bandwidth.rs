//! What the rules on slow copies share, so that exactly one of them reports each slow pair: below
//! the floor, else slower than its other direction, else an outlier among comparable pairs.

use super::prelude::*;
use std::collections::BTreeMap;

use crate::diagnose::expected::Expectation;
use crate::model::measurement::{PeerBandwidth, Verified};
use crate::model::units::GbPerSecond;

/// The reference figures of a path, without those whose bytes arrived wrong: a rate of those means
/// nothing.
pub fn sound<'a>(evidence: &Evidence<'a>, path: Path) -> BTreeMap<Pair, &'a PeerBandwidth> {
    let mut cells = evidence.reference(path);
    cells.retain(|_, cell| !matches!(cell.verified, Verified::Dropped | Verified::Corrupt));
    cells
}

/// A figure below the floor of its class.
pub struct Slow<'a> {
    /// The figure.
    pub cell: &'a PeerBandwidth,
    /// What was expected of it.
    pub expected: Expectation,
    /// What was reached.
    pub achieved: GbPerSecond,
}

impl<'a> Slow<'a> {
    /// `None` where the cell is fast enough, or there is nothing to compare it with.
    pub fn of(evidence: &Evidence<'_>, cell: &'a PeerBandwidth) -> Option<Self> {
        let slow = Self { cell, expected: evidence.expected(cell)?, achieved: cell.achieved_gbps? };
        (slow.achieved < slow.expected.floor_gbps()).then_some(slow)
    }

    /// Achieved as per cent of expected.
    pub fn percent(&self) -> f64 {
        self.achieved.percent_of(self.expected.gbps)
    }
}

/// The pairs of a path below their floor.
pub fn below_floor<'a>(evidence: &Evidence<'a>, path: Path) -> Vec<Slow<'a>> {
    sound(evidence, path).values().filter_map(|cell| Slow::of(evidence, cell)).collect()
}

/// A figure and what it is compared with.
pub struct Compared {
    /// The pair.
    pub pair: Pair,
    /// What it reaches.
    pub achieved: GbPerSecond,
    /// What it should be near to.
    pub normal: GbPerSecond,
}

impl Compared {
    /// How far the figure lies below, per cent of what it should be near to.
    pub fn below_percent(&self) -> f64 {
        100.0 - self.achieved.percent_of(self.normal)
    }
}
