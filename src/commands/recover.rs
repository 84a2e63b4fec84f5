//! `recover`: makes a report from the journal of an interrupted run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files::Files;
use super::output;
use super::{Failure, Judging, Observed, remark};
use crate::cli::{Cli, RecoverArgs};
use model::report::MOST_GPUS;
use model::report::Report;
use model::timeline::Timeline;
use report::files;
use report::read::bounded;
use run::recording::{self, Header, Recording, is_going_on, place};

/// Runs `recover`.
///
/// # Errors
///
/// The failure to report on stderr.
pub(super) fn run(cli: &Cli, args: &RecoverArgs) -> Result<u8, Failure> {
    let files = Files::of_report(&args.out)?;
    let (path, found) = match &args.journal {
        Some(path) => (path.clone(), false),
        None => (newest()?, true),
    };
    let journal = load(&path)?;
    let mut unread = journal.1.not_read().to_vec();
    let (report, timelines) = report(journal, &Judging::with(cli, &args.out, None)?);
    let report =
        bounded(report).map_err(|why| format!("cannot recover {}: it {why}", path.display()))?;
    let style = output::style_of(cli, &args.out);
    let published = output::publish_seen(&report, &timelines, args.out.format, &style, &files);
    let code = published.code().map_err(|failure| failure.sentence)?;
    let held = report
        .measurements
        .as_ref()
        .filter(|measured| diagnose::outcomes(measured).0 > 0)
        .map(report::held);
    if held.is_none() {
        unread.push("it holds no measurement".into());
    }
    if found && !unread.is_empty() {
        // The report lacks part of the journal, and somebody may recover more of it.
        let holds = held.map(|held| format!("; it holds {held}")).unwrap_or_default();
        remark(&format!(
            "the journal {} is kept: {}{holds}",
            path.display(),
            unread.join(", and ")
        ));
    } else if found {
        // Only JSON contains everything in the journal, except the timeline.
        let drawn = args.out.traced().is_some() || timelines.is_empty();
        let is_json =
            |file: &PathBuf| report::for_path(file).is_ok_and(|format| format.name == "json");
        if drawn && args.out.output.iter().any(is_json) {
            let _ = std::fs::remove_file(&path);
        } else {
            let path = path.display();
            remark(&format!(
                "the journal {path} is kept until 'peerscope recover{} -o FILE.json' has written its report",
                if drawn { "" } else { " -o FILE.trace" }
            ));
        }
    }
    Ok(code)
}

/// Longest wait for the end of a run that was killed: a process that it was just starting keeps its journal locked until
/// that process has begun.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval between looks.
const POLL: Duration = Duration::from_millis(10);

/// Looks until something is found, for at most [`PATIENCE`].
fn patiently<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= until {
            return found;
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the newest journal of an interrupted run on this machine.
fn newest() -> Result<PathBuf, String> {
    let folders = place::folders();
    let newest = || place::left_over(&folders).into_iter().next();
    patiently(newest).map(|left| left.path).ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "nothing to recover: there is no journal of an interrupted run on this machine (looked in {})",
            folders.join(", ")
        )
    })
}

fn load(path: &Path) -> Result<(Header, Recording), String> {
    let name = path.display();
    let cannot_read = |error: std::io::Error| format!("cannot read {name}: {error}");
    // An error ends the wait too.
    let ended = || match is_going_on(path) {
        Ok(true) => None,
        Ok(false) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    };
    patiently(ended)
        .ok_or_else(|| {
            format!("cannot recover {name}: its run is still going and will write its own report")
        })?
        .map_err(cannot_read)?;
    let bytes = files::file(path).map_err(cannot_read)?;
    let found = recording::read(&bytes).map_err(|why| format!("cannot recover {name}: {why}"))?;
    // Every pair of GPUs gets a route before anything else is checked.
    match found.1.gpus() {
        0..=MOST_GPUS => Ok(found),
        gpus => Err(format!(
            "cannot recover {name}: it has {gpus} GPUs; a report can have {MOST_GPUS} at most"
        )),
    }
}

/// Returns the report that the run would have made from its records, and its timelines.
fn report((header, recording): (Header, Recording), judging: &Judging) -> (Report, Vec<Timeline>) {
    let mut recorded = recording.conclude();
    let timelines = std::mem::take(&mut recorded.timelines);
    let total = recorded.timing.total;
    let observed = Observed::recorded(Instant::now(), header.started_at, header.machine, recorded);
    let mut report = observed.conclude(judging);
    report.timing.total = total;
    (report, timelines)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use diagnose::Terms;
    use model::finding::Severity;
    use report::{Level, Style, named, render};
    use run::recording::read;
    use run::recording::testing::RUN;

    fn judging() -> Judging {
        Judging::from(Terms::from(Severity::Error))
    }

    /// Asserts what holds for every report of an interrupted run, whatever its journal.
    fn assert_valid(report: &Report) {
        assert!([1, 3].contains(&report.verdict.exit_code), "{:?}", report.verdict);
        let style = Style { level: Level::Every, ..Style::PLAIN };
        assert!(render(report, named("text").unwrap(), &style).contains("RECOVERED"));
        let json = render(report, named("json").unwrap(), &style);
        let again: Report = serde_json::from_str(&json).unwrap();
        // Compare as JSON: scopes are not written.
        let written = |report: &Report| serde_json::to_value(&report.findings).unwrap();
        assert_eq!(written(&again), written(report));
        assert_eq!(again.verdict, report.verdict);
    }

    #[test]
    fn a_run_that_was_cut_off_after_its_last_measurement_is_not_healthy() {
        let (report, _) = report(read(&RUN.0).unwrap(), &judging());
        assert_eq!(report.verdict.untested, 0);
        assert_valid(&report);
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_journals() {
        use serde_json::Value;

        // These lines are the facts, the driver, the plan, and some of the entries after them.
        let lines: Vec<Value> = RUN
            .0
            .split(|byte| *byte == b'\n')
            .take(9)
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let strategy = (0..lines.len(), fuzz::mutations(), fuzz::edits(2));
        fuzz::run("journal", 0.4, &strategy, |(line, mutations, edits)| {
            let mut lines = lines.clone();
            lines[line] = fuzz::mutated(&lines[line], &mutations);
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            match read(&fuzz::edited(text.as_bytes(), &edits)) {
                Err(why) => fuzz::assert_is_sentence(&why),
                Ok(found) => {
                    if let Ok(report) = bounded(report(found, &judging()).0) {
                        assert_valid(&report);
                    }
                    Ok(())
                }
            }
        });
    }

    /// Damage to the lines of a journal.
    #[derive(Debug, Clone)]
    enum Harm {
        Cut(usize),
        Flip(usize, u8),
        Insert(usize, Vec<u8>),
        Twice(usize),
        Swap(usize, usize),
        Number(usize, String),
    }

    fn harm() -> impl Strategy<Value = Harm> {
        let at = || any::<usize>();
        let number = prop_oneof![
            Just("-1"),
            Just("1e308"),
            Just("0"),
            Just("18446744073709551615"),
            Just("null")
        ];
        prop_oneof![
            at().prop_map(Harm::Cut),
            (at(), 1_u8..).prop_map(|(at, bits)| Harm::Flip(at, bits)),
            (at(), prop::collection::vec(any::<u8>(), 0..40))
                .prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
            at().prop_map(Harm::Twice),
            (at(), at()).prop_map(|(one, other)| Harm::Swap(one, other)),
            (at(), number).prop_map(|(at, number)| Harm::Number(at, number.to_owned())),
        ]
    }

    fn do_harm(bytes: &mut Vec<u8>, harm: Harm) {
        let mut lines: Vec<Vec<u8>> =
            bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (length, count) = (bytes.len().max(1), lines.len());
        match harm {
            Harm::Cut(at) => bytes.truncate(at % length),
            Harm::Flip(at, bits) => {
                bytes.get_mut(at % length).into_iter().for_each(|byte| *byte ^= bits)
            }
            Harm::Insert(at, more) => drop(bytes.splice(at % length..at % length, more)),
            Harm::Twice(line) => {
                lines.insert(line % count, lines[line % count].clone());
                *bytes = lines.join(&b'\n');
            }
            Harm::Swap(one, other) => {
                lines.swap(one % count, other % count);
                *bytes = lines.join(&b'\n');
            }
            // Replace the first number after some place.
            Harm::Number(at, number) => {
                let from = at % length;
                let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                let Some(begin) = bytes[from..].iter().position(digit).map(|place| from + place)
                else {
                    return;
                };
                let end = bytes[begin..]
                    .iter()
                    .position(|byte| !digit(byte))
                    .map_or(bytes.len(), |more| begin + more);
                drop(bytes.splice(begin..end, number.into_bytes()));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_harm_to_a_journal_makes_a_panic(harms in prop::collection::vec(harm(), 1..6)) {
            let mut bytes = RUN.0.clone();
            harms.into_iter().for_each(|harm| do_harm(&mut bytes, harm));
            match read(&bytes) {
                Ok(found) => assert_valid(&report(found, &judging()).0),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}
