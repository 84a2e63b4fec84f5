//! State of links and GPUs while copies ran.

use serde::{Deserialize, Serialize};

use super::snapshot::PcieErrors;
use super::units::PciAddress;

/// A GPU's PCIe link during the run, read before, while and after copies ran.
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
    /// States of the link in turn: the first one, and one entry for each change. Cut off after
    /// [`LinkUnderLoad::MOST_STATES`].
    #[serde(default)]
    pub states: Vec<LinkState>,
    /// Replays that were added during the run.
    pub replays_added: Option<u64>,
    /// PCIe error counts when the copies started.
    #[serde(default)]
    pub pcie_errors_before: Option<PcieErrors>,
    /// PCIe error counts after the copies ended.
    #[serde(default)]
    pub pcie_errors_after: Option<PcieErrors>,
    /// Errors that the active NVLinks of the GPU counted during the run, without links that counted nothing. Null if
    /// their counters were not read before and after.
    #[serde(default)]
    pub nvlink_errors: Option<Vec<NvLinkErrorsAdded>>,
    /// Codewords in which forward error correction of the active NVLinks corrected symbols during the run, without links
    /// that corrected none. Null if they are not counted.
    #[serde(default)]
    pub nvlink_corrected: Option<Vec<NvLinkCorrected>>,
    /// Highest temperature of the GPU, degrees Celsius. Null if no reading contains it.
    #[serde(default)]
    pub temperature_max_c: Option<u32>,
    /// Uncorrected memory errors that ECC counted while copies ran. Null if they are not counted.
    #[serde(default)]
    pub ecc_uncorrected_added: Option<u64>,
    /// Throttle reasons seen while copies ran, by NVML's names.
    pub throttle_reasons: Vec<String>,
    /// Reason why there are no readings, or fewer than there should be.
    pub reason: Option<String>,
}

/// Errors that one NVLink counted during the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Recoveries that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_recovery: u64,
    /// Packets that were malformed, did not fit the buffer, or were discarded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub packet: u64,
    /// Errors that forward error correction did not correct.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub effective: u64,
}

impl NvLinkErrorsAdded {
    /// Returns the sum of all counts.
    pub const fn all(&self) -> u64 {
        self.crc
            .saturating_add(self.replay)
            .saturating_add(self.recovery)
            .saturating_add(self.failed_recovery)
            .saturating_add(self.packet)
            .saturating_add(self.effective)
    }
}

/// What forward error correction of one NVLink corrected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NvLinkCorrected {
    /// Number of the link on its GPU.
    pub link: u8,
    /// Codewords that it received, by the number of symbols that were corrected in them, from 0 on.
    pub codewords: Vec<u64>,
}

impl NvLinkCorrected {
    /// Symbols of a codeword from which on minutes under load keep what was corrected. Sound links of a
    /// GB300 had up to 2 (docs/dev/facts.md, "Pitfalls on real servers").
    pub const DEEP: usize = 3;

    /// Returns the codewords in which at least this many symbols were corrected.
    pub fn from(&self, symbols: usize) -> u64 {
        let some = self.codewords.iter().skip(symbols);
        some.copied().fold(0, u64::saturating_add)
    }

    /// Returns the most symbols that were corrected in a codeword.
    pub fn most(&self) -> usize {
        self.codewords.iter().rposition(|count| *count > 0).unwrap_or(0)
    }

    /// Adds what the same link corrected at another time.
    pub fn add(&mut self, other: &Self) {
        if self.codewords.len() < other.codewords.len() {
            self.codewords.resize(other.codewords.len(), 0);
        }
        for (count, more) in self.codewords.iter_mut().zip(&other.codewords) {
            *count = count.saturating_add(*more);
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LinkUnderLoad {
    /// Number of recorded states. A link that changes more often has been identified as unstable by then.
    pub const MOST_STATES: usize = 64;
}

/// The state of a PCIe link from one reading on.
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

/// The increase of a PCI function's AER counters during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct AerAdded {
    /// The function.
    pub address: PciAddress,
    /// Counts that were added.
    #[serde(flatten)]
    pub added: PcieErrors,
}
