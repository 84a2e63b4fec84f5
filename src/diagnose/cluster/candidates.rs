//! What pairs can have in common: GPUs, and links that are nobody's own.

use std::collections::{BTreeMap, BTreeSet};

use super::group::Common;
use crate::model::node::NodeId;
use crate::model::placement::Pair;
use crate::model::topology::Topology;
use crate::topology::is_inside_switch;

/// Something that pairs can have in common, with every pair that was looked at and has it.
pub struct Candidate {
    /// What it is.
    pub common: Common,
    /// The pairs.
    pub members: BTreeSet<Pair>,
    /// Whether the members are those of one direction only: into, out of, or along a link.
    pub one_way: bool,
}

/// Everything that pairs can have in common, what is smaller first: of two that explain the same the
/// first is taken.
pub fn candidates(seen: &BTreeSet<Pair>, topology: &Topology) -> Vec<Candidate> {
    let gpus: BTreeSet<u32> = seen.iter().flat_map(|pair| [pair.source, pair.destination]).collect();
    let of = |wanted: &dyn Fn(&Pair) -> bool| -> BTreeSet<Pair> { seen.iter().copied().filter(wanted).collect() };
    let mut candidates = Vec::new();
    for &gpu in &gpus {
        let common = || Common::Gpu(gpu);
        let members = of(&|pair| pair.touches(gpu));
        candidates.push(Candidate { common: common(), members, one_way: false });
        for members in [of(&|pair| pair.source == gpu), of(&|pair| pair.destination == gpu)] {
            candidates.push(Candidate { common: common(), members, one_way: true });
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
    if gpus.len() > 2 {
        candidates.push(Candidate { common: Common::Everything, members: seen.clone(), one_way: false });
    }
    candidates
}

/// The links of a pair's route that are nobody's own, those that touch no GPU, as the pair passes
/// them.
fn links_between(topology: &Topology, pair: Pair) -> Vec<(NodeId, NodeId)> {
    let Some(route) = topology.route(pair) else { return Vec::new() };
    let hops = route.hops.iter().filter(|hop| !hop.from.is_gpu() && !hop.to.is_gpu() && !is_inside_switch(hop));
    hops.map(|hop| (hop.from, hop.to)).collect()
}
