//! NVML and sysfs together as the facts of the live machine.

use std::process;

use super::nvml::Nvml;
use super::sysfs::Sysfs;
use crate::hardware::{GpuGroup, HardwareError, LinkSample, PciTree, Telemetry};
use crate::model::reading::{Reading, Unknown};
use crate::model::snapshot::{Gpu, GpuPair, Host};

/// The live machine's facts and counters.
pub struct LiveTelemetry {
    nvml: Nvml,
    sysfs: Sysfs,
}

impl LiveTelemetry {
    /// Starts NVML.
    ///
    /// # Errors
    ///
    /// NVML is missing or does not start.
    pub fn open() -> Result<Self, HardwareError> {
        Ok(Self { nvml: Nvml::open()?, sysfs: Sysfs::default() })
    }

    /// Whether a process is this one or its worker, which opens CUDA while facts are read. It may
    /// not be recognised in a container with its own process numbers.
    fn is_own(&self, pid: u32) -> bool {
        let own = process::id();
        pid == own || self.sysfs.parent_process(pid) == Some(own)
    }
}

impl Telemetry for LiveTelemetry {
    fn host(&self) -> Host {
        let mut host = self.sysfs.host(&Unknown::Unsupported);
        self.nvml.read_host(&mut host);
        host
    }

    fn pci_tree(&self) -> PciTree {
        self.sysfs.pci_tree()
    }

    fn gpu_count(&self) -> Result<u32, HardwareError> {
        self.nvml.gpu_count()
    }

    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu) {
        self.nvml.read_gpu(group, gpu);
        match group {
            GpuGroup::Identity => {
                gpu.numa_node = match &gpu.pci {
                    Reading::Known(address) => self.sysfs.numa_node(*address),
                    Reading::Unknown(why) => Reading::Unknown(why.clone()),
                };
            }
            GpuGroup::State => {
                if let Reading::Known(processes) = &mut gpu.processes {
                    processes.retain(|process| !self.is_own(process.pid));
                }
            }
            GpuGroup::Pcie | GpuGroup::NvLink | GpuGroup::LinkErrors => {}
        }
    }

    fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
        self.nvml.read_pair(source, destination)
    }

    fn read_atomics(&self, pair: &mut GpuPair) {
        self.nvml.read_atomics(pair);
    }

    fn sample(&self, index: u32) -> LinkSample {
        self.nvml.sample(index)
    }
}
