//! # What it means
//!
//! The machine is not what was ordered: it lacks something that the file of `--expect` asks for.
//!
//! # How it is detected
//!
//! Number and model of the GPUs, generation and lanes of each PCIe link (as seen under load if copies ran), active
//! NVLinks of each GPU, peer access of every pair as CUDA grants it, and the reference figure of each pair are compared
//! with the file. Each difference is a finding; GPUs or pairs with the same difference share one. Copies between host
//! and GPU, pipelines, calls that need not wait and loops of launches are compared too, GPU by GPU. All shortfalls of
//! one GPU are one finding, led by those that its link decides. All other rates and times that `[figures]` limits are one
//! finding for each probe.
//!
//! # Why it matters
//!
//! A machine can be healthy by its own topology and still not be the one that was ordered: a board
//! with fewer links, a riser with fewer lanes, a slower model.
//!
//! # What to do
//!
//! Compare with the order and the machine that the expectations were made from (`peerscope expect`). Other findings on
//! the same GPU show the cause.
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
    let of = |is_other: bool| {
        let checks = checks.iter();
        let checks =
            checks.filter(move |check| matches!(check.required, Required::Other(..)) == is_other);
        checks.flat_map(Shortfall::below).collect::<Vec<_>>()
    };
    findings.extend(
        groups(&of(false))
            .iter()
            .map(|group| below_host(evidence, group)),
    );
    findings.extend(by_probe(of(true).iter()).into_iter().map(below_other));
    findings
}

/// Returns the finding on all figures of another probe that were not expected, led by the worst.
fn below_other(short: ProbeShortfall<'_>) -> Finding {
    let message = short.message(" where ", " were expected");
    let gpus = &short.gpus;
    RULE.finding(Subject::of_gpus(gpus), message, again(gpus))
        .gpus(gpus)
}

fn again(gpus: &[u32]) -> Plan {
    Plan::now([Step::OtherFindings(all(gpus))])
        .otherwise([Step::CheckHostIdle, Step::CompareExpected])
}

fn below_host(evidence: &Evidence<'_>, group: &ShortfallGroup) -> Finding {
    let (worst, kind) = (&group.worst, group.what.kind());
    let [wanted, found] =
        [worst.wanted, worst.found].map(|value| ShortfallGroup::said(value, kind));
    let (what, of_gpus, more) = (
        group.what,
        words::named_or_all(evidence.snapshot, &group.gpus),
        group.more(),
    );
    let next = again(&group.gpus);
    let subject = Subject::of_gpus(&group.gpus);
    let finding = if kind == DecidedBy::Time {
        let message = format!(
            "The host takes {found} us for calls for {of_gpus} where at most {wanted} were expected ({what}){more}"
        );
        RULE.finding(subject, message, next)
            .fact("highest_us", Fact::figure(worst.found))
            .fact("limit_us", Fact::figure(worst.wanted))
    } else {
        let message = format!(
            "Copies between the host and {of_gpus} reach {found} GB/s where {wanted} were expected ({what}){more}"
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
    if let Some(count) = expected
        .gpus
        .count
        .filter(|count| *count as usize != gpus.len())
    {
        findings.push(
            RULE.finding(
                Subject::Machine,
                format!(
                    "{} expected, {} found",
                    words::count(count as usize, "GPU"),
                    gpus.len()
                ),
                Plan::now([Step::Bus, Step::DriverLog])
                    .if_it_stays([
                        Step::PowerCables(OneOf(Vec::new())),
                        Step::Reseat(Part::Gpu(OneOf(Vec::new()))),
                    ])
                    .otherwise([Step::ChangeExpectations]),
            )
            .fact("expected", count)
            .fact("found", gpus.len()),
        );
    }
    if let Some(model) = &expected.gpus.model {
        let mut others: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for gpu in gpus {
            if let Some(name) = gpu.name.known().filter(|name| *name != model) {
                others.entry(name).or_default().push(gpu.index);
            }
        }
        for (name, indices) in others {
            findings.push(
                RULE.finding(
                    Subject::of_gpus(&indices),
                    format!(
                        "{}: {name} where {model} was expected",
                        words::gpus(&indices)
                    ),
                    [Step::CompareOrdered, Step::CompareExpected],
                )
                .fact("expected", model)
                .fact("found", name)
                .gpus(&indices),
            );
        }
    }
    findings
}

fn links(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    let mut below: BTreeMap<(&str, u32, u32), Vec<u32>> = BTreeMap::new();
    let facts = facts::of(evidence);
    for gpu in &evidence.snapshot.gpus {
        for (key, what, wanted) in facts::required(expected) {
            let found = facts::number(&facts, gpu.index, key);
            let lacks = wanted.zip(found).filter(|(wanted, found)| found < wanted);
            if let Some((wanted, found)) = lacks {
                below
                    .entry((what, wanted, found))
                    .or_default()
                    .push(gpu.index);
            }
        }
    }
    let report = |((what, wanted, found), gpus): ((&str, u32, u32), Vec<u32>)| {
        RULE.finding(
            Subject::of_gpus(&gpus),
            format!(
                "{}: {found} {what} where {wanted} were expected",
                words::gpus(&gpus)
            ),
            Plan::now([Step::OtherFindings(all(&gpus))]).otherwise([Step::CompareOrdered]),
        )
        .fact("expected", wanted)
        .fact("found", found)
        .gpus(&gpus)
    };
    below.into_iter().map(report).collect()
}

fn access(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    if expected.peer.access != Some(true) {
        return Vec::new();
    }
    let pairs = &evidence.topology.pairs;
    let denied: Vec<_> = pairs
        .iter()
        .filter(|route| route.peer_access.cuda == Some(false))
        .map(|route| route.pair)
        .collect();
    if denied.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "{} of {} without peer access, which was expected of all: {}",
        denied.len(),
        words::count(pairs.len(), "pair"),
        words::pairs(&denied)
    );
    vec![
        RULE.finding(
            if let [pair] = denied[..] {
                Subject::Pair(pair)
            } else {
                Subject::Machine
            },
            message,
            [Step::FindingOf("peer-access-missing")],
        )
        .pairs(&denied),
    ]
}

fn floors(evidence: &Evidence<'_>, checks: &[Check<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in checks {
        let Required::Floor(floor) = check.required else {
            continue;
        };
        let pair = |(ends, _): &(Ends, f64)| ends.pair();
        let seen: Vec<_> = check.found.iter().filter_map(pair).collect();
        let slow: BTreeMap<Pair, f64> = check
            .crossed()
            .filter_map(|(ends, rate)| Some((ends.pair()?, *rate)))
            .collect();
        let pairs: Vec<_> = slow.keys().copied().collect();
        for group in cluster::groups(&pairs, &seen, evidence.topology) {
            let rates = group
                .pairs
                .iter()
                .filter_map(|pair| slow.get(pair).copied());
            let Some(least) = rates.reduce(f64::min) else {
                continue;
            };
            findings.push(
                RULE.finding(
                    group.subject(),
                    format!(
                        "{} copies {} reach {least:.1} GB/s where {} were expected ({})",
                        if floor.path == Path::Direct {
                            "Direct"
                        } else {
                            "Staged"
                        },
                        group.place(evidence.snapshot),
                        floor.gbps,
                        floor.of()
                    ),
                    Plan::now([Step::OtherFindings(All(group.gpus()))])
                        .otherwise([Step::CheckIdle, Step::CompareExpected]),
                )
                .fact("lowest_achieved", GbPerSecond(least))
                .fact("floor", GbPerSecond(floor.gbps))
                .pairs(&group.pairs),
            );
        }
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
