//! NVLinks that all GPUs of a model lack below NVSwitches: a loss that comparing them with each other cannot show.

use super::nvlink_ends::{Links, link_numbers, numbers};
use super::nvlink_missing::is_board;
use super::prelude::*;
use crate::models;

/// Returns the steps if NVSwitches connect the GPUs.
pub(super) fn behind_switches(last: Step) -> Plan {
    Plan::now([Step::FabricManager, Step::XidOf("74"), Step::PowerCycle]).if_it_stays([last])
}

/// Returns the finding on GPUs that all reach NVSwitches over fewer links than their model has.
pub(super) fn finding(
    rule: &Rule,
    evidence: &Evidence<'_>,
    model: &str,
    gpus: &[Links<'_>],
) -> Option<Finding> {
    let most = gpus.iter().map(|links| links.active.len()).max()?;
    let made = models::switched_links(model)?;
    let gpus = best_of(evidence, gpus, most);
    // In a virtual machine the host decides which links it shows, and a partition may have fewer.
    if gpus.is_empty() || !is_board(evidence, model) || !(1..made.into()).contains(&most) {
        return None;
    }
    let snapshot = evidence.snapshot;
    // Links that are down are listed too: a list without any was cut, unless a matrix counts the same.
    let is_cut = |links: &&Links<'_>| links.inactive.is_empty();
    if evidence.read_from.is_some() && snapshot.bonds.is_empty() && gpus.iter().all(is_cut) {
        return None;
    }
    // The matrix of another tool shows the same of GPUs whose links it does not list.
    let of = words::grouped(snapshot.bonds.iter().map(|bond| (bond.source, bond.links)));
    let alike = of.iter().filter(|(gpu, links)| {
        let name = snapshot.gpu(**gpu).and_then(|gpu| gpu.name.known());
        links.iter().all(|links| *links < made) && name.is_some_and(|name| name == model)
    });
    let listed = gpus.iter().map(|links| links.gpu.index);
    let indices = words::unique(listed.chain(alike.map(|(gpu, _)| *gpu)));
    // All GPUs mostly lack the same ones, which are then named once.
    let lacks: BTreeSet<Vec<u8>> = gpus.iter().map(|links| lacking(links, made)).collect();
    let named = words::distinct(lacks.iter().map(|links| numbers(links)));
    let message = format!(
        "{}: {most} of {made} NVLinks up; NVLinks {named} are not, which {model} has{}",
        evidence.named(&indices),
        unreached(evidence, &gpus),
    );
    let inactive: Facts = match (lacks.first(), lacks.len()) {
        (Some(alike), 1) => [("each", link_numbers(alike))].into_iter().collect(),
        _ => gpus
            .iter()
            .map(|links| (format!("gpu{}", links.gpu.index), link_numbers(&lacking(links, made))))
            .collect(),
    };
    let plan = behind_switches(Step::Service(Served::Board));
    Some(rule.on_gpus(&indices, message, plan).fact("inactive_links", inactive))
}

/// Returns the GPUs of a module that reach NVSwitches, over as many links as the best.
fn best_of<'a>(evidence: &Evidence<'_>, gpus: &'a [Links<'a>], most: usize) -> Vec<&'a Links<'a>> {
    let switched = |links: &&Links<'_>| {
        let leads_to_switch = |link: &NvLink| link.remote.get() == Some(NvLinkRemote::Switch);
        // Other tools list links without their ends, and bridges join no module.
        let unread = |link: &NvLink| link.remote.known().is_none();
        let is_open = evidence.read_from.is_some() && links.up().all(unread);
        links.gpu.mig.get() != Some(true) && (is_open || links.up().any(leads_to_switch))
    };
    gpus.iter().filter(switched).filter(|links| links.active.len() == most).collect()
}

/// Returns the numbers of the links of a model with so many that are not up on this GPU.
fn lacking(links: &Links<'_>, made: u8) -> Vec<u8> {
    (0..made).filter(|link| !links.active.contains(link)).collect()
}

/// Returns the NVSwitches that no link of these GPUs leads to, in words: one that lost its power or its fabric.
fn unreached(evidence: &Evidence<'_>, gpus: &[&Links<'_>]) -> String {
    let reached: BTreeSet<PciAddress> =
        gpus.iter().flat_map(|links| links.remotes().flatten()).collect();
    let switches = evidence.snapshot.nvswitches.iter();
    let silent: Vec<String> = switches
        .map(|switch| switch.address)
        .filter(|address| !reached.is_empty() && !reached.contains(address))
        .map(|address| address.to_string())
        .collect();
    words::after("; none leads to NVSwitch ", Some(silent.join(", ")))
}
