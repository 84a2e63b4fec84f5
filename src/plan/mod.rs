//! Which copies, in which rounds, with how many bytes. Pure: from what is known of the machine to
//! a list of rounds that a worker can run one by one.

pub mod profile;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::profile::{Extent, Profile, Staged};
use crate::model::flow::{Endpoint, Flow, Place, Setup};
use crate::model::measurement::DriverFacts;
use crate::model::placement::{Direction, Engine, HostMode, Pair, Path, Placement, Side, StreamKind};
use crate::model::topology::Topology;
use crate::model::units::{Bytes, GbPerSecond, MIB};

/// Time that one copy of a direct measurement should take, milliseconds. Each copy of a row costs
/// some 5 µs beside its bytes on H200, which are measured and taken out; from 256 MiB on (0.65 ms)
/// what is left does not depend on the size any more (docs/measurement.md).
const DIRECT_COPY_MS: f64 = 0.7;
/// The same for staged copies, whose fixed costs are larger and which are not gated.
const STAGED_COPY_MS: f64 = 4.0;
/// Size of the copies whose time tells the fixed cost of a row's copies.
pub const FIXED_COST_BYTES: u64 = MIB;
/// How many of them follow a row; the first is not counted, and the fastest of the others counts.
pub const FIXED_COST_COPIES: usize = 8;
/// Copies of a direct route whose rate is not known, MiB.
const UNKNOWN_ROUTE_MIB: u64 = 256;
/// No measured copy is smaller than this, MiB.
const SMALLEST_COPY_MIB: u64 = 16;
/// Bytes verified on the staged path: enough for every staging buffer to be used many times.
const STAGED_VERIFY: u64 = 64 * MIB;
/// Bytes of a copy whose latency is measured, as p2pBandwidthLatencyTest has it.
pub const LATENCY_BYTES: u64 = 16;
/// Copies in one row of a latency sample.
pub const LATENCY_COPIES: u32 = 100;

/// With more GPUs than this, most pairs are measured in the reference placement alone: the number of
/// pairs grows with the square of the GPUs, 72 have 5112, and with everything measured on each of
/// them a run would take hours. Sixteen is the largest number on one board or machine without
/// switches between machines; chosen.
pub const MOST_GPUS_IN_FULL: usize = 16;

/// A round may take this long, and
const DEADLINE_BASE: Duration = Duration::from_secs(5);
/// as long on top as its bytes take at this rate: a Gen1 x1 link carries 0.25 GB/s.
const DEADLINE_FLOOR_GBPS: f64 = 0.2;

/// A probe group, as `--only` and `--skip` name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Group {
    /// Bandwidth between GPUs, with verification.
    Peers,
    /// Overlap of copies with kernels.
    Overlap,
    /// Small-copy latency.
    Latency,
}

impl Group {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Peers, Self::Overlap, Self::Latency];
}

/// One thing that the worker does between two answers. If it hangs or crashes, only this and what
/// else concerns its flows is lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Number within the plan.
    pub id: u32,
    /// What is copied at the same time, from where to where.
    pub flows: Vec<Flow>,
    /// What to do.
    pub task: Task,
    /// How long it may take.
    pub deadline: Duration,
}

impl Round {
    /// Whether a flow begins or ends in this part of the machine.
    pub fn uses(&self, place: Place) -> bool {
        places(&self.flows).contains(&place)
    }

    /// Whether all of these flows are among its own.
    pub fn includes(&self, flows: &[Flow]) -> bool {
        flows.iter().all(|flow| self.flows.contains(flow))
    }

    /// The flows for people: `GPU 0 → GPU 1`.
    pub fn way(&self) -> String {
        let flows: Vec<_> = self.flows.iter().map(ToString::to_string).collect();
        flows.join(" and ")
    }
}

/// The parts of the machine in which these flows begin or end.
pub fn places(flows: &[Flow]) -> BTreeSet<Place> {
    flows.iter().flat_map(|flow| flow.ends()).map(Endpoint::place).collect()
}

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// How the bytes are copied.
    #[serde(flatten)]
    pub setup: Setup,
    /// What is found out about the copy.
    #[serde(flatten)]
    pub action: Action,
}

/// What is found out about a copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// Copy a pattern and check it on the destination.
    Verify,
    /// Time a row of copies.
    Bandwidth {
        /// Timed copies, after one that is not.
        samples: u32,
    },
    /// Time a copy and a kernel against each other.
    Overlap {
        /// Where the kernel runs.
        compute_on: Side,
        /// How often.
        samples: u32,
    },
    /// Time a row of small copies.
    Latency {
        /// How often.
        samples: u32,
    },
}

impl Task {
    /// Bytes that go over the link.
    fn total_bytes(&self) -> u64 {
        let copies = match self.action {
            Action::Verify => 1,
            Action::Bandwidth { samples } => samples + 1,
            Action::Overlap { samples, .. } => samples,
            Action::Latency { .. } => 0,
        };
        self.setup.bytes.0 * u64::from(copies)
    }

    /// Whether the opposite direction is busy too, so that its fate is this one's.
    pub fn is_both_ways(&self) -> bool {
        self.setup.direction == Direction::BothWays
    }
}

impl fmt::Display for Task {
    /// For progress and reasons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { placement, issuer, engine, direction, path, .. } = self.setup;
        match self.action {
            Action::Verify => write!(f, "verification of the {path} path ({engine})"),
            Action::Overlap { compute_on, .. } => write!(f, "overlap {placement}, kernel on {compute_on}"),
            Action::Latency { .. } => write!(f, "latency, {path}"),
            Action::Bandwidth { .. } => {
                write!(f, "{placement}")?;
                let parts = [
                    (issuer == Side::Destination, "issued by destination"),
                    (engine == Engine::Kernel, "kernel"),
                    (direction == Direction::BothWays, "both ways"),
                    (path == Path::Staged, "staged"),
                ];
                parts.into_iter().filter(|(is, _)| *is).try_for_each(|(_, part)| write!(f, ", {part}"))
            }
        }
    }
}

/// What the plan is made from.
#[derive(Debug)]
pub struct Request<'a> {
    /// The GPUs to test, by NVML index.
    pub gpus: &'a [u32],
    /// What the driver said of them.
    pub driver: &'a DriverFacts,
    /// The routes.
    pub topology: &'a Topology,
    /// How much is measured.
    pub profile: &'a Profile,
    /// The probe groups wanted.
    pub groups: &'a BTreeSet<Group>,
    /// The bytes of an overlap measurement, if not the profile's.
    pub overlap_bytes: Option<Bytes>,
    /// The longest time a round may take, if not chosen by its size.
    pub deadline: Option<Duration>,
}

/// The rounds for a request: pair by pair in rows, staged before direct so that peer access is
/// switched twice per pair and not at every round. Copies both ways come after everything else, once
/// for the two directions: a direction that hangs is found by itself then, and is not blamed on the
/// pair it is joined with.
///
/// With more than [`MOST_GPUS_IN_FULL`] GPUs this is done for some pairs only; all others are
/// verified and measured in the reference placement, on the path that they have.
pub fn rounds(request: &Request<'_>) -> Vec<Round> {
    let mut planned: Vec<(Vec<Flow>, Task)> = Vec::new();
    let mut both_ways = BTreeSet::new();
    let in_full = in_full(request.gpus);
    for pair in Pair::ordered(request.gpus) {
        let Some(budget) = budget(request.driver, pair) else { continue };
        let direct = is_direct(request.driver, pair);
        let mut tasks = Vec::new();
        if in_full.as_ref().is_some_and(|some| !some.contains(&pair)) {
            let path = if direct { Path::Direct } else { Path::Staged };
            if request.groups.contains(&Group::Peers) {
                reference(request, pair, budget, path, &mut tasks);
            }
        } else {
            if !direct || request.profile.peers.staged == Staged::All {
                staged(request, pair, budget, &mut tasks);
            }
            if direct {
                direct_peers(request, pair, budget, &mut tasks);
                overlap(request, &mut tasks);
                latency(request, Path::Direct, &mut tasks);
            }
        }
        for task in tasks {
            let mut flows = vec![Flow::from(pair)];
            // Without access the other way the round has an obstacle, and its one flow the reason.
            if task.is_both_ways() && is_direct(request.driver, pair.reversed()) {
                flows.push(flows[0].reversed());
            }
            let key = |flows: &[Flow]| (flows.iter().copied().collect::<BTreeSet<_>>(), task.setup.of_any_size());
            if !task.is_both_ways() || both_ways.insert(key(&flows)) {
                planned.push((flows, task));
            }
        }
    }
    let (both_ways, first): (Vec<_>, Vec<_>) = planned.into_iter().partition(|(_, task)| task.is_both_ways());
    first
        .into_iter()
        .chain(both_ways)
        .zip(0..)
        .map(|((flows, task), id)| {
            let deadline = request.deadline.unwrap_or_else(|| deadline(&task));
            Round { id, flows, task, deadline }
        })
        .collect()
}

/// The pairs on which everything is measured: each GPU sends to the next one and to the one half of
/// all GPUs further, so that every GPU sends and receives twice. None where all pairs are.
fn in_full(gpus: &[u32]) -> Option<BTreeSet<Pair>> {
    if gpus.len() <= MOST_GPUS_IN_FULL {
        return None;
    }
    let steps = [1, gpus.len() / 2];
    let to = |place: usize, step: usize| gpus.get((place + step) % gpus.len()).copied();
    let sends = |(place, &source)| steps.into_iter().filter_map(move |step| Some((source, to(place, step)?)));
    let pairs = gpus.iter().enumerate().flat_map(sends);
    Some(pairs.map(|(source, destination)| Pair { source, destination }).collect())
}

/// What of the profile is left out because there are many GPUs, in a sentence.
pub fn left_out(gpus: &[u32], groups: &BTreeSet<Group>) -> Option<String> {
    let some = in_full(gpus)?.len();
    let all = gpus.len() * gpus.len().saturating_sub(1);
    let (every_pair, rest) = if groups.contains(&Group::Peers) {
        ("all are verified and measured in one placement, and ", "everything else that the profile has")
    } else {
        ("", "what was asked for")
    };
    Some(format!(
        "{} GPUs are {all} pairs: {every_pair}{some} of them, in which every GPU sends twice and receives twice, in \
         {rest}; --gpus with up to {MOST_GPUS_IN_FULL} GPUs measures it on all of their pairs",
        gpus.len()
    ))
}

/// The probe groups that these rounds are of.
pub fn groups_of(rounds: &[Round]) -> BTreeSet<Group> {
    let group = |round: &Round| match round.task.action {
        Action::Verify | Action::Bandwidth { .. } => Group::Peers,
        Action::Overlap { .. } => Group::Overlap,
        Action::Latency { .. } => Group::Latency,
    };
    rounds.iter().map(group).collect()
}

/// Verification and the reference placement.
fn reference(request: &Request<'_>, pair: Pair, buffer: u64, path: Path, tasks: &mut Vec<Task>) {
    let setup = Setup::REFERENCE.with_path(path);
    let route = request.topology.route(pair);
    let (verify, bytes) = match path {
        Path::Direct => (buffer, direct_bytes(route.and_then(|route| route.theoretical_gbps), setup.issuer, buffer)),
        Path::Staged => {
            (STAGED_VERIFY.min(buffer), staged_bytes(route.and_then(|route| route.staged_theoretical_gbps), buffer))
        }
    };
    tasks.push(Task { setup: setup.with_bytes(Bytes(verify)), action: Action::Verify });
    let action = Action::Bandwidth { samples: request.profile.peers.samples };
    tasks.push(Task { setup: setup.with_bytes(bytes), action });
}

/// Bytes of a direct copy.
///
/// Issued by the destination, a copy's fixed cost differs from copy to copy (8 to 27 µs on H200)
/// and cannot all be taken out: the larger the copy, the less that matters.
fn direct_bytes(rate: Option<GbPerSecond>, issuer: Side, buffer: u64) -> Bytes {
    Bytes(match (issuer, rate) {
        (Side::Source, Some(rate)) => copy_bytes(rate.0, DIRECT_COPY_MS, buffer),
        (Side::Destination, Some(rate)) => copy_bytes(rate.0, 2.0 * DIRECT_COPY_MS, buffer),
        (_, None) => (UNKNOWN_ROUTE_MIB * MIB).min(buffer),
    })
}

/// Bytes of a staged copy.
fn staged_bytes(rate: Option<GbPerSecond>, buffer: u64) -> Bytes {
    Bytes(copy_bytes(rate.map_or(32.0, |rate| rate.0), STAGED_COPY_MS, buffer))
}

/// Why a round cannot be run with this driver, if so.
pub fn obstacle(round: &Round, driver: &DriverFacts) -> Option<String> {
    let Task { setup, action } = round.task;
    let needs_kernels = match action {
        Action::Verify | Action::Bandwidth { .. } => setup.engine == Engine::Kernel,
        Action::Overlap { .. } => true,
        Action::Latency { .. } => false,
    };
    if let Some(why) = driver.kernels_failure.as_ref().filter(|_| needs_kernels) {
        return Some(format!("the GPU kernels could not be loaded: {why}"));
    }
    // Access is granted per direction. Without it a copy engine would go through the host all the
    // same, and a kernel would break its context.
    let needs_reverse = setup.path == Path::Direct && (setup.issuer == Side::Destination || round.task.is_both_ways());
    let mut reversed = round.flows.iter().filter(|_| needs_reverse).filter_map(|flow| flow.reversed().pair());
    let Pair { source, destination } = reversed.find(|pair| !is_direct(driver, *pair))?;
    Some(format!("GPU {source} may not reach the memory of GPU {destination}, which this needs"))
}

/// Whether CUDA lets both ends of a pair reach each other.
pub fn is_direct(driver: &DriverFacts, pair: Pair) -> bool {
    driver.said_of(pair).is_some_and(|said| said.possible == Some(true) && said.failure.is_none())
}

/// Bytes that one buffer may have on both GPUs of a pair; none when one of them cannot be tested.
fn budget(driver: &DriverFacts, pair: Pair) -> Option<u64> {
    let of = |index| {
        let device = driver.devices.iter().find(|device| device.index == index)?;
        if device.failure.is_some() { None } else { device.budget_bytes }
    };
    Some(of(pair.source)?.0.min(of(pair.destination)?.0) / 2)
}

fn direct_peers(request: &Request<'_>, pair: Pair, buffer: u64, tasks: &mut Vec<Task>) {
    if !request.groups.contains(&Group::Peers) {
        return;
    }
    let peers = &request.profile.peers;
    let rate = request.topology.route(pair).and_then(|route| route.theoretical_gbps);
    let issuers = [(Side::Source, Extent::EveryPlacement), (Side::Destination, peers.issued_by_destination)];
    let engines = [(Engine::Copy, Extent::EveryPlacement), (Engine::Kernel, peers.kernel)];
    let directions = [(Direction::OneWay, Extent::EveryPlacement), (Direction::BothWays, peers.both_ways)];

    let setup = Setup::REFERENCE;
    let verify = Task { setup: setup.with_bytes(Bytes(buffer)), action: Action::Verify };
    for (engine, by_engine) in engines {
        if by_engine == Extent::None {
            continue;
        }
        let verify = Task { setup: verify.setup.with_engine(engine), ..verify };
        tasks.push(verify);
        if engine == Engine::Kernel && peers.issued_by_destination != Extent::None {
            // A kernel that pulls takes another way through the chip than one that pushes.
            tasks.push(Task { setup: verify.setup.with_issuer(Side::Destination), ..verify });
        }
        for (issuer, by_issuer) in issuers {
            for (direction, by_direction) in directions {
                let setup = Setup { issuer, engine, direction, bytes: direct_bytes(rate, issuer, buffer), ..setup };
                let action = Action::Bandwidth { samples: peers.samples };
                let placements = in_common([by_engine, by_issuer, by_direction]).into_iter();
                tasks.extend(placements.map(|placement| Task { setup: setup.with_placement(placement), action }));
            }
        }
    }
}

/// The placements in which a combination is measured, where each of its axes says how far it goes.
/// The reference placement measures each axis by itself; products of axes belong to `full`.
fn in_common(extents: [Extent; 3]) -> Vec<Placement> {
    if extents.contains(&Extent::None) {
        return Vec::new();
    }
    match extents.iter().filter(|&&extent| extent == Extent::Reference).count() {
        0 => Placement::all().collect(),
        1 => vec![Placement::REFERENCE],
        _ => Vec::new(),
    }
}

fn staged(request: &Request<'_>, pair: Pair, buffer: u64, tasks: &mut Vec<Task>) {
    if request.groups.contains(&Group::Peers) {
        reference(request, pair, buffer, Path::Staged, tasks);
        // Without a direct path the staged one is what the pair has: all placements, then.
        if let (Some(&timed), false) = (tasks.last(), is_direct(request.driver, pair)) {
            tasks.pop();
            tasks.extend(
                Placement::all().map(|placement| Task { setup: timed.setup.with_placement(placement), ..timed }),
            );
        }
    }
    latency(request, Path::Staged, tasks);
}

fn overlap(request: &Request<'_>, tasks: &mut Vec<Task>) {
    let profile = &request.profile.overlap;
    if !request.groups.contains(&Group::Overlap) || profile.samples == 0 {
        return;
    }
    let setup = Setup::REFERENCE.with_bytes(request.overlap_bytes.unwrap_or(profile.bytes));
    for placement in Placement::all() {
        for compute_on in [Side::Source, Side::Destination] {
            let action = Action::Overlap { compute_on, samples: profile.samples };
            tasks.push(Task { setup: setup.with_placement(placement), action });
        }
    }
}

fn latency(request: &Request<'_>, path: Path, tasks: &mut Vec<Task>) {
    let samples = request.profile.latency.samples;
    if request.groups.contains(&Group::Latency) && samples > 0 {
        let setup = Setup::REFERENCE.with_path(path).with_bytes(Bytes(LATENCY_BYTES));
        tasks.push(Task { setup, action: Action::Latency { samples } });
    }
}

/// Bytes that take about `milliseconds` at this rate, whole MiB, within the buffer.
fn copy_bytes(gbps: f64, milliseconds: f64, buffer: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a clamped, positive size")]
    let mib = (gbps * milliseconds * 1e6 / MIB as f64).clamp(0.0, 1e6).ceil() as u64;
    (mib.max(SMALLEST_COPY_MIB) * MIB).min(buffer)
}

#[allow(clippy::cast_precision_loss, reason = "a deadline need not be exact")]
fn deadline(task: &Task) -> Duration {
    DEADLINE_BASE + Duration::from_secs_f64(task.total_bytes() as f64 / (DEADLINE_FLOOR_GBPS * 1e9))
}

/// Whether the task stands for figures of the blocking call.
pub const fn is_blocking(placement: Placement) -> bool {
    matches!(placement.host, HostMode::Blocking)
}

/// The stream that a side's work goes to in a placement.
pub const fn stream_of(placement: Placement, side: Side) -> StreamKind {
    match side {
        Side::Source => placement.source,
        Side::Destination => placement.destination,
    }
}

#[cfg(test)]
mod tests;
