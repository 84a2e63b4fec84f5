//! Rates of hops: alone, shared, asleep and with faults.

use model::units::PcieLink;

use super::{Hop, Route};
use crate::counts::each_link;
use crate::hops::Sleep;
use crate::spec::{
    C2cSpec, LinkWay, MachineSpec, NvLinkFault, NvLinkSpec, NvLinkTarget, Shared, WakeSpec,
};

/// Returns the payload rate of a PCIe link per direction after encoding, GB/s: 8b/10b up to Gen2, 128b/130b up to Gen5,
/// and 236 of each 256 bytes of Gen6's flits.
pub(super) fn pcie_gbps(link: PcieLink) -> f64 {
    let (gt, encoding) = match link.generation.number() {
        1 => (2.5, 0.8),
        2 => (5.0, 0.8),
        3 => (8.0, 128.0 / 130.0),
        4 => (16.0, 128.0 / 130.0),
        5 => (32.0, 128.0 / 130.0),
        _ => (64.0, 236.0 / 256.0),
    };
    gt * encoding * f64::from(link.width.number()) / 8.0
}

/// Returns the payload rate of one of these NVLinks per direction, GB/s.
fn nvlink_gbps(links: &NvLinkSpec) -> f64 {
    links.link_gbps.map_or_else(
        || match links.version.split('.').next() {
            Some("1") => 20.0,
            Some("2" | "3" | "4") => 25.0,
            _ => 50.0,
        },
        |gbps| *gbps,
    )
}

/// Returns the rate of one of these NVLinks as NVML reports it, MB/s. On versions 4 and 5 it is the raw rate, 6.25%
/// above payload. On version 3 the 14062 of GA102 boards is the payload rate itself.
pub(crate) fn nvlink_mbps(links: &NvLinkSpec) -> u32 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are small and positive"
    )]
    match (links.version.split('.').next(), links.link_gbps) {
        (Some("1" | "2" | "3"), Some(gbps)) => (*gbps * 1e3) as u32,
        (_, Some(gbps)) => (*gbps * 1.0625e3) as u32,
        (Some("1"), None) => 20_000,
        (Some("2" | "3"), None) => 25_781,
        (Some("4"), None) => 26_562,
        (_, None) => 53_125,
    }
}

impl MachineSpec {
    /// Returns the payload rate of a hop, GB/s, before protocol overhead.
    fn hop_gbps(&self, hop: Hop) -> f64 {
        match hop {
            Hop::Pcie { lower, .. } => self
                .function(lower)
                .and_then(|function| self.loaded(function))
                .map_or(f64::INFINITY, pcie_gbps),
            Hop::Uplink { uplink, .. } => {
                self.uplinks.get(uplink).map_or(f64::INFINITY, |uplink| *uplink.gbps)
            }
            Hop::Interconnect { .. } => *self.speeds.interconnect_gbps,
            Hop::HostMemory { node, written } => self.host_memory_gbps(node, written),
            Hop::NvSwitch { gpu, up } => {
                let way = if up { LinkWay::Sent } else { LinkWay::Received };
                self.slowest_gbps(gpu, NvLinkTarget::Switch, way)
            }
            Hop::C2c { gpu, .. } => {
                let links = self.gpus.get(gpu as usize).and_then(|gpu| gpu.c2c_links.as_ref());
                links.map_or(f64::INFINITY, C2cSpec::gbps)
            }
            Hop::NvLink { from, to } => {
                let of = |gpu, other, way| self.slowest_gbps(gpu, NvLinkTarget::Gpu(other), way);
                of(from, to, LinkWay::Sent).min(of(to, from, LinkWay::Received))
            }
        }
    }

    /// Returns the total rate of all flows over a hop, GB/s.
    pub(crate) fn shared_gbps(&self, hop: Hop) -> f64 {
        let share = match hop {
            Hop::Pcie { .. } | Hop::Uplink { .. } => *self.speeds.pcie_shared,
            Hop::NvSwitch { .. } | Hop::NvLink { .. } => *self.speeds.nvlink_shared,
            Hop::Interconnect { .. } | Hop::HostMemory { .. } | Hop::C2c { .. } => 1.0,
        };
        share * self.hop_gbps(hop)
    }

    /// Returns the total rate of several flows over a hop, GB/s, if a fault makes it less than that of one.
    pub(crate) fn collapsed_gbps(&self, hop: Hop) -> Option<f64> {
        self.faults
            .collapses
            .iter()
            .find(|collapse| applies_to(collapse.at, hop))
            .map(|collapse| *collapse.gbps)
    }

    /// Returns when a hop falls asleep and how it wakes up; `None` if it never sleeps.
    pub fn sleep(&self, hop: Hop) -> Option<Sleep> {
        let Hop::Pcie { lower, .. } = hop else {
            return None;
        };
        let WakeSpec { after_ms, for_ms, share } = self.function(lower)?.wakes?;
        Some(Sleep { after_ns: *after_ms * 1e6, lasts_ns: *for_ms * 1e6, share: *share })
    }

    /// Returns the share of their rate that direct copies from this GPU keep if a port redirects them.
    pub fn redirect_share(&self, source: u32) -> f64 {
        let path = self.gpu_path(source);
        let port = path.iter().find(|function| function.acs_redirect);
        port.and_then(|port| port.redirect_share).map_or(1.0, |share| *share)
    }

    /// Returns the rate of the memory of a NUMA node, GB/s.
    fn host_memory_gbps(&self, node: u32, written: bool) -> f64 {
        let node = self.numa_nodes.get(node as usize);
        let own = node.and_then(|node| if written { node.write_gbps } else { node.read_gbps });
        *own.unwrap_or(self.speeds.host_memory_gbps)
    }

    /// Returns the payload rate of the narrowest link of a route, GB/s. The interconnect and host memory do not
    /// count if there is a link: they limit the flows that share them, and no rate is reported as a share of theirs.
    pub(crate) fn bottleneck_gbps(&self, route: &Route) -> f64 {
        let is_link =
            |hop: &&Hop| !matches!(hop, Hop::Interconnect { .. } | Hop::HostMemory { .. });
        let any = route.hops.iter().any(|hop| is_link(&hop));
        let hops = route.hops.iter().filter(|hop| !any || is_link(hop));
        hops.map(|hop| self.hop_gbps(*hop)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the total payload rate of a GPU's links to a target that are in use, GB/s.
    pub(super) fn nvlinks_gbps(&self, gpu: u32, target: NvLinkTarget) -> f64 {
        self.used(gpu, target).map(|(links, _)| nvlink_gbps(links)).sum()
    }

    /// Returns the same in one direction. Copies are spread evenly, so that they wait for the slowest link.
    fn slowest_gbps(&self, gpu: u32, target: NvLinkTarget, way: LinkWay) -> f64 {
        let slowest = self.used(gpu, target).map(|(_, link)| self.link_share(gpu, link, None, way));
        self.nvlinks_gbps(gpu, target) * slowest.fold(1.0, f64::min)
    }

    fn used(&self, gpu: u32, target: NvLinkTarget) -> impl Iterator<Item = (&NvLinkSpec, u8)> {
        let own = self.gpus.get(gpu as usize).into_iter().flat_map(each_link);
        own.filter(move |(links, link)| {
            links.active && links.remote == target && self.is_used(gpu, *link)
        })
    }

    /// Returns the links of a GPU over which its traffic to another one goes, in order.
    pub(crate) fn links_towards(&self, gpu: u32, other: u32) -> Vec<u8> {
        let of = |target| self.used(gpu, target).map(|(_, link)| link).collect::<Vec<_>>();
        match of(NvLinkTarget::Gpu(other)) {
            none if none.is_empty() => of(NvLinkTarget::Switch),
            direct => direct,
        }
    }

    fn nvlink_faults(&self, gpu: u32, link: u8) -> impl Iterator<Item = &NvLinkFault> {
        let faults = self.faults.nvlinks.iter();
        faults.filter(move |fault| fault.gpu == gpu && fault.link == u32::from(link))
    }

    fn is_used(&self, gpu: u32, link: u8) -> bool {
        !self.nvlink_faults(gpu, link).any(|fault| fault.unused)
    }

    /// Returns the share of its rate that a link reaches in one direction: towards every GPU, and towards this one.
    fn link_share(&self, gpu: u32, link: u8, to: Option<u32>, way: LinkWay) -> f64 {
        let acts = |fault: &&NvLinkFault| {
            (fault.to.is_none() || fault.to == to) && fault.only.is_none_or(|only| only == way)
        };
        self.nvlink_faults(gpu, link).filter(acts).map(|fault| *fault.rate).fold(1.0, f64::min)
    }

    /// Returns the payload rate of a link between two GPUs, from the first to the second, by its numbers at both ends, and the
    /// factor of a load's time.
    pub(crate) fn link_shape(&self, (from, to): (u32, u32), ends: Option<[u8; 2]>) -> (f64, f64) {
        let Some([own, far]) = ends else {
            return (self.gpus.get(from as usize).map_or(1.0, |of| *of.local_gbps), 1.0);
        };
        let ends = [(from, own, to, LinkWay::Sent), (to, far, from, LinkWay::Received)];
        let gbps = ends.map(|(gpu, link, other, way)| {
            let own = self.gpus.get(gpu as usize).into_iter().flat_map(each_link);
            let of = own.filter(|(_, number)| *number == link).map(|(links, _)| nvlink_gbps(links));
            of.sum::<f64>() * self.link_share(gpu, link, Some(other), way)
        });
        let late = ends.map(|(gpu, link, other, _)| {
            let acts = |fault: &&NvLinkFault| fault.to.is_none_or(|only| only == other);
            let faults = self.nvlink_faults(gpu, link).filter(acts);
            faults.map(|fault| *fault.latency).product::<f64>()
        });
        (gbps[0].min(gbps[1]), late[0] * late[1])
    }

    /// Returns the share of its rate that a pair reaches, because a way of its own is slow.
    pub(crate) fn ways_share(&self, from: u32, to: u32) -> f64 {
        let of = |gpu: u32, other: u32| {
            let faults = self.faults.nvlinks.iter();
            let of_pair = faults.filter(move |fault| fault.gpu == gpu && fault.to == Some(other));
            of_pair.map(|fault| *fault.rate).fold(1.0, f64::min)
        };
        of(from, to).min(of(to, from))
    }
}

/// Returns true if a fault applies to this hop, in either direction.
fn applies_to(at: Shared, hop: Hop) -> bool {
    match (at, hop) {
        (Shared::Pci(function), Hop::Pcie { lower, .. }) => function == lower,
        (Shared::Uplink(place), Hop::Uplink { uplink, .. }) => place == uplink,
        (Shared::Interconnect, Hop::Interconnect { .. }) => true,
        (Shared::Nvlinks(meant), Hop::NvSwitch { gpu, .. }) => meant == gpu,
        _ => false,
    }
}
