//! Machines with more GPUs than a matrix can show. GPUs with the same connections form a group, figures are by kind of
//! link, and slow pairs are named.

use std::collections::{BTreeMap, HashMap};

use super::digest::Digest;
use super::figures::{Spread, count, ranges};
use super::marks::{self, Figure};
use super::matrix::{Align, Cell, Table};
use super::page::{Page, Paint};
use super::pair_figures::Figures;
use super::paths;
use model::flow::Setup;
use model::measurement::PeerBandwidth;
use model::placement::{Pair, Path};
use model::report::Report;
use model::rounding::{percent, range, rate};
use model::snapshot::NumaNode;
use model::topology::LinkClass;

/// Most GPUs in a matrix. A larger matrix takes several blocks on a wide terminal, and pages on a narrow one.
const MOST_IN_MATRIX: usize = 16;

/// Most pairs that are named; the rest is counted.
const SHOWN: usize = 8;

/// Share of the median of its kind below which a pair is named. Repeated measurements differ by 5 to 10% (cuda-samples
/// issue 449).
const BEHIND: f64 = 0.9;

/// Returns true if these GPUs are too many for a matrix.
pub(super) const fn is_one<T>(gpus: &[T]) -> bool {
    gpus.len() > MOST_IN_MATRIX
}

/// Link class by ordered pair.
type Classes = HashMap<(u32, u32), LinkClass>;

fn class(classes: &Classes, source: u32, destination: u32) -> LinkClass {
    classes.get(&(source, destination)).copied().unwrap_or(LinkClass::Unknown)
}

fn by_pair(report: &Report) -> Classes {
    let routes = report.topology.pairs.iter();
    routes.map(|route| ((route.pair.source, route.pair.destination), route.class)).collect()
}

/// Groups the GPUs whose members have the same class to and from every other GPU.
fn groups(classes: &Classes, gpus: &[u32]) -> Vec<Vec<u32>> {
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for &gpu in gpus {
        let alike = |group: &&mut Vec<u32>| {
            group.first().is_some_and(|&first| {
                let others = gpus.iter().filter(|&&other| other != gpu && other != first);
                others.into_iter().all(|&other| {
                    class(classes, gpu, other) == class(classes, first, other)
                        && class(classes, other, gpu) == class(classes, other, first)
                })
            })
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(gpu),
            None => groups.push(vec![gpu]),
        }
    }
    groups
}

/// Writes the groups of GPUs in place of the class matrix.
pub(super) fn classes(page: &mut Page, report: &Report, gpus: &[u32]) {
    if in_groups(page, report, gpus) {
        page.note(
            Paint::Faint,
            "GPUs of a group have the same connections to all others; the diagonal is within the group",
        );
    }
}

/// Writes the groups without explaining them. Returns true if they are in a table.
pub(super) fn in_groups(page: &mut Page, report: &Report, gpus: &[u32]) -> bool {
    let classes = by_pair(report);
    let groups = groups(&classes, gpus);
    let within = |group: &[u32]| match group {
        [first, second, ..] => Cell::from(class(&classes, *first, *second).to_string()),
        _ => Cell::new("X", Paint::Faint),
    };
    match groups.as_slice() {
        [all] if all.len() > 1 => {
            let class = class(&classes, all[0], all[1]);
            page.note(
                Paint::Plain,
                &format!("{class} from any of GPU {} to any other", ranges(all)),
            );
        }
        groups if groups.len() <= MOST_IN_MATRIX => {
            let mut table = Table::new(1, vec![Align::Left; groups.len() + 1]);
            let names: Vec<_> =
                groups.iter().map(|group| format!("GPU {}", ranges(group))).collect();
            table.row(std::iter::once(Cell::default()).chain(names.iter().map(Cell::from)));
            for (row, (from, name)) in groups.iter().zip(&names).enumerate() {
                let cells = groups.iter().enumerate().map(|(column, to)| {
                    if row == column {
                        within(from)
                    } else {
                        class(&classes, from[0], to[0]).to_string().into()
                    }
                });
                table.row(std::iter::once(Cell::from(name)).chain(cells));
            }
            page.table(table);
            return true;
        }
        _ => partners(page, &classes, gpus),
    }
    false
}

/// Writes how many other GPUs each GPU reaches by each class. Used if there are many groups too.
fn partners(page: &mut Page, classes: &Classes, gpus: &[u32]) {
    let mut by_class: BTreeMap<LinkClass, Vec<usize>> = BTreeMap::new();
    for &gpu in gpus {
        let mut counts: BTreeMap<LinkClass, usize> = BTreeMap::new();
        for &other in gpus.iter().filter(|&&other| other != gpu) {
            *counts.entry(class(classes, gpu, other)).or_default() += 1;
        }
        for (class, count) in counts {
            by_class.entry(class).or_default().push(count);
        }
    }
    for (class, counts) in by_class {
        let (least, most) =
            (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        let others =
            if least == most { count(most, "other") } else { format!("{least} to {most} others") };
        let who = if counts.len() == gpus.len() {
            "each GPU".to_owned()
        } else {
            count(counts.len(), "GPU")
        };
        page.item(2, 8, &class.to_string(), Paint::Strong, &format!("from {who} to {others}"));
    }
}

/// Writes the NUMA nodes, those of the same size in one line.
pub(super) fn numa_nodes(page: &mut Page, report: &Report) {
    let mut by_size: Vec<(Vec<u32>, &NumaNode)> = Vec::new();
    for node in &report.snapshot.numa_nodes {
        match by_size.iter_mut().find(|(_, known)| known.memory_bytes == node.memory_bytes) {
            Some((nodes, _)) => nodes.push(node.node),
            None => by_size.push((vec![node.node], node)),
        }
    }
    for (nodes, node) in by_size {
        let local = |node: u32| {
            let gpus =
                report.snapshot.gpus.iter().filter(move |gpu| gpu.numa_node.get() == Some(node));
            gpus.count()
        };
        let gpus = Spread::of(
            nodes.iter().map(|&node| f64::from(u32::try_from(local(node)).unwrap_or(u32::MAX))),
        );
        let gpus = gpus.map_or(String::new(), |gpus| {
            let range = if gpus.min < gpus.max {
                format!("{} to {}", gpus.min, gpus.max)
            } else {
                gpus.max.to_string()
            };
            format!(", {range} of the GPUs")
        });
        let each = if nodes.len() > 1 { " each" } else { "" };
        page.item(
            2,
            14,
            &format!("NUMA {}", ranges(&nodes)),
            Paint::Faint,
            &format!("{}{gpus}{each}", node.memory_bytes),
        );
    }
}

/// Writes the theoretical rates by class.
pub(super) fn theoretical(page: &mut Page, report: &Report) {
    page.heading("Theoretical, by kind of link, GB/s");
    let mut table = Table::of_figures(4);
    table.captions(["", "min", "max", "pairs"]);
    let mut by_class: BTreeMap<LinkClass, Vec<Option<f64>>> = BTreeMap::new();
    for route in &report.topology.pairs {
        by_class.entry(route.class).or_default().push(route.theoretical_gbps.map(|rate| rate.0));
    }
    for (class, rates) in by_class {
        let spread = Spread::of(rates.iter().copied().flatten());
        let figure = |value: Option<f64>| {
            value.map_or_else(|| Cell::new("?", Paint::Faint), |value| rate(value).into())
        };
        table.row([
            Cell::from(class.to_string()),
            figure(spread.map(|spread| spread.min)),
            figure(spread.map(|spread| spread.max)),
            Cell::from(rates.len().to_string()),
        ]);
    }
    page.table(table);
}

/// Writes the PCIe paths without addresses, one line for all GPUs with the same path.
pub(super) fn pcie_paths(page: &mut Page, report: &Report) {
    let mut shapes: Vec<(Vec<u32>, paths::PathText)> = Vec::new();
    for gpu in &report.snapshot.gpus {
        let shape = paths::path_text(report, gpu, false);
        match shapes.iter_mut().find(|(_, known)| known.text == shape.text) {
            Some((gpus, _)) => gpus.push(gpu.index),
            None => shapes.push((vec![gpu.index], shape)),
        }
    }
    for (gpus, shape) in shapes {
        let paint = if shape.narrow { Paint::Warning } else { Paint::Plain };
        page.item(2, 14, &format!("GPU {}", ranges(&gpus)), paint, &shape.text);
    }
    page.note(Paint::Faint, "--verbose shows every GPU's own path");
}

/// Writes the rates of the pairs in the reference configuration by class, the pairs without a figure, and the slow
/// pairs.
pub(super) fn rates(page: &mut Page, digest: &Digest<'_>, gpus: &[u32]) {
    page.heading("Achieved, by kind of link, GB/s and % of theoretical");
    let mut kinds: BTreeMap<(LinkClass, Path), Vec<&PeerBandwidth>> = BTreeMap::new();
    let mut words: BTreeMap<&'static str, Vec<Pair>> = BTreeMap::new();
    for pair in Pair::ordered(gpus) {
        let cell = digest.pairs.get(&pair).copied();
        match (Figure::of(cell), cell) {
            (Figure::Word(word), _) => words.entry(word).or_default().push(pair),
            (_, cell) => kinds
                .entry((digest.class(pair), cell.map_or(Path::Direct, |cell| cell.setup.path)))
                .or_default()
                .extend(cell),
        }
    }
    let mut table = Table::of_figures(6);
    table.captions(["", "min", "median", "max", "% of theory", "pairs"]);
    let mut behind: Vec<(f64, &PeerBandwidth)> = Vec::new();
    for ((class, path), cells) in &kinds {
        let figures = Figures::of(cells.iter().copied());
        let Some(spread) = figures.rates else {
            continue;
        };
        let mut row = vec![Cell::from(format!(
            "{class}{}",
            if *path == Path::Staged { ", staged" } else { "" }
        ))];
        row.extend([spread.min, spread.median, spread.max].map(|value| Cell::from(rate(value))));
        row.push(figures.percents.map_or_else(
            || Cell::new("?", Paint::Faint),
            |percents| Cell::from(range(percents.min, percents.max, percent, "-")),
        ));
        row.push(Cell::from(cells.len().to_string()));
        table.row(row);
        let shares =
            cells.iter().filter_map(|cell| Some((cell.achieved_gbps?.0 / spread.median, *cell)));
        behind.extend(shares.filter(|(share, _)| *share < BEHIND));
    }
    page.table(table);
    page.note(Paint::Faint, &Setup::REFERENCE.to_string());
    behind.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (_, cell) in behind.iter().take(SHOWN) {
        let share = cell
            .percent
            .map_or(String::new(), |share| format!(", {}% of theoretical", percent(share)));
        let achieved = cell
            .achieved_gbps
            .map_or(String::new(), |achieved| format!("{} GB/s", rate(achieved.0)));
        page.item(2, 9, "slow", Paint::Warning, &format!("{}: {achieved}{share}", cell.pair));
    }
    if behind.len() > SHOWN {
        page.item(
            2,
            9,
            "slow",
            Paint::Warning,
            &format!("{} more", count(behind.len() - SHOWN, "pair")),
        );
    }
    for (word, pairs) in words {
        let mut named: Vec<_> = pairs.iter().take(SHOWN).map(ToString::to_string).collect();
        if pairs.len() > SHOWN {
            named.push(format!("{} more", count(pairs.len() - SHOWN, "pair")));
        }
        let text = format!("{}: {}", marks::meaning(word), named.join(", "));
        page.item(2, 9, word, marks::paint(word), &text);
    }
    page.note(Paint::Faint, "--verbose shows every pair");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(gpus: u32, class_of: impl Fn(u32, u32) -> LinkClass) -> (Classes, Vec<u32>) {
        let gpus: Vec<_> = (0..gpus).collect();
        let pairs = Pair::ordered(&gpus);
        let classes = pairs
            .iter()
            .map(|pair| ((pair.source, pair.destination), class_of(pair.source, pair.destination)));
        (classes.collect(), gpus)
    }

    #[test]
    fn gpus_with_the_same_connections_are_one_group() {
        let (classes, gpus) = table(72, |_, _| LinkClass::NvLink(18));
        assert_eq!(groups(&classes, &gpus), [(0..72).collect::<Vec<_>>()]);
        // Two switches; GPU 0 has fewer links to the others on its own switch.
        let (classes, gpus) =
            table(20, |one, other| match (one / 10 == other / 10, one.min(other)) {
                (true, 0) => LinkClass::NvLink(16),
                (true, _) => LinkClass::NvLink(18),
                _ => LinkClass::Sys,
            });
        let expected: [Vec<u32>; 3] = [vec![0], (1..10).collect(), (10..20).collect()];
        assert_eq!(groups(&classes, &gpus), expected);
    }

    #[test]
    fn a_lone_link_makes_two_groups_of_its_ends() {
        let (classes, gpus) =
            table(
                4,
                |one, other| {
                    if one + other == 1 { LinkClass::NvLink(4) } else { LinkClass::Node }
                },
            );
        // The bridged GPUs have the same connections to all others. So have the other two.
        assert_eq!(groups(&classes, &gpus), [vec![0, 1], vec![2, 3]]);
    }
}
