//! NVML and sysfs of a simulated machine.
//!
//! Facts are those of a machine at rest. A sample is taken while copies run. The first sample of a GPU shows the
//! trained state of its links. Every later one shows their state under load, and from then on the counters include the
//! added errors.

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
use model::snapshot::{
    Adapter, Fabric, FabricState, Gpu, GpuPair, GpuProcess, Host, NumaNode, NvLink,
    NvLinkPacketErrors, NvLinkRemote, P2pStatus, PcieErrors, RemappedRows, SlowFact,
};

use super::clock::Clock;
use super::counts::{Counters, each_link, whole};
use super::moved::Looks;
use super::routes::nvlink_mbps;
use super::sampler::Clocked;
use super::spec::{FunctionSpec, GpuSpec, MachineSpec, NvLinkErrors, NvLinkTarget, uuid};

/// Decimal logarithm of the lowest bit error rate that NVML reports, 15e-255.
const LOWEST_BIT_ERROR_RATE: f64 = -253.8239;

/// Bits of data in a codeword: chosen. NVIDIA publishes no figure for NVLink; RS(544,514) of IEEE 802.3 has so many.
const BITS_OF_A_CODEWORD: f64 = 5140.0;

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
        self.samples
            .get(index as usize)
            .map_or(0, |samples| samples.load(Ordering::Relaxed))
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

    fn function_of(&self, gpu: &GpuSpec) -> Result<&FunctionSpec, Unknown> {
        self.spec.function(gpu.pci).ok_or(Unknown::Unsupported)
    }

    fn identity(&self, gpu: &mut Gpu, spec: &GpuSpec) {
        gpu.pci = Reading::Known(spec.pci);
        gpu.uuid = Reading::Known(uuid(gpu.index));
        gpu.name = Reading::Known(spec.name.clone());
        gpu.architecture = Reading::Known(spec.architecture.clone());
        gpu.minor = Reading::Known(gpu.index);
        gpu.serial = Reading::Known(format!("{:013}", gpu.index));
        // A GPU within the processor has no memory of its own.
        let own = |bytes| match spec.integrated {
            true => Reading::unsupported(),
            false => Reading::Known(bytes),
        };
        gpu.memory_total_bytes = own(spec.memory);
        gpu.memory_free_bytes = own(spec.memory_free);
        gpu.numa_node = self
            .function_of(spec)
            .and_then(|function| self.numa_node(function))
            .into();
    }

    fn pcie(&self, gpu: &mut Gpu, spec: &GpuSpec) {
        let function = self.function_of(spec);
        let link = |link| -> Result<_, Unknown> { Option::ok_or(link, Unknown::Unsupported) };
        let own: Reading<_> = function
            .clone()
            .and_then(|function| link(function.max))
            .into();
        let slot = function
            .clone()
            .ok()
            .and_then(|function| self.spec.function(function.parent?)?.max);
        let errors = function
            .clone()
            .map_or_else(|_| PcieErrors::default(), |function| function.errors);
        let now: Reading<_> = function
            .and_then(|function| link(self.spec.idle(function)))
            .into();
        gpu.pcie_generation = now.clone().map(|link| link.generation);
        gpu.pcie_width = now.map(|link| link.width);
        gpu.pcie_generation_max = own
            .clone()
            .map(|own| slot.map_or(own.generation, |slot| own.generation.min(slot.generation)));
        gpu.pcie_width_max = own
            .clone()
            .map(|own| slot.map_or(own.width, |slot| own.width.min(slot.width)));
        gpu.pcie_generation_device_max = own.map(|own| own.generation);
        gpu.pcie_replays = Reading::Known(0);
        gpu.pcie_errors = Reading::Known(errors);
    }

    fn nvlink(&self, gpu: &mut Gpu, spec: &GpuSpec) {
        let links = each_link(spec).map(|(links, number)| {
            let mut link = NvLink::unread(number, &Unknown::Unsupported);
            link.active = Reading::Known(links.active);
            if links.active {
                link.version = Reading::Known(links.version.clone());
                link.speed_mbps = Reading::Known(nvlink_mbps(links));
                // A guest sees no PCI address of the switches.
                (link.remote, link.remote_pci) = match links.remote {
                    NvLinkTarget::Switch => {
                        (Reading::Known(NvLinkRemote::Switch), Reading::unsupported())
                    }
                    NvLinkTarget::Gpu(peer) => {
                        let peer = self.spec.gpus.get(peer as usize).map(|peer| peer.pci);
                        (
                            Reading::Known(NvLinkRemote::Gpu),
                            peer.ok_or(Unknown::Unsupported).into(),
                        )
                    }
                };
                let later = SlowFact::NvLinkErrors.not_read();
                link.crc_errors = Reading::Unknown(later.clone());
                link.replay_errors = Reading::Unknown(later.clone());
                link.recovery_errors = Reading::Unknown(later.clone());
                link.packet_errors = Reading::Unknown(later.clone());
                link.fec_histogram = Reading::Unknown(later);
            }
            link
        });
        gpu.nvlinks = Reading::Known(links.collect());
        let switched = spec
            .nvlinks
            .iter()
            .any(|links| links.remote == NvLinkTarget::Switch);
        gpu.fabric = if let Some(fabric) = &spec.fabric {
            Reading::Known(Fabric {
                state: fabric.state,
                status: fabric.status,
                health_mask: fabric.health_mask.map(Fabric::degraded),
                clique_id: fabric.clique_id,
                cluster_uuid: fabric.cluster_uuid.clone(),
            })
        } else if switched {
            let started = self.spec.faults.cuda_init.is_none();
            Reading::Known(Fabric {
                // Without its fabric manager a machine of this kind has no CUDA (error 802).
                state: if started {
                    FabricState::Completed
                } else {
                    FabricState::NotStarted
                },
                status: 0,
                health_mask: Some(0),
                clique_id: 0,
                cluster_uuid: "0".repeat(32),
            })
        } else {
            Reading::unsupported()
        };
        gpu.module_id = if switched {
            Reading::Known(gpu.index + 1)
        } else {
            Reading::unsupported()
        };
        let grace = matches!(spec.architecture.as_str(), "Hopper" | "Blackwell");
        gpu.c2c = if grace {
            Reading::Known(spec.c2c)
        } else {
            Reading::unsupported()
        };
    }

    fn link_errors(&self, gpu: &mut Gpu, spec: &GpuSpec) {
        let read_before = self
            .link_errors_read
            .get(gpu.index as usize)
            .is_some_and(|read| read.swap(true, Ordering::Relaxed));
        let copied = read_before && self.sampled(gpu.index) > 0;
        let Reading::Known(links) = &mut gpu.nvlinks else {
            return;
        };
        for link in links {
            let number = link.link;
            let Some((links, _)) =
                each_link(spec).find(|(links, other)| *other == number && links.active)
            else {
                continue;
            };
            let faults = self.spec.faults.nvlinks.iter();
            let added = faults.filter(|fault| {
                copied && fault.gpu == gpu.index && fault.link == u32::from(number)
            });
            let added = added.filter(|fault| self.is_counted(fault.only_under_load));
            let bits = self.counters.link_bits(gpu.index, number);
            let over_time =
                self.spec
                    .nvlink_errors_at(gpu.index, number.into(), self.seconds(), bits);
            let all = |figure: &dyn Fn(&NvLinkErrors) -> u64| {
                let added: u64 = added
                    .clone()
                    .map(|fault| figure(&fault.errors))
                    .fold(figure(&over_time), u64::saturating_add);
                figure(&links.errors).saturating_add(added)
            };
            let sum = |figure: fn(&NvLinkErrors) -> u64| Reading::Known(all(&figure));
            // nvml.h: the counters of flits and replays are "unsupported for Blackwell+", which has others.
            let newer = matches!(links.version.as_str(), "5.0" | "6.0");
            let of_flits = |errors| match newer {
                true => Reading::unsupported(),
                false => errors,
            };
            link.crc_errors = of_flits(sum(|errors| errors.crc));
            link.replay_errors = of_flits(sum(|errors| errors.replay));
            link.recovery_errors = sum(|errors| errors.recovery);
            let count = |figure| sum(figure).get();
            link.packet_errors = match newer {
                true => Reading::Known(NvLinkPacketErrors {
                    failed_recoveries: count(|errors| errors.failed_recovery),
                    lost_packets: count(|errors| errors.packet),
                    uncorrected: count(|errors| errors.effective),
                    bit_error_rate_log10: Some(LOWEST_BIT_ERROR_RATE),
                }),
                false => Reading::unsupported(),
            };
            let sound = whole(bits / BITS_OF_A_CODEWORD);
            let codewords = |symbols| match symbols {
                0 => sound,
                some => all(&|errors| errors.corrected(some)),
            };
            link.fec_histogram = match newer {
                true => Reading::Known((0..=NvLinkErrors::MOST_SYMBOLS).map(codewords).collect()),
                false => Reading::unsupported(),
            };
        }
    }

    /// Fills in the facts that are no keys of their own.
    fn state(gpu: &mut Gpu, spec: &GpuSpec) {
        let state = &spec.state;
        gpu.bar1_total_bytes = Reading::Known(spec.bar1);
        gpu.ecc_uncorrected = gpu.ecc.clone().map(|_| state.ecc_uncorrected);
        // Boards without ECC memory have no spare rows either.
        gpu.remapped_rows = gpu.ecc.clone().map(|_| RemappedRows {
            corrected: 0,
            uncorrected: 0,
            pending: state.remapping_pending,
            failed: state.remapping_failed,
        });
        gpu.sm_clock_mhz = Reading::Known(spec.clocks_mhz.0);
        gpu.memory_clock_mhz = Reading::Known(spec.clocks_mhz.1);
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
            ports: vec![spec.port()],
        });
        let mut tree = PciTree {
            // As in the kernel's tree, where NVSwitches are on no GPU's path.
            functions: {
                let on_the_way = self
                    .spec
                    .pci
                    .iter()
                    .filter(|function| !function.is_nvswitch());
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
        NvidiaFunctions {
            displays: self.spec.displays(),
            nvswitches: self.spec.nvswitches(),
        }
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
                let fault = self
                    .spec
                    .faults
                    .contexts
                    .iter()
                    .find(|fault| fault.gpu == gpu.index);
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
        let over_nvlink = if nvlink {
            status
        } else {
            P2pStatus::NotSupported
        };
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
        let failed = |why: Unknown| Moved {
            failure: Some(why.to_string()),
            ..Moved::default()
        };
        self.answering(index)
            .map_or_else(failed, |_| self.looks.moved(&self.spec, index))
    }

    fn counts(&self, index: u32, links: &[u8]) -> Counts {
        let failed = |why: Unknown| Counts {
            failure: Some(why.to_string()),
            ..Counts::default()
        };
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
