//! NVML and sysfs of a simulated machine.
//!
//! Facts are those of a machine at rest. A sample is taken while copies run. The first sample of a GPU shows the
//! trained state of its links. Every later one shows their state under load, and from then on the counters include the
//! added errors.

mod gpu_facts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hardware::{
    Counts, ErrorKind, GpuGroup, HardwareError, LinkSample, Moved, NvidiaFunctions, PciTree,
    Sampler, Telemetry,
};
use model::flow::Flow;
use model::reading::{Reading, Unknown};
use model::snapshot::{Adapter, Gpu, GpuPair, GpuProcess, Host, NumaNode, P2pStatus, SlowFact};

use super::clock::Clock;
use super::counts::Counters;
use super::moved::Looks;
use super::sampler::Clocked;
use super::spec::{GpuSpec, MachineSpec};

/// Wait for answers of a simulated machine: chosen, longer than any host needs.
const FOR_SLOW_HOSTS: Duration = Duration::from_secs(60);

/// Facts of a simulated machine.
#[derive(Debug)]
pub(crate) struct SimTelemetry {
    pub(super) spec: MachineSpec,
    /// Number of samples of each GPU.
    pub(super) samples: Vec<AtomicU32>,
    looks: Looks,
    counters: Counters,
    /// GPUs whose NVLink error counters were read before. The first reading is one at rest, however late it comes.
    link_errors_read: Vec<AtomicBool>,
    /// Whether several flows have run at once.
    loaded: AtomicBool,
    clock: Arc<Clock>,
    /// True once readings contain the errors that the driver reports, and programs.
    listening: AtomicBool,
    /// Time up to which the errors of each GPU were returned, seconds.
    heard: Mutex<HashMap<u32, f64>>,
}

impl SimTelemetry {
    /// Creates the facts of this machine.
    pub(crate) fn new(spec: MachineSpec) -> Self {
        let samples = spec.gpus.iter().map(|_| AtomicU32::new(0)).collect();
        let looks = Looks::new(spec.gpus.len());
        let link_errors_read = spec.gpus.iter().map(|_| AtomicBool::new(false)).collect();
        Self {
            spec,
            samples,
            link_errors_read,
            looks,
            counters: Counters::default(),
            loaded: AtomicBool::new(false),
            clock: Arc::default(),
            listening: AtomicBool::new(false),
            heard: Mutex::default(),
        }
    }

    /// Returns the driver's clock, seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.clock.seconds()
    }

    /// Returns the number of samples of a GPU up to now.
    fn sampled(&self, index: u32) -> u32 {
        self.samples.get(index as usize).map_or(0, |samples| samples.load(Ordering::Relaxed))
    }

    fn answering(&self, index: u32) -> Result<&GpuSpec, Unknown> {
        if self.spec.lost(index) {
            return Err(Unknown::Failed(
                "NVML: the GPU fell off the bus or is otherwise lost (15)".into(),
            ));
        }
        self.spec
            .gpus
            .get(index as usize)
            .ok_or_else(|| Unknown::Failed("NVML: invalid argument (2)".into()))
    }

    /// Returns the programs that use a GPU now.
    pub(super) fn programs(&self, index: u32, spec: &GpuSpec) -> Vec<GpuProcess> {
        let later = self.spec.programs_at(index, self.seconds());
        spec.state.processes.iter().cloned().chain(later).collect()
    }
}

impl Telemetry for SimTelemetry {
    fn host(&self) -> Host {
        let host = &self.spec.host;
        let mut facts = Host::unread(&Unknown::Unsupported);
        facts.driver_version = Reading::Known(host.driver_version.clone());
        facts.kernel_module_version = Reading::Known(host.driver_version.clone());
        let major = host.cuda_version.split('.').next().unwrap_or("13");
        facts.nvml_version = Reading::Known(format!("{major}.{}", host.driver_version));
        facts.cuda_version = Reading::Known(host.cuda_version.clone());
        facts.kernel_version = Reading::Known(host.kernel_version.clone());
        facts.hostname = Reading::Known("simulated".into());
        facts.cpu = Reading::Known(host.cpu.clone());
        facts.virtual_machine = Reading::Known(host.virtual_machine);
        facts.container = Reading::Known(host.container);
        facts.iommu_translating = Reading::Known(host.iommu_translating);
        self.spec.read_surroundings(&mut facts);
        facts
    }

    fn pci_tree(&self) -> PciTree {
        let nodes = self.spec.numa_nodes.iter().zip(0..);
        let nodes = nodes.map(|(spec, node)| NumaNode {
            node,
            cpus: spec.cpus.clone(),
            memory_bytes: spec.memory,
        });
        let adapters = self.spec.adapters.iter();
        let adapters = adapters.map(|spec| Adapter {
            name: spec.name.clone(),
            kind: spec.kind,
            pci: spec.pci,
            ports: Reading::Known(vec![spec.port()]),
            firmware: spec.firmware.clone().ok_or(Unknown::Unsupported).into(),
            board: spec.board.clone().ok_or(Unknown::Unsupported).into(),
            numa_node: self
                .spec
                .function(spec.pci)
                .map_or(Reading::unsupported(), |function| self.numa_node(function).into()),
        });
        let mut tree = PciTree {
            // As in the kernel's tree, where NVSwitches are on no GPU's path.
            functions: {
                let on_the_way = self.spec.pci.iter().filter(|function| !function.is_nvswitch());
                on_the_way.map(|function| self.function(function)).collect()
            },
            numa_nodes: nodes.collect(),
            adapters: adapters.collect(),
            problems: Vec::new(),
        };
        // The kernel's own list is sorted too.
        tree.functions.sort_by_key(|function| function.address);
        tree.adapters.sort_by_key(|adapter| adapter.pci);
        tree
    }

    fn nvidia_functions(&self) -> NvidiaFunctions {
        NvidiaFunctions { displays: self.spec.displays(), nvswitches: self.spec.nvswitches() }
    }

    fn gpu_count(&self) -> Result<u32, HardwareError> {
        u32::try_from(self.spec.gpus.len())
            .map_err(|_| HardwareError::new(ErrorKind::Other, "too many GPUs"))
    }

    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu) {
        let spec = match self.answering(gpu.index) {
            Ok(spec) => spec,
            Err(unknown) => {
                *gpu = Gpu::unread(gpu.index, &unknown);
                return;
            }
        };
        spec.state.read(group, gpu);
        match group {
            GpuGroup::Identity => self.identity(gpu, spec),
            GpuGroup::Pcie => self.pcie(gpu, spec),
            GpuGroup::NvLink => self.nvlink(gpu, spec),
            GpuGroup::State => {
                Self::state(gpu, spec);
                gpu.processes = Reading::Known(self.programs(gpu.index, spec));
                let fault = self.spec.faults.contexts.iter().find(|fault| fault.gpu == gpu.index);
                if let Some(fault) = fault {
                    gpu.compute_mode = Reading::Known(fault.compute_mode);
                }
            }
            GpuGroup::LinkErrors => self.link_errors(gpu, spec),
        }
    }

    fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
        let mut pair = GpuPair::unread(source, destination, &Unknown::Unsupported);
        for gpu in [source, destination] {
            if let Err(unknown) = self.answering(gpu) {
                return GpuPair::unread(source, destination, &unknown);
            }
        }
        let rule = self.spec.peer_rule(source, destination);
        let status = rule.nvml;
        let nvlink = self.spec.joined_by_nvlink(source, destination);
        let over_nvlink = if nvlink { status } else { P2pStatus::NotSupported };
        pair.common_ancestor = match over_nvlink {
            P2pStatus::Ok => Reading::Unknown(GpuPair::ancestor_not_asked()),
            _ => Reading::Known(self.spec.common_ancestor(source, destination)),
        };
        pair.p2p_read = Reading::Unknown(SlowFact::PeerAccess.not_read());
        pair.p2p_write = pair.p2p_read.clone();
        pair.p2p_nvlink = Reading::Known(over_nvlink);
        pair.p2p_atomics = Reading::Unknown(SlowFact::PeerAtomics.not_read());
        pair.p2p_pci = Reading::Unknown(GpuPair::pci_not_asked());
        pair
    }

    fn read_access(&self, pair: &mut GpuPair) {
        if pair.p2p_read.unknown() == Some(&SlowFact::PeerAccess.not_read()) {
            let rule = self.spec.peer_rule(pair.source, pair.destination);
            pair.p2p_read = Reading::Known(rule.nvml);
            pair.p2p_write = Reading::Known(rule.nvml_write.unwrap_or(rule.nvml));
        }
    }

    fn read_atomics(&self, pair: &mut GpuPair) {
        if pair.p2p_atomics.unknown() == Some(&SlowFact::PeerAtomics.not_read()) {
            if pair.common_ancestor.unknown() == Some(&GpuPair::ancestor_not_asked()) {
                pair.common_ancestor =
                    Reading::Known(self.spec.common_ancestor(pair.source, pair.destination));
            }
            // The simulated boards support atomics over NVLink only.
            pair.p2p_atomics = pair.p2p_nvlink.clone();
            pair.p2p_pci = match pair.p2p_nvlink.get() {
                Some(P2pStatus::Ok) => Reading::Unknown(GpuPair::has_nvlink()),
                _ => Reading::Known(self.spec.peer_rule(pair.source, pair.destination).nvml),
            };
        }
    }

    fn sample(&self, index: u32) -> LinkSample {
        self.take_sample(index)
    }

    fn listen(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    fn sampler(self: Arc<Self>, gpus: &[u32], interval: Duration) -> Box<dyn Sampler> {
        let clock = Arc::clone(&self.clock);
        Box::new(Clocked::start(self, clock, gpus, interval))
    }

    /// Its answers come from this very process: a busy host is no reason to go without them.
    fn patience(&self, usual: Duration) -> Duration {
        usual.max(FOR_SLOW_HOSTS)
    }

    fn moved(&self, index: u32) -> Moved {
        let failed = |why: Unknown| Moved { failure: Some(why.to_string()), ..Moved::default() };
        self.answering(index).map_or_else(failed, |_| self.looks.moved(&self.spec, index))
    }

    fn counts(&self, index: u32, links: &[u8]) -> Counts {
        let failed = |why: Unknown| Counts { failure: Some(why.to_string()), ..Counts::default() };
        self.answering(index)
            .map_or_else(failed, |_| self.counters.counts(&self.spec, index, links))
    }

    fn carried(&self, flow: Flow, bytes: u64) {
        self.loaded.store(true, Ordering::Relaxed);
        self.counters.carried(&self.spec, flow, bytes);
    }
}

#[path = "samples.rs"]
mod samples;
#[cfg(test)]
#[path = "telemetry_tests.rs"]
mod tests;
