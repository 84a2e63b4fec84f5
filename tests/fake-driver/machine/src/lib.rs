//! Shared parts of the fake CUDA and NVML libraries: the machine that they answer from, the faults that they show, and
//! the files of that machine's kernel.

#![allow(unsafe_code, reason = "faults end a process and read a C environment")]

pub mod calls;
pub mod plan;
pub mod sysfs;
pub mod traffic;

use sim::Simulated;
use sim::spec::MachineSpec;

pub use calls::Calls;

/// The machine: a built-in name, or the path of a description (see docs/machines.md).
pub const MACHINE: &str = "PEERSCOPE_FAKE_MACHINE";
/// The faults, as text in the form of [`plan`].
pub const FAULTS: &str = "PEERSCOPE_FAKE_FAULTS";
/// A folder with the counts of every process's calls and the record of faults already shown. Without it nothing is
/// recorded, and a fault is shown once in every process.
pub const STATE: &str = "PEERSCOPE_FAKE_STATE";

/// Returns the machine that [`MACHINE`] names.
///
/// # Errors
///
/// The variable is not set, or there is no such machine.
pub fn machine() -> Result<MachineSpec, String> {
    let name = std::env::var(MACHINE).map_err(|_| format!("{MACHINE} is not set"))?;
    Simulated::find(&name).map(|machine| machine.spec)
}

/// Opens this many files for good, as a driver does for each GPU. Returns true if all could be opened.
pub fn take_files(count: usize) -> bool {
    let files: Option<Vec<_>> = (0..count).map(|_| std::fs::File::open("/dev/null").ok()).collect();
    files.map(std::mem::forget).is_some()
}

/// Returns the code in a sentence of the simulated machine, the number at the end of its last brackets: `(CUDA error
/// 700)`, `(15)`. Without one, returns the library's "unknown error".
pub fn code_in(sentence: &str) -> u32 {
    let inside =
        sentence.rsplit_once('(').map_or("", |(_, behind)| behind.split(')').next().unwrap_or(""));
    inside.rsplit(' ').next().and_then(|code| code.parse().ok()).unwrap_or(999)
}

/// Returns `13.0` as 13000.
pub fn cuda_version(text: &str) -> Option<i32> {
    let (major, minor) = text.split_once('.')?;
    Some(major.parse::<i32>().ok()? * 1000 + minor.parse::<i32>().ok()? * 10)
}
