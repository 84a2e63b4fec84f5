//! # What it means
//!
//! Something is worse than in an earlier report of the same machine. It may be about to fail.
//!
//! # What to do
//!
//! Ask what was done in between (repair, driver, firmware, settings), look at other findings on the same GPU, and
//! measure again with the machine idle.
//!
//! # How it is detected
//!
//! `check --baseline OLD.json` and `compare OLD NEW` compare GPUs by PCI address. Reported: a GPU that is gone
//! (unless `--gpus` left it out), a narrower or slower PCIe link, fewer active NVLinks, peer access no longer
//! granted, a more distant class, and figures that fell by more than a parameter and the noise of both (half the
//! spread of each). Falls by `least_fall_percent` (copies between GPUs) or `least_fall_link_percent` are errors;
//! others, and calls and times that also rose by 40 us, are warnings.
//!
//! # Sources
//!
//! Runs without warm-up differ by 5 to 10% (cuda-samples issue 449). H200 in virtual machines (measured): pinned one
//! way 2.7% between two machines; both GPUs at once 86 to 107 GB/s within an hour; a launch 3.2 to 8.9 us.

use super::host;
use super::prelude::*;
use crate::baseline::Beside;
use crate::facts::Change;
use crate::figures::{Allowances, Compared, Ends, Kind};
use crate::host_figures::{self, DecidedBy};
use crate::shortfalls::{ProbeShortfall, Shortfall, ShortfallGroup, by_probe, groups};
use model::machine_facts::Component;

const LEAST_FALL: Parameter = Parameter {
    name: "least_fall_percent",
    default: host_figures::PAIR_PERCENT,
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
pub(crate) const RULE: Rule = Rule::new("fell-since-baseline", Severity::Error, judge)
    .with(&[LEAST_FALL, LINK, MEMORY, PROCESSOR, CALLS]);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(beside) = Beside::of(evidence) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut gone = beside.vanished(evidence);
    if gone.len() > 1 && gone.len() == beside.old.snapshot.gpus.len() {
        let what = format!(
            "None of the {} GPUs of the earlier report is here; it is of another machine, or all were replaced",
            gone.len()
        );
        let next = Plan::now([Step::Bus, Step::DriverLog]);
        let addresses = gone
            .iter()
            .filter_map(|gpu| gpu.pci.get())
            .map(|address| address.to_string())
            .collect();
        let found = RULE.finding(Subject::Machine, what, next);
        findings.push(found.fact("addresses", Fact::Texts(addresses)));
        gone.clear();
    }
    for gpu in gone {
        let place = words::in_brackets(gpu.pci.get());
        let what = format!("GPU {}{place} of the earlier report is gone", gpu.index);
        let lost = || OneOf(vec![gpu.index]);
        let next = Plan::now([Step::Bus, Step::DriverLog])
            .if_it_stays([Step::PowerCables(lost()), Step::Reseat(Part::Gpu(lost()))]);
        let found = RULE.finding(Subject::Machine, what, next).fact("earlier_index", gpu.index);
        findings.push(found.fact("pci", gpu.pci.get()));
    }
    let changes = beside.facts(evidence);
    findings.extend(changes.iter().filter_map(|change| fewer(evidence, change)));
    findings.extend(lost(&changes));
    let allowed = allowances(evidence);
    let figures = beside.figures(evidence);
    let worse: Vec<_> = figures.iter().filter(|figure| figure.is_worse(&allowed)).collect();
    findings.extend(of_pairs(evidence, &figures, &worse));
    let short: Vec<_> = worse.iter().filter_map(|figure| Shortfall::since(figure)).collect();
    let of_host = groups(&short);
    findings.extend(of_host.iter().map(|group| host_fell(evidence, group)));
    findings.extend(others(&short));
    findings
}

/// Returns how much worse a figure may be by the parameters of this rule.
pub(crate) fn allowances(evidence: &Evidence<'_>) -> Allowances {
    let of = |parameter| RULE.parameter(evidence, parameter);
    Allowances {
        pair: of(&LEAST_FALL),
        link: of(&LINK),
        memory: of(&MEMORY),
        processor: of(&PROCESSOR),
        time: of(&CALLS),
    }
}

/// Returns a finding for each other probe with figures that are worse, led by the worst.
fn others(worse: &[Shortfall]) -> Vec<Finding> {
    let is_other = |short: &&Shortfall| matches!(short.kind, Kind::Other { .. });
    let others = worse.iter().filter(is_other);
    let finding = |short: ProbeShortfall<'_>| {
        let message = short.message(", was ", " in the earlier report");
        let next = Plan::now([Step::Stop(Work::OnMachineAndHost), Step::CheckAgain])
            .if_it_stays([Step::WhatWasDone]);
        RULE.finding(Subject::of_gpus(&short.gpus), message, next)
            .fact("then", Fact::figure(short.worst.wanted))
            .fact("now", Fact::figure(short.worst.found))
            .gpus(&short.gpus)
            .at(Severity::Warning)
    };
    by_probe(others).into_iter().map(finding).collect()
}

fn host_fell(evidence: &Evidence<'_>, group: &ShortfallGroup) -> Finding {
    let (worst, kind) = (&group.worst, group.what.kind());
    let [then, now] = [worst.wanted, worst.found].map(|value| ShortfallGroup::said(value, kind));
    let what = group.what;
    let next = Plan::now([Step::Stop(Work::OnMachineAndHost), Step::CheckAgain]);
    let of_gpus = words::named_or_all(evidence.snapshot, &group.gpus);
    let found = if kind == DecidedBy::Time {
        let message = format!(
            "The host takes up to {now} us for calls for {of_gpus}, {then} in the earlier report; {what}{}",
            group.more()
        );
        let next = next.if_it_stays([Step::Stop(Work::Tools), Step::PowerSaving]);
        RULE.finding(Subject::of_gpus(&group.gpus), message, next)
            .fact("then_us", Fact::figure(worst.wanted))
            .fact("now_us", Fact::figure(worst.found))
    } else {
        let message = format!(
            "Copies between the host and {of_gpus} fell {:.1}% since the earlier report, {then} → {now} GB/s; {what}{}",
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
    let found = found.gpus(&group.gpus);
    found.at_if(kind != DecidedBy::Link, Severity::Warning)
}

fn fewer(evidence: &Evidence<'_>, change: &Change) -> Option<Finding> {
    let Component::Gpu(index) = change.part else {
        return None;
    };
    let (what, then, now) = change.fewer()?;
    let gpu = words::gpu(evidence.snapshot, index);
    let found = RULE.finding(
        Subject::Gpu { index },
        format!("{gpu}: {what} {then} → {now} since the earlier report"),
        [
            Step::WhatWasDone,
            Step::OtherFindings(all(&[index])),
            Step::Reseat(Part::GpuAndRiser(steps::gpu(index))),
        ],
    );
    Some(found.fact("then", then).fact("now", now))
}

fn lost(changes: &[Change]) -> Vec<Finding> {
    let lost = words::grouped(changes.iter().filter_map(|change| match change.part {
        Component::Pair(pair) => Some((change.lost()?, pair)),
        _ => None,
    }));
    let report = |(what, pairs): (String, Vec<Pair>)| {
        let message =
            format!("{what}: {}; {}", words::count(pairs.len(), "pair"), words::pairs(&pairs));
        let found = RULE.finding(Subject::of_pairs(&pairs), message, [Step::CompareBaseline]);
        found.pairs(&pairs)
    };
    lost.into_iter().map(report).collect()
}

/// Returns findings for pairs whose figures are worse. If the same pairs fall in many ways of copying at once, one finding
/// has the worst of them.
fn of_pairs(
    evidence: &Evidence<'_>,
    figures: &[Compared<Ends>],
    worse: &[&Compared<Ends>],
) -> Vec<Finding> {
    let pairs = |figures: &[&Compared<Ends>]| -> Vec<Pair> {
        let pairs = figures.iter().filter_map(|figure| figure.identity.pair());
        pairs.collect()
    };
    let of_pairs = worse.iter().filter(|figure| matches!(figure.kind, Kind::Pair(_)));
    let ways = words::grouped(of_pairs.map(|figure| (&figure.kind, *figure)));
    let mut groups: BTreeMap<Vec<Pair>, Vec<(&Compared<Ends>, cluster::Group)>> = BTreeMap::new();
    for (way, bad) in ways {
        let of_way = || figures.iter().filter(|figure| figure.kind == *way);
        let seen = of_way().filter(|figure| figure.now.is_some());
        let seen = pairs(&seen.collect::<Vec<_>>());
        for group in evidence.groups(&pairs(&bad), &seen) {
            let of_group = of_way().filter(|figure| {
                let pair = figure.identity.pair();
                pair.is_some_and(|pair| group.pairs.contains(&pair))
            });
            if let Some(worst) = worst(of_group) {
                let ways = groups.entry(group.pairs.clone()).or_default();
                ways.push((worst, group));
            }
        }
    }
    let groups = groups.into_values();
    groups.filter_map(|ways| fell(evidence, &ways)).collect()
}

fn worst<'a>(figures: impl Iterator<Item = &'a Compared<Ends>>) -> Option<&'a Compared<Ends>> {
    words::largest(figures, |figure| figure.percent_worse().unwrap_or(f64::NEG_INFINITY))
}

fn fell(evidence: &Evidence<'_>, ways: &[(&Compared<Ends>, cluster::Group)]) -> Option<Finding> {
    let worst = worst(ways.iter().map(|(figure, _)| *figure))?;
    let (_, group) = ways.iter().find(|(figure, _)| std::ptr::eq(*figure, worst))?;
    let [old, new] = [worst.then.value, worst.now?.value].map(GbPerSecond);
    let (way, fall) = (&worst.kind, worst.percent_worse()?);
    let more = words::further(" and in ", ways.len() - 1, "other way");
    let message = format!(
        "Copies {} fell {fall:.1}% since the earlier report, {old} → {new} GB/s; {way}{more}",
        group.place(evidence.snapshot),
    );
    let others = Step::OtherFindings(All(group.gpus()));
    let plan = Plan::now([Step::Stop(Work::OnMachine), Step::CheckAgain])
        .if_it_stays([Step::WhatWasDone, others]);
    let found = RULE
        .finding(group.subject(), message, plan)
        .fact("then", old)
        .fact("now", new)
        .fact("fall", Fact::percent(fall))
        .fact("noise", Fact::percent(worst.noise_percent()));
    Some(found.pairs(&group.pairs))
}
