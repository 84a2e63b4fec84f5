//! # What it means
//!
//! Small, scattered blocks arrive wrong or not at all, although large copies arrive.
//!
//! # What to do
//!
//! Do not use the way of copying that fails: `cuMemcpyBatchAsync` and kernels can be replaced by a loop of copies. Check
//! again with another version of the driver, and report it to NVIDIA with this report.
//!
//! # How it is detected
//!
//! Blocks of 4 KiB to 2 MiB are copied in shuffled order by a loop of copies, by one batch call and by a kernel
//! (`measurements.small`, in `full` or with `--only small`). After the last row the destination is compared with the
//! pattern of the source, as `peer-data-wrong` does for large copies. Pairs whose large copies are wrong too are left to
//! `peer-data-wrong` and `peer-access-broken`.
//!
//! # Sources
//!
//! CUDA driver API, `cuMemcpyBatchAsync`; copies that pass say nothing of kernels, and the reverse (FIDESlib issue 28).

use super::prelude::*;
use model::cell::Subject as _;
use model::flow::Flow;
use model::measurement::SmallCopy;

pub(crate) const RULE: Rule = Rule::new("blocks-wrong", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let measurements = evidence.measured();
    let is_known = |flow: Flow| {
        let mut large = measurements.peer.iter();
        let mut host = measurements.host.iter();
        large.any(|cell| {
            let is_direct = cell.setup.path == Path::Direct && Flow::from(cell.pair) == flow;
            is_direct && cell.verified.is_wrong()
        }) || host.any(|cell| cell.verified.is_wrong() && flow.with_host() == Some(cell.gpu))
    };
    let wrong = measurements.small.iter().filter(|cell| cell.verified.is_wrong());
    let wrong = wrong.map(|cell| (cell.flow(), cell));
    let wrong = words::grouped(wrong.filter(|(flow, _)| !is_known(*flow))).into_iter();
    wrong.filter_map(|(flow, cells)| finding(flow, &cells)).collect()
}

fn finding(flow: Flow, cells: &[&SmallCopy]) -> Option<Finding> {
    let first = cells.first()?;
    let ways: Vec<String> = words::unique(cells.iter().map(|cell| cell.way.to_string()));
    let detail = first.verification_detail.clone().unwrap_or_default();
    let message = format!(
        "{flow}: scattered blocks arrive wrong by {} ({} each: {detail})",
        ways.join(" and "),
        first.bytes
    );

    let plan = Plan::now([Step::Stop(Work::OnGpus), Step::CheckAgain]);
    let found = RULE.finding(words::of_flow(flow), message, plan);
    Some(found.pairs(flow.pair().as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use model::small::BlockWay;
    use model::units::{Bytes, KIB};

    #[test]
    fn wrong_blocks_are_an_error_unless_large_copies_are_wrong_too() {
        let machine = h200_vm(2);
        let mut measurements = measured(&machine, 0.88);
        let cell = |verified| SmallCopy {
            achieved_gbps: Some(GbPerSecond(1.0)),
            block_us: Some(4.0),
            verified,
            verification_detail: Some("4 KiB of 1 MiB are wrong".into()),
            ..SmallCopy::blank(Some(0), Some(1), None, BlockWay::Batch, Bytes(4 * KIB))
        };
        measurements.small = vec![cell(Verified::Ok)];
        let found = |measurements: &Measurements| {
            let all = findings(&machine, Some(measurements)).into_iter();
            all.filter(|one| one.code == RULE.id).collect::<Vec<_>>()
        };
        assert_eq!(found(&measurements), []);
        measurements.small = vec![cell(Verified::Corrupt)];
        let wrong = found(&measurements);
        assert_advice(&RULE, &wrong, &["end-programs", "check-again"], &[]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].message.contains("by batch call"), "{}", wrong[0].message);
        for cell in &mut measurements.peer {
            cell.verified = Verified::Corrupt;
        }
        assert_eq!(found(&measurements), []);
    }
}
