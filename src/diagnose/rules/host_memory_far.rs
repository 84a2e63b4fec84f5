//! # What it means
//!
//! A GPU copies slower with another NUMA node's memory than with its own. A program on the other socket gets that
//! rate.
//!
//! # What to do
//!
//! Start the program of each GPU on its node: `numactl --cpunodebind=N --membind=N`, or `--cpu-bind` and `--mem-bind`
//! of Slurm. Data loaders pin memory (`pin_memory=True`) on the node that they run on.
//!
//! # How it is detected
//!
//! Copies of re-used page-locked memory by copy engine (profile full) lie below those of the GPU's own node, or its
//! best one, by more than `below_own_percent` and both spreads: information, and a warning if a node loses more than
//! `most_percent`.
//!
//! # Sources
//!
//! PCIe 5 between sockets: 39 to 51 of 63 GB/s; within one socket 53 to 56.6 (published).

use super::host::{self, Rated};
use super::prelude::*;

rule! {
    "host-memory-far", Info, One(judge);
    /// how far below its own node another may be; chosen above the 5 to 10 that repeats spread by (cuda-samples issue
    /// 449)
    BELOW: below_own_percent = 15.0;
    /// how far below is usual between sockets; chosen above the 38 that they are known to lose
    MOST: most_percent = 45.0;
}

/// A node that is slower than the GPU's own.
struct Far<'a> {
    own: Rated<'a>,
    far: Rated<'a>,
}

impl Far<'_> {
    fn below_percent(&self) -> f64 {
        self.far.below_percent(self.own.rate)
    }
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let margin = BELOW.of(evidence);
    let ways = host::ONE_WAY.into_iter();
    let mut far: Vec<Far<'_>> = ways.flat_map(|way| of(evidence, way)).collect();
    far.retain(|far| far.below_percent() > margin.max(far.own.spread() + far.far.spread()));
    // On a tie, take the first.
    let worst = words::largest(far.iter().rev(), |far| far.below_percent())?;
    let gpus: Vec<u32> = words::unique(far.iter().map(|far| far.own.copy.gpu));
    let node = |rated: &Rated<'_>| match rated.copy.numa_node {
        Some(node) => format!("node {node}"),
        None => "an unknown node".to_owned(),
    };
    let message = format!(
        "Copies {} reach {} GB/s with memory of NUMA {} and {} with that of {}, {:.0}% less",
        host::way_of(evidence, &[worst.own.copy.gpu], worst.own.copy.direction),
        worst.own.rate,
        node(&worst.own),
        worst.far.rate,
        node(&worst.far),
        worst.below_percent(),
    );
    let more = words::further("; the same in kind for ", gpus.len() - 1, "other GPU");
    let unusual = worst.below_percent() > MOST.of(evidence);
    Some(RULE.on_gpus(&gpus, message + &more, [Step::NumaBind]).at_if(unusual, Severity::Warning))
}

/// Returns each GPU's figures on other nodes than its own, each beside the figure of its own node.
fn of<'a>(evidence: &Evidence<'a>, direction: HostDirection) -> Vec<Far<'a>> {
    let rated = host::rated(evidence, HostWay::PINNED.with_direction(direction)).into_iter();
    let by_gpu = words::grouped(rated.map(|rated| (rated.copy.gpu, rated)));
    let mut far = Vec::new();
    for (gpu, rated) in by_gpu {
        let own_node = host::own_node(evidence, gpu);
        let is_own = |rated: &&Rated<'_>| own_node.is_some() && rated.copy.numa_node == own_node;
        let best = words::largest(&rated, |rated| rated.rate.0);
        let Some(own) = rated.iter().find(is_own).or(best).copied() else {
            continue;
        };
        let others = rated.iter().filter(|rated| rated.copy.numa_node != own.copy.numa_node);
        far.extend(others.map(|rated| Far { own, far: *rated }));
    }
    far
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::host::HostCopy;
    use model::testing::host_copy;

    /// Returns four GPUs on two nodes, with this rate towards the node that is not theirs.
    fn with_far(gbps: f64) -> (Snapshot, Measurements) {
        let machine = two_sockets();
        let mut measurements = with_host(&machine, &[]);
        for gpu in 0..4 {
            let node = |node| HostCopy { numa_node: Some(node), ..host_copy(gpu, 26.0) };
            let other = HostCopy { achieved_gbps: Some(GbPerSecond(gbps)), ..node(1 - gpu / 2) };
            measurements.host.extend([node(gpu / 2), other]);
        }
        (machine, measurements)
    }

    #[test]
    fn a_far_node_is_told_and_one_that_makes_no_difference_is_not() {
        let (machine, measurements) = with_far(25.0);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let (machine, measurements) = with_far(19.5);
        let found = findings(&machine, Some(&measurements));
        let may = ["nothing", "processor"];
        assert_advice(&RULE, &found, &["numa-bind"], &may);
        let found = only(&found, "host-memory-far", Severity::Info);
        assert_eq!(found.subject, Subject::Machine);
        assert!(
            found.message.contains("26.0 GB/s with memory of NUMA node 0"),
            "{}",
            found.message
        );
        let (machine, measurements) = with_far(9.0);
        let found = findings(&machine, Some(&measurements));
        only(&found, "host-memory-far", Severity::Warning);
        let may = ["processor", "firmware-setting", "nothing"];
        assert_advice(&RULE, &found, &["numa-bind"], &may);
    }
}
