//! # What it means
//!
//! Copies through the host's memory are far slower than the PCIe links of the two GPUs allow.
//!
//! # How it is detected
//!
//! The staged reference figure (copy engine, issued by the source, one way, side streams, peer
//! access off) lies below what healthy machines reach by more than the margin of the class `staged`:
//! a share of the payload rate of the narrowest PCIe link between the GPUs and the host. The share is
//! known from one kind of machine, so its margin is wide, and both may be set with `--config`
//! (`[expected.staged]`). Several slow pairs that share one GPU or one link are one finding.
//!
//! # Why it matters
//!
//! Pairs without peer access have no other path, and whatever slows it also slows loading and
//! saving of data.
//!
//! # What to do
//!
//! Look at the PCIe findings of the same GPUs first. Then at the host's memory: every channel fitted
//! with memory, the program on the NUMA node of the GPUs (`numactl`), no other work that takes its
//! bandwidth. In a virtual machine, ask whether its memory and processors are pinned to the NUMA
//! nodes of the GPUs.
//!
//! # Sources
//!
//! Measured on 8 x H200 (a virtual machine): 35 to 38 of 63 GB/s. A forum user on a x4 slot reached
//! 6.1 to 8.6 GB/s.

use super::bandwidth::{self, Slow};
use super::prelude::*;

/// The rule.
pub const RULE: Rule = Rule::new("staged-slow", Severity::Warning, include_str!("staged_slow.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let slow = bandwidth::below_floor(evidence, Path::Staged);
    let bad: Vec<_> = slow.iter().map(|slow| slow.cell.pair).collect();
    let seen: Vec<_> = bandwidth::sound(evidence, Path::Staged).into_keys().collect();
    // The routes of the topology are the direct ones: only a GPU can be common here.
    let without_links = crate::model::topology::Topology::default();
    let groups = cluster::groups(&bad, &seen, &without_links);
    groups.iter().filter_map(|group| finding(evidence, group, &slow)).collect()
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, slow: &[Slow<'_>]) -> Option<Finding> {
    let worst = bandwidth::slowest(slow, group)?;
    let mut found = RULE
        .finding(
            group.subject(),
            format!(
                "Copies {} through the host's memory reach only {} GB/s, {:.0}% of the {} GB/s that healthy machines \
             reach there ({} GB/s and more is normal)",
                group.place(evidence.snapshot),
                worst.achieved,
                worst.percent(),
                worst.expected.gbps,
                worst.expected.floor_gbps(),
            ),
            "See that every memory channel of the host is fitted (dmidecode -t memory), run on the NUMA node of the \
             GPUs (numactl), stop other work, and check again",
        )
        .fact("lowest_achieved", worst.achieved)
        .fact("expected", worst.expected.gbps)
        .fact("percent_of_expected", Fact::figure(worst.percent()))
        .fact("floor", worst.expected.floor_gbps())
        .fact("expected_from", worst.expected.class.source)
        .pairs(&group.pairs);
    let busy = suspects::busy(evidence, &group.pairs);
    if !busy.is_empty() {
        found.suspects.push(suspects::suspect("other work on these GPUs", "stop it and check again"));
    }
    found.suspects.push(if evidence.virtual_machine() {
        suspects::suspect(
            "the host spreads the virtual machine's memory over NUMA nodes, or shares it",
            "ask whoever runs the host whether processors and memory are pinned to the nodes of the GPUs",
        )
    } else {
        suspects::suspect(
            "memory of another NUMA node, or too few memory channels",
            "run the check under numactl --cpunodebind=N --membind=N for each node and compare",
        )
    });
    Some(found)
}
