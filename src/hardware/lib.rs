//! The only room that touches a machine. It has two small object-safe traits. [`Telemetry`] reads facts and counters
//! and belongs to the parent process. [`Driver`] runs copies and kernels and belongs to the worker. A [`Machine`] opens
//! both. The live machine and the simulated ones are crates of their own, and no other code can tell which one it has.

mod driver;
mod handles;
mod host;
pub mod kernel_log;
mod kills;
pub mod limits;
mod links;
mod lock;
pub mod pattern;
mod room;
pub mod sampler;
mod shared;
mod talk;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::driver::{Driver, copy_one_by_one};
pub use self::handles::{
    Buffer, Comparison, Device, DeviceInfo, DeviceMemory, Event, Location, MOST_TALLIES,
    PatternCheck, Sent, SteadyCopies, Stream,
};
pub use self::host::{HostDriver, HostRoom, ProcessMemory, WORDS_LOOKED_AT};
pub use self::kills::Kills;
pub use self::links::{
    BLOCK_BYTES, BlockList, BlockMap, BlockTraffic, BlockWork, LOAD_GROUPS, LinkBytes, LinkDriver,
    MOST_BLOCKS, MOST_LISTS, Passed, STORE_GROUPS,
};
pub use self::lock::{Holder, Lock, NotLocked};
pub use self::sampler::Sampler;
pub use self::shared::{Handle, SharedDriver, SharingFacts};
pub use self::talk::{
    CHANNEL_DATA, CHANNEL_ROUNDS, Chase, HEARD_WORDS, Heard, Hops, MAILBOX_BYTES, Talk, TalkDriver,
    TalkLimits, Unseen,
};
use model::flow::Flow;
use model::reading::Unknown;
use model::snapshot::{
    Adapter, DisplayFunction, Gpu, GpuPair, GpuProcess, Host, NumaNode, NvSwitch, PciFunction,
    PcieErrors,
};
use model::units::{GbPerSecond, Generation, Lanes};

/// Default time limit for the driver's start. cuInit took 2.6 s on an 8 x H200 server; machines with many GPUs and
/// without persistence mode have been seen to need over half a minute.
pub const DRIVER_START_LIMIT: Duration = Duration::from_secs(120);

/// Environment variable that names a folder to use as the root of the file system when the kernel's files are read. For
/// tests, whose machines have their own `sys` and `proc`.
const ROOT: &str = "PEERSCOPE_FSROOT";

/// Returns the folder below which the kernel's files are.
pub fn root() -> PathBuf {
    std::env::var_os(ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// A machine to check.
pub trait Machine: Debug + Send + Sync {
    /// Returns `live`, or the simulated machine's name.
    fn name(&self) -> &str;

    /// Returns the description from which another process can make the same machine, if its name is not enough: the
    /// contents of a description file, in one line.
    ///
    /// # Errors
    ///
    /// The description cannot be written as JSON, which a test rules out.
    fn description(&self) -> serde_json::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Returns the path where CUDA looks for an MPS daemon by default, if one is there.
    fn mps_pipe(&self) -> Option<&'static Path> {
        None
    }

    /// Opens the facts and counters of this machine.
    fn telemetry(&self) -> Arc<dyn Telemetry>;

    /// Opens the driver of this machine. The devices' contexts are not created yet. A device whose start takes most of
    /// `limit` counts as failed.
    ///
    /// # Errors
    ///
    /// The library is missing, is a stub, or does not initialise.
    fn driver(&self, limit: Duration) -> Result<Box<dyn Driver>, HardwareError>;

    /// Takes the lock of this machine; never waits. A machine that nobody else can use needs none.
    ///
    /// # Errors
    ///
    /// Another process holds it, or no lock is possible here.
    fn lock(&self) -> Result<Lock, NotLocked> {
        Ok(Lock::default())
    }

    /// Returns the holder of the lock, as far as the kernel reports it. Ask rarely: the kernel keeps every request
    /// until the holder ends, and has room for some thousand.
    fn holder(&self) -> Holder {
        Holder::default()
    }
}

/// The error of a call to the driver or NVML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct HardwareError {
    /// Kind of failure, for code that depends on it.
    pub kind: ErrorKind,
    /// A sentence without a full stop that names the call, and the way out if there is one.
    pub message: String,
    /// The return code of the driver or of NVML, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

impl HardwareError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None }
    }

    /// Returns the same error with this return code.
    #[must_use]
    pub fn with_code(self, code: u32) -> Self {
        Self { code: Some(code), ..self }
    }
}

/// Kinds of failure that other code depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The library or the driver is missing or does not start: nothing can be tested.
    NoDriver,
    /// The device's memory is full.
    OutOfMemory,
    /// This device or driver does not support it.
    Unsupported,
    /// This platform cannot do it by design, as the driver says: there is nothing to test, and nothing to mend.
    Impossible,
    /// No further peers are possible at the same time: 8 on systems without NVSwitch.
    TooManyPeers,
    /// Something outside the hardware was in the way, such as a limit of the process. It proves nothing about the
    /// hardware.
    Hindered,
    /// The context is broken: this process can do nothing more with this device.
    Sticky,
    /// Something else.
    Other,
}

impl ErrorKind {
    /// Returns true if nothing went wrong: device, driver or platform do not have it.
    pub const fn is_lack(self) -> bool {
        matches!(self, Self::Unsupported | Self::Impossible)
    }
}

/// Groups of GPU facts that are read together. A call that blocks costs its own group and those after it, but not the
/// facts read before.
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
    /// Error counters of the NVLinks that [`Self::NvLink`] has read. Each counter costs the driver a millisecond.
    LinkErrors,
}

impl GpuGroup {
    /// All groups, in the order in which they are read.
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::Pcie, Self::NvLink, Self::State, Self::LinkErrors];
}

/// The PCI side of a machine.
#[derive(Debug, Clone, Default)]
pub struct PciTree {
    /// Functions on the way from a GPU or adapter to its root port.
    pub functions: Vec<PciFunction>,
    pub numa_nodes: Vec<NumaNode>,
    pub adapters: Vec<Adapter>,
    /// Failures to read, a sentence each.
    pub problems: Vec<String>,
}

/// NVIDIA's functions on the PCI bus, regardless of what NVML lists.
#[derive(Debug, Clone, Default)]
pub struct NvidiaFunctions {
    /// Display functions, sorted by address.
    pub displays: Vec<DisplayFunction>,
    /// NVSwitches, sorted by address.
    pub nvswitches: Vec<NvSwitch>,
}

/// The readings that are watched while copies run.
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
    /// Uncorrected memory errors since the last reboot, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Throttle reasons in NVML's names. "Idle" counts as no reason.
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
    /// Share of the last fraction of a second in which the GPU was busy, per cent. `None` if nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u8>,
    /// `None` if nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// Xid errors that the driver reported since the last reading. `None` if nobody listens ([`Telemetry::listen`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xids: Option<Result<Vec<u32>, Unknown>>,
    /// Programs other than this one that use the GPU. `None` if they are not known, or nobody listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<GpuProcess>>,
}

/// Power, temperature of the memory, and the time for which the clocks were held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Power {
    /// Power now, and its limit, milliwatts.
    pub milliwatts: Option<u32>,
    pub limit_milliwatts: Option<u32>,
    /// Energy since the driver's start, millijoules.
    pub millijoules: Option<u64>,
    /// Temperature of the memory, degrees Celsius.
    pub memory_c: Option<u32>,
    /// Nanoseconds since the driver's start in which each of [`HELD_BY`] held the clocks back.
    pub held_ns: [Option<u64>; 4],
}

/// Throttle reasons whose time the driver counts, by NVML's names.
pub const HELD_BY: [&str; 4] = ["sw-power-cap", "sw-thermal", "hw-thermal", "hw-power-brake"];

/// The data that a GPU has moved up to a moment, and how busy it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moved {
    /// Time of the request, on the machine's own clock.
    pub asked: Duration,
    /// Time of the answer. The values are from a moment between the two.
    pub answered: Duration,
    /// Data sent and received over all NVLinks, bytes.
    pub nvlink: Option<[u64; 2]>,
    /// Bytes sent and received over PCIe. On some GPUs the counter wraps at 2^32.
    pub pcie: Option<[u64; 2]>,
    /// Rates over PCIe, sent and received, if there is no counter.
    pub pcie_rates: Option<[GbPerSecond; 2]>,
    /// Per cent of the last fraction of a second in which the GPU was busy.
    pub utilization_percent: Option<u8>,
    /// Reason why some value could not be read. `None` if this GPU or driver lacks the value.
    pub failure: Option<String>,
}

/// The counters of a GPU, which count the traffic of all programs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Time of the request, on the machine's own clock.
    pub asked: Duration,
    /// Time of the answer. The values are from a moment between the two.
    pub answered: Duration,
    /// Data sent and received over all NVLinks, bytes.
    pub nvlink: Option<[u64; 2]>,
    /// Data sent and received over single NVLinks, by NVML's link number: those requested and counted.
    pub links: Vec<(u8, [u64; 2])>,
    /// True if heads of packets may be among the bytes of the NVLinks.
    #[serde(default)]
    pub with_heads: bool,
    /// Bytes sent and received over PCIe. On some GPUs the counter wraps at 2^32.
    pub pcie: Option<[u64; 2]>,
    /// Reason why some value could not be read. `None` if this GPU or driver lacks the value.
    pub failure: Option<String>,
}

/// Facts and counters of a machine. Every call may block for minutes on a sick machine. Callers run them on threads of
/// their own, under a time limit.
pub trait Telemetry: Send + Sync {
    /// Returns facts about the whole machine.
    fn host(&self) -> Host;

    /// Returns the PCI tree and the devices in it.
    fn pci_tree(&self) -> PciTree;

    /// Returns NVIDIA's functions on the bus. Part of this comes from the NVIDIA kernel driver, which may block.
    fn nvidia_functions(&self) -> NvidiaFunctions;

    /// Returns the number of GPUs that NVML counts, including those that cannot be opened.
    fn gpu_count(&self) -> Result<u32, HardwareError>;

    /// Fills in one group of facts about a GPU. A fact that cannot be read keeps its reason.
    fn read_gpu(&self, group: GpuGroup, gpu: &mut Gpu);

    /// Returns what NVML reports for an ordered pair, except access to memory and atomics.
    fn read_pair(&self, source: u32, destination: u32) -> GpuPair;

    /// Fills in what NVML reports for access to each other's memory.
    fn read_access(&self, pair: &mut GpuPair);

    /// Fills in what NVML reports for atomics between a pair.
    fn read_atomics(&self, pair: &mut GpuPair);

    /// Returns the readings that are watched while copies run.
    fn sample(&self, index: u32) -> LinkSample;

    /// From now on, readings also contain the errors that the driver reports, and the programs that use the GPUs.
    fn listen(&self) {}

    /// Begins to take readings of these GPUs, with this time between two of them.
    fn sampler(self: Arc<Self>, gpus: &[u32], interval: Duration) -> Box<dyn Sampler>;

    /// Returns how long to wait for this machine's answers, given the usual wait.
    fn patience(&self, usual: Duration) -> Duration {
        usual
    }

    /// Returns the data that this GPU has moved, for all programs.
    fn moved(&self, index: u32) -> Moved;

    /// Returns the counters of this GPU, and those of these NVLinks.
    fn counts(&self, index: u32, links: &[u8]) -> Counts;

    /// Reports that the driver has moved these bytes. Machines whose counters see that by themselves do nothing.
    fn carried(&self, _flow: Flow, _bytes: u64) {}
}
