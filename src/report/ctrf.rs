//! The report in the Common Test Report Format (<https://ctrf.io>), which AICR and test dashboards read.
//!
//! The cases are those of JUnit XML, so that the two formats never disagree: `failed` is a fault of the machine,
//! `other` could not be tested, `skipped` was not tested.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::digest::Digest;
use super::format::{Format, Of, Style};
use super::{json, junit};

pub(super) const FORMAT: Format =
    Format { of: Of::One, ..Format::new("ctrf", &[], "Common Test Report Format, JSON", render) };

/// Version of the specification that this file follows.
const VERSION: &str = "1.0.0";

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    report_format: &'static str,
    spec_version: &'static str,
    timestamp: &'a str,
    generated_by: &'a str,
    results: Results<'a>,
    extra: Extra<'a>,
}

#[derive(Debug, Serialize)]
struct Results<'a> {
    tool: Tool<'a>,
    summary: Summary,
    tests: Vec<Test>,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    name: &'a str,
    version: &'a str,
}

/// Numbers of cases, and times in milliseconds since 1970.
#[derive(Debug, Default, Serialize)]
struct Summary {
    tests: usize,
    passed: usize,
    failed: usize,
    skipped: usize,
    pending: usize,
    other: usize,
    suites: usize,
    start: i64,
    stop: i64,
    duration: i64,
}

#[derive(Debug, Serialize)]
struct Test {
    name: String,
    status: &'static str,
    /// Milliseconds. Cases share their copies, so only the whole run has a time.
    duration: u32,
    suite: [String; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stdout: Vec<String>,
}

/// The caveats of the report.
#[derive(Debug, Serialize)]
struct Extra<'a> {
    machine: &'a str,
    exit_code: u8,
    caveats: Vec<&'a str>,
}

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let report = digest.report;
    let junit = junit::suites(digest);
    let tests: Vec<Test> = junit.test_suites.iter().flat_map(tests).collect();
    json::tidy(&Document {
        report_format: "CTRF",
        spec_version: VERSION,
        timestamp: &report.started_at,
        generated_by: &report.tool.name,
        results: Results {
            tool: Tool { name: &report.tool.name, version: &report.tool.version },
            summary: summary(digest, &tests, junit.test_suites.len()),
            tests,
        },
        extra: Extra {
            machine: &report.machine,
            exit_code: report.verdict.exit_code,
            caveats: digest.caveats.values().map(String::as_str).collect(),
        },
    })
}

fn tests(suite: &TestSuite) -> impl Iterator<Item = Test> {
    suite.test_cases.iter().map(|case| Test {
        name: case.name.to_string(),
        status: status(case),
        duration: 0,
        suite: [suite.name.to_string()],
        message: message(case),
        stdout: case
            .system_out
            .iter()
            .flat_map(|text| text.as_str().lines().map(str::to_owned))
            .collect(),
    })
}

const fn status(case: &TestCase) -> &'static str {
    match case.status {
        TestCaseStatus::Success { .. } => "passed",
        TestCaseStatus::NonSuccess { kind: NonSuccessKind::Failure, .. } => "failed",
        // CTRF has no status for a test that could not run; `skipped` means that it was not requested.
        TestCaseStatus::NonSuccess { kind: NonSuccessKind::Error, .. } => "other",
        TestCaseStatus::Skipped { .. } => "skipped",
    }
}

fn message(case: &TestCase) -> Option<String> {
    match &case.status {
        TestCaseStatus::NonSuccess { message, .. } | TestCaseStatus::Skipped { message, .. } => {
            message.as_ref().map(|text| text.as_str().to_owned())
        }
        TestCaseStatus::Success { .. } => None,
    }
}

fn summary(digest: &Digest<'_>, tests: &[Test], suites: usize) -> Summary {
    let number = |status: &str| tests.iter().filter(|test| test.status == status).count();
    let started = OffsetDateTime::parse(&digest.report.started_at, &Rfc3339).ok();
    let start = started.map_or(0, |time| time.unix_timestamp() * 1000);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a run is shorter than 2^53 ms, and `as` saturates"
    )]
    let duration = (digest.report.timing.total * 1000.0).round() as i64;
    Summary {
        tests: tests.len(),
        passed: number("passed"),
        failed: number("failed"),
        skipped: number("skipped"),
        pending: 0,
        other: number("other"),
        suites,
        start,
        stop: start.saturating_add(duration),
        duration,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    fn written(report: &Report) -> serde_json::Value {
        serde_json::from_str(&render(&Digest::of(report), &Style::PLAIN)).unwrap()
    }

    #[test]
    fn the_cases_are_those_of_junit_and_add_up() {
        for report in
            [sample::healthy(8), sample::pcie_box(), sample::nothing_measured(), sample::hostile()]
        {
            let file = written(&report);
            assert_eq!(
                (&file["reportFormat"], &file["specVersion"]),
                (&"CTRF".into(), &VERSION.into())
            );
            let summary = &file["results"]["summary"];
            let number = |key: &str| summary[key].as_u64().unwrap();
            let tests = file["results"]["tests"].as_array().unwrap();
            assert_eq!(number("tests"), tests.len() as u64);
            let parts = ["passed", "failed", "skipped", "pending", "other"];
            assert_eq!(parts.iter().map(|part| number(part)).sum::<u64>(), number("tests"));
            assert!(number("stop") >= number("start"));
            assert!(tests.iter().all(|test| !test["name"].as_str().unwrap().is_empty()));
        }
    }

    #[test]
    fn a_fault_fails_and_what_was_not_tested_never_passes() {
        let first = |report: &Report| written(report)["results"]["tests"][0]["status"].clone();
        assert_eq!(first(&sample::healthy(8)), "passed");
        assert!(
            written(&sample::healthy(8))["results"]["summary"]["start"].as_i64().unwrap()
                > 1_700_000_000_000
        );
        assert_eq!(first(&sample::pcie_box()), "failed");
        let nothing = sample::nothing_measured();
        assert_eq!(first(&nothing), "other");
        assert_eq!(written(&nothing)["results"]["summary"]["passed"], 0);
    }
}
