//! What GPUs did while this program left them alone: traffic and work of other programs.

use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::units::{GbPerSecond, PciAddress};

/// Rates from which NVLink traffic is somebody's: at rest the counters of H200 stand still.
const NVLINK_GBPS: f64 = 0.1;
/// The same over PCIe. An H200 at rest moves 0.002 GB/s, and up to 0.1 while a context is created.
const PCIE_GBPS: f64 = 0.2;
/// Utilisation from which a GPU works for somebody, per cent. At rest an H200 shows up to 3.
const UTILIZATION_PERCENT: u8 = 10;

/// When a GPU was left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// While the CUDA driver started.
    Start,
    /// After the last copy.
    End,
    /// While several flows ran at once: what its NVLinks counted beyond the bytes of this program.
    Load,
}

/// A GPU that is left alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftAlone {
    /// NVML's index.
    pub gpu: u32,
    /// Its address, if it is not among the GPUs of the run.
    pub pci: Option<PciAddress>,
    /// Whether other processes have a context on it, likewise.
    pub has_processes: bool,
}

impl LeftAlone {
    /// All GPUs of a machine, as if none of them were among the GPUs of the run.
    pub fn all(snapshot: &Snapshot) -> Vec<Self> {
        let of = |gpu: u32| Self {
            gpu,
            pci: snapshot.address_of(gpu),
            has_processes: has_processes(snapshot, gpu),
        };
        snapshot.gpus.iter().map(|gpu| of(gpu.index)).collect()
    }

    /// The same GPU; what the facts of a run say of it is not said again.
    #[must_use]
    pub fn within(self, snapshot: &Snapshot) -> Self {
        if snapshot.gpu(self.gpu).is_some() {
            Self {
                gpu: self.gpu,
                ..Self::default()
            }
        } else {
            self
        }
    }
}

fn has_processes(snapshot: &Snapshot, gpu: u32) -> bool {
    let gpu = snapshot.gpu(gpu);
    gpu.and_then(|gpu| gpu.processes.known())
        .is_some_and(|processes| !processes.is_empty())
}

/// What a GPU did in such a time, at least: between two looks the rates are averages, and the counter of
/// PCIe bytes wraps. A figure is null where NVML does not give it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Background {
    /// NVML's index.
    pub gpu: u32,
    /// When.
    pub moment: Moment,
    /// Data sent over its NVLinks.
    pub nvlink_sent_gbps: Option<GbPerSecond>,
    /// Data received over its NVLinks.
    pub nvlink_received_gbps: Option<GbPerSecond>,
    /// Bytes sent over its PCIe link.
    pub pcie_sent_gbps: Option<GbPerSecond>,
    /// Bytes received over its PCIe link.
    pub pcie_received_gbps: Option<GbPerSecond>,
    /// Share of the time in which it did something. Null at the end, where it shows this program's own
    /// work.
    pub utilization_percent: Option<u8>,
    /// Why a figure is missing that this GPU and driver have; null where none is.
    #[serde(default)]
    pub reason: Option<String>,
    /// Its address, where it was left out of the run and its traffic passes links of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// Whether other processes had a context on it, likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_processes: bool,
}

impl Background {
    /// Of a GPU of which nothing is known.
    pub fn unread(gpu: LeftAlone, moment: Moment, reason: Option<String>) -> Self {
        let LeftAlone {
            gpu,
            pci,
            has_processes,
        } = gpu;
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

    /// Whether data moved over its NVLinks.
    pub fn uses_nvlink(&self) -> bool {
        [self.nvlink_sent_gbps, self.nvlink_received_gbps]
            .into_iter()
            .flatten()
            .any(|rate| rate.0 >= NVLINK_GBPS)
    }

    /// Whether data moved over its PCIe link.
    pub fn uses_pcie(&self) -> bool {
        [self.pcie_sent_gbps, self.pcie_received_gbps]
            .into_iter()
            .flatten()
            .any(|rate| rate.0 >= PCIE_GBPS)
    }

    /// Its utilisation, where that is more than a GPU at rest shows, per cent.
    pub fn at_work_percent(&self) -> Option<u8> {
        self.utilization_percent
            .filter(|percent| *percent >= UTILIZATION_PERCENT)
    }

    /// Whether another program has a context on it.
    pub fn is_shared(&self, snapshot: &Snapshot) -> bool {
        self.has_processes || has_processes(snapshot, self.gpu)
    }

    /// Whether it is at work for another program. Utilisation alone is no proof: a program must be there.
    fn works(&self, snapshot: &Snapshot) -> bool {
        self.at_work_percent().is_some() && self.is_shared(snapshot)
    }
}

/// What other programs did with the GPUs: where they moved data or computed. A process that only has a
/// context is not among them.
pub fn of_others<'a>(
    seen: &'a [Background],
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = &'a Background> + Clone {
    seen.iter()
        .filter(|seen| seen.uses_nvlink() || seen.uses_pcie() || seen.works(snapshot))
}
