//! The labelled set: machines of public cases under tests/cases, each with the findings that must occur and no others.
//! Precision and recall over findings at warning and above must be 100%. They are printed if the cases run in one
//! process, as with `cargo test`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;

use crate::advice_steps::{advised_by, wrong_advice};
use crate::common::{Ran, finish, list, peerscope, say, text_of, write};
use crate::{pages, shadow, trial};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Labels {
    case: Vec<Case>,
}

/// The expected report of one machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Name of the file, without `.toml`.
    name: String,
    /// Source of the case.
    source: String,
    /// `code` or `code@subject`, each found exactly once.
    must: Vec<String>,
    /// Codes that are also tolerated at warning.
    #[serde(default)]
    may: Vec<String>,
    /// True if everything must be measured.
    #[serde(default)]
    complete: bool,
    /// The probe group that alone is measured, for groups that the standard profile does not have.
    only: Option<String>,
    /// The profile, if it is not the standard one.
    profile: Option<String>,
    /// `NAME=value` of variables of the run.
    #[serde(default)]
    environment: Vec<String>,
    /// The description of the machine whose report is the baseline, relative to tests/cases.
    baseline: Option<String>,
    /// The text of the file of expectations.
    expect: Option<String>,
    /// True if `topo` is judged instead of `check`.
    #[serde(default)]
    by_facts: bool,
    /// `code: severity` of every finding of this rule, of which there is at least one.
    #[serde(default)]
    severity: Vec<String>,
    /// `code: words` that a finding of this rule contains in its message, its suspects or its next step.
    #[serde(default)]
    says: Vec<String>,
    /// `code: words` that no finding of this rule contains there.
    #[serde(default)]
    never_says: Vec<String>,
    /// What the program gets wrong here. The trial fails once the program is right, so that this key goes then.
    not_yet: Option<String>,
    verdict: String,
    exit: i32,
    /// The exit code of `topo`, if it is tested.
    topo: Option<i32>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

fn labels() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("labels.toml")).unwrap();
    match toml::from_str::<Labels>(&text) {
        Ok(labels) => labels.case,
        Err(error) => panic!("tests/cases/labels.toml: {error}"),
    }
}

/// Returns the cases without any expected finding, on the unchanged machine.
pub(crate) fn healthy() -> Vec<String> {
    let healthy = |case: &Case| {
        case.must.is_empty()
            && case.may.is_empty()
            && case.exit == 0
            && case.environment.is_empty()
            && case.not_yet.is_none()
    };
    labels().into_iter().filter(healthy).map(|case| case.name).collect()
}

/// The steps that the advice of a rule must and may contain for a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advice {
    case: String,
    rule: String,
    must: Vec<String>,
    #[serde(default)]
    may: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllAdvice {
    row: Vec<Advice>,
}

fn advice() -> Vec<Advice> {
    let text = include_str!("advice.toml");
    toml::from_str::<AllAdvice>(text).unwrap().row
}

/// Returns a line for each finding whose steps do not fit its facts.
fn advised(case: &Case, findings: &[Value]) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in advice().into_iter().filter(|row| row.case == case.name) {
        let own: Vec<_> = findings.iter().filter(|finding| finding["code"] == *row.rule).collect();
        if own.is_empty() {
            complaints.push(format!("advice of {}: not found", row.rule));
        }
        complaints.extend(
            own.into_iter().filter_map(|finding| wrong_advice(finding, &row.must, &row.may)),
        );
    }
    complaints
}

/// Returns the arguments that check a machine as a case asks for.
fn args(case: &Case, machine: &str) -> Vec<String> {
    let file = text_of(&folder().join(machine));
    let profile = case.profile.as_deref().unwrap_or("standard");
    let mut args = match case.by_facts {
        true => vec!["topo"],
        false => vec!["check", "--profile", profile, "--journal=none"],
    };
    args.extend(["--machine", &file, "--format", "json"]);
    // Only a copy that never ends reaches this deadline.
    let hangs =
        |must: &String| must.starts_with("peer-copy-hung") || must.starts_with("copy-failed");
    if case.must.iter().any(hangs) {
        args.extend(["--deadline", "2"]);
    }
    if let Some(group) = &case.only {
        args.extend(["--only", group]);
    }
    args.into_iter().map(String::from).collect()
}

/// Runs the program with these variables, and without the caller's choice of GPUs.
fn run_in<T: AsRef<str>>(environment: &[String], args: &[T]) -> Ran {
    let mut command = peerscope(args);
    command.env_remove("CUDA_VISIBLE_DEVICES");
    let variables = environment.iter().filter_map(|one| one.split_once('='));
    finish(command.envs(variables))
}

fn check(case: &Case, into: &Path) -> Ran {
    let mut args = args(case, &format!("{}.toml", case.name));
    let [page, picture] = pages::files(into).map(|file| text_of(&file));
    args.extend(["-o".to_owned(), page, "-o".to_owned(), picture]);
    if let Some(before) = &case.baseline {
        let report = finish(&mut peerscope(&self::args(case, before))).stdout;
        args.extend(["--baseline".to_owned(), write(into, "before.json", &report)]);
    }
    if let Some(expectations) = &case.expect {
        args.extend(["--expect".to_owned(), write(into, "order.toml", expectations)]);
    }
    run_in(&case.environment, &args)
}

/// Returns the names of a subject in labels; a pair has two names.
pub(crate) fn names(subject: &Value) -> Vec<String> {
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

/// Numbers of findings, compared with the expected ones.
#[derive(Default, Clone, Copy)]
pub(crate) struct Score {
    pub right: usize,
    pub wrong: usize,
    pub missing: usize,
}

/// The scores so far, by rule.
static SCORES: Mutex<BTreeMap<String, Score>> = Mutex::new(BTreeMap::new());

pub(crate) fn count(rule: &str, add: impl FnOnce(&mut Score)) {
    add(SCORES.lock().unwrap().entry(rule.to_owned()).or_default());
}

/// Returns a line for each missing word, and for each forbidden one.
fn wordings(case: &Case, findings: &[Value]) -> Vec<String> {
    let text = |finding: &Value| {
        let suspects = list(&finding["suspects"])
            .iter()
            .flat_map(|suspect| [&suspect["cause"], &suspect["test"]]);
        let parts = [&finding["message"], &finding["next_step"]]
            .into_iter()
            .chain(suspects)
            .filter_map(|part| part.as_str().map(str::to_owned));
        let steps = advised_by(finding).into_iter().map(|step| format!("#{step}"));
        parts.chain(steps).collect::<Vec<_>>().join(" | ")
    };
    let said = |rule_and_words: &str| {
        let (rule, words) = rule_and_words.split_once(": ").expect("code: words");
        findings
            .iter()
            .filter(|finding| finding["code"] == rule)
            .map(text)
            .find(|text| text.contains(words))
    };
    let missing = case.says.iter().filter(|words| said(words).is_none());
    let missing = missing.map(|words| {
        format!("does not say {words:?}: {}", findings_in_words(findings, words, text))
    });
    let wrong = case
        .never_says
        .iter()
        .filter_map(|words| Some(format!("says {words:?}: {}", said(words)?)));
    missing.chain(wrong).collect()
}

/// Returns a line for each rule whose findings have the wrong severity, or that found nothing.
fn severities(case: &Case, findings: &[Value]) -> Vec<String> {
    let complaint = |label: &String| {
        let (rule, wanted) = label.split_once(": ").expect("code: severity");
        let own: Vec<_> = findings.iter().filter(|finding| finding["code"] == rule).collect();
        let wrong = own.is_empty() || own.iter().any(|finding| finding["severity"] != wanted);
        let is: Vec<_> = own.iter().map(|finding| &finding["severity"]).collect();
        wrong.then(|| format!("severity of {rule} is {is:?}, not {wanted}"))
    };
    case.severity.iter().filter_map(complaint).collect()
}

/// Returns the texts of a rule's findings, for a complaint.
fn findings_in_words(
    findings: &[Value],
    rule_and_words: &str,
    text: impl Fn(&Value) -> String,
) -> String {
    let rule = rule_and_words.split(": ").next().unwrap_or_default();
    findings
        .iter()
        .filter(|finding| finding["code"] == rule)
        .map(text)
        .collect::<Vec<_>>()
        .join(" || ")
}

/// Returns a line for each defect.
fn judge(case: &Case, ran: &Ran) -> Vec<String> {
    let report = ran.json();
    let mut complaints = Vec::new();
    let mut left: Vec<&String> = case.must.iter().collect();
    for finding in list(&report["findings"]) {
        let code = finding["code"].as_str().unwrap();
        let name = &names(&finding["subject"])[0];
        if let Some(lack) = incomplete(finding) {
            complaints.push(format!("{code}@{name} has {lack}"));
        }
        if finding["severity"] == "info" {
            continue;
        }
        let fits = |must: &str| {
            must == code
                || names(&finding["subject"]).iter().any(|name| must == format!("{code}@{name}"))
        };
        if let Some(at) = left.iter().position(|must| fits(must)) {
            left.remove(at);
            count(code, |score| score.right += 1);
        } else if !case.may.iter().any(|may| may == code) {
            count(code, |score| score.wrong += 1);
            complaints.push(format!(
                "found {code}@{name} ({}): {}",
                finding["severity"], finding["message"]
            ));
        }
    }
    complaints.extend(wordings(case, list(&report["findings"])));
    complaints.extend(severities(case, list(&report["findings"])));
    complaints.extend(advised(case, list(&report["findings"])));
    for must in left {
        let code = must.split('@').next().unwrap();
        count(code, |score| score.missing += 1);
        let informs = list(&report["findings"])
            .iter()
            .any(|finding| finding["code"] == code && finding["severity"] == "info");
        complaints.push(match informs {
            true => format!("wanted {must}, found as information: that belongs into `severity`"),
            false => format!("wanted {must}, not found"),
        });
    }
    let untested = &report["verdict"]["untested"];
    if case.complete && *untested != 0 {
        complaints.push(format!("{untested} measurements were not made"));
    }
    let verdict = report["verdict"]["verdict"].as_str().unwrap();
    if (verdict, ran.code) != (case.verdict.as_str(), Some(case.exit)) {
        complaints.push(format!(
            "{verdict}, exit {:?}; wanted {}, {}",
            ran.code, case.verdict, case.exit
        ));
    }
    complaints
}

/// Returns the missing part of a finding that every reader needs: place, evidence, next step.
fn incomplete(finding: &Value) -> Option<&'static str> {
    let text = |key: &str| finding[key].as_str().is_some_and(|text| !text.trim().is_empty());
    if finding["subject"]["kind"] != "machine" && !text("location") {
        return Some("no location");
    }
    if finding["evidence"].as_object().is_none_or(serde_json::Map::is_empty) {
        return Some("no evidence");
    }
    if !names_its_gpus(finding) {
        return Some("a message that does not name the GPUs of its subject");
    }
    let short = finding["message"].as_str().unwrap_or_default().split("; ").next();
    let is_short = short.is_none_or(|short| short.chars().count() <= 140 && !short.ends_with(':'));
    // What keeps a run from measuring is told in the words of whatever keeps it.
    if !is_short && finding["code"] != "nothing-measured" {
        return Some("a message that does not begin with a short sentence");
    }
    (!text("next_step") || !text("message")).then_some("no next step or message")
}

/// Returns true if the message names every GPU of the subject: a page of one line prints nothing else. "GPU 10" does not
/// name GPU 1.
fn names_its_gpus(finding: &Value) -> bool {
    let message = finding["message"].as_str().unwrap_or_default();
    let names = |gpu: &Value| {
        let name = format!("GPU {gpu}");
        let mut rests = message.split(&name).skip(1);
        rests.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let gpus = ["index", "source", "destination"].map(|key| &finding["subject"][key]);
    gpus.iter().filter(|gpu| gpu.is_u64()).all(|gpu| names(gpu))
}

pub(crate) fn trials() -> Vec<Trial> {
    let cases = labels()
        .into_iter()
        .map(|case| trial(format!("case::{}", case.name), move || try_case(&case)));
    let other =
        trial("case::lanes_at_rest_are_shown_by_topo".into(), lanes_at_rest_are_shown_by_topo);
    cases.chain([other]).collect()
}

fn try_case(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let ran = check(case, folder.path());
    let complaints = judge(case, &ran);
    if case.not_yet.is_some() {
        assert!(
            !complaints.is_empty(),
            "{} is right now: remove not_yet from its label",
            case.name
        );
        return;
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let differences = shadow::differences(&case.name, &ran);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // `diagnose` of the page judges without the second file.
    if case.baseline.is_none() && case.expect.is_none() {
        pages::assert_pages(folder.path(), &ran.json());
    }
    if case.topo.is_some() {
        let file = text_of(&super::cases::folder().join(format!("{}.toml", case.name)));
        let ran = finish(&mut peerscope(&["topo", "--machine", &file, "--format", "line"]));
        assert_eq!(ran.code, case.topo, "topo: {}", ran.stdout);
    }
    if case.must.is_empty() && case.exit == 0 {
        with_less_evidence(case);
    }
}

/// Checks that a healthy machine is not faulty if less is known of it: by facts alone, and by direct copies alone.
fn with_less_evidence(case: &Case) {
    let file = text_of(&folder().join(format!("{}.toml", case.name)));
    for args in [&["topo"][..], &["check", "--profile", "quick", "--journal=none"]] {
        let args = [args, &["--machine", &file, "--format", "json"]].concat();
        let ran = run_in(&case.environment, &args);
        assert_eq!(ran.code, Some(0), "{args:?}: {:#}", ran.json()["findings"]);
    }
}

/// Checks lanes that a link may show at rest only: `topo` copies nothing, so they are a warning there. On a link of a
/// GPU that is awake they are an error.
fn lanes_at_rest_are_shown_by_topo() {
    for (case, severity, code) in [
        ("healthy-gpu-reads-four-lanes", "warning", 0),
        ("healthy-uplink-idle-four-lanes", "warning", 0),
        ("uplink-degraded", "warning", 0),
        ("x16-trained-x4", "error", 1),
    ] {
        let file = text_of(&folder().join(format!("{case}.toml")));
        let ran = finish(&mut peerscope(&["topo", "--machine", &file, "--format", "json"]));
        let report = ran.json();
        let narrow = list(&report["findings"])
            .iter()
            .find(|finding| finding["code"] == "pcie-narrow")
            .unwrap();
        assert_eq!(
            (&narrow["severity"], ran.code),
            (&Value::from(severity), Some(code)),
            "{case}: {narrow:#}"
        );
        assert_eq!(
            narrow["message"].as_str().unwrap().contains("while nothing runs"),
            code == 0,
            "{case}"
        );
        assert_eq!(advised_by(narrow).contains("check-under-load"), code == 0, "{case}");
    }
}

/// Returns a line for each label without its file, for each file without its label, and for each mismatch of the two.
pub(crate) fn wrong_labels() -> Vec<String> {
    let labels = labels();
    let mut wrong = Vec::new();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for case in &labels {
        let name = &*case.name;
        if !named.insert(name) {
            wrong.push(format!("tests/cases/labels.toml has {name} twice"));
        }
        let Ok(text) = std::fs::read_to_string(folder().join(format!("{name}.toml"))) else {
            wrong.push(format!(
                "tests/cases/labels.toml has {name}, and there is no tests/cases/{name}.toml"
            ));
            continue;
        };
        wrong.extend(wrong_source(case, &text));
    }
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|file| file.is_file()) {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if name != "labels" && !named.contains(name) {
            wrong.push(format!(
                "tests/cases/{name}.toml has no [[case]] in tests/cases/labels.toml"
            ));
        }
    }
    let advised = advice().into_iter().map(|row| row.case);
    let lost = advised.filter(|case| !named.contains(&**case));
    wrong.extend(lost.map(|case| {
        format!(
            "tests/machines/advice.toml has {case}, which is no case of tests/cases/labels.toml"
        )
    }));
    let healthy = labels.iter().filter(|case| case.must.is_empty()).count();
    if labels.len() < 30 || healthy < 10 {
        wrong.push(format!("only {} cases, {healthy} of them healthy", labels.len()));
    }
    wrong
}

/// Returns the defect if the file does not contain the source of its label: both texts, and the rule.
fn wrong_source(case: &Case, file: &str) -> Option<String> {
    let Case { name, source, .. } = case;
    if !source.is_empty() && file.contains(source) {
        return None;
    }
    let comments: Vec<_> = file.lines().take_while(|line| line.starts_with('#')).collect();
    Some(format!(
        "the source of a label must stand word for word in a comment of its file (CONTRIBUTING.md, \"A case\").\n\
         tests/cases/labels.toml has for {name}:\n  {source}\ntests/cases/{name}.toml begins with:\n  {}",
        comments.join("\n  ")
    ))
}

/// Prints precision and recall, for every rule that was found or expected, and over all.
pub(crate) fn summarise() {
    let scores = SCORES.lock().unwrap();
    if scores.is_empty() {
        return;
    }
    let row = |name: &str, score: Score| {
        let Score { right, wrong, missing } = score;
        let (precision, recall) = (percent(right, wrong), percent(right, missing));
        say(&format!("{name:<28} {right:>5} {wrong:>5} {missing:>7} {precision:>9} {recall:>7}"));
    };
    say(&format!(
        "{:<28} {:>5} {:>5} {:>7} {:>9} {:>7}",
        "labelled set and injected", "right", "wrong", "missing", "precision", "recall"
    ));
    let mut all = Score::default();
    for (rule, score) in scores.iter() {
        row(rule, *score);
        all = Score {
            right: all.right + score.right,
            wrong: all.wrong + score.wrong,
            missing: all.missing + score.missing,
        };
    }
    row("all", all);
}

/// Returns the share of `part` in `part` and `rest` together.
fn percent(part: usize, rest: usize) -> String {
    #[allow(clippy::cast_precision_loss, reason = "a few hundred at most")]
    let share = 100.0 * part as f64 / (part + rest).max(1) as f64;
    format!("{share:.1}%")
}
