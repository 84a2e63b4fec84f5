//! Parts of the plan that are left out on machines with many GPUs.

use std::collections::BTreeSet;

use crate::peers::plan::{Staged, also_staged, is_thinned_out};
use crate::plan::{Group, Request, budget, is_direct};
use model::placement::Pair;

/// Number of GPUs above which most pairs are measured in the reference placement only. The number of pairs grows with
/// the square of the GPUs: 72 have 5112. Measuring everything on each of them would take hours. Sixteen is the
/// largest number on one board, or in one machine without switches between machines; chosen.
pub(crate) const MOST_GPUS_IN_FULL: usize = 16;

/// Returns the pairs on which everything is measured. Each GPU sends to the next one and to the one half of all GPUs
/// further, so that every GPU sends and receives twice. Returns `None` if everything is measured on all pairs.
pub(crate) fn in_full(gpus: &[u32]) -> Option<BTreeSet<Pair>> {
    if gpus.len() <= MOST_GPUS_IN_FULL {
        return None;
    }
    let steps = [1, gpus.len() / 2];
    let to = |place: usize, step: usize| gpus.get((place + step) % gpus.len()).copied();
    let sends = |(place, &source)| {
        steps.into_iter().filter_map(move |step| Some((source, to(place, step)?)))
    };
    let pairs = gpus.iter().enumerate().flat_map(sends);
    Some(pairs.map(|(source, destination)| Pair { source, destination }).collect())
}

/// Returns the GPUs on which everything that concerns one GPU is measured: all, or some that are spread out.
pub(crate) fn gpus_in_full(gpus: &[u32]) -> BTreeSet<u32> {
    gpus.iter().copied().step_by(gpus.len().div_ceil(MOST_GPUS_IN_FULL).max(1)).collect()
}

/// Describes, in a sentence, the parts of the profile that are left out because there are many GPUs.
pub fn left_out(gpus: &[u32], groups: &BTreeSet<Group>) -> Option<String> {
    let some = in_full(gpus)?.len();
    let all = gpus.len() * gpus.len().saturating_sub(1);
    let (every_pair, rest) = if groups.contains(&Group::Peers) {
        (
            "all are verified and measured in one placement, and ",
            "everything else that the profile has",
        )
    } else {
        ("", "what was asked for")
    };
    Some(format!(
        "{} GPUs are {all} pairs: {every_pair}{some} of them, in which every GPU sends twice and receives twice, in \
         {rest}; --gpus with up to {MOST_GPUS_IN_FULL} GPUs measures it on all of their pairs",
        gpus.len()
    ))
}

/// Describes the parts that are measured on some pairs only, because more of them would show nothing new. Nobody
/// stages a copy if the direct one takes a fraction of the time.
pub fn thinned_out(request: &Request<'_>) -> Option<String> {
    let measured =
        [Group::Peers, Group::Latency].iter().any(|group| request.groups.contains(group));
    let direct: Vec<Pair> = direct_pairs(request);
    if !measured
        || request.profile.peers.staged != Staged::Sample
        || !is_thinned_out(request, &direct)
    {
        return None;
    }
    let some = also_staged(request, &direct)
        .into_iter()
        .filter(|pair| is_in_full(request.gpus, *pair))
        .count();
    Some(format!(
        "the path through host memory is measured for {some} of {} direct pairs, a ring of all GPUs and one pair of each \
         class: direct copies should be at least three times as fast",
        direct.len()
    ))
}

fn direct_pairs(request: &Request<'_>) -> Vec<Pair> {
    let usable =
        |pair: &Pair| budget(request.driver, *pair).is_some() && is_direct(request.driver, *pair);
    Pair::ordered(request.gpus).into_iter().filter(usable).collect()
}

fn is_in_full(gpus: &[u32], pair: Pair) -> bool {
    in_full(gpus).is_none_or(|some| some.contains(&pair))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::gpus_left_out;
    use crate::plan::profile::{Name, Profile};

    #[test]
    fn single_gpus_are_measured_in_full_up_to_sixteen_and_sixteen_at_most_beyond() {
        let gpus: Vec<u32> = (3..75).collect();
        let groups: BTreeSet<_> = Group::all().iter().copied().collect();
        assert_eq!(gpus_in_full(&gpus[..16]).len(), 16);
        let profile = Profile::load(Name::Standard).unwrap();
        let gpus_left_out = |gpus: &[u32], groups| gpus_left_out(gpus, groups, &profile);
        assert_eq!(gpus_left_out(&gpus[..16], &groups), None);
        assert_eq!(gpus_in_full(&gpus[..17]).len(), 9, "every other one");
        let some = gpus_in_full(&gpus);
        assert_eq!((some.len(), some.first(), some.last()), (15, Some(&3), Some(&73)));
        let said = gpus_left_out(&gpus, &groups).unwrap();
        assert!(
            said.contains(
                "one way, pipelines and calls, most load patterns are measured on 15 of 72 GPUs"
            ),
            "{said}"
        );
        assert_eq!(gpus_left_out(&gpus, &[Group::Peers].into()), None);
        let quick = Profile::load(Name::Quick).unwrap();
        assert_eq!(
            crate::plan::gpus_left_out(&gpus, &groups, &quick),
            None,
            "it has none of these"
        );
        assert_eq!(gpus_in_full(&[]), BTreeSet::new());
    }
}
