//! Probes of single GPUs that are left out on machines with many GPUs.

use std::collections::BTreeSet;

use super::many::{MOST_GPUS_IN_FULL, gpus_in_full};
use super::{Group, Profile};

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
