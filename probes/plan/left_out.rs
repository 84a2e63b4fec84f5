//! Probes of single GPUs that are left out on machines with many GPUs.

use std::collections::BTreeSet;

use crate::plan::many::{MOST_GPUS_IN_FULL, gpus_in_full};
use crate::plan::{Action, Group, Profile, Request, Round, is_direct};
use model::placement::Pair;

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
    let is_load = |round: &Round| matches!(round.task.action, Action::Load { .. });
    let is_asked = request.groups.contains(&Group::Load) && request.profile.has(Group::Load);
    if !is_asked || request.gpus.len() < 2 || rounds.iter().any(is_load) {
        return None;
    }
    let pairs = Pair::ordered(request.gpus);
    let why = if request.serial {
        "--serial copies one pair at a time"
    } else if pairs.iter().any(|pair| is_direct(request.driver, *pair)) {
        "fewer than two direct copies between these GPUs can run at once"
    } else {
        "no two of these GPUs have peer access, and copies through the host are no load on what connects them"
    };
    Some(format!("the load of several flows is not measured: {why}"))
}
