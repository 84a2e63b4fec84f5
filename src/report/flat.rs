//! The report as one JSON object on one line, without nested objects or lists, for agents that read single values:
//! gpud's plugins, log shippers, shell scripts with jq.
//!
//! An unknown value has no key. The object contains the worst finding and the number of findings; other formats contain
//! all findings.

use std::collections::BTreeSet;

use serde::Serialize;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::figures::Spread;
use super::format::{Format, Of, Style};
use super::json;
use diagnose::Ending;
use model::finding::Severity;
use model::report::Conclusion;

pub(super) const FORMAT: Format = Format {
    of: Of::One,
    ..Format::new("flat", &[], "One flat JSON object on one line, for agents", render)
};

/// Name and version of this format.
const SCHEMA: &str = "peerscope.flat/1";

/// The object; docs/formats.md explains the keys.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    schema: &'static str,
    name: &'a str,
    version: &'a str,
    machine: &'a str,
    simulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    started_at: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    verdict: Conclusion,
    state: &'static str,
    passed: bool,
    exit_code: u8,
    interrupted: bool,
    recovered: bool,
    partial: bool,
    silenced: bool,
    pasted: bool,
    caveats: String,
    errors: usize,
    warnings: usize,
    tested: u32,
    untested: u32,
    headline: String,
    codes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<Severity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<&'a str>,
    gpus: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_percent: Option<f64>,
    total_seconds: f64,
}

/// Returns the report on one line, with a newline.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    json::one_line(&flat(digest))
}

fn flat<'a>(digest: &Digest<'a>) -> Flat<'a> {
    let report = digest.report;
    let worst = digest.findings.iter().find(|finding| finding.severity > Severity::Info);
    let rates = Spread::of(digest.figures().filter_map(|cell| Some(cell.achieved_gbps?.0)));
    let shares = Spread::of(digest.figures().filter_map(|cell| cell.percent));
    let caveats: Vec<&str> = digest.caveats.values().map(String::as_str).collect();
    Flat {
        schema: SCHEMA,
        name: &report.tool.name,
        version: &report.tool.version,
        machine: &report.machine,
        simulated: report.is_simulated(),
        host: report.snapshot.host.hostname.known().map(String::as_str),
        started_at: &report.started_at,
        profile: report.measurements.as_ref().map(|measurements| measurements.profile.as_str()),
        verdict: report.verdict.verdict,
        state: state(Ending::of(report)),
        passed: report.verdict.verdict == Conclusion::Healthy,
        exit_code: report.verdict.exit_code,
        interrupted: digest.is(Caveat::Interrupted),
        recovered: digest.is(Caveat::Recovered),
        partial: digest.is(Caveat::Partial),
        silenced: digest.is(Caveat::Silenced),
        pasted: digest.is(Caveat::Pasted),
        caveats: caveats.join(". "),
        errors: digest.count_of(Severity::Error),
        warnings: digest.count_of(Severity::Warning),
        tested: report.verdict.tested,
        untested: report.verdict.untested,
        headline: digest.headline(),
        codes: codes(digest),
        code: worst.map(|finding| &*finding.code),
        severity: worst.map(|finding| finding.severity),
        reason: worst.map(|finding| clean(&finding.message).into_owned()),
        next_step: worst.map(|finding| finding.next_step.as_str()),
        gpus: report.snapshot.gpus.len(),
        driver: report.snapshot.host.driver_version.known().map(String::as_str),
        min_gbps: rates.map(|rates| rates.min),
        median_gbps: rates.map(|rates| rates.median),
        min_percent: shares.map(|shares| shares.min),
        total_seconds: report.timing.total,
    }
}

/// Returns the status word of a Nagios plugin.
pub(super) const fn state(ending: Ending) -> &'static str {
    match ending {
        Ending::Healthy => "OK",
        Ending::Warned => "WARNING",
        Ending::Fault => "CRITICAL",
        Ending::Incomplete | Ending::Interrupted | Ending::Usage => "UNKNOWN",
    }
}

/// Returns the codes of all findings except information, each once, separated by commas.
fn codes(digest: &Digest<'_>) -> String {
    let found = digest.findings.iter().filter(|finding| finding.severity > Severity::Info);
    let codes: BTreeSet<&str> = found.map(|finding| &*finding.code).collect();
    codes.into_iter().collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::report::Report;

    fn written(report: &Report) -> serde_json::Value {
        let text = render(&Digest::of(report), &Style::PLAIN);
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn it_is_one_object_of_single_values() {
        for report in
            [sample::healthy(8), sample::pcie_box(), sample::unknown(3), sample::hostile()]
        {
            let object = written(&report);
            let values = object.as_object().unwrap();
            assert!(
                values
                    .values()
                    .all(|value| !value.is_object() && !value.is_array() && !value.is_null())
            );
            assert_eq!(object["schema"], SCHEMA);
        }
    }

    #[test]
    fn the_worst_finding_is_the_reason() {
        let faulty = written(&sample::pcie_box());
        assert_eq!(
            (&faulty["verdict"], &faulty["passed"], &faulty["state"]),
            (&"faulty".into(), &false.into(), &"CRITICAL".into())
        );
        assert_eq!(faulty["severity"], "error");
        assert!(faulty["codes"].as_str().unwrap().contains(faulty["code"].as_str().unwrap()));
        assert!(!faulty["reason"].as_str().unwrap().is_empty());
        let healthy = written(&sample::healthy(8));
        assert_eq!(
            (&healthy["passed"], &healthy["codes"], healthy.get("reason")),
            (&true.into(), &"".into(), None)
        );
        assert!(healthy["min_gbps"].as_f64().unwrap() > 300.0);
    }

    #[test]
    fn what_is_not_known_has_no_key() {
        let mut report = sample::nothing_measured();
        report.measurements = None;
        let object = written(&report);
        assert!(
            ["profile", "min_gbps", "min_percent"].iter().all(|key| object.get(key).is_none()),
            "{object}"
        );
    }
}
