//! The figures of a report by kind.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::kind::{Ends, Method, Metric, Point};
use model::cell::Measurement;
use model::counted::Counted;
use model::host::HostCopy;
use model::links::SingleLink;
use model::live::{LiveTalk, Phase, PointerChase};
use model::load::LoadPattern;
use model::measurement::{Latency, LocalCopy, Measurements, PeerBandwidth, Tables};
use model::placement::{Pair, Placement};
use model::rounding::four_places;
use model::topology::LinkClass;
use model::units::GbPerSecond;

/// Figures under construction.
pub(super) struct Points {
    classes: HashMap<Pair, LinkClass>,
    numa: HashMap<u32, Option<u32>>,
    /// Each kind once.
    pub(super) kinds: Vec<Metric>,
    pub(super) figures: Vec<Point>,
}

impl Points {
    /// Collects the figures of a report whose pairs have these classes and whose GPUs are at these NUMA nodes.
    pub(super) fn of(
        measured: Option<&Measurements>,
        classes: HashMap<Pair, LinkClass>,
        numa: HashMap<u32, Option<u32>>,
    ) -> Self {
        let mut figures = Self { classes, numa, kinds: Vec::new(), figures: Vec::new() };
        if let Some(measured) = measured {
            let Tables {
                peer,
                latency,
                local,
                host,
                load,
                overlap: _,
                contention: _,
                pinning: _,
                pipeline: _,
                engines: _,
                calls: _,
                launch_loop: _,
                live,
                chase,
                hazard: _,
                sharing: _,
                nvlinks,
                addresses: _,
            } = measured.tables();
            peer.iter().for_each(|cell| figures.peer(cell));
            latency.iter().for_each(|cell| figures.latency(cell));
            live.iter().for_each(|cell| figures.live(cell));
            chase.iter().for_each(|cell| figures.chase(cell));
            local.iter().for_each(|cell| figures.local(cell));
            host.iter().for_each(|cell| figures.host(cell));
            load.iter().for_each(|cell| figures.load(cell));
            figures.single_links(nvlinks);
            let counted = measured.counted.iter();
            counted.for_each(|cell| figures.counted(cell));
        }
        figures
    }

    fn peer(&mut self, cell: &PeerBandwidth) {
        let setup = cell.setup;
        if setup.placement != Placement::REFERENCE {
            return;
        }
        let what = Method::Peer {
            path: setup.path,
            direction: setup.direction,
            engine: setup.engine,
            issuer: setup.issuer,
        };
        let value = cell.achieved_gbps.filter(|_| cell.is_sound());
        self.add(
            what,
            cell.pair,
            setup.bytes.0,
            gbps(value),
            cell.healthy_percent.or(cell.percent),
        );
    }

    fn latency(&mut self, cell: &Latency) {
        let what = Method::Latency { path: cell.path };
        let value = cell.latency_us.filter(|_| cell.is_sound());
        self.add(what, cell.pair, cell.bytes.0, value, None);
    }

    /// Adds the round trips of single flags. Exchanges of lines and data take longer by what they carry.
    fn live(&mut self, cell: &LiveTalk) {
        for (phase, us) in [(Phase::Push, cell.push_us), (Phase::Pull, cell.pull_us)] {
            let value = us.filter(|_| cell.is_sound());
            self.add(Method::Live { phase }, cell.pair, 0, value, None);
        }
    }

    fn chase(&mut self, cell: &PointerChase) {
        let what = Method::Chase { memory: cell.memory };
        let pair = Pair { source: cell.of_gpu.unwrap_or(cell.gpu), destination: cell.gpu };
        self.add(what, pair, 0, cell.load_us.filter(|_| cell.is_sound()), None);
    }

    /// Adds the slowest NVLink of each pair, as a share of their median.
    fn single_links(&mut self, cells: &[SingleLink]) {
        let mut of_pair: BTreeMap<Pair, Vec<f64>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.is_sound()) {
            of_pair.entry(cell.pair).or_default().extend(gbps(cell.load_gbps));
        }
        for (pair, mut rates) in of_pair {
            rates.sort_by(f64::total_cmp);
            let share = rates.get(rates.len() / 2).map(|median| 100.0 * rates[0] / median);
            self.add(Method::SlowestLink, pair, 0, share, None);
        }
    }

    fn local(&mut self, cell: &LocalCopy) {
        let value = cell.achieved_gbps.filter(|_| cell.is_sound());
        self.add(Method::Local, alone(cell.gpu), cell.bytes.0, gbps(value), None);
    }

    fn host(&mut self, cell: &HostCopy) {
        let near = match (self.numa.get(&cell.gpu).copied().flatten(), cell.numa_node) {
            (Some(own), Some(node)) if own == node => Some("near"),
            (Some(_), Some(_)) => Some("far"),
            _ => None,
        };
        let mut setup =
            vec![word(cell.memory), word(cell.direction), word(cell.engine), word(cell.allocation)];
        setup.extend(near.map(str::to_owned));
        setup.extend((cell.at_once > 1).then(|| format!("{} at once", cell.at_once)));
        let (what, gpu) = (Method::Host(setup.join(", ")), alone(cell.gpu));
        self.add(what, gpu, cell.bytes.0, gbps(cell.rate()), cell.healthy_percent.or(cell.percent));
    }

    fn load(&mut self, cell: &LoadPattern) {
        let kind = Metric { what: Method::Load(cell.name()), class: None, bytes: cell.bytes.0 };
        self.put(kind, Ends::Machine, gbps(cell.rate()), cell.healthy_percent.or(cell.percent));
    }

    /// Adds the counts of NVLinks alone: PCIe counters are lower bounds.
    fn counted(&mut self, cell: &Counted) {
        let name = cell.name();
        let ways = [
            (
                "sent",
                cell.nvlink_sent_bytes,
                cell.sent_bytes,
                least(cell.links.iter().map(|link| link.sent_percent)),
            ),
            (
                "received",
                cell.nvlink_received_bytes,
                cell.received_bytes,
                least(cell.links.iter().map(|link| link.received_percent)),
            ),
        ];
        let gpu = alone(cell.gpu);
        for (way, counted, known, least) in ways.into_iter().filter(|(_, _, known, _)| known.0 > 0)
        {
            #[allow(clippy::cast_precision_loss, reason = "sizes stay far below 2^53")]
            let share = counted
                .map(|counted| 100.0 * counted.0 as f64 / known.0 as f64)
                .filter(|_| !cell.disturbed);
            let least = least.filter(|_| !cell.disturbed);
            let setup = format!("{name}, {way}");
            self.add(Method::Counted(setup.clone()), gpu, 0, share, None);
            self.add(Method::LeastLink(setup), gpu, 0, least, None);
        }
    }

    fn add(
        &mut self,
        what: Method,
        pair: Pair,
        bytes: u64,
        value: Option<f64>,
        percent: Option<f64>,
    ) {
        let (Ok(from), Ok(to)) = (u16::try_from(pair.source), u16::try_from(pair.destination))
        else {
            return;
        };
        let class = self.classes.get(&pair).copied();
        self.put(Metric { what, class, bytes }, Ends::Gpus(from, to), value, percent);
    }

    fn put(&mut self, kind: Metric, ends: Ends, value: Option<f64>, percent: Option<f64>) {
        let place = self.kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        });
        let Ok(kind) = u16::try_from(place) else {
            return;
        };
        let value = value.and_then(figure);
        let percent = percent.and_then(figure).filter(|_| value.is_some());
        self.figures.push(Point { kind, ends, value, percent });
    }
}

/// Returns the pair that stands for one GPU.
const fn alone(gpu: u32) -> Pair {
    Pair { source: gpu, destination: gpu }
}

fn gbps(rate: Option<GbPerSecond>) -> Option<f64> {
    rate.map(|rate| rate.0)
}

/// Returns the share of the least used link, with an equal share as 100. Returns `None` for one link, or if a share is
/// not known.
fn least(shares: impl ExactSizeIterator<Item = Option<f64>>) -> Option<f64> {
    let links = u32::try_from(shares.len()).ok().filter(|links| *links > 1)?;
    let shares: Vec<f64> = shares.collect::<Option<_>>()?;
    let least = shares.into_iter().min_by(f64::total_cmp)?;
    Some(least * f64::from(links))
}

/// Returns the value, rounded as in the report, if it can be measured: finite and positive.
#[allow(
    clippy::cast_possible_truncation,
    reason = "seven digits are more than any measurement has"
)]
fn figure(value: f64) -> Option<f32> {
    Some(four_places(value) as f32).filter(|value| value.is_finite() && *value > 0.0)
}

/// Returns the word for a unit variant, as in the rest of the report.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
