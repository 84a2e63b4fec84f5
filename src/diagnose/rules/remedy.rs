//! Next steps for copies between GPUs that lose their bytes or never end: how to run safely today, how to find the
//! cause, and the repair. Settings that the facts show to be off are not to be switched off.

use super::peer_access;
use super::prelude::*;

/// Returns the steps for these pairs. `find` leads to the cause once settings are ruled out.
pub(super) fn plan(evidence: &Evidence<'_>, group: &Group, find: Vec<Step>) -> Plan {
    Plan::until_repair(today(evidence, group)).then(settings(evidence, &group.pairs)).then(find)
}

/// Returns how programs run safely until the repair.
fn today(evidence: &Evidence<'_>, group: &Group) -> Vec<Step> {
    let through_host = through_host(evidence, &group.pairs);
    if through_host == Some(false) {
        return vec![Step::OutOfService(All(words::unique(suspects::gpus_of(&group.pairs))))];
    }
    if let Some(level) = level(evidence) {
        return vec![Step::NearPeersOnly(level)];
    }
    let disable = Step::DisablePeers(match through_host {
        Some(true) => ThroughHost::Intact,
        _ => ThroughHost::Unchecked,
    });
    match group.common {
        Common::Gpu(gpu) => vec![disable, Step::LeaveGpuOut(steps::gpu(gpu))],
        _ => vec![disable],
    }
}

/// Returns true if copies of these pairs through host memory arrive; `None` if that was not checked.
fn through_host(evidence: &Evidence<'_>, pairs: &[Pair]) -> Option<bool> {
    let staged = evidence
        .peer()
        .iter()
        .filter(|cell| cell.setup.path == Path::Staged && pairs.contains(&cell.pair));
    let judged = staged.filter_map(|cell| match (cell.ending.status, cell.verified) {
        (Status::Hung, _) | (_, Verified::Dropped | Verified::Stale | Verified::Corrupt) => {
            Some(false)
        }
        (_, Verified::Ok) => Some(true),
        _ => None,
    });
    judged.min()
}

/// Returns the farthest level of `NCCL_P2P_LEVEL` that allows only pairs nearer than all that go wrong. Requires that
/// half of the pairs from that distance on go wrong: a single pair is not wrong because of its distance.
fn level(evidence: &Evidence<'_>) -> Option<&'static str> {
    let far = |pair: Pair| nccl_level(evidence.topology.route(pair)?.class);
    let direct = || evidence.peer().iter().filter(|cell| cell.setup.path == Path::Direct);
    let is_wrong =
        |cell: &&PeerBandwidth| cell.verified.is_wrong() || cell.ending.status == Status::Hung;
    let wrong: BTreeSet<Pair> = direct().filter(is_wrong).map(|cell| cell.pair).collect();
    let nearest_wrong = wrong.iter().map(|pair| far(*pair)).min()??;
    let beyond: BTreeSet<Pair> = direct()
        .map(|cell| cell.pair)
        .filter(|pair| far(*pair).is_some_and(|level| level >= nearest_wrong))
        .collect();
    if wrong.len() * 2 < beyond.len() {
        return None;
    }
    let sound =
        direct().filter(|cell| cell.verified == Verified::Ok && !wrong.contains(&cell.pair));
    let nearer = sound.filter_map(|cell| far(cell.pair)).filter(|level| *level < nearest_wrong);
    nearer.max().map(|(_, name)| name)
}

/// Returns the distance that NCCL assumes between two GPUs of this class, and its name for it. NCCL does not
/// distinguish host bridges of one NUMA node.
const fn nccl_level(class: LinkClass) -> Option<(u8, &'static str)> {
    Some(match class {
        LinkClass::NvLink(_) => (0, "NVL"),
        LinkClass::Pix => (1, "PIX"),
        LinkClass::Pxb => (2, "PXB"),
        LinkClass::Phb | LinkClass::Node => (3, "PHB"),
        LinkClass::Sys => (4, "SYS"),
        LinkClass::Unknown => return None,
    })
}

/// Returns the step that reads the error counters of the links that these pairs pass.
pub(super) fn counters(evidence: &Evidence<'_>, pairs: &[Pair]) -> Step {
    match evidence.any_over_pcie(pairs) {
        true => Step::PcieErrors,
        false => Step::LinkErrors,
    }
}

/// Returns the steps for the settings of the machine: those that are on, and those that could not be read.
pub(super) fn settings(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<Step> {
    if !evidence.any_over_pcie(pairs) {
        return Vec::new();
    }
    if evidence.virtual_machine() {
        return vec![Step::AskHost(Ask::IommuAndAcs)];
    }
    let gpus = suspects::gpus_of(pairs);
    let mut steps = Vec::new();
    match suspects::iommu_translates(evidence, &gpus) {
        Some(true) => steps.extend([Step::PassThrough, Step::CheckAgain]),
        Some(false) => {}
        None => steps.push(Step::LookAtIommu),
    }
    let ports = suspects::redirecting_ports(evidence, &gpus);
    if !ports.is_empty() {
        steps.extend([Step::ClearAcs(AcsOf(ports)), Step::CheckAgain]);
    } else if suspects::acs_is_unread(evidence, &gpus) {
        steps.push(Step::RunAsRoot);
    }
    if peer_access::patched(evidence, pairs) {
        steps.push(Step::OwnDriver);
    }
    steps
}
