//! A GPU as NVML and sysfs describe it.

use serde::{Deserialize, Serialize};

use super::SlowFact;
use super::nvlink::{Fabric, FabricState, NvLink};
use crate::reading::facts;
use crate::units::{Bytes, GbPerSecond, Generation, Lanes, PciAddress};

facts! {
    /// A GPU as NVML and sysfs describe it.
    pub struct Gpu {
        /// NVML's index, which nvidia-smi shows too.
        index: u32,
        => readings {
            /// PCI address.
            pci: PciAddress,
            /// NVML's UUID, `GPU-…`.
            uuid: String,
            /// Product name.
            name: String,
            /// Architecture, such as `Hopper`.
            architecture: String,
            /// Minor number of the device file, /dev/nvidiaN.
            minor: u32,
            /// Serial number of the board.
            serial: String,
            /// Version of the video BIOS.
            vbios: String,
            /// Memory of the device in bytes.
            memory_total_bytes: Bytes,
            /// Free memory in bytes.
            memory_free_bytes: Bytes,
            /// Size of the BAR1 window in bytes.
            bar1_total_bytes: Bytes,
            /// PCIe generation now; an idle GPU may show 1.
            pcie_generation: Generation as u8,
            /// PCIe lanes now.
            pcie_width: Lanes as u8,
            /// Highest PCIe generation that GPU and slot support together.
            pcie_generation_max: Generation as u8,
            /// Most PCIe lanes that GPU and slot support together.
            pcie_width_max: Lanes as u8,
            /// Highest PCIe generation that the GPU itself supports, regardless of the slot.
            pcie_generation_device_max: Generation as u8,
            /// PCIe replays since the driver was loaded.
            pcie_replays: u64,
            /// PCIe error counts since the driver was loaded.
            pcie_errors: PcieErrors,
            /// Every NVLink, inactive ones included. Empty for a GPU without NVLinks.
            nvlinks: Vec<NvLink>,
            /// State of the NVSwitch fabric as this GPU sees it.
            fabric: Fabric,
            /// Number of its module on the baseboard.
            module_id: u32,
            /// True if the chip-to-chip link to the processor is on.
            c2c: bool,
            /// Its links to the processor (NVLink-C2C), all of one kind.
            c2c_links: C2cLinks,
            /// True if MIG mode is on.
            mig: bool,
            /// True if it is a virtual GPU, which a hypervisor lets several machines share.
            vgpu: bool,
            /// Compute mode.
            compute_mode: ComputeMode,
            /// True if persistence mode is on.
            persistence: bool,
            /// True if ECC is on.
            ecc: bool,
            /// Uncorrected ECC errors since the last reboot.
            ecc_uncorrected: u64,
            /// Remapped memory rows.
            remapped_rows: RemappedRows,
            /// Reasons why the clocks are held back now, by NVML's names. Empty if nothing holds them back.
            throttle_reasons: Vec<String>,
            /// Clock of the multiprocessors, MHz.
            sm_clock_mhz: u32,
            /// Clock of the memory, MHz.
            memory_clock_mhz: u32,
            /// Temperature of the chip, degrees Celsius.
            temperature_c: u32,
            /// Performance state, 0 (highest) to 15.
            power_state: u8,
            /// Processes that hold memory on this GPU.
            processes: Vec<GpuProcess>,
            /// NUMA node of the slot, from sysfs.
            numa_node: u32,
        }
    }
}

impl Gpu {
    /// Returns the name for people: `GPU 3`.
    pub fn label(&self) -> String {
        format!("GPU {}", self.index)
    }

    /// Returns the number of its active NVLinks, or `None` if its NVLinks are not known.
    pub fn active_nvlinks(&self) -> Option<u32> {
        let links = self.nvlinks.known()?;
        u32::try_from(links.iter().filter(|link| link.active.get() == Some(true)).count()).ok()
    }

    /// Returns true if NVML reports an NVSwitch fabric.
    pub fn in_fabric(&self) -> bool {
        let fabric = self.fabric.known();
        fabric.is_some_and(|fabric| fabric.state != FabricState::NotSupported)
    }

    /// Returns true if the error counters of its NVLinks are still to be read.
    pub fn has_link_errors_left_out(&self) -> bool {
        let left_out =
            |link: &NvLink| link.crc_errors.unknown() == Some(&SlowFact::NvLinkErrors.not_read());
        self.nvlinks.known().is_some_and(|links| links.iter().any(left_out))
    }
}

/// Links between a GPU and the processor of its module. Source: nvml.h, `NVML_FI_DEV_C2C_LINK_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct C2cLinks {
    /// Links that NVML counts. Not all of them need be wired: the GPUs of a processor may share them.
    pub count: u32,
    /// Links that are up.
    pub active: u32,
    /// Rate of one link per direction, MB/s: the lowest of those that are up. Null if none is.
    pub link_mbps: Option<u32>,
    /// Errors of all links since the driver was loaded. Null if the driver does not count them.
    pub errors: Option<C2cErrors>,
}

impl C2cLinks {
    /// Returns the rate of the links that are up together, per direction.
    pub fn rate(self) -> Option<GbPerSecond> {
        let mbps = self.link_mbps.filter(|mbps| *mbps > 0 && self.active > 0)?;
        Some(GbPerSecond(f64::from(self.active) * f64::from(mbps) / 1000.0))
    }
}

/// Errors of the links between a GPU and its processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct C2cErrors {
    /// Checksums that failed (CRC).
    pub crc: u64,
    /// Packets sent again.
    pub replay: u64,
    /// Packets sent again twice in a row.
    pub replay_again: u64,
}

/// PCIe error counts of one GPU, since the driver was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct PcieErrors {
    /// Errors that the link corrected by itself.
    pub correctable: u64,
    /// Errors that were not corrected, not fatal to the link.
    pub non_fatal: u64,
    /// Errors that took the link down.
    pub fatal: u64,
}

/// Rows of GPU memory that were replaced by spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct RemappedRows {
    /// Rows remapped after corrected errors.
    pub corrected: u32,
    /// Rows remapped after uncorrected errors.
    pub uncorrected: u32,
    /// True if a remapping waits for a GPU reset.
    pub pending: bool,
    /// True if a remapping failed.
    pub failed: bool,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuProcess {
    /// Process id. In a container it may belong to the host's numbering.
    pub pid: u32,
    /// Name of its program, if the kernel reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// GPU memory that it uses, if NVML reports it.
    pub memory_bytes: Option<Bytes>,
}

/// NVML's compute mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One context per device (retired by NVIDIA).
    ExclusiveThread,
    /// No compute context at all.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

/// Reasons for lower clocks: NVML's names without `nvmlClocksEventReason`, and the report's, which rules know.
pub const THROTTLE_REASONS: [(&str, &str); 8] = [
    ("applications-clocks-setting", "applications-clocks"),
    ("sw-power-cap", "sw-power-cap"),
    ("hw-slowdown", "hw-slowdown"),
    ("sync-boost", "sync-boost"),
    ("sw-thermal-slowdown", "sw-thermal"),
    ("hw-thermal-slowdown", "hw-thermal"),
    ("hw-power-brake-slowdown", "hw-power-brake"),
    ("display-clock-setting", "display-clocks"),
];

/// Returns the report's name of a reason, by that name or by NVML's (`HW_THERMAL_SLOWDOWN`).
pub fn throttle_reason(name: &str) -> Option<&'static str> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let found = THROTTLE_REASONS.iter().find(|(nvml, ours)| plain == *nvml || plain == *ours);
    found.map(|(_, ours)| *ours)
}
