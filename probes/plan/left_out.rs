//! Sentences on what is left out, or measured for some pairs or GPUs only, because there are many.

use std::collections::BTreeSet;

use crate::peers::plan::{Staged, also_staged, is_thinned_out};
use crate::plan::Profile;
use crate::plan::in_full::{MOST_GPUS_IN_FULL, gpus_in_full, in_full};
use crate::{Action, Group, Request, Round};
use model::choice::Choice;
use model::placement::Pair;

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
        |pair: &Pair| request.buffer_of(*pair).is_some() && request.driver.is_direct(*pair);
    Pair::ordered(request.gpus).into_iter().filter(usable).collect()
}

fn is_in_full(gpus: &[u32], pair: Pair) -> bool {
    in_full(gpus).is_none_or(|some| some.contains(&pair))
}

/// Describes, in a sentence, the probes of single GPUs that are left out because there are many GPUs.
pub fn gpus_left_out(gpus: &[u32], groups: &BTreeSet<Group>, profile: &Profile) -> Option<String> {
    let has = |group| groups.contains(&group) && profile.has(group);
    let some = gpus_in_full(gpus).len();
    let mut parts = Vec::new();
    if has(Group::Host) {
        parts.push("copies with the host other than with pinned memory one way");
    }
    if has(Group::Pipeline) || has(Group::Async) {
        parts.push("pipelines and calls");
    }
    if has(Group::Load) {
        parts.push("most load patterns");
    }
    (some < gpus.len() && !parts.is_empty()).then(|| {
        format!(
            "{} are measured on {some} of {} GPUs; --gpus with up to {MOST_GPUS_IN_FULL} GPUs measures them on all of these",
            parts.join(", "),
            gpus.len()
        )
    })
}

/// Describes, in a sentence, why no load of several flows is among these rounds although it was asked for.
pub fn load_left_out(request: &Request<'_>, rounds: &[Round]) -> Option<String> {
    let is_load = |round: &Round| matches!(round.task.action, Action::Load(_));
    let is_asked = request.groups.contains(&Group::Load) && request.profile.has(Group::Load);
    if !is_asked || request.gpus.len() < 2 || rounds.iter().any(is_load) {
        return None;
    }
    let pairs = Pair::ordered(request.gpus);
    let why = if request.serial {
        "--serial copies one pair at a time"
    } else if pairs.iter().any(|pair| request.driver.is_direct(*pair)) {
        "fewer than two direct copies between these GPUs can run at once"
    } else {
        "no two of these GPUs have peer access, and copies through the host are no load on what connects them"
    };
    Some(format!("the load of several flows is not measured: {why}"))
}

/// Describes, in a sentence, why no single link is measured although it was asked for by name.
pub fn links_left_out(request: &Request<'_>, rounds: &[Round]) -> Option<String> {
    let is_links = |round: &Round| matches!(round.task.action, Action::Links(_));
    let is_named =
        request.groups.contains(&Group::Links) && request.groups.len() < Group::ALL.len();
    let is_lacking = is_named && request.gpus.len() > 1 && !rounds.iter().any(is_links);
    is_lacking.then(|| "single NVLinks are not measured: no NVLink connects these GPUs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::gpus_left_out;
    use crate::plan::profile::{Name, Profile};

    #[test]
    fn single_gpus_are_measured_in_full_up_to_sixteen_and_sixteen_at_most_beyond() {
        let gpus: Vec<u32> = (3..75).collect();
        let groups: BTreeSet<_> = Group::ALL.iter().copied().collect();
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
