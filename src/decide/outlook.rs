//! What flows get on a machine: alone as they were measured, and together as the explained state of the machine lets
//! them share its hops.

use std::collections::{BTreeMap, HashMap};

use diagnose::expected_load::{Alone, Predicted, near};
use diagnose::{Evidence, Settings};
use explain::{Cause, Foresight};
use model::flow::{Endpoint, Flow, HostMemory};
use model::load::{LoadFlow, LoadPattern, Pattern};
use model::measurement::{Measurements, Status};
use model::node::NodeId;
use model::placement::{Engine, Pair, Path};
use model::report::Report;
use model::topology::LinkKind;
use topology::load::{Load, Step, Ways, is_no_limit, passage};
use topology::shares::{Passage, Together, max_min};

/// Part of what its flows carry alone below which a hop was full while they ran together. Chosen: between the 1.1% that
/// a GPU loses which sends and receives (docs/dev/facts.md) and the half that two flows of one hop lose.
const FULL_BELOW: f64 = 0.9;

/// The changes of the machine that account for the figures of a report.
pub fn causes(report: &Report, settings: &Settings) -> Vec<Cause> {
    let Some(measurements) = &report.measurements else {
        return Vec::new();
    };
    let evidence = Evidence::of(report, settings);
    let (snapshot, topology) = (&report.snapshot, &report.topology);
    explain::explain(snapshot, topology, measurements, &evidence, explain::BUDGET).causes
}

/// A machine with what its flows get.
pub struct Outlook<'a> {
    report: &'a Report,
    settings: &'a Settings,
    ways: Ways<'a>,
    alone: Alone,
    foresight: Foresight<'a>,
    seen: Seen,
}

/// The rates and limits of flows that may run at once.
pub(crate) struct Table {
    /// Highest rate of each flow beside others, GB/s.
    pub caps: Vec<f64>,
    /// Limits of hops.
    pub hops: Vec<(Passage, Together)>,
    /// Limits that no hop shows.
    pub joint: Vec<Together>,
}

impl<'a> Outlook<'a> {
    /// Creates the outlook of a report; `None` if nothing was measured. `causes` are those of [`causes`].
    pub fn of(report: &'a Report, causes: &'a [Cause], settings: &'a Settings) -> Option<Self> {
        let measurements = report.measurements.as_ref()?;
        let (snapshot, topology) = (&report.snapshot, &report.topology);
        let mut outlook = Self {
            report,
            settings,
            ways: Ways::of(snapshot, topology),
            alone: Alone::of(measurements),
            foresight: Foresight::of(snapshot, topology, measurements, causes),
            seen: Seen::default(),
        };
        outlook.seen = outlook.look(measurements);
        Some(outlook)
    }

    /// Collects what the patterns of a report show.
    fn look(&self, measurements: &Measurements) -> Seen {
        let mut seen = Seen::default();
        for pattern in measurements.load.iter().filter(|load| load.rate().is_some()) {
            let flows: Vec<Flow> = pattern.flows.iter().map(LoadFlow::flow).collect();
            let load = Load::of(&self.ways, flows.iter().copied());
            let predicted = self.at_once(&flows).unwrap_or_default();
            let rate = |at: &usize| Some(pattern.flows.get(*at)?.achieved_gbps?.0);
            let could = |at: &usize| predicted.get(*at).copied();
            for (hop, on) in load.passed().into_iter().filter(|(_, on)| on.len() > 1) {
                let Some(sum) = on.iter().map(rate).sum::<Option<f64>>() else {
                    continue;
                };
                if let Some((kind, part)) = part_of(&load, hop, sum) {
                    let most = seen.parts.entry(kind).or_default();
                    *most = most.max(part);
                    continue;
                }
                // Less than the known limits allow: this hop was the limit.
                let could: Option<f64> = on.iter().map(could).sum();
                if could.is_some_and(|could| sum < FULL_BELOW * could) {
                    let full = seen.full.entry(hop).or_default();
                    *full = full.max(sum);
                }
            }
        }
        seen
    }

    /// Creates the outlook of a machine after a change. What hops carried before shows what they would carry.
    pub(crate) fn after(
        report: &'a Report,
        causes: &'a [Cause],
        settings: &'a Settings,
        before: &Outlook<'_>,
    ) -> Option<Self> {
        Some(Self { seen: before.seen.clone(), ..Self::of(report, causes, settings)? })
    }

    pub const fn report(&self) -> &'a Report {
        self.report
    }

    /// Returns the GPUs of the machine.
    pub fn gpus(&self) -> Vec<u32> {
        let gpus = self.report.snapshot.gpus.iter();
        gpus.map(|gpu| gpu.index).collect()
    }

    /// Returns the path that copies of a pair take.
    pub fn path(&self, pair: Pair) -> Path {
        self.ways.path(pair)
    }

    /// Returns the rate of a flow alone, GB/s; `None` if it was not measured or its bytes were wrong.
    pub fn alone(&self, flow: Flow) -> Option<f64> {
        let path = flow.pair().map_or(Path::Direct, |pair| self.ways.path(pair));
        self.alone.rate(flow, path, Engine::Copy)
    }

    /// Returns the lower of the rates of a GPU from and to the memory near it, GB/s.
    pub fn with_host(&self, gpu: u32) -> Option<f64> {
        let down = Flow::from_host(self.node(gpu), HostMemory::Pinned, gpu);
        let rates = [self.alone(down)?, self.alone(down.reversed())?];
        rates.into_iter().reduce(f64::min)
    }

    /// Returns the NUMA node that a GPU is connected to.
    pub fn node(&self, gpu: u32) -> Option<u32> {
        match self.report.topology.way_up(NodeId::Gpu(gpu)).last() {
            Some(NodeId::Numa(node)) => *node,
            _ => None,
        }
    }

    /// Returns the flow between a GPU and the memory near it.
    pub fn of_host(&self, gpu: u32, to_device: bool) -> Flow {
        let down = Flow::from_host(self.node(gpu), HostMemory::Pinned, gpu);
        if to_device { down } else { down.reversed() }
    }

    /// Returns the table of these flows.
    pub(crate) fn table(&self, flows: &[Flow]) -> Table {
        let none = Status::Skipped;
        let pattern = LoadPattern::without(Pattern::Given, String::new(), flows, none, None);
        let machine = (&self.ways, &self.report.topology, &self.report.snapshot);
        let shares = &self.settings.shares;
        let predicted = Predicted::of(&pattern, machine, &self.alone, shares);
        let caps = predicted.caps_reached();
        let kept = flows.iter().map(|flow| self.foresight.kept(*flow));
        let near = near(shares);
        let carries = |step: &Step<'a>| {
            let hop = passage(step);
            let (Some(healthy), Some(capacity)) =
                (predicted.carries(step, near), step.0.capacity_gbps)
            else {
                return self.seen.full.get(&hop).copied().filter(|_| !is_no_limit(step));
            };
            Some(healthy.max(capacity.0 * self.seen.part(step.1.kind)))
        };
        let hops = predicted.load.limits(carries);
        let mut joint = predicted.host_memory.clone();
        joint.extend(self.foresight.limits(flows));
        Table {
            caps: caps.into_iter().zip(kept).map(|(cap, kept)| cap * kept).collect(),
            hops,
            joint,
        }
    }

    /// Returns the predicted rate of each of these flows at once, GB/s; `None` if that of one is not known.
    pub fn at_once(&self, flows: &[Flow]) -> Option<Vec<f64>> {
        let Table { caps, hops, joint } = self.table(flows);
        let of_hops = hops.iter().map(|(_, limit)| limit);
        let limits: Vec<&Together> = of_hops.chain(&joint).collect();
        let shares = max_min(&caps, &limits);
        shares.into_iter().map(|share| Some(share?.gbps)).collect()
    }
}

/// What several flows at once showed of the machine.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// What known links carried, as a part of their payload rate. The directions of a link are apart: what a flow loses
    /// both ways is in its own figure.
    parts: HashMap<LinkKind, f64>,
    /// What hops of unknown rate carried while they were full, GB/s.
    full: BTreeMap<Passage, f64>,
}

impl Seen {
    /// Returns the part of its payload rate that a link of this kind is known to carry for several flows.
    fn part(&self, kind: LinkKind) -> f64 {
        self.parts.get(&kind).copied().unwrap_or(0.0)
    }
}

/// Returns the part of its payload rate that this hop carried at this rate, with its kind.
fn part_of(load: &Load<'_>, hop: Passage, sum: f64) -> Option<(LinkKind, f64)> {
    let (known, link) = load.step(hop)?;
    Some((link.kind, sum / known.capacity_gbps?.0))
}

/// Returns the flow of a pair.
pub(crate) fn between(source: u32, destination: u32) -> Flow {
    Flow { from: Endpoint::Gpu(source), to: Endpoint::Gpu(destination) }
}
