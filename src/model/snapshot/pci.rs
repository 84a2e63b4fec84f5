//! The PCI tree and what hangs in it beside the GPUs.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::reading::facts;
use crate::model::units::{Bytes, Generation, Lanes, PciAddress, held_as_text};

facts! {
    /// A PCI function on the way from a device up to its root port.
    pub struct PciFunction {
        /// Its address.
        address: PciAddress,
        /// The bridge above it; null at a root port and at a device of the root bus.
        parent: Option<PciAddress>,
        /// The host bridge it hangs below, as the kernel names it (`pci0000:00`).
        host_bridge: String,
        /// What it is.
        kind: PciKind,
        => readings {
            /// PCI vendor id.
            vendor: u16,
            /// PCI device id.
            device_id: u16,
            /// Class code, 24 bits.
            class: u32,
            /// PCIe generation of the link towards the root, now.
            generation: Generation as u8,
            /// Lanes of that link, now.
            width: Lanes as u8,
            /// Highest generation that this end of the link can do.
            generation_max: Generation as u8,
            /// Most lanes that this end can do.
            width_max: Lanes as u8,
            /// NUMA node.
            numa_node: u32,
            /// Label of the physical slot, where the firmware names one.
            slot: String,
            /// Corrected errors, from the AER counters.
            aer_correctable: u64,
            /// Errors that were not corrected, not fatal.
            aer_nonfatal: u64,
            /// Fatal errors.
            aer_fatal: u64,
            /// IOMMU group.
            iommu_group: u32,
            /// How the IOMMU treats the group: `identity`, `DMA`, `DMA-FQ`, `blocked`.
            iommu_type: String,
            /// Whether access control sends peer requests up to the root (request redirect).
            acs_redirect: bool,
            /// Whether its configuration space can be read; of a function that fell off the bus or has no power it
            /// reads all ones.
            answers: bool,
            /// Most payload of a packet that it sends and takes, bytes.
            max_payload_bytes: u16,
            /// The same that it could be set to.
            max_payload_possible_bytes: u16,
            /// Most that it asks for in one read, bytes.
            max_read_request_bytes: u16,
            /// Power state.
            power_state: PciPower,
            /// State of runtime power management.
            runtime_status: RuntimeStatus,
            /// Whether the firmware says that a user can take it out: it hangs at a cable or a dock.
            removable: bool,
            /// Windows in the address space; of NVIDIA's GPUs alone.
            bars: Vec<Bar>,
        }
    }
}

/// What a PCI function is in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PciKind {
    /// A port of the root complex. Its link figures are those of the link below it.
    RootPort,
    /// Upstream port of a switch.
    SwitchUpstream,
    /// Downstream port of a switch. Its link figures are those of the link below it.
    SwitchDownstream,
    /// A bridge whose part in the tree is not known.
    Bridge,
    /// A device.
    Endpoint,
}

/// The power state of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum PciPower {
    /// On.
    D0,
    /// Light sleep.
    D1,
    /// Deeper sleep.
    D2,
    /// Asleep, with power.
    #[serde(rename = "D3hot")]
    D3Hot,
    /// Without power: it answers nothing.
    #[serde(rename = "D3cold")]
    D3Cold,
}

impl fmt::Display for PciPower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::D0 => "D0",
            Self::D1 => "D1",
            Self::D2 => "D2",
            Self::D3Hot => "D3hot",
            Self::D3Cold => "D3cold",
        })
    }
}

/// What the kernel's runtime power management makes of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeStatus {
    /// It is on.
    Active,
    /// It is put to sleep while nobody uses it.
    Suspended,
    /// It is being put to sleep.
    Suspending,
    /// It is being woken up.
    Resuming,
    /// It could not be put to sleep or woken up.
    Error,
}

/// A window of a PCI function in the address space (base address register).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Bar {
    /// Its number, 0 to 5.
    pub number: u8,
    /// Its size.
    pub bytes: Bytes,
    /// The largest size that the function offers (resizable BAR); null where it cannot be resized, or the kernel does
    /// not tell (before Linux 6.1).
    pub largest_bytes: Option<Bytes>,
}

facts! {
    /// An NVIDIA display function on the PCI bus.
    pub struct DisplayFunction {
        /// Its address.
        address: PciAddress,
        /// The GPU that it must be: one that NVML counts and does not identify, with no other function left
        /// for it. Null where it is none, and where that is open.
        gpu: Option<u32>,
        => readings {
            /// The kernel driver that is bound to it.
            driver: BoundDriver,
            /// Whether the list of the NVIDIA driver (/proc/driver/nvidia/gpus) has it. The driver lists all GPUs that
            /// it has; NVIDIA's container runtime shows a container those of its own.
            in_driver_list: bool,
            /// The minor number that the NVIDIA driver gave it. A container may hide the driver's list.
            minor: u32,
            /// Whether the administrator excluded it from use by a parameter of the NVIDIA driver.
            excluded: bool,
            /// What this process may do with its device file.
            device_file: DeviceFile,
        }
    }
}

impl DisplayFunction {
    /// Whether the NVIDIA driver has it, and it is there for this process: NVML then lists it, unless something
    /// is wrong with it.
    pub fn is_for_us(&self) -> bool {
        self.driver.known() == Some(&BoundDriver::Nvidia)
            && self.excluded.get() != Some(true)
            && self.device_file.get() == Some(DeviceFile::Usable)
    }
}

facts! {
    /// An NVSwitch on the PCI bus.
    pub struct NvSwitch {
        /// Its address.
        address: PciAddress,
        => readings {
            /// PCI device id.
            device_id: u16,
            /// The kernel driver that is bound to it.
            driver: BoundDriver,
        }
    }
}

/// The kernel driver that is bound to a PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundDriver {
    /// None is.
    None,
    /// NVIDIA's.
    Nvidia,
    /// The free driver for NVIDIA's boards, which serves no CUDA.
    Nouveau,
    /// One that gives the function to a virtual machine.
    VfioPci,
    /// Another.
    Other(String),
}

impl BoundDriver {
    /// Whether it gives functions to virtual machines: vfio-pci, one of the drivers for certain devices that are
    /// built on it (nvgrace-gpu-vfio-pci, mlx5_vfio_pci), or one of those that only hold a function for that.
    pub fn gives_to_guests(&self) -> bool {
        let Self::Other(name) = self else {
            return *self == Self::VfioPci;
        };
        let name = name.replace('_', "-");
        name.ends_with("-vfio-pci")
            || ["vfio-pci", "pci-stub", "xen-pciback", "pciback"].contains(&name.as_str())
    }
}

impl fmt::Display for BoundDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Nvidia => "nvidia",
            Self::Nouveau => "nouveau",
            Self::VfioPci => "vfio-pci",
            Self::Other(name) => name,
        })
    }
}

impl FromStr for BoundDriver {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "none" => Self::None,
            "nvidia" => Self::Nvidia,
            "nouveau" => Self::Nouveau,
            "vfio-pci" => Self::VfioPci,
            other => Self::Other(other.to_owned()),
        })
    }
}

held_as_text!(BoundDriver);

/// What this process may do with the device file of a GPU. Containers have those of their GPUs alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeviceFile {
    /// Read and write it.
    Usable,
    /// Nothing: it may not.
    Refused,
    /// Nothing: there is none.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_are_built_on_vfio_give_functions_to_guests_too() {
        for (name, guests) in [
            ("vfio-pci", true),
            ("nvgrace-gpu-vfio-pci", true),
            ("mlx5_vfio_pci", true),
            ("pci-stub", true),
            ("xen-pciback", true),
            ("nvidia", false),
            ("nouveau", false),
            ("none", false),
            ("novfio-pci", false),
            ("nvidia-vgpu-vfio", false),
        ] {
            let Ok(driver) = name.parse::<BoundDriver>();
            assert_eq!(
                (driver.gives_to_guests(), driver.to_string().as_str()),
                (guests, name)
            );
        }
    }
}
