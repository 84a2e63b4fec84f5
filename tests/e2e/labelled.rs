//! The labelled set: machines of public cases under tests/cases, each with what must be found there and
//! nothing else. Precision and recall over findings at warning and above are printed and must be 100%.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::Value;

use crate::common::{Ran, finish, list, peerscope, say, text_of};

/// Runs at a time; each has a worker process besides.
const AT_ONCE: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    case: Vec<Case>,
}

/// What one machine must be told of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The file's name, without `.toml`.
    name: String,
    /// Where the case comes from.
    source: String,
    /// `code` or `code@subject`, each found exactly once.
    must: Vec<String>,
    /// Codes that are tolerated at warning too.
    #[serde(default)]
    may: Vec<String>,
    /// `CUDA_VISIBLE_DEVICES` of the run.
    visible: Option<String>,
    verdict: String,
    exit: i32,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn labels() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("labels.toml")).unwrap();
    toml::from_str::<Labels>(&text).unwrap().case
}

fn check(case: &Case) -> Ran {
    let file = text_of(&folder().join(format!("{}.toml", case.name)));
    let mut args = vec!["check", "--machine", &file, "--profile", "standard", "--no-journal", "--format", "json"];
    // Only a copy that never ends runs into it.
    if case.must.iter().any(|must| must.starts_with("peer-copy-hung")) {
        args.extend(["--deadline", "2"]);
    }
    let mut command = peerscope(&args);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    if let Some(visible) = &case.visible {
        command.env("CUDA_VISIBLE_DEVICES", visible);
    }
    finish(&mut command)
}

/// How labels name a subject; a pair has two names.
pub fn names(subject: &Value) -> Vec<String> {
    let number = |key: &str| subject[key].as_u64().unwrap_or_else(|| panic!("no {key}: {subject}"));
    match subject["kind"].as_str().unwrap() {
        "machine" => vec!["machine".into()],
        "gpu" => vec![format!("gpu{}", number("index"))],
        "link" => vec![format!("link{}.{}", number("index"), number("link"))],
        "pair" => {
            let (source, destination) = (number("source"), number("destination"));
            let ends = format!("pair{}-{}", source.min(destination), source.max(destination));
            vec![ends, format!("{source}->{destination}")]
        }
        _ => vec![subject["address"].as_str().unwrap().into()],
    }
}

/// What was found against what must be.
#[derive(Default)]
struct Score {
    right: usize,
    wrong: usize,
    missing: usize,
    /// A line for each thing that is not as it should be.
    complaints: Vec<String>,
}

fn score(case: &Case, ran: &Ran) -> Score {
    let report = ran.json();
    let mut score = Score::default();
    let mut left: Vec<&String> = case.must.iter().collect();
    for finding in list(&report["findings"]) {
        let code = finding["code"].as_str().unwrap();
        let name = &names(&finding["subject"])[0];
        if let Some(lack) = incomplete(finding) {
            score.complaints.push(format!("{code}@{name} has {lack}"));
        }
        if finding["severity"] == "info" {
            continue;
        }
        let fits =
            |must: &str| must == code || names(&finding["subject"]).iter().any(|name| must == format!("{code}@{name}"));
        if let Some(at) = left.iter().position(|must| fits(must)) {
            left.remove(at);
            score.right += 1;
        } else if !case.may.iter().any(|may| may == code) {
            score.wrong += 1;
            score.complaints.push(format!("found {code}@{name} ({}): {}", finding["severity"], finding["message"]));
        }
    }
    score.missing = left.len();
    score.complaints.extend(left.iter().map(|must| format!("wanted {must}, not found")));
    let verdict = report["verdict"]["verdict"].as_str().unwrap();
    if (verdict, ran.code) != (case.verdict.as_str(), Some(case.exit)) {
        score.complaints.push(format!("{verdict}, exit {:?}; wanted {}, {}", ran.code, case.verdict, case.exit));
    }
    score
}

/// What a finding lacks that everybody needs: place, evidence, next step.
fn incomplete(finding: &Value) -> Option<&'static str> {
    let text = |key: &str| finding[key].as_str().is_some_and(|text| !text.trim().is_empty());
    if finding["subject"]["kind"] != "machine" && !text("location") {
        return Some("no location");
    }
    if finding["evidence"].as_object().is_none_or(serde_json::Map::is_empty) {
        return Some("no evidence");
    }
    (!text("next_step") || !text("message")).then_some("no next step or message")
}

#[test]
fn labels_and_machines_belong_together() {
    let labels = labels();
    let named: BTreeSet<String> = labels.iter().map(|case| case.name.clone()).collect();
    assert_eq!(named.len(), labels.len(), "a case stands twice");
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let files: BTreeSet<String> = files
        .filter(|file| file.file_name().unwrap() != "labels.toml")
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(named, files);
    assert!(labels.len() >= 30);
    assert!(labels.iter().filter(|case| case.must.is_empty()).count() >= 10);
    for case in &labels {
        assert!(!case.source.is_empty(), "{}", case.name);
        let text = std::fs::read_to_string(folder().join(format!("{}.toml", case.name))).unwrap();
        assert!(text.contains(&case.source), "{}: the file names another source", case.name);
    }
}

#[test]
#[allow(clippy::disallowed_macros, reason = "the table is for whoever runs this with --nocapture")]
fn every_labelled_machine_is_told_right() {
    let cases = labels();
    let next = AtomicUsize::new(0);
    let scores = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let score = score(case, &check(case));
                    scores.lock().unwrap().push((case, score));
                }
            });
        }
    });
    let mut scores = scores.into_inner().unwrap();
    assert_eq!(scores.len(), cases.len());
    scores.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    println!("{:<40} {:>5} {:>5} {:>7}  {:<12} must", "case", "right", "wrong", "missing", "verdict");
    for (case, score) in &scores {
        let must = if case.must.is_empty() { "nothing".to_owned() } else { case.must.join(", ") };
        let Score { right, wrong, missing, .. } = score;
        println!("{:<40} {right:>5} {wrong:>5} {missing:>7}  {:<12} {must}", case.name, case.verdict);
    }
    let sum = |figure: fn(&Score) -> usize| -> usize { scores.iter().map(|(_, score)| figure(score)).sum() };
    let (right, wrong, missing) = (sum(|score| score.right), sum(|score| score.wrong), sum(|score| score.missing));
    let summary = format!(
        "labelled set: {} machines, {} of them healthy; {right} findings right, {wrong} wrong, {missing} missing: \
         precision {}, recall {}",
        cases.len(),
        cases.iter().filter(|case| case.must.is_empty()).count(),
        percent(right, wrong),
        percent(right, missing),
    );
    say(&summary);
    let complaints: Vec<_> = scores
        .iter()
        .flat_map(|(case, score)| score.complaints.iter().map(|complaint| format!("{}: {complaint}", case.name)))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// The share of `part` in it and `rest`.
fn percent(part: usize, rest: usize) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let share = 100.0 * part as f64 / (part + rest).max(1) as f64;
    format!("{share:.1}%")
}
