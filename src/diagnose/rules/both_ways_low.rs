//! # What it means
//!
//! Two GPUs copy at full rate one way, and far below it both ways. Rings and all-to-all exchanges get this rate.
//!
//! # What to do
//!
//! Check again with the GPUs idle. Over NVLink: look for errors that rise while both directions are busy
//! (`nvidia-smi nvlink -e`), then swap the GPU: does the fault move? Over PCIe: look for ACS or an IOMMU that sends
//! both directions through one port, and check slot or riser.
//!
//! # How it is detected
//!
//! Rates of a direction while the other is busy (side streams) that one change slows lie below the better pairs
//! connected alike, or healthy machines, by more than the margin:
//!
//! | way | margin |
//! |---|---|
//! | NVLink | 25% |
//! | PCIe below one switch or host bridge | 35% |
//! | PCIe farther, or hidden in a virtual machine | 40% |
//! | through the host's memory | 50% |
//!
//! A single pair may lie 20% below the others connected alike where those, four at least, agree within 5%.
//!
//! Elsewhere than over NVLink it is a warning: few healthy figures are known.
//!
//! # Sources
//!
//! H200 (measured): 391 of 396 GB/s per direction; host copies over PCIe 5 51 of 55.5, staged copies 24 to 26.5 of 37.
//! All margins are chosen.

use super::peers::{self, Explained, Figures};
use super::prelude::*;
use super::remedy;
use crate::expected;

rule! {
    "both-ways-low", Error, All(judge);
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let explained = peers::explained(evidence, Figures::BothWays).into_iter();
    let read = explained.filter_map(|one| one.read(evidence));
    read.filter_map(|one| finding(evidence, &one)).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let (group, worst) = (&explained.group, explained.worst()?);
    let (cell, achieved) = (worst.cell, worst.achieved);
    let route = evidence.topology.route(cell.pair)?;
    let class = expected::class_of(route, cell.setup.path, evidence.snapshot);
    let margin = expected::both_ways_margin(class, cell.setup).max(evidence.scatter_percent());
    let floor = GbPerSecond(worst.healthy.0 * (1.0 - margin / 100.0));
    let own = agreeing(evidence, cell, &group.pairs).filter(|own| own.0 * BELOW_AGREEING > floor.0);
    let (reached, floor) = match own {
        Some(own) => ((own, "other pairs"), GbPerSecond(own.0 * BELOW_AGREEING)),
        None => ((worst.healthy, "healthy machines"), floor),
    };
    if achieved >= floor {
        return None;
    }
    let one_way = evidence.reference_of(cell.setup.path, cell.pair);
    let is_alike = |one: &&PeerBandwidth| {
        (one.setup.engine, one.setup.issuer) == (cell.setup.engine, cell.setup.issuer)
    };
    let one_way = one_way.filter(is_alike).and_then(|one| one.achieved_gbps);
    let place = evidence.place(group);
    let message = format!(
        "Both ways at once, copies {place} reach {}",
        words::share_of(achieved, reached, floor),
    );
    let mut find = remedy::settings(evidence, &group.pairs);
    if evidence.any_over_nvlink(&group.pairs) {
        find.push(Step::LinkErrors);
    }
    find.push(Step::Swap(Part::of(&group.gpus())));
    let plan = Plan::check_without(Work::OnGpus).if_it_stays(find);
    let over_nvlink = cell.setup.path == Path::Direct && evidence.over_nvlink(cell.pair);

    let found = explained
        .finding((&RULE, evidence), message, plan)
        .at_if(!over_nvlink, Severity::Warning)
        .fact("one_way", one_way);
    Some(found.suspecting(suspects::of_slow_copies(evidence, &group.pairs)))
}

/// Fewest cells that say by their agreement what a machine's own rate is (two a pair), the most that they may differ by, per
/// cent, and the share of it that one more pair reaches at least. All are chosen.
const AGREEING: usize = 8;
const AGREEING_PERCENT: f64 = 5.0;
const BELOW_AGREEING: f64 = 0.8;

/// Returns the rate that the other pairs connected alike reach both ways, if enough of them agree and one pair alone is low:
/// several may be farther from each other in a way that no file shows.
fn agreeing(evidence: &Evidence<'_>, cell: &PeerBandwidth, low: &[Pair]) -> Option<GbPerSecond> {
    let own = cell.pair.unordered();
    if low.iter().any(|pair| pair.unordered() != own) {
        return None;
    }
    let class = |cell: &PeerBandwidth| {
        let route = evidence.topology.route(cell.pair)?;
        Some(expected::class_of(route, cell.setup.path, evidence.snapshot).key)
    };
    let is_alike = |one: &&PeerBandwidth| {
        one.setup == cell.setup && one.pair.unordered() != own && class(one) == class(cell)
    };
    let alike = evidence.peer().iter().filter(is_alike);
    let mut rates: Vec<f64> = alike.filter_map(|one| Some(one.achieved_gbps?.0)).collect();
    rates.sort_by(f64::total_cmp);
    let (lowest, highest) = (rates.first()?, rates.last()?);
    let agree = rates.len() >= AGREEING && *lowest >= highest * (1.0 - AGREEING_PERCENT / 100.0);
    agree.then(|| GbPerSecond(rates[rates.len() / 2]))
}
