//! What was seen of links while copies ran.

use serde::{Deserialize, Serialize};

use super::snapshot::PcieErrors;
use super::units::PciAddress;

/// A GPU's PCIe link over the run: read before, while copies ran, and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LinkUnderLoad {
    /// NVML's index of the GPU.
    pub index: u32,
    /// Readings taken while copies ran.
    pub readings: u32,
    /// Lowest and highest PCIe generation seen.
    pub generation: Option<[u8; 2]>,
    /// Fewest and most lanes seen.
    pub width: Option<[u8; 2]>,
    /// What the link was in turn: one entry each time that it changed, the first included. Cut off
    /// after [`LinkUnderLoad::MOST_STATES`].
    #[serde(default)]
    pub states: Vec<LinkState>,
    /// Replays that were added during the run.
    pub replays_added: Option<u64>,
    /// PCIe error counts when the copies began.
    #[serde(default)]
    pub pcie_errors_before: Option<PcieErrors>,
    /// PCIe error counts when they had ended.
    #[serde(default)]
    pub pcie_errors_after: Option<PcieErrors>,
    /// What the active NVLinks of the GPU counted during the run, those that counted something;
    /// null where their counters were not read before and after.
    #[serde(default)]
    pub nvlink_errors: Option<Vec<NvLinkErrorsAdded>>,
    /// Uncorrected memory errors that ECC counted while copies ran; null where they are not counted.
    #[serde(default)]
    pub ecc_uncorrected_added: Option<u64>,
    /// Throttle reasons seen while copies ran, in NVML's names.
    pub throttle_reasons: Vec<String>,
    /// Why there are no readings, or fewer than there should be.
    pub reason: Option<String>,
}

/// Errors that one NVLink counted during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NvLinkErrorsAdded {
    /// Number of the link on its GPU.
    pub link: u8,
    /// CRC errors in flits.
    pub crc: u64,
    /// Replays.
    pub replay: u64,
    /// Recoveries.
    pub recovery: u64,
}

/// What a GPU showed and counted around the load patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AroundLoad {
    /// NVML's index of the GPU.
    pub gpu: u32,
    /// The last reading before the first pattern.
    pub before: GpuReadings,
    /// Readings while they ran.
    pub during: GpuReadings,
    /// The reading after the last one.
    pub after: GpuReadings,
    /// PCIe replays that were added from before to after. Null where they are not counted, like the next two.
    pub replays_added: Option<u64>,
    /// PCIe errors that were added.
    pub pcie_errors_added: Option<PcieErrors>,
    /// Uncorrected memory errors that ECC counted.
    pub ecc_uncorrected_added: Option<u64>,
    /// What the active NVLinks counted, those that counted something; null where their counters were not read both
    /// times.
    pub nvlink_errors: Option<Vec<NvLinkErrorsAdded>>,
    /// Why a reading is missing; null where none is.
    pub reason: Option<String>,
}

/// Clocks and heat of a GPU over some readings, and what held it back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuReadings {
    /// How many.
    pub readings: u32,
    /// Lowest and highest clock of the multiprocessors, MHz. Null where no reading has it, like the next two.
    pub sm_clock_mhz: Option<[u32; 2]>,
    /// Lowest and highest clock of the memory, MHz.
    pub memory_clock_mhz: Option<[u32; 2]>,
    /// Lowest and highest temperature, degrees Celsius.
    pub temperature_c: Option<[u32; 2]>,
    /// Throttle reasons, in NVML's names.
    pub throttle_reasons: Vec<String>,
}

impl LinkUnderLoad {
    /// Changes of a link that are kept: one that changes more often is known for it by then.
    pub const MOST_STATES: usize = 64;
}

/// What a PCIe link was from one reading on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct LinkState {
    /// Number of the first reading that showed it, from 0.
    pub reading: u32,
    /// PCIe generation.
    pub generation: u8,
    /// Lanes.
    pub width: u8,
}

/// What the AER counters of a PCI function rose by during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AerAdded {
    /// The function.
    pub address: PciAddress,
    /// The counts.
    #[serde(flatten)]
    pub added: PcieErrors,
}
