//! Plans copies that tell explanations of earlier figures apart.

use crate::host::plan as host;
use crate::plan::slot::numbered;
use crate::{Group, Request, Round};
use model::flow::Flow;

/// Plans a round for each of these copies with the host that the request has. They follow the rounds of the plan.
pub fn second_looks(request: &Request<'_>, looks: &[Flow], after: &[Round]) -> Vec<Round> {
    let is_usable = |gpu: u32| request.usable().any(|device| device.index == gpu);
    let is_planned = |flow: &&Flow| flow.with_host().is_some_and(is_usable);
    if !request.groups.contains(&Group::Host) {
        return Vec::new();
    }
    let next = |of: fn(&Round) -> u32| after.iter().map(of).max().map_or(0, |last| last + 1);
    let (id, slot) = (next(|round| round.id), next(|round| round.slot));
    let looks = looks.iter().filter(is_planned).filter_map(|flow| host::again(request, *flow));
    let rounds = numbered(looks.collect(), request).into_iter();
    rounds.map(|round| Round { id: id + round.id, slot: slot + round.slot, ..round }).collect()
}
