//! The report as JUnit XML, for CI systems.
//!
//! One suite for the verdict, one for the rules, one for the GPUs as CUDA sees them, and one for each probe with a case
//! for each ordered pair. `failure`: the machine is not as it should be. `error`: something could not be tested.
//! `skipped`: it was not tested, with the reason. If nothing was measured, no case passes. The verdict's case fails
//! when the exit code does, so that a run is red under the same conditions.

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
use model::measurement::Cell;
use model::measurement::Probe;
use model::measurement::{Status, Verified};
use model::report::{Conclusion, Report};
use model::rounding::{percent, rate};

pub(super) const FORMAT: Format =
    Format::new("junit", &["xml"], "JUnit XML, for CI systems", render);

fn render(digest: &Digest<'_>, _: &Style) -> String {
    match suites(digest).to_string() {
        Ok(text) => without_skipped_in_root(&text),
        // Writing plain data into memory cannot fail. If it did, no CI system takes this for a pass.
        Err(error) => format!("<!-- cannot be written as XML: {error} -->\n"),
    }
}

/// Returns all suites, the verdict's first.
pub(super) fn suites(digest: &Digest<'_>) -> quick_junit::Report {
    let mut junit = quick_junit::Report::new("peerscope");
    junit.add_test_suite(verdict(digest));
    junit.add_test_suite(rules(digest));
    junit.add_test_suites(gpus(digest.report));
    junit.add_test_suites(probes(digest));
    junit
}

/// Removes an attribute of `testsuites` that the schema of Jenkins' xUnit plugin does not allow. The suites keep
/// theirs.
pub fn without_skipped_in_root(text: &str) -> String {
    let Some((before, root)) = text.split_once("<testsuites ") else {
        return text.to_owned();
    };
    let Some((root, after)) = root.split_once('>') else {
        return text.to_owned();
    };
    let kept: Vec<_> =
        root.split(' ').filter(|attribute| !attribute.starts_with("skipped=")).collect();
    format!("{before}<testsuites {}>{after}", kept.join(" "))
}

/// Returns the conclusion as one case.
fn verdict(digest: &Digest<'_>) -> TestSuite {
    let report = digest.report;
    let mut suite = suite(report, "verdict");
    let verdict = &report.verdict;
    let tested = digest.tested();
    let status = match verdict.verdict {
        Conclusion::Healthy => passed(report),
        Conclusion::Faulty => {
            not_passed(NonSuccessKind::Failure, "faulty", &format!("faulty; {tested}"), "")
        }
        Conclusion::Inconclusive => not_passed(
            NonSuccessKind::Error,
            "inconclusive",
            &format!("inconclusive; {tested}"),
            "",
        ),
    };
    let mut case = case("verdict", "the machine is healthy", status);
    let exit_code = format!(
        "{tested}{}{}; exit code {}",
        digest.without_load(),
        digest.less(),
        verdict.exit_code
    );
    case.set_system_out(shown(&exit_code));
    suite.add_test_case(case);
    for (name, value) in [
        ("machine", report.machine.as_str()),
        ("started_at", &report.started_at),
        ("version", &report.tool.version),
        (
            "profile",
            report.measurements.as_ref().map_or("none", |measurements| &measurements.profile),
        ),
    ] {
        suite.add_property(Property::new(name, shown(value)));
    }
    for caveat in Caveat::ALL {
        let value = digest
            .caveats
            .get(&caveat)
            .map_or_else(|| "no".to_owned(), |sentence| format!("yes: {sentence}"));
        suite.add_property(Property::new(caveat.word(), shown(&value)));
    }
    suite
}

/// Returns one case for each rule, so that names stay the same from run to run.
fn rules(digest: &Digest<'_>) -> TestSuite {
    let report = digest.report;
    let mut by_code: BTreeMap<&str, Vec<&Finding>> =
        diagnose::RULES.iter().map(|rule| (&*rule.id, Vec::new())).collect();
    for finding in &digest.findings {
        by_code.entry(&finding.code).or_default().push(finding);
    }
    let off = report.request.silenced.iter().filter(|rule| rule.severity.is_none());
    let off: Vec<&str> = off.map(|rule| &*rule.code).collect();
    let mut suite = suite(report, "rules");
    for (code, found) in by_code {
        let text: Vec<_> = found.iter().map(|finding| finding_text(finding)).collect();
        let text = text.join("\n\n");
        let mut case = match found.first() {
            Some(worst) if diagnose::is_gap(&worst.code) => {
                case("rules", code, not_passed(NonSuccessKind::Error, code, &worst.message, &text))
            }
            Some(worst) if worst.severity == Severity::Error => {
                let more = if found.len() > 1 {
                    format!(" (and {} more)", found.len() - 1)
                } else {
                    String::new()
                };
                let message = format!("{}{more}", worst.message);
                case("rules", code, not_passed(NonSuccessKind::Failure, code, &message, &text))
            }
            None if off.contains(&code) => {
                case("rules", code, skipped("switched off by the configuration"))
            }
            _ => case("rules", code, passed(report)),
        };
        if !text.is_empty() && !matches!(case.status, TestCaseStatus::NonSuccess { .. }) {
            case.set_system_out(shown_lines(&text));
        }
        suite.add_test_case(case);
    }
    suite
}

fn finding_text(finding: &Finding) -> String {
    let mut lines = vec![format!("{}: {}", finding.severity, shown(&finding.message))];
    if !finding.evidence.is_empty() {
        lines.push(format!("seen: {}", shown(&evidence::text(finding)).replace(GLUE, " ")));
    }
    if !finding.next_step.is_empty() {
        lines.push(format!("do: {}", shown(&finding.next_step)));
    }
    lines.join("\n")
}

/// Returns the GPUs requested from CUDA, or `None` if CUDA could not be used at all.
fn gpus(report: &Report) -> Option<TestSuite> {
    let devices = &report.measurements.as_ref()?.driver.devices;
    if devices.is_empty() {
        return None;
    }
    let mut suite = suite(report, "gpus");
    for device in devices {
        let status = match &device.failure {
            Some(why) => {
                not_passed(NonSuccessKind::Error, "not-tested", &format!("not tested: {why}"), "")
            }
            None => passed(report),
        };
        suite.add_test_case(case("gpus", &format!("GPU {} can be used", device.index), status));
    }
    Some(suite)
}

/// Returns one suite for each probe, with a case for each pair.
fn probes(digest: &Digest<'_>) -> Vec<TestSuite> {
    let report = digest.report;
    let mut probes: BTreeMap<Probe, BTreeMap<Flow, Vec<Cell<'_>>>> = BTreeMap::new();
    for cell in report.measurements.iter().flat_map(diagnose::cells) {
        probes.entry(cell.probe).or_default().entry(cell.flow).or_default().push(cell);
    }
    let rates: BTreeMap<Flow, String> = digest
        .figures()
        .filter_map(|cell| {
            let share = cell
                .percent
                .map(|share| format!(", {}% of theoretical", percent(share)))
                .unwrap_or_default();
            Some((
                cell.pair.into(),
                format!("{} {} GB/s{share}", cell.setup.path, rate(cell.achieved_gbps?.0)),
            ))
        })
        .collect();
    let suites = probes.into_iter().map(|(probe, flows)| {
        let name = probe.to_string();
        let mut suite = suite(report, &name);
        for (flow, cells) in flows {
            let mut case = case(&name, &flow.to_string(), pair_status(report, &cells));
            if let Some(rate) = rates.get(&flow).filter(|_| probe == Probe::Bandwidth) {
                case.set_system_out(rate.clone());
            }
            suite.add_test_case(case);
        }
        suite
    });
    suites.collect()
}

/// Returns the worst result of a pair's measurements by one probe.
fn pair_status(report: &Report, cells: &[Cell<'_>]) -> TestCaseStatus {
    let number = |wanted: &dyn Fn(&Cell<'_>) -> bool| {
        let found: Vec<_> = cells.iter().filter(|cell| wanted(cell)).collect();
        let reason = found
            .iter()
            .find_map(|cell| cell.reason)
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        (found.len(), reason)
    };
    let of = cells.len();
    for (verified, name, what) in [
        (Verified::Corrupt, "corrupt", "wrong bytes arrived"),
        (Verified::Dropped, "dropped", "bytes never arrived"),
        (Verified::Stale, "stale", "bytes of the last copy never arrived"),
    ] {
        let (wrong, _) = number(&|cell| cell.verified == verified);
        if wrong > 0 {
            return not_passed(
                NonSuccessKind::Failure,
                name,
                &format!("{what} in {wrong} of {of} measurements"),
                "",
            );
        }
    }
    for (status, name, what) in
        [(Status::Hung, "hung", "did not end"), (Status::Failed, "failed", "failed")]
    {
        let (bad, reason) = number(&|cell| cell.status == status);
        if bad > 0 {
            let message = format!("{bad} of {of} measurements {what}{reason}");
            return not_passed(NonSuccessKind::Error, name, &message, "");
        }
    }
    let (disturbed, _) = number(&|cell| cell.disturbed);
    if disturbed > 0 {
        return skipped(&format!(
            "another program was at work during {disturbed} of {of} measurements"
        ));
    }
    let (untested, reason) = number(&|cell| !cell.tested());
    if untested > 0 {
        return skipped(&format!("{untested} of {of} measurements not made{reason}"));
    }
    let (unverified, reason) = number(&|cell| cell.verified == Verified::Inconclusive);
    if unverified > 0 {
        return skipped(&format!("not verified in {unverified} of {of} measurements{reason}"));
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
        status.set_description(shown_lines(text));
    }
    status
}

fn shown(text: &str) -> String {
    clean(text).into_owned()
}

/// Cleans each line of a text whose newlines are our own.
fn shown_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
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
        assert_eq!(suite("peerscope.rules").tests, diagnose::RULES.len());
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
            let [passed, _, _, skipped] = counts(&read(&report));
            assert_eq!(passed, 0);
            assert!(skipped > 0);
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
            text.contains("<testsuite name=\"peerscope.rules\"") && text.contains(" skipped="),
            "{text}"
        );
    }
}
