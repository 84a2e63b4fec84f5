//! Groups pairs that can be copied at once: those that share neither a GPU nor a link.
//!
//! A GPU that sends and receives at the same time loses 1.1% on H200; disjoint one-way pairs lose nothing
//! (docs/dev/facts.md, "Flows at the same time"). The pairs are ordered as in a round-robin tournament (the circle
//! method), in which every GPU is in one pair of each batch. Pairs that share a link go into separate batches.

use std::collections::BTreeSet;

use model::node::NodeId;
use model::placement::Pair;
use model::topology::{LinkClass, Topology};

/// Returns all ordered pairs of these GPUs, in batches.
pub(crate) fn batches(gpus: &[u32], topology: &Topology) -> Vec<Vec<Pair>> {
    tournament(gpus).into_iter().flat_map(|pairs| apart(&pairs, topology)).collect()
}

/// Returns every ordered pair once, in rounds in which no GPU occurs twice.
fn tournament(gpus: &[u32]) -> Vec<Vec<Pair>> {
    let mut circle: Vec<Option<u32>> = gpus.iter().copied().map(Some).collect();
    // With an odd number of GPUs, one has no partner.
    if circle.len() % 2 == 1 {
        circle.push(None);
    }
    let mut rounds = Vec::new();
    for _ in 1..circle.len() {
        let half = circle.len() / 2;
        let couples = circle[..half].iter().zip(circle[half..].iter().rev());
        let pairs: Vec<_> = couples
            .filter_map(|(one, other)| {
                let (one, other) = ((*one)?, (*other)?);
                Some(Pair { source: one.min(other), destination: one.max(other) })
            })
            .collect();
        rounds.push(pairs.clone());
        rounds.push(pairs.into_iter().map(Pair::reversed).collect());
        circle[1..].rotate_right(1);
    }
    rounds
}

/// A group of pairs that share neither a GPU nor a link.
struct Batch {
    pairs: Vec<Pair>,
    /// Links that the pairs pass. `None` if they are not known; then no pair can join.
    links: Option<BTreeSet<(NodeId, NodeId)>>,
}

/// Splits these pairs into batches in which no two share a link. Each pair goes into the first batch with room.
fn apart(pairs: &[Pair], topology: &Topology) -> Vec<Vec<Pair>> {
    let mut batches: Vec<Batch> = Vec::new();
    for &pair in pairs {
        let own = links(pair, topology);
        let room = |batch: &&mut Batch| {
            batch
                .links
                .as_ref()
                .zip(own.as_ref())
                .is_some_and(|(taken, own)| taken.is_disjoint(own))
        };
        match batches.iter_mut().find(room) {
            Some(batch) => {
                batch.pairs.push(pair);
                batch.links.iter_mut().for_each(|taken| taken.extend(own.iter().flatten()));
            }
            None => batches.push(Batch { pairs: vec![pair], links: own }),
        }
    }
    batches.into_iter().map(|batch| batch.pairs).collect()
}

/// Returns the links that a direct copy passes, regardless of direction, because traffic in the other direction slows
/// it too. Returns `None` if the route is not known or leads over PCIe, where ports and host bridges share more than
/// their links.
fn links(pair: Pair, topology: &Topology) -> Option<BTreeSet<(NodeId, NodeId)>> {
    let route = topology.route(pair)?;
    let over_nvlink = matches!(route.class, LinkClass::NvLink(_)) && !route.hops.is_empty();
    over_nvlink.then(|| {
        route.hops.iter().map(|hop| (hop.from.min(hop.to), hop.from.max(hop.to))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tournament_has_every_ordered_pair_once_and_no_gpu_twice_at_a_time() {
        for count in 0..12_u32 {
            // Indices need not be consecutive.
            let gpus: Vec<u32> = (0..count).map(|gpu| 3 * gpu + 1).collect();
            let rounds = tournament(&gpus);
            for pairs in &rounds {
                let ends: BTreeSet<u32> =
                    pairs.iter().flat_map(|pair| [pair.source, pair.destination]).collect();
                assert_eq!(ends.len(), 2 * pairs.len(), "{count}: {pairs:?}");
            }
            let mut all: Vec<Pair> = rounds.iter().flatten().copied().collect();
            all.sort();
            assert_eq!(all, Pair::ordered(&gpus), "{count}");
            if count % 2 == 0 && count > 0 {
                assert_eq!(
                    rounds.len() as u32,
                    2 * (count - 1),
                    "{count}: no fewer rounds are possible"
                );
            }
        }
    }
}
