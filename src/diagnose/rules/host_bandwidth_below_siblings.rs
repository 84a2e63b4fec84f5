//! # What it means
//!
//! Copies between the host and one GPU are slower than its siblings'. Work that is spread over all GPUs waits for the
//! slowest.
//!
//! # What to do
//!
//! Stop other work on this GPU and check again. If it stays: look at its PCIe error counters, reseat it, and swap it
//! with another: does the fault move?
//!
//! # How it is detected
//!
//! As `host-bandwidth-low`, on three GPUs or more, none below what every healthy machine reaches: a copy lies below the
//! better ones of its kind by more than `below_siblings_percent`, as a share of what its link carries. Pageable memory:
//! below the middle by more than `pageable_below_siblings_percent`, though pinned memory is clearly faster; information
//! in a virtual machine with one NUMA node, as its host's nodes decide.
//!
//! # Sources
//!
//! 4 x H100 in virtual machines, pageable to the device: in 7 of 40 runs one or two GPUs, each time others, were 35 to
//! 61% below the middle (measured, 2026-11-26).

use super::host::{self, Explained, Rated};
use super::prelude::*;

/// Fewest GPUs that give a credible normal figure.
const LEAST_GPUS: usize = 3;

rule! {
    "host-bandwidth-below-siblings", Warning, All(judge);
    /// page-locked memory; chosen above the 5 to 10 that repeats spread by (cuda-samples issue 449)
    SIBLINGS: below_siblings_percent = 12.0;
    /// the same if the buffer's NUMA node is not known; chosen: copies across sockets lose up to 38
    UNPLACED: below_unplaced_percent = 40.0;
    /// pageable memory; chosen above the 28 between GPUs of one sound server (8 x H200, measured)
    PAGEABLE: pageable_below_siblings_percent = 35.0;
}

/// Times its rate with pageable memory that a GPU must reach with pinned memory for its link not to be the limit. Chosen.
const LINK_CARRIES: f64 = 1.5;

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let gpus: BTreeSet<u32> = evidence.host().iter().map(|copy| copy.gpu).collect();
    if gpus.len() < LEAST_GPUS {
        return Vec::new();
    }
    let explained = host::explained(evidence);
    let known: BTreeSet<u32> = explained.iter().flat_map(Explained::gpus).collect();
    let below = explained
        .iter()
        .filter(|explained| !explained.is_low)
        .filter_map(|explained| finding(evidence, explained));
    below.chain(with_pageable(evidence, &known)).collect()
}

/// Returns a finding for each GPU that is slow with pageable memory alone. Two figures of which the processor decides do not
/// pay for a cause.
fn with_pageable(evidence: &Evidence<'_>, known: &BTreeSet<u32>) -> Vec<Finding> {
    let margin = PAGEABLE.margin(evidence);
    let mut worst: BTreeMap<u32, (Rated<'_>, GbPerSecond)> = BTreeMap::new();
    for direction in host::ONE_WAY {
        let rated = host::best(evidence, host::PAGEABLE.with_direction(direction));
        let pinned = host::best(evidence, HostWay::PINNED.with_direction(direction));
        let rates = rated.values().map(|one| one.rate.0);
        let Some(usual) = scatter::middle(rates).map(GbPerSecond) else {
            continue;
        };
        for (gpu, one) in rated {
            let pinned = pinned.get(&gpu);
            let carries = pinned.is_some_and(|pinned| pinned.rate.0 > LINK_CARRIES * one.rate.0);
            let is_low = one.below_percent(usual) > margin.max(one.spread());
            if !carries || !is_low || known.contains(&gpu) {
                continue;
            }
            let deepest = worst.entry(gpu).or_insert((one, usual));
            if one.below_percent(usual) > deepest.0.below_percent(deepest.1) {
                *deepest = (one, usual);
            }
        }
    }
    let finding = |(gpu, (rated, usual)): (u32, (Rated<'_>, GbPerSecond))| {
        let message = format!(
            "Copies {} reach {} GB/s with pageable memory, {:.0}% less than the {usual} of other GPUs; pinned memory is not \
             slow",
            host::way_of(evidence, &[gpu], rated.copy.direction),
            rated.rate,
            rated.below_percent(usual),
        );
        let plan = Plan::check_without(Work::OnMachine).if_it_stays([Step::Processors]);
        let hidden = evidence.virtual_machine() && !host::has_several_nodes(evidence);
        RULE.finding(Subject::Gpu { index: gpu }, message, plan)
            .gpus(&[gpu])
            .suspecting(host::suspects(evidence, &[gpu]))
            .at_if(hidden, Severity::Info)
    };
    worst.into_iter().map(finding).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let worst = explained.slow.first()?;
    let (rated, healthy) = (worst.rated, worst.healthy);
    let unplaced = host::has_several_nodes(evidence) && rated.copy.numa_node.is_none();
    let margin = if unplaced { &UNPLACED } else { &SIBLINGS }.margin(evidence);
    if rated.below_percent(healthy) <= margin {
        return None;
    }
    let gpus = explained.gpus();
    let message = format!(
        "Copies {} reach {} GB/s, {:.0}% less than the {healthy} of others of this kind",
        host::way_of(evidence, &gpus, rated.copy.direction),
        rated.rate,
        rated.below_percent(healthy),
    );
    let own = || one_of(&gpus);
    let plan = Plan::check_without(Work::OnGpus).if_it_stays([
        Step::PcieErrorsOf(own()),
        Step::Reseat(Part::GpuAndRiser(own())),
        Step::Swap(Part::Gpu(own())),
    ]);
    let mut suspects = vec![suspects::own_way(&gpus)];
    suspects.extend(host::suspects(evidence, &gpus));
    let mut found = RULE.on_gpus(&gpus, message, plan);
    found.scope.causes = explained.causes.clone();
    Some(found.suspecting(suspects))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::{with_host, with_memory};
    use model::flow::HostMemory;
    use model::host::Allocation;

    #[test]
    fn one_gpu_below_the_others_is_found_and_what_differs_a_little_is_not() {
        let machine = h200_vm(4);
        assert_eq!(findings(&machine, Some(&with_host(&machine, &[55.3, 55.2, 51.0, 55.3]))), []);
        let found = findings(&machine, Some(&with_host(&machine, &[55.3, 55.2, 47.5, 55.3])));
        let found = only(&found, "host-bandwidth-below-siblings", Severity::Warning);
        assert_eq!(found.subject, Subject::Gpu { index: 2 });
    }

    #[test]
    fn two_gpus_are_too_few_and_samples_that_scatter_show_nothing() {
        let machine = h200_vm(2);
        assert_eq!(findings(&machine, Some(&with_host(&machine, &[55.3, 47.5]))), []);
        let machine = h200_vm(4);
        let mut scattered = with_host(&machine, &[55.3, 55.2, 47.5, 55.3]);
        scattered.host.iter_mut().for_each(|copy| copy.spread_percent = Some(30.0));
        let found = findings(&machine, Some(&scattered));
        assert_eq!(only(&found, "unstable-measurement", Severity::Info).subject, Subject::Machine);
    }

    #[test]
    fn pageable_memory_of_one_gpu_is_compared_with_that_of_others_unless_its_link_is_the_limit() {
        let machine = h200_vm(4);
        let found_on = |machine: &Snapshot, pageable: f64, pinned: f64| {
            let mut measurements = with_host(machine, &[55.3, 55.2, pinned, 55.3]);
            with_memory(&mut measurements, HostMemory::Pageable, Allocation::Reused, 9.0);
            for copy in &mut measurements.host {
                if copy.gpu == 2 && copy.memory == HostMemory::Pageable {
                    copy.achieved_gbps = Some(GbPerSecond(pageable));
                }
            }
            let all = findings(machine, Some(&measurements));
            all.into_iter().filter(|one| one.code == RULE.id).collect::<Vec<_>>()
        };
        let found = |pageable: f64, pinned: f64| found_on(&machine, pageable, pinned);
        let slow = found(4.5, 55.2);
        assert_advice(&RULE, &slow, &["end-programs", "check-again"], &["processor", "ask-host"]);
        assert_eq!(slow[0].subject, Subject::Gpu { index: 2 });
        assert!(slow[0].message.contains("50% less"), "{}", slow[0].message);
        // A guest that sees one node does not see where its memory is.
        assert_eq!(slow[0].severity, Severity::Info);
        let mut bare_metal = machine.clone();
        bare_metal.host.virtual_machine = Reading::Known(false);
        let slow = found_on(&bare_metal, 4.5, 55.2);
        assert_eq!(slow[0].severity, Severity::Warning);
        // 8 x H200 differ by up to 28%.
        assert_eq!(found(6.6, 55.2), []);
        // A narrow link.
        assert_eq!(found(4.5, 4.8), []);
    }
}
