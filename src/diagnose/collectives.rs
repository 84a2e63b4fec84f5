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
use model::snapshot::{Gpu, NvLink, Snapshot};
use model::topology::Topology;
use model::units::GbPerSecond;

/// Returns both algorithms, from the ring, in which every GPU sends and receives. Empty if it was not measured.
pub fn of(measurements: &Measurements) -> Vec<AllReduce> {
    let pattern = |kind: Pattern| {
        measurements.load.iter().find(|load| load.pattern == kind && load.rate().is_some())
    };
    // NCCL copies by kernels.
    let ring = pattern(Pattern::RingByKernels).or_else(|| pattern(Pattern::Ring));
    let both = [Algorithm::Ring, Algorithm::Tree].into_iter();
    both.filter_map(|algorithm| all_reduce(algorithm, ring?)).collect()
}

/// Fewest GPUs with which NVSwitches that sum show more than a ring. Chosen: with two or three it saves little traffic.
const FEWEST: usize = 4;

/// Returns true if NCCL may let NVSwitches sum (NVLS): those of Hopper and later can, whose NVLinks have version 4 or more.
pub(super) fn switches_sum(snapshot: &Snapshot, topology: &Topology) -> bool {
    let version = |link: &NvLink| link.version.known()?.split('.').next()?.parse().ok();
    let is_new = |gpu: &Gpu| {
        let links = gpu.nvlinks.known().into_iter().flatten();
        links.filter_map(version).any(|version: u8| version >= 4)
    };
    snapshot.gpus.len() >= FEWEST
        && snapshot.gpus.iter().all(is_new)
        && topology.pairs.iter().all(topology::passes_nvswitch)
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
        in_switches: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::load::LoadFlow;
    use model::placement::Pair;
    use model::reading::Reading;
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

    #[test]
    fn switches_of_hopper_can_sum_and_those_of_ampere_cannot() {
        let sums = |machine: &Snapshot| switches_sum(machine, &topology::build(machine));
        let mut machine = model::testing::h200_vm(4);
        assert!(sums(&machine) && !sums(&model::testing::h200_vm(2)));
        if let Some(links) = machine.gpus[0].nvlinks.known().cloned() {
            let older = |link| NvLink { version: Reading::Known("3.0".into()), ..link };
            machine.gpus[0].nvlinks = Reading::Known(links.into_iter().map(older).collect());
        }
        assert!(!sums(&machine) && !sums(&model::testing::two_sockets()));
    }

    #[test]
    fn what_kernels_reached_counts_as_collectives_copy_by_kernels() {
        // As on 4 x H100: NCCL reached 360 GB/s with 2 GiB and 365 with 8.
        let load = vec![
            pattern(Pattern::Ring, &RING, 389.0),
            pattern(Pattern::RingByKernels, &RING, 363.5),
        ];
        let found = of(&Measurements { load, ..Measurements::default() });
        let found: Vec<_> =
            found.iter().map(|one| (one.pattern.as_str(), one.bus_gbps.0)).collect();
        assert_eq!(found, [("ring by kernels", 363.5), ("ring by kernels", 272.625)]);
    }
}
