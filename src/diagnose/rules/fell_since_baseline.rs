//! # What it means
//!
//! Something is worse than it was in an earlier report of the same machine.
//!
//! # How it is detected
//!
//! `check --baseline OLD.json` and `compare OLD NEW` compare the two reports, GPUs by their PCI address (a path belongs
//! to the slot, not to the card in it). Reported are a GPU that is gone, a PCIe link that is narrower or slower between
//! its ends, fewer active NVLinks, peer access that is no longer granted, and a more distant class. Every bandwidth
//! figure is reported that fell by more than `least_fall_percent` and the two figures' own noise (half the spread of
//! each) together. Figures that fell are grouped by what the pairs have in common. A GPU that `--gpus` left out of the
//! later report is not gone.
//!
//! Copies between host and GPU, pipelines, calls that need not wait and loops of launches are compared too, GPU by GPU.
//! The best figure of several NUMA nodes counts. Copies of page-locked memory one way by copy engine depend on the
//! link. They fell if they are lower by more than `least_fall_link_percent` and their noise. Figures that also depend
//! on the host's memory (both ways, several GPUs at once, pipelines, kernels over mapped memory) must fall by
//! `least_fall_memory_percent`. Figures that depend on the processor (pageable memory, memory that is page-locked anew)
//! must fall by `least_fall_processor_percent`. A call must take longer by `least_rise_call_percent` and by 40 us.
//! These margins are more than healthy machines were seen to differ by. The last three kinds are warnings. All figures
//! that fell on one GPU are one finding, of the first of these four kinds that it has.
//!
//! # Why it matters
//!
//! A machine that still passes may be about to fail: a cable ages, a card was not seated well after a repair, or a
//! driver brought a change.
//!
//! # What to do
//!
//! Ask what was done to the machine between the two reports (repair, new driver or firmware, other settings), and look
//! at the other findings on the same GPU. Measure again with the machine idle: a fall that does not show again was
//! caused by other work.
//!
//! # Sources
//!
//! Five runs on 8 x H200 lay within 0.41% of each other (docs/measurement.md); 5 to 10% have been reported for
//! measurements without warm-up (cuda-samples issue 449). Figures of the host, on H200 in virtual machines (measured,
//! docs/measurement.md): pinned one way within 1%, 2.7% between two machines; both GPUs at once 86 to 107 GB/s within
//! an hour; pageable 4.5 to 15.4 GB/s; a launch 3.2 to 8.9 us.

use super::host;
use super::prelude::*;
use crate::baseline::{Beside, HostOldAndNew, OldAndNew};
use crate::host_figures::{self, DecidedBy, ShortfallGroup};

const LEAST_FALL: Parameter = Parameter {
    name: "least_fall_percent",
    default: 3.0,
    about: "a smaller fall is not reported; five runs on H200 lay within 0.41%, 3 leaves room for clocks and driver",
};
const LINK: Parameter = Parameter {
    name: "least_fall_link_percent",
    default: host_figures::LINK_PERCENT,
    about: "the same for copies of page-locked memory between host and GPU one way; chosen: five times the 1% that they \
            repeat within on H200",
};
const MEMORY: Parameter = Parameter {
    name: "least_fall_memory_percent",
    default: host_figures::MEMORY_PERCENT,
    about: "the same for what passes the host's memory too: both ways, several GPUs at once, pipelines; chosen: half as \
            much again as the 20% measured within an hour on H200",
};
const PROCESSOR: Parameter = Parameter {
    name: "least_fall_processor_percent",
    default: host_figures::PROCESSOR_PERCENT,
    about: "the same for what the processor does: pageable memory, page-locking; chosen: healthy H200 had 4.5 to 15.4 GB/s",
};
const CALLS: Parameter = Parameter {
    name: "least_rise_call_percent",
    default: 100.0 * (host_figures::TIMES - 1.0),
    about: "how much longer a call must take: four times as long; chosen above the 3.3 between two healthy machines of H200",
};
pub(crate) const RULE: Rule = Rule::new(
    "fell-since-baseline",
    Severity::Error,
    include_str!("fell_since_baseline.rs"),
    judge,
)
.with(&[LEAST_FALL, LINK, MEMORY, PROCESSOR, CALLS]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for gpu in beside.vanished(evidence) {
        let place = gpu
            .pci
            .get()
            .map(|address| format!(" ({address})"))
            .unwrap_or_default();
        let what = format!("GPU {}{place} of the earlier report is gone", gpu.index);
        let lost = || OneOf(vec![gpu.index]);
        let next = Plan::now([Step::Bus, Step::DriverLog])
            .if_it_stays([Step::PowerCables(lost()), Step::Reseat(Part::Gpu(lost()))]);
        let found = RULE.finding(Subject::Machine, what, next);
        findings.push(
            found
                .fact("earlier_index", gpu.index)
                .fact("pci", gpu.pci.get()),
        );
    }
    findings.extend(
        beside
            .gpus(evidence)
            .into_iter()
            .flat_map(|(old, new)| links(evidence, old, new)),
    );
    findings.extend(routes(evidence, &beside));
    findings.extend(figures(evidence, &beside));
    findings.extend(of_host(evidence, &beside));
    findings
}

/// Returns findings for figures of host and GPU that are worse by more than healthy machines differ.
fn of_host(evidence: &Evidence<'_>, beside: &Beside<'_>) -> Vec<Finding> {
    let worse = |figures: &HostOldAndNew| {
        figures
            .change()
            .filter(|short| is_beyond(evidence, figures, short.percent()))
    };
    let worse: Vec<_> = beside
        .host_figures(evidence)
        .iter()
        .filter_map(worse)
        .collect();
    host_figures::groups(&worse)
        .iter()
        .map(|group| host_fell(evidence, group))
        .collect()
}

/// Returns true if a figure that is worse by `percent` is worse by more than its noise. A negative `percent` means
/// better.
pub(crate) fn is_beyond(evidence: &Evidence<'_>, figures: &HostOldAndNew, percent: f64) -> bool {
    let least = |parameter| RULE.parameter(evidence, parameter);
    match figures.what.kind() {
        DecidedBy::Link => percent > least(&LINK) + figures.noise_percent(),
        // These margins already include scatter.
        DecidedBy::Memory => percent > least(&MEMORY).max(figures.noise_percent()),
        DecidedBy::Processor => percent > least(&PROCESSOR).max(figures.noise_percent()),
        DecidedBy::Time => {
            percent > least(&CALLS) && percent / 100.0 * figures.old.value > host_figures::LEAST_US
        }
    }
}

fn host_fell(evidence: &Evidence<'_>, group: &ShortfallGroup) -> Finding {
    let (worst, kind) = (&group.worst, group.worst.what.kind());
    let [then, now] = [worst.wanted, worst.found].map(|value| ShortfallGroup::said(value, kind));
    let what = worst.what;
    let next = Plan::now([Step::Stop(Work::OnMachineAndHost), Step::CheckAgain]);
    let of_gpus = words::named_or_all(evidence.snapshot, &group.gpus);
    let found = if kind == DecidedBy::Time {
        let message = format!(
            "The host takes up to {now} us for calls for {of_gpus} ({what}), {then} in the earlier report{}",
            group.more()
        );
        let next = next.if_it_stays([Step::Stop(Work::Tools), Step::PowerSaving]);
        RULE.finding(Subject::of_gpus(&group.gpus), message, next)
            .fact("then_us", Fact::figure(worst.wanted))
            .fact("now_us", Fact::figure(worst.found))
    } else {
        let message = format!(
            "Copies between the host and {of_gpus} fell by up to {:.1}%, from {then} to {now} GB/s ({what}){}",
            worst.percent(),
            group.more()
        );
        let others = Step::OtherFindings(all(&group.gpus));
        let next = next.if_it_stays([Step::WhatWasDone, others]);
        RULE.finding(Subject::of_gpus(&group.gpus), message, next)
            .fact("then", GbPerSecond(worst.wanted))
            .fact("now", GbPerSecond(worst.found))
            .fact("fall", Fact::percent(worst.percent()))
            .suspecting(host::suspects(evidence, &group.gpus))
    };
    // Other programs may cause what the link does not decide.
    found.gpus(&group.gpus).at(if kind == DecidedBy::Link {
        Severity::Error
    } else {
        Severity::Warning
    })
}

fn links(evidence: &Evidence<'_>, old: &Gpu, new: &Gpu) -> Vec<Finding> {
    // Lanes seen only at rest are not the link's width.
    let lanes = links::belief_of(evidence, new.index)
        .and_then(|belief| belief.measured_lanes())
        .or(new.pcie_width.get());
    let fell = [
        (
            "PCIe lanes",
            old.pcie_width.get().map(u32::from),
            lanes.map(u32::from),
        ),
        // The current generation may be that of an idle link; the highest that GPU and slot support is stable.
        (
            "PCIe generation at most",
            old.pcie_generation_max.get().map(u32::from),
            new.pcie_generation_max.get().map(u32::from),
        ),
        ("active NVLinks", old.active_nvlinks(), new.active_nvlinks()),
    ];
    let report = |(what, then, now): (&str, Option<u32>, Option<u32>)| {
        let (then, now) = then.zip(now).filter(|(then, now)| now < then)?;
        Some(
            RULE.finding(
                Subject::Gpu { index: new.index },
                format!(
                    "{}: {now} {what}, {then} in the earlier report",
                    words::gpu(evidence.snapshot, new.index)
                ),
                [
                    Step::WhatWasDone,
                    Step::OtherFindings(all(&[new.index])),
                    Step::Reseat(Part::GpuAndRiser(gpu(new.index))),
                ],
            )
            .fact("then", then)
            .fact("now", now),
        )
    };
    fell.into_iter().filter_map(report).collect()
}

fn routes(evidence: &Evidence<'_>, beside: &Beside<'_>) -> Vec<Finding> {
    let mut lost: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
    for then in &beside.old.topology.pairs {
        let Some(now) = beside
            .pair(then.pair)
            .and_then(|pair| evidence.topology.route(pair))
        else {
            continue;
        };
        let access = |route: &PairRoute| route.peer_access.cuda;
        if access(then) == Some(true) && access(now) == Some(false) {
            lost.entry("CUDA no longer grants peer access".into())
                .or_default()
                .push(now.pair);
        }
        if now.class > then.class && !matches!(then.class, model::topology::LinkClass::NvLink(_)) {
            let what = format!(
                "The GPUs are connected by {}, earlier by {}",
                now.class, then.class
            );
            lost.entry(what).or_default().push(now.pair);
        }
    }
    let report = |(what, pairs): (String, Vec<Pair>)| {
        RULE.finding(
            if let [pair] = pairs[..] {
                Subject::Pair(pair)
            } else {
                Subject::Machine
            },
            format!("{what}: {}", words::pairs(&pairs)),
            [Step::CompareBaseline],
        )
        .pairs(&pairs)
    };
    lost.into_iter().map(report).collect()
}

fn figures(evidence: &Evidence<'_>, beside: &Beside<'_>) -> Vec<Finding> {
    let least = RULE.parameter(evidence, &LEAST_FALL);
    let mut ways: BTreeMap<String, Vec<OldAndNew<'_>>> = BTreeMap::new();
    for figures in beside.figures(evidence) {
        let old = figures.old;
        let way = format!(
            "{} copies, {}, issued by {}, {}, {}",
            old.setup.engine,
            old.setup.path,
            old.setup.issuer,
            old.setup.direction,
            old.setup.placement
        );
        ways.entry(way).or_default().push(figures);
    }
    // If the same pairs fall in many ways of copying at once, report one finding with the worst of them.
    let mut groups: BTreeMap<Vec<Pair>, Vec<(String, OldAndNew<'_>, cluster::Group)>> =
        BTreeMap::new();
    for (way, figures) in ways {
        let fell = |figures: &&OldAndNew<'_>| {
            figures
                .fall_percent()
                .is_some_and(|fall| fall > least + figures.noise_percent())
        };
        let bad: Vec<_> = figures
            .iter()
            .filter(fell)
            .map(|figures| figures.pair)
            .collect();
        let seen: Vec<_> = figures
            .iter()
            .filter(|figures| figures.new.is_some())
            .map(|figures| figures.pair)
            .collect();
        for group in cluster::groups(&bad, &seen, evidence.topology) {
            let worst = figures
                .iter()
                .filter(|figures| {
                    group.pairs.contains(&figures.pair) && figures.fall_percent().is_some()
                })
                .max_by(|one, other| {
                    one.fall_percent()
                        .unwrap_or(0.0)
                        .total_cmp(&other.fall_percent().unwrap_or(0.0))
                });
            if let Some(worst) = worst.copied() {
                groups
                    .entry(group.pairs.clone())
                    .or_default()
                    .push((way.clone(), worst, group));
            }
        }
    }
    groups
        .into_values()
        .filter_map(|ways| fell(evidence, &ways))
        .collect()
}

fn fell(
    evidence: &Evidence<'_>,
    ways: &[(String, OldAndNew<'_>, cluster::Group)],
) -> Option<Finding> {
    let fall = |figures: &OldAndNew<'_>| figures.fall_percent().unwrap_or(0.0);
    let (way, worst, group) = ways
        .iter()
        .max_by(|one, other| fall(&one.1).total_cmp(&fall(&other.1)))?;
    let (old, new) = (worst.old.achieved_gbps?, worst.new?.achieved_gbps?);
    let more = match ways.len() {
        1 => String::new(),
        ways => format!(
            " and in {}",
            words::count(ways - 1, "other way") + " of copying"
        ),
    };
    Some(
        RULE.finding(
            group.subject(),
            format!(
                "Copies {} fell by up to {:.1}%, from {old} to {new} GB/s ({way}){more}",
                group.place(evidence.snapshot),
                fall(worst),
            ),
            Plan::now([Step::Stop(Work::OnMachine), Step::CheckAgain])
                .if_it_stays([Step::WhatWasDone, Step::OtherFindings(All(group.gpus()))]),
        )
        .fact("then", old)
        .fact("now", new)
        .fact("fall", Fact::percent(fall(worst)))
        .fact("noise", Fact::percent(worst.noise_percent()))
        .pairs(&group.pairs),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::beside_recorded;
    use crate::testing::prelude::*;

    #[test]
    fn figures_a_tenth_lower_are_to_be_measured_again() {
        let found = beside_recorded(|new| {
            for cell in &mut new.measurements.as_mut().unwrap().peer {
                cell.achieved_gbps = cell.achieved_gbps.map(|rate| GbPerSecond(rate.0 * 0.9));
            }
        });
        let may = ["check-again-idle", "new-baseline"];
        assert_advice(&RULE, &found, &["end-programs"], &may);
    }
}
