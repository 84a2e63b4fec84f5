//! Copies between host memory and GPUs, and the cost of page-locking: figures over all GPUs, and their tables.

use std::collections::BTreeSet;

use super::figures::{Spread, count};
use super::matrix::{Cell, Table};
use super::page::{Page, Paint};
use super::pair_figures::Figures;
use super::tables::{done_cell, median, or_dash, spread_cells};
use model::host::{HostCopy, HostDirection, HostWay, Pinning};
use model::measurement::Measurements;
use model::rounding::{percent, range, rate, short};

/// Difference of rates, in per cent, below which NUMA nodes count as alike. Repeats spread by as much (cuda-samples
/// issue 449).
const ALIKE_PERCENT: f64 = 5.0;

/// Figures of one kind of host copy, over all GPUs that made such copies.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    pub(super) way: HostWay,
    /// Number of GPUs that copied at the same time; 1 means each alone.
    pub(super) at_once: u32,
    /// Number of GPUs in the plan.
    pub(super) planned: usize,
    /// GB/s of one GPU in one direction. With several NUMA nodes, the best of each GPU.
    pub(super) rates: Option<Spread>,
    /// Sum of the rates, GB/s, if every GPU has a figure.
    pub(super) sum: Option<f64>,
    /// Achieved as per cent of theoretical.
    percents: Option<Spread>,
    /// The lowest and the highest expected rate, GB/s.
    pub(super) expected: Option<[f64; 2]>,
    /// The lowest rate and its GPU, as `6.8, GPU 5`, if the median hides it.
    pub(super) lowest: Option<String>,
}

impl Ways {
    /// Returns all kinds of a report in its order, each alone and at once.
    pub(super) fn of(measurements: &Measurements) -> Vec<Self> {
        let mut keys: Vec<(HostWay, u32)> = Vec::new();
        for copy in &measurements.host {
            if !keys.contains(&(copy.way(), copy.at_once)) {
                keys.push((copy.way(), copy.at_once));
            }
        }
        keys.into_iter().map(|(way, at_once)| Self::of_way(measurements, way, at_once)).collect()
    }

    /// Returns the sum of the same copies by each GPU alone.
    pub(super) fn alone(&self, ways: &[Self]) -> Option<f64> {
        let same = |way: &&Self| way.at_once == 1 && way.way == self.way;
        let sum = ways.iter().find(same)?.sum;
        sum.filter(|sum| *sum > 0.0)
    }

    fn of_way(measurements: &Measurements, way: HostWay, at_once: u32) -> Self {
        let cells =
            || measurements.host.iter().filter(|copy| (copy.way(), copy.at_once) == (way, at_once));
        let gpus: BTreeSet<u32> = cells().map(|copy| copy.gpu).collect();
        let best = |gpu: &u32| {
            let of_gpu = cells()
                .filter(|copy| copy.gpu == *gpu)
                .filter_map(|copy| Some((copy, copy.rate()?.0)));
            of_gpu.max_by(|(_, one), (_, other)| one.total_cmp(other))
        };
        let best: Vec<(&HostCopy, f64)> = gpus.iter().filter_map(best).collect();
        let figures = Figures::of(best.iter().map(|(copy, _)| *copy));
        let lowest = best.iter().min_by(|(_, one), (_, other)| one.total_cmp(other));
        let lowest = lowest.filter(|_| figures.lowest.is_some());
        let lowest = lowest.map(|(copy, least)| format!("{}, GPU {}", rate(*least), copy.gpu));
        Self {
            way,
            at_once,
            planned: gpus.len(),
            rates: figures.rates,
            sum: (best.len() == gpus.len()).then(|| best.iter().map(|(_, rate)| *rate).sum()),
            percents: figures.percents,
            expected: figures.expected,
            lowest,
        }
    }

    /// Returns `pinned, to device; 8 GPUs at once`.
    pub(super) fn label(&self) -> String {
        let at_once = if self.at_once > 1 {
            format!("; {} GPUs at once", self.at_once)
        } else {
            String::new()
        };
        format!("{}{at_once}", self.way)
    }
}

/// Returns a summary if no GPU copies to another: `Pinned copies reach 55.3 GB/s to device and 55.1 GB/s to host, 88%
/// of theoretical`.
pub(super) fn summary(measurements: &Measurements) -> Option<String> {
    let ways: Vec<Ways> = [HostDirection::ToDevice, HostDirection::ToHost]
        .map(|direction| Ways::of_way(measurements, HostWay::PINNED.with_direction(direction), 1))
        .into_iter()
        .filter(|way| way.rates.is_some())
        .collect();
    let text = |way: &Ways| {
        let rates = way.rates?;
        Some(format!("{} GB/s {}", range(rates.min, rates.max, rate, " to "), way.way.direction))
    };
    let all: Vec<String> = ways.iter().filter_map(text).collect();
    let shares = Spread::of(
        ways.iter().filter_map(|way| way.percents).flat_map(|share| [share.min, share.max]),
    );
    let share = shares
        .map(|share| format!(", {}% of theoretical", range(share.min, share.max, percent, " to ")));
    (!all.is_empty())
        .then(|| format!("Pinned copies reach {}{}", all.join(" and "), share.unwrap_or_default()))
}

/// Writes all tables about host copies.
pub(super) fn write(page: &mut Page, measurements: &Measurements) {
    copies(page, measurements);
    nodes(page, measurements);
    pinning(page, &measurements.pinning);
}

/// Writes one row for each kind of copy over all GPUs; on request also one for each GPU.
pub(super) fn copies(page: &mut Page, measurements: &Measurements) {
    let ways = Ways::of(measurements);
    if ways.is_empty() {
        return;
    }
    page.heading("Copies between host and GPU, each direction, over all GPUs");
    let mut table = Table::of_figures(7);
    table.captions(["", "", "GB/s", "", "% of", "GB/s", ""]);
    table.captions([
        "host memory, direction",
        "min",
        "median",
        "max",
        "theory",
        "expected",
        "GPUs",
    ]);
    for way in &ways {
        let mut cells = vec![Cell::from(way.label())];
        cells.extend(spread_cells(way.rates, rate));
        cells.push(median(way.percents, percent));
        cells.push(or_dash(way.expected.map(|[low, high]| range(low, high, rate, "-"))));
        cells.push(done_cell(way.rates, way.planned));
        table.row(cells);
        if page.verbose() {
            of_each_gpu(&mut table, measurements, way);
        }
    }
    page.table(table);
    for (label, sentence) in sums(&ways) {
        page.item(2, 11, label, Paint::Strong, &sentence);
    }
    let alone = ways.iter().filter(|way| way.at_once == 1);
    let lowest = alone.filter_map(|way| Some(format!("{} {}", way.way, way.lowest.as_ref()?)));
    let lowest: Vec<String> = lowest.collect();
    if !lowest.is_empty() {
        page.item(2, 11, "lowest", Paint::Warning, &lowest.join("; "));
    }
    let limits = limits(measurements);
    if !limits.is_empty() {
        page.item(2, 11, "limit", Paint::Strong, &limits);
    }
}

fn of_each_gpu(table: &mut Table, measurements: &Measurements, way: &Ways) {
    let cells = measurements
        .host
        .iter()
        .filter(|copy| (copy.way(), copy.at_once) == (way.way, way.at_once));
    for copy in cells {
        let node = copy.numa_node.map(|node| format!(", node {node}")).unwrap_or_default();
        let share = copy.percent.filter(|_| copy.rate().is_some()).map(percent);
        table.row([
            Cell::from(format!("  GPU{}{node}", copy.gpu)),
            Cell::default(),
            or_dash(copy.rate().map(|achieved| rate(achieved.0))),
            Cell::default(),
            or_dash(share),
        ]);
    }
}

/// Compares the sum of GPUs that copy at once with the sum of GPUs that copy alone.
fn sums(ways: &[Ways]) -> Vec<(&'static str, String)> {
    let together = ways.iter().filter(|way| way.at_once > 1);
    let text = |way: &Ways| {
        let sum = way.sum?;
        let beside = way.alone(ways).map(|alone| {
            format!(", {}% of {} one at a time", percent(100.0 * sum / alone), rate(alone))
        });
        Some(format!("{}: {} GB/s in all{}", way.label(), rate(sum), beside.unwrap_or_default()))
    };
    together.filter_map(text).map(|text| ("sum", text)).collect()
}

/// Returns the narrowest hops of GPUs that copied alone: `GPU 0's slot 0000:03:00.0 (Gen4 x16)`. Several GPUs with the
/// same limit appear as a number.
fn limits(measurements: &Measurements) -> String {
    let mut rates: Vec<(f64, BTreeSet<u32>, &str)> = Vec::new();
    for copy in measurements.host.iter().filter(|copy| copy.at_once == 1) {
        let Some((theory, hop)) = copy.theoretical_gbps.zip(copy.bottleneck.as_deref()) else {
            continue;
        };
        match rates.iter_mut().find(|(known, ..)| (*known - theory.0).abs() < f64::EPSILON) {
            Some((_, gpus, _)) => drop(gpus.insert(copy.gpu)),
            None => rates.push((theory.0, BTreeSet::from([copy.gpu]), hop)),
        }
    }
    rates.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let text = |(theory, gpus, hop): &(f64, BTreeSet<u32>, &str)| match gpus.len() {
        1 => format!("{} GB/s, {hop}", rate(*theory)),
        many => format!("{} GB/s for {}, such as {hop}", rate(*theory), count(many, "GPU")),
    };
    rates.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// Writes the rates of each GPU with each NUMA node, if several nodes were measured.
fn nodes(page: &mut Page, measurements: &Measurements) {
    if let Some((table, apart)) = by_node(measurements) {
        show_nodes(page, table, apart);
    }
}

/// Like [`nodes`], but only if the node makes a difference.
pub(super) fn apart(page: &mut Page, measurements: &Measurements) {
    if let Some((table, apart)) = by_node(measurements).filter(|(_, apart)| *apart >= ALIKE_PERCENT)
    {
        show_nodes(page, table, apart);
    }
}

fn show_nodes(page: &mut Page, table: Table, apart: f64) {
    page.heading("Pinned copies by the NUMA node of the host's memory, to device / to host, GB/s");
    page.table(table);
    let difference =
        if apart < ALIKE_PERCENT { "makes no difference here" } else { "makes a difference" };
    page.note(Paint::Faint, &format!("the node {difference}: up to {}%", percent(apart)));
}

/// Returns the table and the largest difference between nodes, in per cent.
fn by_node(measurements: &Measurements) -> Option<(Table, f64)> {
    let cells = || measurements.host.iter().filter(|copy| copy.at_once == 1);
    let all: BTreeSet<u32> = cells().filter_map(|copy| copy.numa_node).collect();
    let ways = [HostDirection::ToDevice, HostDirection::ToHost]
        .map(|one| HostWay::PINNED.with_direction(one));
    let of = |gpu: u32, node: u32, way: HostWay| {
        let mut found =
            cells().filter(|copy| (copy.gpu, copy.numa_node, copy.way()) == (gpu, Some(node), way));
        found.find_map(|copy| Some(copy.rate()?.0))
    };
    let gpus: BTreeSet<u32> = cells().map(|copy| copy.gpu).collect();
    let has_several =
        |gpu: &&u32| all.iter().filter(|node| of(**gpu, **node, ways[0]).is_some()).count() > 1;
    let shown: Vec<u32> = gpus.iter().filter(has_several).copied().collect();
    if shown.is_empty() {
        return None;
    }
    let mut table = Table::of_figures(all.len() + 1);
    table.head_row(
        [Cell::default()]
            .into_iter()
            .chain(all.iter().map(|node| Cell::from(format!("node {node}")))),
    );
    let mut apart: f64 = 0.0;
    for gpu in shown {
        let mut row = vec![Cell::from(format!("GPU{gpu}"))];
        for node in &all {
            let both = ways.map(|way| of(gpu, *node, way).map_or_else(|| "-".to_owned(), rate));
            row.push(Cell::from(both.join(" / ")));
        }
        table.row(row);
        for way in ways {
            let spread = Spread::of(all.iter().filter_map(|node| of(gpu, *node, way)));
            apart = apart.max(spread.map_or(0.0, |spread| 100.0 - 100.0 * spread.min / spread.max));
        }
    }
    Some((table, apart))
}

/// Writes the cost of page-locking for each NUMA node.
fn pinning(page: &mut Page, nodes: &[Pinning]) {
    let Some(first) = nodes.first() else { return };
    page.heading(&format!("Page-locking {} of the host's memory, ms per GiB", first.bytes));
    let mut table = Table::of_figures(5);
    table.captions(["", "allocate", "free", "register", "unregister"]);
    for node in nodes {
        let name =
            node.numa_node.map_or_else(|| "host".to_owned(), |node| format!("NUMA node {node}"));
        let times = [
            node.allocate_ms_per_gib,
            node.free_ms_per_gib,
            node.register_ms_per_gib,
            node.unregister_ms_per_gib,
        ];
        let times = times.map(|time| or_dash(time.map(short)));
        table.row([Cell::from(name)].into_iter().chain(times));
    }
    page.table(table);
    if let Some((pinned, copied)) = first.allocating_takes_bytes.zip(first.copying_takes_bytes) {
        let text = format!(
            "{pinned} where {} are allocated pinned, {copied} where a pinned copy is made of them",
            first.bytes
        );
        page.item(2, 11, "takes", Paint::Strong, &text);
    }
    for node in nodes {
        let texts: Vec<String> = node.ending.reason.iter().chain(&node.limit).cloned().collect();
        if !texts.is_empty() {
            page.note(Paint::Plain, &texts.join("; "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Style;
    use crate::text;
    use model::units::GbPerSecond;

    fn shown(measurements: &Measurements, verbose: bool) -> String {
        let mut page = Page::new(verbose);
        write(&mut page, measurements);
        text::lay_out(&page, &Style { width: 100, ..Style::PLAIN })
    }

    #[test]
    fn ways_sums_limits_and_pinning_are_shown() {
        let measurements = sample::healthy(8).measurements.unwrap();
        let text = shown(&measurements, false).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "pinned, to device",
            "pageable, to host",
            "pinned, to device; 8 GPUs at once: 149 GB/s in all, 34% of 443 one at a time",
            "63.0 GB/s for 8 GPUs, such as GPU 0's slot",
            "Page-locking 64 MiB of the host's memory, ms per GiB",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!text.contains("GPU7") && shown(&measurements, true).contains("GPU7"), "{text}");
        assert_eq!(shown(&Measurements::default(), true), "");
    }

    #[test]
    fn nodes_are_compared_and_said_to_be_alike() {
        let mut measurements = sample::healthy(2).measurements.unwrap();
        let mut far: Vec<HostCopy> = measurements.host.clone();
        measurements.host.iter_mut().for_each(|copy| copy.numa_node = Some(0));
        far.iter_mut().for_each(|copy| copy.numa_node = Some(1));
        measurements.host.extend(far.clone());
        assert!(shown(&measurements, false).contains("makes no difference here: up to 0%"));
        for copy in measurements.host.iter_mut().filter(|copy| copy.numa_node == Some(1)) {
            copy.achieved_gbps = copy.achieved_gbps.map(|rate| GbPerSecond(rate.0 * 0.75));
        }
        let text = shown(&measurements, false);
        assert!(text.contains("makes a difference: up to 25%"), "{text}");
    }
}
