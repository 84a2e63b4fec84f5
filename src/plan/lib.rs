//! The plan: which copies, in which rounds, with how many bytes. It is pure: it turns the known facts of the machine
//! into a list of rounds that a worker can run one by one.

mod asynchrony;
mod batches;
mod follow;
mod host;
mod latency;
mod left_out;
mod live;
mod load;
mod local;
mod many;
mod one_gpu;
mod overlap;
mod patterns;
mod peers;
mod pipeline;
pub mod profile;
mod second_looks;
mod share;
mod soak;
mod task;
mod wanted;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::follow::follow;
pub use self::latency::LATENCY_COPIES;
pub use self::left_out::{gpus_left_out, load_left_out};
pub use self::load::{AREA_STEP, TRIAL_COPIES};
pub use self::many::{left_out, thinned_out};
pub use self::peers::{FIXED_COST_BYTES, FIXED_COST_COPIES};
pub use self::profile::Profile;
pub use self::second_looks::second_looks;
pub use self::soak::soak;
pub use self::task::{Action, LOCAL_COPIES, Properties, Task, Trial};
use self::wanted::{Slot, Wanted, numbered};
use model::flow::{Endpoint, Flow, Place};
use model::measurement::{CudaDevice, DriverFacts};
use model::placement::{HostMode, Pair, Path, Placement, Side, StreamKind};
use model::topology::Topology;

/// Base time that a round may take.
const DEADLINE_BASE: Duration = Duration::from_secs(5);
/// Lowest rate assumed for the time that a round may take beyond [`DEADLINE_BASE`]: a Gen1 x1 link carries 0.25 GB/s.
const DEADLINE_FLOOR_GBPS: f64 = 0.2;

/// A probe group, as named in `--only` and `--skip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Bandwidth between GPUs, with verification. Includes the copies within each GPU, which show the highest rate that its
    /// copies could reach.
    Peers,
    /// Bandwidth between host and GPU, with verification, and the cost of page-locking.
    Host,
    /// Overlap of copies with kernels.
    Overlap,
    /// Small-copy latency.
    Latency,
    /// Pipelines of copies and kernels, and copies that run at the same time.
    Pipeline,
    /// Time that calls block the host, launch loops, and data that is read too early.
    Async,
    /// Several flows at once, with link counters read around known traffic.
    Load,
    /// Kernels that signal each other while they run, and memory latency (pointer chase).
    Live,
    /// Memory shared between two processes (CUDA IPC, /dev/shm).
    Share,
}

impl Group {
    /// Returns every group, in the order of `--help`.
    pub const fn all() -> &'static [Self] {
        use Group::*;
        &[Peers, Host, Overlap, Latency, Pipeline, Async, Load, Live, Share]
    }

    /// Returns the name as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Host => "host",
            Self::Overlap => "overlap",
            Self::Latency => "latency",
            Self::Pipeline => "pipeline",
            Self::Async => "async",
            Self::Load => "load",
            Self::Live => "live",
            Self::Share => "share",
        }
    }

    /// Returns true if a timeline shows this probe group.
    pub const fn has_timeline(self) -> bool {
        match self {
            Self::Overlap | Self::Pipeline | Self::Async => true,
            Self::Peers | Self::Host | Self::Latency | Self::Load | Self::Live | Self::Share => {
                false
            }
        }
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
    /// True if the round is recorded for a timeline, see [`follow`].
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

    /// Returns the properties of its task.
    pub fn properties(&self) -> Properties {
        self.task.properties(&self.flows)
    }

    /// Returns true if it takes two processes.
    pub fn is_shared(&self) -> bool {
        self.properties().two_processes
    }

    /// Returns true if counters are read before and after it, while nothing else is copied.
    pub const fn is_counted(&self) -> bool {
        matches!(self.task.action, Action::Load { counted: true, .. })
    }

    /// Describes the flows for people: `GPU 0 → GPU 1`. If there are many, only the first ones.
    pub fn way(&self) -> String {
        if let (Action::Load { .. } | Action::Soak { .. }, [first, second, _, ..]) =
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
    pub profile: &'a Profile,
    /// Requested probe groups.
    pub groups: &'a BTreeSet<Group>,
    /// Longest time that a round may take. `None` to derive it from the round's size.
    pub deadline: Option<Duration>,
    /// True to copy one pair at a time, even if pairs share nothing.
    pub serial: bool,
}

impl Request<'_> {
    /// Returns the requested GPUs that can be used.
    fn usable(&self) -> impl Iterator<Item = &CudaDevice> {
        let devices = self.driver.devices.iter();
        devices.filter(|device| device.failure.is_none() && self.gpus.contains(&device.index))
    }
}

/// Plans the rounds of a request. Staged copies come first, so that peer access is switched twice per pair and not at
/// every round. Direct copies follow, in batches of pairs that share nothing, and then the measurements of one pair at
/// a time. Copies both ways come after these, once for the two directions. A direction that hangs is then found alone,
/// and is not blamed on the pair that it is joined with. Then kernels talk, which the copies have shown to reach each
/// other. Copies between host and GPU follow, which concern no pair. Last come several flows at once, each of which was
/// alone before.
///
/// With more than [`MOST_GPUS_IN_FULL`] GPUs this is done for some pairs only. All others are verified and measured
/// in the reference placement, on the path that they have.
pub fn rounds(request: &Request<'_>) -> Vec<Round> {
    let wanted = Wanted::of(request);
    let mut planned: Vec<Slot> = Vec::new();
    for &pair in &wanted.pairs {
        let tasks = wanted.staged(pair).into_iter();
        planned.extend(tasks.map(|task| Slot::one(task, vec![pair.into()])));
    }
    for batch in wanted.batches() {
        planned.extend(wanted.direct(&batch));
    }
    let (mut both_ways, mut seen) = (Vec::new(), BTreeSet::new());
    for &pair in &wanted.pairs {
        for task in wanted.one_at_a_time(pair) {
            let mut flows = vec![Flow::from(pair)];
            // Without access in the other direction, the round has an obstacle, and its single flow gets the reason.
            if task.is_both_ways() && is_direct(request.driver, pair.reversed()) {
                flows.push(flows[0].reversed());
            }
            let key = (
                flows.iter().copied().collect::<BTreeSet<_>>(),
                task.setup.of_any_size(),
                task.action == Action::Verify,
            );
            match task.is_both_ways() {
                false => planned.push(Slot::one(task, flows)),
                true if seen.insert(key) => both_ways.push(Slot::one(task, flows)),
                true => {}
            }
        }
    }
    planned.extend(local::rounds(request));
    planned.extend(both_ways);
    planned.extend(live::rounds(request, &wanted));
    planned.extend(host::rounds(request));
    planned.extend(pipeline::rounds(request));
    planned.extend(asynchrony::rounds(request));
    planned.extend(share::rounds(request));
    let mut rounds = numbered(planned, request);
    let next = |of: fn(&Round) -> u32| rounds.last().map_or(0, |last| of(last).saturating_add(1));
    let next = (next(|round| round.id), next(|round| round.slot));
    rounds.extend(load::rounds(request, next));
    rounds
}

/// Returns the reason why a round cannot be run with this driver, if there is one.
pub fn obstacle(round: &Round, driver: &DriverFacts) -> Option<String> {
    let setup = round.task.setup;
    let needs_kernels = round.properties().needs_kernels;
    let gpus = round.flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu);
    let without_kernels =
        gpus.filter(|_| needs_kernels).find_map(|gpu| Some((gpu, driver.kernels_failure_of(gpu)?)));
    if let Some((gpu, why)) = without_kernels {
        let onto = if driver.kernels_failure.is_some() {
            String::new()
        } else {
            format!(" onto GPU {gpu}")
        };
        return Some(format!("the GPU kernels could not be loaded{onto}: {why}"));
    }
    // Access is granted per direction. Without it, a copy engine would go through the host, and a kernel would break
    // its context.
    let needs_reverse = setup.path == Path::Direct
        && (setup.issuer == Side::Destination || round.task.is_both_ways());
    let mut reversed =
        round.flows.iter().filter(|_| needs_reverse).filter_map(|flow| flow.reversed().pair());
    let Pair { source, destination } = reversed.find(|pair| !is_direct(driver, *pair))?;
    Some(format!("GPU {source} may not reach the memory of GPU {destination}, which this needs"))
}

/// Returns true if CUDA allows this copy's source to access the memory of its destination.
pub fn is_direct(driver: &DriverFacts, pair: Pair) -> bool {
    driver.said_of(pair).is_some_and(|said| said.possible == Some(true) && said.failure.is_none())
}

/// Returns the bytes that one buffer may have on both GPUs of a pair, or `None` if one of them cannot be tested.
fn budget(driver: &DriverFacts, pair: Pair) -> Option<u64> {
    let of = |index| {
        let device = driver.devices.iter().find(|device| device.index == index)?;
        if device.failure.is_some() { None } else { device.budget_bytes }
    };
    Some(of(pair.source)?.0.min(of(pair.destination)?.0) / 2)
}

#[allow(clippy::cast_precision_loss, reason = "a deadline need not be exact")]
fn deadline(task: &Task, flows: &[Flow]) -> Duration {
    let properties = task.properties(flows);
    if properties.two_processes {
        return share::RUNG_LIMIT;
    }
    let seconds = properties.link_bytes as f64 / (DEADLINE_FLOOR_GBPS * 1e9);
    DEADLINE_BASE + Duration::from_secs_f64(seconds)
}

/// Returns true if the call blocks the host in this placement.
pub const fn is_blocking(placement: Placement) -> bool {
    matches!(placement.host, HostMode::Blocking)
}

/// Returns the stream that a side's work goes to in a placement.
pub const fn stream_of(placement: Placement, side: Side) -> StreamKind {
    match side {
        Side::Source => placement.source,
        Side::Destination => placement.destination,
    }
}

#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod one_gpu_tests;
#[cfg(test)]
mod tests;
