//! Many bad pairs are mostly one bad thing: finds the GPU or the link that they have in common, and
//! in which direction.

mod candidates;
mod choose;
mod group;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use candidates::candidates;
use choose::{all_affected, most_affected, twos};
pub use group::{Common, Group};

use crate::model::placement::Pair;
use crate::model::topology::Topology;

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
    // The other direction of a pair that is attributed to something is no second fault.
    left.retain(|pair| match groups.iter_mut().find(|(_, pairs)| pairs.contains(&pair.reversed())) {
        Some((_, pairs)) => !pairs.insert(*pair),
        None => true,
    });
    for pair in twos(&left) {
        groups.push((Common::OnePair, left.iter().copied().filter(|one| one.unordered() == pair).collect()));
    }
    let in_order = |covered: &BTreeSet<Pair>| bad.iter().copied().filter(|pair| covered.contains(pair)).collect();
    groups.iter().map(|(common, covered)| Group { common: common.clone(), pairs: in_order(covered) }).collect()
}
