//! A digest of a report: the part that a fleet keeps, a few kilobytes for a machine of eight GPUs.

use std::io::{self, Read};

use super::summary::{Finding, Summary};
use model::finding::{Severity, Subject};
use model::report::{Conclusion, Report};
use report::files::{LONGEST, at_most};
use report::read::{parse, schema};

/// The digest of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Digest {
    /// Source file, with the name within its archive.
    pub file: String,
    /// Host name, or the name of the file if the host name is not known.
    pub node: String,
    /// Start of the run, RFC 3339, UTC.
    pub started_at: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Version of peerscope.
    pub version: String,
    pub summary: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReport {
    /// Another file that peerscope writes.
    Other,
    /// The reason why it cannot be read, worded to follow the file's name.
    Broken(String),
}

/// Beginnings of the schemas of other files that peerscope writes.
const OTHERS: [&str; 3] = ["peerscope.fleet/", "peerscope.comparison/", "peerscope.journal/"];

/// Digests a report.
///
/// # Errors
///
/// Returns the errors of the input. The inner error is the reason why the text is not a report.
pub(crate) fn read(file: &str, from: impl Read) -> io::Result<Result<Digest, NoReport>> {
    let text = at_most(from, LONGEST)?
        .ok_or_else(|| io::Error::other(format!("it is longer than {LONGEST} bytes")))?;
    Ok(parse(&text).map(|report| whole(file, report)).map_err(|why| {
        let schema = schema(&text).unwrap_or_default();
        let is_other = OTHERS.iter().any(|other| schema.starts_with(other));
        if is_other { NoReport::Other } else { NoReport::Broken(why) }
    }))
}

/// Digests a report. If rows were taken out of it, a finding says so: a fleet never shows such a report as healthy.
pub(crate) fn whole(file: &str, report: Report) -> Digest {
    let mut summary = Summary::of(&report);
    let absent = report.measurements.as_ref().map_or(0, |measured| measured.absent);
    if absent > 0 {
        summary.findings.push(Finding {
            code: "not-tested".into(),
            severity: Severity::Warning,
            subject: Subject::Machine,
            message: format!(
                "The report has no row of {absent} of its measurements: they were taken out of it"
            ),
            part: String::new(),
            step: "Take the report as peerscope wrote it".to_owned(),
        });
    }
    Digest {
        file: file.to_owned(),
        node: name(file, &report.machine, summary.hostname.as_deref()),
        started_at: report.started_at,
        machine: report.machine,
        version: report.tool.version,
        summary,
    }
}

/// Host name of simulated machines.
const SIMULATED: &str = "simulated";

/// Returns the host name. Returns the machine's name for a simulated machine without a host name of its own. Returns
/// the name of the file if neither is known.
fn name(file: &str, machine: &str, hostname: Option<&str>) -> String {
    match hostname {
        Some(SIMULATED) if machine != Report::LIVE => machine.to_owned(),
        Some(name) if !name.trim().is_empty() => name.to_owned(),
        _ => {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.split('.').next().unwrap_or(name).to_owned()
        }
    }
}

impl Digest {
    /// Returns true if no figure comes from hardware.
    pub(crate) fn is_simulated(&self) -> bool {
        self.machine != Report::LIVE
    }
}

/// Returns the word for a verdict.
pub(crate) const fn word(conclusion: Conclusion) -> &'static str {
    match conclusion {
        Conclusion::Healthy => "healthy",
        Conclusion::Faulty => "faulty",
        Conclusion::Inconclusive => "inconclusive",
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::{Ends, Method};
    use super::*;
    use model::units::Bytes;
    use report::{Style, named, render};
    use serde_json::Value;

    fn digest_of(text: &[u8]) -> Result<Digest, NoReport> {
        read("a/node7.json", text).unwrap()
    }

    fn value(report: &Report) -> Value {
        serde_json::from_str(&render(report, named("json").unwrap(), &Style::PLAIN)).unwrap()
    }

    #[test]
    fn a_report_without_rows_is_inconclusive() {
        let report = sample::healthy(2);
        assert_eq!(report.verdict.verdict, Conclusion::Healthy);
        let mut cut = value(&report);
        cut["measurements"]["peer"].as_array_mut().unwrap().remove(0);
        let summary = digest_of(cut.to_string().as_bytes()).unwrap().summary;
        assert_eq!(summary.verdict.verdict, Conclusion::Inconclusive);
        assert_eq!(summary.findings.last().unwrap().code, "not-tested");
    }

    #[test]
    fn patterns_of_flows_and_what_was_counted_of_them_are_figures() {
        let mut report = sample::loaded();
        let measured = report.measurements.as_mut().unwrap();
        measured.counted[3].nvlink_sent_bytes =
            measured.counted[3].nvlink_sent_bytes.map(|all| Bytes(all.0 / 2));
        measured.counted[5].links[7].received_percent = Some(1.0);
        measured.counted[6].disturbed = true;
        let digest = digest_of(&serde_json::to_vec(&report).unwrap()).unwrap();
        let of = |what: &Method| -> Vec<(Ends, Option<f32>)> {
            let figures = digest
                .summary
                .figures
                .iter()
                .filter(|figure| &digest.summary.kinds[usize::from(figure.kind)].what == what);
            figures.map(|figure| (figure.ends, figure.value)).collect()
        };
        assert_eq!(of(&Method::Load("ring".into())), [(Ends::Machine, Some(3120.0))]);
        assert_eq!(of(&Method::Load("all to one, GPU 0".into())), [(Ends::Machine, Some(399.0))]);
        let sent = of(&Method::Counted("ring, sent".into()));
        let expected = [100.0, 100.0, 100.0, 50.0, 100.0, 100.0, f32::NAN, 100.0];
        assert_eq!(sent.len(), 8);
        for (gpu, ((ends, value), expected)) in sent.into_iter().zip(expected).enumerate() {
            let gpu = u16::try_from(gpu).unwrap();
            assert_eq!(
                (ends, value),
                (Ends::Gpus(gpu, gpu), Some(expected).filter(|value| !value.is_nan()))
            );
        }
        let least = of(&Method::LeastLink("ring, received".into()));
        assert_eq!((least[5].1, least[6].1), (Some(18.0), None));
        assert!((least[0].1.unwrap() - 100.0).abs() < 1e-3, "{least:?}");
    }

    #[test]
    fn what_is_no_report_says_why() {
        let why = |text: &str| match digest_of(text.as_bytes()) {
            Err(NoReport::Broken(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why("").starts_with("is not JSON"));
        assert!(why("[1]").contains("no \"schema\""));
        assert!(why("{}").contains("no \"schema\""));
        assert!(why(r#"{"schema": "other/1"}"#).contains("'other/1'"));
        assert!(why(r#"{"schema": "peerscope.report/1"}"#).starts_with("is not a complete report"));
        for other in ["fleet", "journal"] {
            let text = format!("{{\"schema\": \"peerscope.{other}/1\"}}");
            assert_eq!(digest_of(text.as_bytes()), Err(NoReport::Other));
        }
        assert_eq!(digest_of(br#"{"schema": "peerscope.fleet/1"}"#), Err(NoReport::Other));
    }

    #[test]
    fn a_node_has_the_name_of_its_host_or_else_of_its_file() {
        let mut report = sample::unknown(2);
        let of = |report: &Report| digest_of(&serde_json::to_vec(report).unwrap()).unwrap().node;
        report.snapshot.host.hostname = model::reading::Reading::Known("rack1".into());
        assert_eq!(of(&report), "rack1");
        report.snapshot.host.hostname = Err(model::reading::Unknown::Unsupported).into();
        assert_eq!(of(&report), "node7");
    }
}
