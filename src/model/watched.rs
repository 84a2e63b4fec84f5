//! The readings of `watch`: the traffic of all programs while a job runs.

use serde::{Deserialize, Serialize};

use super::measurement::{AerAdded, LinkUnderLoad};
use super::snapshot::GpuProcess;
use super::units::GbPerSecond;

/// The readings of `watch`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Watched {
    /// Time from the first reading to the last, seconds.
    pub seconds: f64,
    /// Every GPU that was watched.
    pub gpus: Vec<WatchedGpu>,
    /// PCIe links and counters meanwhile.
    pub links: Vec<LinkUnderLoad>,
    /// PCI functions whose AER counters rose meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aer_added: Vec<AerAdded>,
}

/// A GPU and its traffic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct WatchedGpu {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// Number of readings.
    pub readings: u32,
    /// Share of the time in which a kernel or a copy ran, per cent.
    pub busy_percent: Option<f64>,
    /// Median clock of the multiprocessors in the readings that found the GPU busy, or in all if none did, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Mean power, and its limit, watts.
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    /// Highest temperature of the chip, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Data sent over all NVLinks.
    pub nvlink_sent_gbps: Option<GbPerSecond>,
    /// Data received over all NVLinks.
    pub nvlink_received_gbps: Option<GbPerSecond>,
    /// Bytes sent over PCIe, packets included: the mean of short windows, since the counter wraps.
    pub pcie_sent_gbps: Option<GbPerSecond>,
    /// Bytes received over PCIe, in the same way.
    pub pcie_received_gbps: Option<GbPerSecond>,
    /// Each active NVLink. Empty if they are not counted one by one.
    #[serde(default)]
    pub nvlinks: Vec<LinkTraffic>,
    /// Share of the time in which a reason held the clocks back, by NVML's names.
    #[serde(default)]
    pub held: Vec<Held>,
    /// Programs that use the GPU.
    #[serde(default)]
    pub programs: Vec<GpuProcess>,
    /// Reason why there are no readings, or why a value that this GPU has is missing.
    pub reason: Option<String>,
}

/// The traffic of one NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LinkTraffic {
    /// NVML's number of the link.
    pub link: u8,
    /// Data sent.
    pub sent_gbps: GbPerSecond,
    /// Data received.
    pub received_gbps: GbPerSecond,
}

/// A reason that held clocks back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Held {
    /// NVML's name of the reason.
    pub reason: String,
    /// Share of the time, per cent.
    pub percent: f64,
    /// Time that the driver counted for it, nanoseconds. Null if it does not; the share is then that of the readings.
    pub nanoseconds: Option<u64>,
}

impl Watched {
    /// Rate from which on a GPU counts as one that moves data, GB/s. Chosen: the polling of a driver stays far below.
    pub const LEAST_GBPS: f64 = 0.05;

    /// Returns true if some GPU moved data, or computed.
    pub fn is_any_busy(&self) -> bool {
        self.gpus.iter().any(WatchedGpu::is_busy)
    }

    /// Returns the GPU with this index.
    pub fn gpu(&self, index: u32) -> Option<&WatchedGpu> {
        self.gpus.iter().find(|gpu| gpu.gpu == index)
    }
}

impl WatchedGpu {
    /// Share of the time from which on a GPU counts as busy, per cent. Chosen.
    pub const BUSY_PERCENT: f64 = 50.0;

    /// Returns true if the GPU moved data, or computed.
    pub fn is_busy(&self) -> bool {
        let rates = [
            self.nvlink_sent_gbps,
            self.nvlink_received_gbps,
            self.pcie_sent_gbps,
            self.pcie_received_gbps,
        ];
        rates.into_iter().flatten().any(|rate| rate.0 >= Watched::LEAST_GBPS)
            || self.busy_percent.is_some_and(|percent| percent >= Self::BUSY_PERCENT)
    }
}
