//! Trees of files like /sys and /proc, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::Sysfs;

/// A machine's files in a directory that is deleted on drop.
pub(super) struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.root.path())
    }

    pub(super) fn sys(&self, path: &str, content: impl AsRef<[u8]>) {
        write(&self.root.path().join("sys").join(path), content.as_ref());
    }

    pub(super) fn proc(&self, path: &str, content: impl AsRef<[u8]>) {
        write(&self.root.path().join("proc").join(path), content.as_ref());
    }

    /// Creates an empty file below the root itself.
    pub(super) fn file(&self, path: &str) {
        write(&self.root.path().join(path), b"");
    }

    pub(super) fn dev(&self, name: &str) {
        write(&self.root.path().join("dev").join(name), b"");
    }

    /// Creates a relative symlink within `sys`, as the kernel makes them.
    pub(super) fn link(&self, path: &str, target: &str) {
        let link = self.root.path().join("sys").join(path);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let up = "../".repeat(path.matches('/').count());
        symlink(format!("{up}{target}"), link).unwrap();
    }

    /// Creates a PCI function at this path below `devices`, with its ids and class.
    pub(super) fn function(&self, path: &str, vendor: u16, class: u32) {
        let address = path.rsplit('/').next().unwrap();
        self.sys(&format!("devices/{path}/vendor"), format!("{vendor:#06x}\n"));
        self.sys(&format!("devices/{path}/device"), "0x2335\n");
        self.sys(&format!("devices/{path}/class"), format!("{class:#08x}\n"));
        self.link(&format!("bus/pci/devices/{address}"), &format!("devices/{path}"));
    }

    /// Creates the link files of a function: speeds and widths, current and highest.
    pub(super) fn pcie(&self, path: &str, speed: [&str; 2], width: [&str; 2]) {
        for (file, value) in [
            ("current_link_speed", speed[0]),
            ("max_link_speed", speed[1]),
            ("current_link_width", width[0]),
            ("max_link_width", width[1]),
        ] {
            self.sys(&format!("devices/{path}/{file}"), format!("{value}\n"));
        }
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
