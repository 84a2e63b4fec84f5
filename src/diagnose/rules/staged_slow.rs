//! # What it means
//!
//! Copies through the host's memory are far slower than the PCIe links of the two GPUs allow, or than those of other
//! pairs with the same path to the host.
//!
//! # How it is detected
//!
//! The staged reference figure (copy engine, issued by the source, one way, side streams, peer access off) lies below
//! what healthy machines reach by more than the margin of the class `staged`. Healthy machines reach a share of the
//! payload rate of the narrowest PCIe link between the GPUs and the host. This share is known from one kind of machine,
//! so the margin is wide. Share and margin may be set with `--config` (`[expected.staged]`).
//!
//! In addition, similar pairs are compared, if there are three or more. Similar pairs have the same payload rate and
//! the same NUMA nodes of source and destination, and either all or none of them share a switch. Their normal rate is
//! the median of those that are not slow themselves. The rule reports a pair that lies below normal by more than
//! `below_median_percent`, and by more than its spread and theirs. It also reports a GPU if all of its pairs in one
//! direction do. Several slow pairs that share one GPU are one finding.
//!
//! If copies between the host and these GPUs were measured (`measurements.host`), the message states which leg of the
//! path is slow, or that both are sound and the part between them is slow.
//!
//! # Why it matters
//!
//! Pairs without peer access have no other path. The cause also slows loading and saving of data.
//!
//! # What to do
//!
//! Look at the PCIe findings of the same GPUs first. If one GPU is slow and its siblings are not, look at its slot,
//! riser or cable. If all are slow, look at the host: every memory channel should be fitted, and no other work should
//! take the memory's bandwidth. With several NUMA nodes, the program should run on that of the GPUs (`numactl`). In a
//! virtual machine, ask if its memory and processors are pinned to the NUMA nodes of the GPUs.
//!
//! # Sources
//!
//! Measured on 8 x H200 (a virtual machine): 35 to 38 of 63 GB/s, all pairs within 5% of each other. A
//! forum user on a x4 slot reached 6.1 to 8.6 GB/s.

use super::alike::{self, Margins};
use super::bandwidth::{self, Compared, Slow};
use super::host;
use super::legs;
use super::prelude::*;
use model::node::NodeId;
use model::topology::{Hop, Topology};

const BELOW: Parameter = Parameter {
    name: "below_median_percent",
    default: 30.0,
    about: "how far below the median of comparable staged pairs a pair may be; 5 was measured on H200, and the \
        host's memory has more part in it than the link: chosen wide",
};

pub(crate) const RULE: Rule = Rule::new(
    "staged-slow",
    Severity::Warning,
    include_str!("staged_slow.rs"),
    judge,
)
.with(&[BELOW]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let slow = bandwidth::below_floor(evidence, Path::Staged);
    let below = below_siblings(evidence, &slow);
    let bad: Vec<_> = slow
        .iter()
        .map(|slow| slow.cell.pair)
        .chain(below.iter().map(|below| below.pair))
        .collect();
    // The usual case.
    if bad.is_empty() {
        return Vec::new();
    }
    let seen: Vec<_> = bandwidth::sound(evidence, Path::Staged)
        .into_keys()
        .collect();
    let groups = cluster::groups(&words::unique(bad), &seen, &staged_routes(evidence));
    let finding =
        |group| too_slow(evidence, group, &slow).or_else(|| slower(evidence, group, &below));
    groups.iter().filter_map(finding).collect()
}

/// Returns the topology with the routes of staged copies in place of the direct ones: up to the memory of the source's
/// NUMA node and down from that of the destination's. Pairs are grouped by what these routes share.
fn staged_routes(evidence: &Evidence<'_>) -> Topology {
    let gpus: BTreeSet<u32> = evidence
        .topology
        .pairs
        .iter()
        .map(|route| route.pair.source)
        .collect();
    let ways = gpus
        .into_iter()
        .map(|gpu| (gpu, evidence.topology.way_up(NodeId::Gpu(gpu))));
    let ways: BTreeMap<u32, Vec<NodeId>> = ways.collect();
    let way = |gpu| {
        ways.get(&gpu)
            .cloned()
            .unwrap_or_else(|| evidence.topology.way_up(NodeId::Gpu(gpu)))
    };
    let hop = |(from, to): (&NodeId, &NodeId)| Hop {
        from: *from,
        to: *to,
        label: String::new(),
        capacity_gbps: None,
    };
    let routes = evidence.topology.pairs.iter().map(|route| {
        let (up, down) = (way(route.pair.source), way(route.pair.destination));
        let down: Vec<NodeId> = down.into_iter().rev().collect();
        let hops = [&up, &down]
            .into_iter()
            .flat_map(|way| way.iter().zip(way.iter().skip(1)).map(hop));
        PairRoute {
            hops: hops.collect(),
            ..route.clone()
        }
    });
    Topology {
        pairs: routes.collect(),
        ..Topology::default()
    }
}

/// Returns true if both GPUs' paths to the host pass the same switch or port: the bytes pass it up and down.
fn share_a_link(evidence: &Evidence<'_>, pair: Pair) -> bool {
    let way = |gpu| evidence.topology.way_up(NodeId::Gpu(gpu));
    let down = way(pair.destination);
    way(pair.source)
        .iter()
        .any(|id| matches!(id, NodeId::Pci(_)) && down.contains(id))
}

/// Returns pairs above their floor that lie clearly below other pairs with the same path to the host.
fn below_siblings(evidence: &Evidence<'_>, slow: &[Slow<'_>]) -> Vec<Compared> {
    let mut alike: BTreeMap<_, Vec<&PeerBandwidth>> = BTreeMap::new();
    for (pair, cell) in bandwidth::sound(evidence, Path::Staged) {
        let rate = evidence
            .topology
            .route(pair)
            .and_then(|route| route.staged_theoretical_gbps);
        let node = |gpu| {
            evidence
                .topology
                .way_up(NodeId::Gpu(gpu))
                .last()
                .filter(|id| !id.is_gpu())
                .copied()
        };
        if let Some(rate) = rate {
            let like = (
                rate.0.to_bits(),
                node(pair.source),
                node(pair.destination),
                share_a_link(evidence, pair),
            );
            alike.entry(like).or_default().push(cell);
        }
    }
    let reported = slow.iter().map(|slow| slow.cell.pair).collect();
    let margin = RULE.parameter(evidence, &BELOW);
    let below = alike::below(
        alike,
        &reported,
        Margins {
            pair: margin,
            gpu: margin,
        },
    );
    below.into_iter().map(|(compared, _)| compared).collect()
}

fn slower(evidence: &Evidence<'_>, group: &cluster::Group, below: &[Compared]) -> Option<Finding> {
    let worst = bandwidth::lowest(below, group)?;
    let mut found = RULE
        .finding(
            group.subject(),
            format!(
                "Copies {} through the host's memory reach {} GB/s, {:.0}% less than the {} GB/s of other pairs with \
                 the same way to the host{}",
                group.place(evidence.snapshot),
                worst.achieved,
                worst.below_percent(),
                worst.normal,
                legs::told(evidence, &group.pairs),
            ),
            if matches!(group.common, cluster::Common::Links(_)) {
                too_slow_plan(evidence, group)
            } else {
                let gpus = || OneOf(group.gpus());
                Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain]).if_it_stays([
                    Step::PcieErrorsOf(gpus()),
                    Step::Reseat(Part::GpuAndRiser(gpus())),
                    Step::Swap(Part::Gpu(gpus())),
                ])
            },
        )
        .fact("lowest_achieved", worst.achieved)
        .fact("median", worst.normal)
        .fact("below_median", Fact::percent(worst.below_percent()))
        .pairs(&group.pairs);
    found.suspects = suspected(evidence, group);
    if !matches!(group.common, cluster::Common::Links(_)) {
        found.suspects.push(suspects::own_way(&group.gpus()));
    }
    Some(found)
}

/// Returns the steps. They depend on two facts: if one GPU is part of all slow pairs, and if the host has several
/// nodes.
fn too_slow_plan(evidence: &Evidence<'_>, group: &cluster::Group) -> Plan {
    let own = match group.subject() {
        _ if matches!(group.common, cluster::Common::Links(_)) => {
            vec![Step::SharedUplink, Step::CheckAloneThenAll]
        }
        Subject::Gpu { index } => vec![
            Step::OtherFindings(all(&[index])),
            Step::Reseat(Part::GpuAndRiser(gpu(index))),
            Step::Swap(Part::Gpu(gpu(index))),
        ],
        _ => vec![Step::MemoryModules],
    };
    let node = host::has_several_nodes(evidence).then_some(Step::NumaBind);
    Plan::now(own)
        .and(When::Now, node)
        .and(When::Now, [Step::Stop(Work::OnMachine), Step::CheckAgain])
}

fn too_slow(evidence: &Evidence<'_>, group: &cluster::Group, slow: &[Slow<'_>]) -> Option<Finding> {
    let worst = bandwidth::slowest(slow, group)?;
    let mut found = RULE
        .finding(
            group.subject(),
            format!(
                "Copies {} through the host's memory reach only {} GB/s, {:.0}% of the {} GB/s that healthy machines \
             reach there ({} GB/s and more is normal){}",
                group.place(evidence.snapshot),
                worst.achieved,
                worst.percent(),
                worst.expected.gbps,
                worst.expected.floor_gbps(),
                legs::told(evidence, &group.pairs),
            ),
            too_slow_plan(evidence, group),
        )
        .fact("lowest_achieved", worst.achieved)
        .fact("expected", worst.expected.gbps)
        .fact("percent_of_expected", Fact::figure(worst.percent()))
        .fact("floor", worst.expected.floor_gbps())
        .fact("expected_from", worst.expected.class.source)
        .pairs(&group.pairs);
    found.suspects = suspected(evidence, group);
    Some(found)
}

fn suspected(evidence: &Evidence<'_>, group: &cluster::Group) -> Vec<Suspect> {
    let uplink = matches!(group.common, cluster::Common::Links(_))
        .then(|| suspect(Cause::SharedUplink, [Step::CheckAloneThenAll]));
    uplink
        .into_iter()
        .chain(suspects::of_staged_copies(evidence, &group.pairs))
        .collect()
}
