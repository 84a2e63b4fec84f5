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
//! one GPU are one finding, led by those that its link decides.
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
use crate::expectations::Expectations;
use crate::host_figures::{self, DecidedBy, Shortfall, ShortfallGroup, What};

pub(crate) const RULE: Rule = Rule::new(
    "expectation-unmet",
    Severity::Error,
    include_str!("expectation_unmet.rs"),
    judge,
);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(expected) = evidence.expectations else {
        return Vec::new();
    };
    let mut findings = gpus(evidence, expected);
    findings.extend(links(evidence, expected));
    findings.extend(access(evidence, expected));
    findings.extend(floors(evidence, expected));
    findings.extend(of_host(evidence, expected));
    findings
}

/// Compares copies between host and GPUs, pipelines and calls. All shortfalls of a GPU are one finding.
fn of_host(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    let figures = evidence
        .measurements
        .map(host_figures::figures)
        .unwrap_or_default();
    let mut short = Vec::new();
    for bound in expected.bounds() {
        let meant =
            |of: &(u32, What)| of.1 == bound.what && bound.gpu.is_none_or(|gpu| gpu == of.0);
        let seen = figures.iter().filter(|(of, _)| meant(of));
        let found = seen.filter_map(|(of, figure)| Some((of.0, figure.as_ref()?.value)));
        let crossed = found.filter(|(_, value)| bound.is_crossed_by(*value));
        short.extend(crossed.map(|(gpu, found)| Shortfall {
            gpu,
            what: bound.what,
            wanted: bound.value,
            found,
        }));
    }
    host_figures::groups(&short)
        .iter()
        .map(|group| below_host(evidence, group))
        .collect()
}

fn below_host(evidence: &Evidence<'_>, group: &ShortfallGroup) -> Finding {
    let (worst, kind) = (&group.worst, group.worst.what.kind());
    let [wanted, found] =
        [worst.wanted, worst.found].map(|value| ShortfallGroup::said(value, kind));
    let (what, of_gpus, more) = (
        worst.what,
        words::named_or_all(evidence.snapshot, &group.gpus),
        group.more(),
    );
    let next = Plan::now([Step::OtherFindings(all(&group.gpus))])
        .otherwise([Step::CheckHostIdle, Step::CompareExpected]);
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
    for gpu in &evidence.snapshot.gpus {
        let facts = Links::of(evidence, gpu.index);
        for (what, wanted, found) in [
            (
                "PCIe generation",
                expected.pcie.generation.map(u32::from),
                facts.generation,
            ),
            (
                "PCIe lanes",
                expected.pcie.width.map(u32::from),
                facts.width,
            ),
            ("active NVLinks", expected.nvlink.links, facts.nvlinks),
        ] {
            if let Some((wanted, found)) =
                wanted.zip(found).filter(|(wanted, found)| found < wanted)
            {
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

fn floors(evidence: &Evidence<'_>, expected: &Expectations) -> Vec<Finding> {
    let mut findings = Vec::new();
    for floor in &expected.floor {
        let cells = evidence.reference(floor.path);
        let meant = |pair: &Pair| {
            evidence
                .topology
                .route(*pair)
                .is_some_and(|route| floor.holds_for(*pair, route.class))
        };
        let seen: Vec<_> = cells.keys().copied().filter(|pair| meant(pair)).collect();
        let rate = |pair: &Pair| {
            cells
                .get(pair)
                .and_then(|cell| cell.achieved_gbps)
                .map(|rate| rate.0)
        };
        let slow: Vec<_> = seen
            .iter()
            .copied()
            .filter(|pair| rate(pair).is_some_and(|rate| rate < floor.gbps))
            .collect();
        for group in cluster::groups(&slow, &seen, evidence.topology) {
            let Some(least) = group.pairs.iter().filter_map(rate).reduce(f64::min) else {
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

/// The known facts of a GPU's links.
pub(crate) struct Links {
    /// Highest PCIe generation seen under load; without load, the highest that GPU and slot allow.
    pub generation: Option<u32>,
    /// PCIe lanes, seen under load if copies ran.
    pub width: Option<u32>,
    pub nvlinks: Option<u32>,
}

impl Links {
    /// Collects the facts of this GPU's links.
    pub(crate) fn of(evidence: &Evidence<'_>, index: u32) -> Self {
        let gpu = evidence.snapshot.gpu(index);
        let belief = links::belief_of(evidence, index);
        let generation = belief
            .and_then(|belief| belief.measured_generation())
            .or_else(|| gpu?.pcie_generation_max.get());
        let width = belief
            .and_then(|belief| belief.measured_lanes())
            .or_else(|| gpu?.pcie_width.get());
        Self {
            generation: generation.map(u32::from),
            width: width.map(u32::from),
            nvlinks: gpu.and_then(Gpu::active_nvlinks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::expecting;
    use crate::testing::prelude::*;

    #[test]
    fn a_gpu_that_is_missing_is_to_be_looked_for() {
        let found = expecting("[gpus]\ncount = 8\n", |_| ());
        let may = ["change-expectations", "power-cables", "reseat", "xid"];
        assert_advice(&RULE, &found, &["lspci"], &may);
    }
}
