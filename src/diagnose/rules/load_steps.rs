//! Next steps for a link that several flows share, by the kind of link: NVLinks have no slot, nor has the link between
//! two processors.

use super::load::Low;
use super::prelude::*;

/// Returns the step that reads the error counters of the links that these flows pass.
pub(super) fn errors_of(evidence: &Evidence<'_>, flows: &[Flow]) -> Step {
    let pairs: Vec<Pair> = flows.iter().filter_map(|flow| flow.pair()).collect();
    match pairs.iter().all(|pair| evidence.over_nvlink(*pair)) {
        true if !pairs.is_empty() => Step::LinkErrors,
        _ => Step::PcieErrors,
    }
}

/// Returns the steps for flows that reach too little through what they share. `before_parts` comes before any part is
/// moved.
pub(super) fn of_low(low: &Low<'_>, before_parts: Step) -> Plan {
    let is = |kind| low.links.iter().any(|link| link.kind == kind);
    let own = if is(LinkKind::Interconnect) || is(LinkKind::RootComplex) && !is(LinkKind::Pcie) {
        vec![Step::ProcessorLinks, before_parts]
    } else if low.links.iter().all(|link| link.kind == LinkKind::NvLink) && !low.links.is_empty() {
        let swap = Step::Swap(Part::Gpu(OneOf(low.judged.gpus())));
        vec![Step::LinkErrors, Step::Xid, before_parts, swap]
    } else {
        let [reseat, swap] = [Step::Reseat, Step::Swap].map(|step| step(Part::SharedHop));
        vec![Step::PcieErrors, before_parts, reseat, swap]
    };
    Plan::check_without(Work::OnMachine).if_it_stays(own)
}
