//! The highest rate that an all-reduce could reach, from the rates that GPUs sent while all of them sent and received.
//!
//! With n GPUs, S bytes to be summed, and B bytes per second out of every GPU at once:
//!
//! - Ring: every GPU sends 2 (n - 1) / n S bytes to the next one, so it takes 2 (n - 1) / n S / B.
//! - Tree (two binary trees with half of the data each, every GPU a leaf of one and within the other): every GPU sends
//!   S up, and S down where it is within, so it takes 2 S / B.
//!
//! Bus bandwidth is S over that time, times 2 (n - 1) / n (nccl-tests, doc/PERFORMANCE.md): B for a ring, and
//! B (n - 1) / n for trees (NVIDIA, "Massively Scale Your Deep Learning Training with NCCL 2.4").

use std::collections::BTreeMap;

use super::expected::as_written;
use model::collective::{Algorithm, AllReduce};
use model::flow::Endpoint;
use model::load::{LoadPattern, Pattern};
use model::measurement::Measurements;
use model::units::GbPerSecond;

/// Returns both algorithms, from the patterns in which every GPU sends and receives. Empty if they were not measured.
pub fn of(measurements: &Measurements) -> Vec<AllReduce> {
    let pattern = |kind: Pattern| {
        measurements
            .load
            .iter()
            .find(|load| load.pattern == kind && load.rate().is_some())
    };
    let ring = pattern(Pattern::Ring);
    // A tree sends to several at once. If that was not measured, the rates of a ring are used.
    let tree = pattern(Pattern::RingBothWays).or(ring);
    let all = [(Algorithm::Ring, ring), (Algorithm::Tree, tree)].into_iter();
    all.filter_map(|(algorithm, load)| all_reduce(algorithm, load?))
        .collect()
}

/// Writes the results beside the figures.
pub fn fill(measurements: &mut Measurements) {
    measurements.all_reduce = of(measurements);
}

fn all_reduce(algorithm: Algorithm, load: &LoadPattern) -> Option<AllReduce> {
    let mut sent: BTreeMap<Endpoint, f64> = BTreeMap::new();
    for flow in &load.flows {
        *sent.entry(flow.from).or_default() += as_written(flow.achieved_gbps?).0;
    }
    let gpus = u32::try_from(sent.len()).ok().filter(|gpus| *gpus > 1)?;
    let slowest = sent.into_values().reduce(f64::min)?;
    let passes = 2.0 * f64::from(gpus - 1) / f64::from(gpus);
    let algorithm_gbps = match algorithm {
        Algorithm::Ring => slowest / passes,
        Algorithm::Tree => slowest / 2.0,
    };
    Some(AllReduce {
        algorithm,
        gpus,
        sent_gbps: GbPerSecond(slowest),
        pattern: load.name(),
        bus_gbps: as_written(GbPerSecond(algorithm_gbps * passes)),
        algorithm_gbps: as_written(GbPerSecond(algorithm_gbps)),
    })
}
