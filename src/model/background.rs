//! Activity of GPUs while this program left them idle: traffic and work of other programs.

use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::units::{GbPerSecond, PciAddress};

/// Rate above which NVLink traffic counts as another program's. On an idle H200 the counters do not move.
const NVLINK_GBPS: f64 = 0.1;
/// The same threshold for PCIe. An idle H200 moves 0.002 GB/s, and up to 0.1 while a context is created.
const PCIE_GBPS: f64 = 0.2;
/// Utilisation from which a GPU counts as working for another program, per cent. An idle H200 shows up to 3.
const UTILIZATION_PERCENT: u8 = 10;

/// The time at which a GPU was left idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// While the CUDA driver started.
    Start,
    /// After the last copy.
    End,
    /// While several flows ran at once: traffic that its NVLinks counted beyond the bytes of this program.
    Load,
}

/// A GPU that this program leaves idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftAlone {
    /// NVML's index.
    pub gpu: u32,
    /// Its address.
    pub pci: Option<PciAddress>,
    /// True if other processes have a context on it.
    pub has_processes: bool,
}

impl LeftAlone {
    /// Returns all GPUs of a machine.
    pub fn all(snapshot: &Snapshot) -> Vec<Self> {
        let of = |gpu: u32| Self {
            gpu,
            pci: snapshot.address_of(gpu),
            has_processes: has_processes(snapshot, gpu),
        };
        snapshot.gpus.iter().map(|gpu| of(gpu.index)).collect()
    }
}

fn has_processes(snapshot: &Snapshot, gpu: u32) -> bool {
    let gpu = snapshot.gpu(gpu);
    gpu.and_then(|gpu| gpu.processes.known()).is_some_and(|processes| !processes.is_empty())
}

/// Lower bounds of a GPU's activity in such a time. The rates are averages between two readings, and the counter of
/// PCIe bytes wraps. A figure is null if NVML does not report it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Background {
    /// NVML's index.
    pub gpu: u32,
    /// The time at which it was left idle.
    pub moment: Moment,
    /// Data sent over its NVLinks.
    pub nvlink_sent_gbps: Option<GbPerSecond>,
    /// Data received over its NVLinks.
    pub nvlink_received_gbps: Option<GbPerSecond>,
    /// Bytes sent over its PCIe link.
    pub pcie_sent_gbps: Option<GbPerSecond>,
    /// Bytes received over its PCIe link.
    pub pcie_received_gbps: Option<GbPerSecond>,
    /// Share of the time in which the GPU was busy, per cent. Null at the end, when it would show this program's own
    /// work.
    pub utilization_percent: Option<u8>,
    /// Reason why a figure is missing that this GPU and driver support. Null if none is missing.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its address, if it was left out of the run and its traffic passes links of the GPUs in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// True if other processes had a context on it. Only set for a GPU outside the run, like `pci`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_processes: bool,
}

impl Background {
    /// Returns a record without figures, for a GPU whose counters were not read.
    pub fn unread(gpu: LeftAlone, moment: Moment, reason: Option<String>) -> Self {
        let LeftAlone { gpu, pci, has_processes } = gpu;
        Self {
            gpu,
            moment,
            nvlink_sent_gbps: None,
            nvlink_received_gbps: None,
            pcie_sent_gbps: None,
            pcie_received_gbps: None,
            utilization_percent: None,
            reason,
            pci,
            has_processes,
        }
    }

    /// Returns the same without the facts of the GPU that the snapshot of the run already contains.
    #[must_use]
    pub fn within(self, snapshot: &Snapshot) -> Self {
        if snapshot.gpu(self.gpu).is_some() {
            Self { pci: None, has_processes: false, ..self }
        } else {
            self
        }
    }

    /// Returns true if data moved over its NVLinks.
    pub fn uses_nvlink(&self) -> bool {
        [self.nvlink_sent_gbps, self.nvlink_received_gbps]
            .into_iter()
            .flatten()
            .any(|rate| rate.0 >= NVLINK_GBPS)
    }

    /// Returns true if data moved over its PCIe link.
    pub fn uses_pcie(&self) -> bool {
        [self.pcie_sent_gbps, self.pcie_received_gbps]
            .into_iter()
            .flatten()
            .any(|rate| rate.0 >= PCIE_GBPS)
    }

    /// Returns its utilisation, per cent, if it is higher than that of an idle GPU.
    pub fn at_work_percent(&self) -> Option<u8> {
        self.utilization_percent.filter(|percent| *percent >= UTILIZATION_PERCENT)
    }

    /// Returns true if another program has a context on it.
    pub fn is_shared(&self, snapshot: &Snapshot) -> bool {
        self.has_processes || has_processes(snapshot, self.gpu)
    }

    /// Returns true if it works for another program. Utilisation alone is no proof: another program must have a
    /// context.
    fn works(&self, snapshot: &Snapshot) -> bool {
        self.at_work_percent().is_some() && self.is_shared(snapshot)
    }
}

/// Returns the GPUs on which other programs moved data or computed. A process that only has a context does not count.
pub fn of_others<'a>(
    seen: &'a [Background],
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a Background> + Clone {
    seen.iter().filter(|seen| seen.uses_nvlink() || seen.uses_pcie() || seen.works(snapshot))
}
