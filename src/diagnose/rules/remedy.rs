//! Next steps for copies between GPUs that lose their bytes or never end: how to run safely today, how to find the
//! cause, and the repair. Settings that the facts show to be off are not to be switched off.

use super::peer_access;
use super::prelude::*;
use crate::cluster::{Common, Group};

/// Returns the steps for these pairs, in one text. `find` leads to the cause once settings are ruled out; `repair` is
/// last.
pub(super) fn steps(
    evidence: &Evidence<'_>,
    group: &Group,
    find: Vec<String>,
    repair: &str,
) -> String {
    let mut search = settings(evidence, &group.pairs);
    search.extend(find);
    format!(
        "{}. To find the cause, {}. {repair}",
        today(evidence, group),
        search.join("; ")
    )
}

/// Returns how programs run safely until the repair.
pub(super) fn today(evidence: &Evidence<'_>, group: &Group) -> String {
    let through_host = through_host(evidence, &group.pairs);
    if through_host == Some(false) {
        let gpus: Vec<u32> = suspects::gpus_of(&group.pairs).into_iter().collect();
        return format!(
            "Take {} out of service today: copies through host memory go wrong there too",
            words::all_or(evidence.snapshot, &gpus)
        );
    }
    if let Some(level) = level(evidence) {
        return format!(
            "To run safely today, set NCCL_P2P_LEVEL={level} (pairs as near as that are sound) and use no peer access \
             beyond that in other programs"
        );
    }
    let host = if through_host == Some(true) {
        "arrive intact"
    } else {
        "were not checked"
    };
    let without = match group.common {
        Common::Gpu(gpu) => format!(", or leave GPU {gpu} out"),
        _ => String::new(),
    };
    format!(
        "To run safely today, set NCCL_P2P_DISABLE=1 and use no peer access in other programs (copies through host \
         memory {host}){without}"
    )
}

/// Returns true if copies of these pairs through host memory arrive; `None` if that was not checked.
fn through_host(evidence: &Evidence<'_>, pairs: &[Pair]) -> Option<bool> {
    let staged = evidence
        .peer()
        .iter()
        .filter(|cell| cell.setup.path == Path::Staged && pairs.contains(&cell.pair));
    let judged = staged.filter_map(|cell| match (cell.ending.status, cell.verified) {
        (Status::Hung, _) | (_, Verified::Dropped | Verified::Corrupt) => Some(false),
        (_, Verified::Ok) => Some(true),
        _ => None,
    });
    judged.min()
}

/// Returns the farthest level of `NCCL_P2P_LEVEL` that allows only pairs nearer than all that go wrong. Requires that
/// half of the pairs from that distance on go wrong: a single pair is not wrong because of its distance.
fn level(evidence: &Evidence<'_>) -> Option<&'static str> {
    let far = |pair: Pair| nccl_level(evidence.topology.route(pair)?.class);
    let direct = || {
        evidence
            .peer()
            .iter()
            .filter(|cell| cell.setup.path == Path::Direct)
    };
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
    let nearer = sound
        .filter_map(|cell| far(cell.pair))
        .filter(|level| *level < nearest_wrong);
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

/// Returns the next steps for the settings of the machine: those that are on, and those that could not be read.
pub(super) fn settings(evidence: &Evidence<'_>, pairs: &[Pair]) -> Vec<String> {
    if !pairs.iter().any(|pair| evidence.over_pcie(*pair)) {
        return Vec::new();
    }
    if evidence.virtual_machine() {
        return vec![
            "have whoever runs the host look at IOMMU translation and ACS there (ACSCtl of the bridges above the GPUs): \
             a guest can neither see nor change them"
                .into(),
        ];
    }
    let gpus = suspects::gpus_of(pairs);
    let mut steps = Vec::new();
    match suspects::iommu_translates(evidence, &gpus) {
        Some(true) => steps.push("boot with iommu=pt, or with the IOMMU off in BIOS, and check again".into()),
        Some(false) => {}
        None => steps.push(
            "look whether the IOMMU translates (cat /sys/kernel/iommu_groups/*/type: DMA or DMA-FQ; iommu=pt ends that)"
                .into(),
        ),
    }
    let ports = suspects::redirecting_ports(evidence, &gpus);
    if !ports.is_empty() {
        steps.push(format!(
            "clear ACS ({}; in BIOS to make it last) and check again",
            suspects::clear_acs(&ports)
        ));
    } else if suspects::acs_is_unread(evidence, &gpus) {
        steps.push("run the check as root, which sees whether ACS redirects".into());
    }
    if peer_access::patched(evidence, pairs) {
        steps.push(
            "check again with NVIDIA's own driver, which refuses peer access on these boards"
                .into(),
        );
    }
    steps
}
