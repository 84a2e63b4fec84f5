//! Facts that the kernel and its NVIDIA driver report about NVIDIA's functions, regardless of what NVML lists. A
//! container sees all functions of its host in /sys, but only the device files of its own GPUs.

use std::fs;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::Sysfs;
use super::pci::{FIRST_NVSWITCH, Nvidia};
use super::read::{hex, io_unknown, names, odd, text};
use hardware::NvidiaFunctions;
use model::reading::{Reading, Unknown};
use model::snapshot::{BoundDriver, DeviceFile, DisplayFunction, NvSwitch};
use model::units::PciAddress;

impl Sysfs {
    /// Returns the facts about NVIDIA's functions. Failures to list them are reported by [`Sysfs::pci_tree`].
    pub(crate) fn nvidia_functions(&self) -> NvidiaFunctions {
        let found = self.nvidia(&mut Vec::new());
        let displays = found.gpus.iter().map(|address| self.display(*address)).collect();
        NvidiaFunctions { displays, nvswitches: self.nvswitches(&found) }
    }

    /// Returns those of these functions that are NVSwitches.
    fn nvswitches(&self, found: &Nvidia) -> Vec<NvSwitch> {
        let switch = |address: &PciAddress| {
            let id = hex(&self.device(*address).join("device"));
            let device_id =
                id.and_then(|id| u16::try_from(id).map_err(|_| odd(&format!("{id:#x}"))));
            let is_chipset = device_id.as_ref().is_ok_and(|id| *id < FIRST_NVSWITCH);
            (!is_chipset).then(|| NvSwitch {
                address: *address,
                device_id: device_id.into(),
                driver: self.bound_driver(*address),
            })
        };
        found.switches.iter().filter_map(switch).collect()
    }

    fn display(&self, address: PciAddress) -> DisplayFunction {
        let driver = self.bound_driver(address);
        let mut display = DisplayFunction {
            driver,
            ..DisplayFunction::unread(address, None, &Unknown::Unsupported)
        };
        if display.driver.known() != Some(&BoundDriver::Nvidia) {
            return display;
        }
        let list = self.proc.join("driver/nvidia/gpus");
        display.in_driver_list =
            names(&list).map(|names| names.contains(&address.to_string())).into();
        let information = list.join(address.to_string()).join("information");
        let information = text(&information);
        let value = |key: &str| {
            let text = information.as_ref().map_err(Unknown::clone)?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
            line.map(str::trim).ok_or(Unknown::Unsupported)
        };
        display.minor =
            value("Device Minor").and_then(|minor| minor.parse().map_err(|_| odd(minor))).into();
        display.excluded = value("GPU Excluded").map(|excluded| excluded == "Yes").into();
        display.device_file = match &display.minor {
            Reading::Known(minor) => self.device_file(*minor),
            Reading::Unknown(why) => Reading::Unknown(why.clone()),
        };
        display
    }

    /// Returns the name of the driver's folder, if one is bound.
    fn bound_driver(&self, address: PciAddress) -> Reading<BoundDriver> {
        let name = match fs::read_link(self.device(address).join("driver")) {
            Ok(folder) => folder.file_name().and_then(|name| Some(name.to_str()?.to_owned())),
            Err(error) => match io_unknown(&error) {
                Unknown::Unsupported => Some("none".to_owned()),
                why => return Reading::Unknown(why),
            },
        };
        name.ok_or_else(|| odd("")).and_then(|name| name.parse().map_err(|_| odd(&name))).into()
    }

    /// Returns the state of the device file, by the kernel's own access check, which includes device cgroups. Opening
    /// the file would start a GPU that nobody uses.
    fn device_file(&self, minor: u32) -> Reading<DeviceFile> {
        match access(self.dev.join(format!("nvidia{minor}")), Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Reading::Known(DeviceFile::Usable),
            Err(Errno::NOENT) => Reading::Known(DeviceFile::Missing),
            Err(Errno::ACCESS | Errno::PERM) => Reading::Known(DeviceFile::Refused),
            Err(error) => Reading::failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    const GPUS: [&str; 6] = [
        "0000:01:00.0",
        "0000:02:00.0",
        "0000:03:00.0",
        "0000:04:00.0",
        "0000:05:00.0",
        "0000:06:00.0",
    ];

    /// Creates six GPUs: one that is used, one without its device file as in a container, one whose driver's list is
    /// hidden, one excluded, one bound to another driver, one bound to none.
    fn machine() -> Fixture {
        let machine = Fixture::new();
        for (address, driver) in
            GPUS.iter().zip(["nvidia", "nvidia", "nvidia", "nvidia", "nouveau", ""])
        {
            machine.function(&format!("pci0000:00/{address}"), 0x10de, 0x03_0200);
            if !driver.is_empty() {
                machine.link(
                    &format!("devices/pci0000:00/{address}/driver"),
                    &format!("bus/pci/drivers/{driver}"),
                );
            }
        }
        for (address, minor, excluded) in
            [(GPUS[0], 0, "No"), (GPUS[1], 7, "No"), (GPUS[3], 3, "Yes")]
        {
            machine.proc(
                &format!("driver/nvidia/gpus/{address}/information"),
                format!(
                    "Model: \t\t NVIDIA H100\nIRQ:   \t\t 71\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
                ),
            );
        }
        for minor in [0, 3] {
            machine.dev(&format!("nvidia{minor}"));
        }
        machine
    }

    #[test]
    fn the_driver_and_the_device_file_of_a_gpu_are_read() {
        let displays = machine().sysfs().nvidia_functions().displays;
        assert_eq!(
            displays.iter().map(|display| display.address.to_string()).collect::<Vec<_>>(),
            GPUS
        );
        let drivers: Vec<_> =
            displays.iter().map(|display| display.driver.known().unwrap().to_string()).collect();
        assert_eq!(drivers, ["nvidia", "nvidia", "nvidia", "nvidia", "nouveau", "none"]);
        let files: Vec<_> = displays
            .iter()
            .map(|display| (display.minor.get(), display.device_file.get()))
            .collect();
        assert_eq!(files[0], (Some(0), Some(DeviceFile::Usable)));
        assert_eq!(files[1], (Some(7), Some(DeviceFile::Missing)));
        assert_eq!(files[2], (None, None), "the driver's list is hidden");
        let listed: Vec<_> = displays.iter().map(|display| display.in_driver_list.get()).collect();
        assert_eq!(listed, [Some(true), Some(true), Some(false), Some(true), None, None]);
        assert_eq!(
            [displays[0].excluded.get(), displays[3].excluded.get()],
            [Some(false), Some(true)]
        );
        assert_eq!(displays.iter().filter(|display| display.is_for_us()).count(), 1);
    }

    #[test]
    fn virtual_functions_are_no_gpus_and_chipsets_no_switches() {
        let machine = Fixture::new();
        machine.function("pci0000:00/0000:01:00.0", 0x10de, 0x03_0200);
        machine.function("pci0000:00/0000:01:00.4", 0x10de, 0x03_0200);
        machine.link("devices/pci0000:00/0000:01:00.4/physfn", "devices/pci0000:00/0000:01:00.0");
        machine.function("pci0000:00/0000:05:00.0", 0x10de, 0x06_8000);
        machine.sys("devices/pci0000:00/0000:05:00.0/device", "0x22a3\n");
        machine.link("devices/pci0000:00/0000:05:00.0/driver", "bus/pci/drivers/nvidia-nvswitch");
        machine.function("pci0000:00/0000:00:08.0", 0x10de, 0x06_8000);
        machine.sys("devices/pci0000:00/0000:00:08.0/device", "0x0373\n");
        machine.function("pci0000:00/0000:06:00.0", 0x8086, 0x06_8000);
        let tree = machine.sysfs().nvidia_functions();
        assert_eq!(tree.displays.len(), 1);
        let [switch] = tree.nvswitches.as_slice() else { panic!("{:?}", tree.nvswitches) };
        assert_eq!(
            (switch.address.to_string().as_str(), switch.device_id.get()),
            ("0000:05:00.0", Some(0x22a3))
        );
        assert_eq!(switch.driver.known(), Some(&BoundDriver::Other("nvidia-nvswitch".into())));
    }
}
