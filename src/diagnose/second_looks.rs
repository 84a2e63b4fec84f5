//! Copies after the plan that tell explanations apart: which are worth it.

use super::evidence::Evidence;
use super::judge;
use model::measurement::SecondLook;

/// Most GPUs of a machine that gets a second look. A budget: the figures are explained once more for it.
const MOST_GPUS: usize = 16;

/// Returns the copies that would tell apart what the figures leave open, none if these have one explanation each.
pub fn second_looks(evidence: &Evidence<'_>) -> Vec<SecondLook> {
    if evidence.snapshot.gpus.len() > MOST_GPUS {
        return Vec::new();
    }
    let explanation = judge::explained(evidence);
    let looks = explanation.into_iter().flat_map(|one| one.looks);
    let look = |look: explain::Look| SecondLook {
        flows: look.flows,
        between: look.between.into(),
    };
    looks.map(look).collect()
}
