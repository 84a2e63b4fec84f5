//! Many bad pairs mostly have one cause: finds the GPU that they have in common and in which direction, or the two NUMA
//! nodes between which all of them lie.

mod candidates;
mod choose;
mod group;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use candidates::candidates;
use choose::{Two, all_affected, most_affected};
pub(crate) use group::{Common, Group, end};

use model::placement::Pair;
use model::topology::Topology;

/// Groups bad pairs by what they have in common. `seen` are all pairs that were checked: a GPU or a link that a good
/// pair uses as well, in the same direction, is less suspect.
pub(crate) fn groups(bad: &[Pair], seen: &[Pair], topology: &Topology) -> Vec<Group> {
    if bad.is_empty() {
        return Vec::new();
    }
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
    // The other direction of a pair that is attributed to something is no second fault.
    left.retain(|pair| {
        match groups.iter_mut().find(|(_, pairs)| pairs.contains(&pair.reversed())) {
            Some((_, pairs)) => !pairs.insert(*pair),
            None => true,
        }
    });
    let mut alone: BTreeMap<Two, BTreeSet<Pair>> = BTreeMap::new();
    for pair in left {
        alone.entry(pair.unordered()).or_default().insert(pair);
    }
    groups.extend(alone.into_values().map(|pairs| (Common::OnePair, pairs)));
    let places: HashMap<Pair, usize> = bad.iter().copied().zip(0..).collect();
    let in_order = |covered: BTreeSet<Pair>| {
        let mut pairs: Vec<Pair> =
            covered.into_iter().filter(|pair| places.contains_key(pair)).collect();
        pairs.sort_by_key(|pair| places.get(pair));
        pairs
    };
    let seen_back = |covered: &BTreeSet<Pair>| {
        let mut back = covered.iter().map(|pair| pair.reversed());
        back.any(|pair| seen.contains(&pair) && !all_bad.contains(&pair))
    };
    groups
        .into_iter()
        .map(|(common, covered)| Group {
            common,
            seen_back: seen_back(&covered),
            pairs: in_order(covered),
        })
        .collect()
}
