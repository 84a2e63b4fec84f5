//! The rate that an all-reduce of large sums reaches, from the rates that GPUs sent while all of them sent and received.
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
        measurements.load.iter().find(|load| load.pattern == kind && load.rate().is_some())
    };
    // NCCL copies by kernels.
    let ring = pattern(Pattern::RingByKernels).or_else(|| pattern(Pattern::Ring));
    let both_ways =
        pattern(Pattern::RingBothWaysByKernels).or_else(|| pattern(Pattern::RingBothWays));
    // A tree sends to several at once. The copies of one engine run in turn, though, and may meet others at a GPU: what
    // a ring reached is possible too.
    let tree = [both_ways, ring]
        .into_iter()
        .flatten()
        .filter_map(|load| all_reduce(Algorithm::Tree, load))
        .reduce(|one, other| if other.bus_gbps > one.bus_gbps { other } else { one });
    ring.and_then(|load| all_reduce(Algorithm::Ring, load)).into_iter().chain(tree).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::load::LoadFlow;
    use model::placement::Pair;
    use model::status::Verified;
    use model::units::Bytes;

    fn pattern(pattern: Pattern, flows: &[(u32, u32)], each: f64) -> LoadPattern {
        let flow = |&(source, destination): &(u32, u32)| LoadFlow {
            achieved_gbps: Some(GbPerSecond(each)),
            ..LoadFlow::of(Pair { source, destination }.into())
        };
        let flows: Vec<LoadFlow> = flows.iter().map(flow).collect();
        let sum = flows.iter().filter_map(|flow| flow.achieved_gbps).map(|rate| rate.0).sum();
        LoadPattern {
            achieved_gbps: Some(GbPerSecond(sum)),
            samples: 3,
            verified: Verified::Ok,
            ..LoadPattern::blank(pattern, String::new(), flows, Bytes(1 << 30))
        }
    }

    const RING: [(u32, u32); 4] = [(0, 1), (1, 2), (2, 3), (3, 0)];
    const BOTH_WAYS: [(u32, u32); 8] =
        [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0), (2, 1), (3, 2), (0, 3)];

    fn tree(both_ways: f64) -> (String, f64) {
        let measurements = Measurements {
            load: vec![
                pattern(Pattern::Ring, &RING, 388.0),
                pattern(Pattern::RingBothWays, &BOTH_WAYS, both_ways),
            ],
            ..Measurements::default()
        };
        let [ring, tree] = &of(&measurements)[..] else { panic!("two algorithms") };
        assert_eq!((ring.algorithm, ring.bus_gbps.0), (Algorithm::Ring, 388.0));
        assert_eq!(tree.algorithm, Algorithm::Tree);
        (tree.pattern.clone(), tree.bus_gbps.0)
    }

    #[test]
    fn what_kernels_reached_counts_as_collectives_copy_by_kernels() {
        // As on 4 x H100: NCCL reached 360 GB/s with 2 GiB and 365 with 8.
        let measurements = Measurements {
            load: vec![
                pattern(Pattern::Ring, &RING, 389.0),
                pattern(Pattern::RingByKernels, &RING, 363.5),
                pattern(Pattern::RingBothWays, &BOTH_WAYS, 190.0),
                pattern(Pattern::RingBothWaysByKernels, &BOTH_WAYS, 180.0),
            ],
            ..Measurements::default()
        };
        let found = of(&measurements);
        let found: Vec<_> =
            found.iter().map(|one| (one.pattern.as_str(), one.bus_gbps.0)).collect();
        assert_eq!(found, [("ring by kernels", 363.5), ("ring by kernels", 272.625)]);
    }

    #[test]
    fn copies_that_meet_do_not_bound_a_tree_below_a_ring() {
        // As on 4 x H200: 99 GB/s each, both ways.
        assert_eq!(tree(99.0), ("ring".to_owned(), 291.0));
        // Where sending both ways carries more, that counts.
        assert_eq!(tree(200.0), ("ring, both ways".to_owned(), 300.0));
    }
}
