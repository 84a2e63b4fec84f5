//! Memory that another process opens. A third part of [`Driver`](super::Driver).

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{StatVfs, statvfs};
use serde::{Deserialize, Serialize};

use super::limits::{self, Scarce};
use super::{Buffer, Device, HardwareError, root};
use model::sharing::Rung;

/// The number of the first IPC namespace, which the kernel never gives to another (PROC_IPC_INIT_INO in
/// include/linux/proc_ns.h).
const FIRST_IPC_NAMESPACE: &str = "ipc:[4026531839]";

/// Everything that another process needs to open memory.
#[derive(Debug)]
pub struct Handle {
    /// The handle itself, or a path.
    pub bytes: Vec<u8>,
    /// A file, which is sent over a socket.
    pub descriptor: Option<OwnedFd>,
}

/// Facts about the process and its system that decide how memory can be shared. `None` for one that cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SharingFacts {
    /// True if the IPC namespace is not the machine's own.
    pub own_ipc_namespace: Option<bool>,
    /// True if a seccomp filter is in force.
    pub seccomp_filter: Option<bool>,
    /// Free bytes of /dev/shm; 0 if there is none.
    pub shared_memory_bytes: Option<u64>,
    /// True if hardly any open file is left to this process.
    pub no_file_left: Option<bool>,
    /// True in the Linux within Windows.
    pub wsl: Option<bool>,
}

impl SharingFacts {
    /// Reads the facts of this process that files have.
    pub fn now() -> Self {
        Self {
            no_file_left: Some(limits::blame(Scarce::LastFiles).is_some()),
            shared_memory_bytes: match statvfs("/dev/shm") {
                Ok(StatVfs { f_bavail, f_frsize, .. }) => Some(f_bavail.saturating_mul(f_frsize)),
                Err(error) => (error == rustix::io::Errno::NOENT).then_some(0),
            },
            ..Self::below(&root())
        }
    }

    /// Reads the facts that files below this folder have.
    fn below(root: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(root.join(file)).ok();
        let status = text("proc/self/status");
        let seccomp = status.as_ref().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
            line.trim().parse::<u32>().ok()
        });
        let namespace = std::fs::read_link(root.join("proc/self/ns/ipc")).ok();
        Self {
            own_ipc_namespace: namespace.map(|name| name != Path::new(FIRST_IPC_NAMESPACE)),
            seccomp_filter: seccomp.map(|mode| mode == 2),
            wsl: text("proc/sys/kernel/osrelease").map(|release| {
                let release = release.to_lowercase();
                release.contains("microsoft") || release.contains("wsl")
            }),
            ..Self::default()
        }
    }
}

/// Memory for several processes, which [`Driver`](super::Driver) copies, fills, checks and frees like all
/// other.
pub trait SharedDriver {
    /// Creates memory that another process can open, and its handle.
    fn share(
        &self,
        device: Device,
        rung: Rung,
        bytes: u64,
    ) -> Result<(Buffer, Handle), HardwareError>;

    /// Opens memory of another process for a device of this one.
    fn open_shared(
        &self,
        device: Device,
        rung: Rung,
        handle: Handle,
        bytes: u64,
    ) -> Result<Buffer, HardwareError>;

    /// Reads the facts that decide how this process can share memory.
    fn sharing_facts(&self) -> SharingFacts;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn facts_are_read_and_what_is_missing_is_known_or_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let at = |file: &str| folder.path().join(file);
        let empty = SharingFacts::below(folder.path());
        assert_eq!((empty.seccomp_filter, empty.own_ipc_namespace, empty.wsl), (None, None, None));
        create_dir_all(at("proc/self/ns")).unwrap();
        create_dir_all(at("proc/sys/kernel")).unwrap();
        write(at("proc/self/status"), "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n").unwrap();
        write(at("proc/sys/kernel/osrelease"), "5.15.1-microsoft-standard-WSL2\n").unwrap();
        symlink("ipc:[4026532190]", at("proc/self/ns/ipc")).unwrap();
        let found = SharingFacts::below(folder.path());
        let wanted = SharingFacts {
            own_ipc_namespace: Some(true),
            seccomp_filter: Some(true),
            wsl: Some(true),
            ..SharingFacts::default()
        };
        assert_eq!(found, wanted);
        std::fs::remove_file(at("proc/self/ns/ipc")).unwrap();
        symlink(FIRST_IPC_NAMESPACE, at("proc/self/ns/ipc")).unwrap();
        let found = SharingFacts::below(folder.path());
        assert_eq!(found.own_ipc_namespace, Some(false));
    }
}
