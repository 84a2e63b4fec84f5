//! The probes: what is planned, how it runs on a driver, and what its outcomes become. A folder for each, and beside them what
//! they share. This file has the lists. The parent calls [`plan::rounds`] and [`assemble`], a worker calls [`Bench::run`].

mod addresses;
mod assemble;
mod asynchrony;
mod bench;
mod contention;
mod figures;
mod host;
pub mod latency;
mod links;
mod live;
pub mod load;
mod local;
mod overlap;
mod peers;
mod pipeline;
pub mod plan;
mod probe;
pub mod share;
pub mod soak;
mod statistics;
pub mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::assemble::assemble;
pub use self::bench::Bench;
pub use self::bench::check::Check;
pub use self::bench::open_gpus::Selection;
pub use self::bench::row::{Row, Span};
pub use self::bench::running::RunEvent;
use self::probe::{Needs, Probe};
use hardware::{ErrorKind, HardwareError};
use model::choices;
use model::flow::{Endpoint, Flow, Place, Setup};
use model::measurement::{CudaDevice, DriverFacts, Status};
use model::placement::{Direction, Pair, Path};
use model::topology::Topology;

/// Base time that a round may take.
pub(crate) const DEADLINE_BASE: Duration = Duration::from_secs(5);
/// Lowest rate assumed for the time that a round may take beyond [`DEADLINE_BASE`]: a Gen1 x1 link carries 0.25 GB/s.
const DEADLINE_FLOOR_GBPS: f64 = 0.2;
/// The same as a share of a known route's theoretical rate: chosen. It is above the rate of Gen1 x1 on NVLink and Gen6 links only,
/// which do not train down to that; copies that miss NVLink go through the host at more.
const DEADLINE_FLOOR_SHARE: f64 = 0.003;

/// Declares the actions of rounds, each of a probe.
macro_rules! actions {
    ($($name:ident of $probe:ty),* $(,)?) => {
        /// The action of a round.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "action")]
        pub enum Action {
            $($name($probe),)*
        }

        $(impl From<$probe> for Action {
            fn from(probe: $probe) -> Self {
                Self::$name(probe)
            }
        })*

        impl Action {
            fn probe(&self) -> &dyn Probe {
                match self {
                    $(Self::$name(probe) => probe,)*
                }
            }
        }
    };
}

actions! {
    Verify of peers::Verify,
    Bandwidth of peers::Bandwidth,
    Overlap of overlap::Overlap,
    Contention of contention::Contention,
    Latency of latency::Latency,
    Local of local::Local,
    Clocks of bench::timeline::Clocks,
    Pipeline of pipeline::Pipeline,
    Engines of pipeline::Engines,
    Calls of asynchrony::Calls,
    LaunchLoop of asynchrony::LaunchLoop,
    Hazard of asynchrony::Hazard,
    Host of host::Host,
    Pinning of host::Pinning,
    Load of load::Load,
    Live of live::Live,
    Chase of live::Chase,
    Links of links::Links,
    Addresses of addresses::Addresses,
    Share of share::Share,
    Soak of soak::Soak,
}

/// The outcome of a round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The bytes were checked.
    Verified {
        /// One check for each flow of the round.
        flows: Vec<Check>,
    },
    /// Copies were timed.
    Rows {
        /// One entry for each flow of the round.
        rows: Vec<Row>,
    },
    /// A copy and a kernel were timed against each other.
    Overlap {
        samples: Vec<overlap::run::OverlapSample>,
    },
    /// A copy and a kernel were timed, each alone and both together.
    Contention {
        times: Box<contention::run::ContentionTimes>,
    },
    /// The round was for a timeline alone, and has no figure.
    Noted,
    /// Batches were copied in, processed and copied out.
    Pipeline {
        times: Box<pipeline::run::PipelineTimes>,
    },
    /// Copies and kernels of a GPU were released two by two.
    Engines {
        /// Copy engines that the driver reports, if it does.
        reported: u32,
        samples: Vec<pipeline::engines::EnginesSample>,
    },
    /// Calls were timed.
    Calls {
        /// One entry for each call.
        calls: Vec<asynchrony::calls::CallTimes>,
    },
    /// A loop of launches was timed.
    LaunchLoop {
        loops: Vec<asynchrony::run::LoopTimes>,
    },
    /// Data of copies was read before their end.
    Hazard {
        samples: Vec<asynchrony::run::HazardSample>,
    },
    /// Several flows were timed at once.
    Load {
        load: Box<load::run::LoadTimes>,
    },
    /// Flows were copied for a time.
    Soak {
        soak: Box<soak::run::SoakTimes>,
    },
    /// Kernels talked to each other.
    Live {
        talk: Box<live::run::Talked>,
    },
    /// Loads were timed.
    Chase {
        /// One entry for each flow of the round.
        loads: Vec<live::chase::Loads>,
    },
    /// Single links were measured.
    Links {
        ways: Vec<links::run::Way>,
    },
    /// Addresses all over a GPU's memory were tried.
    Addresses {
        /// Size of the memory.
        span_bytes: u64,
        /// Size of free memory that the driver did not give.
        refused_bytes: u64,
        passes: Vec<addresses::run::Pass>,
    },
    /// Another process could use what one had.
    Handed {
        handed: Box<share::Handed>,
    },
    /// Another process could not.
    Refused {
        refusal: Box<share::Refusal>,
    },
    /// Page-locking was timed.
    Pinned {
        pinned: Box<host::pinning::Pinned>,
    },
    Failed {
        error: HardwareError,
    },
    /// The round was not run, or did not end; the parent reports this.
    Lost {
        /// Hung, failed or skipped.
        status: Status,
        reason: String,
    },
}

impl Outcome {
    /// Adds the samples of the same round at a later time. An outcome without samples is replaced.
    pub fn add(&mut self, later: Self) {
        self.join(later, links::run::add);
    }

    /// Takes the outcome of the same round at a later time: of each single link the worse one, of other rounds the later.
    pub fn follow_up(&mut self, later: Self) {
        self.join(later, links::run::keep_worse);
    }

    fn join(&mut self, later: Self, links: fn(&mut Vec<links::run::Way>, Vec<links::run::Way>)) {
        match (&mut *self, later) {
            (Self::Links { ways }, Self::Links { ways: later }) => links(ways, later),
            // A later result hides no wrong address, and traffic of others hides no earlier result.
            (Self::Addresses { passes, .. }, _) if passes.iter().any(|pass| pass.wrong > 0) => {}
            (Self::Links { .. } | Self::Addresses { .. }, Self::Failed { error })
                if error.kind == ErrorKind::Hindered => {}
            (known, later) => *known = later,
        }
    }

    /// Keeps the median of the samples of single links.
    pub fn sum_up(&mut self) {
        if let Self::Links { ways } = self {
            links::run::summed_up(ways);
        }
    }
}

choices! {
    /// A probe group, as named in `--only` and `--skip`.
    Group {
        // Includes the copies within each GPU, which show the highest rate that its copies could reach.
        /// Bandwidth between GPUs, with verification.
        Peers = "peers",
        /// Bandwidth between host and GPU, with verification, and the cost of page-locking.
        Host = "host",
        /// Overlap of copies with kernels, and what they cost each other.
        Overlap = "overlap",
        /// Small-copy latency.
        Latency = "latency",
        /// Pipelines of copies and kernels, and copies that run at the same time.
        Pipeline = "pipeline",
        /// Time that calls block the host, launch loops, and data that is read too early.
        Async = "async",
        /// Several flows at once, with link counters read around known traffic.
        Load = "load",
        /// Kernels that signal each other while they run, and memory latency (pointer chase).
        Live = "live",
        /// Each NVLink by itself: rate, latency, bytes.
        Links = "links",
        /// Bytes at addresses all over each GPU's free memory.
        Addresses = "addresses",
        /// Memory shared between two processes (CUDA IPC, /dev/shm).
        Share = "share",
    }
}

impl Group {
    /// Returns true if a timeline shows this probe group.
    pub const fn has_timeline(self) -> bool {
        match self {
            Self::Overlap | Self::Pipeline | Self::Async => true,
            Self::Peers
            | Self::Host
            | Self::Latency
            | Self::Load
            | Self::Live
            | Self::Links
            | Self::Addresses
            | Self::Share => false,
        }
    }
}

/// The task of a round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Setup of the copy.
    #[serde(flatten)]
    pub setup: Setup,
    /// Action to take on the copy.
    #[serde(flatten)]
    pub action: Action,
}

impl Task {
    /// A round of this probe in this setup.
    pub fn new(setup: Setup, action: impl Into<Action>) -> Self {
        Self { setup, action: action.into() }
    }

    fn needs(&self, flows: &[Flow]) -> Needs {
        self.action.probe().needs(self.setup, flows)
    }

    /// Returns the time that it may take with these flows.
    #[allow(clippy::cast_precision_loss, reason = "a deadline need not be exact")]
    fn deadline(&self, flows: &[Flow], topology: &Topology) -> Duration {
        let Needs { copies, two_processes, longest, .. } = self.needs(flows);
        let bytes = self.setup.bytes.0.saturating_mul(copies.into());
        let rate = |flow: &Flow| match (self.setup.path, flow.pair()) {
            (Path::Direct, Some(pair)) => topology.route(pair)?.theoretical_gbps,
            _ => None,
        };
        let rates = flows.iter().map(|flow| rate(flow).map_or(0.0, |rate| rate.0));
        let slowest = rates.reduce(f64::min).unwrap_or_default();
        let floor = DEADLINE_FLOOR_GBPS.max(DEADLINE_FLOOR_SHARE * slowest);
        let seconds = bytes as f64 / (floor * 1e9);
        two_processes.or(longest).unwrap_or(DEADLINE_BASE + Duration::from_secs_f64(seconds))
    }

    /// Returns true if the opposite direction is busy too. Both directions then succeed or fail together.
    pub fn is_both_ways(&self) -> bool {
        self.setup.direction == Direction::BothWays
    }
}

impl fmt::Display for Task {
    /// Describes the task for progress messages and reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.action.probe().words(self.setup))
    }
}

/// A piece of work that the worker does between two answers. If it hangs or crashes, only this round and others that
/// concern its flows are lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number within the plan.
    pub id: u32,
    /// Number of the slot. Rounds of the same slot follow each other and have the same task. They share neither a GPU
    /// nor a link, so they can be run at once. Rounds that fail at once are run again one by one.
    pub slot: u32,
    /// Flows that are copied at the same time.
    pub flows: Vec<Flow>,
    /// Task of the round.
    pub task: Task,
    /// Time that the round may take.
    pub deadline: Duration,
    /// True if the round is recorded for a timeline, see [`plan::follow`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timeline: bool,
    /// Name among several load patterns of a kind. Empty for other rounds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl Round {
    /// Returns true if a flow begins or ends in this part of the machine.
    pub fn uses(&self, place: Place) -> bool {
        places(&self.flows).contains(&place)
    }

    /// Returns true if all of these flows are among its own.
    pub fn includes(&self, flows: &[Flow]) -> bool {
        flows.iter().all(|flow| self.flows.contains(flow))
    }

    fn needs(&self) -> Needs {
        self.task.needs(&self.flows)
    }

    /// Returns the pairs of GPUs that it copies between.
    fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.flows.iter().filter_map(|flow| flow.pair())
    }

    /// Returns true if it takes two processes.
    pub fn is_shared(&self) -> bool {
        self.needs().two_processes.is_some()
    }

    /// Returns true if counters are read before and after it, while nothing else is copied.
    pub const fn is_counted(&self) -> bool {
        matches!(self.task.action, Action::Load(load::Load { counted: true, .. }))
    }

    /// Returns true if it tries addresses all over a GPU's memory.
    pub const fn is_of_addresses(&self) -> bool {
        matches!(self.task.action, Action::Addresses(_))
    }

    /// Describes the flows for people: `GPU 0 → GPU 1`. If there are many, only the first ones.
    pub fn way(&self) -> String {
        if let (Action::Load(_) | Action::Soak(_), [first, second, _, ..]) =
            (self.task.action, self.flows.as_slice())
        {
            return format!("{first}, {second} and {} more", self.flows.len() - 2);
        }
        let flows: Vec<_> = self.flows.iter().map(ToString::to_string).collect();
        flows.join(" and ")
    }
}

/// Returns the parts of the machine in which these flows begin or end.
pub fn places(flows: &[Flow]) -> BTreeSet<Place> {
    flows.iter().flat_map(|flow| flow.ends()).map(Endpoint::place).collect()
}

/// The input of a plan.
#[derive(Debug)]
pub struct Request<'a> {
    /// GPUs to test, by NVML index.
    pub gpus: &'a [u32],
    /// The driver's report on these GPUs.
    pub driver: &'a DriverFacts,
    /// Graph and routes.
    pub topology: &'a Topology,
    /// Profile that decides how much is measured.
    pub profile: &'a plan::Profile,
    /// Requested probe groups.
    pub groups: &'a BTreeSet<Group>,
    /// Longest time that a round may take. `None` to derive it from the round's size.
    pub deadline: Option<Duration>,
    /// True to copy one pair at a time, even if pairs share nothing.
    pub serial: bool,
}

impl Request<'_> {
    /// Returns the bytes that one buffer may have on both GPUs of a pair, or `None` if one of them cannot be tested.
    fn buffer_of(&self, pair: Pair) -> Option<u64> {
        let of = |index| {
            let device = self.driver.devices.iter().find(|device| device.index == index)?;
            if device.failure.is_some() { None } else { device.budget_bytes }
        };
        Some(of(pair.source)?.0.min(of(pair.destination)?.0) / 2)
    }

    /// Returns true if a pair is of the ring in which every GPU sends and receives once.
    pub(crate) fn is_of_ring(&self, pair: Pair) -> bool {
        let place = self.gpus.iter().position(|gpu| *gpu == pair.source);
        place.is_some_and(|place| self.gpus[(place + 1) % self.gpus.len()] == pair.destination)
    }

    /// Returns true if every kind of stream is measured on this direct pair: on those of the ring, or on the first direct
    /// pair if none is. The driver decides the order of streams, whatever the link is.
    pub(crate) fn has_every_stream(&self, pair: Pair) -> bool {
        let mut direct = Pair::ordered(self.gpus);
        direct.retain(|pair| self.driver.is_direct(*pair));
        match direct.iter().any(|pair| self.is_of_ring(*pair)) {
            true => self.is_of_ring(pair),
            false => direct.first() == Some(&pair),
        }
    }

    /// Returns the requested GPUs that can be used.
    pub(crate) fn usable(&self) -> impl Iterator<Item = &CudaDevice> {
        let devices = self.driver.devices.iter();
        devices.filter(|device| device.failure.is_none() && self.gpus.contains(&device.index))
    }
}

#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod one_gpu_tests;
#[cfg(test)]
mod tests;
