//! # What it means
//!
//! Some GPUs share a hop above their slots that no file shows. It carries what one of them gets alone. It is no
//! fault.
//!
//! # What to do
//!
//! Nothing to repair. Spread work over GPUs of separate hops.
//!
//! # How it is detected
//!
//! Several flows at once are slower than each alone. A limit that exactly these GPUs share explains it, and no link
//! of the PCI tree (hidden in a virtual machine) is this hop. A limit of all GPUs of a NUMA node or root complex is
//! the processor's (`host-memory-saturates`).
//!
//! # Sources
//!
//! Max-min fair shares: Bertsekas and Gallager, Data Networks, 6.5.2.

use super::prelude::*;
use explain::Effect;

rule! {
    "hidden-hop-shared", Info, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let by_design = evidence.explanation().causes.iter().filter(|cause| cause.by_design);
    by_design.filter_map(|cause| finding(evidence, cause)).collect()
}

fn finding(evidence: &Evidence<'_>, cause: &explain::Cause) -> Option<Finding> {
    let gpus = cause.hidden_below()?;
    let Effect::Capacity(gbps) = cause.effect else {
        return None;
    };
    if is_of_processor(evidence, &gpus) {
        return None;
    }
    let names = evidence.named(&gpus);
    let gbps = GbPerSecond(gbps);
    let message = format!("{names} share a hidden hop: {gbps} GB/s together, as much as one alone");
    let steps = [Step::Nothing(Fine::Always), Step::SpreadGpus];
    let mut found = RULE.on_gpus(&gpus, message, steps).fact("together_at_most", gbps);
    found.scope.rate = Some(gbps);
    Some(found)
}

/// Returns true if these are all GPUs of a NUMA node, of a root complex, or of the machine: what they share is no riddle.
fn is_of_processor(evidence: &Evidence<'_>, gpus: &[u32]) -> bool {
    let mut below: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    let all: Vec<u32> = evidence.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    for gpu in &all {
        for node in evidence.topology.way_up(NodeId::Gpu(*gpu)) {
            if matches!(node, NodeId::HostBridge(..) | NodeId::Numa(_)) {
                below.entry(node).or_default().push(*gpu);
            }
        }
    }
    let mut groups = below.into_values().chain([all]);
    groups.any(|group| group == gpus)
}
