//! NVIDIA's functions on the bus of a simulated machine, regardless of what NVML lists.

use serde::{Deserialize, Serialize};

use super::{FunctionSpec, MachineSpec};
use model::pcie::{DISPLAYS, SWITCH, is_nvidia};
use model::reading::{Reading, Unknown};
use model::snapshot::{BoundDriver, DeviceFile, DisplayFunction, NvSwitch, PciKind};

/// The way in which a container hides a GPU of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Hidden {
    /// Its device file may not be used.
    Refused,
    /// It has no device file.
    Missing,
    /// It has no device file, and is missing from the list of the NVIDIA driver in /proc.
    Masked,
}

impl FunctionSpec {
    /// Returns true if it is an NVSwitch.
    pub(crate) fn is_nvswitch(&self) -> bool {
        is_nvidia(self.id.0, self.class, &[SWITCH])
    }

    /// Returns true if it is a display function of NVIDIA's.
    pub(crate) fn is_display(&self) -> bool {
        self.kind == PciKind::Endpoint && is_nvidia(self.id.0, self.class, &DISPLAYS)
    }
}

impl MachineSpec {
    /// Returns the kernel driver that is bound to a function.
    pub fn driver_of(&self, function: &FunctionSpec) -> BoundDriver {
        let given = || match function.class >> 8 {
            SWITCH => BoundDriver::Other("nvidia-nvswitch".into()),
            _ if self.gpus.iter().any(|gpu| gpu.pci == function.address) => BoundDriver::Nvidia,
            _ => BoundDriver::None,
        };
        function.driver.clone().unwrap_or_else(given)
    }

    /// Returns the display functions of NVIDIA, sorted by address. A GPU's minor number is its index; other functions
    /// get the numbers after those.
    pub fn displays(&self) -> Vec<DisplayFunction> {
        let mut functions: Vec<_> =
            self.pci.iter().filter(|function| function.is_display()).collect();
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
                display.minor = u32::try_from(minor).map_err(|_| Unknown::Unsupported).into();
                display.excluded = Reading::Known(function.excluded);
                display.device_file = Reading::Known(match function.hidden {
                    Some(Hidden::Refused) => DeviceFile::Refused,
                    Some(Hidden::Missing) => DeviceFile::Missing,
                    _ => DeviceFile::Usable,
                });
            }
            DisplayFunction { driver: Reading::Known(driver), ..display }
        };
        functions.into_iter().map(display).collect()
    }

    /// Returns the NVSwitches, sorted by address.
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
