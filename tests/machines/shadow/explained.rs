//! Explains a saved report with the floors of the rules.

use std::collections::BTreeMap;

use diagnose::{expected, expected_host};
use explain::{Explanation, Floors, Part, explain};
use model::host::HostCopy;
use model::measurement::PeerBandwidth;
use model::node::NodeId;
use model::report::Report;

/// The floors of the rules, without settings of a user.
struct OfRules<'a>(&'a Report);

impl Floors for OfRules<'_> {
    fn peer(&self, cell: &PeerBandwidth) -> Option<f64> {
        let Report { topology, snapshot, .. } = self.0;
        floor(expected::of(cell, topology, snapshot, &BTreeMap::new())?.share)
    }

    fn host(&self, copy: &HostCopy) -> Option<f64> {
        floor(expected_host::of(copy, &self.0.snapshot, &BTreeMap::new())?.share)
    }
}

fn floor(share: expected::Share) -> Option<f64> {
    Some(share.percent / 100.0 * (1.0 - share.margin_percent / 100.0))
}

/// Explains the figures of a report.
pub(crate) fn explained(report: &Report, budget: u64) -> Option<Explanation> {
    let measurements = report.measurements.as_ref()?;
    let (snapshot, topology) = (&report.snapshot, &report.topology);
    Some(explain(snapshot, topology, measurements, &OfRules(report), budget))
}

/// Returns the GPUs that a part belongs to.
pub(crate) fn gpus_of(part: Part, report: &Report) -> Vec<u32> {
    match part {
        Part::Link(NodeId::Gpu(gpu))
        | Part::NvPort(gpu)
        | Part::Gpu(gpu)
        | Part::Host(gpu)
        | Part::Local(gpu)
        | Part::Stage(gpu)
        | Part::Exit(gpu) => vec![gpu],
        Part::NvPair(one, other) | Part::Pair(one, other) | Part::StagedPair(one, other) => {
            vec![one, other]
        }
        Part::Link(node) => above(node, report),
        Part::Memory(node) => above(NodeId::Numa(node), report),
        Part::Interconnect(..) | Part::Machine | Part::Class(_) => Vec::new(),
    }
}

/// Returns the GPUs whose way to the root passes this node.
fn above(node: NodeId, report: &Report) -> Vec<u32> {
    let gpus = report.snapshot.gpus.iter().map(|gpu| gpu.index);
    let below = |gpu: &u32| report.topology.way_up(NodeId::Gpu(*gpu)).contains(&node);
    gpus.filter(below).collect()
}
