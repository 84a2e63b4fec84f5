//! How long calls hold the host, what waiting for the same GPU or another one costs, and what becomes of data that
//! is read before it is there.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::flow::{Endpoint, Flow, HostMemory};
use super::host::HostDirection;
use super::one_gpu::{Ending, OneGpu};
use super::placement::HostMode;
use super::probe::Probe;
use super::units::Bytes;

/// What the host calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// The launch of a kernel.
    Launch,
    /// A copy.
    Copy,
    /// Waiting for all work of a stream.
    SynchronizeStream,
    /// Waiting for an event.
    SynchronizeEvent,
    /// Waiting for all work of a GPU.
    SynchronizeDevice,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Launch => "kernel launch",
            Self::Copy => "copy",
            Self::SynchronizeStream => "synchronise stream",
            Self::SynchronizeEvent => "synchronise event",
            Self::SynchronizeDevice => "synchronise device",
        })
    }
}

/// How long a call holds the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostCall {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// The call.
    pub call: Call,
    /// Of a copy between host and GPU, how the host's buffer was allocated. Null for copies within the GPU and for
    /// other calls.
    pub memory: Option<HostMemory>,
    /// The NUMA node that holds it. Null where that is not known or there is none.
    pub numa_node: Option<u32>,
    /// Of a copy between host and GPU, which way the bytes go.
    pub direction: Option<HostDirection>,
    /// Of a copy, its size.
    pub bytes: Option<Bytes>,
    /// Whether the call is to wait for the work that it starts or finds: a blocking copy is one with the wait for
    /// its end.
    pub host: HostMode,
    /// Whether there is work that the call starts, or that a wait finds unfinished.
    pub busy: bool,
    /// Time that the call holds the host, microseconds, median.
    pub host_blocked_us: Option<f64>,
    /// Time that this work takes on the GPU, microseconds, median; 0 where there is none.
    pub work_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median of the time that it holds the host, per cent.
    pub spread_percent: Option<f64>,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
}

impl HostCall {
    /// The call in words: `copy, pinned, to device`.
    pub fn words(&self) -> String {
        Self::in_words(self.call, self.memory, self.direction)
    }

    /// The words for such a call.
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

    /// Whether the call is to wait and has something to wait for.
    pub const fn waits(&self) -> bool {
        matches!(self.host, HostMode::Blocking) && self.busy
    }
}

impl OneGpu for HostCall {
    fn probe(&self) -> Probe {
        Probe::Calls
    }

    fn flow(&self) -> Flow {
        let gpu = Endpoint::Gpu(self.gpu);
        let host = self.memory.map_or(gpu, |memory| Endpoint::Host {
            node: self.numa_node,
            memory,
        });
        let up = Flow {
            from: host,
            to: gpu,
        };
        if self.direction == Some(HostDirection::ToHost) {
            up.reversed()
        } else {
            up
        }
    }

    fn bytes(&self) -> Bytes {
        self.bytes.unwrap_or(Bytes(0))
    }

    fn what(&self) -> String {
        let work = if self.busy {
            ""
        } else {
            ", nothing to wait for"
        };
        format!("{}, {}{work}", self.words(), self.host)
    }

    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("host_blocked_us", self.host_blocked_us),
            ("work_us", self.work_us),
            ("spread_percent", self.spread_percent),
        ]
    }

    fn forget(&mut self) {
        (self.host_blocked_us, self.work_us, self.spread_percent) = (None, None, None);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }
}

/// A loop of small launches on one GPU, with a wait for a GPU in each turn: the same one, which has just been given
/// work, or another one, which has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaunchLoop {
    /// The GPU that works, by NVML's index.
    pub gpu: u32,
    /// The GPU that is waited for in each turn, by NVML's index.
    pub synchronized: u32,
    /// Number of turns.
    pub turns: u32,
    /// How long each kernel works, microseconds.
    pub kernel_us: f64,
    /// Time from the first launch until the GPU has done everything, divided by the turns, microseconds, median.
    pub turn_us: Option<f64>,
    /// Of that, the time that the host is in the loop, microseconds, median.
    pub host_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// (Largest - smallest) / median, per cent.
    pub spread_percent: Option<f64>,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
}

impl OneGpu for LaunchLoop {
    fn probe(&self) -> Probe {
        Probe::LaunchLoop
    }

    fn flow(&self) -> Flow {
        Flow {
            from: Endpoint::Gpu(self.gpu),
            to: Endpoint::Gpu(self.gpu),
        }
    }

    fn bytes(&self) -> Bytes {
        Bytes(0)
    }

    fn what(&self) -> String {
        format!(
            "{} launches, each with a wait for GPU {}",
            self.turns, self.synchronized
        )
    }

    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("turn_us", self.turn_us),
            ("host_us", self.host_us),
            ("spread_percent", self.spread_percent),
        ]
    }

    fn forget(&mut self) {
        (self.turn_us, self.host_us, self.spread_percent) = (None, None, None);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }
}

/// What a program sees that reads the bytes of a non-blocking copy to the host before it waits for its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hazard {
    /// The GPU, by NVML's index.
    pub gpu: u32,
    /// How the host's buffer was allocated. A copy to pageable memory holds the host until its bytes are there.
    pub memory: HostMemory,
    /// The NUMA node that holds it. Null where that is not known.
    pub numa_node: Option<u32>,
    /// Size of the copy.
    pub bytes: Bytes,
    /// Share of the bytes that are old when they are read at once after the call, per cent, median.
    pub stale_percent: Option<f64>,
    /// The same when they are read after the copy was waited for, the highest: the right way.
    pub stale_after_wait_percent: Option<f64>,
    /// Time of the copy, from the call until the wait ends, microseconds, median.
    pub copy_us: Option<f64>,
    /// Number of samples.
    pub samples: u32,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
}

impl OneGpu for Hazard {
    fn probe(&self) -> Probe {
        Probe::Hazard
    }

    fn flow(&self) -> Flow {
        Flow {
            from: Endpoint::Gpu(self.gpu),
            to: Endpoint::Host {
                node: self.numa_node,
                memory: self.memory,
            },
        }
    }

    fn bytes(&self) -> Bytes {
        self.bytes
    }

    fn what(&self) -> String {
        format!("{} read at once", self.bytes)
    }

    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("stale_percent", self.stale_percent),
            ("stale_after_wait_percent", self.stale_after_wait_percent),
            ("copy_us", self.copy_us),
        ]
    }

    fn forget(&mut self) {
        (
            self.stale_percent,
            self.stale_after_wait_percent,
            self.copy_us,
        ) = (None, None, None);
    }

    fn ending(&self) -> &Ending {
        &self.ending
    }

    fn ending_mut(&mut self) -> &mut Ending {
        &mut self.ending
    }
}
