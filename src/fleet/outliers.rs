//! Figures that are low for their cohort, compared with the same figure on the other nodes, of the same GPUs by
//! position; and positions that are low on all nodes.

use std::collections::{BTreeMap, HashMap};

use rayon::slice::ParallelSliceMut;
use serde_json::json;

use super::blame::{Blame, Low};
use super::cohort::Members;
use super::digest::Digest;
use super::model::{Finding, Stats};
use super::names;
use super::robust::{Robust, median};
use super::steps::Step;
use super::summary::{Ends, Metric};

/// Fewest nodes for a comparison of figures, including the node itself: with fewer, it is unclear which is the odd one.
/// Chosen.
pub(crate) const FEWEST: usize = 5;

/// Fewest positions of a machine that are compared with each other.
const FEWEST_POSITIONS: usize = 4;

/// One figure among those of its cohort.
#[derive(Debug, Clone, Copy)]
struct Row {
    cohort: u32,
    kind: u32,
    ends: Ends,
    node: u32,
    value: f32,
    percent: Option<f32>,
}

impl Row {
    const fn position(&self) -> (u32, u32, Ends) {
        (self.cohort, self.kind, self.ends)
    }
}

/// The result of the comparison.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Every kind of figure.
    pub kinds: Vec<Metric>,
    /// Outlying figures, by node.
    pub low: BTreeMap<usize, Vec<Low>>,
    /// Figures by cohort.
    pub figures: Vec<Vec<Stats>>,
    /// Positions that are low on all nodes.
    pub positions: Vec<Finding>,
}

/// The figures of one position on all nodes of a cohort.
struct Position {
    ends: Ends,
    robust: Robust,
    /// Median of the shares of theoretical rates, if all have one: slots may be narrow by design.
    percent: Option<f32>,
}

/// Compares the figures of each cohort.
pub(crate) fn compare(nodes: &[&Digest], cohorts: &[Members]) -> Compared {
    let mut compared = Compared { figures: vec![Vec::new(); cohorts.len()], ..Compared::default() };
    let mut rows = rows(nodes, cohorts, &mut compared.kinds);
    rows.par_sort_unstable_by_key(|row| (row.position(), row.node));
    for of_kind in rows.chunk_by(|one, next| (one.cohort, one.kind) == (next.cohort, next.kind)) {
        let (Some(first), mut odd, mut positions) = (of_kind.first(), 0, Vec::new()) else {
            continue;
        };
        let kind = first.kind as usize;
        for rows in
            of_kind.chunk_by(|one, next| one.ends == next.ends).filter(|rows| rows.len() >= FEWEST)
        {
            let Some(ends) = rows.first().map(|row| row.ends) else {
                continue;
            };
            let values: Vec<f32> = rows.iter().map(|row| row.value).collect();
            let Some(robust) = Robust::of(&values) else {
                continue;
            };
            for row in rows {
                let Some(found) = robust.odd(row.value, compared.kinds[kind].what.is_time()) else {
                    continue;
                };
                odd += 1;
                let low = Low {
                    kind,
                    ends,
                    value: row.value,
                    median: robust.median,
                    z: found.z,
                    percent: found.percent,
                };
                compared.low.entry(row.node as usize).or_default().push(low);
            }
            let percents: Option<Vec<f32>> = rows.iter().map(|row| row.percent).collect();
            let percent = percents.and_then(|mut percents| median(&mut percents));
            positions.push(Position { ends, robust, percent });
        }
        let cohort = first.cohort as usize;
        compared.positions.extend(low_positions(
            &compared.kinds[kind],
            &positions,
            nodes,
            &cohorts[cohort],
        ));
        compared.figures[cohort].extend(figures(&compared.kinds[kind], of_kind, &positions, odd));
    }
    compared
}

/// Collects every figure with its cohort.
fn rows(nodes: &[&Digest], cohorts: &[Members], kinds: &mut Vec<Metric>) -> Vec<Row> {
    let mut known: HashMap<&Metric, u32> = HashMap::new();
    let mut rows =
        Vec::with_capacity(nodes.iter().map(|digest| digest.summary.figures.len()).sum());
    for (cohort, members) in (0..).zip(cohorts) {
        for place in &members.nodes {
            let digest = nodes[*place];
            let of_digest: Vec<u32> = digest
                .summary
                .kinds
                .iter()
                .map(|kind| {
                    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
                    *known.entry(kind).or_insert_with(|| {
                        kinds.push(kind.clone());
                        next
                    })
                })
                .collect();
            let node = u32::try_from(*place).unwrap_or(u32::MAX);
            rows.extend(digest.summary.figures.iter().filter_map(|figure| {
                let kind = *of_digest.get(usize::from(figure.kind))?;
                Some(Row {
                    cohort,
                    kind,
                    ends: figure.ends,
                    node,
                    value: figure.value?,
                    percent: figure.percent,
                })
            }));
        }
    }
    rows
}

/// Summarizes the figures of one kind in a cohort. Returns `None` if there are too few to compare.
fn figures(kind: &Metric, rows: &[Row], positions: &[Position], odd: usize) -> Option<Stats> {
    let mut values: Vec<f32> = rows.iter().map(|row| row.value).collect();
    let mut nodes: Vec<u32> = rows.iter().map(|row| row.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut spreads: Vec<f32> = positions.iter().map(|position| position.robust.spread).collect();
    Some(Stats {
        probe: kind.what.probe(),
        setup: kind.what.setup(),
        class: kind.class.map(|class| class.to_string()),
        bytes: kind.bytes,
        unit: kind.what.unit(),
        nodes: nodes.len(),
        figures: values.len(),
        spread: wide(median(&mut spreads)?),
        min: wide(values.iter().copied().min_by(f32::total_cmp)?),
        max: wide(values.iter().copied().max_by(f32::total_cmp)?),
        median: wide(median(&mut values)?),
        odd,
    })
}

/// Widens a figure to 64 bits without adding digits.
pub(crate) fn wide(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

/// Returns positions that are low compared with the other positions of the same machines.
fn low_positions(
    kind: &Metric,
    positions: &[Position],
    nodes: &[&Digest],
    cohort: &Members,
) -> Vec<Finding> {
    if positions.len() < FEWEST_POSITIONS {
        return Vec::new();
    }
    let shares: Option<Vec<f32>> = positions.iter().map(|position| position.percent).collect();
    let values =
        shares.unwrap_or_else(|| positions.iter().map(|position| position.robust.median).collect());
    let Some(robust) = Robust::of(&values) else {
        return Vec::new();
    };
    let is_time = kind.what.is_time();
    let mut low: Vec<Low> = Vec::new();
    for (position, value) in positions.iter().zip(values) {
        low.extend(robust.odd(value, is_time).map(|odd| {
            let (value, median) =
                (position.robust.median, position.robust.median * 100.0 / odd.percent);
            Low { kind: 0, ends: position.ends, value, median, z: odd.z, percent: odd.percent }
        }));
    }
    let Some(worst) = worst(&low) else {
        return Vec::new();
    };
    let blame = Blame::of(&low);
    let finding = Finding::new(
        "fleet-position-low",
        names::fold(cohort.nodes.iter().map(|place| nodes[*place].node.as_str())),
        cohort.nodes.len(),
        format!(
            "{blame} in the middle of all {} nodes: {kind} at {} {}, {:.0}% of the other positions",
            cohort.nodes.len(),
            model::rounding::short(f64::from(worst.value)),
            kind.what.unit(),
            worst.percent
        ),
        [
            ("positions", json!(low.len())),
            ("of_positions", json!(positions.len())),
            ("percent", json!((worst.percent * 10.0).round() / 10.0)),
        ],
        [Step::AskVendor],
    );
    vec![finding.gpus(blame.gpus())]
}

/// Returns the most outlying figure.
pub(crate) fn worst(low: &[Low]) -> Option<&Low> {
    low.iter().max_by(|one, other| one.z.abs().total_cmp(&other.z.abs()))
}

/// Returns a finding for each node with outlying figures.
pub(crate) fn findings(nodes: &[&Digest], compared: &Compared) -> Vec<Finding> {
    let mut found: Vec<(f32, Finding)> = Vec::new();
    for (place, low) in &compared.low {
        let (Some(worst), Some(digest)) = (worst(low), nodes.get(*place)) else {
            continue;
        };
        found.push((worst.z.abs(), finding(digest, low, worst, &compared.kinds[worst.kind])));
    }
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().map(|(_, finding)| finding).collect()
}

fn finding(digest: &Digest, low: &[Low], worst: &Low, kind: &Metric) -> Finding {
    let blame = Blame::of(low);
    let measured = digest.summary.figures.iter().filter(|figure| figure.value.is_some()).count();
    let short = |value: f32| model::rounding::short(f64::from(value));
    let unit = kind.what.unit();
    let what = if kind.what.is_time() { "slower" } else { "lower" };
    Finding::new(
        "fleet-figure-low",
        digest.node.clone(),
        1,
        format!(
            "{blame}: {} of {measured} figures are {what} than those of the cohort, worst {kind} at {} {unit}, {:.0}% of its \
             median {} {unit}",
            low.len(),
            short(worst.value),
            worst.percent,
            short(worst.median)
        ),
        [
            ("figures", json!(low.len())),
            ("of_figures", json!(measured)),
            ("value", json!(wide(worst.value))),
            ("median", json!(wide(worst.median))),
            ("percent", json!(f64::from((worst.percent * 10.0).round()) / 10.0)),
            ("robust_z", json!(f64::from((worst.z * 10.0).round()) / 10.0)),
        ],
        [Step::CompareNeighbour],
    )
    .gpus(blame.gpus())
}

#[cfg(test)]
mod tests {
    use super::super::summary::Method;
    use super::super::testing::{fleet_of, loaded_fleet_of, slow};
    use super::super::{cohort, inventory};
    use super::*;

    fn compared(digests: &[Digest]) -> (Compared, Vec<Finding>) {
        let nodes: Vec<_> = digests.iter().collect();
        let facts: Vec<_> = digests.iter().map(inventory::facts).collect();
        let cohorts = cohort::cohorts(&nodes, &facts);
        let compared = compare(&nodes, &cohorts);
        let found = findings(&nodes, &compared);
        (compared, found)
    }

    #[test]
    fn healthy_nodes_have_no_outlier() {
        let (compared, found) = compared(&fleet_of(60));
        assert_eq!((found, compared.positions.len()), (Vec::new(), 0));
        assert!(compared.figures[0].iter().all(|figures| figures.nodes == 60 && figures.odd == 0));
    }

    #[test]
    fn a_slow_gpu_is_found_and_named() {
        let mut nodes = fleet_of(60);
        slow(&mut nodes[11], 3, 0.9);
        slow(&mut nodes[12], 5, 0.97);
        let (_, found) = compared(&nodes);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.nodes.as_str(), one.gpus.as_slice()), ("node011", &[3][..]));
        assert!(
            one.message.starts_with("GPU 3: ") && one.message.contains("90% of its median"),
            "{}",
            one.message
        );
    }

    #[test]
    fn one_slow_pair_is_no_gpu() {
        let mut nodes = fleet_of(20);
        let slow_pair =
            |figure: &&mut super::super::summary::Point| figure.ends == Ends::Gpus(2, 6);
        nodes[4]
            .summary
            .figures
            .iter_mut()
            .filter(slow_pair)
            .for_each(|figure| figure.value = figure.value.map(|value| value * 0.5));
        let (_, found) = compared(&nodes);
        assert!(found[0].message.starts_with("GPU 2 → GPU 6: "), "{found:?}");
    }

    #[test]
    fn a_pattern_of_flows_that_is_low_names_the_machine_and_no_gpu() {
        let mut nodes = loaded_fleet_of(20);
        assert_eq!(compared(&nodes).1, []);
        lower(
            &mut nodes[4],
            |what| matches!(what, Method::Load(name) if name == "ring"),
            None,
            0.7,
        );
        let (_, found) = compared(&nodes);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.nodes.as_str(), one.gpus.as_slice()), ("node004", &[][..]));
        assert!(one.message.starts_with("the machine as a whole: 1 of "), "{}", one.message);
        assert!(
            one.message.contains("worst several flows at once (ring) at 21")
                && one.message.contains(" GB/s, 70% of")
        );
    }

    #[test]
    fn links_that_count_less_than_on_other_nodes_name_their_gpu() {
        let mut nodes = loaded_fleet_of(20);
        lower(&mut nodes[7], |what| matches!(what, Method::LeastLink(_)), Some(2), 0.5);
        let (_, found) = compared(&nodes);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.nodes.as_str(), one.gpus.as_slice()), ("node007", &[2][..]));
        assert!(one.message.contains("%, 50% of its median"), "{}", one.message);
    }

    /// Lowers figures of some kinds, of one GPU or of all.
    fn lower(digest: &mut Digest, of: impl Fn(&Method) -> bool, gpu: Option<u16>, factor: f32) {
        for figure in &mut digest.summary.figures {
            let is_of = gpu.is_none_or(|gpu| figure.ends == Ends::Gpus(gpu, gpu));
            if is_of && of(&digest.summary.kinds[usize::from(figure.kind)].what) {
                figure.value = figure.value.map(|value| value * factor);
            }
        }
    }

    #[test]
    fn few_nodes_are_not_compared() {
        let mut nodes = fleet_of(FEWEST - 1);
        slow(&mut nodes[0], 3, 0.5);
        assert_eq!(compared(&nodes).1, []);
    }

    #[test]
    fn a_position_that_is_low_on_all_nodes_is_found_once() {
        let mut nodes = fleet_of(30);
        nodes.iter_mut().for_each(|node| slow(node, 6, 0.8));
        let (compared, found) = compared(&nodes);
        assert_eq!(found, []);
        let position = &compared.positions[0];
        assert_eq!((position.gpus.as_slice(), position.count), (&[6][..], 30));
        assert!(
            position.message.starts_with("GPU 6 in the middle of all 30 nodes"),
            "{}",
            position.message
        );
    }
}
