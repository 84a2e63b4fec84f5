//! A healthy machine that is being changed, with queries about it.

use std::path::Path;

use model::snapshot::{P2pStatus, PciKind};
use model::units::{Lanes, PciAddress, PcieLink};
use sim::Simulated;
use sim::spec::{
    CopyFault, CudaPeerRule, FunctionSpec, MachineSpec, Noise, NvLinkTarget, PairFault, Pairs,
    PeerException, PeerRule,
};

use super::FEW_GPUS;
use crate::common::text_of;

/// A machine that is being changed.
pub(super) struct Machine {
    pub spec: MachineSpec,
    pub random: fastrand::Rng,
}

impl Machine {
    /// Creates a copy with noise of its own.
    pub(super) fn of(base: &MachineSpec, seed: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let mut spec = base.clone();
        spec.noise = Noise { percent: (1.0 + random.f64()).try_into().unwrap(), seed: seed as u64 };
        Self { spec, random }
    }

    pub(super) fn gpus(&self) -> u32 {
        self.spec.gpus.len().try_into().unwrap()
    }

    /// Picks two GPUs. If there are many, picks one and the next: everything is measured on such pairs.
    pub(super) fn two(&mut self) -> (u32, u32) {
        let gpus = self.spec.gpus.len();
        let one = self.random.usize(..gpus);
        let step = 1 + self.random.usize(..gpus - 1);
        let other = (one + if gpus > FEW_GPUS { 1 } else { step }) % gpus;
        (one as u32, other as u32)
    }

    pub(super) fn address(&self, gpu: u32) -> PciAddress {
        self.spec.gpus[gpu as usize].pci
    }

    pub(super) fn function(&mut self, address: PciAddress) -> &mut FunctionSpec {
        self.spec.pci.iter_mut().find(|function| function.address == address).unwrap()
    }

    /// Returns the bridges above a function, the nearest first.
    pub(super) fn above(&self, address: PciAddress) -> impl Iterator<Item = &FunctionSpec> {
        let up = |function: &&FunctionSpec| self.spec.function(function.parent?);
        std::iter::successors(self.spec.function(address), up).skip(1)
    }

    /// Returns the most that both ends of a function's link can do, or `None` if no file shows it.
    pub(super) fn link(&self, address: PciAddress) -> Option<PcieLink> {
        let ends = self.spec.function(address).into_iter().chain(self.above(address).take(1));
        ends.filter_map(|end| end.max).reduce(PcieLink::least)
    }

    /// Returns the switches by their upstream ports, with the GPUs below each.
    pub(super) fn switches(&self) -> Vec<(PciAddress, Vec<u32>)> {
        let mut switches: Vec<(PciAddress, Vec<u32>)> = Vec::new();
        for gpu in 0..self.gpus() {
            for bridge in self
                .above(self.address(gpu))
                .filter(|bridge| bridge.kind == PciKind::SwitchUpstream)
            {
                match switches.iter_mut().find(|(known, _)| *known == bridge.address) {
                    Some((_, gpus)) => gpus.push(gpu),
                    None => switches.push((bridge.address, vec![gpu])),
                }
            }
        }
        switches
    }

    /// Returns the switch above a GPU with the GPUs below it, if there are several.
    pub(super) fn shared_switch(&self, gpu: u32) -> Option<(PciAddress, Vec<u32>)> {
        self.switches().into_iter().find(|(_, gpus)| gpus.len() > 1 && gpus.contains(&gpu))
    }

    /// Returns the subject of a fault of a whole GPU: with only one partner it is the pair.
    pub(super) fn whole(&self, one: u32) -> String {
        if self.gpus() == 2 { pair(0, 1) } else { gpu(one) }
    }

    /// Returns the pair as subject, or the machine if it is the only pair and no NVLinks join its GPUs.
    pub(super) fn pair_of_all(&self, one: u32, other: u32) -> String {
        let links = &self.spec.gpus[one as usize].nvlinks;
        let joined = links.iter().any(|links| links.remote == NvLinkTarget::Gpu(other));
        if self.gpus() == 2 && !joined { "machine".into() } else { pair(one, other) }
    }

    /// Returns the subject of a fault of all copies into a GPU.
    pub(super) fn whole_destination(&self, one: u32) -> String {
        if self.gpus() == 2 { ordered(1 - one, one) } else { gpu(one) }
    }

    /// Returns the GPUs of a NUMA node.
    pub(super) fn gpus_of(&self, node: u32) -> Vec<u32> {
        let node_of = |gpu: &u32| {
            self.spec.function(self.address(*gpu)).and_then(|function| function.numa_node)
        };
        (0..self.gpus()).filter(|gpu| node_of(gpu) == Some(node)).collect()
    }

    /// Returns true if copies go over NVLinks: links that are all down do not count.
    pub(super) fn has_nvlinks(&self) -> bool {
        self.spec.gpus[0].nvlinks.iter().any(|links| links.active)
    }

    /// Returns true if a port shows fewer lanes at rest than it has; ports are read at rest only. If copies over it are
    /// slow for another reason, nothing refutes the reading, and no facts distinguish the two.
    pub(super) fn shows_too_few_lanes(&self) -> bool {
        let fewer = |function: &FunctionSpec| {
            function.idle.zip(function.max).is_some_and(|(is, max)| is.width < max.width)
        };
        self.spec.pci.iter().any(fewer)
    }

    /// Returns true if another pair than this one has access, or if there is no other pair. Otherwise a pair that lost
    /// access looks like a machine without it.
    pub(super) fn others_have_access(&self, one: u32, other: u32) -> bool {
        let gpus = 0..self.gpus();
        let pairs = gpus
            .clone()
            .flat_map(|from| gpus.clone().map(move |to| (from, to)))
            .filter(|(from, to)| from < to);
        self.gpus() == 2
            || pairs
                .filter(|pair| *pair != (one.min(other), one.max(other)))
                .any(|(from, to)| self.is_direct(from, to))
    }

    pub(super) fn copies(&mut self, pairs: Pairs, fault: CopyFault) {
        self.spec.faults.pairs.push(PairFault::new(pairs, fault));
    }

    /// Changes copies between a GPU and all others; `pairs` picks the directions.
    pub(super) fn copies_of(&mut self, gpu: u32, pairs: fn(u32, u32) -> Pairs, fault: CopyFault) {
        (0..self.gpus())
            .filter(|peer| *peer != gpu)
            .for_each(|peer| self.copies(pairs(peer, gpu), fault));
    }

    pub(super) fn refuse(&mut self, pairs: Pairs) {
        let rule = PeerRule {
            nvml: P2pStatus::ChipsetNotSupported,
            nvml_write: None,
            cuda: CudaPeerRule::Refused,
        };
        self.spec.peers.exceptions.push(PeerException { pairs, rule });
    }

    /// Returns a share that is below every floor, but not so low that staged copies are faster. The floor is lowest
    /// over PCIe between host bridges.
    pub(super) fn slow(&mut self) -> CopyFault {
        self.share(0.45, if self.has_nvlinks() { 0.7 } else { 0.62 })
    }

    /// Returns a random share between these two.
    pub(super) fn share(&mut self, least: f64, most: f64) -> CopyFault {
        let share = least + self.random.f64() * (most - least);
        CopyFault::Slow { share: ((share * 1000.0).round() / 1000.0).try_into().unwrap() }
    }

    /// Returns true if the theoretical rate of copies between GPUs is known.
    pub(super) fn has_theory(&self) -> bool {
        self.has_nvlinks() || (0..self.gpus()).all(|gpu| self.link(self.address(gpu)).is_some())
    }

    /// Adds an unusual fault to copies of these pairs.
    pub(super) fn fault(&mut self, fault: PairFault) {
        self.spec.faults.pairs.push(fault);
    }

    /// Returns true if copies between two GPUs go directly.
    pub(super) fn is_direct(&self, one: u32, other: u32) -> bool {
        [(one, other), (other, one)]
            .iter()
            .all(|(from, to)| self.spec.peer_rule(*from, *to).cuda == CudaPeerRule::Granted)
    }

    /// Returns true if all copies go directly.
    pub(super) fn is_all_direct(&self) -> bool {
        let gpus = self.gpus();
        (0..gpus).all(|one| (0..one).all(|other| self.is_direct(one, other)))
    }

    /// Counts pairs of GPUs (both directions together) whose staged copies take the same kind of route as these two's.
    pub(super) fn staged_alike(&self, one: u32, other: u32) -> usize {
        let kind = |one: u32, other: u32| {
            let mut nodes =
                [one, other].map(|gpu| self.spec.function(self.address(gpu)).unwrap().numa_node);
            nodes.sort_unstable();
            let rates = [one, other].map(|gpu| {
                let ways = std::iter::once(self.address(gpu))
                    .chain(self.above(self.address(gpu)).map(|it| it.address));
                ways.filter_map(|address| self.link(address)).reduce(PcieLink::least)
            });
            let shared = self
                .above(self.address(one))
                .any(|it| self.above(self.address(other)).any(|at| at == it));
            (nodes, rates, shared)
        };
        if kind(one, other).1.contains(&None) {
            return 0;
        }
        let all = (0..self.gpus()).flat_map(|one| (0..one).map(move |other| (one, other)));
        all.filter(|(a, b)| kind(*a, *b) == kind(one, other) || kind(*b, *a) == kind(one, other))
            .count()
    }

    /// Returns true if NVLink connects every pair of GPUs alike. Without NVLink, returns true if there are two sockets
    /// with two or more GPUs each and similar crossings.
    pub(super) fn has_siblings(&self) -> bool {
        let targets = |gpu: usize| {
            let links = self.spec.gpus[gpu].nvlinks.iter();
            links
                .map(|links| (links.remote == NvLinkTarget::Switch, links.count))
                .collect::<Vec<_>>()
        };
        let gpus = self.spec.gpus.len();
        if self.has_nvlinks() {
            let alike = (0..gpus).all(|gpu| targets(gpu) == targets(0))
                && targets(0).windows(2).all(|two| two[0] == two[1]);
            return gpus >= 3 && alike && (targets(0)[0].0 || targets(0).len() == gpus - 1);
        }
        let on = |node| {
            (0..self.gpus())
                .filter(|gpu| {
                    self.spec.function(self.address(*gpu)).unwrap().numa_node == Some(node)
                })
                .count()
        };
        !self.spec.host.virtual_machine && on(0) >= 2 && on(1) >= 2 && on(0) + on(1) == gpus
    }
}

/// Halves the lanes this many times.
pub(super) fn fewer(width: Lanes, halvings: u32) -> Lanes {
    (u32::from(width.number()) >> halvings).try_into().unwrap()
}

pub(super) fn gpu(index: u32) -> String {
    format!("gpu{index}")
}

pub(super) fn pair(one: u32, other: u32) -> String {
    format!("pair{}-{}", one.min(other), one.max(other))
}

pub(super) fn ordered(from: u32, to: u32) -> String {
    format!("{from}->{to}")
}

/// Returns healthy machines with two or more GPUs, built in or of the labelled set. A machine that counts as healthy
/// must stay so except for the one fault.
pub(super) fn healthy() -> Vec<(String, MachineSpec)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = crate::cases::healthy()
        .into_iter()
        .map(|name| text_of(&root.join(format!("tests/cases/{name}.toml"))));
    let names = crate::builtin::healthy().into_iter().chain(cases);
    let machines = names.map(|name| {
        let spec = Simulated::find(&name).unwrap().spec;
        (Path::new(&name).file_stem().unwrap().to_str().unwrap().to_owned(), spec)
    });
    // Pairs whose rates differ by design hide one more that differs.
    machines.filter(|(_, spec)| spec.gpus.len() > 1 && spec.faults.pairs.is_empty()).collect()
}
