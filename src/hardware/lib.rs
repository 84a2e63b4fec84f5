//! The only room that touches a machine. Two small object-safe traits: [`Telemetry`] reads facts
//! and counters and belongs to the parent process; [`Driver`] runs copies and kernels and belongs
//! to the worker. A [`Machine`] opens both: the live one and the simulated ones are crates of their
//! own, and nothing outside them can tell which one it has.

mod driver;
mod handles;
mod host;
pub mod kernel_log;
mod kills;
pub mod limits;
mod lock;
pub mod pattern;
mod room;
pub mod sampler;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::driver::Driver;
pub use self::handles::{Buffer, Device, DeviceInfo, DeviceMemory, Event, PatternCheck, Stream};
pub use self::host::{HostBuffer, HostDriver, HostRoom, ProcessMemory, WORDS_LOOKED_AT};
pub use self::kills::Kills;
pub use self::lock::{Holder, Lock, NotLocked};
pub use self::sampler::Sampler;
use model::flow::Flow;
use model::snapshot::{
    Adapter, DisplayFunction, Gpu, GpuPair, Host, NumaNode, NvSwitch, PciFunction, PcieErrors,
};
use model::units::{GbPerSecond, Generation, Lanes};

/// How long the driver may take to start, unless told otherwise. cuInit took 2.6 s on an 8 x H200
/// server; machines with many GPUs and without persistence mode have been seen to need over half a
/// minute.
pub const DRIVER_START_LIMIT: Duration = Duration::from_secs(120);

/// Names a folder to use as the root of the file system when the kernel's files are read. For tests, whose
/// machines have their own `sys` and `proc`.
const ROOT: &str = "PEERSCOPE_FSROOT";

/// Where the kernel's files are.
pub fn root() -> PathBuf {
    std::env::var_os(ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// A machine to look at.
pub trait Machine: Debug + Send + Sync {
    /// `live`, or the simulated machine's name.
    fn name(&self) -> &str;

    /// The description from which another process can make the same machine where its name is not enough: what a file
    /// described, in one line.
    ///
    /// # Errors
    ///
    /// It cannot be written as JSON, which a test rules out.
    fn description(&self) -> serde_json::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Where CUDA looks for an MPS daemon by default, if one is there.
    fn mps_pipe(&self) -> Option<&'static Path> {
        None
    }

    /// Opens the facts and counters of this machine.
    fn telemetry(&self) -> Arc<dyn Telemetry>;

    /// Opens the driver of this machine. The devices' contexts are not created yet; a device whose start
    /// takes most of `limit` counts as one that failed.
    ///
    /// # Errors
    ///
    /// The library is missing, is a stub, or does not initialise.
    fn driver(&self, limit: Duration) -> Result<Box<dyn Driver>, HardwareError>;

    /// Takes the lock of this machine; never waits. A machine that nobody else can use needs none.
    ///
    /// # Errors
    ///
    /// Somebody else has it, or there can be none.
    fn lock(&self) -> Result<Lock, NotLocked> {
        Ok(Lock::default())
    }

    /// Who holds the lock, as far as the kernel tells. To be asked now and then only: the kernel keeps every
    /// question until the holder ends, and has room for some thousand.
    fn holder(&self) -> Holder {
        Holder::default()
    }
}

/// What the driver or NVML answered instead of doing what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct HardwareError {
    /// What kind of failure this is, where something depends on it.
    pub kind: ErrorKind,
    /// A sentence without a full stop, that names the call and the way out where there is one.
    pub message: String,
    /// The return code of the driver or of NVML, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

impl HardwareError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: None,
        }
    }

    /// The same, for this return code.
    #[must_use]
    pub fn with_code(self, code: u32) -> Self {
        Self {
            code: Some(code),
            ..self
        }
    }
}

/// Kinds of failure that something depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// No library, no driver, or it does not start: nothing can be tested.
    NoDriver,
    /// The device's memory is full.
    OutOfMemory,
    /// This device or driver cannot do it.
    Unsupported,
    /// No more peers at a time: 8 on systems without NVSwitch.
    TooManyPeers,
    /// Something outside the hardware was in the way, such as a limit of the process: says nothing about
    /// the hardware.
    Hindered,
    /// The context is broken: nothing more can be done with this device in this process.
    Sticky,
    /// Something else.
    Other,
}

/// Groups of GPU facts that are read together, so that a call that blocks costs its group and
/// those after it and not the facts that were there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GpuGroup {
    /// PCI address, UUID, name, architecture, memory, video BIOS.
    Identity,
    /// PCIe link and error counts.
    Pcie,
    /// NVLinks, fabric, chip-to-chip link.
    NvLink,
    /// Modes, clocks, processes, ECC.
    State,
    /// Error counters of the NVLinks, in the links that [`Self::NvLink`] has read. Each of them
    /// costs the driver a millisecond.
    LinkErrors,
}

impl GpuGroup {
    /// In the order in which they are read.
    pub const ALL: [Self; 5] = [
        Self::Identity,
        Self::Pcie,
        Self::NvLink,
        Self::State,
        Self::LinkErrors,
    ];
}

/// The PCI side of a machine.
#[derive(Debug, Clone, Default)]
pub struct PciTree {
    /// Functions on the way from a GPU or adapter to its root port.
    pub functions: Vec<PciFunction>,
    pub numa_nodes: Vec<NumaNode>,
    pub adapters: Vec<Adapter>,
    /// What could not be read, a sentence each.
    pub problems: Vec<String>,
}

/// NVIDIA's functions on the PCI bus, whatever NVML lists.
#[derive(Debug, Clone, Default)]
pub struct NvidiaFunctions {
    /// Display functions, by address.
    pub displays: Vec<DisplayFunction>,
    /// NVSwitches, by address.
    pub nvswitches: Vec<NvSwitch>,
}

/// What is watched while copies run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkSample {
    /// PCIe generation.
    pub generation: Option<Generation>,
    /// PCIe lanes.
    pub width: Option<Lanes>,
    /// Replay counter.
    pub replays: Option<u64>,
    /// PCIe error counts.
    pub pcie_errors: Option<PcieErrors>,
    /// Uncorrected memory errors since the last reboot, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Throttle reasons in NVML's names; idle is none.
    pub throttle_reasons: Vec<String>,
    /// Clock of the multiprocessors, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Temperature of the chip, degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
}

/// What a GPU has moved up to a moment, and how busy it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moved {
    /// When it was asked, on a clock of the machine's own.
    pub asked: Duration,
    /// When it had answered: what it says is of a moment in between.
    pub answered: Duration,
    /// Data sent and received over all NVLinks, bytes.
    pub nvlink: Option<[u64; 2]>,
    /// Bytes sent and received over PCIe, from a counter that begins anew after 2^32 on some GPUs.
    pub pcie: Option<[u64; 2]>,
    /// Rates over PCIe, sent and received, where there is no counter.
    pub pcie_rates: Option<[GbPerSecond; 2]>,
    /// Share of the last fraction of a second in which it did something, per cent.
    pub utilization_percent: Option<u8>,
    /// Why something of this could not be read; none where this GPU or driver does not have it.
    pub failure: Option<String>,
}

/// What the counters of a GPU stand at, for whomever they counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// When it was asked, on a clock of the machine's own.
    pub asked: Duration,
    /// When it had answered: what it says is of a moment in between.
    pub answered: Duration,
    /// Data sent and received over all NVLinks, bytes.
    pub nvlink: Option<[u64; 2]>,
    /// The same of single NVLinks, by NVML's number, of those that were asked for and are counted.
    pub links: Vec<(u8, [u64; 2])>,
    /// Bytes sent and received over PCIe, from a counter that begins anew after 2^32 on some GPUs.
    pub pcie: Option<[u64; 2]>,
    /// Why something of this could not be read; none where this GPU or driver does not have it.
    pub failure: Option<String>,
}

/// Facts and counters of a machine. Every call may block for minutes on a sick machine: callers
/// run them on threads of their own, under a time limit.
pub trait Telemetry: Send + Sync {
    /// Facts of the whole machine.
    fn host(&self) -> Host;

    /// The PCI tree and what hangs in it.
    fn pci_tree(&self) -> PciTree;

    /// NVIDIA's functions on the bus. Part of it is told by the NVIDIA kernel driver, which may block.
    fn nvidia_functions(&self) -> NvidiaFunctions;

    /// Number of GPUs that NVML counts, those that cannot be opened included.
    fn gpu_count(&self) -> Result<u32, HardwareError>;

    /// Fills in one group of facts of a GPU; what cannot be read is left with its reason.
    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu);

    /// What NVML says of an ordered pair, but for access to memory and atomics.
    fn read_pair(&self, source: u32, destination: u32) -> GpuPair;

    /// Fills in what NVML says of access to each other's memory.
    fn read_access(&self, pair: &mut GpuPair);

    /// Fills in what NVML says of atomics between a pair.
    fn read_atomics(&self, pair: &mut GpuPair);

    /// What is watched while copies run.
    fn sample(&self, index: u32) -> LinkSample;

    /// Begins to take readings of these GPUs, with this time between two of them.
    fn sampler(self: Arc<Self>, gpus: &[u32], interval: Duration) -> Box<dyn Sampler>;

    /// Returns how long to wait for this machine's answers, given the usual wait.
    fn patience(&self, usual: Duration) -> Duration {
        usual
    }

    /// What this GPU has moved, for whomever.
    fn moved(&self, index: u32) -> Moved;

    /// What the counters of this GPU stand at, and those of these NVLinks.
    fn counts(&self, index: u32, links: &[u8]) -> Counts;

    /// Says that the driver has moved these bytes. Nothing is to be done where counters see that by themselves.
    fn carried(&self, _flow: Flow, _bytes: u64) {}
}
