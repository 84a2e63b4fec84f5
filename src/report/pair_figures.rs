//! Figures over some pairs. Only sound cells count.

use std::collections::HashSet;

use super::figures::Spread;
use model::cell::Measurement;
use model::measurement::{Latency, Measurements, PeerBandwidth};
use model::placement::{Pair, Path};

/// Figures over some pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figures {
    /// Number of pairs in the plan.
    pub(super) planned: usize,
    /// GB/s.
    pub(super) rates: Option<Spread>,
    /// Achieved as per cent of theoretical.
    pub(super) percents: Option<Spread>,
    /// The lowest and the highest rate that is expected of these pairs, GB/s.
    pub(super) expected: Option<[f64; 2]>,
}

impl Figures {
    /// Computes the figures of the sound cells.
    pub(super) fn of<'a>(cells: impl IntoIterator<Item = &'a PeerBandwidth>) -> Self {
        let cells: Vec<_> = cells.into_iter().collect();
        let sound = || cells.iter().filter(|cell| is_sound(cell));
        Self {
            planned: cells.len(),
            rates: Spread::of(sound().filter_map(|cell| Some(cell.achieved_gbps?.0))),
            percents: Spread::of(sound().filter_map(|cell| cell.percent)),
            expected: expected(sound().copied()),
        }
    }
}

/// Returns the rates of copies within a GPU, over all GPUs.
pub(super) fn local_rates(measurements: &Measurements) -> Option<Spread> {
    let sound = measurements
        .local
        .iter()
        .filter(|local| local.cell().tested());
    Spread::of(sound.filter_map(|local| Some(local.achieved_gbps?.0)))
}

/// Returns the range that healthy machines reach at these cells: the recorded range if it is known, else the expected
/// figure.
fn expected<'a>(cells: impl Iterator<Item = &'a PeerBandwidth>) -> Option<[f64; 2]> {
    let ranges = cells.filter_map(|cell| {
        let low = cell.expected_low_gbps.or(cell.expected_gbps)?;
        Some([low.0, cell.expected_high_gbps.or(cell.expected_gbps)?.0])
    });
    ranges.reduce(|one, other| [one[0].min(other[0]), one[1].max(other[1])])
}

/// Returns true if a cell has a valid rate: it was measured, the bytes arrived, and no other program disturbed it.
pub(super) fn is_sound(cell: &PeerBandwidth) -> bool {
    cell.cell().tested() && !cell.verified.is_wrong()
}

/// Returns pairs whose bytes did not arrive on this path: other measurements of such copies mean nothing.
pub(super) fn wrong_pairs(measurements: &Measurements, path: Path) -> HashSet<Pair> {
    let wrong = measurements
        .peer
        .iter()
        .filter(|cell| cell.setup.path == path && cell.verified.is_wrong());
    wrong.map(|cell| cell.pair).collect()
}

/// Returns the measured times of small copies between pairs whose bytes arrive.
pub(super) fn sound_latencies(measurements: &Measurements) -> impl Iterator<Item = &Latency> {
    let [direct, staged] = [Path::Direct, Path::Staged].map(|path| wrong_pairs(measurements, path));
    let arrives = move |cell: &&Latency| match cell.path {
        Path::Direct => !direct.contains(&cell.pair),
        Path::Staged => !staged.contains(&cell.pair),
    };
    measurements
        .latency
        .iter()
        .filter(|cell| cell.cell().tested())
        .filter(arrives)
}
