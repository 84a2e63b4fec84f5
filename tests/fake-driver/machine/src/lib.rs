//! What the fake CUDA and NVML libraries share: the machine that they answer from, the faults that
//! they are to show, and the files of that machine's kernel.

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
/// What is to go wrong, in the form of [`plan`]: the text itself.
pub const FAULTS: &str = "PEERSCOPE_FAKE_FAULTS";
/// A folder in which the calls of every process are counted, and in which it is kept which fault
/// has been shown. Without it nothing is kept, and a fault is shown once in every process.
pub const STATE: &str = "PEERSCOPE_FAKE_STATE";

/// The machine that [`MACHINE`] names.
///
/// # Errors
///
/// It is not set, or there is no such machine.
pub fn machine() -> Result<MachineSpec, String> {
    let name = std::env::var(MACHINE).map_err(|_| format!("{MACHINE} is not set"))?;
    Simulated::find(&name).map(|machine| machine.spec)
}

/// Opens so many files for good, as a driver does for each GPU; whether there were so many to be had.
pub fn take_files(count: usize) -> bool {
    let files: Option<Vec<_>> = (0..count)
        .map(|_| std::fs::File::open("/dev/null").ok())
        .collect();
    files.map(std::mem::forget).is_some()
}

/// The code in a sentence of the simulated machine, the number that ends its last brackets:
/// `(CUDA error 700)`, `(15)`; the library's "unknown error" where it has none.
pub fn code_in(sentence: &str) -> u32 {
    let inside = sentence
        .rsplit_once('(')
        .map_or("", |(_, behind)| behind.split(')').next().unwrap_or(""));
    inside
        .rsplit(' ')
        .next()
        .and_then(|code| code.parse().ok())
        .unwrap_or(999)
}
