//! # What it means
//!
//! Copies between host memory and a GPU are slower than its slot allows. All loading and saving takes this path, as do
//! copies without peer access.
//!
//! # What to do
//!
//! Follow PCIe findings of the same GPU first. One slow GPU: its slot, riser or cable. All slow: every memory channel
//! fitted, memory on the NUMA node of the GPU (`numactl`), the IOMMU in pass-through, no other work. In a virtual
//! machine, ask whether its memory and processors are pinned to the NUMA nodes of the GPUs. Over NVLink-C2C, no other work
//! and memory of the own processor; then the module.
//!
//! # How it is detected
//!
//! A change of the machine slows copies of re-used page-locked memory of the GPU's own NUMA node by copy engine, one
//! GPU at a time (`measurements.host`), and one lies below what healthy machines reach on the link, by more than the
//! margin of the class `host` (`[expected.host]` with `--config`). Not judged with confidential computing. An error on
//! bare metal below `error_below_percent` of others of their kind, if the same memory serves another GPU at full rate
//! and nothing else was at work.
//!
//! # Sources
//!
//! H200, PCIe 5 x16: 55.3 of 63 GB/s (measured). NVLink-C2C (`[expected.c2c]`): GH200 297 to 416 of 447 GB/s, GB200 193 to
//! 211 of 224 (published).

use super::bandwidth;
use super::host::{self, Explained};
use super::prelude::*;
use crate::expected_host;

rule! {
    "host-bandwidth-low", Warning, All(judge);
    /// share of its siblings' rate; chosen: half of the lanes leave 50, copies across sockets lose up to 38
    HALF: error_below_percent = 60.0;
}

/// Returns the slow copies of each cause, one of which is below the floor.
fn low<'a>(evidence: &Evidence<'a>) -> impl Iterator<Item = Explained<'a>> + use<'a> {
    let explained = host::explained(evidence).into_iter();
    explained.filter(|explained| explained.is_low)
}

/// Returns the GPUs that this rule reports.
pub(crate) fn gpus(evidence: &Evidence<'_>) -> BTreeSet<u32> {
    low(evidence).flat_map(|explained| explained.gpus()).collect()
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    low(evidence).filter_map(|explained| finding(evidence, &explained)).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let gpus = explained.gpus();
    // One that is slower than on other machines, and still normal, shows no fault.
    let mut below = explained.slow.iter().filter(|slow| slow.is_low(evidence));
    let worst = below.next().or(explained.slow.first())?.rated;
    let expected = expected_host::of(worst.copy, evidence.snapshot, &evidence.settings.shares)?;
    let all_gpus = words::unique(evidence.host().iter().map(|copy| copy.gpu)).len();
    let others =
        if gpus.len() < all_gpus { "; copies with the other GPUs are not slow" } else { "" };
    let hop = words::after("; over ", worst.copy.bottleneck.as_ref());
    let rated = || explained.slow.iter().map(|slow| slow.rated);
    let directions: BTreeSet<HostDirection> = rated().map(|rated| rated.copy.direction).collect();
    let way = match worst.copy.direction {
        HostDirection::BothWays => host::way_of(evidence, &gpus, HostDirection::BothWays),
        _ => host::ways_of(evidence, &gpus, &directions),
    };
    let message = format!(
        "Copies {way} reach {}{hop}{others}",
        words::of_healthy(worst.rate, expected.gbps, expected.floor_gbps()),
    );
    let mut suspects = host::suspects(evidence, &gpus);
    // Processor, memory and GPU are one module.
    let beside = is_beside(evidence, &gpus);
    suspects.retain(|suspect| !(beside && Cause::FewChannels.is(suspect)));
    let shared =
        match !beside && !explained.causes.is_empty() && gpus.len() > 1 && gpus.len() < all_gpus {
            true if are_a_node(evidence, &gpus) => Shared::Node,
            true => Shared::Uplink,
            false => Shared::Nothing,
        };
    if shared == Shared::Node {
        // Copies from the memory of another node would be slow on the other GPUs.
        suspects.retain(|suspect| !Cause::OtherNode.is(suspect));
    } else if shared == Shared::Uplink {
        let test = [Step::OtherSlot(one_of(&gpus))];
        suspects.insert(0, suspect(Cause::HiddenUplink, test));
    } else if gpus.len() < all_gpus && !beside {
        suspects.insert(0, suspects::own_way(&gpus));
    }
    let plan = plan(evidence, &gpus, all_gpus, shared);
    let mut found = RULE
        .on_gpus(&gpus, message, plan)
        .fact("lowest_achieved", worst.rate)
        .fact("expected", expected.gbps)
        .at_if(is_of_these_gpus(evidence, explained), Severity::Error);
    let (_, highest) = links::range(rated().map(|rated| rated.rate));
    found.scope.rate = highest;
    found.scope.causes = explained.causes.clone();
    Some(found.suspecting(suspects))
}

/// What several GPUs with slow copies may have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    /// The memory of their NUMA node.
    Node,
    /// An uplink.
    Uplink,
    /// Nothing: it is one GPU, or all of them.
    Nothing,
}

/// Returns true if these are all GPUs of one NUMA node, no link that is seen carries the copies of all of them, and their
/// copies to other GPUs, which an uplink would slow too, are not slow.
fn are_a_node(evidence: &Evidence<'_>, gpus: &[u32]) -> bool {
    let nodes = gpus.iter().map(|gpu| host::own_node(evidence, *gpu));
    let [Some(node)] = words::unique(nodes)[..] else {
        return false;
    };
    let all = evidence.host().iter().map(|copy| copy.gpu);
    let of_node: BTreeSet<u32> =
        all.filter(|gpu| host::own_node(evidence, *gpu) == Some(node)).collect();
    let mut ways = gpus.iter().map(|gpu| {
        let way = evidence.topology.way_up(NodeId::Gpu(*gpu)).into_iter();
        way.filter(|node| matches!(node, NodeId::Pci(_))).collect::<BTreeSet<_>>()
    });
    let first = ways.next().unwrap_or_default();
    let shared = ways.fold(first, |shared, way| &shared & &way);
    let slow = bandwidth::low_pairs(evidence);
    let is_slow = |pair: &Pair| gpus.contains(&pair.source) != gpus.contains(&pair.destination);
    of_node.iter().all(|gpu| gpus.contains(gpu)) && shared.is_empty() && !slow.iter().any(is_slow)
}

/// Returns true if nothing but the way of these GPUs explains how slow their copies are: the memory of their node serves
/// another GPU at full rate, no other work is there, and the loss is more than one of placement.
fn is_of_these_gpus(evidence: &Evidence<'_>, explained: &Explained<'_>) -> bool {
    let limit = HALF.of(evidence);
    let gpus = explained.gpus();
    let reported: Vec<u32> = self::gpus(evidence).into_iter().collect();
    let is_served = |gpu: &u32| host::is_served(evidence, *gpu, &reported);
    let lost = (explained.slow.first())
        .is_some_and(|worst| 100.0 - worst.rated.below_percent(worst.healthy) < limit);
    !evidence.virtual_machine()
        && lost
        && gpus.iter().all(is_served)
        && suspects::busy_among(evidence, &gpus).is_empty()
        && host::busy_tasks(evidence).is_none()
}

/// Returns true if these GPUs reach the host over NVLink-C2C.
fn is_beside(evidence: &Evidence<'_>, gpus: &[u32]) -> bool {
    let is_it =
        |gpu: &u32| evidence.snapshot.gpu(*gpu).is_some_and(|gpu| gpu.c2c.get() == Some(true));
    gpus.iter().all(is_it)
}

fn plan(evidence: &Evidence<'_>, gpus: &[u32], all_gpus: usize, shared: Shared) -> Plan {
    let beside = is_beside(evidence, gpus) && !evidence.virtual_machine();
    let own = if beside {
        vec![Step::OtherFindings(all(gpus)), Step::Stop(Work::OnMachine)]
    } else if evidence.virtual_machine() {
        vec![Step::OtherFindings(all(gpus)), Step::AskHost(Ask::LinkOfGpu)]
    } else if shared == Shared::Node {
        vec![Step::MemoryModules]
    } else if shared == Shared::Uplink {
        vec![Step::SharedSlots(all(gpus)), Step::OtherSlot(one_of(gpus))]
    } else if gpus.len() < all_gpus {
        vec![
            Step::OtherFindings(all(gpus)),
            Step::Reseat(Part::GpuAndRiser(one_of(gpus))),
            Step::Swap(Part::of(gpus)),
        ]
    } else {
        vec![Step::Stop(Work::OnMachine), Step::MemoryModules]
    };
    let node = match evidence.virtual_machine() {
        true => Some(Step::AskHost(Ask::NumaNodes)),
        false => {
            let may_be_far =
                host::has_several_nodes(evidence) && !host::memory_is_ruled_out(evidence, gpus);
            may_be_far.then_some(Step::NumaBind)
        }
    };
    if host::busy_tasks(evidence).is_some() {
        let rest = Plan::now(own).then(node);
        let first = [Step::Stop(Work::OnMachine), Step::CheckAgain];
        return Plan::now(first).before(rest.into());
    }
    let plan = Plan::now(own).then(node).then([Step::CheckAgain]);
    if beside { plan.if_it_stays([Step::Replace(Part::of(gpus))]) } else { plan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::prelude::*;
    use crate::testing::with_host;
    use model::host::HostCopy;
    use model::testing::host_copy;

    #[test]
    fn copies_below_what_the_slot_allows_are_found_and_healthy_ones_are_not() {
        let machine = h200_vm(3);
        let measurements = with_host(&machine, &[55.3, 55.2, 54.0]);
        assert_eq!(findings(&machine, Some(&measurements)), []);
        let measurements = with_host(&machine, &[25.0, 55.2, 55.3]);
        let found =
            only(&findings(&machine, Some(&measurements)), "host-bandwidth-low", Severity::Warning);
        assert_eq!(found.subject, Subject::Gpu { index: 0 });
        for text in [
            "between the host and GPU 0 (0000:00:06.0), in each direction, reach 25.0 GB/s",
            "Gen5 x16",
            "copies with the other GPUs are not slow",
        ] {
            assert!(found.message.contains(text), "{text}: {}", found.message);
        }
        assert_eq!(exit(&findings(&machine, Some(&measurements)), Some(&measurements)), 0);
        let all = with_host(&machine, &[25.0, 25.0, 25.3]);
        assert_eq!(
            only(&findings(&machine, Some(&all)), "host-bandwidth-low", Severity::Warning).subject,
            Subject::Machine
        );
    }

    #[test]
    fn the_figure_that_is_shown_lies_below_the_floor_beside_it() {
        // Both ways lose more than one way and are still normal: 32.4 GB/s and more.
        let machine = h200_vm(3);
        let mut measurements = with_host(&machine, &[44.0, 55.2, 55.3]);
        let both = [37.3, 51.0, 51.2];
        measurements.host.extend((0..).zip(both).map(|(gpu, rate)| HostCopy {
            direction: HostDirection::BothWays,
            ..host_copy(gpu, rate)
        }));
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "host-bandwidth-low", Severity::Warning);
        let text = &found.message;
        assert!(text.contains("reach 44.0 GB/s"), "{text}");
        assert!(text.contains("less than 46.1 is reported"), "{text}");
        // If both ways alone are low, their own figure and floor are shown.
        for copy in &mut measurements.host {
            copy.achieved_gbps = match (copy.gpu, copy.direction) {
                (0, HostDirection::BothWays) => Some(GbPerSecond(25.0)),
                (0, _) => Some(GbPerSecond(55.2)),
                _ => copy.achieved_gbps,
            };
        }
        let all = findings(&machine, Some(&measurements));
        let found = only(&all, "host-bandwidth-low", Severity::Warning);
        let text = &found.message;
        assert!(text.contains("both ways at once"), "{text}");
        assert!(text.contains("25.0 GB/s"), "{text}");
        assert!(text.contains("less than 32.4 is reported"), "{text}");
    }

    #[test]
    fn half_of_one_gpu_is_an_error_and_a_busy_host_explains_it_first() {
        let mut machine = h200_vm(4);
        machine.host.virtual_machine = Reading::Known(false);
        let found = |machine: &Snapshot, rates: &[f64], severity| {
            let measurements = with_host(machine, rates);
            only(&findings(machine, Some(&measurements)), RULE.id.as_ref(), severity)
        };
        let half = [27.6, 55.2, 54.0, 55.1];
        let error = found(&machine, &half, Severity::Error);
        assert!(error.next_step.contains("eseat"), "{}", error.next_step);
        // A copy across sockets loses as much.
        found(&machine, &[36.0, 55.2, 54.0, 55.1], Severity::Warning);
        // The memory of the host may be slow for all.
        found(&machine, &[27.6, 27.7, 27.6, 27.5], Severity::Warning);
        machine.host.busy_tasks = Reading::Known(12);
        let busy = found(&machine, &half, Severity::Warning);
        assert!(busy.next_step.starts_with("Stop other work"), "{}", busy.next_step);
        assert!(
            busy.suspects.iter().any(|suspect| suspect.cause.contains("12 tasks")),
            "{busy:#?}"
        );
    }

    #[test]
    fn a_slot_of_four_lanes_is_compared_with_itself_and_the_best_node_counts() {
        let mut machine = h200_vm(2);
        function_mut(&mut machine, "0000:00:07.0").width = lanes(4);
        function_mut(&mut machine, "0000:00:07.0").width_max = lanes(4);
        (machine.gpus[1].pcie_width, machine.gpus[1].pcie_width_max) = (lanes(4), lanes(4));
        let mut measurements = with_host(&machine, &[55.3, 13.5]);
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
        measurements.host.push(HostCopy { numa_node: Some(1), ..host_copy(0, 20.0) });
        let found = findings(&machine, Some(&measurements));
        assert!(found.iter().all(|found| found.code != RULE.id), "{found:#?}");
    }
}
