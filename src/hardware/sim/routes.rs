//! Routes of data through a simulated machine, and the rates of their links. This code is separate from the topology
//! room on purpose: the simulated machine is an independent judge of the same physics.

mod rates;

use model::pcie::DEEPEST;
use model::snapshot::{CommonAncestor, PciKind};
use model::units::{PciAddress, PcieLink};

use super::spec::{FunctionSpec, GpuSpec, MachineSpec, NvLinkTarget};

pub(crate) use self::rates::nvlink_mbps;

/// One direction of a link, or of another resource that data passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hop {
    /// The PCIe link above this function; `up` is towards the root.
    Pcie { lower: PciAddress, up: bool },
    /// The link that several root ports share; `up` is towards the processor.
    Uplink { uplink: usize, up: bool },
    /// The link between two NUMA nodes.
    Interconnect { from: u32, to: u32 },
    /// The memory of a NUMA node, written or read.
    HostMemory { node: u32, written: bool },
    /// A GPU's NVLinks to the switches; `up` is towards the switches.
    NvSwitch { gpu: u32, up: bool },
    /// The NVLinks between two GPUs.
    NvLink { from: u32, to: u32 },
    /// The links of a GPU to the processor of its module; `up` is towards the processor.
    C2c { gpu: u32, up: bool },
}

impl Hop {
    /// Returns the same hop in the other direction; `None` if both directions share it.
    pub const fn reversed(self) -> Option<Self> {
        match self {
            Self::Pcie { lower, up } => Some(Self::Pcie { lower, up: !up }),
            Self::Uplink { uplink, up } => Some(Self::Uplink { uplink, up: !up }),
            Self::Interconnect { from, to } => Some(Self::Interconnect { from: to, to: from }),
            Self::HostMemory { .. } => None,
            Self::NvSwitch { gpu, up } => Some(Self::NvSwitch { gpu, up: !up }),
            Self::NvLink { from, to } => Some(Self::NvLink { from: to, to: from }),
            Self::C2c { gpu, up } => Some(Self::C2c { gpu, up: !up }),
        }
    }
}

/// The kind of connection between two GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathClass {
    NvLink,
    /// PCIe within a socket.
    Pcie,
    /// PCIe and the interconnect of the sockets.
    CrossSocket,
    /// Through host memory.
    Staged,
}

/// A route with its hops.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    pub class: PathClass,
    /// The hops in order.
    pub hops: Vec<Hop>,
}

impl MachineSpec {
    /// Returns the functions from this address up to the root port, itself first.
    fn path_up(&self, address: PciAddress) -> Vec<&FunctionSpec> {
        let parent =
            |function: &&FunctionSpec| function.parent.and_then(|parent| self.function(parent));
        std::iter::successors(self.function(address), parent).take(DEEPEST).collect()
    }

    /// Returns the function at the lower end of this function's link, where the link is described for both ends. A port
    /// that leads downwards is the upper end of its link; any other function is the lower end.
    fn lower_end<'a>(&'a self, function: &'a FunctionSpec) -> Option<&'a FunctionSpec> {
        match function.kind {
            PciKind::RootPort | PciKind::SwitchDownstream => {
                self.pci.iter().find(|below| below.parent == Some(function.address))
            }
            _ => Some(function),
        }
    }

    /// Returns the state of the link at this function while it is idle.
    pub fn idle(&self, function: &FunctionSpec) -> Option<PcieLink> {
        let trained = self.trained(function);
        let Some(idle) = self.lower_end(function)?.idle else {
            return trained;
        };
        // An idle link may be slower, but never wider.
        Some(PcieLink {
            width: trained.map_or(idle.width, |trained| idle.width.min(trained.width)),
            ..idle
        })
    }

    /// Returns the state of the link at this function after copies have run for a while.
    pub fn loaded(&self, function: &FunctionSpec) -> Option<PcieLink> {
        let lower = self.lower_end(function)?.address;
        let faults = self.faults.links.iter().filter(|fault| fault.function == lower);
        faults.filter_map(|fault| fault.trains_down_to).next().or_else(|| self.trained(function))
    }

    /// Returns the trained state of the link at this function. The specification of the link's lower end holds for both
    /// ends.
    pub fn trained(&self, function: &FunctionSpec) -> Option<PcieLink> {
        let lower = self.lower_end(function)?;
        let max = lower.max?;
        let both =
            match lower.parent.and_then(|parent| self.function(parent)).and_then(|upper| upper.max)
            {
                Some(upper) => max.least(upper),
                None => max,
            };
        Some(lower.trained.unwrap_or(both))
    }

    /// Returns the route of direct copies.
    pub(crate) fn direct_route(&self, source: u32, destination: u32) -> Route {
        let is_over_pcie =
            self.faults.over_pcie.iter().any(|pairs| pairs.contains(source, destination));
        let over_nvlink = if is_over_pcie { None } else { self.nvlink_route(source, destination) };
        over_nvlink.unwrap_or_else(|| self.pcie_route(source, destination))
    }

    /// Returns the route over NVLinks, if there are any.
    fn nvlink_route(&self, source: u32, destination: u32) -> Option<Route> {
        if self.nvlinks_gbps(source, NvLinkTarget::Gpu(destination)) > 0.0 {
            let hops = vec![Hop::NvLink { from: source, to: destination }];
            return Some(Route { class: PathClass::NvLink, hops });
        }
        let switched = |gpu| self.nvlinks_gbps(gpu, NvLinkTarget::Switch) > 0.0;
        (switched(source) && switched(destination)).then(|| {
            let hops = vec![
                Hop::NvSwitch { gpu: source, up: true },
                Hop::NvSwitch { gpu: destination, up: false },
            ];
            Route { class: PathClass::NvLink, hops }
        })
    }

    fn pcie_route(&self, source: u32, destination: u32) -> Route {
        let (up, down) = (self.gpu_path(source), self.gpu_path(destination));
        // With access control on, the port nearest to the source sends requests up to the root.
        let redirected = up.iter().any(|function| function.acs_redirect);
        let meet =
            if redirected { None } else { up.iter().find(|above| down.contains(above)).copied() };
        let mut hops = links(&up, meet, true);
        // Traffic between root ports that share an uplink does not pass it: the device above them routes it, as a
        // switch does.
        let (above, below) = (self.uplink_above(&up), self.uplink_above(&down));
        let over_the_top = meet.is_none() && (redirected || above.is_none() || above != below);
        let uplink = |uplink: Option<usize>, up| {
            uplink.filter(|_| over_the_top).map(|uplink| Hop::Uplink { uplink, up })
        };
        hops.extend(uplink(above, true));
        let crosses = meet.is_none() && self.crosses_sockets(&up, &down, &mut hops);
        hops.extend(uplink(below, false));
        hops.extend(links(&down, meet, false).into_iter().rev());
        Route { class: if crosses { PathClass::CrossSocket } else { PathClass::Pcie }, hops }
    }

    /// Returns the route of copies through host memory.
    pub(crate) fn staged_route(&self, source: u32, destination: u32) -> Route {
        let (up, down) = (self.gpu_path(source), self.gpu_path(destination));
        let mut hops = links(&up, None, true);
        hops.extend(self.uplink_above(&up).map(|uplink| Hop::Uplink { uplink, up: true }));
        // The driver stages in memory near the source, so that memory is both written and read.
        let node = up.first().and_then(|function| function.numa_node).unwrap_or(0);
        hops.extend([true, false].map(|written| Hop::HostMemory { node, written }));
        hops.extend(self.uplink_above(&down).map(|uplink| Hop::Uplink { uplink, up: false }));
        hops.extend(links(&down, None, false).into_iter().rev());
        Route { class: PathClass::Staged, hops }
    }

    /// Returns the route between a GPU and the memory of a NUMA node, towards the GPU or from it.
    pub(crate) fn host_route(&self, gpu: u32, node: u32, to_device: bool) -> Route {
        let path = self.gpu_path(gpu);
        let own = path.first().and_then(|function| function.numa_node).unwrap_or(node);
        let spec = self.gpus.get(gpu as usize);
        let mut hops = Vec::new();
        if !spec.is_some_and(GpuSpec::beside_pcie) {
            hops.extend(links(&path, None, true));
            hops.extend(self.uplink_above(&path).map(|uplink| Hop::Uplink { uplink, up: true }));
        }
        let shows = spec.is_some_and(|spec| spec.c2c && spec.c2c_links.is_some());
        hops.extend(shows.then_some(Hop::C2c { gpu, up: true }));
        hops.extend((own != node).then_some(Hop::Interconnect { from: own, to: node }));
        hops.push(Hop::HostMemory { node, written: true });
        if to_device {
            let back =
                |hop: Hop| hop.reversed().unwrap_or(Hop::HostMemory { node, written: false });
            hops = hops.into_iter().rev().map(back).collect();
        }
        Route { class: PathClass::Staged, hops }
    }

    /// Returns the lowest PCI level that two GPUs share, in NVML's levels.
    pub fn common_ancestor(&self, a: u32, b: u32) -> CommonAncestor {
        let (a, b) = (self.gpu_path(a), self.gpu_path(b));
        if let Some(meet) = a.iter().find(|above| b.contains(above)) {
            let below = |path: &[&FunctionSpec]| {
                let upstream = |f: &&&FunctionSpec| f.kind == PciKind::SwitchUpstream;
                path.iter()
                    .take_while(|function| function.address != meet.address)
                    .filter(upstream)
                    .count()
            };
            let switches =
                below(&a) + below(&b) + usize::from(meet.kind == PciKind::SwitchUpstream);
            return if switches <= 1 {
                CommonAncestor::SingleSwitch
            } else {
                CommonAncestor::MultipleSwitches
            };
        }
        match (a.first(), b.first()) {
            (Some(a), Some(b)) if a.host_bridge == b.host_bridge => CommonAncestor::HostBridge,
            (Some(a), Some(b)) if a.numa_node.is_some() && a.numa_node == b.numa_node => {
                CommonAncestor::NumaNode
            }
            _ => CommonAncestor::System,
        }
    }

    /// Returns true if two GPUs reach each other over NVLink.
    pub(crate) fn joined_by_nvlink(&self, source: u32, destination: u32) -> bool {
        self.nvlink_route(source, destination).is_some()
    }

    fn gpu_path(&self, gpu: u32) -> Vec<&FunctionSpec> {
        self.gpus.get(gpu as usize).map_or_else(Vec::new, |gpu| self.path_up(gpu.pci))
    }

    /// Returns the uplink that the root port at the end of a path shares with others.
    fn uplink_above(&self, path: &[&FunctionSpec]) -> Option<usize> {
        let root = path.last()?.address;
        self.uplinks.iter().position(|uplink| uplink.ports.contains(&root))
    }

    fn crosses_sockets(
        &self,
        up: &[&FunctionSpec],
        down: &[&FunctionSpec],
        hops: &mut Vec<Hop>,
    ) -> bool {
        let node = |path: &[&FunctionSpec]| path.first().and_then(|function| function.numa_node);
        match (node(up), node(down)) {
            (Some(from), Some(to)) if from != to => {
                hops.push(Hop::Interconnect { from, to });
                true
            }
            _ => false,
        }
    }
}

/// Returns the links on a path, up to but not including the function where another path joins. A link belongs to its
/// lower end, so root ports and downstream ports have no link of their own.
fn links(path: &[&FunctionSpec], meet: Option<&FunctionSpec>, up: bool) -> Vec<Hop> {
    let below =
        path.iter().take_while(|function| meet.is_none_or(|meet| meet.address != function.address));
    below
        .filter(|function| !matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream))
        .map(|function| Hop::Pcie { lower: function.address, up })
        .collect()
}

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
