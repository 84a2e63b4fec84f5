//! The figures of a run as one table, and the one comparison of two such tables. A probe that is added to
//! `Measurements::each` is in the table with its main figure, if that is a rate or a time.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::host_figures::{self, DecidedBy, What};
use super::words;
use model::cell::{self, Measurement, Quantity};
use model::flow::{Endpoint, Setup};
use model::measurement::{Measurements, Probe};
use model::placement::Pair;

/// Source and destination of each flow, GPUs by index; `None` is the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ends(Vec<[Option<u32>; 2]>);

impl Ends {
    fn of(one: &dyn Measurement) -> Self {
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

const RATE: &str = "GB/s";
const TIME: &str = "us";

/// The kind of a figure, independent of its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bandwidth between GPUs, regardless of size.
    Pair(Setup),
    /// Copies, pipelines and calls of one GPU and the host.
    Host(What),
    /// The main figure of another probe.
    Other {
        probe: Probe,
        /// Its setup in words.
        what: String,
        unit: &'static str,
    },
}

impl Kind {
    /// Returns the kind of the rates of a probe's setup, in words.
    pub const fn of_rate(probe: Probe, what: String) -> Self {
        Self::Other { probe, what, unit: RATE }
    }

    /// Returns the kind of the times of a probe's setup, in words.
    pub const fn of_time(probe: Probe, what: String) -> Self {
        Self::Other { probe, what, unit: TIME }
    }

    /// Returns the kind of copies of this many GPUs with the host.
    pub const fn of_host(way: model::host::HostWay, at_once: u32) -> Self {
        Self::Host(What::Copy { way, at_once })
    }

    pub(crate) fn unit(&self) -> &'static str {
        match self {
            Self::Pair(_) => RATE,
            Self::Host(what) if what.kind() == DecidedBy::Time => TIME,
            Self::Host(_) => RATE,
            Self::Other { unit, .. } => unit,
        }
    }

    /// Returns true if lower figures are better.
    pub(crate) fn is_time(&self) -> bool {
        self.unit() != RATE
    }

    /// Returns the part that the figure depends on most; `None` for the path between two GPUs.
    pub(crate) fn decided_by(&self) -> Option<DecidedBy> {
        match self {
            Self::Pair(_) => None,
            Self::Host(what) => Some(what.kind()),
            Self::Other { .. } if self.is_time() => Some(DecidedBy::Time),
            // A ring both ways reached 792 to 1554 GB/s on one machine (4 x H200), depending on the order of its copies.
            Self::Other { probe: Probe::Load, .. } => Some(DecidedBy::Processor),
            // Chosen: it is not known how far all probes repeat.
            Self::Other { .. } => Some(DecidedBy::Memory),
        }
    }

    /// Returns the probe's name, as files of expectations have it.
    pub(crate) fn probe(&self) -> String {
        match self {
            Self::Pair(_) => Probe::Bandwidth.to_string(),
            Self::Host(_) => Probe::Host.to_string(),
            Self::Other { probe, .. } => probe.to_string(),
        }
    }

    /// Returns how much worse the later value is, per cent of the earlier one; negative if it is better.
    pub(crate) fn percent_worse(&self, then: f64, now: f64) -> f64 {
        let below = 100.0 * (then - now) / then;
        if self.is_time() { -below } else { below }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair(setup) if *setup == Setup::REFERENCE.with_path(setup.path) => {
                write!(f, "{}", setup.path)
            }
            Self::Pair(setup) => write!(
                f,
                "{} copies, {}, issued by {}, {}, {}",
                setup.engine, setup.path, setup.issuer, setup.direction, setup.placement
            ),
            Self::Host(what) => write!(f, "{what}"),
            Self::Other { what, .. } => f.write_str(what),
        }
    }
}

/// A figure: decimal GB/s, or a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// The spread of its samples, per cent.
    pub spread_percent: f64,
}

/// Identifies a figure within a report.
pub(crate) type Identity = (Ends, Kind);

/// The figures of a run; `None` if one was to be measured and has no sound figure.
pub(crate) type Table = BTreeMap<Identity, Option<Figure>>;

/// Returns all figures of a run. Of several NUMA nodes and sizes the best one counts: the most that a path carries.
pub(crate) fn table(measurements: &Measurements) -> Table {
    let mut table = Table::new();
    let mut add = |identity: Identity, value: Option<f64>, spread: Option<f64>| {
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
            *known = Some(Figure { value, spread_percent: spread.unwrap_or_default() });
        }
    };
    for cell in &measurements.peer {
        let kind = Kind::Pair(cell.setup.of_any_size());
        let rate = cell.achieved_gbps.filter(|_| is_sound(cell));
        add((cell.pair.into(), kind), rate.map(|rate| rate.0), cell.spread_percent);
    }
    host_figures::each(measurements, |gpu, what, value, spread| {
        add((Ends::of_gpu(gpu), Kind::Host(what)), value, spread);
    });
    let others = measurements.each().filter(|one| !has_own_kind(one.probe()));
    for one in others {
        let figures = one.figures();
        let Some((main, unit)) = figures.first().and_then(|main| Some((main, unit(main)?))) else {
            continue;
        };
        let kind = Kind::Other { probe: one.probe(), what: one.what_of_any_size(), unit };
        let spread = figures.iter().find(|figure| figure.key == "spread_percent");
        let value = main.value.filter(|_| is_sound(one));
        add((Ends::of(one), kind), value, spread.and_then(|spread| spread.value));
    }
    table
}

/// Returns the same of a run that may have measured nothing.
pub(crate) fn table_of(measurements: Option<&Measurements>) -> Table {
    measurements.map(table).unwrap_or_default()
}

/// Returns true for the probes whose figures have a kind that is more than words.
const fn has_own_kind(probe: Probe) -> bool {
    matches!(
        probe,
        Probe::Bandwidth | Probe::Host | Probe::Pipeline | Probe::Calls | Probe::LaunchLoop
    )
}

fn is_sound(one: &dyn Measurement) -> bool {
    let cell = one.cell();
    cell.tested() && !cell.verified.is_wrong()
}

/// Returns the unit of a rate or a time. Shares, factors and indices have no better side that holds for all probes.
fn unit(figure: &cell::Figure) -> Option<&'static str> {
    match figure.quantity {
        Quantity::Rate => Some(RATE),
        Quantity::Duration => Some(TIME),
        Quantity::Amount if figure.key.ends_with("_us") => Some(TIME),
        Quantity::Amount if figure.key.ends_with("_ms_per_gib") => Some("ms per GiB"),
        _ => None,
    }
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
        let Some(now) = self.now else {
            return false;
        };
        allowed.forbid(&self.kind, self.then.value, now.value, self.noise_percent())
    }

    /// Returns true if the earlier figure is worse by more than is allowed.
    pub fn is_better(&self, allowed: &Allowances) -> bool {
        let Some(now) = self.now else {
            return false;
        };
        allowed.forbid(&self.kind, now.value, self.then.value, self.noise_percent())
    }
}

/// The loss of a figure that is not reported, per cent, by the part that the figure depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allowances {
    /// For copies between GPUs.
    pub(crate) pair: f64,
    pub(crate) link: f64,
    pub(crate) memory: f64,
    pub(crate) processor: f64,
    pub(crate) time: f64,
}

impl Default for Allowances {
    fn default() -> Self {
        Self {
            pair: host_figures::PAIR_PERCENT,
            link: host_figures::LINK_PERCENT,
            memory: host_figures::MEMORY_PERCENT,
            processor: host_figures::PROCESSOR_PERCENT,
            time: 100.0 * (host_figures::TIMES - 1.0),
        }
    }
}

impl Allowances {
    fn forbid(&self, kind: &Kind, then: f64, now: f64, noise: f64) -> bool {
        let percent = kind.percent_worse(then, now);
        match kind.decided_by() {
            None => percent > self.pair + noise,
            Some(DecidedBy::Link) => percent > self.link + noise,
            // These allowances already include scatter.
            Some(DecidedBy::Memory) => percent > self.memory.max(noise),
            Some(DecidedBy::Processor) => percent > self.processor.max(noise),
            Some(DecidedBy::Time) => percent > self.time && now - then > host_figures::LEAST_US,
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
    fn of_nodes_the_best_counts_and_what_has_no_figure_is_known_to_lack_it() {
        let far = HostCopy { numa_node: Some(1), ..host_copy(0, 40.0) };
        let failed =
            HostCopy { ending: Ending::without(Status::Failed, None), ..host_copy(1, 55.0) };
        let measurements =
            Measurements { host: vec![far, host_copy(0, 55.0), failed], ..Measurements::default() };
        let found = table(&measurements);
        let of = |gpu| {
            let what = What::Copy { way: HostWay::PINNED, at_once: 1 };
            found[&(Ends::of_gpu(gpu), Kind::Host(what))].map(|figure| figure.value)
        };
        assert_eq!((of(0), of(1), found.len()), (Some(55.0), None, 2));
    }
}
