//! The files of a machine's kernel, as far as peerscope reads them, below a folder that replaces the root
//! (`PEERSCOPE_FSROOT`).
//!
//! Paths, links and texts are the kernel's own. Configuration spaces contain the fields for port type and access
//! control (ACS).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use model::snapshot::{
    AdapterKind, BoundDriver, DeviceFile, PciFunction, PciKind, PciPower, PcieErrors,
};
use model::units::{KIB, MIB, PcieLink};
use sim::spec::{FunctionSpec, LogLine, MachineSpec, READ_REQUEST};

/// Writes the files of a machine below `root`, in `sys` and `proc`.
///
/// # Errors
///
/// The folder cannot be written to.
pub fn write(root: &Path, machine: &MachineSpec) -> io::Result<()> {
    let tree = Tree { root: root.to_owned(), machine };
    tree.host()?;
    tree.numa_nodes()?;
    tree.nvidia()?;
    fs::create_dir_all(root.join("sys/bus/pci/devices"))?;
    for (number, function) in machine.pci.iter().enumerate() {
        tree.function(function, number)?;
    }
    tree.adapters()
}

/// Writes the current error counters of these functions. A kernel's counters rise while copies run.
///
/// # Errors
///
/// The folder cannot be written to.
pub fn count_errors(root: &Path, functions: &[PciFunction]) -> io::Result<()> {
    for function in functions {
        let folder = root.join("sys/bus/pci/devices").join(function.address.to_string());
        let counted =
            (function.aer_correctable.get(), function.aer_nonfatal.get(), function.aer_fatal.get());
        if let (Some(correctable), Some(non_fatal), Some(fatal)) = counted {
            for (name, content) in error_files(PcieErrors { correctable, non_fatal, fatal }) {
                fs::write(folder.join(name), content)?;
            }
        }
    }
    Ok(())
}

/// Returns the kernel's files of error counters, by name.
fn error_files(errors: PcieErrors) -> [(String, String); 3] {
    [
        ("correctable", "TOTAL_ERR_COR", errors.correctable),
        ("nonfatal", "TOTAL_ERR_NONFATAL", errors.non_fatal),
        ("fatal", "TOTAL_ERR_FATAL", errors.fatal),
    ]
    .map(|(class, total, count)| {
        (format!("aer_dev_{class}"), format!("Undefined 0\n{total} {count}\n"))
    })
}

struct Tree<'a> {
    root: PathBuf,
    machine: &'a MachineSpec,
}

impl Tree<'_> {
    fn file(&self, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, content)
    }

    /// Creates a relative link within `sys`, as the kernel makes them.
    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let link = self.root.join("sys").join(path);
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        symlink(format!("{}{target}", "../".repeat(path.matches('/').count())), link)
    }

    fn host(&self) -> io::Result<()> {
        let host = &self.machine.host;
        self.file("proc/sys/kernel/osrelease", format!("{}\n", host.kernel_version))?;
        self.file("proc/sys/kernel/hostname", "simulated\n")?;
        self.file("sys/module/nvidia/version", format!("{}\n", host.driver_version))?;
        let flags = if host.virtual_machine { "fpu sse2 hypervisor" } else { "fpu sse2" };
        self.file(
            "proc/cpuinfo",
            format!("processor\t: 0\nmodel name\t: {}\nflags\t\t: {flags}\n", host.cpu),
        )?;
        let room = self.machine.host_room(0);
        self.file("proc/meminfo", format!("MemAvailable:   {} kB\n", room.available.0 / KIB))?;
        let busy = host.busy_tasks;
        self.file("proc/loadavg", format!("{busy}.00 {busy}.00 {busy}.00 1/100 4711\n"))?;
        if let Some(up) = host.up_seconds {
            self.file("proc/uptime", format!("{up}.00 0.00\n"))?;
        }
        if let Some(id) = &host.boot_id {
            self.file("proc/sys/kernel/random/boot_id", format!("{id}\n"))?;
        }
        self.file("proc/self/cgroup", format!("0::{}\n", host.control_group))?;
        if let Some(left) = room.group_leaves {
            let folder = format!("sys/fs/cgroup{}", host.control_group.trim_end_matches('/'));
            self.file(&format!("{folder}/memory.max"), format!("{}\n", left.0))?;
            self.file(&format!("{folder}/memory.current"), "0\n")?;
        }
        self.surroundings()?;
        let namespaces = self.root.join("proc/self/ns");
        fs::create_dir_all(&namespaces)?;
        // The namespace of the host: containers have other signs as well.
        symlink("pid:[4026531836]", namespaces.join("pid"))?;
        self.sharing(&namespaces)?;
        if host.container {
            self.file(".dockerenv", "")?;
        }
        if host.virtual_machine && host.iommu_translating {
            // The guest's own IOMMU, with none of its GPUs behind it.
            self.file("sys/kernel/iommu_groups/0/type", "DMA-FQ\n")?;
        }
        Ok(())
    }

    /// Writes the facts that decide how processes can share memory.
    fn sharing(&self, namespaces: &Path) -> io::Result<()> {
        let facts = self.machine.sharing_facts();
        let is = |fact: Option<bool>| fact == Some(true);
        let ipc = if is(facts.own_ipc_namespace) { "ipc:[4026532190]" } else { "ipc:[4026531839]" };
        symlink(ipc, namespaces.join("ipc"))?;
        let seccomp = if is(facts.seccomp_filter) { 2 } else { 0 };
        self.file("proc/self/status", format!("Name:\tpeerscope\nSeccomp:\t{seccomp}\n"))?;
        Ok(())
    }

    /// Writes the kernel's parameters and log, and an MPS daemon. Variables are those of the process.
    fn surroundings(&self) -> io::Result<()> {
        let host = &self.machine.host;
        let parameters = host.iommu_parameters.join(" ");
        self.file(
            "proc/cmdline",
            format!("BOOT_IMAGE=/vmlinuz root=/dev/sda1 {parameters} quiet\n"),
        )?;
        if host.peer_memory_module {
            self.file("sys/module/nvidia_peermem/version", format!("{}\n", host.driver_version))?;
        }
        let kind =
            if host.open_kernel_module { "Open Kernel Module for" } else { "Kernel Module for" };
        let version = host.driver_version.as_str();
        self.file(
            "proc/driver/nvidia/version",
            format!("NVRM version: NVIDIA UNIX {kind} x86_64  {version}  Release Build\n"),
        )?;
        if let Some(running) = host.fabric_manager_running {
            const SERVICE: &str = "nvidia-fabricmanager.service";
            self.file(&format!("usr/lib/systemd/system/{SERVICE}"), "")?;
            fs::create_dir_all(self.root.join("run/systemd/system"))?;
            if running {
                let group = format!("sys/fs/cgroup/system.slice/{SERVICE}");
                fs::create_dir_all(self.root.join(group))?;
            }
        }
        if host.mps_daemon {
            self.file("tmp/nvidia-mps/control", "")?;
            self.file("tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4242\n")?;
            self.file("proc/4242/comm", "nvidia-cuda-mps\n")?;
        }
        if host.kernel_log_denied {
            // Root could read any file.
            return Err(io::Error::other("a log that may not be read cannot be made"));
        }
        let record = |(number, line): (usize, &LogLine)| {
            format!("3,{number},{},-;{}\n", line.seconds * 1_000_000, line.text)
        };
        let log: String = host.kernel_log.iter().enumerate().map(record).collect();
        self.file("dev/kmsg", log)
    }

    fn numa_nodes(&self) -> io::Result<()> {
        for (node, spec) in self.machine.numa_nodes.iter().enumerate() {
            let folder = format!("sys/devices/system/node/node{node}");
            self.file(&format!("{folder}/cpulist"), format!("{}\n", spec.cpus))?;
            let memory = format!("Node {node} MemTotal:       {} kB\n", spec.memory.0 / KIB);
            self.file(&format!("{folder}/meminfo"), memory)?;
        }
        Ok(())
    }

    /// Returns the path of a function below `devices`: its host bridge, the bridges above, itself.
    fn place(&self, function: &FunctionSpec) -> String {
        let mut path = vec![function.address.to_string()];
        let mut parent = function.parent;
        // The limit guards against bridges that form a loop, which is no valid machine.
        for _ in 0..64 {
            let Some(above) = parent.and_then(|parent| self.machine.function(parent)) else {
                break;
            };
            path.push(above.address.to_string());
            parent = above.parent;
        }
        path.push(function.host_bridge.clone());
        path.reverse();
        path.join("/")
    }

    fn function(&self, function: &FunctionSpec, number: usize) -> io::Result<()> {
        let place = self.place(function);
        let folder = format!("sys/devices/{place}");
        let file =
            |name: &str, content: String| self.file(&format!("{folder}/{name}"), content + "\n");
        file("vendor", format!("{:#06x}", function.id.0))?;
        file("device", format!("{:#06x}", function.id.1))?;
        file("class", format!("{:#08x}", function.class))?;
        file("numa_node", function.numa_node.map_or(-1, i64::from).to_string())?;
        self.link(&format!("bus/pci/devices/{}", function.address), &format!("devices/{place}"))?;
        let driver = self.machine.driver_of(function);
        if driver != BoundDriver::None {
            self.link(&format!("devices/{place}/driver"), &format!("bus/pci/drivers/{driver}"))?;
        }
        if let Some(slot) = &function.slot {
            let address = function.address.to_string();
            let device = address.rsplit_once('.').map_or(address.as_str(), |(device, _)| device);
            self.file(&format!("sys/bus/pci/slots/{slot}/address"), format!("{device}\n"))?;
        }
        self.power_and_windows(&folder, function)?;
        if self.machine.is_silent(function) {
            // A kernel shows this for a device whose registers read as all ones.
            self.link_files(&folder, "current", "Unknown", 63)?;
            self.link_files(&folder, "max", "Unknown", 63)?;
            self.file(&format!("{folder}/config"), [0xff; 4096])?;
        } else {
            if let Some(link) = self.machine.idle(function) {
                self.link_files(&folder, "current", speed(link), link.width.number())?;
            }
            if let Some(link) = function.max {
                self.link_files(&folder, "max", speed(link), link.width.number())?;
            }
            let acs = (!self.machine.host.virtual_machine).then_some(function.acs_redirect);
            self.file(&format!("{folder}/config"), space(function, acs))?;
        }
        if self.machine.host.virtual_machine {
            return Ok(());
        }
        for (name, content) in error_files(function.errors) {
            self.file(&format!("{folder}/{name}"), content)?;
        }
        let group = format!("kernel/iommu_groups/{number}");
        let kind = if self.machine.host.iommu_translating { "DMA-FQ" } else { "identity" };
        self.file(&format!("sys/{group}/type"), format!("{kind}\n"))?;
        self.link(&format!("devices/{place}/iommu_group"), &group)
    }

    fn power_and_windows(&self, folder: &str, function: &FunctionSpec) -> io::Result<()> {
        let power = function.power_state;
        let status = if function.power_state == PciPower::D0 { "active" } else { "suspended" };
        self.file(&format!("{folder}/power_state"), format!("{power}\n"))?;
        self.file(&format!("{folder}/power/runtime_status"), format!("{status}\n"))?;
        if function.removable {
            self.file(&format!("{folder}/removable"), "removable\n")?;
        }
        let Some(bars) = self.machine.bars(function) else {
            return Ok(());
        };
        let mut lines =
            vec!["0x0000000000000000 0x0000000000000000 0x0000000000000000".to_owned(); 13];
        for bar in bars {
            const FIRST: u64 = 1 << 52;
            lines[usize::from(bar.number)] =
                format!("{FIRST:#018x} {:#018x} 0x000000000014220c", FIRST + bar.bytes.0 - 1);
            if let Some(largest) = bar.largest_bytes {
                // Every size from 64 MiB on, a bit each from 1 MiB.
                let sizes = (2 * largest.0 / MIB - 1) & !0x3f;
                self.file(
                    &format!("{folder}/resource{}_resize", bar.number),
                    format!("{sizes:016x}\n"),
                )?;
            }
        }
        self.file(&format!("{folder}/resource"), lines.join("\n") + "\n")
    }

    /// Writes the NVIDIA driver's files in /proc, and its device files.
    fn nvidia(&self) -> io::Result<()> {
        for display in self.machine.displays() {
            let Some(minor) = display.minor.get() else {
                continue;
            };
            let excluded = if display.excluded.get() == Some(true) { "Yes" } else { "No" };
            let text = format!(
                "Model: \t\t NVIDIA\nDevice Minor: \t {minor}\nGPU Excluded:\t {excluded}\n"
            );
            self.file(&format!("proc/driver/nvidia/gpus/{}/information", display.address), text)?;
            match display.device_file.get() {
                Some(DeviceFile::Usable) => self.file(&format!("dev/nvidia{minor}"), "")?,
                // Not even root may use a refused file, as with a device cgroup.
                Some(DeviceFile::Refused) => {
                    return Err(io::Error::other("a refused device file cannot be made"));
                }
                Some(DeviceFile::Missing) | None => {}
            }
        }
        Ok(())
    }

    fn link_files(&self, folder: &str, which: &str, speed: &str, width: u8) -> io::Result<()> {
        self.file(&format!("{folder}/{which}_link_speed"), format!("{speed}\n"))?;
        self.file(&format!("{folder}/{which}_link_width"), format!("{width}\n"))
    }

    fn adapters(&self) -> io::Result<()> {
        for adapter in &self.machine.adapters {
            let class = match adapter.kind {
                AdapterKind::Rdma => "infiniband",
                AdapterKind::Ethernet => "net",
            };
            let device = format!("bus/pci/devices/{}", adapter.pci);
            self.link(&format!("class/{class}/{}/device", adapter.name), &device)?;
            let port = adapter.port();
            let (Some(state), Some(rate)) = (port.state.known(), port.rate_mbit.get()) else {
                continue;
            };
            let folder = format!("sys/class/{class}/{}", adapter.name);
            if adapter.kind == AdapterKind::Ethernet {
                self.file(&format!("{folder}/operstate"), format!("{state}\n"))?;
                self.file(&format!("{folder}/speed"), format!("{rate}\n"))?;
                continue;
            }
            for (file, content) in [("fw_ver", &adapter.firmware), ("board_id", &adapter.board)] {
                if let Some(content) = content {
                    self.file(&format!("{folder}/{file}"), format!("{content}\n"))?;
                }
            }
            let folder = format!("{folder}/ports/1");
            self.file(&format!("{folder}/state"), format!("4: {}\n", state.to_uppercase()))?;
            if let (Some(signal), Some(layer), Some(downed)) =
                (port.physical_state.known(), port.link_layer.known(), port.link_downed.get())
            {
                self.file(&format!("{folder}/phys_state"), format!("5: {signal}\n"))?;
                self.file(&format!("{folder}/link_layer"), format!("{layer}\n"))?;
                self.file(&format!("{folder}/counters/link_downed"), format!("{downed}\n"))?;
            }
            self.file(
                &format!("{folder}/rate"),
                format!("{} Gb/sec (4X)\n", f64::from(rate) / 1000.0),
            )?;
        }
        Ok(())
    }
}

/// Returns the speed in the kernel's words.
const fn speed(link: PcieLink) -> &'static str {
    match link.generation.number() {
        1 => "2.5 GT/s PCIe",
        2 => "5.0 GT/s PCIe",
        3 => "8.0 GT/s PCIe",
        4 => "16.0 GT/s PCIe",
        5 => "32.0 GT/s PCIe",
        6 => "64.0 GT/s PCIe",
        _ => "Unknown",
    }
}

/// Returns a configuration space with a PCI Express capability, and access control if it is given.
fn space(function: &FunctionSpec, acs_redirect: Option<bool>) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..2].copy_from_slice(&function.id.0.to_le_bytes());
    bytes[2..4].copy_from_slice(&function.id.1.to_le_bytes());
    let port_type = match function.kind {
        PciKind::Endpoint => 0,
        PciKind::RootPort => 4,
        PciKind::SwitchUpstream => 5,
        PciKind::SwitchDownstream => 6,
        PciKind::Bridge => 7,
    };
    // Status: there are capabilities; they begin at 0x60 with the one for PCI Express.
    bytes[0x06] = 0x10;
    bytes[0x34] = 0x60;
    bytes[0x60..0x63].copy_from_slice(&[0x10, 0x00, port_type << 4 | 0x2]);
    let size = |bytes: u16| u8::try_from(bytes.ilog2() - 7).unwrap_or(7);
    bytes[0x64] = size(function.payload_possible());
    bytes[0x68] = size(*function.payload) << 5;
    bytes[0x69] = size(READ_REQUEST) << 4;
    if let Some(redirect) = acs_redirect {
        bytes[0x100..0x104].copy_from_slice(&(1_u32 << 16 | 0x000d).to_le_bytes());
        let control: u16 = if redirect { 0x1d } else { 0x11 };
        bytes[0x106..0x108].copy_from_slice(&control.to_le_bytes());
    }
    bytes
}
