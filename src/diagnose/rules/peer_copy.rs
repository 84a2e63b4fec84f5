//! What the rules on copies without a figure share: cells of one status, grouped by pair.

use super::prelude::*;
use crate::diagnose::coverage;
use crate::model::measurement::Cell;

/// One finding for each group of pairs that have cells of this status. `what` completes "Copies
/// between …"; `next_step` is said of all.
pub fn findings(rule: &Rule, evidence: &Evidence<'_>, status: Status, what: &str, next_step: &str) -> Vec<Finding> {
    let Some(measurements) = evidence.measurements else { return Vec::new() };
    // `peer-data-wrong` reports wrong bytes, whatever became of the timing.
    let is_bad = |cell: &Cell<'_>| cell.status == status && !cell.verified.is_wrong();
    let cells: Vec<_> = coverage::cells(measurements).filter(|cell| cell.status != Status::Skipped).collect();
    let pairs_of = |wanted: &dyn Fn(&Cell<'_>) -> bool| -> Vec<_> {
        let pairs: BTreeSet<_> = cells.iter().filter(|cell| wanted(cell)).filter_map(|cell| cell.flow.pair()).collect();
        pairs.into_iter().collect()
    };
    let groups = cluster::groups(&pairs_of(&is_bad), &pairs_of(&|_| true), evidence.topology);
    let reported = |gpu: u32| groups.iter().any(|group| group.pairs.iter().any(|pair| pair.touches(gpu)));
    let within = cells.iter().filter(|cell| is_bad(cell)).filter_map(|cell| Some((cell.flow.within()?, cell.reason)));
    let within = within.filter(|(gpu, _)| !reported(*gpu)).map(|(gpu, reason)| {
        let reason = reason.unwrap_or("no reason given");
        let message = format!("Copies within {} {what}: {reason}", words::gpu(evidence.snapshot, gpu));
        rule.finding(Subject::Gpu { index: gpu }, message, next_step).fact("reasons", reason.to_owned())
    });
    let within: Vec<_> = within.collect();
    groups
        .iter()
        .map(|group| {
            let pairs = group.pair_set();
            let of_group = |cell: &Cell<'_>| cell.flow.pair().is_some_and(|pair| pairs.contains(&pair));
            let bad: Vec<_> = cells.iter().filter(|cell| is_bad(cell) && of_group(cell)).collect();
            let reasons = words::distinct(bad.iter().filter_map(|cell| cell.reason));
            let probes = words::distinct(bad.iter().map(|cell| cell.probe.to_string()));
            let detail = if reasons.is_empty() { String::new() } else { format!(": {reasons}") };
            let mut found = rule
                .finding(
                    group.subject(),
                    format!("Copies {} {what}{detail}", group.place(evidence.snapshot)),
                    next_step,
                )
                .fact("measurements", bad.len())
                .fact("probes", probes)
                .fact("reasons", reasons)
                .pairs(&group.pairs);
            let direct = bad.iter().any(|cell| cell.setup.path != Path::Staged);
            if direct && group.pairs.iter().any(|pair| evidence.over_pcie(*pair)) {
                found.suspects = suspects::of_pcie_settings(evidence, &group.pairs);
            }
            found
        })
        .chain(within)
        .collect()
}
