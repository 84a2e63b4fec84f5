//! A GPU of a simulated machine.

use serde::{Deserialize, Serialize};

use super::{defaults, text};
use model::snapshot::{ComputeMode, FabricState, GpuProcess};
use model::units::{Bytes, PciAddress};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// Product name.
    pub name: String,
    #[serde(default = "defaults::architecture")]
    pub architecture: String,
    /// Its PCI function.
    pub pci: PciAddress,
    /// Total memory.
    #[serde(default = "defaults::memory", with = "text::size")]
    pub memory: Bytes,
    /// Memory that is free before the tool allocates any; all of it if omitted.
    #[serde(default = "defaults::all", with = "text::size")]
    pub memory_free: Bytes,
    /// BAR1 window.
    #[serde(default = "defaults::bar1", with = "text::size")]
    pub bar1: Bytes,
    /// Rate of copies within the GPU, GB/s: bytes copied, not read plus written. If omitted, the rate of the model.
    #[serde(default = "defaults::local_gbps")]
    pub local_gbps: f64,
    /// Copies to and from other GPUs that may run at the same time, in each direction.
    #[serde(default = "defaults::copy_engines")]
    pub copy_engines: u32,
    /// Copies to and from the host that may run at the same time in each direction, in addition to `copy_engines`.
    #[serde(
        default = "defaults::host_engines",
        skip_serializing_if = "defaults::is_host_engines"
    )]
    pub host_engines: u32,
    /// True if copies to the host and from it use the same engines, and so take turns.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub one_host_engine: bool,
    /// Copy engines that the driver reports. If omitted, one for peers and those for each direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engines_reported: Option<u32>,
    /// Extra delay with which this GPU starts released work, compared with others, microseconds.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub gate_delay_us: f64,
    /// Clocks of multiprocessors and memory, MHz.
    #[serde(default = "defaults::clocks_mhz")]
    pub clocks_mhz: (u32, u32),
    /// NVLinks in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlinks: Vec<NvLinkSpec>,
    /// True if it has a coherent link to the processor, as on Grace.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub c2c: bool,
    /// True if it is a part of the processor and uses its memory, as on Jetson and GB10.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub integrated: bool,
    /// True if memory of a process cannot be registered for its copies, as on older Jetson.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub registers_no_memory: bool,
    /// True if network adapters may reach its memory (GPUDirect RDMA). By default true for all but GeForce boards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_direct: Option<bool>,
    /// Fabric state of a GPU with links to switches. By default all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricSpec>,
    /// Modes, errors, and other users.
    #[serde(default)]
    pub state: GpuState,
}

impl GpuSpec {
    /// Returns true if its copies with the host do not pass PCIe.
    pub fn beside_pcie(&self) -> bool {
        self.c2c || self.integrated
    }

    /// Returns true if network adapters may reach its memory.
    pub fn gpu_direct(&self) -> bool {
        self.gpu_direct
            .unwrap_or_else(|| !self.name.contains("GeForce"))
    }
}

/// NVLinks of a GPU with the same properties.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkSpec {
    pub count: u8,
    /// True if they are up.
    #[serde(default = "defaults::yes")]
    pub active: bool,
    /// Version, such as `4.0`.
    pub version: String,
    /// Other end of the links.
    pub remote: NvLinkTarget,
    /// Payload rate of each link per direction, GB/s, if it is not the usual one of the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_gbps: Option<f64>,
    /// Errors that each link had counted before the tool started.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub errors: NvLinkErrors,
}

/// Errors of an NVLink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvLinkErrors {
    /// Checksums that failed.
    pub crc: u64,
    /// Packets sent again.
    pub replay: u64,
    /// Retrainings of the link.
    pub recovery: u64,
    /// Retrainings after which the link was down. NVLink 5 and later count these and the next two.
    #[serde(skip_serializing_if = "super::is_default")]
    pub failed_recovery: u64,
    /// Packets that were malformed, did not fit the buffer, or were discarded.
    #[serde(skip_serializing_if = "super::is_default")]
    pub packet: u64,
    /// Errors that forward error correction did not correct.
    #[serde(skip_serializing_if = "super::is_default")]
    pub effective: u64,
    /// Codewords in which forward error correction corrected 1, 2, ... symbols, of NVLink 5 and later.
    #[serde(skip_serializing_if = "super::is_default")]
    pub corrected: Vec<u64>,
}

impl NvLinkErrors {
    /// Number of symbols of a codeword up to which NVML has a counter (`NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_15`).
    pub(crate) const MOST_SYMBOLS: usize = 15;

    /// Returns the codewords in which this number of symbols was corrected.
    pub(crate) fn corrected(&self, symbols: usize) -> u64 {
        let place = symbols.checked_sub(1);
        place
            .and_then(|place| self.corrected.get(place))
            .copied()
            .unwrap_or(0)
    }
}

/// The other end of an NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvLinkTarget {
    /// The NVSwitches.
    Switch,
    /// This GPU.
    Gpu(u32),
}

/// The fabric state of a GPU, as the NVSwitch fabric reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricSpec {
    /// Progress of the registration.
    pub state: FabricState,
    /// NVML's return code of the registration.
    #[serde(default)]
    pub status: u32,
    /// Health bits; `None` if the driver does not report them.
    #[serde(default)]
    pub health_mask: Option<u32>,
    /// Partition within the cluster.
    #[serde(default)]
    pub clique_id: u32,
    /// The cluster, 32 hexadecimal digits.
    #[serde(default = "no_cluster")]
    pub cluster_uuid: String,
}

fn no_cluster() -> String {
    "0".repeat(32)
}

/// Modes, errors, and other users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuState {
    pub persistence: bool,
    /// True if ECC is on; `None` if the GPU has no ECC.
    pub ecc: Option<bool>,
    /// Uncorrected ECC errors since the last reboot.
    pub ecc_uncorrected: u64,
    /// Uncorrected ECC errors counted while copies run.
    pub ecc_uncorrected_under_load: u64,
    /// True if a remapping of memory rows waits for a reset.
    pub remapping_pending: bool,
    /// True if a remapping of memory rows failed.
    pub remapping_failed: bool,
    /// Throttle reasons at rest, in NVML's names.
    #[serde(deserialize_with = "text::throttle::deserialize")]
    pub throttle_reasons: Vec<String>,
    /// Throttle reasons while copies run.
    #[serde(deserialize_with = "text::throttle::deserialize")]
    pub throttle_under_load: Vec<String>,
    /// Temperature at rest, degrees Celsius.
    pub temperature_c: u32,
    /// Temperature while copies run, degrees Celsius.
    pub temperature_under_load_c: u32,
    /// Performance state at rest, 0 to 15.
    pub power_state: u8,
    /// True if MIG is on; `None` if the GPU has no MIG.
    pub mig: Option<bool>,
    /// True if CUDA shows an instance of it, and not the whole GPU.
    pub mig_instance: bool,
    /// True if it is a virtual GPU.
    pub vgpu: bool,
    pub compute_mode: ComputeMode,
    /// Processes of other programs.
    pub processes: Vec<GpuProcess>,
    /// Version of the video BIOS.
    pub vbios: String,
}

impl Default for GpuState {
    fn default() -> Self {
        Self {
            persistence: true,
            ecc: Some(true),
            ecc_uncorrected: 0,
            ecc_uncorrected_under_load: 0,
            remapping_pending: false,
            remapping_failed: false,
            // Chosen.
            temperature_c: 34,
            temperature_under_load_c: 42,
            power_state: 0,
            throttle_reasons: Vec::new(),
            throttle_under_load: Vec::new(),
            mig: None,
            mig_instance: false,
            vgpu: false,
            compute_mode: ComputeMode::Default,
            processes: Vec::new(),
            vbios: "00.00.00.00.01".into(),
        }
    }
}
