//! The surroundings of this process: control group, container, MPS daemon, variables, and the kernel's parameters and
//! log.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Sysfs;
use super::read::{io_unknown, names, number, odd, text};
use hardware::kernel_log;
use model::reading::{Reading, Unknown};
use model::snapshot::Host;
use model::units::{Bytes, KIB};

/// Prefixes of parameters of the kernel's command line that concern the IOMMU.
const IOMMU_PARAMETERS: [&str; 4] = ["iommu", "intel_iommu", "amd_iommu", "arm-smmu"];

/// Variables that select NCCL's transports (NCCL user guide, environment variables). Others, such as names of network
/// interfaces, do not affect the paths between GPUs.
const NCCL_VARIABLES: [&str; 18] = [
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_P2P_USE_CUDA_MEMCPY",
    "NCCL_SHM_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_NVB_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_DISABLE_INTRA",
    "NCCL_PXN_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_TOPO_FILE",
];

/// Variable and default of the folder with the pipes of an MPS daemon (NVIDIA's documentation of MPS).
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const MPS_DEFAULT: &str = "/tmp/nvidia-mps";

/// The daemon's process name as the kernel keeps it: 15 characters of `nvidia-cuda-mps-control`.
const MPS_PROCESS: &str = "nvidia-cuda-mps";

/// The service of the fabric manager, and its process's name as the kernel keeps it: 15 characters of
/// `nv-fabricmanager`.
const FABRIC_MANAGER: &str = "nvidia-fabricmanager.service";
const FABRIC_PROCESS: &str = "nv-fabricmanage";

/// Longest value kept of a variable, characters.
const LONGEST: usize = 200;

impl Sysfs {
    /// Fills in the surroundings of this process.
    pub(super) fn read_surroundings(&self, host: &mut Host) {
        host.container_made_by = match host.container.get() {
            Some(true) => self.container_made_by().map_or(Reading::unsupported(), Reading::Known),
            _ => Reading::unsupported(),
        };
        host.control_group = self.control_group().into();
        host.iommu_parameters =
            text(&self.proc.join("cmdline")).map(|line| iommu_parameters(&line)).into();
        host.peer_memory_module = self.peer_memory_module();
        host.open_kernel_module = text(&self.proc.join("driver/nvidia/version"))
            .map(|version| version.contains("Open Kernel Module"))
            .into();
        host.fabric_manager_running = match host.container.get() {
            // The services of the host are not to be seen there.
            Some(false) => self.fabric_manager_running().into(),
            _ => Reading::unsupported(),
        };
        let folder = env::var_os(MPS_VARIABLE).unwrap_or_else(|| OsString::from(MPS_DEFAULT));
        host.mps_pipe_directory =
            Reading::Known(folder.to_string_lossy().chars().take(LONGEST).collect());
        host.mps_daemon = self.mps_daemon(Path::new(&folder)).into();
        host.nccl_variables = Reading::Known(nccl_variables(|name| env::var_os(name)));
        (host.shm_total_bytes, host.shm_free_bytes) = self.shared_memory();
        host.busy_tasks = self.first_number("loadavg").map(|mean| mean.round() as u32).into();
        host.last_level_cache_bytes = self.last_level_caches().into();
        host.up_seconds = self.first_number("uptime").map(|seconds| seconds as u64).into();
        host.boot_id = text(&self.proc.join("sys/kernel/random/boot_id"))
            .map(|id| id.trim().to_owned())
            .into();
        let log = kernel_log::read(&self.dev.join("kmsg")).map_err(|error| io_unknown(&error));
        host.xids = log.map(|log| kernel_log::xids(kernel_log::messages(&log))).into();
    }

    /// Returns size and free space of the file system below /dev/shm.
    fn shared_memory(&self) -> (Reading<Bytes>, Reading<Bytes>) {
        match rustix::fs::statvfs(self.dev.join("shm")) {
            Ok(said) => {
                let bytes =
                    |blocks: u64| Reading::Known(Bytes(blocks.saturating_mul(said.f_frsize)));
                (bytes(said.f_blocks), bytes(said.f_bavail))
            }
            Err(error) => {
                let why = io_unknown(&error.into());
                (Reading::Unknown(why.clone()), Reading::Unknown(why))
            }
        }
    }

    /// Returns the name that the container's creator leaves in it.
    fn container_made_by(&self) -> Option<String> {
        let name =
            text(&self.root.join("run/systemd/container")).ok().filter(|name| !name.is_empty());
        let by_file = [
            ("run/secrets/kubernetes.io", "kubernetes"),
            ("var/run/secrets/kubernetes.io", "kubernetes"),
            (".dockerenv", "docker"),
            ("run/.containerenv", "podman"),
            (".singularity.d", "apptainer"),
        ];
        let by_file =
            by_file.iter().find(|(file, _)| self.root.join(file).exists()).map(|(_, name)| *name);
        let of_group = || {
            let group = self.control_group().ok()?;
            [("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc")]
                .iter()
                .find_map(|(part, name)| group.contains(part).then(|| (*name).to_owned()))
        };
        by_file.map(str::to_owned).or(name).or_else(of_group)
    }

    /// Returns the path of the control group: that of version 2, or of the memory controller.
    fn control_group(&self) -> Result<String, Unknown> {
        let groups = text(&self.proc.join("self/cgroup"))?;
        let path = |wanted: fn(&str) -> bool| {
            groups.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                (wanted(controllers) && path.starts_with('/'))
                    .then(|| path.chars().take(LONGEST).collect::<String>())
            })
        };
        let of_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
        path(of_memory).or_else(|| path(str::is_empty)).ok_or_else(|| odd(&groups))
    }

    fn peer_memory_module(&self) -> Reading<bool> {
        // Without this folder nothing is known about modules.
        let modules = self.sys.join("module");
        match modules.try_exists() {
            Ok(true) => {
                let loaded = ["nvidia_peermem", "nv_peer_mem"]
                    .iter()
                    .any(|name| modules.join(name).exists());
                Reading::Known(loaded)
            }
            Ok(false) => Reading::unsupported(),
            Err(error) => Reading::Unknown(io_unknown(&error)),
        }
    }

    /// Returns true if the fabric manager runs, as a service of systemd or otherwise; unsupported if there is no such
    /// service.
    fn fabric_manager_running(&self) -> Result<bool, Unknown> {
        let exists = |path: String| self.root.join(path).exists();
        let mut folders = ["etc", "usr/lib", "lib"].iter();
        if !exists("run/systemd/system".into())
            || !folders.any(|folder| exists(format!("{folder}/systemd/system/{FABRIC_MANAGER}")))
        {
            return Err(Unknown::Unsupported);
        }
        // A service that runs has a control group: in version 2, or in systemd's own hierarchy of version 1.
        let mut groups = ["", "systemd/", "unified/"].iter();
        if groups.any(|group| exists(format!("sys/fs/cgroup/{group}system.slice/{FABRIC_MANAGER}")))
        {
            return Ok(true);
        }
        // A container with the driver may run its own.
        let runs = |process: &String| {
            let name = process.parse().ok().and_then(|process| self.process_name(process));
            name.is_some_and(|name| name.starts_with(FABRIC_PROCESS))
        };
        Ok(names(&self.proc)?.iter().any(runs))
    }

    /// Returns true if a daemon serves this folder. Its pipes may be left from an earlier daemon.
    fn mps_daemon(&self, folder: &Path) -> Result<bool, Unknown> {
        let folder: PathBuf = self.root.join(folder.strip_prefix("/").unwrap_or(folder));
        if !folder.join("control").try_exists().map_err(|error| io_unknown(&error))? {
            return Ok(false);
        }
        let process: Result<u32, _> = number(&folder.join("nvidia-cuda-mps-control.pid"));
        match process {
            Ok(process)
                if self.process_name(process).is_some_and(|name| name.starts_with(MPS_PROCESS)) =>
            {
                Ok(true)
            }
            // In a container the daemon's process has another number, or none.
            _ => Err(Unknown::Failed(
                "there is a pipe of a daemon, and its process is not visible".to_owned(),
            )),
        }
    }
}

impl Sysfs {
    /// Returns the bytes of all caches of the third level, each counted once. Processors without one have no cache of that
    /// size.
    fn last_level_caches(&self) -> Result<Bytes, Unknown> {
        let processors = self.sys.join("devices/system/cpu");
        let number = |name: &String| name.strip_prefix("cpu")?.parse::<u32>().ok();
        let (mut seen, mut total) = (BTreeSet::new(), None);
        for processor in names(&processors)?.iter().filter(|name| number(name).is_some()) {
            let cache = processors.join(processor).join("cache/index3");
            let Ok(shared) = text(&cache.join("shared_cpu_list")) else {
                continue;
            };
            if seen.insert(shared) {
                let size = text(&cache.join("size"))?;
                let kib = size.strip_suffix('K').and_then(|kib| kib.parse::<u64>().ok());
                let bytes = kib.and_then(|kib| kib.checked_mul(KIB)).ok_or_else(|| odd(&size))?;
                total = Some(bytes.saturating_add(total.unwrap_or(0)));
            }
        }
        total.map(Bytes).ok_or(Unknown::Unsupported)
    }

    /// Returns the first number of a file in `/proc`.
    fn first_number(&self, file: &str) -> Result<f64, Unknown> {
        let line = text(&self.proc.join(file))?;
        let first = line.split_whitespace().next().unwrap_or_default();
        let number = first.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| Unknown::Failed(format!("{first:?} is no number")))
    }
}

fn iommu_parameters(line: &str) -> Vec<String> {
    let concerns = |word: &&str| {
        let name = word.split(['=', '.']).next().unwrap_or_default();
        IOMMU_PARAMETERS.contains(&name)
    };
    line.split_whitespace()
        .filter(concerns)
        .map(|word| word.chars().take(LONGEST).collect())
        .collect()
}

fn nccl_variables(value: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    let set = |name: &&str| {
        let value: String = value(name)?.to_string_lossy().chars().take(LONGEST).collect();
        Some(format!("{name}={value}"))
    };
    NCCL_VARIABLES.iter().filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    fn host(machine: &Fixture) -> Host {
        machine.sysfs().host(&Unknown::Unsupported)
    }

    #[test]
    fn the_open_kernel_modules_say_so() {
        let machine = Fixture::new();
        assert_eq!(host(&machine).open_kernel_module, Reading::unsupported());
        for (kind, open) in
            [("x86_64 Kernel Module", false), ("Open Kernel Module for x86_64", true)]
        {
            let line = format!("NVRM version: NVIDIA UNIX {kind}  580.95.05  Release Build\n");
            machine.proc("driver/nvidia/version", line);
            assert_eq!(host(&machine).open_kernel_module, Reading::Known(open), "{kind}");
        }
    }

    #[test]
    fn the_fabric_manager_is_known_where_systemd_has_its_service() {
        let machine = Fixture::new();
        let running = || machine.sysfs().fabric_manager_running();
        assert_eq!(running(), Err(Unknown::Unsupported));
        machine.file("usr/lib/systemd/system/nvidia-fabricmanager.service");
        assert_eq!(running(), Err(Unknown::Unsupported), "systemd does not run");
        machine.file("run/systemd/system/x");
        machine.proc("4711/comm", "nv-other\n");
        machine.proc("uptime", "1.0 1.0\n");
        assert_eq!(running(), Ok(false));
        machine.proc("4712/comm", "nv-fabricmanage\n");
        assert_eq!(running(), Ok(true), "in a container with the driver");
        machine.proc("4712/comm", "bash\n");
        machine.sys("fs/cgroup/systemd/system.slice/nvidia-fabricmanager.service/tasks", "");
        assert_eq!(running(), Ok(true), "version 1");

        machine.file(".dockerenv");
        assert_eq!(host(&machine).fabric_manager_running, Reading::unsupported(), "a container");
    }

    #[test]
    fn a_cache_that_processors_share_counts_once() {
        let machine = Fixture::new();
        assert_eq!(host(&machine).last_level_cache_bytes.get(), None);
        for (processor, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            let cache = format!("devices/system/cpu/cpu{processor}/cache/index3");
            machine.sys(&format!("{cache}/shared_cpu_list"), format!("{shared}\n"));
            machine.sys(&format!("{cache}/size"), "32768K\n");
        }
        machine.sys("devices/system/cpu/cpufreq/boost", "1\n");
        assert_eq!(host(&machine).last_level_cache_bytes, Reading::Known(Bytes(64 << 20)));
    }

    #[test]
    fn load_and_time_since_the_start_are_read() {
        let machine = Fixture::new();
        machine.proc("loadavg", "11.62 3.50 2.39 13/900 4711\n");
        machine.proc("uptime", "1622.71 40000.12\n");
        machine.proc("sys/kernel/random/boot_id", "0b1c-7\n");
        assert_eq!(host(&machine).boot_id.known().unwrap(), "0b1c-7");
        let found = host(&machine);
        assert_eq!(
            (found.busy_tasks, found.up_seconds),
            (Reading::Known(12), Reading::Known(1622))
        );
        machine.proc("uptime", "nan\n");
        assert_eq!(host(&machine).up_seconds.get(), None);
    }

    #[test]
    fn of_the_command_line_what_concerns_the_iommu_is_kept() {
        let machine = Fixture::new();
        assert_eq!(host(&machine).iommu_parameters, Reading::unsupported());
        machine
            .proc("cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 iommu=pt intel_iommu=on,sm_on iommu.strict=1 noiommux\n");
        let found = host(&machine).iommu_parameters;
        assert_eq!(found.known().unwrap(), &["iommu=pt", "intel_iommu=on,sm_on", "iommu.strict=1"]);
    }

    #[test]
    fn the_control_group_and_the_maker_of_the_container_are_named() {
        let machine = Fixture::new();
        assert_eq!(host(&machine).control_group, Reading::unsupported());
        machine.proc("self/cgroup", "0::/user.slice/session-3.scope\n");
        assert_eq!(
            host(&machine).control_group,
            Reading::Known("/user.slice/session-3.scope".into())
        );
        machine.proc("self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/docker/0123\n0::/\n");
        let found = host(&machine);
        assert_eq!(found.control_group, Reading::Known("/docker/0123".into()));
        assert_eq!(found.container_made_by, Reading::Known("docker".into()));
        machine.file("run/secrets/kubernetes.io");
        assert_eq!(host(&machine).container_made_by, Reading::Known("kubernetes".into()));
    }

    #[test]
    fn an_mps_daemon_is_known_by_its_pipe_and_its_process() {
        let machine = Fixture::new();
        let folder = Path::new(MPS_DEFAULT);
        assert_eq!(machine.sysfs().mps_daemon(folder), Ok(false));
        machine.file("tmp/nvidia-mps/control");
        assert!(
            matches!(machine.sysfs().mps_daemon(folder), Err(Unknown::Failed(_))),
            "left from an earlier one"
        );
        std::fs::write(machine.root().join("tmp/nvidia-mps/nvidia-cuda-mps-control.pid"), "77\n")
            .unwrap();
        machine.proc("77/comm", "bash\n");
        assert!(machine.sysfs().mps_daemon(folder).is_err(), "another process has its number");
        machine.proc("77/comm", "nvidia-cuda-mps\n");
        assert_eq!(machine.sysfs().mps_daemon(folder), Ok(true));
    }

    #[test]
    fn only_variables_that_choose_ways_are_kept() {
        let value = |name: &str| {
            ["NCCL_P2P_DISABLE", "NCCL_DEBUG", "NCCL_ALGO"].contains(&name).then(|| "1".into())
        };
        assert_eq!(nccl_variables(value), ["NCCL_P2P_DISABLE=1", "NCCL_ALGO=1"]);
    }

    #[test]
    fn peer_memory_and_the_log_are_unknown_without_their_files() {
        let machine = Fixture::new();
        let found = host(&machine);
        assert_eq!(
            (found.peer_memory_module, found.xids),
            (Reading::unsupported(), Reading::unsupported())
        );
        machine.sys("module/nvidia/version", "580.95.05\n");
        assert_eq!(host(&machine).peer_memory_module, Reading::Known(false));
        machine.sys("module/nvidia_peermem/version", "580.95.05\n");
        machine.dev("kmsg");
        let found = host(&machine);
        assert_eq!(
            (found.peer_memory_module, found.xids),
            (Reading::Known(true), Reading::Known(Vec::new()))
        );
    }
}
