//! Plans of copies between host and GPU and of page-locking: their NUMA nodes and sizes.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::plan::in_full::gpus_in_full;
use crate::plan::slot::Slot;
use crate::plan::slot::size;
use crate::{Group, Request, Task};
use model::flow::{Endpoint, Flow, HostMemory, Setup};
use model::host::Allocation;
use model::node::NodeId;
use model::placement::{Direction, Engine};
use model::units::{Bytes, MIB};

/// Host buffers in use at the same time besides one for each GPU: two for both ways on another node, and two while
/// page-locking is timed.
const BESIDE: u64 = 4;
/// Rows of a copy that is measured although the profile has none for this probe, and copies in each. Two that agree: the first
/// copies to the device of one in three runs on H200 had 49 to 54 GB/s, and the next 55 (2026-11-24).
const ALONE_ROWS: u32 = 2;
const ALONE_COPIES: u32 = 4;
/// Smallest size of a copy, MiB. If less memory may be used, the worker reports it.
const SMALLEST_MIB: u64 = 1;

/// Copies between host and GPU.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Rows of a figure. 0 leaves the probe out.
    pub rows: u32,
    /// Copies in each row.
    #[serde(default = "one")]
    pub copies: u32,
    /// Copies in each row from or to pageable memory, which block the host.
    #[serde(default = "one")]
    pub pageable_copies: u32,
    /// Bytes of a copy.
    #[serde(default = "host_bytes", deserialize_with = "size")]
    pub bytes: Bytes,
    /// Bytes of a copy of several GPUs at once, if more than otherwise.
    #[serde(skip)]
    pub at_once_bytes: Option<Bytes>,
    /// Number of times that page-locking is timed on each node, and of copies whose buffers are made or filled for each.
    #[serde(default)]
    pub pinning: u32,
    /// True to add reused registered memory, kernels over mapped memory, every other NUMA node, and, for every GPU,
    /// all ways of buffers that are made or filled for each copy.
    #[serde(default)]
    pub everything: bool,
}

const fn one() -> u32 {
    1
}

const fn host_bytes() -> Bytes {
    Bytes(32 * MIB)
}

/// Times the size of all last-level caches that the buffers of several GPUs at once have together, so that their bytes come
/// from memory. Chosen.
const TIMES_CACHES: u64 = 2;

impl Parameters {
    /// Makes the buffers of so many GPUs at once larger than the processors' caches, where everything is measured. Elsewhere
    /// allocating them would take longer than all other copies: 0.6 s for each GiB on 2 x H200.
    pub(crate) fn exceed(&mut self, caches: Bytes, gpus: usize) {
        if self.everything && gpus > 1 {
            let each = (TIMES_CACHES * caches.0).div_ceil(gpus as u64);
            self.at_once_bytes = Some(Bytes(each.div_ceil(MIB) * MIB));
        }
    }
}

/// A GPU and the NUMA node near it.
#[derive(Clone, Copy)]
struct Near {
    gpu: u32,
    node: Option<u32>,
}

impl Near {
    fn up(self, memory: HostMemory) -> Flow {
        Flow::from_host(self.node, memory, self.gpu)
    }
}

/// Plans the rounds of all usable GPUs: each alone, then all at once, then page-locking.
pub(crate) fn rounds(request: &Request<'_>) -> Vec<Slot> {
    if !request.groups.contains(&Group::Host) {
        return Vec::new();
    }
    let gpus: Vec<_> = request
        .usable()
        .map(|device| Near { gpu: device.index, node: node_of(request, device.index) })
        .collect();
    let Some(bytes) = bytes(request, gpus.len()) else {
        return Vec::new();
    };
    let profile = &request.profile.host;
    // A single GPU has no other one to copy with, so a profile without this probe would measure nothing.
    if let (0, [only]) = (profile.rows, gpus.as_slice()) {
        let profile = &Parameters { rows: ALONE_ROWS, copies: ALONE_COPIES, ..profile.clone() };
        return Plan { request, profile, bytes }.pinned(*only);
    }
    if profile.rows == 0 {
        return Vec::new();
    }
    let plan = Plan { request, profile, bytes };
    let mut nodes = BTreeSet::new();
    let mut planned: Vec<Slot> = Vec::new();
    let in_full = gpus_in_full(request.gpus);
    for &near in &gpus {
        if !in_full.contains(&near.gpu) {
            planned.extend(plan.pinned(near));
            continue;
        }
        planned.extend(plan.alone(near));
        if profile.everything || nodes.insert(near.node) {
            planned.extend(plan.anew(near));
        }
    }
    if gpus.len() > 1 {
        let bytes = profile.at_once_bytes.and_then(|most| limited(request, gpus.len(), most));
        let at_once = Plan { bytes: bytes.unwrap_or(plan.bytes).max(plan.bytes), ..plan };
        planned.extend(at_once.at_once(&gpus));
    }
    let near: BTreeSet<_> =
        gpus.iter().filter(|near| in_full.contains(&near.gpu)).map(|near| near.node).collect();
    let all = if profile.everything { every_node(request, &near) } else { near };
    if !gpus.is_empty() && profile.pinning > 0 {
        planned.extend(all.into_iter().map(|node| plan.pinning(node)));
    }
    planned
}

/// Plans copies of one flow alone, with the sizes of the profile; `None` if a buffer would be too small.
pub(crate) fn again(request: &Request<'_>, flow: Flow) -> Option<Slot> {
    let bytes = bytes(request, 1)?;
    let profile = &request.profile.host;
    let profile = &Parameters {
        rows: profile.rows.max(ALONE_ROWS),
        copies: profile.copies.max(ALONE_COPIES),
        ..profile.clone()
    };
    let plan = Plan { request, profile, bytes };
    Some(plan.slot(vec![flow], Engine::Copy, Allocation::Reused))
}

/// Returns the bytes of a copy. All buffers together stay within the memory that may be used on the host and on a
/// GPU.
pub(crate) fn bytes(request: &Request<'_>, gpus: usize) -> Option<Bytes> {
    limited(request, gpus, request.profile.host.bytes)
}

/// Returns as many of these bytes as may be used.
fn limited(request: &Request<'_>, gpus: usize, wanted: Bytes) -> Option<Bytes> {
    let devices = request.driver.devices.iter().filter(|device| device.failure.is_none());
    let on_device =
        devices.filter_map(|device| device.budget_bytes).map(|budget| budget.0 / 2).min()?;
    let budget = request.driver.host_budget_bytes.map_or(0, |budget| budget.0);
    let of_host = budget / (gpus as u64 + BESIDE) / MIB * MIB;
    Some(Bytes(wanted.0.min(on_device).min(of_host.max(SMALLEST_MIB * MIB))))
}

/// Returns the NUMA node near a GPU, if it is known.
pub(crate) fn node_of(request: &Request<'_>, gpu: u32) -> Option<u32> {
    match request.topology.way_up(NodeId::Gpu(gpu)).last() {
        Some(NodeId::Numa(node)) => *node,
        _ => None,
    }
}

/// Returns all known NUMA nodes, plus the nodes near the GPUs, which may be unknown.
fn every_node(request: &Request<'_>, near: &BTreeSet<Option<u32>>) -> BTreeSet<Option<u32>> {
    let nodes = request.topology.nodes.iter().filter_map(|node| match node.id {
        NodeId::Numa(Some(node)) => Some(Some(node)),
        _ => None,
    });
    nodes.chain(near.iter().copied()).collect()
}

#[derive(Clone, Copy)]
struct Plan<'a> {
    request: &'a Request<'a>,
    profile: &'a Parameters,
    bytes: Bytes,
}

impl Plan<'_> {
    fn slot(&self, flows: Vec<Flow>, engine: Engine, allocation: Allocation) -> Slot {
        let both = flows.iter().any(|flow| flows.contains(&flow.reversed()));
        let direction = if both { Direction::BothWays } else { Direction::OneWay };
        let pageable = flows.iter().flat_map(|flow| flow.ends()).any(is_pageable);
        let Parameters { rows, copies, pageable_copies, pinning, .. } = *self.profile;
        let (rows, copies) = match (allocation, pageable) {
            (Allocation::Reused, true) => (rows, pageable_copies),
            (Allocation::Reused, false) => (rows, copies),
            _ => (pinning, 1),
        };
        let setup =
            Setup::REFERENCE.with_bytes(self.bytes).with_engine(engine).with_direction(direction);
        let action = super::Host { rows, copies, allocation };
        Slot::one(Task::new(setup, action), flows)
    }

    /// Plans copies of one GPU alone, with pinned memory one way.
    fn pinned(&self, near: Near) -> Vec<Slot> {
        let up = near.up(HostMemory::Pinned);
        let slot = |flow| self.slot(vec![flow], Engine::Copy, Allocation::Reused);
        [up, up.reversed()].map(slot).into_iter().collect()
    }

    /// Plans copies of one GPU alone.
    fn alone(&self, near: Near) -> Vec<Slot> {
        let reused = |flows, engine| self.slot(flows, engine, Allocation::Reused);
        let ways = |memory, node| {
            let up = Flow::from_host(node, memory, near.gpu);
            [up, up.reversed()]
        };
        let mut slots = Vec::new();
        let both_ways = |[up, down]: [Flow; 2]| [vec![up], vec![down], vec![up, down]];
        let pinned = ways(HostMemory::Pinned, near.node);
        slots.extend(both_ways(pinned).map(|flows| reused(flows, Engine::Copy)));
        slots.extend(
            ways(HostMemory::Pageable, near.node).map(|flow| reused(vec![flow], Engine::Copy)),
        );
        if !self.profile.everything {
            return slots;
        }
        slots.extend(
            both_ways(ways(HostMemory::Registered, near.node))
                .map(|flows| reused(flows, Engine::Copy)),
        );
        slots.extend(pinned.map(|flow| reused(vec![flow], Engine::Kernel)));
        let nodes = every_node(self.request, &BTreeSet::from([near.node]));
        for far in nodes.into_iter().filter(|node| *node != near.node) {
            for memory in [HostMemory::Pinned, HostMemory::Pageable] {
                slots.extend(ways(memory, far).map(|flow| reused(vec![flow], Engine::Copy)));
            }
        }
        slots
    }

    /// Plans copies of one GPU with buffers that are made or filled for each copy.
    fn anew(&self, near: Near) -> Vec<Slot> {
        if self.profile.pinning == 0 {
            return Vec::new();
        }
        let memory = [HostMemory::Pinned, HostMemory::Registered];
        let ups = memory.map(|memory| near.up(memory));
        let downs = ups.iter().filter(|_| self.profile.everything).map(|up| up.reversed());
        let anew = ups.into_iter().chain(downs).map(|flow| (flow, Allocation::Anew));
        let up = near.up(HostMemory::Pinned);
        let of_all = [Allocation::AnewFilled, Allocation::FilledInHalves, Allocation::IntoNew];
        let of_all = of_all.into_iter().filter(|_| self.profile.everything);
        anew.chain([(up, Allocation::Filled)])
            .chain(of_all.map(|allocation| (up, allocation)))
            .map(|(flow, allocation)| self.slot(vec![flow], Engine::Copy, allocation))
            .collect()
    }

    /// Plans copies of all GPUs at the same time.
    fn at_once(&self, gpus: &[Near]) -> Vec<Slot> {
        let ups: Vec<_> = gpus.iter().map(|near| near.up(HostMemory::Pinned)).collect();
        let downs: Vec<_> = ups.iter().map(|up| up.reversed()).collect();
        [ups, downs]
            .into_iter()
            .map(|flows| self.slot(flows, Engine::Copy, Allocation::Reused))
            .collect()
    }

    fn pinning(&self, node: Option<u32>) -> Slot {
        let host = Endpoint::Host { node, memory: HostMemory::Pinned };
        let action = super::Pinning { samples: self.profile.pinning };
        let setup = Setup::REFERENCE.with_bytes(self.bytes);
        let within = Flow { from: host, to: host };
        Slot::one(Task::new(setup, action), vec![within])
    }
}

const fn is_pageable(end: Endpoint) -> bool {
    matches!(end, Endpoint::Host { memory: HostMemory::Pageable, .. })
}
