//! Tells if several flows at once reached their expected rate over a link or with a GPU. Counters are judged together
//! with this.

use super::load_judged::{self, Judged};
use super::prelude::*;
use topology::load::Leg;

/// Returns true if too little passed the NVLinks of a GPU; `None` if no pattern that passes them was judged.
pub(super) fn is_low_over_nvlinks(evidence: &Evidence<'_>, gpu: u32) -> Option<bool> {
    let is_own = |step: &Leg<'_>| {
        let ends = [step.1.upper, step.1.lower];
        step.1.kind == LinkKind::NvLink && ends.contains(&NodeId::Gpu(gpu))
    };
    is_low(evidence, |judged, flow| passes(judged, flow, is_own))
}

/// Returns true if too little passed a PCIe link; `None` if no pattern that passes it was judged. Leaves out flows that other
/// parts of the machine explain, by their names.
pub(super) fn is_low_over_pcie(
    evidence: &Evidence<'_>,
    link: &Connection,
    elsewhere: &BTreeSet<FigureKey>,
) -> Option<bool> {
    let of = |link: &Connection| (link.port, link.below, link.gpu);
    let is_own = |step: &Leg<'_>| step.1.pcie.as_ref().is_some_and(|own| of(own) == of(link));
    is_low(evidence, |judged, flow| {
        let is_elsewhere = || {
            let flow = judged.flow(flow);
            flow.is_some_and(|flow| elsewhere.contains(&judged.key_of(flow)))
        };
        passes(judged, flow, is_own) && (elsewhere.is_empty() || !is_elsewhere())
    })
}

/// Returns true if a pattern with this GPU reached too little; `None` if none was judged.
pub(super) fn is_low_with(evidence: &Evidence<'_>, gpu: u32) -> Option<bool> {
    is_low(evidence, |judged, flow| {
        let flow = judged.flow(flow);
        flow.is_some_and(|flow| flow.ends().contains(&Endpoint::Gpu(gpu)))
    })
}

/// Returns true if a flow of a pattern passes such a hop.
fn passes(judged: &Judged<'_>, flow: usize, is_meant: impl Fn(&Leg<'_>) -> bool) -> bool {
    let way = judged.predicted.load.ways.get(flow);
    way.is_some_and(|way| way.iter().any(is_meant))
}

/// Sums the selected flows of each pattern, and returns true if any sum is too low.
fn is_low(evidence: &Evidence<'_>, is_meant: impl Fn(&Judged<'_>, usize) -> bool) -> Option<bool> {
    let low = |judged: Judged<'_>| {
        let mut flows = judged.all();
        flows.retain(|flow| is_meant(&judged, *flow));
        (!flows.is_empty()).then(|| Judged::sum(&judged.achieved, &flows) < judged.floor(&flows))
    };
    let judged = load_judged::judged(evidence).into_iter();
    judged.filter_map(low).reduce(|one, other| one || other)
}
