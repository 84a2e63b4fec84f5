//! The figures of a run as one table, and the one comparison of two such tables. A probe that is added to
//! `Measurements::each` is in the table with its main figure, if that is a rate or a time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::kind::{self, DecidedBy, Kind};
use super::words;
use model::asynchrony::{Call, HostCall};
use model::cell::{self, Measurement, Quantity};
use model::flow::{Endpoint, HostMemory};
use model::measurement::{Measurements, Probe};
use model::placement::Pair;
use model::units::GbPerSecond;

/// Source and destination of each flow, GPUs by index; `None` is the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ends(Vec<[Option<u32>; 2]>);

impl Ends {
    pub(crate) fn of(one: &dyn Measurement) -> Self {
        let flow = |number| one.part(number).flow.ends().map(Endpoint::gpu);
        Self((0..one.parts()).map(flow).collect())
    }

    pub(crate) fn of_gpu(gpu: u32) -> Self {
        Self(vec![[Some(gpu); 2]])
    }

    /// Returns the pair of a single flow between two GPUs.
    pub(crate) fn pair(&self) -> Option<Pair> {
        match self.0[..] {
            [[Some(source), Some(destination)]] if source != destination => {
                Some(Pair { source, destination })
            }
            _ => None,
        }
    }

    pub(crate) fn gpus(&self) -> Vec<u32> {
        words::unique(self.0.iter().flatten().copied().flatten())
    }

    /// Returns the same with other indices; `None` if one of the GPUs has none.
    fn with(&self, indices: &HashMap<u32, u32>) -> Option<Self> {
        let end = |end: Option<u32>| match end {
            Some(gpu) => indices.get(&gpu).map(|index| Some(*index)),
            None => Some(None),
        };
        let flow = |[from, to]: &[Option<u32>; 2]| Some([end(*from)?, end(*to)?]);
        self.0.iter().map(flow).collect::<Option<_>>().map(Self)
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = self.gpus();
        match (self.pair(), gpus.len()) {
            (Some(pair), _) => write!(f, "{pair}"),
            (None, 0) => f.write_str("host"),
            (None, _) => f.write_str(&words::gpus(&gpus)),
        }
    }
}

impl From<Pair> for Ends {
    fn from(pair: Pair) -> Self {
        Self(vec![[Some(pair.source), Some(pair.destination)]])
    }
}

/// A figure: decimal GB/s, or a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// The spread of its samples, per cent.
    pub spread_percent: f64,
    /// Size of the copies; 0 if there are none, or if it is not known.
    pub bytes: u64,
}

impl Figure {
    /// Returns the rate without the overhead of copies, if they are less than half as large as then.
    fn without_overhead(self, then: Self) -> Self {
        if self.bytes == 0 || self.bytes >= then.bytes / 2 {
            return self;
        }
        let us = self.bytes as f64 / (1e3 * self.value);
        let share = (kind::COPY_OVERHEAD_US / us).min(kind::MOST_OVERHEAD);
        Self { value: self.value / (1.0 - share), ..self }
    }
}

/// Identifies a figure within a report.
pub(crate) type Identity = (Ends, Kind);

/// The figures of a run; `None` if one was to be measured and has no sound figure.
pub(crate) type Table = BTreeMap<Identity, Option<Figure>>;

/// Returns all figures of a run. Of several NUMA nodes and sizes the best one counts: the most that a path carries.
pub(crate) fn table(measurements: &Measurements) -> Table {
    let mut table = Table::new();
    let mut add = |identity: Identity, value: Option<f64>, spread: Option<f64>, bytes: u64| {
        let is_time = identity.1.is_time();
        let known = table.entry(identity).or_default();
        let value = value.filter(|value| value.is_finite() && *value > 0.0);
        let is_better = |value: &f64| {
            known.is_none_or(
                |known: Figure| {
                    if is_time { *value < known.value } else { *value > known.value }
                },
            )
        };
        if let Some(value) = value.filter(is_better) {
            *known = Some(Figure { value, spread_percent: spread.unwrap_or_default(), bytes });
        }
    };
    for cell in &measurements.peer {
        let rate = cell.achieved_gbps.filter(|_| is_sound(cell));
        let kind = Kind::of_pair(cell.setup);
        let bytes = cell.setup.bytes.0;
        add((cell.pair.into(), kind), rate.map(|rate| rate.0), cell.spread_percent, bytes);
    }
    let mut add_host = |kind, cell: &dyn Measurement, gpu, value: Option<f64>, spread, bytes| {
        add((Ends::of_gpu(gpu), kind), value.filter(|_| cell.cell().tested()), spread, bytes);
    };
    for copy in &measurements.host {
        let (kind, rate) = (Kind::of_host(copy.way(), copy.at_once), copy.rate());
        let rate = rate.map(|rate| rate.0);
        add_host(kind, copy, copy.gpu, rate, copy.spread_percent, copy.bytes.0);
    }
    for cell in &measurements.pipeline {
        let kind = Kind::of_pipeline(cell.memory, cell.batches, cell.streams);
        let bytes = cell.bytes.0.saturating_mul(u64::from(cell.batches));
        let us = cell.several_streams_us.filter(|us| *us > 0.0);
        let rate = us.map(|us| GbPerSecond::of(bytes, us * 1e3).0);
        add_host(kind, cell, cell.gpu, rate, cell.spread_percent, cell.bytes.0);
    }
    // Calls that wait take as long as their work, and so do copies of pageable memory: other rules judge those.
    let is_pageable =
        |call: &HostCall| call.call == Call::Copy && call.memory == Some(HostMemory::Pageable);
    let only_calls = |call: &&HostCall| !call.waits() && !is_pageable(call);
    for cell in measurements.calls.iter().filter(only_calls) {
        let kind = Kind::of_time(Probe::Calls, cell.words());
        add_host(kind, cell, cell.gpu, cell.host_blocked_us, cell.spread_percent, 0);
    }
    for cell in &measurements.launch_loop {
        let kind = Kind::of_turn(cell.gpu == cell.synchronized);
        add_host(kind, cell, cell.gpu, cell.turn_us, cell.spread_percent, 0);
    }
    for one in measurements.each() {
        let figures = one.figures();
        let kind = figures.first().and_then(|main| kind_of(one, main));
        let Some((main, kind)) = figures.first().zip(kind) else {
            continue;
        };
        let spread = figures.iter().find(|figure| figure.key == "spread_percent");
        let value = main.value.filter(|_| is_sound(one));
        add((Ends::of(one), kind), value, spread.and_then(|spread| spread.value), 0);
    }
    table
}

/// Returns the same of a run that may have measured nothing.
pub(crate) fn table_of(measurements: Option<&Measurements>) -> Table {
    measurements.map(table).unwrap_or_default()
}

fn is_sound(one: &dyn Measurement) -> bool {
    let cell = one.cell();
    cell.tested() && !cell.verified.is_wrong()
}

/// Returns the kind of a measurement's main figure, if it is a rate or a time and the probe has no kinds of its own.
/// Shares, factors and indices have no better side that holds for all probes.
fn kind_of(one: &dyn Measurement, main: &cell::Figure) -> Option<Kind> {
    let (probe, name) = (one.probe(), one.what_of_any_size());
    let kind = match main.quantity {
        Quantity::Rate => Kind::of_rate(probe, name),
        Quantity::Duration => Kind::of_time(probe, name),
        Quantity::Amount if main.key.ends_with("_us") => Kind::of_time(probe, name),
        Quantity::Amount if main.key.ends_with("_ms_per_gib") => {
            Kind { unit: "ms per GiB", ..Kind::of_time(probe, name) }
        }
        _ => return None,
    };
    (probe != Probe::Bandwidth && !kind.is_of_host()).then_some(kind)
}

/// Returns the table with other indices of GPUs, without the figures of GPUs that have none.
pub(crate) fn with_indices(table: Table, indices: &HashMap<u32, u32>) -> Table {
    let mapped = table.into_iter();
    mapped
        .filter_map(|((ends, kind), figure)| Some(((ends.with(indices)?, kind), figure)))
        .collect()
}

/// A figure of an earlier run, and the same figure now.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared<I> {
    pub identity: I,
    pub(crate) kind: Kind,
    pub(crate) then: Figure,
    /// `None` if it was not measured.
    pub(crate) now: Option<Figure>,
}

/// Compares every figure of the earlier table with the later one.
pub fn compare<I: Ord + Clone>(
    then: &BTreeMap<(I, Kind), Option<Figure>>,
    now: &BTreeMap<(I, Kind), Option<Figure>>,
) -> Vec<Compared<I>> {
    let of_both = then.iter().filter_map(|(key, then)| {
        let (identity, kind) = key.clone();
        Some(Compared { identity, kind, then: (*then)?, now: now.get(key).copied().flatten() })
    });
    of_both.collect()
}

impl<I> Compared<I> {
    /// Returns how much worse the later figure is, per cent of the earlier one; `None` if there is none.
    pub(crate) fn percent_worse(&self) -> Option<f64> {
        Some(self.kind.percent_worse(self.then.value, self.now?.value))
    }

    /// Returns how far two such figures may differ by their own noise: half the spread of each, per cent.
    pub(crate) fn noise_percent(&self) -> f64 {
        let now = self.now.map_or(0.0, |now| now.spread_percent);
        (self.then.spread_percent + now) / 2.0
    }

    /// Returns true if the later figure is worse by more than is allowed.
    pub fn is_worse(&self, allowed: &Allowances) -> bool {
        let noise = self.noise_percent();
        self.now.is_some_and(|now| allowed.forbid(&self.kind, [self.then, now], noise))
    }

    /// Returns true if the earlier figure is worse by more than is allowed.
    pub fn is_better(&self, allowed: &Allowances) -> bool {
        let noise = self.noise_percent();
        self.now.is_some_and(|now| allowed.forbid(&self.kind, [now, self.then], noise))
    }
}

/// The loss of a figure that is not reported, per cent, by the part that the figure depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowances(pub(crate) [f64; 5]);

impl Default for Allowances {
    fn default() -> Self {
        Self(kind::LEAST_PERCENT)
    }
}

impl Allowances {
    fn forbid(&self, kind: &Kind, [then, now]: [Figure; 2], noise: f64) -> bool {
        let percent = kind.percent_worse(then.value, now.without_overhead(then).value);
        let [path, link, memory, processor, time] = self.0;
        match kind.decided_by {
            DecidedBy::Path => percent > path + noise,
            DecidedBy::Link => percent > link + noise,
            // These allowances already include scatter.
            DecidedBy::Memory => percent > memory.max(noise),
            DecidedBy::Processor => percent > processor.max(noise),
            DecidedBy::Time => percent > time && now.value - then.value > kind::LEAST_US,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::host::{HostCopy, HostWay};
    use model::status::{Ending, Status};
    use model::testing::host_copy;

    #[test]
    fn far_smaller_copies_may_be_slower_by_their_overhead() {
        let worse = |now, bytes| {
            let figure = |value, bytes| Figure { value, spread_percent: 0.0, bytes };
            let kind = Kind::reference(model::placement::Path::Direct);
            let (then, now) = (figure(394.0, 510 << 20), Some(figure(now, bytes)));
            Compared { identity: (), kind, then, now }.is_worse(&Allowances::default())
        };
        // As measured: 29 MiB in 89 us instead of 77.
        assert!(!worse(342.0, 29 << 20) && worse(342.0, 510 << 20));
        assert!(worse(300.0, 29 << 20) && worse(250.0, 16 << 20) && worse(60.0, 1 << 20));
    }

    #[test]
    fn of_nodes_the_best_counts_and_what_has_no_figure_is_known_to_lack_it() {
        let far = HostCopy { numa_node: Some(1), ..host_copy(0, 40.0) };
        let failed =
            HostCopy { ending: Ending::without(Status::Failed, None), ..host_copy(1, 55.0) };
        let measurements =
            Measurements { host: vec![far, host_copy(0, 55.0), failed], ..Measurements::default() };
        let found = table(&measurements);
        let of = |gpu| {
            let kind = Kind::of_host(HostWay::PINNED, 1);
            found[&(Ends::of_gpu(gpu), kind)].map(|figure| figure.value)
        };
        assert_eq!((of(0), of(1), found.len()), (Some(55.0), None, 2));
    }
}
