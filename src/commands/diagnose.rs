//! `diagnose`: the rules again, over a saved report.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Judging;
use super::output::{self, Files};
use crate::cli::{Cli, DiagnoseArgs};
use crate::hardware::Machine;
use crate::model::measurement::Measurements;
use crate::model::report::{Report, SCHEMA};

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, args: &DiagnoseArgs) -> Result<u8, String> {
    if cli.machine != Machine::Live.name() || !cli.gpus.is_empty() {
        return Err("diagnose reads a saved report: --machine and --gpus have no meaning for it".into());
    }
    let files = Files::of_report(&args.out)?;
    let judging = Judging::with(cli, &args.out)?;
    let mut report = load(&args.report)?;
    judging.judge(&mut report);
    output::publish(&report, args.out.format, &output::style_of(cli, &args.out), &files)
}

/// The longest report or journal that is read. One of 72 GPUs with the full profile has some 300 MB.
const LONGEST: u64 = 512 << 20;

/// The most GPUs that a report may speak of, which is twice the largest NVLink domain there is:
/// tables grow with the square of it.
pub(super) const MOST_GPUS: usize = 144;

/// Reads a saved report.
///
/// # Errors
///
/// A sentence that names the file and what is wrong with it.
pub fn load(path: &Path) -> Result<Report, String> {
    let name = path.display();
    let text = read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    parse(&text).map_err(|error| format!("{name} {error}"))
}

/// A file that is not endless.
pub(super) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(std::io::Error::other(format!("it is longer than {LONGEST} bytes, as nothing of peerscope's is")));
    }
    Ok(bytes)
}

/// The one key that is looked at before all others.
#[derive(Deserialize)]
struct Head {
    schema: Option<Value>,
}

/// Reads a report; the error goes on after the file's name.
fn parse(text: &[u8]) -> Result<Report, String> {
    let not_json = |error: serde_json::Error| format!("is not JSON: {error}");
    let head = if text.trim_ascii_start().starts_with(b"{") {
        serde_json::from_slice(text).map_err(not_json)?
    } else {
        // Serde would take a list for an object.
        serde_json::from_slice::<IgnoredAny>(text).map_err(not_json)?;
        Head { schema: None }
    };
    match head.schema.as_ref().map(|schema| schema.as_str().ok_or(schema)) {
        Some(Ok(SCHEMA)) => {}
        Some(Ok(other)) => {
            let other: String = other.chars().take(80).collect();
            return Err(format!("has the schema '{other}', this version reads {SCHEMA}"));
        }
        Some(Err(_)) | None => return Err("is not a peerscope report: it has no \"schema\"".into()),
    }
    let report: Report = serde_json::from_slice(text).map_err(|error| format!("is not a complete report: {error}"))?;
    bounded(report)
}

/// The report, unless it has more GPUs than tables are made of.
pub(super) fn bounded(report: Report) -> Result<Report, String> {
    match gpus(&report).len() {
        0..=MOST_GPUS => Ok(report),
        gpus => {
            Err(format!("speaks of {gpus} GPUs, which no machine has: {MOST_GPUS} are the most that can be judged"))
        }
    }
}

/// Every GPU that a report speaks of.
fn gpus(report: &Report) -> HashSet<u32> {
    let mut gpus: HashSet<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    gpus.extend(report.snapshot.pairs.iter().flat_map(|pair| [pair.source, pair.destination]));
    let routes = report.topology.pairs.iter().map(|route| route.pair);
    let none = Measurements::default();
    let measured = report.measurements.as_ref().unwrap_or(&none);
    gpus.extend(measured.driver.devices.iter().map(|device| device.index));
    gpus.extend(measured.links.iter().map(|link| link.index));
    let measured = measured
        .peer
        .iter()
        .map(|peer| peer.pair)
        .chain(measured.overlap.iter().map(|overlap| overlap.pair))
        .chain(measured.latency.iter().map(|latency| latency.pair))
        .chain(measured.driver.peer_access.iter().map(|access| access.pair));
    gpus.extend(routes.chain(measured).flat_map(|pair| [pair.source, pair.destination]));
    gpus
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::fuzz;
    use crate::model::finding::Severity;
    use crate::report::{FORMATS, Style, named, render, sample};

    /// Reports to start from: small ones, so that there are many cases.
    static BASES: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let mut pcie = sample::pcie_box();
        if let Some(measurements) = &mut pcie.measurements {
            measurements.peer.retain(|peer| peer.pair.source < 4 && peer.pair.destination < 3);
            measurements.overlap.truncate(20);
            measurements.latency.truncate(10);
        }
        let mut topo = sample::pcie_box();
        topo.measurements = None;
        let reports = [sample::healthy(2), pcie, topo, sample::unknown(3)];
        reports.iter().map(|report| serde_json::to_value(report).unwrap()).collect()
    });

    /// All that `diagnose` does with the bytes of a file.
    fn diagnose(bytes: &[u8]) -> Result<(), String> {
        let mut report = match parse(bytes) {
            Ok(report) => report,
            Err(error) => return fuzz::assert_is_sentence(&error),
        };
        let judging =
            super::super::Judging { terms: Severity::Warning.into(), settings: crate::diagnose::Settings::default() };
        judging.judge(&mut report);
        for format in FORMATS {
            let style = Style { width: 80, color: true, verbose: format.name == "text", pairs: true };
            if render(&report, format, &style).is_empty() {
                return Err(format!("{} is empty", format.name));
            }
        }
        let written = render(&report, named("json").unwrap(), &Style::PLAIN);
        parse(written.as_bytes()).map(drop).map_err(|error| format!("what was written does not read back: {error}"))
    }

    #[test]
    fn fuzz_reports_of_broken_structure() {
        let strategy = (0..BASES.len(), fuzz::mutations());
        fuzz::run("report, structure", 0.4, &strategy, |(base, mutations)| {
            diagnose(fuzz::mutated(&BASES[base], &mutations).to_string().as_bytes())
        });
    }

    #[test]
    fn fuzz_reports_of_broken_text() {
        let texts: Vec<_> = BASES.iter().map(ToString::to_string).collect();
        let strategy = (0..texts.len(), fuzz::edits(4));
        fuzz::run("report, text", 0.4, &strategy, |(base, edits)| {
            diagnose(&fuzz::edited(texts[base].as_bytes(), &edits))
        });
    }

    #[test]
    fn a_report_that_cannot_be_says_why() {
        let deep = format!("{{\"schema\": \"{SCHEMA}\", \"findings\": {}", "[".repeat(100_000));
        let nobody = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(nobody(&deep).contains("is not JSON"), "{}", nobody(&deep));
        assert!(nobody("{").starts_with("is not JSON: "));
        assert!(nobody("[1]").contains("no \"schema\""));
        assert!(nobody("{}").contains("no \"schema\""));
        assert!(nobody("{\"schema\": 3}").contains("no \"schema\""));
        assert!(nobody("{\"schema\": \"x/9\"}").contains("the schema 'x/9'"));
        assert!(nobody(&format!("{{\"schema\": \"{SCHEMA}\"}}")).starts_with("is not a complete report: "));
    }

    #[test]
    fn a_report_of_more_gpus_than_there_are_takes_no_table() {
        let mut report = sample::healthy(2);
        let device = report.measurements.as_ref().unwrap().driver.devices[0].clone();
        let devices =
            (0..100_000).map(|n| crate::model::measurement::CudaDevice { index: n * 40_000, ..device.clone() });
        report.measurements.as_mut().unwrap().driver.devices.extend(devices);
        let error = parse(&serde_json::to_vec(&report).unwrap()).unwrap_err();
        assert!(error.contains("speaks of 100001 GPUs") || error.contains("speaks of 100000 GPUs"), "{error}");
        // A large index alone is no large table.
        let mut report = sample::healthy(2);
        report.measurements.as_mut().unwrap().driver.devices[0].index = 4_000_000_000;
        diagnose(&serde_json::to_vec(&report).unwrap()).unwrap();
    }
}
