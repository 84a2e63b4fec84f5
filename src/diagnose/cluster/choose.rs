//! Which candidate explains most of the bad pairs.

use std::collections::BTreeSet;

use super::candidates::Candidate;
use super::group::Common;
use crate::model::node::NodeId;
use crate::model::placement::Pair;

/// Share of all pairs, per cent, that may be good where the whole machine is bad: pairs that just
/// make it. Chosen: 2 of the 56 pairs of 8 GPUs, none where there are 4 GPUs or fewer.
const GOOD_WHERE_ALL_ARE_BAD_PERCENT: usize = 5;

/// Two GPUs, the lower index first.
pub type Two = (u32, u32);

/// The GPUs of these pairs, two and two.
pub fn twos(pairs: &BTreeSet<Pair>) -> BTreeSet<Two> {
    pairs.iter().copied().map(Pair::unordered).collect()
}

/// What explains most of what is left: all of whose pairs are bad, of one direction each, or of both
/// in at least one.
pub fn all_affected(
    left: &BTreeSet<Pair>,
    all_bad: &BTreeSet<Pair>,
    candidates: &[Candidate],
) -> Option<(Common, BTreeSet<Pair>)> {
    let bad_twos = twos(all_bad);
    let mut best: Option<(Common, BTreeSet<Pair>, (isize, bool))> = None;
    for Candidate {
        common,
        members,
        one_way,
    } in candidates
    {
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
            Some((Common::Links(links), other, known))
                if *other == covered && *known == (score, narrow) =>
            {
                if let Common::Links(more) = common {
                    let known = |(from, to): &(NodeId, NodeId)| {
                        links.iter().any(|(one, other)| {
                            (one, other) == (from, to) || (one, other) == (to, from)
                        })
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
/// can touch it, and the link below it is named instead.
fn nameable(common: Common) -> Common {
    let Common::Links(links) = common else {
        return common;
    };
    let in_processor = |(from, to): &(NodeId, NodeId)| {
        [from, to]
            .iter()
            .any(|id| matches!(id, NodeId::HostBridge(..) | NodeId::HiddenRoot))
    };
    let outside: Vec<_> = links
        .iter()
        .filter(|link| !in_processor(link))
        .copied()
        .collect();
    Common::Links(if outside.is_empty() { links } else { outside })
}

/// The GPU with most of the bad pairs that are left, where it has several.
pub fn most_affected(
    left: &BTreeSet<Pair>,
    candidates: &[Candidate],
) -> Option<(Common, BTreeSet<Pair>)> {
    let mut best: Option<(Common, BTreeSet<Pair>)> = None;
    for candidate in candidates
        .iter()
        .filter(|candidate| matches!(candidate.common, Common::Gpu(_)) && !candidate.one_way)
    {
        let covered: BTreeSet<Pair> = candidate.members.intersection(left).copied().collect();
        if twos(&covered).len() > best.as_ref().map_or(1, |(_, other)| twos(other).len()) {
            best = Some((candidate.common.clone(), covered));
        }
    }
    best
}
