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
//! A direct one-way figure (default streams, issued by the destination, by kernel) lies below the parameter's share of
//! the reference figure of its pair.
//!
//! # Sources
//!
//! 8 x H200: all placements and both issuers within 3% of each other (measured).

use super::prelude::*;

rule! {
    "peer-copy-uneven", Warning, All(judge);
    /// least share of the pair's reference figure for copy engines; 97 and more were measured on H200
    FLOOR_COPY: floor_copy_percent = 75.0;
    /// the same for kernel copies; 93 was measured on H200
    FLOOR_KERNEL: floor_kernel_percent = 50.0;
}

/// A figure, and the reference figure of its pair.
#[derive(Clone, Copy)]
struct Slow<'a> {
    cell: &'a PeerBandwidth,
    achieved: GbPerSecond,
    normal: GbPerSecond,
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let reference = evidence.reference(Path::Direct);
    let compared = evidence.peer().iter().filter(|cell| {
        cell.ending.status == Status::Measured
            && cell.setup.path == Path::Direct
            && cell.setup.direction == Direction::OneWay
            && !cell.verified.is_wrong()
    });
    let slow = compared.filter_map(|cell| {
        let normal = reference.get(&cell.pair)?.achieved_gbps?;
        let least = floor(evidence, cell.setup.engine) * (1.0 - evidence.scatter_percent() / 100.0);
        let achieved = cell.achieved_gbps.filter(|rate| rate.percent_of(normal) < least)?;
        Some(Slow { cell, achieved, normal })
    });
    let (slow, seen): (Vec<_>, Vec<_>) = (slow.collect(), reference.keys().copied().collect());
    let places = evidence.places(&slow, &seen, |slow| Some(slow.cell.pair)).into_iter();
    places.filter_map(|(group, slow)| finding(evidence, &group, &slow)).collect()
}

fn finding(evidence: &Evidence<'_>, group: &Group, slow: &[Slow<'_>]) -> Option<Finding> {
    let worst = words::smallest(slow.iter(), |slow| slow.achieved.percent_of(slow.normal))?;
    let ways: BTreeSet<String> = slow.iter().map(|slow| way(slow.cell)).collect();
    let message = format!(
        "Copies {} reach {} GB/s, {:.0}% of the {} in the reference; {}{}",
        evidence.place(group),
        worst.achieved,
        worst.achieved.percent_of(worst.normal),
        worst.normal,
        way(worst.cell),
        words::further("; also in ", ways.len() - 1, "other way"),
    );
    let plan = Plan::check_without(Work::OnGpus).if_it_stays([Step::CompareAlike, Step::Clocks]);
    let found = RULE
        .finding(group.subject(), message, plan)
        .fact("ways", ways.into_iter().collect::<Vec<_>>());
    Some(found.pairs(&group.pairs))
}

fn floor(evidence: &Evidence<'_>, engine: Engine) -> f64 {
    match engine {
        Engine::Copy => FLOOR_COPY.of(evidence),
        Engine::Kernel => FLOOR_KERNEL.of(evidence),
    }
}

fn way(cell: &PeerBandwidth) -> String {
    format!("{}, issued by {}, {}", cell.setup.engine, cell.setup.issuer, cell.setup.placement)
}
