//! Expectations on the host and each GPU: floors of rates and limits of times, in the file of `--expect`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::figures::{self, Kind};
use super::host_figures::{self, DecidedBy, What};
use model::asynchrony::Call;
use model::flow::{Endpoint, HostMemory};
use model::host::{Allocation, HostDirection, HostWay};
use model::placement::Engine;
use model::report::Report;

/// Least rate of copies between host and GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFloor {
    /// Allocation of the host's buffer.
    pub memory: HostMemory,
    pub direction: HostDirection,
    /// The engine that moves the bytes.
    #[serde(default = "by_copy_engine", skip_serializing_if = "is_copy_engine")]
    pub engine: Engine,
    /// Re-use of one buffer, or a new buffer for each copy.
    #[serde(default = "reused", skip_serializing_if = "is_reused")]
    pub allocation: Allocation,
    /// Number of GPUs that copy at the same time.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub at_once: u32,
    /// The only GPU it applies to, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Lowest accepted rate, decimal GB/s in one direction.
    pub gbps: f64,
}

/// Least rate of a pipeline in several streams, in and out each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineFloor {
    /// Allocation of the host's buffers.
    pub memory: HostMemory,
    /// Number of batches.
    pub batches: u32,
    /// Number of streams.
    pub streams: u32,
    /// The only GPU it applies to, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Lowest accepted rate, decimal GB/s in each direction.
    pub gbps: f64,
}

/// Longest time of a call that need not wait for work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallLimit {
    pub call: Call,
    /// The memory, for a copy between host and GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<HostMemory>,
    /// The direction of such a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<HostDirection>,
    /// The only GPU it applies to, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Highest accepted time, microseconds.
    pub most_us: f64,
}

/// The GPU that a loop of launches waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// The GPU that works.
    Same,
    /// A GPU without work.
    Other,
}

/// Longest time of a turn of the loop of launches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnLimit {
    /// The GPU that each turn waits for.
    pub waits_for: WaitsFor,
    /// The only GPU it applies to, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// Highest accepted time, microseconds.
    pub most_us: f64,
}

const fn by_copy_engine() -> Engine {
    Engine::Copy
}
const fn reused() -> Allocation {
    Allocation::Reused
}
const fn alone() -> u32 {
    1
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_copy_engine(engine: &Engine) -> bool {
    *engine == Engine::Copy
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_reused(allocation: &Allocation) -> bool {
    *allocation == Allocation::Reused
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_alone(at_once: &u32) -> bool {
    *at_once == 1
}

/// A floor of a rate, GB/s, or a limit of a time, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    /// The kind of figure.
    pub what: What,
    /// The only GPU it applies to, if given.
    pub gpu: Option<u32>,
    pub value: f64,
}

/// All expectations on the host and GPUs, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OfHost {
    /// Copies.
    pub host: Vec<HostFloor>,
    pub pipeline: Vec<PipelineFloor>,
    pub calls: Vec<CallLimit>,
    pub launch_loop: Vec<TurnLimit>,
}

impl OfHost {
    /// Returns all bounds.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        let bound = |what, gpu, value| Bound { what, gpu, value };
        let copies = self.host.iter().map(|floor| {
            let way = HostWay {
                memory: floor.memory,
                direction: floor.direction,
                engine: floor.engine,
                allocation: floor.allocation,
            };
            let at_once = floor.at_once;
            bound(What::Copy { way, at_once }, floor.gpu, floor.gbps)
        });
        let pipelines = self.pipeline.iter().map(|floor| {
            let what = What::Pipeline {
                memory: floor.memory,
                batches: floor.batches,
                streams: floor.streams,
            };
            bound(what, floor.gpu, floor.gbps)
        });
        let calls = self.calls.iter().map(|limit| {
            let what =
                What::Call { call: limit.call, memory: limit.memory, direction: limit.direction };
            bound(what, limit.gpu, limit.most_us)
        });
        let turns = self.launch_loop.iter().map(|limit| {
            let same = limit.waits_for == WaitsFor::Same;
            bound(What::Turn { same }, limit.gpu, limit.most_us)
        });
        copies.chain(pipelines).chain(calls).chain(turns).collect()
    }

    /// Returns what is wrong with the expectations, in a sentence.
    pub(crate) fn objection(&self) -> Option<String> {
        self.bounds().iter().find(|bound| !(bound.value > 0.0 && bound.value.is_finite())).map(
            |bound| {
                let Bound { what, value, .. } = bound;
                match what.kind() {
                    DecidedBy::Time => format!("limit of {what}: most_us = {value} is not a time"),
                    _ => format!("floor of {what}: gbps = {value} is not a rate"),
                }
            },
        )
    }

    fn add(&mut self, Bound { what, gpu, value }: Bound) {
        match what {
            What::Copy { way: HostWay { memory, direction, engine, allocation }, at_once } => {
                self.host.push(HostFloor {
                    memory,
                    direction,
                    engine,
                    allocation,
                    at_once,
                    gpu,
                    gbps: value,
                });
            }
            What::Pipeline { memory, batches, streams } => {
                self.pipeline.push(PipelineFloor { memory, batches, streams, gpu, gbps: value });
            }
            What::Call { call, memory, direction } => {
                self.calls.push(CallLimit { call, memory, direction, gpu, most_us: value });
            }
            What::Turn { same } => {
                let waits_for = if same { WaitsFor::Same } else { WaitsFor::Other };
                self.launch_loop.push(TurnLimit { waits_for, gpu, most_us: value });
            }
        }
    }

    /// Returns bounds from the figures of the host and the GPUs of this report. All GPUs share one bound; if their
    /// slots or models differ, each has its own, except for times. A margin is never less than the scatter of healthy
    /// machines.
    pub(crate) fn from_report(report: &Report, margin_percent: f64) -> Self {
        let Some(measurements) = &report.measurements else {
            return Self::default();
        };
        let mut values: BTreeMap<What, Vec<(u32, f64)>> = BTreeMap::new();
        for ((ends, kind), figure) in figures::table(measurements) {
            if let (Kind::Host(what), [gpu], Some(figure)) = (kind, &ends.gpus()[..], figure) {
                values.entry(what).or_default().push((*gpu, figure.value));
            }
        }
        let alone = measurements.host.iter().filter(|copy| copy.at_once == 1);
        let slots: BTreeSet<_> =
            alone.map(|copy| copy.theoretical_gbps.map(|rate| rate.0.to_bits())).collect();
        let models: BTreeSet<_> = report.snapshot.gpus.iter().map(|gpu| gpu.name.known()).collect();
        let differ = slots.len() > 1 || models.len() > 1;
        let looks = measurements.second_looks.iter();
        let looked_at: BTreeSet<u32> = looks
            .flat_map(|look| &look.flows)
            .flat_map(|flow| flow.ends())
            .filter_map(Endpoint::gpu)
            .collect();
        let mut all = Self::default();
        for (what, values) in values {
            let time = what.kind() == DecidedBy::Time;
            let bound = |gpu, value| Bound {
                what,
                gpu,
                value: bound(Some(what.kind()), value, margin_percent),
            };
            let worst = |one: f64, other: f64| if time { one.max(other) } else { one.min(other) };
            // A second look measures some GPUs, and says nothing of the others.
            let some = values.len() < report.snapshot.gpus.len()
                && values.iter().all(|(gpu, _)| looked_at.contains(gpu));
            let bounds: Vec<Bound> = if (differ || some) && !time {
                values.iter().map(|(gpu, value)| bound(Some(*gpu), *value)).collect()
            } else {
                values
                    .iter()
                    .map(|(_, value)| *value)
                    .reduce(worst)
                    .map(|value| bound(None, value))
                    .into_iter()
                    .collect()
            };
            bounds.into_iter().filter(|bound| bound.value > 0.0).for_each(|bound| all.add(bound));
        }
        all
    }
}

/// Returns the floor or limit for a figure of a healthy machine, to one decimal.
pub(crate) fn bound(decided_by: Option<DecidedBy>, value: f64, margin_percent: f64) -> f64 {
    let below = |least: f64| (value * (100.0 - margin_percent.max(least)) / 10.0).floor() / 10.0;
    match decided_by {
        // Figures that only a link decides have the margin of pairs.
        None | Some(DecidedBy::Link) => below(0.0),
        Some(DecidedBy::Memory) => below(host_figures::MEMORY_PERCENT),
        Some(DecidedBy::Processor) => below(host_figures::PROCESSOR_PERCENT),
        Some(DecidedBy::Time) => {
            ((value * host_figures::TIMES).max(value + host_figures::LEAST_US) * 10.0).ceil() / 10.0
        }
    }
}
