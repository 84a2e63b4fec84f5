//! Memory that one process hands to another, as programs with one process per GPU do.

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, Setup};
use super::placement::Pair;
use super::status::Verified;
use super::units::Bytes;

words! {
    /// A way to hand memory to another process. In the order in which they are tried.
    Rung {
        /// Memory of a GPU by a legacy IPC handle (`cuIpcGetMemHandle`).
        LegacyMemory = "legacy IPC handle",
        /// Memory of a GPU by a file descriptor that is sent over a socket.
        Descriptor = "file descriptor over a socket",
        /// Memory of the host in a file of /dev/shm, registered by both processes.
        SharedMemory = "/dev/shm registered by both",
    }
}

axes!(Rung);

words! {
    /// A fact about the process or the system that keeps memory from being shared in some way.
    Obstacle {
        /// The driver lacks the function.
        DriverTooOld = "the driver lacks the function",
        /// CUDA says that the GPU does not have it.
        NotOffered = "CUDA says that this GPU does not have it",
        /// The Linux within Windows.
        Wsl = "this is WSL 2",
        /// The process has an IPC namespace of its own.
        IpcNamespace = "this process has an IPC namespace of its own",
        /// The process is under a seccomp filter.
        Seccomp = "this process is under a seccomp filter",
        /// The process may open no more files.
        OpenFiles = "this process may open no more files",
        /// /dev/shm is missing, or has too little room.
        SharedMemoryFull = "/dev/shm has too little room",
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
        self.rung.to_string()
    }
}
