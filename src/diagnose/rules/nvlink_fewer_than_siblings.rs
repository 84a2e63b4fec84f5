//! # What it means
//!
//! A GPU lists fewer NVLinks than its siblings, and none as down. Every missing link takes its share of the
//! bandwidth.
//!
//! # What to do
//!
//! Compare `nvidia-smi nvlink -s` of this GPU with another. With NVSwitch: read the fabric manager's log, since it
//! disables links that fail training, and power-cycle the machine. With bridges: check if one is missing or half
//! seated. Swap the GPU to see if the fault moves with it.
//!
//! # How it is detected
//!
//! The expected number is the larger of the most active links of another GPU of the model and the links of other GPUs
//! that lead to this one. It is a warning if links lead to GPUs, since a bridge may never have been fitted; but a
//! part for an SXM socket without any link is an error (a warning in a virtual machine). Not reported: the same
//! number on all GPUs, a card without links beside bridged ones, MIG mode.
//!
//! # Sources
//!
//! NVIDIA fabric manager user guide. Some H100 parts have 12 links by design: checks that derive the number from the
//! name report them as faulty.

use super::nvlink_ends::Links;
use super::nvlink_missing;
use super::prelude::*;
use model::snapshot::{NvLink, NvLinkRemote};

pub(crate) const RULE: Rule = Rule::new("nvlink-fewer-than-siblings", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let all = evidence.snapshot.gpus.iter().filter_map(Links::of);
    let all: Vec<Links<'_>> = all.filter(Links::are_known).collect();
    let mut most: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
    for links in &all {
        if let Some(name) = links.gpu.name.known() {
            let own = (links.active.len(), links.gpu.index);
            let entry = most.entry(name).or_insert(own);
            if entry.0 < own.0 {
                *entry = own;
            }
        }
    }
    let bridged = all.iter().any(Links::leads_to_gpu);
    let short = |links: &Links<'_>| {
        let (gpu, active) = (links.gpu, links.active.len());
        let of_like = most.get(gpu.name.known()?.as_str()).copied();
        let of_remotes = claimed_by_others(&all, gpu);
        let (should, sibling) = match (of_like, of_remotes) {
            (Some((like, index)), claimed) if like >= claimed => (like, Some(index)),
            (_, claimed) => (claimed, None),
        };
        // Bridges connect some cards of a machine and leave others without any link.
        let without_bridge = active == 0 && of_remotes == 0 && bridged && !is_part_of_board(gpu);
        let mig = active == 0 && gpu.mig.get() == Some(true);
        (active < should && links.inactive.is_empty() && !without_bridge && !mig)
            .then(|| finding(evidence, links, should, sibling, bridged))
    };
    all.iter().filter_map(short).collect()
}

fn finding(
    evidence: &Evidence<'_>,
    links: &Links<'_>,
    should: usize,
    sibling: Option<u32>,
    bridged: bool,
) -> Finding {
    let (gpu, active) = (links.gpu, links.active.len());
    let compared = match sibling {
        Some(index) => format!("GPU {index}, of the same model, has {should}"),
        None => format!("other GPUs have {should} that lead to it"),
    };
    let look = match nvlink_missing::may_have_bridge(evidence, gpu.index) {
        true => Step::BridgesFitted(all(&[gpu.index])),
        false => Step::FabricLog,
    };
    let mut found = RULE
        .finding(
            Subject::Gpu { index: gpu.index },
            format!(
                "{} has {} and no inactive one; {compared}",
                words::gpu(evidence.snapshot, gpu.index),
                words::count(active, "active NVLink"),
            ),
            Plan::now([Step::LinkStatesOf(Listed(vec![gpu.index])), look, Step::PowerCycle])
                .if_it_stays([Step::Swap(Part::Gpu(steps::gpu(gpu.index)))]),
        )
        .fact("active_count", active)
        .fact("active_count_of_like_gpus", should);
    let on_board = active == 0 && is_part_of_board(gpu);
    if bridged && (!on_board || evidence.virtual_machine()) {
        found.severity = Severity::Warning;
    }
    if bridged && !on_board {
        found.suspects.push(suspect(Cause::BridgeMissing, [Step::BridgeMissing]));
    }
    let swap = Step::SwapTest(Part::Gpu(steps::gpu(gpu.index)));
    found.suspects.extend([
        suspect(Cause::LinksDisabled, [Step::TrainingLog]),
        suspect_if(Cause::GpuOrSeat, [swap], Sign::FaultMoves),
    ]);
    found
}

/// Returns true if its board connects it, and not a bridge.
fn is_part_of_board(gpu: &Gpu) -> bool {
    gpu.name.known().is_some_and(|name| nvlink_missing::is_sxm(name))
}

/// Returns how many active links of other GPUs lead to this one by their addresses.
fn claimed_by_others(all: &[Links<'_>], gpu: &Gpu) -> usize {
    let others = all.iter().filter(|other| other.gpu.index != gpu.index);
    let leads_here = |link: &&NvLink| {
        let address = link.remote_pci.get();
        link.remote.get() == Some(NvLinkRemote::Gpu)
            && address.is_some()
            && address == gpu.pci.get()
    };
    others.flat_map(Links::up).filter(leads_here).count()
}
