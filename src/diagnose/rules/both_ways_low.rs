//! # What it means
//!
//! Two GPUs copy at full rate in one direction, and far below it while both directions are busy.
//!
//! # How it is detected
//!
//! The rate of each direction while both are busy is compared with that of the same copy one way: same pair, engine,
//! issuer and path, on side streams. (On default streams the two take turns by design, `placement-serialises`.) A
//! figure is reported if it lies below the share that healthy machines keep by more than the margin, and by more than
//! the spreads of both figures:
//!
//! | way | left of one way | least |
//! |---|---|---|
//! | NVLink | 97% | 73% |
//! | PCIe below one switch or host bridge | 92% | 60% |
//! | PCIe between host bridges or processors, or hidden in a virtual machine | 85% | 51% |
//! | through the host's memory | 68% | 34% |
//!
//! If the copy was not measured one way, the figure is compared with what healthy machines reach. The finding on slow
//! one-way copies covers a pair that is slow one way too. The finding is an error over NVLink. It is a warning
//! elsewhere, because few figures of healthy machines are known. Several slow pairs that share one GPU or one link are
//! one finding.
//!
//! # Why it matters
//!
//! Rings and all-to-all exchanges send and receive at the same time: they get this rate and not the one-way rate.
//!
//! # What to do
//!
//! Stop other work on the GPUs and check again. Over NVLink: look for errors that rise while both directions are busy
//! (`nvidia-smi nvlink -e`). Then swap the GPU with another to see if the fault moves with it. Over PCIe: check for ACS
//! or an IOMMU that sends both directions through one port upwards, and check the slot or riser.
//!
//! # Sources
//!
//! H200: 391 of 396 GB/s per direction, and 82% if the destination issues (measured). Host copies of H200
//! over PCIe 5: 51 of 55.5 GB/s, staged copies 24 to 26.5 of 37 (measured). The other shares and all margins are
//! chosen.

use super::bandwidth;
use super::prelude::*;
use super::remedy;
use super::unread_traffic;
use crate::expected;
use model::placement::Placement;

pub(crate) const RULE: Rule = Rule::new(
    "both-ways-low",
    Severity::Error,
    include_str!("both_ways_low.rs"),
    judge,
);

/// The paths that are compared separately.
const PATHS: [Path; 2] = [Path::Direct, Path::Staged];

/// A figure of one direction while both are busy.
struct Both<'a> {
    cell: &'a PeerBandwidth,
    achieved: GbPerSecond,
    /// The rate of the same copy one way.
    one_way: Option<GbPerSecond>,
    normal: GbPerSecond,
    /// The lowest rate that is accepted.
    floor: GbPerSecond,
}

impl<'a> Both<'a> {
    /// Returns `None` if the cell is not a sound both-ways figure, or if there is nothing to compare it with.
    fn of(evidence: &Evidence<'a>, cell: &'a PeerBandwidth) -> Option<Self> {
        let is_judged = cell.setup.direction == Direction::BothWays
            && cell.setup.placement == Placement::REFERENCE
            && bandwidth::is_sound(evidence, cell);
        let achieved = cell.achieved_gbps.filter(|_| is_judged)?;
        let setup = cell.setup.with_direction(Direction::OneWay);
        let of_pair = evidence
            .measurements?
            .in_setup_of(setup, |pair| pair == cell.pair);
        let one_way = of_pair.into_values().next();
        let one_way = one_way.filter(|one_way| bandwidth::is_sound(evidence, one_way));
        let route = evidence.topology.route(cell.pair)?;
        let left = expected::both_ways(
            expected::class_of(route, cell.setup.path, evidence.snapshot),
            cell.setup,
        );
        let Some((one_way, rate)) =
            one_way.and_then(|one_way| Some((one_way, one_way.achieved_gbps?)))
        else {
            let expected = evidence.expected(cell)?;
            let margin = left.margin_percent.max(expected.share.margin_percent);
            let floor = GbPerSecond(expected.gbps.0 * (1.0 - margin / 100.0));
            return Some(Self {
                cell,
                achieved,
                one_way: None,
                normal: expected.gbps,
                floor,
            });
        };
        let of_rate = |percent: f64| GbPerSecond(rate.0 * percent / 100.0);
        let spread =
            cell.spread_percent.unwrap_or_default() + one_way.spread_percent.unwrap_or_default();
        let floor = left.floor_percent().min(left.percent - spread);
        Some(Self {
            cell,
            achieved,
            one_way: Some(rate),
            normal: of_rate(left.percent),
            floor: of_rate(floor),
        })
    }

    fn is_low(&self) -> bool {
        self.achieved < self.floor
    }

    fn percent(&self) -> f64 {
        self.achieved.percent_of(self.normal)
    }
}

/// Returns the pairs with a figure that is too low.
pub(crate) fn low_pairs(evidence: &Evidence<'_>) -> BTreeSet<Pair> {
    PATHS
        .into_iter()
        .flat_map(|path| figures(evidence, path))
        .filter(Both::is_low)
        .map(|both| both.cell.pair)
        .collect()
}

fn figures<'a>(evidence: &Evidence<'a>, path: Path) -> impl Iterator<Item = Both<'a>> {
    let of_path = evidence
        .peer()
        .iter()
        .filter(move |cell| cell.setup.path == path);
    of_path.filter_map(|cell| Both::of(evidence, cell))
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in PATHS {
        // A low figure that a program may explain is neither bad nor good.
        let figures: Vec<_> = figures(evidence, path)
            .filter(|both| !both.is_low() || !unread_traffic::may_explain(evidence, both.cell.pair))
            .collect();
        let seen = words::unique(figures.iter().map(|both| both.cell.pair).collect());
        let low: Vec<_> = figures.into_iter().filter(Both::is_low).collect();
        let bad = words::unique(low.iter().map(|both| both.cell.pair).collect());
        let groups = cluster::groups(&bad, &seen, evidence.topology);
        findings.extend(
            groups
                .iter()
                .filter_map(|group| finding(evidence, group, &low)),
        );
    }
    findings
}

fn finding(evidence: &Evidence<'_>, group: &cluster::Group, low: &[Both<'_>]) -> Option<Finding> {
    let pairs = group.pair_set();
    let of_group = low.iter().filter(|both| pairs.contains(&both.cell.pair));
    let worst = of_group.min_by(|one, other| one.percent().total_cmp(&other.percent()))?;
    let Both {
        cell,
        achieved,
        one_way,
        normal,
        floor,
    } = worst;
    let compared = match one_way {
        Some(rate) => {
            format!(
                "one way the same copy reaches {rate} GB/s, and {floor} GB/s or more of it is usually left"
            )
        }
        None => format!("{floor} GB/s and more is normal there"),
    };
    let place = group.place(evidence.snapshot);
    let message = format!(
        "Copies {place} reach only {achieved} GB/s per direction while both directions are busy; {compared}"
    );
    let mut find = remedy::settings(evidence, &group.pairs);
    if group.pairs.iter().any(|pair| evidence.over_nvlink(*pair)) {
        find.push(Step::LinkErrorsBothWays);
    }
    find.push(Step::Swap(Part::Gpu(OneOf(group.gpus()))));
    let plan = Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain]).if_it_stays(find);
    let over_nvlink = cell.setup.path == Path::Direct && evidence.over_nvlink(cell.pair);
    let severity = if over_nvlink {
        RULE.severity
    } else {
        Severity::Warning
    };
    let difference = cell.setup.with_direction(Direction::OneWay).difference();
    let mut found = RULE
        .finding(group.subject(), message, plan)
        .at(severity)
        .fact("lowest_achieved", *achieved)
        .fact("one_way", *one_way)
        .fact("expected", *normal)
        .fact("percent_of_expected", Fact::figure(worst.percent()))
        .fact("floor", *floor)
        .fact("copied_by", (!difference.is_empty()).then_some(difference))
        .pairs(&group.pairs);
    found = unread_traffic::with_reason(found, evidence, &group.pairs);
    found.suspects = suspects::of_slow_copies(evidence, &group.pairs);
    Some(found)
}
