//! The built-in machines. Rates that were measured or published stand with their source; the rest
//! is chosen to lie within what docs/measurement.md gives for healthy machines of the kind.

mod nvlink;
mod nvswitch;
mod pcie;

use std::borrow::Cow;

use crate::model::snapshot::{ComputeMode, FabricState, P2pStatus, PcieErrors};
use crate::model::units::{Bytes, Generation, Lanes, MIB, PcieLink};

use super::load;
use super::spec::{
    ContextFault, CopyFault, CudaPeerRule, FabricSpec, InitFault, LinkFault, MachineSpec, NvLinkSpec, PairFault, Pairs,
    PeerException, PeerRule,
};

/// Where a machine comes from.
#[derive(Clone, Copy)]
enum Source {
    /// Regular ones are made.
    Made(fn() -> MachineSpec),
    /// Others are written down, with comments that `machines --show` prints too.
    Written(&'static str),
}

/// What is the matter with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: as it was built.
    Sound,
    /// Something: to see how it is told.
    Faulty,
}

/// A name, what is the matter, and how to get the machine.
type Entry = (&'static str, Kind, Source);

use Kind::{Faulty, Sound};
use Source::{Made, Written};

/// In the order in which they are listed.
const MACHINES: [Entry; 24] = [
    ("h200x8", Sound, Made(h200x8)),
    ("h200x2", Sound, Made(h200x2)),
    ("a100x8", Sound, Made(nvlink::a100x8)),
    ("nvlink12", Sound, Made(nvlink::nvlink12)),
    ("nvl72", Sound, Made(nvlink::nvl72)),
    ("two-sockets", Sound, Made(two_sockets)),
    ("pcie16", Sound, Made(pcie16)),
    ("rtx4090x4", Sound, Written(include_str!("rtx4090x4.toml"))),
    ("rtx3090x4", Sound, Written(include_str!("rtx3090x4.toml"))),
    ("desktop", Sound, Written(include_str!("desktop.toml"))),
    ("vm-flat", Sound, Written(include_str!("vm-flat.toml"))),
    ("single", Sound, Made(single)),
    ("none", Sound, Made(none)),
    ("demo", Faulty, Made(demo)),
    ("h200x8-links-down", Faulty, Made(links_down)),
    ("trains-down", Faulty, Made(trains_down)),
    ("writes-dropped", Faulty, Made(writes_dropped)),
    ("pair-hangs", Faulty, Made(pair_hangs)),
    ("crash", Faulty, Made(crash)),
    ("gpu-lost", Faulty, Made(gpu_lost)),
    ("fabric-down", Faulty, Made(fabric_down)),
    ("no-kernels", Faulty, Made(no_kernels)),
    ("exclusive", Faulty, Made(exclusive)),
    ("memory-full", Faulty, Made(memory_full)),
];

/// Peer access that works.
const GRANTED: PeerRule = PeerRule { nvml: P2pStatus::Ok, nvml_write: None, cuda: CudaPeerRule::Granted };

/// The names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.into_iter().map(|(name, ..)| name)
}

/// The names of those with which this is the matter.
pub fn names_of(kind: Kind) -> impl Iterator<Item = &'static str> {
    MACHINES.into_iter().filter(move |(_, known, _)| *known == kind).map(|(name, ..)| name)
}

/// The machine of this name.
pub fn get(name: &str) -> Option<MachineSpec> {
    match source(name)? {
        Made(make) => Some(make()),
        // A test reads every one of them.
        Written(text) => load::parse(text).ok(),
    }
}

/// The description of the machine of this name, as a start for one's own.
pub fn description(name: &str) -> Option<Cow<'static, str>> {
    match source(name)? {
        Made(make) => toml::to_string(&make()).ok().map(Cow::Owned),
        Written(text) => Some(Cow::Borrowed(text)),
    }
}

fn source(name: &str) -> Option<Source> {
    MACHINES.into_iter().find(|(known, ..)| *known == name).map(|(.., source)| source)
}

fn demo() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { adapters: true, ..pcie::Shape::l40s(2, 2, 2) });
    spec.summary = "8 x L40S: one link at x4, one pair without peer access".into();
    if let Some(address) = spec.gpus.get(5).map(|gpu| gpu.pci) {
        let link = spec.pci.iter_mut().filter(|function| function.address == address);
        link.for_each(|function| function.trained = Some(PcieLink { generation: Generation::GEN4, width: Lanes::X4 }));
    }
    let rule = PeerRule { nvml: P2pStatus::ChipsetNotSupported, nvml_write: None, cuda: CudaPeerRule::Refused };
    spec.peers.exceptions.push(PeerException { pairs: Pairs::Both(1, 6), rule });
    spec
}

fn h200x8() -> MachineSpec {
    nvswitch::machine(8)
}

fn h200x2() -> MachineSpec {
    nvswitch::machine(2)
}

/// Two NVLinks of GPU 3 are inactive.
fn links_down() -> MachineSpec {
    let mut spec = nvswitch::machine(8);
    spec.summary = "8 x H200: two NVLinks of GPU 3 are inactive".into();
    for gpu in spec.gpus.iter_mut().skip(3).take(1) {
        let of = |count, active, links: &NvLinkSpec| NvLinkSpec { count, active, ..links.clone() };
        let some = |links: &NvLinkSpec| [of(4, true, links), of(2, false, links), of(12, true, links)];
        gpu.nvlinks = gpu.nvlinks.iter().flat_map(some).collect();
    }
    spec
}

fn two_sockets() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { adapters: true, ..pcie::Shape::l40s(2, 1, 4) });
    spec.summary = "2 x 4 L40S behind PCIe switches in two sockets".into();
    spec
}

fn single() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape::l40s(1, 1, 1));
    spec.summary = "one L40S".into();
    spec
}

fn none() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape::l40s(1, 0, 0));
    spec.summary = "a driver and no GPU".into();
    spec
}

fn pcie16() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape::l40s(2, 2, 4));
    spec.summary = "16 x L40S on PCIe: more peers than CUDA enables at once".into();
    spec
}

/// The healthy 4-GPU box that the faulty ones start from.
fn four() -> MachineSpec {
    pcie::machine(pcie::Shape::l40s(1, 2, 2))
}

fn with_fault(summary: &str, pairs: Pairs, fault: CopyFault) -> MachineSpec {
    let mut spec = four();
    spec.summary = summary.into();
    spec.faults.pairs.push(PairFault { pairs, fault, engine: None });
    spec
}

/// The link of GPU 2 is seen as it should be and falls back while copies run over it.
fn trains_down() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S: the link of GPU 2 trains down under load".into();
    if let Some(gpu) = spec.gpus.get(2) {
        spec.faults.links.push(LinkFault {
            function: gpu.pci,
            trains_down_to: Some(PcieLink { generation: Generation::GEN1, width: Lanes::X16 }),
            replays: 1200,
            errors: PcieErrors { correctable: 4000, non_fatal: 0, fatal: 0 },
        });
    }
    spec
}

fn pair_hangs() -> MachineSpec {
    with_fault("4 x L40S: copies from GPU 1 to GPU 2 never end", Pairs::Ordered(1, 2), CopyFault::Hangs)
}

fn crash() -> MachineSpec {
    with_fault("4 x L40S: copies from GPU 2 to GPU 0 crash the process", Pairs::Ordered(2, 0), CopyFault::Crashes)
}

fn writes_dropped() -> MachineSpec {
    let summary = "4 x L40S: peer access granted, the IOMMU drops the writes";
    let mut spec = with_fault(summary, Pairs::All, CopyFault::Dropped);
    spec.host.iommu_translating = true;
    spec
}

fn gpu_lost() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S: GPU 1 fell off the bus".into();
    spec.faults.lost_gpus.push(1);
    spec
}

fn fabric_down() -> MachineSpec {
    let mut spec = nvswitch::machine(8);
    spec.summary = "8 x H200: fabric not ready, CUDA does not start".into();
    let fabric = FabricSpec {
        state: FabricState::InProgress,
        status: 0,
        health_mask: Some(0),
        clique_id: 0,
        cluster_uuid: "0".repeat(32),
    };
    spec.gpus.iter_mut().for_each(|gpu| gpu.fabric = Some(fabric.clone()));
    spec.faults.cuda_init = Some(InitFault { code: 802, meaning: "system not yet initialized".into() });
    spec
}

fn exclusive() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S: another process holds GPU 2 in exclusive mode".into();
    spec.faults.contexts.push(ContextFault {
        gpu: 2,
        code: 46,
        meaning: "CUDA-capable device(s) is/are busy or unavailable".into(),
        compute_mode: ComputeMode::ExclusiveProcess,
    });
    spec
}

fn memory_full() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S: the memory of GPU 1 is full, that of GPU 3 nearly".into();
    for (gpu, free) in spec.gpus.iter_mut().zip([None, Some(90), None, Some(256)]) {
        gpu.memory_free = free.map_or(gpu.memory_free, |mib| Bytes(mib * MIB));
    }
    spec
}

fn no_kernels() -> MachineSpec {
    let mut spec = nvswitch::machine(2);
    spec.summary = "2 x H200: the driver cannot compile the GPU kernels".into();
    spec.faults.kernels = Some("cuModuleLoadData: PTX JIT compilation was disabled (CUDA error 223)".into());
    spec
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
