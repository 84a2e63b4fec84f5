//! The host memory that this process may take, and the memory that it has, from the kernel's files.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::{ErrorKind, HardwareError, HostRoom, ProcessMemory, root};
use model::units::{Bytes, KIB};

impl HostRoom {
    /// Reads the current state.
    ///
    /// # Errors
    ///
    /// The kernel does not report how much memory is available.
    pub fn now() -> Result<Self, HardwareError> {
        let root = root();
        let available = kib(&root.join("proc/meminfo"), "MemAvailable").ok_or_else(|| {
            let why = "the kernel does not say how much memory of the host is available (MemAvailable): none is taken";
            HardwareError::new(ErrorKind::Hindered, why)
        })?;
        let lock_limit = getrlimit(Resource::Memlock).current.map(Bytes);
        Ok(Self { available, group_leaves: group_leaves(&root), lock_limit })
    }
}

impl ProcessMemory {
    /// Reads the memory of this process.
    pub fn now() -> Option<Self> {
        // Not below the test root: the process is a real one.
        kib(Path::new("/proc/self/status"), "VmRSS").map(|resident| Self { resident })
    }
}

/// Returns the number after a name in one of the kernel's lists, which are in KiB.
fn kib(file: &Path, name: &str) -> Option<Bytes> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(Bytes(number.saturating_mul(KIB)))
}

/// The files in which a cgroup version keeps its counts.
struct Files {
    top: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Key in its statistics: cached files that nobody has used of late, which make room.
    idle: &'static str,
}

const UNIFIED: Files = Files {
    top: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    idle: "inactive_file ",
};
const FIRST: Files = Files {
    top: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    idle: "total_inactive_file ",
};

/// Returns the memory that the control groups of this process leave: the least over its own group and those above.
/// `None` without a limit.
fn group_leaves(root: &Path) -> Option<Bytes> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let left = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let files = match controllers {
            "" => UNIFIED,
            _ if controllers.split(',').any(|one| one == "memory") => FIRST,
            _ => return None,
        };
        let top = root.join(files.top);
        let own = top.join(path.trim_start_matches('/'));
        // A container sees its own group as the top, whatever path the kernel reports.
        let folders: Vec<PathBuf> = own
            .ancestors()
            .take_while(|folder| folder.starts_with(&top))
            .map(Path::to_owned)
            .collect();
        folders.iter().filter_map(|folder| leaves(folder, &files)).min()
    });
    left.min().map(Bytes)
}

/// Returns the memory that one control group leaves.
fn leaves(folder: &Path, files: &Files) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // Without a limit, the first cgroup version reports a number that no machine reaches.
    let limit = number(files.limit).filter(|limit| *limit < 1 << 60)?;
    let idle = read("memory.stat").and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix(files.idle)?.trim().parse::<u64>().ok())
    });
    let used = number(files.used).unwrap_or(limit).saturating_sub(idle.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::MIB;

    #[test]
    fn the_group_that_leaves_least_counts_and_idle_files_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        assert_eq!(group_leaves(folder.path()), None, "no groups at all");
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/a/b/memory.current", "5\n");
        assert_eq!(group_leaves(folder.path()), None);
        write("sys/fs/cgroup/a/memory.max", &format!("{}\n", 100 * MIB));
        write("sys/fs/cgroup/a/memory.current", &format!("{}\n", 90 * MIB));
        assert_eq!(group_leaves(folder.path()), Some(Bytes(10 * MIB)));
        write("sys/fs/cgroup/a/memory.stat", &format!("anon 7\ninactive_file {}\n", 30 * MIB));
        assert_eq!(group_leaves(folder.path()), Some(Bytes(40 * MIB)));
        write("sys/fs/cgroup/a/b/memory.max", &format!("{MIB}\n"));
        assert_eq!(group_leaves(folder.path()), Some(Bytes(MIB - 5)));
        // The first cgroup version, whose largest number is no limit.
        write("proc/self/cgroup", "8:memory:/c\n0::/\n");
        write("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_leaves(folder.path()), None);
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", &format!("{}\n", 8 * MIB));
        write("sys/fs/cgroup/memory/memory.usage_in_bytes", &format!("{}\n", 9 * MIB));
        assert_eq!(group_leaves(folder.path()), Some(Bytes(0)), "it is full");
    }

    #[test]
    fn lists_of_the_kernel_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("meminfo");
        std::fs::write(&file, "MemTotal:  32 kB\nMemAvailable:       16 kB\nOdd: x\n").unwrap();
        assert_eq!(kib(&file, "MemAvailable"), Some(Bytes(16 * KIB)));
        assert_eq!(kib(&file, "Mem"), None);
        assert_eq!(kib(&file, "Odd"), None);
        assert!(ProcessMemory::now().unwrap().resident.0 > MIB);
    }
}
