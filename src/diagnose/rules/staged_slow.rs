//! # What it means
//!
//! Copies through the host's memory are far slower than the PCIe links allow.
//!
//! # What to do
//!
//! Follow PCIe findings of the same GPUs first. One slow GPU: its slot, riser or cable. All slow: fit every memory
//! channel, stop other work, run programs on the NUMA node of the GPUs (`numactl`). Virtual machine: ask if its memory
//! and processors are pinned to these nodes.
//!
//! # How it is detected
//!
//! Staged reference figures that one change of the machine slows lie below what healthy machines reach of the narrowest
//! PCIe link's payload rate, by more than the margin of the class `staged` (`[expected.staged]` with `--config`), or by
//! more than `below_median_percent` below the better ones with the same way to the host. If copies with the host slow
//! too, `host-bandwidth-low` reports it.
//!
//! # Sources
//!
//! 8 x H200 (a virtual machine): 35 to 38 of 63 GB/s (measured).

use super::host;
use super::peers::{self, Explained, Figures};
use super::prelude::*;

rule! {
    "staged-slow", Warning, All(judge);
    /// how far below comparable staged pairs a pair may be; chosen wide: 5 was measured on H200
    BELOW: below_median_percent = 30.0;
}

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let explained = peers::explained(evidence, Figures::Staged).into_iter();
    explained.filter_map(|one| finding(evidence, &one)).collect()
}

fn finding(evidence: &Evidence<'_>, explained: &Explained<'_>) -> Option<Finding> {
    let (group, worst) = (&explained.group, explained.worst()?);
    let is_shared = matches!(group.common, cluster::Common::Link(_));
    let place = evidence.place(group);
    let mut suspects = suspected(evidence, group);
    let found = if explained.is_low(evidence) {
        let expected = evidence.expected(worst.cell)?;
        let floor = expected.floor_gbps();
        let message = format!(
            "Copies {place} through the host's memory reach {}",
            words::of_healthy(worst.achieved, expected.gbps, floor),
        );
        explained.finding((&RULE, evidence), message, too_slow_plan(evidence, group))
    } else {
        let below = worst.below_percent();
        let margin = BELOW.of(evidence);
        if below <= margin.max(evidence.scatter_percent()) {
            return None;
        }
        let message = format!(
            "Copies {place} through the host's memory reach {} GB/s, {below:.0}% less than the {} of like pairs",
            worst.achieved, worst.healthy,
        );
        let plan = if is_shared {
            too_slow_plan(evidence, group)
        } else {
            suspects.push(suspects::own_way(&group.gpus()));
            let gpus = || OneOf(group.gpus());
            Plan::check_without(Work::OnGpus).if_it_stays([
                Step::PcieErrorsOf(gpus()),
                Step::Reseat(Part::GpuAndRiser(gpus())),
                Step::Swap(Part::Gpu(gpus())),
            ])
        };
        explained.finding((&RULE, evidence), message, plan)
    };
    Some(found.suspecting(suspects))
}

/// Returns the steps. They depend on two facts: if one GPU is part of all slow pairs, and if the host has several
/// nodes.
fn too_slow_plan(evidence: &Evidence<'_>, group: &cluster::Group) -> Plan {
    let own = match group.subject() {
        _ if matches!(group.common, cluster::Common::Link(_)) => {
            vec![Step::SharedHop, Step::CheckAloneThenAll]
        }
        Subject::Gpu { index } => vec![
            Step::OtherFindings(all(&[index])),
            Step::Reseat(Part::GpuAndRiser(gpu(index))),
            Step::Swap(Part::of(&[index])),
        ],
        _ => vec![Step::MemoryModules],
    };
    let node = host::has_several_nodes(evidence).then_some(Step::NumaBind);
    Plan::now(own).then(node).then([Step::Stop(Work::OnMachine), Step::CheckAgain])
}

fn suspected(evidence: &Evidence<'_>, group: &cluster::Group) -> Vec<Suspect> {
    let uplink = matches!(group.common, cluster::Common::Link(_))
        .then(|| suspect(Cause::SharedLink, [Step::CheckAloneThenAll]));
    uplink.into_iter().chain(suspects::of_staged_copies(evidence, &group.pairs)).collect()
}
