//! Findings over time: links that count more errors from job to job, faults in the time of jobs, and coverage that is old.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::Digest;
use super::model::Finding;
use super::names;
use super::steps::Step;
use model::finding::Severity;
use model::report::Conclusion;
use model::summary::SummedBracket;
use report::rolling;

/// Fewest jobs with errors of a link, of which a rise says something. Chosen.
const FEWEST_JOBS: usize = 2;
/// How many times as many errors an hour the later half of the jobs has. Chosen: counts of rare errors double by chance, and
/// those of a link that fails grow by orders of magnitude.
const GROWTH: f64 = 3.0;
/// Fewest errors in the later half. Chosen.
const FEWEST_ERRORS: u64 = 10;
/// Age from which coverage is old, seconds. Chosen: a week.
const OLD: f64 = 7.0 * 86_400.0;

/// Returns the findings of brackets and ledgers. `newest` are the reports by which nodes are judged.
pub(crate) fn findings(all: &[Digest], newest: &[&Digest], now: &str) -> Vec<Finding> {
    let mut of_node: BTreeMap<&str, Vec<(&Digest, &SummedBracket)>> = BTreeMap::new();
    for digest in all {
        if let Some(bracket) = &digest.summary.bracket {
            of_node.entry(&digest.node).or_default().push((digest, bracket));
        }
    }
    let mut found = Vec::new();
    for (node, jobs) in &mut of_node {
        jobs.sort_by(|one, other| one.0.started_at.cmp(&other.0.started_at));
        jobs.dedup_by(|one, other| one.0.started_at == other.0.started_at);
        found.extend(faulty(node, jobs, newest));
        found.extend(growing(node, jobs));
    }
    found.extend(old(newest, now));
    found
}

/// Returns the finding on a node whose last job added a fault after the node was checked.
fn faulty(node: &str, jobs: &[(&Digest, &SummedBracket)], newest: &[&Digest]) -> Option<Finding> {
    let (digest, bracket) = jobs.last()?;
    let judged = newest.iter().find(|digest| digest.node == node)?;
    // If the node has no other report, it is judged by this one.
    let is_later = judged.summary.bracket.is_none() && digest.started_at > judged.started_at;
    if digest.summary.verdict.verdict != Conclusion::Faulty || !is_later {
        return None;
    }
    let worst = digest.summary.findings.first()?;
    let job = bracket.job.as_ref().map(|job| format!(" ({job})"));
    let message = format!(
        "the last job{} added a fault after the node was checked: {}: {}",
        job.unwrap_or_default(),
        worst.code,
        worst.message
    );
    let evidence = [("code", json!(worst.code)), ("file", json!(digest.file))];
    let found = Finding::new(
        "fleet-job-fault",
        node.to_owned(),
        1,
        message,
        evidence,
        [Step::CheckAfterJob],
    );
    Some(Finding { severity: Severity::Error, ..found.gpus(worst.gpus()) })
}

/// Returns a finding for each link that counts more errors in later jobs.
fn growing(node: &str, jobs: &[(&Digest, &SummedBracket)]) -> Vec<Finding> {
    let links = jobs.iter().flat_map(|(_, bracket)| &bracket.links);
    let links: BTreeSet<(u32, Option<u8>)> = links.map(|link| (link.gpu, link.link)).collect();
    let of_link = |link: (u32, Option<u8>)| {
        let counts: Vec<(u64, f64)> = jobs
            .iter()
            .map(|(_, bracket)| {
                let mut of_job = bracket.links.iter();
                let counted = of_job.find(|counted| (counted.gpu, counted.link) == link);
                (counted.map_or(0, |counted| counted.errors), bracket.seconds)
            })
            .collect();
        if counts.iter().filter(|(errors, _)| *errors > 0).count() < FEWEST_JOBS {
            return None;
        }
        let (earlier, later) = counts.split_at(counts.len() / 2);
        let errors = |half: &[(u64, f64)]| half.iter().map(|(errors, _)| *errors).sum::<u64>();
        let an_hour = |half: &[(u64, f64)]| {
            let seconds: f64 = half.iter().map(|(_, seconds)| seconds).sum();
            #[allow(clippy::cast_precision_loss, reason = "a count that large is above any limit")]
            let errors = errors(half) as f64;
            3600.0 * errors / seconds.max(1.0)
        };
        let (before, after) = (an_hour(earlier), an_hour(later));
        let grows = errors(later) >= FEWEST_ERRORS && after >= GROWTH * before;
        grows.then(|| finding(node, link, &counts, before, after))
    };
    links.into_iter().filter_map(of_link).collect()
}

fn finding(
    node: &str,
    (gpu, link): (u32, Option<u8>),
    counts: &[(u64, f64)],
    before: f64,
    after: f64,
) -> Finding {
    /// Most jobs whose counts a message has.
    const SHOWN: usize = 8;
    let name = match link {
        Some(link) => format!("NVLink {link} of GPU {gpu}"),
        None => format!("the PCIe link of GPU {gpu}"),
    };
    let errors: Vec<u64> = counts.iter().map(|(errors, _)| *errors).collect();
    let last: Vec<String> =
        errors.iter().skip(errors.len().saturating_sub(SHOWN)).map(u64::to_string).collect();
    let message = format!(
        "{name} counts more errors from job to job: {} in the last {} of {} jobs, {before:.1} an hour in the earlier half and \
         {after:.1} in the later one",
        last.join(", "),
        last.len(),
        errors.len()
    );
    Finding::new(
        "fleet-link-errors-grow",
        node.to_owned(),
        1,
        message,
        [
            ("errors", json!(errors)),
            ("earlier_errors_per_hour", json!(before)),
            ("later_errors_per_hour", json!(after)),
        ],
        [Step::CheckLink, Step::ReseatLink],
    )
    .gpus(vec![gpu])
}

/// Returns the finding on nodes whose runs within a budget have left something unmeasured for long.
fn old(newest: &[&Digest], now: &str) -> Option<Finding> {
    let at = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    let now = at(now)?;
    let mut nodes: Vec<(&str, f64)> = Vec::new();
    let mut never: Vec<&str> = Vec::new();
    for digest in newest {
        let Some(rolling) = &digest.summary.rolling else {
            continue;
        };
        let since =
            at(&digest.started_at).map_or(0.0, |then| (now - then).as_seconds_f64().max(0.0));
        match rolling.oldest_seconds {
            _ if rolling.never_covered > 0 => never.push(&digest.node),
            Some(age) if age + since > OLD => nodes.push((&digest.node, age + since)),
            _ => {}
        }
    }
    let oldest = nodes.iter().map(|(_, age)| *age).reduce(f64::max);
    let mut parts = Vec::new();
    if let Some(age) = oldest {
        parts.push(format!(
            "figures of {} are older than {}, up to {}",
            report::figures::count(nodes.len(), "node"),
            rolling::age(OLD),
            rolling::age(age)
        ));
    }
    if !never.is_empty() {
        let (nodes, have) = match never.len() {
            1 => ("1 node".to_owned(), "has"),
            many => (format!("{many} nodes"), "have"),
        };
        parts.push(format!("{nodes} {have} parts that no run within the budget has measured yet"));
    }
    if parts.is_empty() {
        return None;
    }
    let all: BTreeSet<&str> =
        nodes.iter().map(|(node, _)| *node).chain(never.iter().copied()).collect();
    Some(Finding::new(
        "fleet-coverage-old",
        names::fold(all.iter().copied()),
        all.len(),
        parts.join("; "),
        [("oldest_seconds", json!(oldest)), ("never_covered_nodes", json!(never.len()))],
        [Step::CoverMore],
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sources::Gathered;
    use super::super::testing::{assessed, fleet_of};
    use super::*;
    use model::rolling::Rolling;
    use model::summary::LinkErrors;

    /// Returns the reports on jobs of an hour, with these errors of NVLink 7 of GPU 3.
    fn jobs(of: &Digest, errors: &[u64]) -> Vec<Digest> {
        let job = |(day, errors): (u32, &u64)| {
            let mut digest = of.clone();
            digest.started_at = format!("2026-11-{day:02}T00:00:00Z");
            digest.file = format!("job{day}.json");
            digest.summary.findings.clear();
            digest.summary.bracket = Some(SummedBracket {
                job: Some(day.to_string()),
                seconds: 3600.0,
                links: vec![LinkErrors { gpu: 3, link: Some(7), errors: *errors }],
            });
            digest
        };
        (1..).zip(errors).map(job).collect()
    }

    fn found(digests: Vec<Digest>) -> Vec<Finding> {
        let gathered = Gathered { digests, ..Gathered::default() };
        assessed(&gathered).findings
    }

    #[test]
    fn errors_that_grow_from_job_to_job_name_the_link() {
        let codes = |errors: &[u64]| {
            let mut digests = fleet_of(3);
            let jobs = jobs(&digests[1], errors);
            digests.extend(jobs);
            let found = found(digests);
            found.iter().map(|found| (found.code, found.nodes.clone())).collect::<Vec<_>>()
        };
        let grows = [("fleet-link-errors-grow", "node001".to_owned())];
        assert_eq!(codes(&[0, 2, 9, 40]), grows);
        for few in [&[40][..], &[0, 0, 40], &[9, 9, 9, 9], &[40, 9, 2, 0], &[0, 1, 1, 2]] {
            assert_eq!(codes(few), [], "{few:?}");
        }
    }

    #[test]
    fn a_job_does_not_hide_the_check_of_its_node() {
        let mut digests = fleet_of(2);
        let mut job = jobs(&digests[0], &[0]).remove(0);
        job.started_at = "2030-01-01T00:00:00Z".into();
        digests.push(job.clone());
        let gathered = Gathered { digests: digests.clone(), ..Gathered::default() };
        let fleet = assessed(&gathered);
        assert_eq!(fleet.nodes[0].file, "node000.json");
        assert_eq!(fleet.findings, []);
        // A fault in the time of the job is the node's all the same.
        let last = digests.last_mut().unwrap();
        last.summary.verdict.verdict = Conclusion::Faulty;
        last.summary.findings = vec![model::summary::Finding {
            code: "xid-reported".into(),
            severity: Severity::Error,
            subject: model::finding::Subject::Gpu { index: 5 },
            message: "Xid 79".into(),
        }];
        let found = found(digests);
        assert_eq!(
            (found[0].code, found[0].severity, &found[0].gpus),
            ("fleet-job-fault", Severity::Error, &vec![5])
        );
        assert!(found[0].message.contains("xid-reported: Xid 79"), "{}", found[0].message);
    }

    #[test]
    fn coverage_that_is_old_names_its_nodes() {
        let mut digests = fleet_of(4);
        let rolling = |never_covered, age: f64| {
            Some(Rolling {
                never_covered,
                oldest_seconds: (never_covered == 0).then_some(age),
                ..Rolling::default()
            })
        };
        for digest in &mut digests {
            digest.started_at = "2026-11-21T00:00:00Z".into();
        }
        digests[0].summary.rolling = rolling(0, 3600.0);
        digests[1].summary.rolling = rolling(0, 9.0 * 86_400.0);
        digests[2].summary.rolling = rolling(5, 0.0);
        let found = found(digests);
        assert_eq!(
            (found.len(), found[0].code, found[0].nodes.as_str()),
            (1, "fleet-coverage-old", "node[001-002]")
        );
        assert!(
            found[0].message.contains("older than 7.0 days, up to 10.0 days"),
            "{}",
            found[0].message
        );
    }
}
