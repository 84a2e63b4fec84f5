//! What the time of a job added to the counters of a machine: readings before and after it, without a measurement.

use serde::{Deserialize, Serialize};

use super::snapshot::{Snapshot, Xid};
use super::under_load::{AerAdded, LinkUnderLoad};
use super::units::Bytes;

/// The time around a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Bracket {
    /// Name of the job, as `--job` gave it. Null if it was not given.
    #[serde(default)]
    pub job: Option<String>,
    /// The command that ran, with its arguments. Null if the job was not started by peerscope.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Exit code of the command. Null if a signal ended it, or there was none.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the command. Null if none did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Time between the two readings, seconds. It includes the time in which the system slept.
    pub seconds: f64,
    /// Time that the readings before and after the job took, seconds.
    pub reading_seconds: [f64; 2],
    /// Facts before the job. `snapshot` has those after it.
    pub before: Snapshot,
    /// Reasons why nothing can be attributed to the job, a sentence each: the counters began again.
    #[serde(default)]
    pub not_comparable: Vec<String>,
    /// Traffic, clocks and temperatures of each GPU.
    pub gpus: Vec<GpuBracket>,
    /// What the PCIe link, the memory and the NVLinks of each GPU counted.
    pub links: Vec<LinkUnderLoad>,
    /// PCI functions on the way to the GPUs whose AER counters rose.
    #[serde(default)]
    pub aer_added: Vec<AerAdded>,
    /// Xid messages of the time of the job: the last one of each GPU and code, `times` as often as it came meanwhile. Null
    /// if the kernel's log could not be read both times.
    #[serde(default)]
    pub xids: Option<Vec<Xid>>,
    /// Counters that were not compared, and why, a sentence each.
    #[serde(default)]
    pub not_read: Vec<String>,
}

/// What one GPU did in the time of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GpuBracket {
    /// NVML's index of the GPU after the job.
    pub index: u32,
    /// Bytes sent over its NVLinks, of all programs. Null if they are not counted.
    pub nvlink_sent_bytes: Option<Bytes>,
    /// Bytes received over its NVLinks.
    pub nvlink_received_bytes: Option<Bytes>,
    /// Bytes sent over PCIe. Null if they are not counted.
    pub pcie_sent_bytes: Option<Bytes>,
    /// Bytes received over PCIe.
    pub pcie_received_bytes: Option<Bytes>,
    /// True if the counter of PCIe bytes has 32 bits on this GPU, or may have: it wraps every 4 GiB, and the bytes are the
    /// least that were moved.
    pub pcie_is_least: bool,
    /// Clock of the multiprocessors before and after, MHz.
    pub sm_clock_mhz: [Option<u32>; 2],
    /// Temperature before and after, degrees Celsius.
    pub temperature_c: [Option<u32>; 2],
    /// Reason why a counter is missing. Null if none is.
    pub reason: Option<String>,
}

impl Bracket {
    /// Returns words for the job: `job 4711`, `python train.py`, or `the job`.
    pub fn name(&self) -> String {
        match (&self.job, &self.command) {
            (Some(job), _) => format!("job {job}"),
            (None, Some(command)) => format!("'{}'", command.join(" ")),
            (None, None) => "the job".to_owned(),
        }
    }
}
