//! The real binary over the fake driver. Its dynamic loading, its function tables and its unsafe code run as on a
//! machine with GPUs. CONTRIBUTING.md explains how to do the same by hand.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_machine::sysfs;
use sim::Simulated;

use crate::common::peerscope;

/// File names of the driver's libraries.
pub(crate) const CUDA: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
pub(crate) const NVML: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// A machine with its libraries and the files of its kernel, in a folder that is removed on drop.
pub(crate) struct Fake {
    folder: tempfile::TempDir,
    machine: String,
}

/// Returns a library that cargo built with these tests, in the tests' folder.
pub(crate) fn library(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent().unwrap().join(format!("libfake_{name}.so"));
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Returns functions that the live code called and the fakes do not know, from their notes in the folder of state.
pub(crate) fn unexpected(state: &Path) -> Vec<String> {
    let names = std::fs::read_dir(state)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    names.filter(|name| name.ends_with(".unexpected")).collect()
}

impl Fake {
    /// Creates a built-in machine, or one from this description.
    pub(crate) fn new(machine: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for place in ["lib", "root", "state"] {
            std::fs::create_dir(folder.path().join(place)).unwrap();
        }
        let fake = Self { folder, machine: machine.to_owned() };
        for (name, library) in
            CUDA.map(|name| (name, "cuda")).into_iter().chain(NVML.map(|name| (name, "nvml")))
        {
            fake.install(name, &self::library(library));
        }
        sysfs::write(&fake.path("root"), &Simulated::find(machine).unwrap().spec).unwrap();
        fake
    }

    fn path(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    /// Returns the folder with the machine's /sys and /proc.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    /// Returns the folder in which the libraries record their calls.
    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Installs a library under this name, and replaces an existing one.
    pub(crate) fn install(&self, name: &str, library: &Path) {
        let place = self.path("lib").join(name);
        let _ = std::fs::remove_file(&place);
        symlink(library, place).unwrap();
    }

    /// Returns a command for the binary with this machine as the live one.
    pub(crate) fn command<S: AsRef<str>>(&self, args: &[S]) -> Command {
        let mut command = peerscope(args);
        command
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("PEERSCOPE_FSROOT", self.path("root"))
            .env("PEERSCOPE_LOCK", self.path("root"))
            .env(fake_machine::MACHINE, &self.machine)
            .env(fake_machine::STATE, self.state())
            .env_remove(fake_machine::FAULTS)
            .env_remove("CUDA_VISIBLE_DEVICES");
        command
    }
}
