//! The kernel's facts about the host and its PCI tree, from /sys and /proc. All reads are read-only, and all but access
//! control work without root.

mod adapters;
mod config;
mod container;
mod function;
mod nvidia;
mod pci;
mod read;
mod surroundings;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod fuzz;

use std::path::{Path, PathBuf};

use self::read::{names, number, odd, reading, text};
use hardware::{PciTree, root};
use model::reading::{Reading, Unknown};
use model::snapshot::{Host, NumaNode};
use model::units::{Bytes, KIB, PciAddress};

/// Vendors and products that appear only in the firmware of virtual machines. Used if the processor's flags do not show
/// a virtual machine.
const VIRTUAL_FIRMWARE: [&str; 10] = [
    "QEMU",
    "KVM",
    "VMware",
    "VirtualBox",
    "innotek",
    "Xen",
    "Bochs",
    "OpenStack",
    "Google Compute Engine",
    "Virtual Machine",
];

/// The kernel's folders.
pub(crate) struct Sysfs {
    root: PathBuf,
    sys: PathBuf,
    proc: PathBuf,
    dev: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::at(&root())
    }
}

impl Sysfs {
    /// Uses `sys`, `proc` and `dev` below this root.
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            sys: root.join("sys"),
            proc: root.join("proc"),
            dev: root.join("dev"),
        }
    }

    /// Returns the kernel release.
    pub(crate) fn kernel_version(&self) -> Reading<String> {
        reading(&self.proc.join("sys/kernel/osrelease"))
    }

    /// Returns the host name.
    pub(crate) fn hostname(&self) -> Reading<String> {
        reading(&self.proc.join("sys/kernel/hostname"))
    }

    /// Returns the processor model, if `cpuinfo` contains one (not on ARM).
    pub(crate) fn cpu(&self) -> Reading<String> {
        self.cpuinfo("model name").into()
    }

    /// Returns true if this is a virtual machine: by the processor's `hypervisor` flag if there are flags, otherwise by
    /// the names in the firmware.
    pub(crate) fn virtual_machine(&self) -> Reading<bool> {
        if let Ok(flags) = self.cpuinfo("flags") {
            return Reading::Known(flags.split_whitespace().any(|flag| flag == "hypervisor"));
        }
        let firmware: Vec<_> = ["sys_vendor", "product_name"]
            .map(|file| text(&self.sys.join("class/dmi/id").join(file)))
            .into();
        if firmware
            .iter()
            .flatten()
            .any(|name| VIRTUAL_FIRMWARE.iter().any(|known| name.contains(known)))
        {
            return Reading::Known(true);
        }
        // "No" requires that both names could be read.
        firmware.into_iter().collect::<Result<Vec<_>, _>>().map(|_| false).into()
    }

    /// Returns true if an IOMMU translates device addresses: any group of type `DMA` or `DMA-FQ`.
    pub(crate) fn iommu_translating(&self) -> Reading<bool> {
        let groups = self.sys.join("kernel/iommu_groups");
        let numbers = match names(&groups) {
            Ok(numbers) => numbers,
            // Without an IOMMU in use, older kernels do not create the directory.
            Err(Unknown::Unsupported) => return Reading::Known(false),
            Err(unknown) => return Reading::Unknown(unknown),
        };
        let mut unread = None;
        for group in numbers {
            match text(&groups.join(group).join("type")) {
                Ok(kind) if kind.starts_with("DMA") => return Reading::Known(true),
                Ok(_) => {}
                Err(unknown) => unread = Some(unknown),
            }
        }
        unread.map_or(Reading::Known(false), Reading::Unknown)
    }

    /// Returns the version of the NVIDIA kernel module that is loaded; unsupported if none is.
    pub(crate) fn kernel_module_version(&self) -> Reading<String> {
        let version = text(&self.sys.join("module/nvidia/version")).or_else(|_| {
            let line = text(&self.proc.join("driver/nvidia/version"))?;
            let mut words = line.split_whitespace();
            let is_version = |word: &&str| {
                word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.')
            };
            words.find(is_version).map(str::to_owned).ok_or_else(|| odd(&line))
        });
        version.into()
    }

    /// Returns the kernel's facts about the host. All other facts are unknown, with `rest` as the reason.
    pub(crate) fn host(&self, rest: &Unknown) -> Host {
        let mut host = Host::unread(rest);
        host.kernel_version = self.kernel_version();
        host.kernel_module_version = self.kernel_module_version();
        host.hostname = self.hostname();
        host.cpu = self.cpu();
        host.virtual_machine = self.virtual_machine();
        host.container = self.container();
        host.iommu_translating = self.iommu_translating();
        self.read_surroundings(&mut host);
        host
    }

    /// Returns the NUMA node of a PCI function. If the kernel knows none (-1), as in virtual machines, returns the only
    /// node there is; unsupported if there are several.
    pub(crate) fn numa_node(&self, address: PciAddress) -> Reading<u32> {
        let node: Result<i64, _> = number(&self.device(address).join("numa_node"));
        node.and_then(|node| match node {
            -1 => match self.numa_numbers().as_deref() {
                Ok([only]) => Ok(*only),
                _ => Err(Unknown::Unsupported),
            },
            node => u32::try_from(node).map_err(|_| odd(&node.to_string())),
        })
        .into()
    }

    /// Returns true if a process is ending: its contexts go away, and it moves no data any more.
    pub(crate) fn is_ending(&self, pid: u32) -> bool {
        /// `PF_EXITING` of the kernel's include/linux/sched.h.
        const EXITING: u64 = 4;
        let Some(fields) = self.process_state(pid) else {
            return false;
        };
        let flags = fields.get(6).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    }

    /// Returns the name of a process's program, 15 characters at most.
    pub(crate) fn process_name(&self, pid: u32) -> Option<String> {
        text(&self.proc.join(pid.to_string()).join("comm")).ok().filter(|name| !name.is_empty())
    }

    /// Returns the parent of a process.
    pub(crate) fn parent_process(&self, pid: u32) -> Option<u32> {
        self.process_state(pid)?.get(1)?.parse().ok()
    }

    /// Returns the fields of a process's `stat` after its name, the state first.
    fn process_state(&self, pid: u32) -> Option<Vec<String>> {
        let stat = text(&self.proc.join(pid.to_string()).join("stat")).ok()?;
        // The command's name is in brackets, and may itself contain brackets and spaces.
        let (_, rest) = stat.rsplit_once(')')?;
        Some(rest.split_whitespace().map(str::to_owned).collect())
    }

    /// Returns the PCI paths of every GPU and network adapter up to the root, and the NUMA nodes.
    pub(crate) fn pci_tree(&self) -> PciTree {
        let mut problems = Vec::new();
        let numa_nodes = self.numa_nodes(&mut problems);
        let adapters = self.adapters(&mut problems);
        let gpus = self.nvidia(&mut problems).gpus;
        let functions = self.functions(&gpus, &adapters, &mut problems);
        PciTree { functions, numa_nodes, adapters, problems }
    }

    fn numa_numbers(&self) -> Result<Vec<u32>, Unknown> {
        let names = names(&self.sys.join("devices/system/node"))?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn numa_nodes(&self, problems: &mut Vec<String>) -> Vec<NumaNode> {
        let nodes = self.sys.join("devices/system/node");
        let numbers = self.numa_numbers().unwrap_or_else(|unknown| {
            // A kernel without NUMA lacks this directory, which is no problem.
            if unknown != Unknown::Unsupported {
                problems.push(format!("the NUMA nodes cannot be listed ({unknown})"));
            }
            Vec::new()
        });
        let read = |node: u32| {
            let dir = nodes.join(format!("node{node}"));
            let meminfo = text(&dir.join("meminfo"))?;
            let total = meminfo
                .lines()
                .find_map(|line| line.split_once("MemTotal:"))
                .ok_or_else(|| odd(&meminfo))?
                .1;
            let kib: u64 =
                total.trim().trim_end_matches("kB").trim_end().parse().map_err(|_| odd(total))?;
            let memory_bytes = Bytes(kib.checked_mul(KIB).ok_or_else(|| odd(total))?);
            Ok::<_, Unknown>(NumaNode { node, cpus: text(&dir.join("cpulist"))?, memory_bytes })
        };
        let mut read_nodes = Vec::new();
        for node in numbers {
            match read(node) {
                Ok(node) => read_nodes.push(node),
                Err(unknown) => {
                    problems.push(format!("NUMA node {node} cannot be read ({unknown})"))
                }
            }
        }
        read_nodes
    }

    /// Returns the value of a key of the first processor.
    fn cpuinfo(&self, key: &str) -> Result<String, Unknown> {
        let cpuinfo = text(&self.proc.join("cpuinfo"))?;
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = pairs.find(|(name, _)| name.trim() == key).ok_or(Unknown::Unsupported)?;
        Ok(value.trim().to_owned())
    }

    fn device(&self, address: PciAddress) -> PathBuf {
        self.sys.join("bus/pci/devices").join(address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::Fixture;
    use super::*;

    #[test]
    fn host_facts_come_from_proc() {
        let machine = Fixture::new();
        machine.proc("sys/kernel/osrelease", "6.8.0-45-generic\n");
        machine.proc("sys/kernel/hostname", "node7\n");
        machine.proc(
            "cpuinfo",
            format!(
                "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\nflags\t\t: fpu vme sse2\n\n{}",
                "processor\t: 1\n".repeat(10_000)
            ),
        );
        let sysfs = machine.sysfs();
        assert_eq!(sysfs.kernel_version(), Reading::Known("6.8.0-45-generic".into()));
        assert_eq!(sysfs.hostname(), Reading::Known("node7".into()));
        assert_eq!(sysfs.cpu(), Reading::Known("AMD EPYC 9654 96-Core Processor".into()));
        assert_eq!(sysfs.virtual_machine(), Reading::Known(false));
    }

    #[test]
    fn a_virtual_machine_is_known_by_flag_or_firmware() {
        let machine = Fixture::new();
        let sysfs = machine.sysfs();
        assert_eq!(sysfs.virtual_machine(), Reading::unsupported());
        machine.sys("class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(sysfs.virtual_machine(), Reading::Known(true));
        machine.sys("class/dmi/id/sys_vendor", "NVIDIA\n");
        assert_eq!(sysfs.virtual_machine(), Reading::unsupported(), "half an answer");
        machine.sys("class/dmi/id/product_name", "Grace CPU Server\n");
        assert_eq!(sysfs.virtual_machine(), Reading::Known(false));
        machine.proc("cpuinfo", "flags\t\t: fpu hypervisor lahf_lm\n");
        assert_eq!(sysfs.virtual_machine(), Reading::Known(true));
    }

    #[test]
    fn an_iommu_translates_when_any_group_does() {
        let machine = Fixture::new();
        let sysfs = machine.sysfs();
        assert_eq!(sysfs.iommu_translating(), Reading::Known(false), "no IOMMU");
        machine.sys("kernel/iommu_groups/0/type", "identity\n");
        assert_eq!(sysfs.iommu_translating(), Reading::Known(false));
        machine.sys("kernel/iommu_groups/1/devices/x", "");
        assert_eq!(sysfs.iommu_translating(), Reading::unsupported(), "a group without a type");
        machine.sys("kernel/iommu_groups/9/type", "DMA-FQ\n");
        assert_eq!(sysfs.iommu_translating(), Reading::Known(true));
    }

    #[test]
    fn the_version_of_the_kernel_module_is_in_two_places() {
        let machine = Fixture::new();
        assert_eq!(machine.sysfs().kernel_module_version(), Reading::unsupported(), "not loaded");
        machine.proc(
            "driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\nGCC version: 13.3.0\n",
        );
        assert_eq!(machine.sysfs().kernel_module_version(), Reading::Known("580.95.05".into()));
        machine.sys("module/nvidia/version", "580.159.04\n");
        assert_eq!(machine.sysfs().kernel_module_version(), Reading::Known("580.159.04".into()));
    }

    #[test]
    fn a_device_without_a_numa_node_is_at_the_only_one() {
        let machine = Fixture::new();
        let address = "0000:00:06.0";
        machine.sys(&format!("bus/pci/devices/{address}/numa_node"), "-1\n");
        let node = || machine.sysfs().numa_node(address.parse().unwrap());
        assert_eq!(node(), Reading::unsupported(), "no NUMA");
        machine.sys("devices/system/node/node0/cpulist", "0-31\n");
        assert_eq!(node(), Reading::Known(0));
        machine.sys("devices/system/node/node1/cpulist", "32-63\n");
        assert_eq!(node(), Reading::unsupported(), "two nodes");
    }

    #[test]
    fn numa_nodes_have_processors_and_memory() {
        let machine = Fixture::new();
        for (node, cpus) in [(10, "128-255"), (2, "0-127")] {
            machine.sys(&format!("devices/system/node/node{node}/cpulist"), format!("{cpus}\n"));
            machine.sys(
                &format!("devices/system/node/node{node}/meminfo"),
                format!(
                    "Node {node} MemTotal:       1048576 kB\nNode {node} MemFree:        4 kB\n"
                ),
            );
        }
        machine.sys("devices/system/node/node3/cpulist", "\n");
        machine.sys("devices/system/node/possible", "0-10\n");
        let tree = machine.sysfs().pci_tree();
        assert_eq!(
            tree.numa_nodes,
            [
                NumaNode { node: 2, cpus: "0-127".into(), memory_bytes: Bytes(1 << 30) },
                NumaNode { node: 10, cpus: "128-255".into(), memory_bytes: Bytes(1 << 30) },
            ]
        );
        assert!(
            tree.problems.iter().any(|problem| problem.contains("NUMA node 3")),
            "{:?}",
            tree.problems
        );
    }

    #[test]
    fn the_parent_process_is_found_behind_any_name() {
        let machine = Fixture::new();
        machine.proc("77/stat", "77 (a) b (c) S 12 77 77 0 -1\n");
        assert_eq!(machine.sysfs().parent_process(77), Some(12));
        assert_eq!(machine.sysfs().parent_process(78), None);
    }

    #[test]
    fn a_process_that_ends_is_distinguished_from_one_that_runs() {
        let machine = Fixture::new();
        machine.proc("77/stat", "77 (python3) R 12 77 77 0 -1 4194304 0\n");
        machine.proc("78/stat", "78 (a (b)) D 12 77 77 0 -1 4194308 0\n");
        machine.proc("79/stat", "79 (python3)\n");
        assert_eq!(
            [77, 78, 79, 80].map(|pid| machine.sysfs().is_ending(pid)),
            [false, true, false, false]
        );
    }
}
