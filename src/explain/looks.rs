//! Second looks: copies with the host that were not measured, and for which explanations of the same figures predict
//! different rates.

use model::cell::FigureKey;
use std::collections::BTreeSet;

use model::flow::{Flow, HostMemory};
use model::node::NodeId;

use super::distinguish::Test;
use super::item::{Item, Mode};
use super::problem::Problem;
use super::resource::{Part, Way};
use super::{Cause, Suspect};

/// Most looks of a run. A budget: each takes as long as one host copy of the plan.
const MOST_LOOKS: usize = 8;

/// Most GPUs that are copied to together with the first of those that seem to share a hop.
const MOST_BESIDE_ONE: usize = 3;

/// Copies that would tell explanations of the same figures apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// One flow alone, or several at once.
    pub flows: Vec<Flow>,
    /// The explanations that predict different rates.
    pub between: [String; 2],
}

/// Returns what is worth a second look, that of the change that explains most first.
pub(crate) fn looks(problem: &Problem<'_>, causes: &[Cause]) -> Vec<Look> {
    let mut faults: Vec<&Cause> = causes.iter().filter(|cause| !cause.by_design).collect();
    faults.sort_by(|one, other| other.gain_bits.total_cmp(&one.gain_bits));
    let mut looks: Vec<Look> = Vec::new();
    for cause in faults {
        let of_suspects = cause.suspects.iter();
        let all = of_suspects
            .filter_map(|suspect| of_suspect(cause, suspect))
            .chain(of_hidden_hop(problem, cause))
            .chain(of_other_nodes(problem, cause));
        for look in all {
            if !looks.iter().any(|known| known.flows == look.flows) {
                looks.push(look);
            }
        }
    }
    looks.truncate(MOST_LOOKS);
    looks
}

/// Returns the copies of the test that tells a suspect from the change, if they are copies with the host.
fn of_suspect(cause: &Cause, suspect: &Suspect) -> Option<Look> {
    let flows = match suspect.test {
        Test::Copy(flow) => vec![flow],
        Test::AtOnce(flows) => flows.to_vec(),
        Test::Exchange => return None,
    };
    let is_with_host = flows.iter().all(|flow| flow.with_host().is_some());
    is_with_host.then(|| Look { flows, between: [words(&cause.parts), words(&suspect.parts)] })
}

/// Returns copies of two GPUs at once, if they seem to share a hop that no file shows: links of their own that are equally
/// slow carry twice as much together. Copies of all GPUs at once do not show that where the memory of the host is the limit.
fn of_hidden_hop(problem: &Problem<'_>, cause: &Cause) -> Vec<Look> {
    let gpus = cause.hidden_below().unwrap_or_default();
    let Some((first, others)) = gpus.split_first() else {
        return Vec::new();
    };
    let down = |gpu: u32| Flow::from_host(problem.state.node(gpu), HostMemory::Pinned, gpu);
    let look = |other: &u32| Look {
        flows: vec![down(*first), down(*other)],
        between: [
            words(&cause.parts),
            format!("links of GPU {first} and GPU {other} that are equally slow"),
        ],
    };
    others.iter().take(MOST_BESIDE_ONE).map(look).collect()
}

/// Returns copies of a GPU whose copies with the host are slow with the memory of other nodes than the stated one: that
/// memory, or a node that is stated wrongly, would explain them, too.
fn of_other_nodes(problem: &Problem<'_>, cause: &Cause) -> Vec<Look> {
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
            let back = both.then(|| down.reversed());
            looks.extend([down].into_iter().chain(back).map(|flow| Look {
                flows: vec![flow],
                between: [
                    words(&cause.parts),
                    format!("NUMA node {stated}: its memory, or GPU {gpu} is near another one"),
                ],
            }));
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

fn words(parts: &[Part]) -> String {
    let words: Vec<String> = parts.iter().map(ToString::to_string).collect();
    words.join(" + ")
}
