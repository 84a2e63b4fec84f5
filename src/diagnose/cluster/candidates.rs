//! The things that pairs can have in common: GPUs, and the way between two NUMA nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::group::Common;
use model::node::NodeId;
use model::placement::Pair;
use model::topology::Topology;

/// Something that pairs can have in common, with every checked pair that has it.
pub(super) struct Candidate {
    pub common: Common,
    pub members: BTreeSet<Pair>,
    /// True if the members are those of one direction only: into or out of a GPU.
    pub one_way: bool,
}

/// Returns everything that pairs can have in common, smaller candidates first: of two that explain the same the first
/// is taken.
pub(super) fn candidates(seen: &BTreeSet<Pair>, topology: &Topology) -> Vec<Candidate> {
    // For each GPU: both directions, pairs that leave it, pairs that reach it.
    let mut of_gpus: BTreeMap<u32, [BTreeSet<Pair>; 3]> = BTreeMap::new();
    for &pair in seen {
        for (gpu, way) in [(pair.source, 1), (pair.destination, 2)] {
            let members = of_gpus.entry(gpu).or_default();
            members[0].insert(pair);
            members[way].insert(pair);
        }
    }
    let gpus = of_gpus.len();
    let mut candidates = Vec::new();
    for (gpu, members) in of_gpus {
        for (members, one_way) in members.into_iter().zip([false, true, true]) {
            candidates.push(Candidate { common: Common::Gpu(gpu), members, one_way });
        }
    }
    let mut crossings: BTreeMap<[NodeId; 2], BTreeSet<Pair>> = BTreeMap::new();
    for &pair in seen {
        if let Some(ends) = crossing(topology, pair) {
            crossings.entry(ends).or_default().insert(pair);
        }
    }
    candidates.extend(crossings.into_iter().map(|(ends, members)| Candidate {
        common: Common::Link(ends),
        members,
        one_way: false,
    }));
    if gpus > 2 {
        candidates.push(Candidate {
            common: Common::Everything,
            members: seen.clone(),
            one_way: false,
        });
    }
    candidates
}

/// Returns the NUMA nodes between which a pair's copies pass, the lower first.
fn crossing(topology: &Topology, pair: Pair) -> Option<[NodeId; 2]> {
    let mut hops = topology.route(pair)?.hops.iter();
    let hop = hops.find(|hop| matches!((hop.from, hop.to), (NodeId::Numa(_), NodeId::Numa(_))))?;
    Some([hop.from.min(hop.to), hop.from.max(hop.to)])
}
