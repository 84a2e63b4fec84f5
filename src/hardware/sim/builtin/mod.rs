//! The built-in machines. Rates that were measured or published stand with their source; the rest
//! is chosen to lie within what docs/measurement.md gives for healthy machines of the kind.

mod nvswitch;
mod pcie;

use crate::model::snapshot::{ComputeMode, P2pStatus};
use crate::model::units::{Bytes, MIB, PcieLink};

use super::spec::{
    ContextFault, CopyFault, CudaPeerRule, InitFault, MachineSpec, PairFault, Pairs, PeerException, PeerRule,
};

/// A name and how to make the machine.
type Entry = (&'static str, fn() -> MachineSpec);

/// In the order in which they are listed.
const MACHINES: [Entry; 14] = [
    ("demo", demo),
    ("h200x8", h200x8),
    ("h200x2", h200x2),
    ("single", single),
    ("none", none),
    ("pcie16", pcie16),
    ("pair-hangs", pair_hangs),
    ("crash", crash),
    ("writes-dropped", writes_dropped),
    ("gpu-lost", gpu_lost),
    ("fabric-down", fabric_down),
    ("no-kernels", no_kernels),
    ("exclusive", exclusive),
    ("memory-full", memory_full),
];

/// Peer access that works.
const GRANTED: PeerRule = PeerRule { nvml: P2pStatus::Ok, nvml_write: None, cuda: CudaPeerRule::Granted };

/// The names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.into_iter().map(|(name, _)| name)
}

/// The machine of this name.
pub fn get(name: &str) -> Option<MachineSpec> {
    MACHINES.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

fn demo() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { sockets: 2, switches: 2, gpus: 2, adapters: true });
    spec.summary = "8 x L40S on PCIe: one link at x4 where both ends can do x16, one pair without peer access".into();
    if let Some(address) = spec.gpus.get(5).map(|gpu| gpu.pci) {
        let link = spec.pci.iter_mut().filter(|function| function.address == address);
        link.for_each(|function| function.trained = Some(PcieLink { generation: 4, width: 4 }));
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

fn single() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { sockets: 1, switches: 1, gpus: 1, adapters: false });
    spec.summary = "one L40S".into();
    spec
}

fn none() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { sockets: 1, switches: 0, gpus: 0, adapters: false });
    spec.summary = "a driver and no GPU".into();
    spec
}

fn pcie16() -> MachineSpec {
    let mut spec = pcie::machine(pcie::Shape { sockets: 2, switches: 2, gpus: 4, adapters: false });
    spec.summary = "16 x L40S on PCIe: more peers than CUDA enables at once".into();
    spec
}

/// The healthy 4-GPU box that the faulty ones start from.
fn four() -> MachineSpec {
    pcie::machine(pcie::Shape { sockets: 1, switches: 2, gpus: 2, adapters: false })
}

fn with_fault(summary: &str, pairs: Pairs, fault: CopyFault) -> MachineSpec {
    let mut spec = four();
    spec.summary = summary.into();
    spec.faults.pairs.push(PairFault { pairs, fault, engine: None });
    spec
}

fn pair_hangs() -> MachineSpec {
    with_fault("4 x L40S: direct copies from GPU 1 to GPU 2 never end", Pairs::Ordered(1, 2), CopyFault::Hangs)
}

fn crash() -> MachineSpec {
    with_fault(
        "4 x L40S: direct copies from GPU 2 to GPU 0 crash the process",
        Pairs::Ordered(2, 0),
        CopyFault::Crashes,
    )
}

fn writes_dropped() -> MachineSpec {
    let summary = "4 x L40S behind a translating IOMMU: peer access is advertised, no byte arrives";
    let mut spec = with_fault(summary, Pairs::All, CopyFault::Dropped);
    spec.host.iommu_translating = true;
    spec
}

fn gpu_lost() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S, GPU 1 fell off the bus".into();
    spec.faults.lost_gpus.push(1);
    spec
}

fn fabric_down() -> MachineSpec {
    let mut spec = nvswitch::machine(8);
    spec.summary = "8 x H200 whose fabric manager is not running: NVML works, CUDA does not start".into();
    spec.faults.cuda_init = Some(InitFault { code: 802, meaning: "system not yet initialized".into() });
    spec
}

fn exclusive() -> MachineSpec {
    let mut spec = four();
    spec.summary = "4 x L40S, another process holds GPU 2 in exclusive mode".into();
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
    spec.summary = "4 x L40S, GPU 1 is full of another process's memory, GPU 3 nearly so".into();
    for (gpu, free) in spec.gpus.iter_mut().zip([None, Some(90), None, Some(256)]) {
        gpu.memory_free = free.map_or(gpu.memory_free, |mib| Bytes(mib * MIB));
    }
    spec
}

fn no_kernels() -> MachineSpec {
    let mut spec = nvswitch::machine(2);
    spec.summary = "2 x H200 whose driver cannot compile the GPU kernels".into();
    spec.faults.kernels = Some("cuModuleLoadData: PTX JIT compilation was disabled (CUDA error 223)".into());
    spec
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
