//! # What it means
//!
//! Between the same two GPUs, one way of copying is far slower than another. Usual tools measure only the fast way.
//!
//! # What to do
//!
//! Check again with the GPUs idle. If it stays, compare with a machine of the same kind: kernel copies alone point to
//! the GPU's clocks (`nvidia-smi -q -d PERFORMANCE`), one placement alone to the driver version.
//!
//! # How it is detected
//!
//! Each direct one-way figure (default streams, issued by the destination, by kernel) lies below the parameter's
//! share of the reference figure of its own pair.
//!
//! # Sources
//!
//! 8 x H200: all placements and both issuers within 3% of each other (measured). No published figure lies below these
//! floors.

use super::prelude::*;

const FLOOR_COPY: Parameter = Parameter {
    name: "floor_copy_percent",
    default: 75.0,
    about: "least share of the pair's reference figure for copy engines; 97 and more were measured on H200",
};
const FLOOR_KERNEL: Parameter = Parameter {
    name: "floor_kernel_percent",
    default: 50.0,
    about: "the same for kernel copies; 93 was measured on H200, and kernels depend on more than the link",
};
/// A way of copying, and the pairs on which it is slow.
#[derive(Default)]
struct Slow {
    pairs: Vec<Pair>,
    lowest_gbps: f64,
    lowest_percent: f64,
}

pub(crate) const RULE: Rule =
    Rule::of_one("peer-copy-uneven", Severity::Warning, judge).with(&[FLOOR_COPY, FLOOR_KERNEL]);

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let reference = evidence.reference(Path::Direct);
    let floor_copy = RULE.parameter(evidence, &FLOOR_COPY);
    let floor_kernel = RULE.parameter(evidence, &FLOOR_KERNEL);
    let mut ways: BTreeMap<String, Slow> = BTreeMap::new();
    for cell in evidence.peer() {
        let is_compared = cell.ending.status == Status::Measured
            && cell.setup.path == Path::Direct
            && cell.setup.direction == Direction::OneWay
            && !cell.verified.is_wrong();
        let rates = reference
            .get(&cell.pair)
            .and_then(|reference| reference.achieved_gbps)
            .zip(cell.achieved_gbps);
        let Some((normal, achieved)) = rates.filter(|_| is_compared) else {
            continue;
        };
        let floor = if cell.setup.engine == Engine::Kernel { floor_kernel } else { floor_copy };
        let percent = achieved.percent_of(normal);
        if percent < floor * (1.0 - evidence.scatter_percent() / 100.0) {
            let slow = ways.entry(way(cell)).or_default();
            if slow.pairs.is_empty() || percent < slow.lowest_percent {
                (slow.lowest_gbps, slow.lowest_percent) = (achieved.0, percent);
            }
            slow.pairs.push(cell.pair);
        }
    }
    if ways.is_empty() {
        return None;
    }
    let all = reference.len();
    let list: Vec<_> = ways
        .iter()
        .map(|(way, slow)| {
            let Slow { pairs, lowest_gbps, lowest_percent } = slow;
            format!(
                "{way}: {} of {all} pairs, down to {lowest_gbps:.1} GB/s, {lowest_percent:.0}%",
                pairs.len()
            )
        })
        .collect();
    let pairs = words::unique(ways.values().flat_map(|slow| slow.pairs.iter().copied()));
    Some(
        RULE.finding(
            Subject::Machine,
            format!(
                "{} far slower in some ways of copying than in the reference; {}; {}",
                words::count(pairs.len(), "pair"),
                list.join("; "),
                words::pairs(&pairs)
            ),
            Plan::check_without(Work::OnGpus).if_it_stays([Step::CompareAlike, Step::Clocks]),
        )
        .fact("floor", Fact::percent(floor_copy))
        .fact("floor_kernel", Fact::percent(floor_kernel))
        .pairs(&pairs),
    )
}

fn way(cell: &PeerBandwidth) -> String {
    format!("{}, issued by {}, {}", cell.setup.engine, cell.setup.issuer, cell.setup.placement)
}
