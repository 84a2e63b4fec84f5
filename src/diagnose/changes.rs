//! Places of the changes by which the figures of a run are explained.

use std::collections::BTreeSet;

use super::evidence::Evidence;
use explain::{Cause, Part};
use model::cell::FigureKey;
use model::node::NodeId;

/// Returns the GPUs that a part belongs to, none if it belongs to all alike.
pub(crate) fn gpus_of(evidence: &Evidence<'_>, part: Part) -> Vec<u32> {
    let below = |node: NodeId| {
        let gpus = evidence.snapshot.gpus.iter().map(|gpu| gpu.index);
        let passes = |gpu: &u32| evidence.topology.way_up(NodeId::Gpu(*gpu)).contains(&node);
        gpus.filter(passes).collect()
    };
    match part {
        Part::Gpu(gpu)
        | Part::NvPort(gpu)
        | Part::Host(gpu)
        | Part::Local(gpu)
        | Part::Stage(gpu)
        | Part::Exit(gpu)
        | Part::Link(NodeId::Gpu(gpu)) => vec![gpu],
        Part::NvPair(one, other) | Part::Pair(one, other) | Part::StagedPair(one, other) => {
            vec![one, other]
        }
        Part::Link(node) => below(node),
        Part::Memory(node) => below(NodeId::Numa(node)),
        Part::Interconnect(..) | Part::Machine | Part::Class(_) => Vec::new(),
    }
}

/// Returns the figures that changes of the machine explain, all of them elsewhere than these GPUs and their links.
pub(crate) fn explained_elsewhere(evidence: &Evidence<'_>, gpus: &[u32]) -> BTreeSet<FigureKey> {
    let causes = evidence.explanation().causes.iter();
    let others = causes.filter(|cause| is_elsewhere(evidence, cause, gpus));
    let figures = others.flat_map(|cause| &cause.explains);
    figures.map(|figure| figure.key.clone()).collect()
}

/// Returns true if a change has a place in the machine, and neither it nor a suspect is of these GPUs.
pub(crate) fn is_elsewhere(evidence: &Evidence<'_>, cause: &Cause, gpus: &[u32]) -> bool {
    let is_placed = |part: &Part| {
        matches!(part, Part::Interconnect(..)) || !gpus_of(evidence, *part).is_empty()
    };
    let is_of_these = |part: &Part| gpus_of(evidence, *part).iter().any(|gpu| gpus.contains(gpu));
    let mut suspects = cause.suspects.iter().flat_map(|suspect| &suspect.parts);
    cause.parts.iter().all(|part| is_placed(part) && !is_of_these(part))
        && !suspects.any(is_of_these)
}
