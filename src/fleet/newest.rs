//! The newest report of each node, and the older ones.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::digest::Digest;
use super::model::{Finding, Older};
use super::names;
use super::steps::Step;

/// Splits the reports into the newest of every node, in the order of node names, and the older ones.
pub(crate) fn newest(digests: &[Digest]) -> (Vec<&Digest>, Vec<&Digest>) {
    let mut all: Vec<&Digest> = digests.iter().collect();
    all.sort_by(|one, other| {
        let key = |digest: &&Digest| (sortable(&digest.node), digest.node.clone());
        key(one)
            .cmp(&key(other))
            .then_with(|| (&other.started_at, &other.file).cmp(&(&one.started_at, &one.file)))
    });
    let (mut newest, mut older): (Vec<&Digest>, Vec<&Digest>) = (Vec::new(), Vec::new());
    for digest in all {
        match newest.last() {
            Some(last) if last.node == digest.node => older.push(digest),
            _ => newest.push(digest),
        }
    }
    (newest, older)
}

/// Returns the number of reports that were read before: of the same node and moment as its newest.
pub(super) fn again(newest: &[&Digest], older: &[&Digest]) -> usize {
    let key = |digest: &Digest| {
        let gpus = digest.summary.gpus.iter();
        let gpus: Vec<_> = gpus.map(|gpu| gpu.uuid.clone()).collect();
        (digest.node.clone(), digest.started_at.clone(), gpus)
    };
    let known: BTreeSet<_> = newest.iter().map(|digest| key(digest)).collect();
    older.iter().filter(|digest| known.contains(&key(digest))).count()
}

/// Returns a sort key by which `n9` comes before `n10`.
fn sortable(name: &str) -> (String, u64) {
    let head = names::head(name);
    let digits: String = name[head.len()..].chars().take_while(char::is_ascii_digit).collect();
    (head.to_owned(), digits.parse().unwrap_or(u64::MAX))
}

/// Returns the number of reports that a newer one replaces.
pub(super) fn superseded(older: &[&Digest], again: usize) -> usize {
    older.len().saturating_sub(again)
}

pub(super) fn history(digest: &Digest) -> Older {
    let codes: BTreeSet<&String> =
        digest.summary.findings.iter().map(|found| &found.code).collect();
    Older {
        node: digest.node.clone(),
        started_at: digest.started_at.clone(),
        verdict: digest.summary.verdict.verdict,
        codes: codes.into_iter().cloned().collect(),
        file: digest.file.clone(),
    }
}

/// Returns names that several machines share: an older report has no GPU in common with the newest one.
pub(super) fn shared_names(newest: &[&Digest], older: &[&Digest]) -> Option<Finding> {
    let uuids = |digest: &Digest| -> BTreeSet<String> {
        digest.summary.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect()
    };
    let known: BTreeMap<&str, BTreeSet<String>> =
        newest.iter().map(|digest| (digest.node.as_str(), uuids(digest))).collect();
    let is_other = |digest: &&&Digest| {
        let (own, of_newest) = (uuids(digest), known.get(digest.node.as_str()));
        !own.is_empty()
            && of_newest.is_some_and(|newest| !newest.is_empty() && newest.is_disjoint(&own))
    };
    let names: BTreeSet<&str> =
        older.iter().filter(is_other).map(|digest| digest.node.as_str()).collect();
    (!names.is_empty()).then(|| {
        Finding::new(
            "fleet-name-shared",
            names::fold(names.iter().copied()),
            names.len(),
            format!(
                "{} in reports with entirely different GPUs; only the newest report of a name is judged",
                match names.len() {
                    1 => "one name stands".to_owned(),
                    number => format!("{number} names stand"),
                }
            ),
            [("names", json!(names.len()))],
            [Step::NameNodes],
        )
    })
}
