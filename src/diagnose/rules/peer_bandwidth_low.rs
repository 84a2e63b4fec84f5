//! # What it means
//!
//! Copies between two GPUs are clearly slower than the links between them allow. Collective operations run at the speed
//! of the slowest pair.
//!
//! # What to do
//!
//! Follow other findings on the same GPU first: a narrow PCIe link or an inactive NVLink is a cause, this is its
//! effect. Without any, stop other work on the GPUs and check again. Then look for NVLink errors
//! (`nvidia-smi nvlink -e`), clocks that are held back (`nvidia-smi -q -d PERFORMANCE`), and an IOMMU or access control
//! (ACS) that sends peer traffic through the processor.
//!
//! # How it is detected
//!
//! Reference figures (copy engine, issued by the source, one way, side streams, peer access on) that one change of the
//! machine slows lie below what healthy machines reach, by more than the margin of the class and than they scatter.
//! Classes: `nvlink-2` to `nvlink-5`, `pcie` below one switch, `pcie-root` below one host bridge, `pcie-far` elsewhere
//! and in virtual machines; models such as `h200` have narrower margins. `--config` sets both (`[expected.nvlink-4]`,
//! `percent` and `margin_percent`).
//!
//! # Sources
//!
//! Healthy machines reach 88% of the payload rate (8 x H200, measured), 84 to 90% over PCIe on one socket, 62 to 81%
//! across sockets (published).

use super::peers::{self, Explained, Figures};
use super::prelude::*;
use super::remedy;

rule! {
    "peer-bandwidth-low", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let explained = peers::explained(evidence, Figures::Direct).into_iter();
    let read = explained.filter_map(|one| one.read(evidence));
    let low = read.filter(|one| one.is_low(evidence));
    low.filter_map(|one| finding(evidence, &one)).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let (group, worst) = (&explained.group, explained.worst()?);
    let expected = evidence.expected(worst.cell)?;
    // For a group, the narrowest hop of one of its pairs would mislead. Of two directions the first is used: which one
    // is slower may depend on a digit that a saved report lacks.
    let message = format!(
        "Copies {} reach {}",
        evidence.place(group),
        words::of_healthy(worst.achieved, expected.gbps, expected.floor_gbps()),
    );
    let plan = plan(evidence, group);
    let other_way = match (&group.common, group.pairs.as_slice()) {
        (Common::OnePair, [pair]) => {
            evidence.reference_of(Path::Direct, pair.reversed()).and_then(|cell| cell.achieved_gbps)
        }
        _ => None,
    };
    let mut found = explained
        .finding((&RULE, evidence), message, plan)
        .fact("expected", expected.gbps)
        .fact("other_direction", other_way);
    found.suspects = suspects::of_slow_group(evidence, group);
    Some(found)
}

/// Returns the steps by what the slow pairs have in common.
fn plan(evidence: &Evidence<'_>, group: &cluster::Group) -> Plan {
    let settings = || remedy::settings(evidence, &group.pairs);
    let stop = |work| Plan::check_without(work);
    match &group.common {
        Common::Gpu(index) => Plan::now([Step::OtherFindings(all(&[*index]))]).otherwise([
            Step::Stop(Work::OnGpus),
            Step::CheckAgain,
            Step::LinkErrors,
            Step::Clocks,
            Step::Reseat(Part::of(&[*index])),
            Step::Swap(Part::of(&[*index])),
        ]),
        Common::Link([NodeId::Pci(_), _]) => Plan::now([Step::SharedHop, Step::CheckIdle]),
        Common::Link(_) => Plan::now([Step::ProcessorLinks, Step::CheckIdle]),
        Common::Everything => {
            stop(Work::OnMachine).if_it_stays(settings()).if_it_stays([Step::Clocks])
        }
        Common::OnePair if evidence.any_over_pcie(&group.pairs) => {
            stop(Work::OnGpus).if_it_stays(settings()).if_it_stays([Step::ChipsetSlot])
        }
        Common::OnePair => stop(Work::OnGpus).if_it_stays([Step::LinkErrors]),
    }
}
