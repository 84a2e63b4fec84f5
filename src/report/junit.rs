//! The report as JUnit XML, for CI systems.
//!
//! One suite for the verdict, one for the findings, and one for each probe with a case for each flow. `failure`: the machine
//! is not as it should be. `error`: something could not be tested. `skipped`: it was not tested, with the reason. If nothing
//! was measured, no case passes. The verdict's case fails when the exit code does.

use std::collections::BTreeMap;

use quick_junit::{NonSuccessKind, Property, TestCase, TestCaseStatus, TestSuite};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::evidence;
use super::format::{Format, Style};
use super::page::GLUE;
use model::finding::{Finding, Severity};
use model::flow::Flow;
use model::measurement::{Cell, Probe, Status, Verified};
use model::report::{Conclusion, Report};

pub(super) const FORMAT: Format =
    Format::new("junit", &["xml"], "JUnit XML, for CI systems", render);

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut junit = quick_junit::Report::new("peerscope");
    junit.add_test_suite(verdict(digest));
    junit.add_test_suites(findings(digest));
    junit.add_test_suites(probes(digest.report));
    file(&junit)
}

/// Returns the suites as a file, without an attribute of `testsuites` that the schema of Jenkins' xUnit plugin does not
/// allow. The suites keep theirs.
pub fn file(suites: &quick_junit::Report) -> String {
    // Writing plain data into memory cannot fail. If it did, no CI system takes this for a pass.
    let text = suites
        .to_string()
        .unwrap_or_else(|error| format!("<!-- cannot be written as XML: {error} -->\n"));
    let Some((before, rest)) = text.split_once("<testsuites ") else { return text };
    let Some((root, after)) = rest.split_once('>') else { return text };
    let kept = root.split(' ').filter(|attribute| !attribute.starts_with("skipped="));
    format!("{before}<testsuites {}>{after}", kept.collect::<Vec<_>>().join(" "))
}

/// Returns the conclusion as one case.
fn verdict(digest: &Digest<'_>) -> TestSuite {
    let (report, verdict) = (digest.report, &digest.report.verdict);
    let mut suite = suite(report, "verdict");
    let tested = digest.tested();
    let bad = |kind, word| not_passed(kind, word, &format!("{word}; {tested}"), "");
    let status = match verdict.verdict {
        Conclusion::Healthy => passed(report),
        Conclusion::Faulty => bad(NonSuccessKind::Failure, "faulty"),
        Conclusion::Inconclusive => bad(NonSuccessKind::Error, "inconclusive"),
    };
    let mut case = case("verdict", "the machine is healthy", status);
    let (load, less, code) = (digest.without_load(), digest.less(), verdict.exit_code);
    case.set_system_out(shown(&format!("{tested}{load}{less}; exit code {code}")));
    suite.add_test_case(case);
    let profile = report.measurements.as_ref().map_or("none", |measured| &measured.profile);
    let mut property = |name: &str, value: &str| {
        suite.add_property(Property::new(name, shown(value)));
    };
    property("machine", &report.machine);
    property("started_at", &report.started_at);
    property("version", &report.tool.version);
    property("profile", profile);
    for caveat in Caveat::ALL {
        let sentence = digest.caveats.get(&caveat).map(|sentence| format!("yes: {sentence}"));
        property(caveat.word(), sentence.as_deref().unwrap_or("no"));
    }
    suite
}

/// Returns one case for each finding, if there are any. Warnings and notes pass, as they do not make a machine faulty.
fn findings(digest: &Digest<'_>) -> Option<TestSuite> {
    let mut suite = suite(digest.report, "findings");
    for finding in &digest.findings {
        let text = finding_text(finding);
        let bad = |kind| not_passed(kind, &finding.code, &finding.message, &text);
        let status = match finding.severity {
            _ if diagnose::is_gap(&finding.code) => bad(NonSuccessKind::Error),
            Severity::Error => bad(NonSuccessKind::Failure),
            Severity::Warning | Severity::Info => passed(digest.report),
        };
        let passes = !matches!(status, TestCaseStatus::NonSuccess { .. });
        let mut case = case("findings", &format!("{}: {}", finding.code, finding.subject), status);
        if passes {
            case.set_system_out(text);
        }
        suite.add_test_case(case);
    }
    (!digest.findings.is_empty()).then_some(suite)
}

fn finding_text(finding: &Finding) -> String {
    let mut text = shown(&format!("{}: {}", finding.severity, finding.message));
    let seen = evidence::text(finding).replace(GLUE, " ");
    for (label, more) in [("seen", &seen), ("do", &finding.next_step)] {
        if !more.is_empty() {
            text += &format!("\n{label}: {}", clean(more));
        }
    }
    text
}

/// Returns one suite for each probe, with a case for each flow.
fn probes(report: &Report) -> Vec<TestSuite> {
    let mut probes: BTreeMap<Probe, BTreeMap<Flow, Vec<Cell<'_>>>> = BTreeMap::new();
    for cell in report.measurements.iter().flat_map(diagnose::cells) {
        probes.entry(cell.probe).or_default().entry(cell.flow).or_default().push(cell);
    }
    let suites = probes.into_iter().map(|(probe, flows)| {
        let name = probe.to_string();
        let mut suite = suite(report, &name);
        suite.add_test_cases(
            flows
                .into_iter()
                .map(|(flow, cells)| case(&name, &flow.to_string(), flow_status(report, &cells))),
        );
        suite
    });
    suites.collect()
}

/// Returns the worst result of a flow's measurements by one probe.
fn flow_status(report: &Report, cells: &[Cell<'_>]) -> TestCaseStatus {
    use NonSuccessKind::{Error, Failure};
    type Test = fn(&Cell<'_>) -> bool;
    // Worst first: the kind, or none for what was not tested; a word; what is said of so many; whether it is so.
    let results: [(Option<NonSuccessKind>, &str, &str, Test); 8] = [
        (Some(Failure), "corrupt", "had wrong bytes", |cell| cell.verified == Verified::Corrupt),
        (Some(Failure), "dropped", "lost bytes", |cell| cell.verified == Verified::Dropped),
        (Some(Failure), "stale", "lost the bytes of the last copy", |cell| {
            cell.verified == Verified::Stale
        }),
        (Some(Error), "hung", "did not end", |cell| cell.status == Status::Hung),
        (Some(Error), "failed", "failed", |cell| cell.status == Status::Failed),
        (None, "", "ran beside another program", |cell| cell.disturbed),
        (None, "", "were not made", |cell| !cell.tested()),
        (None, "", "were not verified", |cell| cell.verified == Verified::Inconclusive),
    ];
    for (kind, word, what, is_so) in results {
        let found: Vec<_> = cells.iter().filter(|cell| is_so(cell)).collect();
        if !found.is_empty() {
            let reason = found.iter().find_map(|cell| cell.reason);
            let reason = reason.map(|why| format!(": {why}")).unwrap_or_default();
            let (some, all) = (found.len(), cells.len());
            let message = format!("{some} of {all} measurements {what}{reason}");
            return match kind {
                Some(kind) => not_passed(kind, word, &message, ""),
                None => skipped(&message),
            };
        }
    }
    passed(report)
}

fn suite(report: &Report, name: &str) -> TestSuite {
    let mut suite = TestSuite::new(format!("peerscope.{name}"));
    // Set only a valid timestamp: readers refuse the whole file for any other text.
    if OffsetDateTime::parse(&report.started_at, &Rfc3339).is_ok() {
        suite.extra.insert("timestamp".into(), report.started_at.as_str().into());
    }
    if let Some(hostname) = report.snapshot.host.hostname.known() {
        suite.extra.insert("hostname".into(), shown(hostname).into());
    }
    suite
}

fn case(class: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(shown(name), status);
    case.set_classname(format!("peerscope.{class}"));
    case
}

/// Returns a pass if a measurement supports it.
fn passed(report: &Report) -> TestCaseStatus {
    match (&report.measurements, report.verdict.tested) {
        (Some(_), 1..) => TestCaseStatus::success(),
        (Some(_), 0) => skipped("nothing was measured"),
        (None, _) => skipped("facts only: no measurements were requested"),
    }
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(shown(why));
    status
}

fn not_passed(kind: NonSuccessKind, name: &str, message: &str, text: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(shown(name)).set_message(shown(message));
    if !text.is_empty() {
        status.set_description(text);
    }
    status
}

fn shown(text: &str) -> String {
    clean(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(report: &Report) -> String {
        render(&Digest::of(report), &Style::PLAIN)
    }

    fn read(report: &Report) -> quick_junit::Report {
        let text = xml(report);
        quick_junit::Report::deserialize_from_str(&text)
            .unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn counts(junit: &quick_junit::Report) -> [usize; 4] {
        let cases = || junit.test_suites.iter().flat_map(|suite| &suite.test_cases);
        let count = |wanted: &dyn Fn(&TestCaseStatus) -> bool| {
            cases().filter(|case| wanted(&case.status)).count()
        };
        let kind = |wanted| move |status: &TestCaseStatus| matches!(status, TestCaseStatus::NonSuccess { kind, .. } if *kind == wanted);
        [
            count(&|status| matches!(status, TestCaseStatus::Success { .. })),
            count(&kind(NonSuccessKind::Failure)),
            count(&kind(NonSuccessKind::Error)),
            count(&|status| matches!(status, TestCaseStatus::Skipped { .. })),
        ]
    }

    #[test]
    fn a_healthy_machine_passes_every_case_and_each_pair_has_one() {
        let junit = read(&sample::healthy(8));
        assert_eq!(counts(&junit)[1..], [0, 0, 0], "{junit:#?}");
        let suite = |name: &str| {
            junit.test_suites.iter().find(|suite| suite.name.as_str() == name).unwrap()
        };
        for probe in ["peerscope.bandwidth", "peerscope.latency", "peerscope.overlap"] {
            assert_eq!(suite(probe).tests, 56, "{probe}");
        }
        assert_eq!(suite("peerscope.bandwidth").test_cases[0].name.as_str(), "GPU 0 → GPU 1");
    }

    #[test]
    fn where_nothing_was_measured_nothing_passes() {
        let mut facts_alone = sample::healthy(8);
        facts_alone.measurements = None;
        facts_alone.verdict.tested = 0;
        for report in
            [facts_alone, sample::nothing_measured(), sample::unknown(0), sample::unknown(3)]
        {
            let [passed, _, errors, skipped] = counts(&read(&report));
            assert_eq!(passed, 0);
            assert!(errors + skipped > 0);
        }
        let [_, _, errors, _] = counts(&read(&sample::nothing_measured()));
        assert!(errors > 0, "a measurement that was requested and not made is an error");
    }

    #[test]
    fn faults_fail_and_gaps_are_skipped_with_their_reason() {
        let report = sample::pcie_box();
        let junit = read(&report);
        let [_, failures, errors, skipped] = counts(&junit);
        assert!(failures > 2 && errors > 0 && skipped > 0, "{:?}", counts(&junit));
        assert_eq!((junit.failures, junit.errors), (failures, errors), "the root has the sums");
        for suite in &junit.test_suites {
            for case in &suite.test_cases {
                match &case.status {
                    TestCaseStatus::Success { .. } => {}
                    TestCaseStatus::Skipped { message, .. }
                    | TestCaseStatus::NonSuccess { message, .. } => {
                        assert!(!message.as_ref().unwrap().as_str().is_empty(), "{case:?}");
                    }
                }
            }
        }
        let verdict = &junit.test_suites[0].test_cases[0];
        assert!(matches!(
            verdict.status,
            TestCaseStatus::NonSuccess { kind: NonSuccessKind::Failure, .. }
        ));
    }

    #[test]
    fn the_root_has_no_attribute_that_jenkins_refuses() {
        let text = xml(&sample::pcie_box());
        let root = text.lines().find(|line| line.starts_with("<testsuites ")).unwrap();
        assert!(!root.contains("skipped=") && root.contains("failures="), "{root}");
        assert!(
            text.contains("<testsuite name=\"peerscope.findings\"") && text.contains(" skipped="),
            "{text}"
        );
    }
}
