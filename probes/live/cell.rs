//! Kernels that talk to each other while both run, and the latency of loads.

use serde::{Deserialize, Serialize};

use super::axis::axes;
use super::cell::{Subject, cell};
use super::flow::{Endpoint, Flow, HostMemory, Setup};
use super::placement::{Direction, Engine, Pair};
use super::status::Verified;
use super::units::GbPerSecond;

words! {
    /// A part of a talk of two, in the order in which they run.
    Phase {
        /// Each side sees that the other one runs.
        Arrival = "arrival",
        /// A flag there and back, each stored into the memory of the other GPU.
        Push = "pushed flags",
        /// A flag there and back, each stored into own memory and loaded by the other GPU.
        Pull = "pulled flags",
        /// Lines of 16 bytes: 8 of data, 8 of flags.
        #[serde(rename = "ll")]
        Ll = "LL",
        /// Lines of 128 bytes: 120 of data, a flag of 8.
        #[serde(rename = "ll128")]
        Ll128 = "LL128",
        /// 8 KiB of data, a fence, a flag.
        Simple = "data, fence, flag",
        /// Additions and compare-and-swap by both sides on the same words.
        Atomics = "atomics",
        /// LL128 at the geometry of NCCL's channels.
        #[serde(rename = "ll128-channels")]
        Ll128Channels = "LL128 of channels",
        /// As NCCL's Simple: one thread fences for its block and stores the flag. Into the memory of the other GPU.
        SimplePush = "Simple, pushed",
        /// The same, from the memory of the other GPU.
        SimplePull = "Simple, pulled",
    }
}

impl Phase {
    /// Those of channels, which last for a time and have a rate.
    pub const OF_CHANNELS: [Self; 3] = [Self::Ll128Channels, Self::SimplePush, Self::SimplePull];

    /// Returns true if each side stores before it waits. In the others, one side answers the other.
    pub const fn is_at_once(self) -> bool {
        !matches!(self, Self::Push | Self::Pull)
    }
}

/// The fate of a store that a running kernel did not see in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Miss {
    /// It was there when both kernels had ended.
    Late,
    /// It was not there then either.
    Never,
}

/// A store that a running kernel did not see in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Missed {
    pub phase: Phase,
    /// Round of the phase, from 1 on.
    pub round: u32,
    pub miss: Miss,
}

/// The setup of kernels that store to each other.
const BY_KERNELS: Setup =
    Setup { engine: Engine::Kernel, direction: Direction::BothWays, ..Setup::REFERENCE };

cell! {
    /// Stores and atomics of a running kernel on one GPU, as a running kernel on another one sees them.
    LiveTalk: Live
    with {
        /// Source of the stores, and the GPU that waits for them. The same GPU twice: two kernels of a single GPU.
        #[serde(flatten)]
        pair: Pair,
        /// Rounds of each phase.
        rounds: u32,
    }
    has {
        /// Time of a flag pushed there and back, microseconds.
        push_us: Option<f64> => main Duration,
        /// Time of a flag pulled there and back, microseconds.
        pull_us: Option<f64> => Duration,
        /// Time of an exchange of 512 bytes in lines of 16 bytes, both ways at once, microseconds.
        ll_us: Option<f64> => Duration,
        /// Time of an exchange of 512 bytes in lines of 128 bytes, both ways at once, microseconds.
        ll128_us: Option<f64> => Duration,
        /// Time of an exchange of 8 KiB, a fence and a flag, both ways at once, microseconds.
        simple_us: Option<f64> => Duration,
        /// Time of 4096 additions and 128 swaps by each side, microseconds. Null without native atomics.
        atomics_us: Option<f64> => Duration,
        /// Rate of data in lines of 128 bytes by channels, both ways at once, in one direction, GB/s.
        #[serde(default)]
        ll128_channels_gbps: Option<GbPerSecond> => Rate,
        /// Rate of data that channels push into the other GPU's memory as NCCL's Simple does: one fence for a block.
        #[serde(default)]
        simple_push_gbps: Option<GbPerSecond> => Rate,
        /// Rate of data that channels pull from the other GPU's memory as NCCL's Simple does.
        #[serde(default)]
        simple_pull_gbps: Option<GbPerSecond> => Rate,
        /// Time until the other side was seen, microseconds.
        arrival_us: Option<f64> => Amount,
        /// Lines of 16 bytes whose flags arrived before their data.
        torn_ll: Option<u32> => Amount,
        /// Lines of 128 bytes that lacked data when they were loaded again behind their flag.
        torn_ll128: Option<u32> => Amount,
        /// Lines of 128 bytes of channels that lacked data when they were loaded again behind their flag.
        #[serde(default)]
        torn_ll128_channels: Option<u32> => Amount,
        /// Lines of 128 bytes, those of channels too, that lacked data when they were first loaded behind their flag. No fault: the loads of eight
        /// threads are no one access.
        #[serde(default)]
        early_ll128: Option<u32> => Amount,
        /// Lines of data that each thread fenced, and that were not there when their flag was.
        out_of_order: Option<u32> => Amount,
        /// Lines of pushed data that one thread fenced for its block, and that were not there when its flag was.
        #[serde(default)]
        push_out_of_order: Option<u32> => Amount,
        /// Lines of pulled data that one thread fenced for its block, and that were not there when its flag was.
        #[serde(default)]
        pull_out_of_order: Option<u32> => Amount,
        /// Additions and swaps that are lacking on the words of the destination. Null without native atomics.
        atomics_lost: Option<u32> => Amount,
        /// Native atomics between the two GPUs, as the driver promises them.
        #[serde(default)]
        native_atomics: Option<bool> => also,
        /// What was not seen in time. Null if everything was.
        #[serde(default)]
        missed: Option<Missed> => also,
        /// Result: `dropped` for stores that were not seen in time, `corrupt` for wrong data, order or sums. Torn lines of 128
        /// bytes count as `ok`: not every path promises them.
        verified: Verified => checked,
    }
}

impl LiveTalk {
    /// Returns the lines of data that came behind their flags, each with its form.
    pub const fn out_of_order(&self) -> [(&'static str, Option<u32>); 4] {
        [
            ("LL", self.torn_ll),
            ("Simple, fenced by all", self.out_of_order),
            ("Simple, pushed", self.push_out_of_order),
            ("Simple, pulled", self.pull_out_of_order),
        ]
    }
}

impl Subject for LiveTalk {
    fn flow(&self) -> Flow {
        self.pair.into()
    }

    fn setup(&self) -> Setup {
        BY_KERNELS
    }

    fn what(&self) -> String {
        format!("{} rounds", self.rounds)
    }

    fn what_of_any_size(&self) -> String {
        "kernels".to_owned()
    }
}

/// The memory that loads read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Chased {
    /// Of another GPU.
    Peer,
    /// Of the same GPU.
    Own,
    /// Of the host, page-locked.
    Host,
}

axes!(Chased);

cell! {
    /// Latency of loads by one thread of a GPU, each of which has the address of the next.
    PointerChase: Chase
    with {
        /// The GPU that loads, by NVML's index.
        gpu: u32,
        /// The memory that it reads.
        memory: Chased,
        /// The GPU whose memory it reads; null for memory of the host.
        of_gpu: Option<u32>,
        /// NUMA node of the host's memory. Null if not known, or for memory of a GPU.
        numa_node: Option<u32>,
    }
    has {
        /// Median time of a load, microseconds.
        load_us: Option<f64> => main Duration,
        /// Loads that were timed.
        samples: u32,
    }
}

impl PointerChase {
    /// Returns a measurement without figures, of a flow from the memory to the GPU that loads.
    pub fn of(flow: Flow) -> Option<Self> {
        let gpu = flow.to.gpu()?;
        let of_gpu = flow.from.gpu();
        let memory = match of_gpu {
            Some(of) if of == gpu => Chased::Own,
            Some(_) => Chased::Peer,
            None => Chased::Host,
        };
        Some(Self::blank(gpu, memory, of_gpu, flow.from.node().flatten()))
    }
}

impl Subject for PointerChase {
    fn flow(&self) -> Flow {
        match self.of_gpu {
            Some(of) => Flow { from: Endpoint::Gpu(of), to: Endpoint::Gpu(self.gpu) },
            None => Flow::from_host(self.numa_node, HostMemory::Pinned, self.gpu),
        }
    }

    fn setup(&self) -> Setup {
        Setup { engine: Engine::Kernel, ..Setup::REFERENCE }
    }

    fn what(&self) -> String {
        "loads".to_owned()
    }
}
