//! Routes of data through a simulated machine, and the rates of their links. This code is separate from the topology
//! room on purpose: the simulated machine is an independent judge of the same physics.

use model::snapshot::{CommonAncestor, PciKind};
use model::units::{PciAddress, PcieLink};

use super::hops::Sleep;
use super::spec::{FunctionSpec, GpuSpec, MachineSpec, NvLinkSpec, NvLinkTarget, Shared, WakeSpec};

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

/// Returns the payload rate of a PCIe link per direction after encoding, GB/s: 8b/10b up to Gen2, 128b/130b up to Gen5,
/// and 236 of each 256 bytes of Gen6's flits.
pub(crate) fn pcie_gbps(link: PcieLink) -> f64 {
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
    links
        .link_gbps
        .unwrap_or_else(|| match links.version.split('.').next() {
            Some("1") => 20.0,
            Some("2" | "3" | "4") => 25.0,
            _ => 50.0,
        })
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
        (Some("1" | "2" | "3"), Some(gbps)) => (gbps * 1e3) as u32,
        (_, Some(gbps)) => (gbps * 1.0625e3) as u32,
        (Some("1"), None) => 20_000,
        (Some("2" | "3"), None) => 25_781,
        (Some("4"), None) => 26_562,
        (_, None) => 53_125,
    }
}

impl MachineSpec {
    /// Returns the functions from this address up to the root port, itself first.
    fn path_up(&self, address: PciAddress) -> Vec<&FunctionSpec> {
        let parent =
            |function: &&FunctionSpec| function.parent.and_then(|parent| self.function(parent));
        std::iter::successors(self.function(address), parent)
            .take(64)
            .collect()
    }

    /// Returns the function at the lower end of this function's link, where the link is described for both ends. A port
    /// that leads downwards is the upper end of its link; any other function is the lower end.
    fn lower_end<'a>(&'a self, function: &'a FunctionSpec) -> Option<&'a FunctionSpec> {
        match function.kind {
            PciKind::RootPort | PciKind::SwitchDownstream => self
                .pci
                .iter()
                .find(|below| below.parent == Some(function.address)),
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
        let faults = self
            .faults
            .links
            .iter()
            .filter(|fault| fault.function == lower);
        faults
            .filter_map(|fault| fault.trains_down_to)
            .next()
            .or_else(|| self.trained(function))
    }

    /// Returns the trained state of the link at this function. The specification of the link's lower end holds for both
    /// ends.
    pub fn trained(&self, function: &FunctionSpec) -> Option<PcieLink> {
        let lower = self.lower_end(function)?;
        let max = lower.max?;
        let both = match lower
            .parent
            .and_then(|parent| self.function(parent))
            .and_then(|upper| upper.max)
        {
            Some(upper) => max.least(upper),
            None => max,
        };
        Some(lower.trained.unwrap_or(both))
    }

    /// Returns the payload rate of a hop, GB/s, before protocol overhead.
    fn hop_gbps(&self, hop: Hop) -> f64 {
        match hop {
            Hop::Pcie { lower, .. } => self
                .function(lower)
                .and_then(|function| self.loaded(function))
                .map_or(f64::INFINITY, pcie_gbps),
            Hop::Uplink { uplink, .. } => self
                .uplinks
                .get(uplink)
                .map_or(f64::INFINITY, |uplink| uplink.gbps),
            Hop::Interconnect { .. } => self.speeds.interconnect_gbps,
            Hop::HostMemory { node, written } => self.host_memory_gbps(node, written),
            Hop::NvSwitch { gpu, .. } => self.nvlinks_gbps(gpu, NvLinkTarget::Switch),
            Hop::NvLink { from, to } => self.nvlinks_gbps(from, NvLinkTarget::Gpu(to)),
        }
    }

    /// Returns the total rate of all flows over a hop, GB/s.
    pub(crate) fn shared_gbps(&self, hop: Hop) -> f64 {
        let share = match hop {
            Hop::Pcie { .. } | Hop::Uplink { .. } => self.speeds.pcie_shared,
            Hop::NvSwitch { .. } | Hop::NvLink { .. } => self.speeds.nvlink_shared,
            Hop::Interconnect { .. } | Hop::HostMemory { .. } => 1.0,
        };
        share * self.hop_gbps(hop)
    }

    /// Returns the total rate of several flows over a hop, GB/s, if a fault makes it less than that of one.
    pub(crate) fn collapsed_gbps(&self, hop: Hop) -> Option<f64> {
        self.faults
            .collapses
            .iter()
            .find(|collapse| applies_to(collapse.at, hop))
            .map(|collapse| collapse.gbps)
    }

    /// Returns the GPU whose flows get too little when several pass a hop, and the largest part of it that they get.
    pub fn starved(&self, hop: Hop) -> Option<(u32, f64)> {
        let starved = self
            .faults
            .starved
            .iter()
            .find(|starved| applies_to(starved.at, hop));
        starved.map(|starved| (starved.gpu, starved.part))
    }

    /// Returns when a hop falls asleep and how it wakes up; `None` if it never sleeps.
    pub fn sleep(&self, hop: Hop) -> Option<Sleep> {
        let Hop::Pcie { lower, .. } = hop else {
            return None;
        };
        let WakeSpec {
            after_ms,
            for_ms,
            share,
        } = self.function(lower)?.wakes?;
        Some(Sleep {
            after_ns: after_ms * 1e6,
            lasts_ns: for_ms * 1e6,
            share,
        })
    }

    /// Returns the share of their rate that direct copies from this GPU keep if a port redirects them.
    pub fn redirect_share(&self, source: u32) -> f64 {
        let path = self.gpu_path(source);
        let port = path.iter().find(|function| function.acs_redirect);
        port.and_then(|port| port.redirect_share).unwrap_or(1.0)
    }

    /// Returns the rate of the memory of a NUMA node, GB/s.
    fn host_memory_gbps(&self, node: u32, written: bool) -> f64 {
        let node = self.numa_nodes.get(node as usize);
        let own = node.and_then(|node| {
            if written {
                node.write_gbps
            } else {
                node.read_gbps
            }
        });
        own.unwrap_or(self.speeds.host_memory_gbps)
    }

    /// Returns the payload rate of the narrowest link of a route, GB/s. The interconnect and host memory do not
    /// count if there is a link: they limit the flows that share them, and no rate is reported as a share of theirs.
    pub(crate) fn bottleneck_gbps(&self, route: &Route) -> f64 {
        let is_link =
            |hop: &&Hop| !matches!(hop, Hop::Interconnect { .. } | Hop::HostMemory { .. });
        let any = route.hops.iter().any(|hop| is_link(&hop));
        let hops = route.hops.iter().filter(|hop| !any || is_link(hop));
        hops.map(|hop| self.hop_gbps(*hop))
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns the payload rate of a GPU's active NVLinks to this target, GB/s.
    fn nvlinks_gbps(&self, gpu: u32, target: NvLinkTarget) -> f64 {
        let Some(gpu) = self.gpus.get(gpu as usize) else {
            return 0.0;
        };
        let links = gpu
            .nvlinks
            .iter()
            .filter(|links| links.active && links.remote == target);
        links
            .map(|links| f64::from(links.count) * nvlink_gbps(links))
            .sum()
    }

    /// Returns the route of direct copies.
    pub(crate) fn direct_route(&self, source: u32, destination: u32) -> Route {
        let is_over_pcie = self
            .faults
            .over_pcie
            .iter()
            .any(|pairs| pairs.contains(source, destination));
        let over_nvlink = if is_over_pcie {
            None
        } else {
            self.nvlink_route(source, destination)
        };
        over_nvlink.unwrap_or_else(|| self.pcie_route(source, destination))
    }

    /// Returns the route over NVLinks, if there are any.
    fn nvlink_route(&self, source: u32, destination: u32) -> Option<Route> {
        if self.nvlinks_gbps(source, NvLinkTarget::Gpu(destination)) > 0.0 {
            let hops = vec![Hop::NvLink {
                from: source,
                to: destination,
            }];
            return Some(Route {
                class: PathClass::NvLink,
                hops,
            });
        }
        let switched = |gpu| self.nvlinks_gbps(gpu, NvLinkTarget::Switch) > 0.0;
        (switched(source) && switched(destination)).then(|| {
            let hops = vec![
                Hop::NvSwitch {
                    gpu: source,
                    up: true,
                },
                Hop::NvSwitch {
                    gpu: destination,
                    up: false,
                },
            ];
            Route {
                class: PathClass::NvLink,
                hops,
            }
        })
    }

    fn pcie_route(&self, source: u32, destination: u32) -> Route {
        let (up, down) = (self.gpu_path(source), self.gpu_path(destination));
        // With access control on, the port nearest to the source sends requests up to the root.
        let redirected = up.iter().any(|function| function.acs_redirect);
        let meet = if redirected {
            None
        } else {
            up.iter().find(|above| down.contains(above)).copied()
        };
        let mut hops = links(&up, meet, true);
        // Traffic between root ports that share an uplink does not pass it: the device above them routes it, as a
        // switch does.
        let (above, below) = (self.uplink_above(&up), self.uplink_above(&down));
        let over_the_top = meet.is_none() && (redirected || above.is_none() || above != below);
        let uplink = |uplink: Option<usize>, up| {
            uplink
                .filter(|_| over_the_top)
                .map(|uplink| Hop::Uplink { uplink, up })
        };
        hops.extend(uplink(above, true));
        let crosses = meet.is_none() && self.crosses_sockets(&up, &down, &mut hops);
        hops.extend(uplink(below, false));
        hops.extend(links(&down, meet, false).into_iter().rev());
        Route {
            class: if crosses {
                PathClass::CrossSocket
            } else {
                PathClass::Pcie
            },
            hops,
        }
    }

    /// Returns the route of copies through host memory.
    pub(crate) fn staged_route(&self, source: u32, destination: u32) -> Route {
        let (up, down) = (self.gpu_path(source), self.gpu_path(destination));
        let mut hops = links(&up, None, true);
        hops.extend(
            self.uplink_above(&up)
                .map(|uplink| Hop::Uplink { uplink, up: true }),
        );
        // The driver stages in memory near the source, so that memory is both written and read.
        let node = up
            .first()
            .and_then(|function| function.numa_node)
            .unwrap_or(0);
        hops.extend([true, false].map(|written| Hop::HostMemory { node, written }));
        hops.extend(
            self.uplink_above(&down)
                .map(|uplink| Hop::Uplink { uplink, up: false }),
        );
        hops.extend(links(&down, None, false).into_iter().rev());
        Route {
            class: PathClass::Staged,
            hops,
        }
    }

    /// Returns the route between a GPU and the memory of a NUMA node, towards the GPU or from it.
    pub(crate) fn host_route(&self, gpu: u32, node: u32, to_device: bool) -> Route {
        let path = self.gpu_path(gpu);
        let own = path
            .first()
            .and_then(|function| function.numa_node)
            .unwrap_or(node);
        let spec = self.gpus.get(gpu as usize);
        let mut hops = Vec::new();
        if !spec.is_some_and(GpuSpec::beside_pcie) {
            hops.extend(links(&path, None, true));
            hops.extend(
                self.uplink_above(&path)
                    .map(|uplink| Hop::Uplink { uplink, up: true }),
            );
        }
        hops.extend((own != node).then_some(Hop::Interconnect {
            from: own,
            to: node,
        }));
        hops.push(Hop::HostMemory {
            node,
            written: true,
        });
        if to_device {
            let back = |hop: Hop| {
                hop.reversed().unwrap_or(Hop::HostMemory {
                    node,
                    written: false,
                })
            };
            hops = hops.into_iter().rev().map(back).collect();
        }
        Route {
            class: PathClass::Staged,
            hops,
        }
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
        self.gpus
            .get(gpu as usize)
            .map_or_else(Vec::new, |gpu| self.path_up(gpu.pci))
    }

    /// Returns the uplink that the root port at the end of a path shares with others.
    fn uplink_above(&self, path: &[&FunctionSpec]) -> Option<usize> {
        let root = path.last()?.address;
        self.uplinks
            .iter()
            .position(|uplink| uplink.ports.contains(&root))
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
    let below = path
        .iter()
        .take_while(|function| meet.is_none_or(|meet| meet.address != function.address));
    below
        .filter(|function| !matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream))
        .map(|function| Hop::Pcie {
            lower: function.address,
            up,
        })
        .collect()
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

#[cfg(test)]
#[path = "routes_tests.rs"]
mod tests;
