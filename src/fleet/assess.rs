//! Combines everything known about a fleet, and concludes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::json;

use super::blame::{Blame, Low};
use super::changes::Earlier;
use super::cohort::{Members, cohorts};
use super::digest::Digest;
use super::model::{Cohort, Finding, Fleet, List, Node, Read, SCHEMA, Verdict};
use super::newest::{again, history, newest, shared_names, superseded};
use super::outliers::{Compared, wide};
use super::patterns::Incident;
use super::sources::Gathered;
use super::steps::Step;
use super::summary::{Finding as Found, Metric};
use super::{inventory, names, outliers, patterns};
use diagnose::{Ending, Terms, is_gap};
use model::finding::Severity;
use model::report::{Conclusion, Tool};

/// A request about a fleet, without its reports.
#[derive(Debug)]
pub struct Question {
    /// Names of the nodes that should have a report.
    pub list: Option<Vec<String>>,
    /// An earlier fleet file.
    pub earlier: Option<Earlier>,
    /// True if older reports of a node are shown.
    pub history: bool,
    /// The terms by which nodes are judged.
    pub terms: Terms,
    /// Time of the request, RFC 3339, UTC.
    pub now: String,
}

/// Codes of the fleet's findings about missing input.
pub(crate) const GAPS: [&str; 3] = ["fleet-node-missing", "fleet-file-broken", "fleet-name-shared"];

/// Most files of other names that are listed.
const MOST_LEFT_OUT: usize = 100;

/// Assesses these reports.
pub fn assess(gathered: &Gathered, question: &Question) -> Fleet {
    let (digests, older) = newest(&gathered.digests);
    let facts: Vec<_> = digests.iter().map(|digest| inventory::facts(digest)).collect();
    let members = cohorts(&digests, &facts);
    let compared = outliers::compare(&digests, &members);
    let nodes = nodes(&digests, &facts, &members, &compared, question.terms);
    let list = question.list.as_ref().map(|names| list(names, &nodes));
    let pairs: Vec<inventory::Facts<'_>> =
        nodes.iter().zip(&facts).map(|(node, facts)| (node.node.as_str(), facts)).collect();
    let inventory = inventory::spread(&pairs);
    let outliers = outliers::findings(&digests, &compared);
    let names: Vec<&str> = digests.iter().map(|digest| digest.node.as_str()).collect();
    let of_rules = of_rules(&digests);
    let all: Vec<Incident<'_>> =
        of_rules.iter().cloned().chain(of_fleet(&digests, &outliers)).collect();
    let judged: Vec<_> = all
        .iter()
        .filter(|incident| incident.severity > Severity::Info && !is_gap(&rule(incident.code)))
        .cloned()
        .collect();
    let gpus = digests.iter().map(|digest| digest.summary.gpus.len()).max().unwrap_or_default();
    let mut findings = gaps(gathered, list.as_ref());
    findings.extend(shared_names(&digests, &older));
    findings.extend(patterns::positions(&judged, &names, gpus));
    findings.extend(patterns::shared(&judged, &names, &facts));
    findings.extend(compared.positions.iter().cloned());
    findings.extend(inventory::odd(&inventory));
    findings.extend(outliers.iter().cloned());
    let again = again(&digests, &older);
    let verdict = verdict(&nodes, &findings, list.as_ref(), question.terms);
    Fleet {
        schema: SCHEMA,
        tool: Tool::this(),
        made_at: question.now.clone(),
        verdict,
        read: Read {
            reports: gathered.digests.len(),
            superseded: superseded(&older, again),
            again,
            simulated: digests.iter().any(|digest| digest.is_simulated()),
            others: gathered.others,
            left_out: gathered.left_out.len(),
            left_out_files: (gathered.left_out.iter()).take(MOST_LEFT_OUT).cloned().collect(),
            broken: gathered.broken.clone(),
        },
        codes: patterns::codes(&of_rules, &names),
        findings,
        list,
        changes: question.earlier.as_ref().map(|earlier| earlier.changes(&nodes, &compared.kinds)),
        inventory,
        cohorts: described(&members, compared.figures, &names),
        kinds: compared.kinds,
        history: if question.history {
            older.iter().map(|digest| history(digest)).collect()
        } else {
            Vec::new()
        },
        nodes,
    }
}

fn rule(code: &str) -> model::finding::RuleId {
    code.to_owned().into()
}

fn described(
    members: &[Members],
    figures: Vec<Vec<super::model::Stats>>,
    names: &[&str],
) -> Vec<Cohort> {
    let cohorts = (1..).zip(members).zip(figures).map(|((cohort, members), figures)| Cohort {
        cohort,
        model: members.model.clone(),
        topology: members.topology.clone(),
        signature: members.signature.clone(),
        count: members.nodes.len(),
        nodes: names::fold(members.nodes.iter().map(|place| names[*place])),
        figures,
    });
    cohorts.collect()
}

fn nodes(
    digests: &[&Digest],
    facts: &[BTreeMap<String, String>],
    members: &[Members],
    compared: &Compared,
    terms: Terms,
) -> Vec<Node> {
    let mut cohort_of = vec![1; digests.len()];
    for (cohort, members) in (1..).zip(members) {
        members.nodes.iter().for_each(|place| cohort_of[*place] = cohort);
    }
    let kinds = compared.kinds.iter().enumerate();
    let numbers: HashMap<&Metric, usize> = kinds.map(|(number, kind)| (kind, number)).collect();
    let node = |(place, digest): (usize, &&Digest)| Node {
        node: digest.node.clone(),
        verdict: conclusion(digest, terms.fail_on),
        file: digest.file.clone(),
        started_at: digest.started_at.clone(),
        machine: digest.machine.clone(),
        profile: digest.summary.profile.clone(),
        cohort: cohort_of[place],
        signature: members
            .get(cohort_of[place] - 1)
            .map(|members| members.signature.clone())
            .unwrap_or_default(),
        facts: facts[place].clone(),
        uuids: digest.summary.gpus.iter().map(|gpu| gpu.uuid.clone().unwrap_or_default()).collect(),
        tested: digest.summary.verdict.tested,
        untested: digest.summary.verdict.untested,
        findings: digest.summary.findings.clone(),
        percent_of_cohort: compared.low.get(&place).map(|low| shares(low)).unwrap_or_default(),
        worst: worst(digest, &numbers),
    };
    digests.iter().enumerate().map(node).collect()
}

/// Returns the worst figure of each kind, by the number of the kind.
fn worst(digest: &Digest, numbers: &HashMap<&Metric, usize>) -> BTreeMap<usize, f64> {
    let mut worst: BTreeMap<usize, f64> = BTreeMap::new();
    for figure in &digest.summary.figures {
        let kind = digest.summary.kinds.get(usize::from(figure.kind));
        let number = kind.and_then(|kind| Some((kind, *numbers.get(kind)?)));
        if let (Some((kind, number)), Some(value)) = (number, figure.value.map(wide)) {
            let known = worst.entry(number).or_insert(value);
            *known = if kind.what.is_time() { known.max(value) } else { known.min(value) };
        }
    }
    worst
}

/// Returns the lowest share of the cohort's figures for each GPU: for the GPU to blame, or for all if none is.
fn shares(low: &[Low]) -> BTreeMap<u32, f64> {
    let blamed = Blame::of(low).gpus();
    let mut shares = BTreeMap::new();
    for low in low.iter().filter(|low| low.percent < 100.0) {
        let percent = (f64::from(low.percent) * 10.0).round() / 10.0;
        for gpu in Blame::of(std::slice::from_ref(low))
            .gpus()
            .into_iter()
            .filter(|gpu| blamed.contains(gpu))
        {
            let lowest: &mut f64 = shares.entry(gpu).or_insert(percent);
            *lowest = lowest.min(percent);
        }
    }
    shares
}

/// Returns the verdict on a node, by the terms of this run and not by those of its own.
fn conclusion(digest: &Digest, fail_on: Severity) -> Conclusion {
    let gap = |found: &Found| is_gap(&rule(&found.code));
    let fault =
        digest.summary.findings.iter().any(|found| found.severity >= fail_on && !gap(found));
    let incomplete = digest.summary.verdict.verdict == Conclusion::Inconclusive
        || digest.summary.verdict.untested > 0
        || digest.summary.interrupted
        // Facts alone tell nothing about speed.
        || digest.summary.verdict.tested == 0
        || digest.summary.findings.iter().any(gap);
    match (fault, incomplete) {
        (true, _) => Conclusion::Faulty,
        (false, true) => Conclusion::Inconclusive,
        (false, false) => Conclusion::Healthy,
    }
}

/// Compares the list of nodes with the reports. A name with its domain equals the name without it.
fn list(wanted: &[String], nodes: &[Node]) -> List {
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let known: BTreeSet<String> =
        nodes.iter().flat_map(|node| [node.node.clone(), short(&node.node)]).collect();
    let listed: BTreeSet<String> =
        wanted.iter().flat_map(|name| [name.clone(), short(name)]).collect();
    let unique: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let missing: Vec<&str> = unique
        .iter()
        .copied()
        .filter(|name| !known.contains(*name) && !known.contains(&short(name)))
        .collect();
    let names = nodes.iter().map(|node| node.node.as_str());
    let unexpected: Vec<&str> =
        names.filter(|name| !listed.contains(*name) && !listed.contains(&short(name))).collect();
    List {
        nodes: unique.len(),
        missing_count: missing.len(),
        missing: names::fold(missing),
        unexpected_count: unexpected.len(),
        unexpected: names::fold(unexpected),
    }
}

fn of_rules<'a>(digests: &[&'a Digest]) -> Vec<Incident<'a>> {
    let found = digests.iter().enumerate().flat_map(|(node, digest)| {
        digest.summary.findings.iter().map(move |found| Incident {
            code: &found.code,
            node,
            severity: found.severity,
            gpus: found.gpus(),
            message: &found.message,
        })
    });
    found.collect()
}

/// Returns outlying figures as incidents of their nodes.
fn of_fleet<'a>(digests: &[&Digest], outliers: &'a [Finding]) -> Vec<Incident<'a>> {
    let places: BTreeMap<&str, usize> =
        digests.iter().enumerate().map(|(place, digest)| (digest.node.as_str(), place)).collect();
    let incident = |finding: &'a Finding| {
        let node = *places.get(finding.nodes.as_str())?;
        let (code, severity, message) = (finding.code, finding.severity, finding.message.as_str());
        Some(Incident { code, node, severity, gpus: finding.gpus.clone(), message })
    };
    outliers.iter().filter_map(incident).collect()
}

/// Returns findings about missing input.
fn gaps(gathered: &Gathered, list: Option<&List>) -> Vec<Finding> {
    let missing = list.filter(|list| list.missing_count > 0).map(|list| {
        Finding::new(
            "fleet-node-missing",
            list.missing.clone(),
            list.missing_count,
            format!("{} of {} nodes of the list have no report", list.missing_count, list.nodes),
            [("missing", json!(list.missing_count)), ("of_nodes", json!(list.nodes))],
            [Step::SeeNodes],
        )
    });
    let broken = gathered.broken.first().map(|first| {
        let files = gathered.broken.len();
        Finding::new(
            "fleet-file-broken",
            String::new(),
            files,
            match files {
                1 => format!("{} {}", first.file, first.why),
                number => format!(
                    "{number} files cannot be read, the first: {} {}",
                    first.file, first.why
                ),
            },
            [("files", json!(files))],
            [Step::CollectAgain],
        )
    });
    missing.into_iter().chain(broken).collect()
}

fn verdict(nodes: &[Node], findings: &[Finding], list: Option<&List>, terms: Terms) -> Verdict {
    let count = |wanted| nodes.iter().filter(|node| node.verdict == wanted).count();
    let (healthy, faulty, inconclusive) =
        (count(Conclusion::Healthy), count(Conclusion::Faulty), count(Conclusion::Inconclusive));
    let is_gap = |finding: &Finding| GAPS.contains(&finding.code);
    let fault = faulty > 0
        || findings.iter().any(|finding| finding.severity >= terms.fail_on && !is_gap(finding));
    let incomplete = nodes.is_empty() || inconclusive > 0 || findings.iter().any(is_gap);
    let warned = findings.iter().any(|finding| finding.severity >= Severity::Warning)
        || nodes
            .iter()
            .flat_map(|node| &node.findings)
            .any(|found| found.severity >= Severity::Warning);
    let (verdict, ending) = match (fault, incomplete, warned) {
        (true, ..) => (Conclusion::Faulty, Ending::Fault),
        (false, true, _) => (Conclusion::Inconclusive, Ending::Incomplete),
        (false, false, true) => (Conclusion::Healthy, Ending::Warned),
        (false, false, false) => (Conclusion::Healthy, Ending::Healthy),
    };
    let missing = list.map_or(0, |list| list.missing_count);
    Verdict {
        verdict,
        exit_code: terms.contract.code(ending),
        healthy,
        faulty,
        inconclusive,
        missing,
    }
}

#[cfg(test)]
#[path = "assess_tests.rs"]
mod tests;
