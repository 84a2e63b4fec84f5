//! The same machine without its losses: every PCIe link as wide and fast as both its ends can be, every NVLink of the
//! model up. A reference that follows a degraded link would call a fault normal: "104% of expected" of a card with one of
//! its sixteen lanes.

use std::collections::BTreeMap;

use super::build;
use super::host::c2c_made;
use model::reading::Reading;
use model::snapshot::{C2cLinks, Gpu, NvLink, NvLinkRemote, P2pStatus, Snapshot};
use model::topology::{Link, PairRoute, Topology};

/// Returns the facts and the graph of the healthy machine; `None` if nothing is known to be lost. `made` returns the number
/// of NVLinks that NVSwitches connect on GPUs of this name. What the driver refuses stays refused, and no link or route
/// carries less than it does now.
pub fn of(
    snapshot: &Snapshot,
    topology: &Topology,
    made: impl Fn(&str) -> Option<u8>,
) -> Option<(Snapshot, Topology)> {
    let mut healthy = snapshot.clone();
    let raised = raise_nvlinks(&mut healthy, made) | raise_c2c(&mut healthy);
    if !widen(&mut healthy, topology) && !raised {
        return None;
    }
    let mut found = build(&healthy);
    for link in &mut found.links {
        let same =
            |is: &&Link| (is.upper, is.lower, is.kind) == (link.upper, link.lower, link.kind);
        let is = topology.links.iter().find(same);
        let keeps = |is: &Link| {
            is.pcie.as_ref().is_some_and(|pcie| pcie.placeholder)
                || link.capacity_gbps <= is.capacity_gbps
        };
        if let Some(is) = is.filter(|is| keeps(is)) {
            *link = is.clone();
        }
    }
    for route in &mut found.pairs {
        let Some(is) = topology.route(route.pair) else { continue };
        let staged_theoretical_gbps = match route.staged_theoretical_gbps {
            staged if staged > is.staged_theoretical_gbps => staged,
            _ => is.staged_theoretical_gbps,
        };
        let peer_access = is.peer_access.clone();
        let better = is
            .theoretical_gbps
            .is_some_and(|is| route.theoretical_gbps.is_some_and(|rate| rate > is));
        let way = if better { route.clone() } else { is.clone() };
        *route = PairRoute { staged_theoretical_gbps, peer_access, ..way };
    }
    Some((healthy, found))
}

/// Makes narrow PCIe links read what both their ends can do, and the others what they are believed to be. Returns true if
/// one is narrow.
fn widen(snapshot: &mut Snapshot, topology: &Topology) -> bool {
    let links = || topology.links.iter().filter_map(|link| link.pcie.as_ref());
    for link in links() {
        let shape = if link.narrow.is_empty() { link.now } else { link.possible };
        let ends = [link.port, link.below];
        let at = |address| ends.contains(&Some(address));
        for end in snapshot.pci.iter_mut().filter(|function| at(function.address)) {
            set(&mut end.width, shape.width);
            set(&mut end.generation, shape.generation);
        }
        for gpu in snapshot.gpus.iter_mut().filter(|gpu| link.gpu == Some(gpu.index)) {
            set(&mut gpu.pcie_width, shape.width);
        }
    }
    links().any(|link| !link.narrow.is_empty())
}

fn set<T>(reading: &mut Reading<T>, value: Option<T>) {
    if let Some(value) = value {
        *reading = Reading::Known(value);
    }
}

fn up(gpu: &Gpu) -> impl Iterator<Item = &NvLink> {
    gpu.nvlinks.known().into_iter().flatten().filter(|link| link.active.get() == Some(true))
}

/// Raises the NVLinks that GPUs of a model lack. Returns true if there are any.
fn raise_nvlinks(snapshot: &mut Snapshot, made: impl Fn(&str) -> Option<u8>) -> bool {
    let mut models: BTreeMap<String, Vec<&Gpu>> = BTreeMap::new();
    // MIG mode takes NVLinks down on purpose.
    for gpu in snapshot.gpus.iter().filter(|gpu| gpu.mig.get() != Some(true)) {
        if let (Some(name), Some(_)) = (gpu.name.known(), gpu.nvlinks.known()) {
            models.entry(name.clone()).or_default().push(gpu);
        }
    }
    let guest = snapshot.host.virtual_machine.get() == Some(true);
    let lost = |(name, gpus): (&String, &Vec<&Gpu>)| {
        // The host decides which links a virtual machine sees, and a partition may have fewer.
        let made = made(name).filter(|_| !guest);
        match gpus.iter().any(|gpu| leads_to_gpu(gpu)) {
            true => between_gpus(gpus),
            false => to_switches(gpus, made.map_or(0, usize::from)),
        }
    };
    let lost: Vec<(u32, Vec<NvLink>)> = models.iter().flat_map(lost).collect();
    for (index, links) in &lost {
        for gpu in snapshot.gpus.iter_mut().filter(|gpu| gpu.index == *index) {
            if let Reading::Known(known) = &mut gpu.nvlinks {
                known.extend(links.iter().cloned());
            }
        }
        // NVML says of GPUs whose links are down that NVLink does not reach them.
        for pair in &mut snapshot.pairs {
            let refused = pair.p2p_nvlink.get().filter(|word| *word != P2pStatus::Ok);
            if [pair.source, pair.destination].contains(index) {
                set(&mut pair.p2p_nvlink, refused.map(|_| P2pStatus::Unknown));
            }
        }
    }
    !lost.is_empty()
}

/// Raises the links to the processor that GPUs lack. Returns true if there are any.
fn raise_c2c(snapshot: &mut Snapshot) -> bool {
    let rates = snapshot.gpus.iter().filter_map(|gpu| gpu.c2c_links.get()?.link_mbps);
    let best = rates.max();
    let raised = |gpu: &Gpu| {
        let (own, made) = (gpu.c2c_links.get()?, c2c_made(snapshot, gpu)?);
        let link_mbps = own.link_mbps.or(best);
        (own.active < made).then_some((gpu.index, C2cLinks { active: made, link_mbps, ..own }))
    };
    let raised: Vec<_> = snapshot.gpus.iter().filter_map(raised).collect();
    for (index, links) in &raised {
        for gpu in snapshot.gpus.iter_mut().filter(|gpu| gpu.index == *index) {
            gpu.c2c_links = Reading::Known(*links);
        }
    }
    !raised.is_empty()
}

fn leads_to_gpu(gpu: &Gpu) -> bool {
    up(gpu).any(|link| link.remote.get() == Some(NvLinkRemote::Gpu))
}

/// Returns the links that GPUs lack which NVSwitches connect: fewer than the best of them, or than the model is made with.
fn to_switches(gpus: &[&Gpu], made: usize) -> Vec<(u32, Vec<NvLink>)> {
    let best = gpus.iter().max_by_key(|gpu| up(gpu).count());
    let Some((best, link)) = best.and_then(|best| Some((best, up(best).next()?))) else {
        return Vec::new();
    };
    let to_switch = link.remote.get() == Some(NvLinkRemote::Switch);
    let all = up(best).count().max(if to_switch { made } else { 0 });
    let lacking = |gpu: &&Gpu| {
        let lacking = all - up(gpu).count();
        (lacking > 0).then(|| (gpu.index, vec![link.clone(); lacking]))
    };
    gpus.iter().filter_map(lacking).collect()
}

/// Returns the links that are down between GPUs which other links connect. A link that is down does not say where it led,
/// but both its ends show it: two GPUs that lost as many are the ends of the same links, and one that lost as many as all
/// others together is the common end.
fn between_gpus(gpus: &[&Gpu]) -> Vec<(u32, Vec<NvLink>)> {
    let most = gpus.iter().map(|gpu| up(gpu).count()).max().unwrap_or_default();
    let lost = |gpu: &Gpu| {
        let links = gpu.nvlinks.known().into_iter().flatten();
        let down = links.filter(|link| link.active.get() == Some(false)).count();
        down.min(most - up(gpu).count())
    };
    let short: Vec<&Gpu> =
        gpus.iter().copied().filter(|gpu| lost(gpu) > 0 && leads_to_gpu(gpu)).collect();
    let Some(hub) = short.iter().max_by_key(|gpu| lost(gpu)) else { return Vec::new() };
    let others = || short.iter().filter(|gpu| gpu.index != hub.index);
    if others().map(|gpu| lost(gpu)).sum::<usize>() != lost(hub) {
        return Vec::new();
    }
    let leading = |from: &Gpu, to: &Gpu, count: usize| {
        let link = NvLink { remote_pci: to.pci.clone(), ..up(from).next()?.clone() };
        Some((from.index, vec![link; count]))
    };
    let both = |other: &&Gpu| {
        [leading(hub, other, lost(other)), leading(other, hub, lost(other))].into_iter().flatten()
    };
    others().flat_map(both).collect()
}
