//! Second looks: copies with the memory of other nodes that were not measured, of a GPU whose copies with the host are slow.

use model::cell::FigureKey;
use std::collections::BTreeSet;

use model::flow::{Flow, HostMemory};
use model::node::NodeId;

use super::Cause;
use super::item::{Item, Mode};
use super::problem::Problem;
use super::resource::{Part, Way};

/// Most looks of a run. A budget: each takes as long as one host copy of the plan.
const MOST_LOOKS: usize = 8;

/// Returns what is worth a second look, that of the change that explains most first.
pub(crate) fn looks(problem: &Problem<'_>, causes: &[Cause]) -> Vec<Flow> {
    let mut faults: Vec<&Cause> = causes.iter().filter(|cause| !cause.by_design).collect();
    faults.sort_by(|one, other| other.gain_bits.total_cmp(&one.gain_bits));
    let mut looks: Vec<Flow> = Vec::new();
    for look in faults.into_iter().flat_map(|cause| of_other_nodes(problem, cause)) {
        if !looks.contains(&look) {
            looks.push(look);
        }
    }
    looks.truncate(MOST_LOOKS);
    looks
}

/// Returns copies of a GPU whose copies with the host are slow with the memory of other nodes than the stated one: that
/// memory, or a node that is stated wrongly, would explain them, too.
fn of_other_nodes(problem: &Problem<'_>, cause: &Cause) -> Vec<Flow> {
    let nodes = problem.state.topology.nodes.iter();
    let nodes: BTreeSet<u32> = nodes
        .filter_map(|node| match node.id {
            NodeId::Numa(node) => node,
            _ => None,
        })
        .collect();
    let slow: BTreeSet<&FigureKey> = cause.explains.iter().map(|one| &one.key).collect();
    let items = problem.observations.iter().flat_map(|one| &one.items);
    let with_host: Vec<(u32, &Item)> = items
        .filter(|item| item.mode == Mode::Host)
        .filter_map(|item| Some((gpu_of(problem, item)?, item)))
        .collect();
    let slow = with_host.iter().filter(|(_, item)| slow.contains(&item.key));
    let slow: BTreeSet<u32> = slow.map(|(gpu, _)| *gpu).collect();
    // The other direction of one GPU is worth less than another GPU.
    let both = slow.len() == 1;
    let stated = slow.into_iter().filter_map(|gpu| Some((gpu, problem.state.node(gpu)?)));
    let is_measured = |gpu: u32, node: u32| {
        let memory = [Way::Up, Way::Down]
            .into_iter()
            .filter_map(|way| problem.resources.known(Part::Memory(Some(node)), way));
        let memory: Vec<usize> = memory.collect();
        with_host.iter().any(|(of, item)| {
            *of == gpu && memory.iter().any(|number| item.passes.contains(number))
        })
    };
    let mut looks = Vec::new();
    for (gpu, stated) in stated {
        for node in &nodes {
            if *node == stated || is_measured(gpu, *node) {
                continue;
            }
            let down = Flow::from_host(Some(*node), HostMemory::Pinned, gpu);
            looks.push(down);
            looks.extend(both.then(|| down.reversed()));
        }
    }
    looks
}

/// Returns the GPU of a copy with the host.
fn gpu_of(problem: &Problem<'_>, item: &Item) -> Option<u32> {
    let passed = item.passes.iter();
    passed.filter_map(|number| problem.resources.get(*number)).find_map(|resource| {
        match resource.part {
            Part::Host(gpu) => Some(gpu),
            _ => None,
        }
    })
}
