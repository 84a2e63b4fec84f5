//! The things that pairs can have in common: GPUs, and links that belong to no single GPU.

use std::collections::{BTreeMap, BTreeSet};

use super::group::Common;
use model::node::NodeId;
use model::placement::Pair;
use model::topology::Topology;
use topology::is_inside_switch;

/// Something that pairs can have in common, with every checked pair that has it.
pub(super) struct Candidate {
    pub common: Common,
    pub members: BTreeSet<Pair>,
    /// True if the members are those of one direction only: into, out of, or along a link.
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
    let mut links: BTreeMap<(NodeId, NodeId), BTreeSet<Pair>> = BTreeMap::new();
    for &pair in seen {
        for link in links_between(topology, pair) {
            links.entry(link).or_default().insert(pair);
        }
    }
    for (&(from, to), members) in &links {
        if let Some(back) = links.get(&(to, from)).filter(|_| from < to) {
            let members = members.union(back).copied().collect();
            let common = Common::Links(vec![(from, to)]);
            candidates.push(Candidate { common, members, one_way: false });
        }
    }
    for (link, members) in links {
        candidates.push(Candidate { common: Common::Links(vec![link]), members, one_way: true });
    }
    if gpus > 2 {
        candidates.push(Candidate {
            common: Common::Everything,
            members: seen.clone(),
            one_way: false,
        });
    }
    candidates
}

/// Returns the links of a pair's route that belong to no single GPU, those that touch no GPU, in the direction in which
/// the pair passes them.
fn links_between(topology: &Topology, pair: Pair) -> Vec<(NodeId, NodeId)> {
    let Some(route) = topology.route(pair) else {
        return Vec::new();
    };
    let hops = route
        .hops
        .iter()
        .filter(|hop| !hop.from.is_gpu() && !hop.to.is_gpu() && !is_inside_switch(hop));
    hops.map(|hop| (hop.from, hop.to)).collect()
}
