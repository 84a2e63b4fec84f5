//! Plans of several flows at once: the patterns and their sizes. The flows of each pattern are found in `patterns`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::host::plan as host;
use crate::load::patterns::{Planned, patterns};
use crate::peers::plan::copy_bytes;
use crate::{Group, Request, Round, Task};
use model::counted::{MOST_WITH_PACKETS_PERCENT, PCIE_COUNTER_RANGE};
use model::flow::{Endpoint, Flow, Setup};
use model::topology::LinkClass;
use model::units::{Bytes, MIB};

/// Time that one copy of a flow alone should take, milliseconds. It is long compared with the 8 us that a copy with
/// its event costs beside its bytes on H200 (docs/dev/method.md), and short enough for dozens of patterns.
const COPY_MS: f64 = 0.5;
/// Alignment of buffers, bytes: large pages of the GPU.
pub(crate) const AREA_STEP: u64 = 2 * MIB;
/// Copies of each flow in the row that measures how fast it is.
pub(crate) const TRIAL_COPIES: u32 = 2;
/// Rows of a pattern if the profile has none of this probe: a second look.
const LEAST_ROWS: u32 = 1;
/// Most bytes that a GPU sends or receives in a round with counters. If all of them went over PCIe, its counter must
/// still show the amount.
const MOST_COUNTED: u64 = PCIE_COUNTER_RANGE / MOST_WITH_PACKETS_PERCENT * 100;
/// Size of copies on a route whose rate is not known.
const UNKNOWN_ROUTE: u64 = 64 * MIB;

/// Several flows at once.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rows of each pattern. 0 leaves the probe out.
    pub rows: u32,
    /// Copies of the slowest flow in each row, at most: as few as 2 beside flows that are far faster. The first copy is not counted.
    #[serde(default = "four")]
    pub copies: u32,
    /// Time of each pattern in which every copy is compared, milliseconds.
    #[serde(default)]
    pub compared_ms: u32,
    /// True for all patterns. Otherwise only permutations, all into one GPU, and two through one hop.
    #[serde(default)]
    pub everything: bool,
}

const fn four() -> u32 {
    4
}

/// Plans the rounds of all patterns. They follow other rounds; `next` contains the next free number and slot. Plans
/// none if one pair is to be copied at a time.
pub(crate) fn rounds(request: &Request<'_>, next: (u32, u32)) -> Vec<Round> {
    if request.profile.load.rows == 0 || request.serial || !request.groups.contains(&Group::Load) {
        return Vec::new();
    }
    let mut rounds = Vec::new();
    for planned in patterns(request) {
        let number = u32::try_from(rounds.len()).unwrap_or(u32::MAX);
        let next = (next.0.saturating_add(number), next.1.saturating_add(number));
        rounds.extend(round(request, planned, next));
    }
    rounds
}

/// Returns the round of a pattern, with this number and slot. Returns `None` if its buffers would be too small.
pub(crate) fn round(
    request: &Request<'_>,
    planned: Planned,
    (id, slot): (u32, u32),
) -> Option<Round> {
    let Planned { pattern, of, flows, counted } = planned;
    let Parameters { rows, copies, compared_ms, .. } = request.profile.load;
    // A counter of PCIe has no room for the bytes of more copies.
    let has_room = !counted || flows.iter().all(|flow| is_over_nvlink(request, *flow));
    let compared_ms = if has_room { compared_ms } else { 0 };
    let (rows, mut copies) = (rows.max(LEAST_ROWS), copies.max(2));
    let (compared_ms, mut bytes) = match bytes(request, &flows, super::places(compared_ms)) {
        Some(bytes) => (compared_ms, bytes),
        // No room for two places.
        None => (0, bytes(request, &flows, 1)?),
    };
    if counted {
        (copies, bytes) = countable(&flows, rows, copies, bytes);
    }
    let action = super::Load { pattern, rows, copies, counted, compared_ms };
    let task = Task::new(Setup::REFERENCE.with_engine(pattern.engine()).with_bytes(bytes), action);
    let deadline = request.deadline.unwrap_or_else(|| task.deadline(&flows, request.topology));
    Some(Round { id, slot, flows, task, deadline, timeline: false, name: of })
}

fn is_over_nvlink(request: &Request<'_>, flow: Flow) -> bool {
    let route = flow.pair().and_then(|pair| request.topology.route(pair));
    route.is_some_and(|route| matches!(route.class, LinkClass::NvLink(_)))
}

/// Returns the largest number of flows into one GPU, and out of one GPU.
fn most_at_one_end(flows: &[Flow]) -> (u64, u64) {
    let most = |end: fn(&Flow) -> Endpoint| {
        let mut count: BTreeMap<u32, u64> = BTreeMap::new();
        flows
            .iter()
            .filter_map(|flow| end(flow).gpu())
            .for_each(|gpu| *count.entry(gpu).or_default() += 1);
        count.into_values().max().unwrap_or(1)
    };
    (most(|flow| flow.to), most(|flow| flow.from))
}

/// Returns the copies of each row and their bytes, such that counters can count all of them. Reduces the number of
/// copies first, then their size.
fn countable(flows: &[Flow], rows: u32, copies: u32, Bytes(bytes): Bytes) -> (u32, Bytes) {
    let (into, out_of) = most_at_one_end(flows);
    let most = MOST_COUNTED / into.max(out_of);
    let fit = (most / bytes.max(1)).saturating_sub(u64::from(TRIAL_COPIES)) / u64::from(rows);
    let copies = copies.min(u32::try_from(fit).unwrap_or(u32::MAX).max(four()));
    let all = TRIAL_COPIES.saturating_add(rows.saturating_mul(copies));
    (copies, Bytes(bytes.min(most / u64::from(all) / MIB * MIB)))
}

/// Returns the bytes of a copy, such that the buffer of every GPU has so many places for each flow into it. Returns `None`
/// if they would be too few.
pub(crate) fn bytes(request: &Request<'_>, flows: &[Flow], places: u64) -> Option<Bytes> {
    let gpus: BTreeSet<u32> =
        flows.iter().flat_map(|flow| flow.ends()).filter_map(Endpoint::gpu).collect();
    let devices = request.driver.devices.iter().filter(|device| gpus.contains(&device.index));
    let buffer =
        devices.filter_map(|device| device.budget_bytes).map(|budget| budget.0 / 2).min()?;
    let (into, out_of) = most_at_one_end(flows);
    let area = buffer / (into * places) / AREA_STEP * AREA_STEP;
    if area == 0 {
        return None;
    }
    let rates =
        flows.iter().filter_map(|flow| request.topology.route(flow.pair()?)?.theoretical_gbps);
    // The size follows the fastest flow, for which the cost of a copy beside its bytes matters most. Flows that share
    // an end slow each other down; flows that one engine copies in turn do not.
    let rate = rates.map(|rate| rate.0).reduce(f64::max);
    #[allow(clippy::cast_precision_loss, reason = "few flows")]
    let milliseconds = COPY_MS * (out_of as f64 / into as f64).min(1.0);
    let between = rate.map_or(UNKNOWN_ROUTE.min(area), |rate| copy_bytes(rate, milliseconds, area));
    if flows.iter().all(|flow| flow.pair().is_some()) {
        return Some(Bytes(between));
    }
    let with_host = flows.iter().filter(|flow| flow.with_host().is_some()).count();
    let of_host = host::bytes(request, with_host)?.0.min(area);
    Some(Bytes(if rate.is_some() { of_host.min(between) } else { of_host }))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
