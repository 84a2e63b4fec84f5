//! The facts of a GPU, group by group.

use std::sync::atomic::Ordering;

use model::reading::{Reading, Unknown};
use model::snapshot::{
    Fabric, FabricState, Gpu, NvLink, NvLinkPacketErrors, NvLinkRemote, PcieErrors, RemappedRows,
    SlowFact,
};

use super::SimTelemetry;
use crate::counts::{each_link, whole};
use crate::routes::nvlink_mbps;
use crate::spec::{C2cSpec, FunctionSpec, GpuSpec, MOST_SYMBOLS, NvLinkErrors, NvLinkTarget, uuid};

/// Decimal logarithm of the lowest bit error rate that NVML reports, 15e-255.
const LOWEST_BIT_ERROR_RATE: f64 = -253.8239;

/// Bits of data in a codeword: chosen. NVIDIA publishes no figure for NVLink; RS(544,514) of IEEE 802.3 has so many.
const BITS_OF_A_CODEWORD: f64 = 5140.0;

impl SimTelemetry {
    fn function_of(&self, gpu: &GpuSpec) -> Result<&FunctionSpec, Unknown> {
        self.spec.function(gpu.pci).ok_or(Unknown::Unsupported)
    }

    pub(super) fn identity(&self, gpu: &mut Gpu, spec: &GpuSpec) {
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
        gpu.numa_node = self.function_of(spec).and_then(|function| self.numa_node(function)).into();
    }

    pub(super) fn pcie(&self, gpu: &mut Gpu, spec: &GpuSpec) {
        let function = self.function_of(spec);
        let link = |link| -> Result<_, Unknown> { Option::ok_or(link, Unknown::Unsupported) };
        let own: Reading<_> = function.clone().and_then(|function| link(function.max)).into();
        let slot =
            function.clone().ok().and_then(|function| self.spec.function(function.parent?)?.max);
        let errors =
            function.clone().map_or_else(|_| PcieErrors::default(), |function| function.errors);
        let now: Reading<_> = function.and_then(|function| link(self.spec.idle(function))).into();
        gpu.pcie_generation = now.clone().map(|link| link.generation);
        gpu.pcie_width = now.map(|link| link.width);
        gpu.pcie_generation_max = own
            .clone()
            .map(|own| slot.map_or(own.generation, |slot| own.generation.min(slot.generation)));
        gpu.pcie_width_max =
            own.clone().map(|own| slot.map_or(own.width, |slot| own.width.min(slot.width)));
        gpu.pcie_generation_device_max = own.map(|own| own.generation);
        gpu.pcie_replays = Reading::Known(0);
        gpu.pcie_errors = Reading::Known(errors);
    }

    pub(super) fn nvlink(&self, gpu: &mut Gpu, spec: &GpuSpec) {
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
                        (Reading::Known(NvLinkRemote::Gpu), peer.ok_or(Unknown::Unsupported).into())
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
        let switched = spec.nvlinks.iter().any(|links| links.remote == NvLinkTarget::Switch);
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
                state: if started { FabricState::Completed } else { FabricState::NotStarted },
                status: 0,
                health_mask: Some(0),
                clique_id: 0,
                cluster_uuid: "0".repeat(32),
            })
        } else {
            Reading::unsupported()
        };
        gpu.module_id =
            if switched { Reading::Known(gpu.index + 1) } else { Reading::unsupported() };
        let grace = matches!(spec.architecture.as_str(), "Hopper" | "Blackwell");
        gpu.c2c = if grace { Reading::Known(spec.c2c) } else { Reading::unsupported() };
        let links = spec.c2c_links.as_ref().filter(|_| spec.c2c).map(C2cSpec::links);
        gpu.c2c_links = links.ok_or(Unknown::Unsupported).into();
    }

    pub(super) fn link_errors(&self, gpu: &mut Gpu, spec: &GpuSpec) {
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
                self.spec.nvlink_errors_at(gpu.index, number.into(), self.seconds(), bits);
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
                true => Reading::Known((0..=MOST_SYMBOLS).map(codewords).collect()),
                false => Reading::unsupported(),
            };
        }
    }

    /// Fills in the facts that are no keys of their own.
    pub(super) fn state(gpu: &mut Gpu, spec: &GpuSpec) {
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
}
