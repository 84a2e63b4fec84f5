//! The live machine where NVML is missing or does not start: what the kernel reports,
//! which shows whether there are GPUs at all.

use super::sysfs::Sysfs;
use crate::hardware::{GpuGroup, HardwareError, LinkSample, PciTree, Telemetry};
use crate::model::reading::Unknown;
use crate::model::snapshot::{Gpu, GpuPair, Host};

/// Facts from sysfs alone, and why there are no others.
pub struct WithoutNvml {
    why: HardwareError,
    sysfs: Sysfs,
}

impl WithoutNvml {
    /// The machine's facts without NVML, which failed for this reason.
    pub fn new(why: HardwareError) -> Self {
        Self { why, sysfs: Sysfs::default() }
    }

    fn unknown(&self) -> Unknown {
        Unknown::Failed(self.why.message.clone())
    }
}

impl Telemetry for WithoutNvml {
    fn host(&self) -> Host {
        self.sysfs.host(&self.unknown())
    }

    fn pci_tree(&self) -> PciTree {
        self.sysfs.pci_tree()
    }

    fn gpu_count(&self) -> Result<u32, HardwareError> {
        Err(self.why.clone())
    }

    fn read_gpu(&self, _group: GpuGroup, gpu: &mut Gpu) {
        *gpu = Gpu::unread(gpu.index, &self.unknown());
    }

    fn read_pair(&self, source: u32, destination: u32) -> GpuPair {
        GpuPair::unread(source, destination, &self.unknown())
    }

    fn read_atomics(&self, _pair: &mut GpuPair) {}

    fn sample(&self, _index: u32) -> LinkSample {
        LinkSample::default()
    }
}
