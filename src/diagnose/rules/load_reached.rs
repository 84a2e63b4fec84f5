//! Whether several flows at once reached what they should over a link or with a GPU: what counters are judged together
//! with.

use super::load::{self, Judged};
use super::prelude::*;
use crate::model::flow::Endpoint;
use crate::model::measurement::AroundLoad;
use crate::model::node::NodeId;
use crate::model::topology::LinkKind;
use crate::topology::load::Step;
use crate::topology::pcie::Connection;

/// Whether too little passed the NVLinks of a GPU; none where no pattern that does so was judged.
pub fn is_low_over_nvlinks(evidence: &Evidence<'_>, gpu: u32) -> Option<bool> {
    is_low_over(evidence, |step| {
        let ends = [step.1.upper, step.1.lower];
        step.1.kind == LinkKind::NvLink && ends.contains(&NodeId::Gpu(gpu))
    })
}

/// Whether too little passed a PCIe link; none where no pattern that passes it was judged.
pub fn is_low_over_pcie(evidence: &Evidence<'_>, link: &Connection) -> Option<bool> {
    let of = |link: &Connection| (link.port, link.below, link.gpu);
    is_low_over(evidence, |step| {
        step.1.pcie.as_ref().is_some_and(|own| of(own) == of(link))
    })
}

/// Whether a pattern with this GPU reached too little; none where none was judged.
pub fn is_low_with(evidence: &Evidence<'_>, gpu: u32) -> Option<bool> {
    is_low(evidence, |judged, flow| {
        let flow = judged.pattern.flows.get(flow).map(|flow| flow.flow());
        flow.is_some_and(|flow| flow.ends().contains(&Endpoint::Gpu(gpu)))
    })
}

fn is_low_over(evidence: &Evidence<'_>, passes: impl Fn(&Step<'_>) -> bool) -> Option<bool> {
    is_low(evidence, |judged, flow| {
        judged
            .predicted
            .load
            .ways
            .get(flow)
            .is_some_and(|way| way.iter().any(&passes))
    })
}

/// Of the flows that are meant, those of one pattern together.
fn is_low(evidence: &Evidence<'_>, is_meant: impl Fn(&Judged<'_>, usize) -> bool) -> Option<bool> {
    let low = |judged: Judged<'_>| {
        let flows: Vec<usize> = judged
            .all()
            .into_iter()
            .filter(|flow| is_meant(&judged, *flow))
            .collect();
        (!flows.is_empty()).then(|| Judged::sum(&judged.achieved, &flows) < judged.floor(&flows))
    };
    load::judged(evidence)
        .into_iter()
        .filter_map(low)
        .reduce(|one, other| one || other)
}

/// What was counted around the load patterns of a GPU.
pub fn around<'a>(evidence: &Evidence<'a>, gpu: u32) -> Option<&'a AroundLoad> {
    evidence
        .measurements?
        .around_load
        .iter()
        .find(|seen| seen.gpu == gpu)
}
