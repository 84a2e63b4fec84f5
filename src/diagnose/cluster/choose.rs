//! Chooses the candidate that explains most of the bad pairs.

use std::collections::BTreeSet;

use super::candidates::Candidate;
use super::group::Common;
use model::placement::Pair;

/// Share of all pairs, per cent, that may be good although the whole machine is bad: pairs that are just good enough.
/// Chosen: 2 of the 56 pairs of 8 GPUs, none with 4 GPUs or fewer.
const GOOD_WHERE_ALL_ARE_BAD_PERCENT: usize = 5;

/// Two GPUs, the lower index first.
pub(super) type Two = (u32, u32);

/// Returns the pairs without direction: two GPUs each.
pub(super) fn twos(pairs: &BTreeSet<Pair>) -> BTreeSet<Two> {
    pairs.iter().copied().map(Pair::unordered).collect()
}

/// Returns the candidate that explains most of the remaining pairs. All pairs of a one-way candidate must be bad;
/// otherwise at least one direction of each must be.
pub(super) fn all_affected(
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
        // Every good pair counts against it as much as two bad ones count for it. A GPU whose copies are bad one way
        // only is better described by that way.
        let score = covered.len().cast_signed() - 2 * good.cast_signed();
        let narrow = *common != Common::Everything;
        if best.as_ref().is_none_or(|(_, _, other)| *other < (score, narrow)) {
            best = Some((common.clone(), covered, (score, narrow)));
        }
    }
    best.map(|(common, covered, _)| (common, covered))
}

/// Returns the GPU with most of the remaining bad pairs, if it has several.
pub(super) fn most_affected(
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
