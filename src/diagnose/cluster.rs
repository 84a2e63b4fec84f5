//! Many bad pairs are mostly one bad thing: finds the GPU or the link that they have in common.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::words;
use crate::model::finding::Subject;
use crate::model::placement::Pair;
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;

/// What a group of bad pairs has in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Common {
    /// Every pair of at least three GPUs is bad.
    Everything,
    /// One GPU.
    Gpu(u32),
    /// Links of the routes that all of them pass and no good pair does, by the ids of their ends.
    /// More than one where the pairs cannot tell them apart.
    Links(Vec<(String, String)>),
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
                let names: Vec<_> = links.iter().map(|(one, other)| format!("{one} – {other}")).collect();
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

/// Two GPUs, the lower index first.
type Two = (u32, u32);

fn two(pair: Pair) -> Two {
    (pair.source.min(pair.destination), pair.source.max(pair.destination))
}

/// Groups bad pairs by what they have in common. `seen` are all pairs that were looked at: a GPU
/// or a link that a good pair uses as well is the lesser suspect.
pub fn groups(bad: &[Pair], seen: &[Pair], topology: &Topology) -> Vec<Group> {
    let all_bad: BTreeSet<Two> = bad.iter().copied().map(two).collect();
    let seen: BTreeSet<Two> = seen.iter().copied().map(two).chain(all_bad.iter().copied()).collect();
    let seen_gpus: BTreeSet<u32> = seen.iter().flat_map(|&(one, other)| [one, other]).collect();
    let by_gpu = members(&seen, |&(one, other)| vec![one, other]);
    let by_link = members(&seen, |&pair| links_between(topology, pair));

    if seen_gpus.len() > 2 && all_bad == seen && !by_gpu.values().any(|pairs| *pairs == all_bad) {
        return vec![group(Common::Everything, bad, &all_bad)];
    }
    let mut left = all_bad.clone();
    let mut groups = Vec::new();
    while let Some((common, covered)) =
        all_affected(&left, &all_bad, &by_gpu, &by_link).or_else(|| most_affected(&left, &by_gpu))
    {
        left.retain(|pair| !covered.contains(pair));
        groups.push(group(common, bad, &covered));
    }
    groups.extend(left.iter().map(|&pair| group(Common::OnePair, bad, &BTreeSet::from([pair]))));
    groups
}

fn group(common: Common, bad: &[Pair], covered: &BTreeSet<Two>) -> Group {
    Group { common, pairs: bad.iter().copied().filter(|pair| covered.contains(&two(*pair))).collect() }
}

fn members<K: Ord>(seen: &BTreeSet<Two>, of: impl Fn(&Two) -> Vec<K>) -> BTreeMap<K, BTreeSet<Two>> {
    let mut members: BTreeMap<K, BTreeSet<Two>> = BTreeMap::new();
    for pair in seen {
        for key in of(pair) {
            members.entry(key).or_default().insert(*pair);
        }
    }
    members
}

/// The links of a pair's route that are nobody's own: those that touch no GPU.
fn links_between(topology: &Topology, pair: Two) -> Vec<(String, String)> {
    let Some(route) = topology.route(Pair { source: pair.0, destination: pair.1 }) else { return Vec::new() };
    let hops = route.hops.iter().filter(|hop| !hop.from.starts_with("gpu") && !hop.to.starts_with("gpu"));
    hops.map(|hop| (hop.from.clone().min(hop.to.clone()), hop.from.clone().max(hop.to.clone()))).collect()
}

/// The GPU, or else the links, all of whose pairs are bad, and that explain most of what is left.
fn all_affected(
    left: &BTreeSet<Two>,
    all_bad: &BTreeSet<Two>,
    by_gpu: &BTreeMap<u32, BTreeSet<Two>>,
    by_link: &BTreeMap<(String, String), BTreeSet<Two>>,
) -> Option<(Common, BTreeSet<Two>)> {
    let explains = |pairs: &BTreeSet<Two>| {
        let covered: BTreeSet<Two> = pairs.intersection(left).copied().collect();
        (covered.len() > 1 && pairs.is_subset(all_bad)).then_some(covered)
    };
    let mut best: Option<(Common, BTreeSet<Two>)> = None;
    for (gpu, pairs) in by_gpu {
        let Some(covered) = explains(pairs) else { continue };
        if best.as_ref().is_none_or(|(_, other)| other.len() < covered.len()) {
            best = Some((Common::Gpu(*gpu), covered));
        }
    }
    for (link, pairs) in by_link {
        let Some(covered) = explains(pairs) else { continue };
        match &mut best {
            Some((Common::Links(links), other)) if *other == covered => links.push(link.clone()),
            Some((_, other)) if other.len() >= covered.len() => {}
            _ => best = Some((Common::Links(vec![link.clone()]), covered)),
        }
    }
    best
}

/// The GPU with most of the bad pairs that are left, where it has several.
fn most_affected(left: &BTreeSet<Two>, by_gpu: &BTreeMap<u32, BTreeSet<Two>>) -> Option<(Common, BTreeSet<Two>)> {
    let mut best: Option<(Common, BTreeSet<Two>)> = None;
    for (gpu, pairs) in by_gpu {
        let covered: BTreeSet<Two> = pairs.intersection(left).copied().collect();
        if covered.len() > best.as_ref().map_or(1, |(_, other)| other.len()) {
            best = Some((Common::Gpu(*gpu), covered));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{h200_vm, two_sockets};
    use crate::topology::build;

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
        assert_eq!(commons(&topology, 3, &[(0, 1), (1, 2), (2, 0)]), [Common::Everything]);
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
        assert!(links.contains(&("0000:00:01.0".into(), "0000:01:00.0".into())), "{links:?}");
        assert!(links.contains(&("numa0".into(), "numa1".into())));
    }
}
