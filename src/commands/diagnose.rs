//! `diagnose`: applies the rules again to a saved report, or to the output of other tools.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::files::Files;
use super::output;
use super::{Failure, Judging, Observed, complain, timestamp};
use crate::cli::{Cli, DiagnoseArgs};
use ::diagnose::Ending;
use model::report::{Report, Timing};
use model::request::Request;
use pasted::{Input, Unread};
use report::read::{at_most_one_stdin, bytes, is_report, parse};

/// Most files of a folder that are read, and most folders within each other.
const MOST_FILES: usize = 1000;
const DEEPEST: usize = 8;

/// Runs `diagnose`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &DiagnoseArgs) -> Result<u8, Failure> {
    let given = args.inputs.iter().chain(&args.out.baseline);
    at_most_one_stdin(given.map(PathBuf::as_path))?;
    let files = Files::of_report(&args.out)?;
    let judging = Judging::with(cli, &args.out, None)?;
    let read = match args.inputs.as_slice() {
        [only] if !only.is_dir() => one(only, &judging)?,
        _ => of_output(&texts(&args.inputs)?, &judging)?,
    };
    let report = match read {
        Ok(report) => report,
        // The command was right, and the text says nothing of a machine.
        Err(nothing) => {
            complain(&nothing.into());
            return Ok(cli.exit_contract.code(Ending::Incomplete));
        }
    };
    Ok(output::publish(&report, args.out.format, &output::style_of(cli, &args.out), &files)?)
}

/// The report, or why the text that was given says nothing of a machine.
type Judged = Result<Report, String>;

/// Reads and judges one file: a report, or the output of other tools.
fn one(path: &Path, judging: &Judging) -> Result<Judged, Failure> {
    let (name, bytes) = bytes(path)?;
    let why = match parse(&bytes) {
        Ok(mut report) => {
            judging.judge(&mut report);
            return Ok(Ok(report));
        }
        Err(why) if is_report(&bytes) => return Err(format!("{name} {why}").into()),
        Err(why) => why,
    };
    let inputs = pasted::inputs(&name, bytes).map_err(|why| format!("{name} {why}"))?;
    let mut head = inputs.first().map_or("", |input| input.text.trim_start()).chars();
    let is_json = head.next() == Some('{')
        && head.find(|c| !c.is_whitespace()).is_none_or(|next| matches!(next, '"' | '}' | ']'));
    match of_output(&inputs, judging)? {
        Err(nothing) if is_json || why.contains("no \"schema\"") => {
            let nothing = format!("{nothing}, and is no report: it {why}");
            // Other JSON is no report; one that is broken may be.
            if why.contains("no \"schema\"") { Ok(Err(nothing)) } else { Err(nothing.into()) }
        }
        judged => Ok(judged),
    }
}

/// Judges the machine whose output these texts are.
///
/// # Errors
///
/// A sentence if they are broken or empty.
fn of_output(inputs: &[Input], judging: &Judging) -> Result<Judged, Failure> {
    let name = match inputs {
        [only] => &only.name,
        _ => "the input",
    };
    match pasted::read(inputs) {
        Ok(machine) => Ok(Ok(of_machine(machine, judging))),
        Err(Unread::Broken(why)) => Err(format!("{name} {why}").into()),
        Err(Unread::Nothing(why)) => {
            let cut = inputs.iter().find(|input| input.is_cut);
            let cut = cut.map(|cut| format!("; {} was cut off, or cannot be unpacked", cut.name));
            let nothing = format!("{name} {why}{}", cut.unwrap_or_default());
            match inputs.iter().all(|input| input.text.trim().is_empty()) {
                true => Err(format!("{name} is empty").into()),
                false => Ok(Err(nothing)),
            }
        }
    }
}

/// Judges a machine that was read from output.
pub(super) fn of_machine(machine: pasted::Machine, judging: &Judging) -> Report {
    let started = Instant::now();
    let (snapshot, measurements) = (machine.snapshot, machine.measurements);
    let topology = topology::build(&snapshot);
    let topology = match &measurements {
        Some(measurements) => topology::with_cuda(topology, &measurements.driver),
        None => topology,
    };
    let observed = Observed {
        started,
        started_at: timestamp(),
        machine: Report::LIVE.to_owned(),
        request: Request::default(),
        read_from: Some(machine.pasted),
        snapshot,
        topology,
        measurements,
        watched: None,
        timing: Timing::default(),
    };
    observed.conclude(judging)
}

/// Returns the texts of these files, folders and archives.
fn texts(paths: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        list(path, 0, &mut files)?;
        let in_folder = path.is_dir();
        for file in files {
            let (name, bytes) = bytes(&file)?;
            if is_report(&bytes) {
                return Err(format!(
                    "{name} is a report of peerscope: give it alone, or with 'peerscope compare'"
                )
                .into());
            }
            match pasted::inputs(&name, bytes) {
                Ok(texts) => inputs.extend(texts),
                // A folder may hold pictures beside the output.
                Err(Unread::Nothing(_)) if in_folder => {}
                // The other inputs are still read.
                Err(Unread::Broken(_)) if in_folder || paths.len() > 1 => {
                    inputs.push(Input::unreadable(name))
                }
                Err(why) => return Err(format!("{name} {why}").into()),
            }
        }
    }
    Ok(inputs)
}

/// Lists a file, or the files of a folder in the order of their names. Hidden files are left out.
fn list(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let name = path.display();
    let entries = std::fs::read_dir(path).map_err(|why| format!("cannot read {name}: {why}"))?;
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // A link may lead back here, and a pipe waits for its writer.
        let kind = entry.file_type().map_err(|why| format!("cannot read {name}: {why}"))?;
        if hidden || !(kind.is_file() || (kind.is_dir() && depth < DEEPEST)) {
            continue;
        }
        list(&entry.path(), depth + 1, files)?;
        if files.len() > MOST_FILES {
            return Err(format!(
                "{name} has more than {MOST_FILES} files: give those of one machine"
            )
            .into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::Judging;
    use diagnose::Terms;
    use model::finding::Severity;
    use model::report::SCHEMA;
    use report::html::embed::page_with;
    use report::read::parse;
    use report::{FORMATS, Level, Style, named, render};

    /// Reports to start from: small ones, to allow many cases.
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

    /// Does everything that `diagnose` does with the bytes of a file.
    fn diagnose(bytes: &[u8]) -> Result<(), String> {
        let mut report = match parse(bytes) {
            Ok(report) => report,
            Err(error) => return fuzz::assert_is_sentence(&error),
        };
        let judging = Judging::from(Terms::from(Severity::Warning));
        judging.judge(&mut report);
        for format in FORMATS {
            let style = Style { width: 80, color: true, level: Level::Every, ..Style::PLAIN };
            if render(&report, format, &style).is_empty() {
                return Err(format!("{} is empty", format.name));
            }
        }
        let written = render(&report, named("json").unwrap(), &Style::PLAIN);
        parse(written.as_bytes())
            .map(drop)
            .map_err(|error| format!("what was written does not read back: {error}"))
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_reports_of_broken_structure() {
        let strategy = (0..BASES.len(), fuzz::mutations());
        fuzz::run("report, structure", 0.4, &strategy, |(base, mutations)| {
            diagnose(fuzz::mutated(&BASES[base], &mutations).to_string().as_bytes())
        });
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_reports_of_broken_text() {
        let texts: Vec<_> = BASES.iter().map(ToString::to_string).collect();
        let strategy = (0..texts.len(), fuzz::edits(4));
        fuzz::run("report, text", 0.4, &strategy, |(base, edits)| {
            diagnose(&fuzz::edited(texts[base].as_bytes(), &edits))
        });
    }

    /// The content that replaces the report within a page.
    #[derive(Debug, Clone)]
    enum Swap {
        /// The report as it was.
        Kept,
        /// A report of broken structure.
        Structure(Vec<(Vec<u16>, fuzz::Mutation)>),
        /// A report of broken text.
        Text(Vec<(u32, fuzz::Edit)>),
        /// A whole page: a page within a page.
        Page,
        /// A number of identical bytes, which compress to almost nothing.
        Bomb(u32),
    }

    fn swap() -> impl Strategy<Value = Swap> {
        prop_oneof![
            4 => Just(Swap::Kept),
            4 => fuzz::mutations().prop_map(Swap::Structure),
            2 => fuzz::edits(3).prop_map(Swap::Text),
            1 => Just(Swap::Page),
            1 => (0..10_000_000_u32).prop_map(Swap::Bomb),
        ]
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_pages() {
        let pages: Vec<String> = BASES
            .iter()
            .map(|base| {
                render(
                    &parse(base.to_string().as_bytes()).unwrap(),
                    named("html").unwrap(),
                    &Style::PLAIN,
                )
            })
            .collect();
        let strategy = (0..BASES.len(), swap(), fuzz::edits(2));
        fuzz::run("report, page", 0.2, &strategy, |(base, swap, edits)| {
            let page = match swap {
                Swap::Kept => pages[base].clone(),
                Swap::Structure(mutations) => {
                    page_with(fuzz::mutated(&BASES[base], &mutations).to_string().as_bytes())
                }
                Swap::Text(edits) => {
                    page_with(&fuzz::edited(BASES[base].to_string().as_bytes(), &edits))
                }
                Swap::Page => page_with(pages[base].as_bytes()),
                Swap::Bomb(length) => page_with(&vec![b' '; length as usize]),
            };
            diagnose(&fuzz::edited(page.as_bytes(), &edits))
        });
    }

    #[test]
    fn reading_a_page_that_was_cut_off_fails_with_that_reason() {
        let page = render(&sample::healthy(2), named("html").unwrap(), &Style::PLAIN);
        let marker = "application/gzip\">";
        let report = page.find(marker).unwrap() + marker.len();
        let end = report + page[report..].find('<').unwrap();
        for at in (1..end).step_by(997).chain([report - 1, report, report + 1, end - 1, end]) {
            let error = parse(&page.as_bytes()[..at]).unwrap_err();
            assert!(
                error.contains("cut off") || error.contains("without a report"),
                "{at}: {error}"
            );
        }
        assert!(parse(&page.as_bytes()[..=end]).is_ok(), "the report is whole");
    }

    #[test]
    fn names_that_look_like_the_end_of_a_report_stay_names() {
        let mut report = sample::hostile();
        let evil =
            "</script><script id=\"peerscope-report\" type=\"application/gzip\">AAAA</script>";
        report.machine = evil.into();
        report.snapshot.gpus[0].name = model::reading::Reading::Known(evil.into());
        let page = render(&report, named("html").unwrap(), &Style::PLAIN);
        let back = parse(page.as_bytes()).unwrap();
        assert_eq!((back.machine.as_str(), &back.snapshot), (evil, &report.snapshot));
        assert_eq!(page.matches("<script").count(), 2, "the report and the script of the page");
    }

    #[test]
    fn reading_what_is_no_report_fails_with_the_reason() {
        let deep = format!("{{\"schema\": \"{SCHEMA}\", \"findings\": {}", "[".repeat(100_000));
        let refusal = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(refusal(&deep).contains("is not JSON"), "{}", refusal(&deep));
        assert!(refusal("{").starts_with("is not JSON: "));
        assert!(refusal("[1]").contains("no \"schema\""));
        assert!(refusal("{}").contains("no \"schema\""));
        assert!(refusal("{\"schema\": 3}").contains("no \"schema\""));
        assert!(refusal("{\"schema\": \"x/9\"}").contains("the schema 'x/9'"));
        assert!(
            refusal(&format!("{{\"schema\": \"{SCHEMA}\"}}"))
                .starts_with("is not a complete report: ")
        );
    }

    #[test]
    fn a_report_of_more_gpus_than_a_machine_can_have_is_refused() {
        let mut report = sample::healthy(2);
        let device = report.measurements.as_ref().unwrap().driver.devices[0].clone();
        let devices = (0..100_000)
            .map(|n| model::measurement::CudaDevice { index: n * 40_000, ..device.clone() });
        report.measurements.as_mut().unwrap().driver.devices.extend(devices);
        let error = parse(&serde_json::to_vec(&report).unwrap()).unwrap_err();
        assert!(error.contains("has 100001 GPUs") || error.contains("has 100000 GPUs"), "{error}");
        // A large index alone does not make a large table.
        let mut report = sample::healthy(2);
        report.measurements.as_mut().unwrap().driver.devices[0].index = 4_000_000_000;
        diagnose(&serde_json::to_vec(&report).unwrap()).unwrap();
    }
}
