//! # What it means
//!
//! Copies with peer access are slower than copies through the host's memory.
//!
//! # What to do
//!
//! Until repaired, run without peer access between these GPUs (`NCCL_P2P_DISABLE=1` or `NCCL_P2P_LEVEL`). Move a card
//! from a slot of the chipset to one of the processor. Otherwise look for ACS that redirects, an IOMMU that
//! translates, and a small MaxPayload (`lspci -vvv`).
//!
//! # How it is detected
//!
//! The pair's direct reference figure lies below the staged one by more than the parameter and both spreads. If it also
//! lies below the floor of its class, it is an error that explains `peer-bandwidth-low`, unless more pairs are low than
//! are slower than staged: then `peer-bandwidth-low` explains it. It is an error too in the output of other tools that show one
//! PCIe switch above the pair.
//!
//! # Sources
//!
//! A card in a chipset slot fell from 6.4 to 2.0 GB/s with peer access on (published).

use super::bandwidth::{self, Compared};
use super::peers::{self, Explained, Figures};
use super::prelude::*;
use super::{peer_access, remedy, windows};

rule! {
    "direct-slower-than-staged", Warning, All(judge);
    /// how far below the staged figure the direct one may be; chosen above the 5 to 10 that repeats spread by
    /// (cuda-samples issue 449)
    BELOW: below_staged_percent = 10.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let margin = BELOW.margin(evidence);
    let staged = bandwidth::sound(evidence, Path::Staged);
    let direct = bandwidth::sound(evidence, Path::Direct).into_iter();
    let mut slower: Vec<Compared> =
        direct.filter_map(|(pair, direct)| Compared::of(direct, staged.get(&pair)?)).collect();
    let pairs = |all: &[Compared]| all.iter().map(|compared| compared.pair).collect::<Vec<_>>();
    let seen = pairs(&slower);
    slower.retain(|compared| compared.is_below(margin));
    let mut left = pairs(&slower);
    let mut groups = Vec::new();
    // Slow direct copies of several pairs have one cause.
    for Explained { group, .. } in peers::explained(evidence, Figures::Direct) {
        let (own, others) = left.into_iter().partition(|pair| group.pairs.contains(pair));
        left = others;
        groups.push(cluster::Group { pairs: own, ..group });
    }
    groups.extend(evidence.groups(&left, &seen));
    groups.iter().filter_map(|group| finding(evidence, group, &slower)).collect()
}

fn finding(
    evidence: &Evidence<'_>,
    group: &cluster::Group,
    slower: &[Compared],
) -> Option<Finding> {
    let worst = bandwidth::lowest(slower, group)?;
    let message = format!(
        "Copies {} reach {} GB/s with peer access and {} GB/s through the host's memory",
        evidence.place(group),
        worst.achieved,
        worst.normal,
    );
    // Below one switch nothing but ACS or the IOMMU sends copies another way.
    let class = |pair: &Pair| evidence.topology.route(*pair).map(|route| route.class);
    let is_near = |pair| class(pair).is_some_and(LinkClass::is_below_a_switch);
    let near = evidence.read_from.is_some() && group.pairs.iter().all(is_near);
    let found =
        RULE.on_group(group, message, plan(evidence, group, near)).at_if(near, Severity::Error);
    let mut suspects = suspects::of_pcie_settings(evidence, &group.pairs);
    let windows =
        windows::small(evidence, &group.pairs).filter(|_| evidence.any_over_pcie(&group.pairs));
    suspects.extend(windows.map(|windows| windows.suspect()));
    suspects.extend(peer_access::suspect_patched(evidence, &group.pairs));
    // A guest has no slots to change.
    if !evidence.virtual_machine() && !near {
        suspects.push(suspect(Cause::ChipsetOrProcessors, OTHER_SLOTS));
    }
    Some(found.suspecting(suspects))
}

/// The steps where the slots may be why.
const OTHER_SLOTS: [Step; 3] = [Step::ChipsetSlot, Step::NearSlots, Step::CheckAgain];

fn plan(evidence: &Evidence<'_>, group: &cluster::Group, near: bool) -> Plan {
    let own = match evidence.virtual_machine() {
        _ if evidence.any_over_nvlink(&group.pairs) => vec![Step::LinkErrors],
        _ if near => vec![Step::GiveOutput("'sudo lspci -vv' (ACSCtl of the switch)".into())],
        true => Vec::new(),
        false => OTHER_SLOTS.to_vec(),
    };
    Plan::until_repair([Step::DisablePeers(ThroughHost::Faster)])
        .then(remedy::settings(evidence, &group.pairs))
        .then(own)
}
