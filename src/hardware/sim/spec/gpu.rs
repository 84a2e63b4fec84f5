//! A GPU of a simulated machine.

use serde::{Deserialize, Serialize};

use super::numbers::positive;
use super::{Engines, Micros, Rate, text};
use hardware::GpuGroup;
use model::reading::{Reading, Unknown};
use model::snapshot::{C2cErrors, C2cLinks, ComputeMode, FabricState, Gpu, GpuProcess};
use model::units::{Bytes, PciAddress};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// Product name.
    pub name: String,
    pub architecture: String,
    /// Its PCI function.
    pub pci: PciAddress,
    /// Total memory.
    #[serde(with = "text")]
    pub memory: Bytes,
    /// Memory that is free before the tool allocates any; all of it if omitted.
    #[serde(with = "text")]
    pub memory_free: Bytes,
    /// BAR1 window.
    #[serde(with = "text")]
    pub bar1: Bytes,
    /// Rate of copies within the GPU, GB/s: bytes copied, not read plus written. If omitted, the rate of the model.
    pub local_gbps: Rate,
    /// Copies to and from other GPUs that may run at the same time, in each direction.
    pub copy_engines: Engines,
    /// Copies to and from the host that may run at the same time in each direction, in addition to `copy_engines`.
    pub host_engines: Engines,
    /// True if copies to the host and from it use the same engines, and so take turns.
    pub one_host_engine: bool,
    /// Copy engines that the driver reports. If omitted, one for peers and those for each direction.
    pub engines_reported: Option<u32>,
    /// Extra delay with which this GPU starts released work, compared with others, microseconds.
    pub gate_delay_us: Micros,
    /// Clocks of multiprocessors and memory, MHz.
    pub clocks_mhz: (u32, u32),
    /// NVLinks in the order of their numbers.
    pub nvlinks: Vec<NvLinkSpec>,
    /// True if it has a coherent link to the processor, as on Grace.
    pub c2c: bool,
    /// Its links to the processor as NVML shows them. Without the key, an older driver that shows none.
    pub c2c_links: Option<C2cSpec>,
    /// True if it is a part of the processor and uses its memory, as on Jetson and GB10.
    pub integrated: bool,
    /// True if memory of a process cannot be registered for its copies, as on older Jetson.
    pub registers_no_memory: bool,
    /// True if network adapters may reach its memory (GPUDirect RDMA). By default true for all but GeForce boards.
    pub gpu_direct: Option<bool>,
    /// Fabric state of a GPU with links to switches. By default all is well.
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

    /// Returns the number of its NVLinks.
    pub(crate) fn link_count(&self) -> u32 {
        self.nvlinks.iter().map(|links| u32::from(links.count)).sum()
    }

    /// Returns true if network adapters may reach its memory.
    pub fn gpu_direct(&self) -> bool {
        self.gpu_direct.unwrap_or_else(|| !self.name.contains("GeForce"))
    }
}

/// NVLinks of a GPU with the same properties.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkSpec {
    #[serde(deserialize_with = "positive")]
    pub count: u8,
    /// True if they are up.
    #[serde(default = "yes")]
    pub active: bool,
    /// Version, such as `4.0`.
    #[serde(deserialize_with = "text::nvlink_version")]
    pub version: String,
    /// Other end of the links.
    pub remote: NvLinkTarget,
    /// Payload rate of each link per direction, GB/s, if it is not the usual one of the version.
    pub link_gbps: Option<Rate>,
    /// Errors that each link had counted before the tool started.
    #[serde(default)]
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
    pub failed_recovery: u64,
    /// Packets that were malformed, did not fit the buffer, or were discarded.
    pub packet: u64,
    /// Errors that forward error correction did not correct.
    pub effective: u64,
    /// Codewords in which forward error correction corrected 1, 2, ... symbols, of NVLink 5 and later.
    #[serde(deserialize_with = "text::symbols")]
    pub corrected: Vec<u64>,
}

impl NvLinkErrors {
    /// Returns the codewords in which this number of symbols was corrected.
    pub(crate) fn corrected(&self, symbols: usize) -> u64 {
        let place = symbols.checked_sub(1);
        place.and_then(|place| self.corrected.get(place)).copied().unwrap_or(0)
    }
}

/// Links of a GPU to the processor of its module (NVLink-C2C).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct C2cSpec {
    #[serde(deserialize_with = "positive")]
    pub count: u32,
    /// Links that are up; all if omitted.
    pub active: Option<u32>,
    /// Rate of each per direction as NVML shows it, MB/s.
    #[serde(default = "c2c_mbps")]
    pub mbps: u32,
    /// What they carry together per direction, GB/s. If omitted, the rates of those that are up.
    pub gbps: Option<Rate>,
    /// Errors since the driver was loaded: checksums that failed.
    #[serde(default)]
    pub crc: u64,
    /// Packets sent again.
    #[serde(default)]
    pub replay: u64,
    /// Packets sent again twice in a row.
    #[serde(default)]
    pub replay_again: u64,
}

impl C2cSpec {
    /// Returns what NVML shows.
    pub(crate) fn links(&self) -> C2cLinks {
        let active = self.active.unwrap_or(self.count).min(self.count);
        C2cLinks {
            count: self.count,
            active,
            link_mbps: (active > 0).then_some(self.mbps),
            errors: Some(C2cErrors {
                crc: self.crc,
                replay: self.replay,
                replay_again: self.replay_again,
            }),
        }
    }

    /// Returns what they carry per direction, GB/s.
    pub(crate) fn gbps(&self) -> f64 {
        self.gbps.map_or_else(|| self.links().rate().map_or(0.0, |rate| rate.0), |gbps| *gbps)
    }
}

/// Rate of a link of GH200 and GB200, MB/s, as `nvidia-smi c2c -s` shows it.
const fn c2c_mbps() -> u32 {
    44_712
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
    pub health_mask: Option<u32>,
    /// Partition within the cluster.
    #[serde(default)]
    pub clique_id: u32,
    /// The cluster, 32 hexadecimal digits.
    #[serde(default = "no_cluster")]
    pub cluster_uuid: String,
}

const fn yes() -> bool {
    true
}

fn no_cluster() -> String {
    "0".repeat(32)
}

/// Declares keys of a description, each with its doc comment, its type and its default. scripts/machine-keys makes rows
/// of docs/machine-keys.md from them.
///
/// A key with `=> GROUP` is the fact of [`Gpu`] that has its name: `read` takes the fact from it. An `Option` is a fact that
/// some GPUs do not have.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$attribute:meta])* $key:ident : $type:ty = $default:expr $(=> $group:ident)?, )*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $( $(#[$attribute])* pub $key: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )* }
            }
        }

        impl $name {
            /// Keys that are facts, with the group in which they are read.
            #[cfg(test)]
            pub(crate) const FACTS: &[(&str, GpuGroup)] =
                &[$( $( (stringify!($key), GpuGroup::$group), )? )*];

            /// Fills in the facts of a group that are keys.
            pub(crate) fn read(&self, group: GpuGroup, gpu: &mut Gpu) {
                $( $(
                    if group == GpuGroup::$group {
                        gpu.$key = self.$key.clone().reading();
                    }
                )? )*
            }
        }
    };
}

/// A key that is a fact.
trait Fact<T> {
    fn reading(self) -> Reading<T>;
}

impl<T> Fact<T> for T {
    fn reading(self) -> Reading<T> {
        Reading::Known(self)
    }
}

impl<T> Fact<T> for Option<T> {
    fn reading(self) -> Reading<T> {
        self.ok_or(Unknown::Unsupported).into()
    }
}

keys! {
    /// Modes, errors, and other users.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct GpuState {
        /// Persistence mode.
        persistence: bool = true => State,
        /// ECC on or off.
        ecc: Option<bool> = Some(true) => State,
        /// Uncorrected ECC errors since the last reboot.
        ecc_uncorrected: u64 = 0,
        /// Uncorrected ECC errors counted while copies run.
        ecc_uncorrected_under_load: u64 = 0,
        /// True if a remapping of memory rows waits for a reset.
        remapping_pending: bool = false,
        /// True if a remapping of memory rows failed.
        remapping_failed: bool = false,
        /// Reasons for lower clocks at rest, in NVML's names (`["SW_POWER_CAP"]`) or the report's (`["sw-power-cap"]`).
        #[serde(deserialize_with = "text::throttle")]
        throttle_reasons: Vec<String> = Vec::new() => State,
        /// The same while copies run.
        #[serde(deserialize_with = "text::throttle")]
        throttle_under_load: Vec<String> = Vec::new(),
        /// Temperature of the chip at rest, degrees Celsius.
        temperature_c: u32 = 34 => State,
        /// The same while copies run.
        temperature_under_load_c: u32 = 42,
        /// Power while copies run in a soak, and its limit, watts. Without the key it is not known.
        power_under_load_w: Option<u32> = None,
        power_limit_w: Option<u32> = None,
        /// Performance state at rest, 0 (highest) to 15.
        power_state: u8 = 0 => State,
        /// MIG on or off. Without the key, the GPU does not have MIG.
        mig: Option<bool> = None => State,
        /// True if CUDA shows an instance of it, and not the whole GPU.
        mig_instance: bool = false,
        /// True if it is a virtual GPU.
        vgpu: bool = false => State,
        /// Compute mode.
        compute_mode: ComputeMode = ComputeMode::Default => State,
        /// Processes of other programs: `[{ pid = 4711, memory_bytes = 1073741824 }]`.
        processes: Vec<GpuProcess> = Vec::new(),
        /// Version of the video BIOS.
        vbios: String = "00.00.00.00.01".into() => Identity,
    }
}
