//! A digest of a report: the part that a fleet keeps, a few kilobytes for a machine of eight GPUs.

use std::fmt;
use std::io::{self, BufReader, Read, Take};

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use model::finding::{Severity, Subject};
use model::report::{Conclusion, Report, SCHEMA, Tool};
use model::summary::{Finding, Summary};
use recording::LONGEST;
use report::read::parse;

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
    /// The report's own summary, or one made from the whole report.
    pub summary: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReport {
    /// Another file that peerscope writes.
    Other,
    /// The reason why it cannot be read, worded to follow the file's name.
    Broken(String),
}

/// Bytes that are read at once. The summary of a machine of eight GPUs has about as many. Chosen.
const CHUNK: usize = 1 << 15;

/// Digests a report. Reads no further than its summary; a report without one is read as a whole.
///
/// # Errors
///
/// Returns the errors of the input. The inner error is the reason why the text is not a report.
pub(crate) fn read(file: &str, from: impl Read) -> io::Result<Result<Digest, NoReport>> {
    let mut from = Kept { from: from.take(LONGEST + 1), text: Vec::new() };
    let mut head = Head::default();
    let chunks = BufReader::with_capacity(CHUNK, &mut from);
    let ended = head.deserialize(&mut serde_json::Deserializer::from_reader(chunks));
    let digest = match (head, ended) {
        (_, Err(why)) if why.is_io() => return Err(why.into()),
        (Head { schema: Some(schema), .. }, _) if schema != SCHEMA => Err(of_schema(&schema)),
        (
            Head {
                tool: Some(tool),
                started_at: Some(started_at),
                machine: Some(machine),
                summary: Some(summary),
                schema: Some(_),
                ..
            },
            _,
        ) => Ok(Digest {
            file: file.to_owned(),
            node: name(file, &machine, summary.hostname.as_deref()),
            started_at,
            machine,
            version: tool.version,
            summary,
        }),
        (head, Err(why)) if head.reached_summary && head.summary.is_none() => {
            let what = if why.is_data() { "a complete report" } else { "JSON" };
            Err(NoReport::Broken(format!("is not {what}: {why}")))
        }
        _ => {
            io::copy(&mut from, &mut io::sink())?;
            if from.from.limit() == 0 {
                let why = format!("it is longer than {LONGEST} bytes");
                return Err(io::Error::other(why));
            }
            parse(&from.text).map(|report| whole(file, report)).map_err(NoReport::Broken)
        }
    };
    Ok(digest.and_then(|digest| match digest.summary.defect() {
        Some(defect) => Err(NoReport::Broken(defect)),
        None => Ok(digest),
    }))
}

/// Digests a report without a summary. If rows were taken out of it, a finding says so: a fleet never shows such a
/// report as healthy.
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

/// An input that keeps what was read of it.
struct Kept<R> {
    from: Take<R>,
    text: Vec<u8>,
}

impl<R: Read> Read for Kept<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(to)?;
        self.text.extend_from_slice(&to[..length]);
        Ok(length)
    }
}

/// The keys of a report that a digest is made from.
#[derive(Debug, Default)]
struct Head {
    schema: Option<String>,
    tool: Option<Tool>,
    started_at: Option<String>,
    machine: Option<String>,
    reached_summary: bool,
    summary: Option<Summary>,
}

impl Head {
    /// Returns true if nothing else of the file is needed.
    fn is_enough(&self) -> bool {
        let is_other = self.schema.as_ref().is_some_and(|schema| schema != SCHEMA);
        let has_all = self.schema.is_some()
            && self.tool.is_some()
            && self.started_at.is_some()
            && self.machine.is_some()
            && self.summary.is_some();
        is_other || has_all
    }
}

impl<'de> DeserializeSeed<'de> for &mut Head {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Head {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }

    /// Returns an error as soon as the keys are there: that is how a visitor stops.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema" => self.schema = map.next_value()?,
                "tool" => self.tool = Some(map.next_value()?),
                "started_at" => self.started_at = Some(map.next_value()?),
                "machine" => self.machine = Some(map.next_value()?),
                "summary" => {
                    self.reached_summary = true;
                    self.summary = Some(map.next_value()?);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
            if self.is_enough() {
                return Err(A::Error::custom("the rest is not read"));
            }
        }
        Ok(())
    }
}

fn of_schema(schema: &str) -> NoReport {
    let short: String = schema.chars().take(80).collect();
    if ["peerscope.fleet/", "peerscope.comparison/", "peerscope.journal/"]
        .iter()
        .any(|own| schema.starts_with(own))
    {
        return NoReport::Other;
    }
    NoReport::Broken(format!("has the schema '{short}', this version reads {SCHEMA}"))
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
    pub fn is_simulated(&self) -> bool {
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
    use super::*;
    use model::summary::{Ends, What};
    use model::units::Bytes;
    use report::{Style, json, named, render};
    use serde_json::{Value, json};

    fn digest_of(text: &[u8]) -> Result<Digest, NoReport> {
        read("a/node7.json", text).unwrap()
    }

    fn value(report: &Report) -> Value {
        serde_json::from_str(&render(report, named("json").unwrap(), &Style::PLAIN)).unwrap()
    }

    fn without_summary(mut report: Value) -> Value {
        let summary = report.as_object_mut().unwrap().remove("summary");
        assert!(summary.is_some());
        report
    }

    /// Returns the reports of tests/data, of all its folders.
    fn recorded(folder: &std::path::Path) -> Vec<Report> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(recorded(&path));
            } else if path.extension().is_some_and(|end| end == "json") {
                found.push(report::read::load(&path).unwrap());
            }
        }
        found
    }

    #[test]
    fn a_summary_says_the_same_as_the_rest_of_its_report() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data");
        let mut reports = recorded(data.as_ref());
        assert!(reports.len() > 10, "{}", reports.len());
        reports.extend([
            sample::healthy(8),
            sample::loaded(),
            sample::pcie_box(),
            sample::unknown(3),
            sample::nothing_measured(),
        ]);
        for report in reports {
            let value = value(&report);
            let whole = without_summary(value.clone()).to_string();
            let whole = digest_of(whole.as_bytes()).unwrap();
            let text = render(&report, named("json").unwrap(), &Style::PLAIN);
            assert_eq!(digest_of(text.as_bytes()).unwrap(), whole);
            // A `Value` has its keys sorted, as other programs may write them.
            assert_eq!(digest_of(value.to_string().as_bytes()).unwrap(), whole);
            let summary = &whole.summary;
            assert!(
                summary.profile.is_none()
                    || summary.verdict.tested == 0
                    || !summary.figures.is_empty()
            );
        }
    }

    #[test]
    fn nothing_behind_the_summary_is_read() {
        let text = render(&sample::healthy(8), named("json").unwrap(), &Style::PLAIN);
        let end = text.find("\n  \"snapshot\"").unwrap();
        let whole = digest_of(text.as_bytes()).unwrap();
        assert_eq!(digest_of(&text.as_bytes()[..end]).unwrap(), whole);
        let mut from = io::Cursor::new(text.as_bytes());
        let digest = read("a/node7.json", &mut from).unwrap().unwrap();
        assert_eq!(digest, whole);
        let read = usize::try_from(from.position()).unwrap();
        assert!(read < end + CHUNK, "{read} of {}", text.len());
    }

    #[test]
    fn a_report_without_rows_and_without_a_summary_is_inconclusive() {
        let report = sample::healthy(2);
        assert_eq!(report.verdict.verdict, Conclusion::Healthy);
        let mut cut = without_summary(value(&report));
        cut["measurements"]["peer"].as_array_mut().unwrap().remove(0);
        let summary = digest_of(cut.to_string().as_bytes()).unwrap().summary;
        assert_eq!(summary.verdict.verdict, Conclusion::Inconclusive);
        assert_eq!(summary.findings.last().unwrap().code, "not-tested");
    }

    #[test]
    fn a_broken_summary_says_why() {
        let report = value(&sample::healthy(2));
        let why = |text: &str| match digest_of(text.as_bytes()) {
            Err(NoReport::Broken(why)) => why,
            other => panic!("{other:?}"),
        };
        let changed = |pointer: &str, value: Value| {
            let mut report = report.clone();
            *report.pointer_mut(pointer).unwrap() = value;
            why(&report.to_string())
        };
        for (pointer, value, says) in [
            ("/summary", json!([]), "is not a complete report: "),
            ("/summary/verdict", json!("good"), "is not a complete report: "),
            ("/summary/figures/0/3", json!("396"), "is not a complete report: "),
            ("/summary/figures/0/0", json!(99), "no kind 99"),
            ("/summary/figures/0/1", json!(9), "no GPU 9"),
            ("/summary/pairs/0/source", json!(7), "no GPU 7"),
            ("/summary/gpus", json!([]), "no GPU 0"),
        ] {
            let why = changed(pointer, value);
            assert!(why.contains(says), "{pointer}: {why}");
        }
        let gpu = report["summary"]["gpus"][0].clone();
        assert!(changed("/summary/gpus", vec![gpu; 73].into()).starts_with("has 73 GPUs"));
        let text = json::tidy(&report);
        let within = text.find("\"figures\": [").unwrap();
        assert!(why(&text[..within]).starts_with("is not JSON: EOF"));
        assert!(
            why(&text.replacen("\"figures\": [", "\"figures\": [,", 1))
                .starts_with("is not JSON: ")
        );
    }

    #[test]
    fn impossible_figures_of_a_summary_do_not_count() {
        let mut report = value(&sample::healthy(2));
        for (row, value) in [(0, -3.0), (1, 0.0)] {
            report["summary"]["figures"][row][3] = json!(value);
        }
        let figures = digest_of(report.to_string().as_bytes()).unwrap().summary.figures;
        assert!(
            figures[..2].iter().all(|figure| figure.value.is_none() && figure.percent.is_none())
        );
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
        let of = |what: &What| -> Vec<(Ends, Option<f32>)> {
            let figures = digest
                .summary
                .figures
                .iter()
                .filter(|figure| &digest.summary.kinds[usize::from(figure.kind)].what == what);
            figures.map(|figure| (figure.ends, figure.value)).collect()
        };
        assert_eq!(of(&What::Load("ring".into())), [(Ends::Machine, Some(3120.0))]);
        assert_eq!(of(&What::Load("all to one, GPU 0".into())), [(Ends::Machine, Some(399.0))]);
        let sent = of(&What::Counted("ring, sent".into()));
        let expected = [100.0, 100.0, 100.0, 50.0, 100.0, 100.0, f32::NAN, 100.0];
        assert_eq!(sent.len(), 8);
        for (gpu, ((ends, value), expected)) in sent.into_iter().zip(expected).enumerate() {
            let gpu = u16::try_from(gpu).unwrap();
            assert_eq!(
                (ends, value),
                (Ends::Gpus(gpu, gpu), Some(expected).filter(|value| !value.is_nan()))
            );
        }
        let least = of(&What::LeastLink("ring, received".into()));
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
