//! Time that calls block the host, cost of waiting for the same GPU or another one, and data that a program reads
//! before its copy ends.

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Flow, HostMemory, Setup};
use super::host::HostDirection;
use super::placement::HostMode;
use super::units::Bytes;

words! {
    /// A call that the host makes.
    Call {
        /// The launch of a kernel.
        Launch = "kernel launch",
        /// A copy.
        Copy = "copy",
        /// A wait for all work of a stream.
        SynchronizeStream = "synchronise stream",
        /// A wait for an event.
        SynchronizeEvent = "synchronise event",
        /// A wait for all work of a GPU.
        SynchronizeDevice = "synchronise device",
    }
}

axes!(Call);

cell! {
    /// The time that one call blocks the host.
    HostCall: Calls
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// The call.
        call: Call,
        /// Allocation of the host's buffer, for a copy between host and GPU. Null for copies within the GPU and for other
        /// calls.
        memory: Option<HostMemory>,
        /// NUMA node of the host's buffer. Null if it is not known or there is no such buffer.
        numa_node: Option<u32>,
        /// Direction of a copy between host and GPU.
        direction: Option<HostDirection>,
        /// Size of the copy, if the call is one.
        bytes: Option<Bytes>,
        /// Host mode of the call. Blocking means that it waits for the work that it starts or finds; a blocking copy
        /// includes the wait for its end.
        host: HostMode,
        /// True if the call starts work, or if a wait finds unfinished work.
        busy: bool,
    }
    has {
        /// Time that the call blocks the host, microseconds, median.
        host_blocked_us: Option<f64> => main Amount,
        /// Time that this work takes on the GPU, microseconds, median. 0 if there is no work.
        work_us: Option<f64> => Amount,
        /// Number of samples.
        samples: u32,
        /// (Largest - smallest) / median of the time that the call blocks the host, per cent.
        spread_percent: Option<f64> => Amount,
    }
}

impl HostCall {
    /// Describes the call in words: `copy, pinned, to device`.
    pub fn words(&self) -> String {
        Self::in_words(self.call, self.memory, self.direction)
    }

    /// Describes such a call in words.
    pub fn in_words(
        call: Call,
        memory: Option<HostMemory>,
        direction: Option<HostDirection>,
    ) -> String {
        let mut words = vec![call.to_string()];
        match (call, memory) {
            (Call::Copy, Some(memory)) => words.push(memory.to_string()),
            (Call::Copy, None) => words.push("within the GPU".to_owned()),
            _ => {}
        }
        words.extend(direction.map(|direction| direction.to_string()));
        words.join(", ")
    }

    /// Returns true if the call waits and has something to wait for.
    pub const fn waits(&self) -> bool {
        matches!(self.host, HostMode::Blocking) && self.busy
    }
}

impl Subject for HostCall {
    fn flow(&self) -> Flow {
        let Self { gpu, numa_node, .. } = *self;
        let up =
            self.memory.map_or(Flow::inside(gpu), |memory| Flow::from_host(numa_node, memory, gpu));
        if self.direction == Some(HostDirection::ToHost) { up.reversed() } else { up }
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes.unwrap_or(Bytes(0)))
    }

    fn what(&self) -> String {
        let work = if self.busy { "" } else { ", nothing to wait for" };
        format!("{}, {}{work}", self.words(), self.host)
    }
}

cell! {
    /// A loop of small launches on one GPU with a wait for a GPU in each turn. That GPU is either the same one, which has
    /// just been given work, or another one, which has none.
    LaunchLoop: LaunchLoop
    with {
        /// NVML's index of the GPU that works.
        gpu: u32,
        /// NVML's index of the GPU that is waited for in each turn.
        synchronized: u32,
        /// Number of turns.
        turns: u32,
        /// Run time of each kernel, microseconds.
        kernel_us: f64,
    }
    has {
        /// Time from the first launch until the GPU has finished all work, divided by the turns, microseconds, median.
        turn_us: Option<f64> => main Amount,
        /// Part of `turn_us` that the host spends in the loop, microseconds, median.
        host_us: Option<f64> => Amount,
        /// Number of samples.
        samples: u32,
        /// (Largest - smallest) / median, per cent.
        spread_percent: Option<f64> => Amount,
    }
}

impl Subject for LaunchLoop {
    fn flow(&self) -> Flow {
        Flow::inside(self.gpu)
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(Bytes(0))
    }

    fn what(&self) -> String {
        format!("{} launches, each with a wait for GPU {}", self.turns, self.synchronized)
    }
}

cell! {
    /// Data that a program gets if it reads the target buffer of a non-blocking copy to the host before waiting for the
    /// copy.
    Hazard: Hazard
    with {
        /// The GPU, by NVML's index.
        gpu: u32,
        /// Allocation of the host's buffer. A copy to pageable memory blocks the host until its bytes have arrived.
        memory: HostMemory,
        /// NUMA node of the host's buffer. Null if not known.
        numa_node: Option<u32>,
        /// Size of the copy.
        bytes: Bytes,
    }
    has {
        /// Share of the bytes that are stale when read right after the call, per cent, median.
        stale_percent: Option<f64> => main Share,
        /// The same share when read after waiting for the copy, the highest. This is the right way to read.
        stale_after_wait_percent: Option<f64> => Share,
        /// Time of the copy, from the call until the wait ends, microseconds, median.
        copy_us: Option<f64> => Amount,
        /// Number of samples.
        samples: u32,
    }
}

impl Subject for Hazard {
    fn flow(&self) -> Flow {
        Flow::from_host(self.numa_node, self.memory, self.gpu).reversed()
    }

    fn setup(&self) -> Setup {
        Setup::REFERENCE.with_bytes(self.bytes)
    }

    fn what(&self) -> String {
        format!("{} read at once", self.bytes)
    }
}
