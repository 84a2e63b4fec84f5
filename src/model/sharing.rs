//! Memory that one process hands to another, as programs with one process per GPU do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::Pair;
use super::status::Verified;
use super::units::Bytes;

/// A way to hand memory, or an event, to another process. In the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Memory of a GPU by a legacy IPC handle (`cuIpcGetMemHandle`).
    LegacyMemory,
    /// An event by a legacy IPC handle (`cuIpcGetEventHandle`).
    LegacyEvent,
    /// Memory of a GPU by a file descriptor that is sent over a socket.
    Descriptor,
    /// The same descriptor, fetched by the other process itself (`pidfd_getfd`).
    Pidfd,
    /// Memory of a GPU by a fabric handle, which crosses machines too.
    Fabric,
    /// Memory of the host in a file of /dev/shm, registered by both processes.
    SharedMemory,
    /// Memory of a NUMA node that the driver allocates (`cuMemCreate`), by a file descriptor.
    HostNode,
}

impl Rung {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::LegacyMemory,
        Self::LegacyEvent,
        Self::Descriptor,
        Self::Pidfd,
        Self::Fabric,
        Self::SharedMemory,
        Self::HostNode,
    ];

    /// Returns true if it hands over memory of a GPU.
    pub const fn is_of_gpu(self) -> bool {
        !matches!(self, Self::LegacyEvent | Self::SharedMemory | Self::HostNode)
    }

    /// Returns true if a file descriptor is handed over by a message on a socket.
    pub const fn sends_descriptor(self) -> bool {
        matches!(self, Self::Descriptor | Self::HostNode)
    }

    /// Returns its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LegacyMemory => "legacy-memory",
            Self::LegacyEvent => "legacy-event",
            Self::Descriptor => "descriptor",
            Self::Pidfd => "pidfd",
            Self::Fabric => "fabric",
            Self::SharedMemory => "shared-memory",
            Self::HostNode => "host-node",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LegacyMemory => "legacy IPC handle",
            Self::LegacyEvent => "legacy IPC event",
            Self::Descriptor => "file descriptor over a socket",
            Self::Pidfd => "file descriptor by pidfd_getfd",
            Self::Fabric => "fabric handle",
            Self::SharedMemory => "/dev/shm registered by both",
            Self::HostNode => "host memory of a NUMA node",
        })
    }
}

/// The GPUs that CUDA shows to each of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// All that this program sees.
    All,
    /// Its own only, as Ray and some launchers set `CUDA_VISIBLE_DEVICES`.
    Own,
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::All => "all GPUs visible",
            Self::Own => "own GPU visible",
        })
    }
}

axes!(Rung, View);

/// A fact about the process or the system that keeps memory from being shared in some way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// The driver lacks the function.
    DriverTooOld,
    /// CUDA says that the GPU does not have it.
    NotOffered,
    /// The Linux within Windows.
    Wsl,
    /// The process has an IPC namespace of its own.
    IpcNamespace,
    /// The process is under a seccomp filter.
    Seccomp,
    /// Yama restricts access to other processes (`ptrace_scope`).
    Yama,
    /// The kernel is too old for the call.
    KernelTooOld,
    /// The process may open no more files.
    OpenFiles,
    /// There is no IMEX channel.
    NoImexChannel,
    /// /dev/shm is missing.
    NoSharedMemory,
    /// /dev/shm has too little room.
    SharedMemoryFull,
    /// The system refuses to say or set which NUMA node memory comes from.
    NumaRefused,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DriverTooOld => "the driver lacks the function",
            Self::NotOffered => "CUDA says that this GPU does not have it",
            Self::Wsl => "this is WSL 2",
            Self::IpcNamespace => "this process has an IPC namespace of its own",
            Self::Seccomp => "this process is under a seccomp filter",
            Self::Yama => "kernel.yama.ptrace_scope restricts access to other processes",
            Self::KernelTooOld => "the kernel is too old for this call",
            Self::OpenFiles => "this process may open no more files",
            Self::NoImexChannel => "there is no IMEX channel in /dev/nvidia-caps-imex-channels",
            Self::NoSharedMemory => "there is no /dev/shm",
            Self::SharedMemoryFull => "/dev/shm has too little room",
            Self::NumaRefused => "the system refuses get_mempolicy to this process",
        })
    }
}

cell! {
    /// Memory that one process handed to another.
    Sharing: Share
    with {
        /// The GPU of the process that has the memory, by NVML's index.
        owner: u32,
        /// The GPU of the process that opens it. The same one if both use one GPU.
        user: u32,
        /// The GPUs that CUDA shows to each process.
        view: View,
        /// The way.
        rung: Rung,
        /// Size of the memory.
        bytes: Bytes,
    }
    has {
        /// True if the other process could use it; false if it was refused.
        works: Option<bool> => main Amount,
        /// Microseconds until the other process could use it, from the handle on.
        open_us: Option<f64> => Amount,
        /// Result of checking the bytes: those that the owner wrote, read by the other process, and the other way round.
        verified: Verified => sometimes checked,
        /// The refusal, in a sentence.
        refused: Option<String>,
        /// Facts that explain a refusal. Empty if nothing was refused, or nothing explains it.
        obstacles: Vec<Obstacle>,
    }
}

impl Subject for Sharing {
    fn flow(&self) -> Flow {
        Flow::from(Pair { source: self.owner, destination: self.user })
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{}, {}", self.rung, self.view)
    }
}
