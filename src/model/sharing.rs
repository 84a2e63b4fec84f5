//! Memory that one process hands to another, as programs with one process per GPU do.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::Pair;
use super::status::Verified;
use super::units::Bytes;

/// A way to hand memory to another process. In the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// Memory of a GPU by a legacy IPC handle (`cuIpcGetMemHandle`).
    LegacyMemory,
    /// Memory of a GPU by a file descriptor that is sent over a socket.
    Descriptor,
    /// Memory of the host in a file of /dev/shm, registered by both processes.
    SharedMemory,
}

impl Rung {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::LegacyMemory, Self::Descriptor, Self::SharedMemory];
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LegacyMemory => "legacy IPC handle",
            Self::Descriptor => "file descriptor over a socket",
            Self::SharedMemory => "/dev/shm registered by both",
        })
    }
}

axes!(Rung);

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
    /// The process may open no more files.
    OpenFiles,
    /// /dev/shm is missing, or has too little room.
    SharedMemoryFull,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DriverTooOld => "the driver lacks the function",
            Self::NotOffered => "CUDA says that this GPU does not have it",
            Self::Wsl => "this is WSL 2",
            Self::IpcNamespace => "this process has an IPC namespace of its own",
            Self::Seccomp => "this process is under a seccomp filter",
            Self::OpenFiles => "this process may open no more files",
            Self::SharedMemoryFull => "/dev/shm has too little room",
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
        /// Result of checking the bytes that the owner wrote, read by the other process.
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
        self.rung.to_string()
    }
}
