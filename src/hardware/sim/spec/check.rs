//! Consistency checks of a description. A mistake is reported with its key.

use std::collections::{HashMap, HashSet};

use super::problem::{Checked, Problem, ensure, problem};
use super::{FunctionSpec, GpuSpec, MachineSpec, NvLinkTarget, Pairs};
use model::pcie::DEEPEST;
use model::report::MOST_GPUS;
use model::snapshot::PciKind;
use model::units::{Bytes, MIB, PciAddress};

const MOST_FUNCTIONS: usize = 4096;
const MOST_OTHERS: usize = 1024;
/// Most rules for pairs: as many as there can be pairs.
const MOST_PAIR_RULES: usize = MOST_GPUS * MOST_GPUS;
/// Most NVLinks that NVML counts.
const MOST_NVLINKS: u32 = 32;
/// Most links to a processor. Chosen: GH200 has 10.
const MOST_C2C: u32 = 64;

impl MachineSpec {
    /// Checks everything that the simulation relies on.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn check(&self) -> Checked {
        self.sizes()?;
        let group = &self.host.control_group;
        ensure!(
            group.starts_with('/'),
            "host.control_group",
            "'{group}' does not begin at the top, which is /"
        );
        for (place, node) in self.numa_nodes.iter().enumerate() {
            some(node.memory, || format!("numa_nodes[{place}].memory"))?;
        }
        let places = self.tree()?;
        self.gpus_in_tree(&places)?;
        for (place, gpu) in self.gpus.iter().enumerate() {
            self.gpu(place, gpu)?;
        }
        self.nvlinks_both_ways()?;
        self.adapters_and_uplinks(&places)?;
        self.peers_and_devices()?;
        self.changes()?;
        self.faults(&self.faults, &places)
    }

    fn sizes(&self) -> Checked {
        for (key, length, most) in [
            ("gpus", self.gpus.len(), MOST_GPUS),
            ("pci", self.pci.len(), MOST_FUNCTIONS),
            ("adapters", self.adapters.len(), MOST_OTHERS),
            ("numa_nodes", self.numa_nodes.len(), MOST_OTHERS),
            ("uplinks", self.uplinks.len(), MOST_OTHERS),
            ("peers.exceptions", self.peers.exceptions.len(), MOST_PAIR_RULES),
            ("faults.pairs", self.faults.pairs.len(), MOST_PAIR_RULES),
            ("faults.links", self.faults.links.len(), MOST_FUNCTIONS),
            ("faults.nvlinks", self.faults.nvlinks.len(), MOST_FUNCTIONS),
            ("faults.others", self.faults.others.len(), MOST_OTHERS),
            ("faults.drifts", self.faults.drifts.len(), MOST_OTHERS),
            ("faults.collapses", self.faults.collapses.len(), MOST_OTHERS),
            ("faults.host", self.faults.host.len(), MOST_OTHERS),
            ("host.kernel_log", self.host.kernel_log.len(), MOST_OTHERS),
            ("host.iommu_parameters", self.host.iommu_parameters.len(), MOST_OTHERS),
            ("host.nccl_variables", self.host.nccl_variables.len(), MOST_OTHERS),
        ] {
            ensure!(
                length <= most,
                key,
                "{length} are more than can be simulated, which is {most}"
            );
        }
        Ok(())
    }

    /// Checks the PCI tree: addresses are unique, parents exist, there is no loop, links are valid.
    fn tree(&self) -> Result<HashMap<PciAddress, usize>, Problem> {
        let mut places = HashMap::new();
        for (place, function) in self.pci.iter().enumerate() {
            if let Some(other) = places.insert(function.address, place) {
                return Err(problem(
                    format!("pci[{place}].address"),
                    format!("{} is the address of pci[{other}] already", function.address),
                ));
            }
        }
        for (place, function) in self.pci.iter().enumerate() {
            let node = function.numa_node.unwrap_or(0) as usize;
            ensure!(
                node < self.numa_nodes.len().max(1),
                format!("pci[{place}].numa_node"),
                "there is no NUMA node {node}: {} in numa_nodes, counted from 0",
                counted(self.numa_nodes.len(), "stands", "stand")
            );
            access_and_sleep(place, function)?;
            let Some(parent) = function.parent else {
                continue;
            };
            let key = || format!("pci[{place}].parent");
            let above = places.get(&parent).and_then(|place| self.pci.get(*place));
            let above = above
                .ok_or_else(|| problem(key(), format!("no [[pci]] has the address {parent}")))?;
            ensure!(
                above.kind != PciKind::Endpoint,
                key(),
                "{parent} is an endpoint, and nothing hangs below one: give it the kind of a port"
            );
            let up = |function: &&FunctionSpec| self.pci.get(*places.get(&function.parent?)?);
            let depth = std::iter::successors(Some(function), up).take(DEEPEST + 1).count();
            ensure!(
                depth <= DEEPEST,
                key(),
                "from {} the parents never end at a root port, or only after more than {DEEPEST}",
                function.address
            );
            self.links(place, function, above)?;
        }
        Ok(places)
    }

    /// Checks that a link is trained to no more than both its ends support.
    fn links(&self, place: usize, function: &FunctionSpec, above: &FunctionSpec) -> Checked {
        for (key, link) in [("trained", function.trained), ("idle", function.idle)] {
            let Some(link) = link else { continue };
            for (end, most) in [("this end", function.max), ("the port above", above.max)] {
                let Some(most) = most else { continue };
                ensure!(
                    link.generation <= most.generation && link.width <= most.width,
                    format!("pci[{place}].{key}"),
                    "{link} is more than {end} can do, which is {most}"
                );
            }
        }
        Ok(())
    }

    fn gpus_in_tree(&self, places: &HashMap<PciAddress, usize>) -> Checked {
        let mut taken: HashMap<PciAddress, usize> = HashMap::new();
        for (place, gpu) in self.gpus.iter().enumerate() {
            let key = || format!("gpus[{place}].pci");
            self.endpoint(gpu.pci, places, key)?;
            if let Some(other) = taken.insert(gpu.pci, place) {
                return Err(problem(
                    key(),
                    format!("{} is where gpus[{other}] is already", gpu.pci),
                ));
            }
        }
        for (place, function) in self.pci.iter().enumerate() {
            for (key, given) in
                [("hidden", function.hidden.is_some()), ("excluded", function.excluded)]
            {
                let unlisted = function.is_display() && !taken.contains_key(&function.address);
                ensure!(
                    !given || unlisted,
                    format!("pci[{place}].{key}"),
                    "{} is none that NVML could list and does not: NVIDIA's, of class 0300 or 0302, in no [[gpus]]",
                    function.address
                );
            }
        }
        Ok(())
    }

    fn endpoint(
        &self,
        address: PciAddress,
        places: &HashMap<PciAddress, usize>,
        key: impl Fn() -> String,
    ) -> Checked {
        let function = places.get(&address).and_then(|place| self.pci.get(*place));
        let function = function
            .ok_or_else(|| problem(key(), format!("no [[pci]] has the address {address}")))?;
        let endpoint = function.kind == PciKind::Endpoint;
        ensure!(endpoint, key(), "{address} is a port of the tree: a device needs an endpoint");
        Ok(())
    }

    fn gpu(&self, place: usize, gpu: &GpuSpec) -> Checked {
        let key = |key: &str| format!("gpus[{place}].{key}");
        some(gpu.memory, || key("memory"))?;
        some(gpu.bar1, || key("bar1"))?;
        let (memory, free) = (gpu.memory, gpu.memory_free);
        ensure!(
            free <= memory,
            key("memory_free"),
            "{free} is more than the GPU's memory, which is {memory}"
        );
        let links = gpu.link_count();
        let fit = links <= MOST_NVLINKS;
        ensure!(
            fit,
            key("nvlinks"),
            "{links} links are more than NVML counts, which is {MOST_NVLINKS}"
        );
        for (number, links) in gpu.nvlinks.iter().enumerate() {
            let key = |name: &str| key(&format!("nvlinks[{number}].{name}"));
            if let NvLinkTarget::Gpu(peer) = links.remote {
                self.gpu_index(peer, || key("remote"))?;
                ensure!(peer as usize != place, key("remote"), "a GPU has no links to itself");
            }
        }
        if let Some(links) = &gpu.c2c_links {
            let (count, active) = (links.count, links.active.unwrap_or(links.count));
            ensure!(
                count <= MOST_C2C && active <= count,
                key("c2c_links"),
                "{active} of {count} links are more than there can be ({MOST_C2C} at most)"
            );
        }
        if let Some(fabric) = &gpu.fabric {
            let uuid = &fabric.cluster_uuid;
            let is_uuid = uuid.len() == 32 && uuid.bytes().all(|digit| digit.is_ascii_hexdigit());
            ensure!(is_uuid, key("fabric.cluster_uuid"), "'{uuid}' is not 32 hexadecimal digits");
        }
        Ok(())
    }

    /// Checks that every link has two ends: as many lead from one GPU to another as back.
    fn nvlinks_both_ways(&self) -> Checked {
        let to = |gpu: &GpuSpec, peer: usize| -> u32 {
            let links = gpu.nvlinks.iter();
            let links = links.filter(
                |links| matches!(links.remote, NvLinkTarget::Gpu(to) if to as usize == peer),
            );
            links.map(|links| u32::from(links.count)).sum()
        };
        for (place, gpu) in self.gpus.iter().enumerate() {
            for (number, links) in gpu.nvlinks.iter().enumerate() {
                let NvLinkTarget::Gpu(peer) = links.remote else {
                    continue;
                };
                let Some(other) = self.gpus.get(peer as usize) else {
                    continue;
                };
                let (there, back) = (to(gpu, peer as usize), to(other, place));
                ensure!(
                    there == back,
                    format!("gpus[{place}].nvlinks[{number}].remote"),
                    "GPU {place} has {there} links to GPU {peer}, which has {back} to GPU {place}"
                );
            }
        }
        Ok(())
    }

    fn adapters_and_uplinks(&self, places: &HashMap<PciAddress, usize>) -> Checked {
        let mut names = HashSet::new();
        for (place, adapter) in self.adapters.iter().enumerate() {
            let (name, named) = (&adapter.name, names.insert(&adapter.name));
            ensure!(named, format!("adapters[{place}].name"), "'{name}' is there twice");
            let is_empty = adapter.state.as_ref().is_some_and(String::is_empty);
            ensure!(!is_empty, format!("adapters[{place}].state"), "a port has a state");
            let key = || format!("adapters[{place}].pci");
            self.endpoint(adapter.pci, places, key)?;
            let gpu = self.gpus.iter().position(|gpu| gpu.pci == adapter.pci);
            if let Some(gpu) = gpu {
                return Err(problem(
                    key(),
                    format!("{} is where gpus[{gpu}] is already", adapter.pci),
                ));
            }
        }
        let mut taken = HashSet::new();
        for (place, uplink) in self.uplinks.iter().enumerate() {
            let key = || format!("uplinks[{place}].ports");
            ensure!(!uplink.ports.is_empty(), key(), "an uplink without ports carries nothing");
            for port in &uplink.ports {
                let function = places.get(port).and_then(|place| self.pci.get(*place));
                let function = function
                    .ok_or_else(|| problem(key(), format!("no [[pci]] has the address {port}")))?;
                ensure!(
                    function.parent.is_none(),
                    key(),
                    "{port} is not at the root: it has a parent"
                );
                ensure!(taken.insert(*port), key(), "{port} stands at an uplink already");
            }
        }
        Ok(())
    }

    fn peers_and_devices(&self) -> Checked {
        let mut shown = HashSet::new();
        for (place, index) in self.visible_devices.iter().flatten().enumerate() {
            let key = || format!("visible_devices[{place}]");
            self.gpu_index(*index, key)?;
            ensure!(shown.insert(*index), key(), "GPU {index} is there twice");
        }
        Ok(())
    }

    pub(super) fn pairs(&self, pairs: Pairs, key: impl Fn() -> String) -> Checked {
        let (one, other) = match pairs {
            Pairs::All => return Ok(()),
            Pairs::Within(gpu) => return self.gpu_index(gpu, key),
            Pairs::Ordered(one, other) | Pairs::Both(one, other) => (one, other),
        };
        for index in [one, other] {
            self.gpu_index(index, &key)?;
        }
        ensure!(one != other, key(), "GPU {one} is no pair with itself");
        Ok(())
    }

    pub(super) fn gpu_index(&self, index: u32, key: impl FnOnce() -> String) -> Checked {
        let there = counted(self.gpus.len(), "stands", "stand");
        ensure!(
            (index as usize) < self.gpus.len(),
            key(),
            "there is no GPU {index}: {there} in gpus, counted from 0"
        );
        Ok(())
    }
}

/// Checks a port's redirection, its packets and windows, and its link's wake-up.
fn access_and_sleep(place: usize, function: &FunctionSpec) -> Checked {
    let key = |name: &str| format!("pci[{place}].{name}");
    ensure!(
        function.redirect_share.is_none() || function.acs_redirect,
        key("redirect_share"),
        "nothing is redirected here: set acs_redirect = true"
    );
    for (name, size) in [("bar", function.bar), ("bar_max", function.bar_max)] {
        let fits =
            size.is_none_or(|size| (MIB..=1 << 50).contains(&size.0) && size.0.is_power_of_two());
        ensure!(fits, key(name), "the size of a window is a power of two from 1 MiB to 1 PiB");
    }
    let lower = !matches!(function.kind, PciKind::RootPort | PciKind::SwitchDownstream);
    ensure!(
        lower || function.wakes.is_none(),
        key("wakes"),
        "the link below a port belongs to its lower end: say it at the function there"
    );
    Ok(())
}

fn some(memory: Bytes, key: impl FnOnce() -> String) -> Checked {
    ensure!(memory.0 > 0, key(), "0 B is no memory");
    Ok(())
}

fn counted(number: usize, one: &str, many: &str) -> String {
    match number {
        0 => format!("none {one}"),
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    }
}
