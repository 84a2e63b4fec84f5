//! Many bad pairs are mostly one bad thing: finds the GPU or the link that they have in common, and
//! in which direction.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::words;
use crate::model::finding::Subject;
use crate::model::node::NodeId;
use crate::model::placement::Pair;
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;
use crate::topology::is_inside_switch;

/// Share of all pairs, per cent, that may be good where the whole machine is bad: pairs that just
/// make it. Chosen: 2 of the 56 pairs of 8 GPUs, none where there are 4 GPUs or fewer.
const GOOD_WHERE_ALL_ARE_BAD_PERCENT: usize = 5;

/// What a group of bad pairs has in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Common {
    /// Every pair of at least three GPUs is bad.
    Everything,
    /// One GPU.
    Gpu(u32),
    /// Links of the routes that all of them pass and no good pair does, by the ids of their ends,
    /// in the direction in which the bad pairs pass them. More than one where the pairs cannot tell
    /// them apart.
    Links(Vec<(NodeId, NodeId)>),
    /// Nothing: one pair by itself.
    OnePair,
}

/// Bad pairs with one likely cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub common: Common,
    /// The ordered pairs, as they were given.
    pub pairs: Vec<Pair>,
}

impl Group {
    /// What a finding on this group is about.
    pub fn subject(&self) -> Subject {
        match (&self.common, self.pairs.first()) {
            (Common::Gpu(index), _) => Subject::Gpu { index: *index },
            (Common::OnePair, Some(&pair)) => Subject::Pair(pair),
            (Common::Links(links), _) => match links.as_slice() {
                // Buses are numbered on the way down, so the higher address is the lower end.
                [(NodeId::Pci(from), NodeId::Pci(to))] => Subject::PcieLink { address: *from.max(to) },
                _ => Subject::Machine,
            },
            _ => Subject::Machine,
        }
    }

    /// The group for people: where the copies are that something is wrong with.
    pub fn place(&self, snapshot: &Snapshot) -> String {
        match &self.common {
            Common::Everything => format!("between all GPUs ({})", words::count(self.pairs.len(), "pair")),
            Common::Gpu(index) => {
                let gpu = words::gpu(snapshot, *index);
                let into = self.pairs.iter().filter(|pair| pair.destination == *index).count();
                let way = match into {
                    0 => "out of",
                    into if into == self.pairs.len() => "into",
                    _ => "into and out of",
                };
                format!("{way} {gpu} ({})", words::count(self.pairs.len(), "pair"))
            }
            Common::Links(links) => {
                let both = self.pairs.iter().any(|pair| self.pairs.contains(&pair.reversed()));
                let arrow = if both { "–" } else { "→" };
                let names: Vec<_> =
                    links.iter().map(|&(from, to)| format!("{} {arrow} {}", end(from), end(to))).collect();
                format!("over {} ({})", names.join(" or "), words::pairs(&self.pairs))
            }
            Common::OnePair => match self.pairs.as_slice() {
                [pair] => format!(
                    "from {} to {} (the other direction is fine or was not tested)",
                    words::gpu(snapshot, pair.source),
                    words::gpu(snapshot, pair.destination)
                ),
                [pair, ..] => format!(
                    "between {} and {}",
                    words::gpu(snapshot, pair.source),
                    words::gpu(snapshot, pair.destination)
                ),
                [] => String::new(),
            },
        }
    }

    /// The pairs as evidence.
    pub fn evidence(&self) -> Value {
        json!(self.pairs.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

/// The end of a link for people: `NUMA node 0` for `numa0`.
fn end(id: NodeId) -> String {
    match id {
        NodeId::Numa(Some(node)) => format!("NUMA node {node}"),
        id => id.to_string(),
    }
}

/// Two GPUs, the lower index first.
type Two = (u32, u32);

fn two(pair: Pair) -> Two {
    (pair.source.min(pair.destination), pair.source.max(pair.destination))
}

fn twos(pairs: &BTreeSet<Pair>) -> BTreeSet<Two> {
    pairs.iter().copied().map(two).collect()
}

/// Something that pairs can have in common, with every pair that was looked at and has it.
struct Candidate {
    common: Common,
    members: BTreeSet<Pair>,
    /// Whether the members are those of one direction only: into, out of, or along a link.
    one_way: bool,
}

/// Groups bad pairs by what they have in common. `seen` are all pairs that were looked at: a GPU
/// or a link that a good pair uses as well, in the same direction, is the lesser suspect.
pub fn groups(bad: &[Pair], seen: &[Pair], topology: &Topology) -> Vec<Group> {
    let all_bad: BTreeSet<Pair> = bad.iter().copied().collect();
    let seen: BTreeSet<Pair> = seen.iter().copied().chain(all_bad.iter().copied()).collect();
    let candidates = candidates(&seen, topology);
    let mut left = all_bad.clone();
    let mut groups: Vec<(Common, BTreeSet<Pair>)> = Vec::new();
    while let Some((common, covered)) =
        all_affected(&left, &all_bad, &candidates).or_else(|| most_affected(&left, &candidates))
    {
        left.retain(|pair| !covered.contains(pair));
        match groups.iter_mut().find(|(known, _)| *known == common) {
            Some((_, pairs)) => pairs.extend(covered),
            None => groups.push((common, covered)),
        }
    }
    // The other direction of a pair that is laid to something is no second fault.
    left.retain(|pair| match groups.iter_mut().find(|(_, pairs)| pairs.contains(&pair.reversed())) {
        Some((_, pairs)) => !pairs.insert(*pair),
        None => true,
    });
    for pair in twos(&left) {
        groups.push((Common::OnePair, left.iter().copied().filter(|one| two(*one) == pair).collect()));
    }
    let in_order = |covered: &BTreeSet<Pair>| bad.iter().copied().filter(|pair| covered.contains(pair)).collect();
    groups.iter().map(|(common, covered)| Group { common: common.clone(), pairs: in_order(covered) }).collect()
}

/// Everything that pairs can have in common, what is smaller first: of two that explain the same the
/// first is taken.
fn candidates(seen: &BTreeSet<Pair>, topology: &Topology) -> Vec<Candidate> {
    let gpus: BTreeSet<u32> = seen.iter().flat_map(|pair| [pair.source, pair.destination]).collect();
    let of = |wanted: &dyn Fn(&Pair) -> bool| -> BTreeSet<Pair> { seen.iter().copied().filter(wanted).collect() };
    let mut candidates = Vec::new();
    for &gpu in &gpus {
        let common = || Common::Gpu(gpu);
        let members = of(&|pair| pair.source == gpu || pair.destination == gpu);
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

/// What explains most of what is left: all of whose pairs are bad, of one direction each, or of both
/// in at least one.
fn all_affected(
    left: &BTreeSet<Pair>,
    all_bad: &BTreeSet<Pair>,
    candidates: &[Candidate],
) -> Option<(Common, BTreeSet<Pair>)> {
    let bad_twos = twos(all_bad);
    let mut best: Option<(Common, BTreeSet<Pair>, (isize, bool))> = None;
    for Candidate { common, members, one_way } in candidates {
        let covered: BTreeSet<Pair> = members.intersection(left).copied().collect();
        let good = members.difference(all_bad).count();
        let explains = match (common, one_way) {
            (Common::Everything, _) => good * 100 <= members.len() * GOOD_WHERE_ALL_ARE_BAD_PERCENT,
            (_, true) => good == 0,
            (_, false) => twos(members).is_subset(&bad_twos),
        };
        if !explains || twos(&covered).len() < 2 {
            continue;
        }
        // Every good pair speaks against it as much as two bad ones speak for it: a GPU whose copies
        // are bad one way only is better named by that way.
        let score = covered.len().cast_signed() - 2 * good.cast_signed();
        let narrow = *common != Common::Everything;
        match &mut best {
            Some((Common::Links(links), other, known)) if *other == covered && *known == (score, narrow) => {
                if let Common::Links(more) = common {
                    let known = |(from, to): &(NodeId, NodeId)| {
                        links.iter().any(|(one, other)| (one, other) == (from, to) || (one, other) == (to, from))
                    };
                    let news: Vec<_> = more.iter().filter(|link| !known(link)).copied().collect();
                    links.extend(news);
                }
            }
            Some((_, _, other)) if *other >= (score, narrow) => {}
            _ => best = Some((common.clone(), covered, (score, narrow))),
        }
    }
    best.map(|(common, covered, _)| (nameable(common), covered))
}

/// Of links that explain the same, the way from a root port into the processor is left out: nobody
/// can touch it, and the link below it stands there.
fn nameable(common: Common) -> Common {
    let Common::Links(links) = common else { return common };
    let in_processor = |(from, to): &(NodeId, NodeId)| {
        [from, to].iter().any(|id| matches!(id, NodeId::HostBridge(..) | NodeId::HiddenRoot))
    };
    let outside: Vec<_> = links.iter().filter(|link| !in_processor(link)).copied().collect();
    Common::Links(if outside.is_empty() { links } else { outside })
}

/// The GPU with most of the bad pairs that are left, where it has several.
fn most_affected(left: &BTreeSet<Pair>, candidates: &[Candidate]) -> Option<(Common, BTreeSet<Pair>)> {
    let mut best: Option<(Common, BTreeSet<Pair>)> = None;
    for candidate in
        candidates.iter().filter(|candidate| matches!(candidate.common, Common::Gpu(_)) && !candidate.one_way)
    {
        let covered: BTreeSet<Pair> = candidate.members.intersection(left).copied().collect();
        if twos(&covered).len() > best.as_ref().map_or(1, |(_, other)| twos(other).len()) {
            best = Some((candidate.common.clone(), covered));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{h200_vm, two_sockets};
    use crate::topology::build;

    fn link(from: &str, to: &str) -> (NodeId, NodeId) {
        (from.parse().unwrap(), to.parse().unwrap())
    }

    fn bad(pairs: &[(u32, u32)]) -> Vec<Pair> {
        pairs.iter().map(|&(source, destination)| Pair { source, destination }).collect()
    }

    fn commons(topology: &Topology, gpus: u32, pairs: &[(u32, u32)]) -> Vec<Common> {
        let seen = Pair::ordered(&(0..gpus).collect::<Vec<_>>());
        groups(&bad(pairs), &seen, topology).into_iter().map(|group| group.common).collect()
    }

    #[test]
    fn pairs_with_one_gpu_in_common_are_that_gpu() {
        let topology = build(&h200_vm(4));
        assert_eq!(commons(&topology, 4, &[(0, 3), (1, 3), (3, 2)]), [Common::Gpu(3)]);
        assert_eq!(commons(&topology, 4, &[(0, 3)]), [Common::OnePair]);
        assert_eq!(commons(&topology, 4, &[(0, 3), (3, 0)]), [Common::OnePair]);
        assert_eq!(commons(&topology, 4, &[(0, 1), (2, 3)]), [Common::OnePair, Common::OnePair]);
        assert_eq!(commons(&topology, 4, &[(0, 3), (1, 3)]), [Common::Gpu(3)]);
        assert_eq!(commons(&topology, 4, &[]), []);
    }

    #[test]
    fn everything_bad_is_no_single_gpu() {
        let topology = build(&h200_vm(3));
        let all: Vec<_> = Pair::ordered(&[0, 1, 2]).into_iter().map(|pair| (pair.source, pair.destination)).collect();
        assert_eq!(commons(&topology, 3, &all), [Common::Everything]);
        assert_eq!(commons(&topology, 2, &[(0, 1), (1, 0)]), [Common::OnePair]);
    }

    #[test]
    fn two_bad_gpus_are_two() {
        let topology = build(&h200_vm(5));
        let pairs = [(0, 3), (1, 3), (2, 3), (4, 3), (0, 4), (1, 4), (2, 4)];
        assert_eq!(commons(&topology, 5, &pairs), [Common::Gpu(3), Common::Gpu(4)]);
    }

    #[test]
    fn pairs_that_share_an_uplink_are_that_uplink() {
        let found = commons(&build(&two_sockets()), 4, &[(0, 2), (0, 3), (1, 2), (1, 3)]);
        let [Common::Links(links)] = found.as_slice() else { panic!("{found:?}") };
        assert!(links.contains(&link("0000:01:00.0", "0000:00:01.0")), "as the pairs pass it: {links:?}");
        assert!(links.contains(&link("numa0", "numa1")));

        // One switch of two below each socket: its uplink, in one direction, and the crossing apart.
        let machine = two_switches_each();
        let topology = build(&machine);
        let out_of: Vec<_> = [0, 1].iter().flat_map(|&gpu| (2..8).map(move |other| (gpu, other))).collect();
        let found = groups_of(&topology, 8, &out_of);
        let [group] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(group.common, Common::Links(vec![link("0000:01:00.0", "0000:00:01.0")]));
        assert!(group.place(&machine).contains("0000:01:00.0 → 0000:00:01.0"), "{}", group.place(&machine));
        let crossing: Vec<_> =
            (0..4).flat_map(|gpu| (4..8).flat_map(move |other| [(gpu, other), (other, gpu)])).collect();
        let found = groups_of(&topology, 8, &crossing);
        let [group] = found.as_slice() else { panic!("{found:?}") };
        let Common::Links(links) = &group.common else { panic!("{group:?}") };
        assert!(links.contains(&link("numa0", "numa1")), "{links:?}");
        assert!(group.place(&machine).contains("NUMA node 0 – NUMA node 1"), "{}", group.place(&machine));
    }

    /// Two sockets, two switches below each, two GPUs below each: GPU 0 and 1 share the first.
    fn two_switches_each() -> Snapshot {
        let mut machine = two_sockets();
        let (mut functions, mut gpus) = (machine.pci.clone(), Vec::new());
        for function in &machine.pci {
            let mut other = function.clone();
            other.address.bus += 0x20;
            if other.parent.is_none() {
                other.address.device += 1;
            }
            other.parent = function.parent.map(|mut parent| {
                parent.bus += 0x20;
                parent.device +=
                    u8::from(function.parent.is_some_and(|above| machine.function(above).unwrap().parent.is_none()));
                parent
            });
            functions.push(other);
        }
        for socket in [0, 2] {
            for (at, offset) in [(socket, 0), (socket + 1, 0), (socket, 0x20), (socket + 1, 0x20)] {
                let mut gpu = machine.gpus[at].clone();
                let mut address = gpu.pci.get().unwrap();
                address.bus += offset;
                gpu.pci = crate::model::reading::Reading::Known(address);
                gpu.index = u32::try_from(gpus.len()).unwrap();
                gpus.push(gpu);
            }
        }
        (machine.pci, machine.gpus) = (functions, gpus);
        machine
    }

    fn groups_of(topology: &Topology, gpus: u32, pairs: &[(u32, u32)]) -> Vec<Group> {
        groups(&bad(pairs), &Pair::ordered(&(0..gpus).collect::<Vec<_>>()), topology)
    }

    #[test]
    fn directions_are_told_apart() {
        let machine = h200_vm(8);
        let topology = build(&machine);
        let out: Vec<_> = (0..8).filter(|&other| other != 3).map(|other| (3, other)).collect();
        let into: Vec<_> = out.iter().map(|&(gpu, other)| (other, gpu)).collect();
        let both: Vec<_> = out.iter().chain(&into).copied().collect();
        for (pairs, way) in [(&out, "out of GPU 3"), (&into, "into GPU 3"), (&both, "into and out of GPU 3")] {
            let found = groups_of(&topology, 8, pairs);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((&found[0].common, found[0].pairs.len()), (&Common::Gpu(3), pairs.len()));
            assert!(found[0].place(&machine).starts_with(way), "{}", found[0].place(&machine));
        }
        // One that just makes it, and one more in the other direction, are the same GPU.
        assert_eq!(commons(&topology, 8, &both[1..]), [Common::Gpu(3)]);
        let mut with_one = out.clone();
        with_one.push((5, 3));
        assert_eq!(commons(&topology, 8, &with_one), [Common::Gpu(3)]);

        // Both bad out of two of three GPUs are two GPUs and not all.
        let topology = build(&h200_vm(3));
        assert_eq!(commons(&topology, 3, &[(0, 1), (0, 2), (1, 0), (1, 2)]), [Common::Gpu(0), Common::Gpu(1)]);
    }

    #[test]
    fn independent_faults_stay_apart() {
        let topology = build(&h200_vm(8));
        let mut pairs: Vec<_> = (0..8).filter(|&other| other != 3).map(|other| (3, other)).collect();
        pairs.push((0, 1));
        assert_eq!(commons(&topology, 8, &pairs), [Common::Gpu(3), Common::OnePair]);
        // All but two of 56 pairs: the whole machine.
        let all: Vec<_> = Pair::ordered(&(0..8).collect::<Vec<_>>()).into_iter().skip(2).collect();
        let all: Vec<_> = all.into_iter().map(|pair| (pair.source, pair.destination)).collect();
        assert_eq!(commons(&topology, 8, &all), [Common::Everything]);
    }
}
