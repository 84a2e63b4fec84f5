//! Plans copies that tell explanations of earlier figures apart.

use crate::host::plan as host;
use crate::load::patterns::Planned;
use crate::load::plan as load;
use crate::plan::slot::numbered;
use crate::{Group, Request, Round};
use model::flow::{Endpoint, Flow};
use model::load::Pattern;

/// Plans a round for each of these sets of flows, all of them copies with the host: one flow alone, or several at once. They
/// follow the rounds of the plan. A set for which the request leaves no room, or asks for none, has no round.
pub fn second_looks(
    request: &Request<'_>,
    looks: &[&[Flow]],
    after: &[Round],
) -> Vec<Option<Round>> {
    let next = |of: fn(&Round) -> u32| after.iter().map(of).max().map_or(0, |last| last + 1);
    let mut next = (next(|round| round.id), next(|round| round.slot));
    let mut planned = Vec::with_capacity(looks.len());
    for flows in looks {
        let round = look(request, flows, next);
        if round.is_some() {
            next = (next.0 + 1, next.1 + 1);
        }
        planned.push(round);
    }
    planned
}

fn look(request: &Request<'_>, flows: &[Flow], (id, slot): (u32, u32)) -> Option<Round> {
    let is_usable = |gpu: u32| request.usable().any(|device| device.index == gpu);
    let is_planned = |flow: &Flow| flow.with_host().is_some_and(is_usable);
    if !request.groups.contains(&Group::Host) || !flows.iter().all(is_planned) {
        return None;
    }
    match flows {
        [] => None,
        [flow] => {
            let planned = vec![host::again(request, *flow)?];
            let round = numbered(planned, request).pop()?;
            Some(Round { id, slot, ..round })
        }
        _ if request.serial => None,
        several => {
            // A report has one row of each name: the other direction has another.
            let name = |flow: &Flow| match (flow.from, flow.to) {
                (Endpoint::Gpu(gpu), _) => format!("from GPU {gpu}"),
                (_, end) => end.to_string(),
            };
            let gpus: Vec<String> = several.iter().map(name).collect();
            let planned = Planned {
                pattern: Pattern::SecondLook,
                of: gpus.join(" and "),
                flows: several.to_vec(),
                counted: false,
            };
            load::round(request, planned, (id, slot))
        }
    }
}
