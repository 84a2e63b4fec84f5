//! NVLinks of a GPU, counted by where they lead.

use std::collections::BTreeMap;

use super::capacity;
use model::placement::Pair;
use model::reading::{Reading, Unknown};
use model::snapshot::{FabricState, Gpu, NvLink, NvLinkBond, NvLinkRemote, P2pStatus, Snapshot};
use model::units::PciAddress;

/// Several active NVLinks together.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    pub links: u8,
    /// Description, such as `18 x NVLink 4.0`.
    pub label: String,
    /// Payload rate per direction of all links together, GB/s.
    pub gbps: Option<f64>,
    /// Source of the rate.
    pub origin: String,
}

/// The connection of two GPUs by NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Number of links from one GPU to the other.
    Direct(u8),
    /// Number of links of both GPUs to switches. Like nvidia-smi, takes the smaller number.
    Switched(u8),
    /// NVML reports that they are connected, but not by which links.
    Unclear,
}

fn active(gpu: &Gpu) -> impl Iterator<Item = &NvLink> {
    gpu.nvlinks.known().into_iter().flatten().filter(|link| link.active.get() == Some(true))
}

/// Returns the active links of this GPU to the other one, or `None` if there are none.
pub fn direct(gpu: &Gpu, other: &Gpu) -> Option<Bundle> {
    let address = other.pci.get()?;
    bundle(active(gpu).filter(|link| link.remote_pci.get() == Some(address)).collect())
}

/// Returns the active links of this GPU to switches, or `None` if there are none.
///
/// Virtual machines hide the switch's address, and some drivers hide its type. If the GPU's fabric is set up, a link
/// whose remote type is missing counts as a link to a switch.
pub fn switched(gpu: &Gpu) -> Option<Bundle> {
    let fabric = gpu.fabric.known().is_some_and(|fabric| fabric.state == FabricState::Completed);
    let leads_to_switch = |link: &&NvLink| match link.remote.get() {
        Some(remote) => remote == NvLinkRemote::Switch,
        None => fabric && link.remote_pci.get().is_none(),
    };
    bundle(active(gpu).filter(leads_to_switch).collect())
}

/// Returns the NVLinks of a GPU to switches by their number alone, if a tool counted them: the most to any other GPU.
pub(crate) fn bonded_to_switches(snapshot: &Snapshot, gpu: u32) -> Option<Bundle> {
    let own = |bond: &&NvLinkBond| bond.over_switches && bond.source == gpu;
    let bonds = snapshot.bonds.iter().filter(own);
    of_bond(bonds.max_by_key(|bond| bond.links)?)
}

/// Returns the NVLinks between these two by their number alone, if a tool counted them, and whether they pass switches.
pub(crate) fn bonded(snapshot: &Snapshot, pair: Pair) -> Option<(Bundle, bool)> {
    let said = |pair: Pair| {
        let mut bonds = snapshot.bonds.iter();
        bonds.find(|bond| (bond.source, bond.destination) == (pair.source, pair.destination))
    };
    // The two directions should agree. If not, only the smaller number of links is reliable.
    let bond = said(pair).into_iter().chain(said(pair.reversed())).min_by_key(|bond| bond.links)?;
    Some((of_bond(bond)?, bond.over_switches))
}

fn of_bond(bond: &NvLinkBond) -> Option<Bundle> {
    let link = NvLink {
        version: known_or(bond.version.clone()),
        speed_mbps: known_or(bond.speed_mbps),
        ..NvLink::unread(0, &Unknown::Unsupported)
    };
    bundle(vec![&link; usize::from(bond.links)])
}

fn known_or<T>(value: Option<T>) -> Reading<T> {
    value.map_or(Reading::unsupported(), Reading::Known)
}

fn bundle(links: Vec<&NvLink>) -> Option<Bundle> {
    let first = links.first()?;
    let rates: Vec<_> = links
        .iter()
        .filter_map(|link| capacity::nvlink(link.version.known()?, link.speed_mbps.get()))
        .collect();
    let count = u8::try_from(links.len()).unwrap_or(u8::MAX);
    let version = first.version.known().map_or(String::new(), |version| format!(" {version}"));
    let label = format!("{count} x NVLink{version}");
    // A link without a known rate counts as the slowest of the others in the bundle.
    let slowest = rates.iter().map(|rate| rate.gbps).min_by(f64::total_cmp);
    let known: f64 = rates.iter().map(|rate| rate.gbps).sum();
    let gbps = slowest.map(|slowest| {
        let unknown = u32::try_from(links.len() - rates.len()).unwrap_or(u32::MAX);
        known + slowest * f64::from(unknown)
    });
    let origin = match rates.first() {
        Some(rate) => format!("{label}; {}", rate.source),
        None => format!("{label}: the rate of this version is not known"),
    };
    Some(Bundle { links: count, label, gbps, origin })
}

/// The active NVLinks of a GPU, counted by where they lead. Counted once per GPU, because it belongs to many pairs.
#[derive(Debug)]
pub struct Ends<'a> {
    gpu: &'a Gpu,
    to: BTreeMap<PciAddress, u8>,
    to_switches: Option<u8>,
    /// True if the remote end of some link is hidden.
    hidden: bool,
}

impl<'a> Ends<'a> {
    pub fn of(gpu: &'a Gpu) -> Self {
        let mut to: BTreeMap<PciAddress, u8> = BTreeMap::new();
        for address in active(gpu).filter_map(|link| link.remote_pci.get()) {
            let count = to.entry(address).or_default();
            *count = count.saturating_add(1);
        }
        let hidden = active(gpu).any(|link| {
            link.remote.get() != Some(NvLinkRemote::Switch) && link.remote_pci.get().is_none()
        });
        Self { gpu, to, to_switches: switched(gpu).map(|bundle| bundle.links), hidden }
    }

    fn links_to(&self, other: &Self) -> Option<u8> {
        self.to.get(&other.gpu.pci.get()?).copied()
    }
}

/// Returns the NVLink connection of this ordered pair, if it has one.
pub fn join(snapshot: &Snapshot, source: &Ends<'_>, destination: &Ends<'_>) -> Option<Join> {
    let pair = Pair { source: source.gpu.index, destination: destination.gpu.index };
    let said = snapshot.pair(pair);
    // NVML's "unknown" does not mean that access is refused.
    if said
        .and_then(|pair| pair.p2p_nvlink.get())
        .is_some_and(|word| !matches!(word, P2pStatus::Ok | P2pStatus::Unknown))
    {
        return None;
    }
    match (source.links_to(destination), destination.links_to(source)) {
        (Some(there), Some(back)) => return Some(Join::Direct(there.min(back))),
        // An address that only one side reports (a virtual machine may hide it) still connects both.
        (Some(links), None) | (None, Some(links)) => return Some(Join::Direct(links)),
        (None, None) => {}
    }
    let bonded = bonded(snapshot, pair);
    match (source.to_switches, destination.to_switches) {
        (Some(there), Some(back)) => {
            // A number that a tool printed for the pair is that of the pair.
            let links = bonded.map_or(there.min(back), |(bond, _)| bond.links);
            fabric_joins(source.gpu, destination.gpu).then_some(Join::Switched(links))
        }
        _ => {
            match bonded {
                Some((bond, true)) if fabric_joins(source.gpu, destination.gpu) => {
                    return Some(Join::Switched(bond.links));
                }
                Some((bond, false)) => return Some(Join::Direct(bond.links)),
                _ => {}
            }
            // With the PCI tree as the route, an NVLink copy would be judged by a PCIe rate.
            let word = said.and_then(|pair| pair.p2p_nvlink.get());
            (word == Some(P2pStatus::Ok) && source.hidden && destination.hidden)
                .then_some(Join::Unclear)
        }
    }
}

/// Returns true if the links of this GPU lead to NVSwitches, or may do so, regardless of the state of their fabric.
pub fn may_reach_switches(gpu: &Gpu) -> bool {
    let leads_on = |link: &NvLink| {
        link.active.get() != Some(false)
            && !matches!(link.remote.get(), Some(NvLinkRemote::Gpu | NvLinkRemote::Npu))
    };
    match gpu.nvlinks.known() {
        Some(links) => links.iter().any(leads_on),
        None => gpu.nvlinks != Reading::unsupported(),
    }
}

/// Returns true if the switches carry data between these two: both registered, in one clique of one cluster. GPUs
/// before Hopper have no fabric state, so nothing contradicts it.
fn fabric_joins(source: &Gpu, destination: &Gpu) -> bool {
    let registered = |gpu: &Gpu| {
        gpu.fabric.known().is_none_or(|fabric| match fabric.state {
            FabricState::NotSupported => true,
            FabricState::NotStarted | FabricState::InProgress => false,
            FabricState::Completed => fabric.status == 0,
        })
    };
    let same = match (source.fabric.known(), destination.fabric.known()) {
        (Some(one), Some(other)) => {
            one.clique_id == other.clique_id && one.cluster_uuid == other.cluster_uuid
        }
        _ => true,
    };
    registered(source) && registered(destination) && same
}
