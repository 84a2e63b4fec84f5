//! The PCI tree, and other devices in it beside the GPUs.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pcie::{DISPLAYS, SWITCH, is_nvidia};
use crate::reading::facts;
use crate::units::{Bytes, Generation, Lanes, PciAddress, held_as_text};

facts! {
    /// A PCI function on the way from a device up to its root port.
    pub struct PciFunction {
        /// PCI address.
        address: PciAddress,
        /// The bridge above it. Null for a root port and for a device of the root bus.
        parent: Option<PciAddress>,
        /// The host bridge above it, as the kernel names it (`pci0000:00`).
        host_bridge: String,
        /// Kind of the function.
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
            /// Highest generation that this end of the link supports.
            generation_max: Generation as u8,
            /// Most lanes that this end supports.
            width_max: Lanes as u8,
            /// NUMA node.
            numa_node: u32,
            /// Label of the physical slot, if the firmware names one.
            slot: String,
            /// Corrected errors, from the AER counters.
            aer_correctable: u64,
            /// Errors that were neither corrected nor fatal.
            aer_nonfatal: u64,
            /// Fatal errors.
            aer_fatal: u64,
            /// IOMMU group.
            iommu_group: u32,
            /// IOMMU type of the group: `identity`, `DMA`, `DMA-FQ`, `blocked`.
            iommu_type: String,
            /// True if access control sends peer requests up to the root (request redirect).
            acs_redirect: bool,
            /// True if its configuration space can be read. It reads all ones if the function fell off the bus or has
            /// no power.
            answers: bool,
            /// Maximum payload of a packet that it sends and accepts, bytes.
            max_payload_bytes: u16,
            /// Highest maximum payload that it could be set to, bytes.
            max_payload_possible_bytes: u16,
            /// Most bytes that it requests in one read.
            max_read_request_bytes: u16,
            /// Power state.
            power_state: PciPower,
            /// State of runtime power management.
            runtime_status: RuntimeStatus,
            /// True if the firmware reports that a user can remove it, for example behind a cable or a dock.
            removable: bool,
            /// Windows in the address space. Only read for NVIDIA's GPUs.
            bars: Vec<Bar>,
        }
    }
}

impl PciFunction {
    /// Returns true if it is a display function of NVIDIA's.
    pub fn is_display(&self) -> bool {
        self.is_nvidia(&DISPLAYS)
    }

    /// Returns true if it is an NVSwitch.
    pub fn is_nvswitch(&self) -> bool {
        self.is_nvidia(&[SWITCH])
    }

    fn is_nvidia(&self, classes: &[u32]) -> bool {
        let known = self.vendor.get().zip(self.class.get());
        known.is_some_and(|(vendor, class)| is_nvidia(vendor, class, classes))
    }
}

/// The kind of a PCI function in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PciKind {
    /// A port of the root complex. Its link figures belong to the link below it.
    RootPort,
    /// Upstream port of a switch.
    SwitchUpstream,
    /// Downstream port of a switch. Its link figures belong to the link below it.
    SwitchDownstream,
    /// A bridge whose role in the tree is not known.
    Bridge,
    /// A device.
    Endpoint,
}

/// The power state of a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
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
    /// Without power; it does not answer.
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

/// The runtime power management state that the kernel reports for a PCI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeStatus {
    /// It is on.
    Active,
    /// It is suspended while nobody uses it.
    Suspended,
    /// It is being suspended.
    Suspending,
    /// It is being resumed.
    Resuming,
    /// It could not be suspended or resumed.
    Error,
}

/// A window of a PCI function in the address space (base address register).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Bar {
    /// Number of the window, 0 to 5.
    pub number: u8,
    /// Size of the window.
    pub bytes: Bytes,
    /// Largest size that the function offers (resizable BAR). Null if it cannot be resized, or if the kernel does not
    /// report the size (before Linux 6.1).
    pub largest_bytes: Option<Bytes>,
}

facts! {
    /// An NVIDIA display function on the PCI bus.
    pub struct DisplayFunction {
        /// PCI address.
        address: PciAddress,
        /// The GPU that this function must be: NVML counts that GPU without identifying it, and no other function is
        /// left for it. Null if the function is no GPU of NVML's, or if this cannot be decided.
        gpu: Option<u32>,
        => readings {
            /// Kernel driver that is bound to it.
            driver: BoundDriver,
            /// True if the NVIDIA driver lists it in /proc/driver/nvidia/gpus. The driver lists all its GPUs there;
            /// NVIDIA's container runtime shows a container only its own.
            in_driver_list: bool,
            /// Minor number that the NVIDIA driver assigned. A container may hide the driver's list.
            minor: u32,
            /// True if the administrator excluded it by a parameter of the NVIDIA driver.
            excluded: bool,
            /// Access of this process to its device file.
            device_file: DeviceFile,
        }
    }
}

impl DisplayFunction {
    /// Returns true if the NVIDIA driver has it and this process may use it. NVML then lists it, unless something is
    /// wrong with it.
    pub fn is_for_us(&self) -> bool {
        self.driver.known() == Some(&BoundDriver::Nvidia)
            && self.excluded.get() != Some(true)
            && self.device_file.get() == Some(DeviceFile::Usable)
    }
}

facts! {
    /// An NVSwitch on the PCI bus.
    pub struct NvSwitch {
        /// PCI address.
        address: PciAddress,
        => readings {
            /// PCI device id.
            device_id: u16,
            /// Kernel driver that is bound to it.
            driver: BoundDriver,
        }
    }
}

/// The kernel driver that is bound to a PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundDriver {
    /// No driver.
    None,
    /// NVIDIA's driver.
    Nvidia,
    /// The open-source driver for NVIDIA's boards, which does not support CUDA.
    Nouveau,
    /// The driver that gives the function to a virtual machine.
    VfioPci,
    /// Another driver.
    Other(String),
}

impl BoundDriver {
    /// Returns true if the driver gives functions to virtual machines. This is vfio-pci, a driver for certain devices
    /// that is built on it (nvgrace-gpu-vfio-pci, mlx5_vfio_pci), or one that only reserves a function for that.
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

/// Access of this process to the device file of a GPU. Containers have only the files of their own GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeviceFile {
    /// The process may read and write it.
    Usable,
    /// The process may not use it.
    Refused,
    /// The file does not exist.
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
            assert_eq!((driver.gives_to_guests(), driver.to_string().as_str()), (guests, name));
        }
    }
}
