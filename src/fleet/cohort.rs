//! Comparable nodes: the same GPUs, connected in the same way.

use std::collections::BTreeMap;

use super::digest::Digest;
use super::inventory;

/// Comparable nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    /// Model of the GPUs.
    pub model: String,
    /// The connections of the GPUs in words.
    pub topology: String,
    /// Hash of the link class of every pair.
    pub signature: String,
    /// Indices of the nodes.
    pub nodes: Vec<usize>,
}

/// Returns the cohorts, the largest first. `facts` are those of the nodes.
pub(crate) fn cohorts(nodes: &[&Digest], facts: &[BTreeMap<String, String>]) -> Vec<Members> {
    let mut groups: BTreeMap<(&str, u64), Vec<usize>> = BTreeMap::new();
    for (place, (digest, facts)) in nodes.iter().zip(facts).enumerate() {
        groups.entry((&facts["model"], signature(digest))).or_default().push(place);
    }
    let mut cohorts: Vec<_> = groups
        .into_iter()
        .map(|((model, signature), nodes)| Members {
            model: model.to_owned(),
            topology: nodes
                .first()
                .map(|first| facts[*first][inventory::TOPOLOGY].clone())
                .unwrap_or_default(),
            signature: format!("{signature:016x}"),
            nodes,
        })
        .collect();
    cohorts.sort_by(|one, other| {
        other.nodes.len().cmp(&one.nodes.len()).then_with(|| one.signature.cmp(&other.signature))
    });
    cohorts
}

/// Returns a hash of the class of every pair. It stays the same from version to version (FNV-1a, 64 bits:
/// <http://www.isthe.com/chongo/tech/comp/fnv/>), so that files of different days can be joined by it.
fn signature(digest: &Digest) -> u64 {
    let mut rows: Vec<String> = digest
        .summary
        .pairs
        .iter()
        .map(|pair| format!("{}>{} {};", pair.source, pair.destination, pair.class))
        .collect();
    rows.sort_unstable();
    let start = format!("{};", digest.summary.gpus.len());
    let bytes = start.bytes().chain(rows.iter().flat_map(|row| row.bytes()));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::fleet_of;
    use super::*;
    use model::topology::LinkClass;

    #[test]
    fn nodes_that_are_connected_in_another_way_are_a_cohort_of_their_own() {
        let mut nodes = fleet_of(6);
        nodes[4].summary.pairs[3].class = LinkClass::NvLink(17);
        let facts: Vec<_> = nodes.iter().map(inventory::facts).collect();
        let all: Vec<_> = nodes.iter().collect();
        let cohorts = cohorts(&all, &facts);
        assert_eq!(
            cohorts.iter().map(|cohort| cohort.nodes.clone()).collect::<Vec<_>>(),
            [vec![0, 1, 2, 3, 5], vec![4]]
        );
        assert_eq!(cohorts[1].topology, "55 x NV18, 1 x NV17");
    }
}
