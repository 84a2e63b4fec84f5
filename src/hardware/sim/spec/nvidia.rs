//! NVIDIA's functions on the bus of a simulated machine, whatever NVML lists.

use serde::{Deserialize, Serialize};

use super::{FunctionSpec, MachineSpec};
use model::reading::{Reading, Unknown};
use model::snapshot::{BoundDriver, DeviceFile, DisplayFunction, NvSwitch, PciKind};

const NVIDIA: u16 = 0x10de;
/// Classes without the programming interface: VGA controller, 3D controller, and an NVSwitch.
const DISPLAYS: [u32; 2] = [0x0300, 0x0302];
const SWITCH: u32 = 0x0680;

/// How a container hides a GPU of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Hidden {
    /// Its device file may not be used.
    Refused,
    /// There is no device file of it.
    Missing,
    /// Nor is it in the list of the NVIDIA driver in /proc.
    Masked,
}

impl FunctionSpec {
    /// Whether it is an NVSwitch.
    pub fn is_nvswitch(&self) -> bool {
        self.id.0 == NVIDIA && self.class >> 8 == SWITCH
    }

    /// Whether it is a display function of NVIDIA's.
    pub fn is_display(&self) -> bool {
        self.kind == PciKind::Endpoint
            && self.id.0 == NVIDIA
            && DISPLAYS.contains(&(self.class >> 8))
    }
}

impl MachineSpec {
    /// The kernel driver that is bound to a function.
    pub fn driver_of(&self, function: &FunctionSpec) -> BoundDriver {
        let given = || match function.class >> 8 {
            SWITCH => BoundDriver::Other("nvidia-nvswitch".into()),
            _ if self.gpus.iter().any(|gpu| gpu.pci == function.address) => BoundDriver::Nvidia,
            _ => BoundDriver::None,
        };
        function.driver.clone().unwrap_or_else(given)
    }

    /// The display functions of NVIDIA, by address. GPUs have their index for a minor number, others follow.
    pub fn displays(&self) -> Vec<DisplayFunction> {
        let mut functions: Vec<_> = self
            .pci
            .iter()
            .filter(|function| function.is_display())
            .collect();
        functions.sort_by_key(|function| function.address);
        let mut next = self.gpus.len();
        let display = |function: &FunctionSpec| {
            let driver = self.driver_of(function);
            let mut display =
                DisplayFunction::unread(function.address, None, &Unknown::Unsupported);
            if driver == BoundDriver::Nvidia {
                display.in_driver_list = Reading::Known(function.hidden != Some(Hidden::Masked));
            }
            if display.in_driver_list.get() == Some(true) {
                let gpu = self.gpus.iter().position(|gpu| gpu.pci == function.address);
                let minor = gpu.unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                display.minor = u32::try_from(minor)
                    .map_err(|_| Unknown::Unsupported)
                    .into();
                display.excluded = Reading::Known(function.excluded);
                display.device_file = Reading::Known(match function.hidden {
                    Some(Hidden::Refused) => DeviceFile::Refused,
                    Some(Hidden::Missing) => DeviceFile::Missing,
                    _ => DeviceFile::Usable,
                });
            }
            DisplayFunction {
                driver: Reading::Known(driver),
                ..display
            }
        };
        functions.into_iter().map(display).collect()
    }

    /// The NVSwitches, by address.
    pub fn nvswitches(&self) -> Vec<NvSwitch> {
        let switches = self.pci.iter().filter(|function| function.is_nvswitch());
        let mut switches: Vec<_> = switches
            .map(|function| NvSwitch {
                address: function.address,
                device_id: Reading::Known(function.id.1),
                driver: Reading::Known(self.driver_of(function)),
            })
            .collect();
        switches.sort_by_key(|switch| switch.address);
        switches
    }
}
