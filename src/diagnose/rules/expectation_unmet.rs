//! # What it means
//!
//! The machine lacks something that the file of `--expect` asks for. It may be healthy.
//!
//! # What to do
//!
//! Compare with the order and the machine behind the file (`peerscope expect`). Other findings on the same GPU show
//! the cause.
//!
//! # How it is detected
//!
//! Compared with the file: number and model of the GPUs, generation and lanes of each PCIe link (as seen under load
//! if copies ran), active NVLinks, peer access as CUDA grants it, the reference figure of each pair, copies with the
//! host, pipelines, calls and loops of launches of each GPU, and what `[figures]` limits.
//!
//! # Sources
//!
//! The file itself.

use super::host;
use super::prelude::*;
use crate::expectations::{Check, Expectations, Required};
use crate::facts;
use crate::figures::Ends;
use crate::host_figures::DecidedBy;
use crate::shortfalls::{ProbeShortfall, Shortfall, ShortfallGroup, by_probe, groups};

pub(crate) const RULE: Rule = Rule::new("expectation-unmet", Severity::Error, judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(expected) = evidence.expectations else {
        return Vec::new();
    };
    let mut findings = gpus(evidence, expected);
    findings.extend(links(evidence, expected));
    findings.extend(access(evidence, expected));
    let checks = expected.checks(evidence.measurements, evidence.topology);
    findings.extend(floors(evidence, &checks));
    let is_other = |check: &&Check<'_>| matches!(check.required, Required::Other(..));
    let (others, of_host): (Vec<_>, Vec<_>) = checks.iter().partition(is_other);
    let below = |checks: Vec<_>| checks.into_iter().flat_map(Shortfall::below).collect::<Vec<_>>();
    let of_host = groups(&below(of_host));
    findings.extend(of_host.iter().map(|group| below_host(evidence, group)));
    findings.extend(by_probe(below(others).iter()).into_iter().map(below_other));
    findings
}

/// Returns the finding on all figures of another probe that were not expected, led by the worst.
fn below_other(short: ProbeShortfall<'_>) -> Finding {
    let message = short.message(", expected ", "");
    let gpus = &short.gpus;
    RULE.finding(Subject::of_gpus(gpus), message, again(gpus)).gpus(gpus)
}

fn again(gpus: &[u32]) -> Plan {
    Plan::now([Step::OtherFindings(all(gpus))])
        .otherwise([Step::CheckHostIdle, Step::CompareExpected])
}

fn below_host(evidence: &Evidence<'_>, group: &ShortfallGroup) -> Finding {
    let (worst, kind) = (&group.worst, group.what.kind());
    let [wanted, found] =
        [worst.wanted, worst.found].map(|value| ShortfallGroup::said(value, kind));
    let (what, of_gpus, more) =
        (group.what, words::named_or_all(evidence.snapshot, &group.gpus), group.more());
    let next = again(&group.gpus);
    let subject = Subject::of_gpus(&group.gpus);
    let finding = if kind == DecidedBy::Time {
        let message = format!(
            "The host takes {found} us for calls for {of_gpus}, expected {wanted} at most; {what}{more}"
        );
        RULE.finding(subject, message, next)
            .fact("highest_us", Fact::figure(worst.found))
            .fact("limit_us", Fact::figure(worst.wanted))
    } else {
        let message = format!(
            "Copies between the host and {of_gpus} reach {found} GB/s, expected {wanted}; {what}{more}"
        );
        RULE.finding(subject, message, next)
            .fact("lowest_achieved", GbPerSecond(worst.found))
            .fact("floor", GbPerSecond(worst.wanted))
            .suspecting(host::suspects(evidence, &group.gpus))
    };
    finding.gpus(&group.gpus)
}

fn gpus(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    let gpus = &evidence.snapshot.gpus;
    let mut findings = Vec::new();
    let count = expected.gpus.count.filter(|count| *count as usize != gpus.len());
    if let Some(count) = count {
        let message = format!("{} expected, {} found", words::count(count, "GPU"), gpus.len());
        let no_gpu = || OneOf(Vec::new());
        let plan = Plan::now([Step::Bus, Step::DriverLog])
            .if_it_stays([Step::PowerCables(no_gpu()), Step::Reseat(Part::Gpu(no_gpu()))])
            .otherwise([Step::ChangeExpectations]);
        let found = RULE.finding(Subject::Machine, message, plan);
        findings.push(found.fact("expected", count).fact("found", gpus.len()));
    }
    let Some(model) = &expected.gpus.model else {
        return findings;
    };
    let others = gpus.iter().filter_map(|gpu| Some((gpu.name.known()?, gpu.index)));
    let others = words::grouped(others.filter(|(name, _)| *name != model)).into_iter();
    findings.extend(others.map(|(name, indices)| {
        let message =
            format!("{}: {name}, expected {model}", words::named(evidence.snapshot, &indices));
        let steps = [Step::CompareOrdered, Step::CompareExpected];
        RULE.finding(Subject::of_gpus(&indices), message, steps)
            .fact("expected", model)
            .fact("found", name)
            .gpus(&indices)
    }));
    findings
}

fn links(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    let facts = facts::of(evidence);
    let all_gpus = evidence.snapshot.gpus.iter().map(|gpu| gpu.index);
    let below = words::grouped(all_gpus.flat_map(|gpu| {
        let lacks = |(key, what, wanted): (&str, &'static str, Option<u32>)| {
            let (wanted, found) = wanted.zip(facts::number(&facts, gpu, key))?;
            (found < wanted).then_some(((what, wanted, found), gpu))
        };
        facts::required(expected).into_iter().filter_map(lacks).collect::<Vec<_>>()
    }));
    let report = |((what, wanted, found), gpus): ((&str, u32, u32), Vec<u32>)| {
        let names = words::named(evidence.snapshot, &gpus);
        let message = format!("{names}: {what} {found}, expected {wanted}");
        let plan = Plan::now([Step::OtherFindings(all(&gpus))]).otherwise([Step::CompareOrdered]);
        RULE.finding(Subject::of_gpus(&gpus), message, plan)
            .fact("expected", wanted)
            .fact("found", found)
            .gpus(&gpus)
    };
    below.into_iter().map(report).collect()
}

fn access(evidence: &Evidence<'_>, expected: &Expectations) -> Option<Finding> {
    let pairs = &evidence.topology.pairs;
    let denied: Vec<_> = pairs
        .iter()
        .filter(|route| route.peer_access.cuda == Some(false))
        .map(|route| route.pair)
        .collect();
    if expected.peer.access != Some(true) || denied.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} without peer access, expected of all; {}",
        denied.len(),
        words::count(pairs.len(), "pair"),
        words::pairs(&denied)
    );
    let steps = [Step::FindingOf("peer-access-missing")];
    let found = RULE.finding(Subject::of_pairs(&denied), message, steps);
    Some(found.pairs(&denied))
}

fn floors(evidence: &Evidence<'_>, checks: &[Check<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in checks {
        let Required::Floor(floor) = check.required else {
            continue;
        };
        let pair = |(ends, _): &(Ends, f64)| ends.pair();
        let seen: Vec<_> = check.found.iter().filter_map(pair).collect();
        let slow: BTreeMap<Pair, f64> =
            check.crossed().filter_map(|(ends, rate)| Some((ends.pair()?, *rate))).collect();
        let pairs: Vec<_> = slow.keys().copied().collect();
        let path = match floor.path {
            Path::Direct => "Direct",
            Path::Staged => "Staged",
        };
        let finding = |group: cluster::Group| {
            let rates = group.pairs.iter().filter_map(|pair| slow.get(pair).copied());
            let least = rates.reduce(f64::min)?;
            let message = format!(
                "{path} copies {} reach {least:.1} GB/s, expected {}; {}",
                group.place(evidence.snapshot),
                floor.gbps,
                floor.of()
            );
            let plan = Plan::now([Step::OtherFindings(All(group.gpus()))])
                .otherwise([Step::CheckIdle, Step::CompareExpected]);
            let found = RULE
                .finding(group.subject(), message, plan)
                .fact("lowest_achieved", GbPerSecond(least))
                .fact("floor", GbPerSecond(floor.gbps));
            Some(found.pairs(&group.pairs))
        };
        findings.extend(evidence.groups(&pairs, &seen).into_iter().filter_map(finding));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn a_gpu_that_is_missing_is_to_be_looked_for() {
        let found = expecting("[gpus]\ncount = 8\n", |_| ());
        let may = ["ask-host", "change-expectations", "xid"];
        assert_advice(&RULE, &found, &["lspci"], &may);
    }
}
