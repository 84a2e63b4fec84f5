//! Shared by the rules on copies without a figure: cells of one status, grouped by pair.

use super::prelude::*;
use crate::coverage;
use model::measurement::{Cell, Failures, Work};

/// Returns one finding for each group of pairs that have cells of this status. `what` completes "Copies between …";
/// `plan` gives the steps for a group.
pub(super) fn findings(
    rule: &Rule,
    evidence: &Evidence<'_>,
    status: Status,
    what: &str,
    plan: &dyn Fn(&cluster::Group) -> Plan,
) -> Vec<Finding> {
    let measurements = evidence.measured();
    // `data-wrong` reports wrong bytes, however the timing ended; a hang is reported as well.
    let is_bad = |cell: &Cell<'_>| {
        cell.status == status && (status == Status::Hung || !cell.verified.is_wrong())
    };
    let cells =
        coverage::cells(measurements).filter(|cell| cell.probe.failures() == Failures::Shared);
    let cells: Vec<_> = cells.filter(|cell| cell.status != Status::Skipped).collect();
    let pairs_of = |wanted: &dyn Fn(&Cell<'_>) -> bool| -> Vec<_> {
        words::unique(cells.iter().filter(|cell| wanted(cell)).filter_map(|cell| cell.flow.pair()))
    };
    // A copy on another path shows nothing of this one.
    let paths: Vec<_> =
        cells.iter().filter(|cell| is_bad(cell)).map(|cell| cell.setup.path).collect();
    let tried = pairs_of(&|cell| paths.contains(&cell.setup.path));
    let groups = evidence.groups(&pairs_of(&is_bad), &tried);
    let reported =
        |gpu: u32| groups.iter().any(|group| group.pairs.iter().any(|pair| pair.touches(gpu)));
    let bad = cells.iter().filter(|cell| is_bad(cell));
    let within = |cell: &Cell<'_>| cell.flow.within().filter(|gpu| !reported(*gpu));
    let within = words::grouped(bad.filter_map(|cell| Some((within(cell)?, cell))));
    let of_gpu = |(gpu, bad): (&u32, &Vec<&Cell<'_>>)| {
        let place = format!("within {}", evidence.name(*gpu));
        let alone = cluster::Group {
            common: cluster::Common::Gpu(*gpu),
            pairs: Vec::new(),
            seen_back: false,
        };
        one_finding(rule, Subject::Gpu { index: *gpu }, &place, what, plan(&alone), bad)
    };
    groups
        .iter()
        .map(|group| {
            let pairs = group.pair_set();
            let of_group =
                |cell: &Cell<'_>| cell.flow.pair().is_some_and(|pair| pairs.contains(&pair));
            let bad: Vec<_> = cells.iter().filter(|cell| is_bad(cell) && of_group(cell)).collect();
            let place = evidence.place(group);
            let mut found = one_finding(rule, group.subject(), &place, what, plan(group), &bad)
                .pairs(&group.pairs);
            let direct = bad.iter().any(|cell| cell.setup.path != Path::Staged);
            if direct && evidence.any_over_pcie(&group.pairs) {
                found.suspects = suspects::of_pcie_settings(evidence, &group.pairs);
            }
            found
        })
        .chain(within.iter().map(of_gpu))
        .collect()
}

/// Returns one finding for all cells at a place, since cells of one round end together. A copy that hung within a GPU
/// may be a kernel.
fn one_finding(
    rule: &Rule,
    subject: Subject,
    place: &str,
    what: &str,
    plan: Plan,
    bad: &[&Cell<'_>],
) -> Finding {
    let only_copies = bad.iter().all(|cell| cell.probe.work() == Work::Copies);
    let work = if only_copies { "Copies" } else { "Copies and kernels" };
    let reasons = words::distinct(bad.iter().filter_map(|cell| cell.reason));
    let detail = words::after("; ", Some(&reasons));
    rule.finding(subject, format!("{work} {place} {what}{detail}"), plan)
        .fact("measurements", bad.len())
}
