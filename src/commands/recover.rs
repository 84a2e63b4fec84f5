//! `recover`: a report of the journal that a run left behind which was cut off.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::output::{self, Files};
use super::{Judging, Observed, diagnose, tell};
use crate::cli::{Cli, RecoverArgs};
use crate::discover;
use crate::hardware::{ErrorKind, HardwareError, Machine};
use crate::journal::read::{Found, read};
use crate::journal::{is_going_on, place};
use crate::measure::Outcome;
use crate::measure::assemble::assemble;
use crate::model::measurement::{DriverFacts, Measurements, Status};
use crate::model::report::{Report, Timing};
use crate::plan;
use crate::report;
use crate::topology;

/// Runs it.
///
/// # Errors
///
/// One sentence.
pub fn run(cli: &Cli, args: &RecoverArgs) -> Result<u8, String> {
    if cli.machine != Machine::Live.name() || !cli.gpus.is_empty() {
        return Err("recover reads a journal: --machine and --gpus have no meaning for it".into());
    }
    let files = Files::of_report(&args.out)?;
    let (path, found_by_itself) = match &args.journal {
        Some(path) => (path.clone(), false),
        None => (newest()?, true),
    };
    let report = report(load(&path)?, &Judging::with(cli, &args.out)?);
    let report = diagnose::bounded(report).map_err(|why| format!("cannot recover {}: it {why}", path.display()))?;
    let code = output::publish(&report, args.out.format, &output::style_of(cli, &args.out), &files)?;
    if found_by_itself {
        // Only JSON has everything that the journal had.
        if args.out.output.iter().any(|file| report::for_path(file).is_ok_and(|format| format.name == "json")) {
            let _ = std::fs::remove_file(&path);
        } else {
            let path = path.display();
            tell(&format!("the journal {path} is kept until 'peerscope recover -o FILE.json' has made a file of it"));
        }
    }
    Ok(code)
}

/// The newest journal of a run on this machine that was cut off.
fn newest() -> Result<PathBuf, String> {
    let folders = place::folders();
    place::left_over(&folders).into_iter().next().map(|left| left.path).ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "there is nothing to recover: no run on this machine has left a journal behind (looked in {})",
            folders.join(", ")
        )
    })
}

fn load(path: &Path) -> Result<Found, String> {
    let name = path.display();
    let cannot_read = |error: std::io::Error| format!("cannot read {name}: {error}");
    if is_going_on(path).map_err(cannot_read)? {
        return Err(format!("cannot recover {name}: the run that writes it is still going; it will report by itself"));
    }
    let bytes = diagnose::read(path).map_err(cannot_read)?;
    let found = read(&bytes).map_err(|why| format!("cannot recover {name}: {why}"))?;
    // Routes are made for every pair of them before anything else is looked at.
    match found.snapshot.as_ref().map_or(0, |snapshot| snapshot.gpus.len()) {
        0..=diagnose::MOST_GPUS => Ok(found),
        gpus => Err(format!("cannot recover {name}: it speaks of {gpus} GPUs, which no machine has")),
    }
}

/// The report that the run would have made, as far as it came.
fn report(found: Found, judging: &Judging) -> Report {
    let Found { header, snapshot, driver, rounds, mut outcomes, mut problems, unreadable, times } = found;
    let before = match (&snapshot, &driver, rounds.is_empty()) {
        (None, ..) => "its facts were read",
        (_, None, _) => "the CUDA driver had started",
        (.., true) => "the first measurement",
        _ => "its end",
    };
    let cut_off = format!("the run was cut off before {before}");
    // Where it was is worth knowing: it may be what made somebody end it.
    let at = rounds.iter().find(|round| !outcomes.contains_key(&round.id));
    let at = at.map(|round| format!(", about {} of {}", round.task, round.way())).unwrap_or_default();
    problems.insert(0, format!("{cut_off}{at}; what follows is what its journal has"));
    if unreadable > 0 {
        problems.push(format!("{unreadable} lines of the journal could not be read and were left out"));
    }
    let snapshot =
        snapshot.unwrap_or_else(|| discover::without_telemetry(&HardwareError::new(ErrorKind::Other, cut_off.clone())));
    let facts = driver.unwrap_or_else(|| DriverFacts { failure: Some(cut_off), ..DriverFacts::default() });
    for round in &rounds {
        outcomes.entry(round.id).or_insert_with(|| Outcome::Lost {
            status: Status::Skipped,
            reason: "the run was cut off before this measurement".into(),
        });
    }
    let topology = topology::with_cuda(topology::build(&snapshot), &facts);
    let assembled = assemble(&rounds, &outcomes, &topology);
    let gpus: Vec<_> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    let left_out = plan::left_out(&gpus, &plan::groups_of(&rounds)).filter(|_| !rounds.is_empty());
    let measurements = Measurements {
        profile: header.profile,
        driver: facts,
        peer: assembled.peer,
        overlap: assembled.overlap,
        latency: assembled.latency,
        problems,
        left_out: left_out.into_iter().collect(),
        cut_off: true,
        ..Measurements::default()
    };
    let timing = Timing {
        discover: times.facts,
        driver_start: times.driver,
        driver_floor: times.driver_floor,
        measure: if times.plan > 0.0 { times.last - times.plan } else { 0.0 },
        ..Timing::default()
    };
    let observed = Observed {
        started: Instant::now(),
        started_at: header.started_at,
        machine: header.machine,
        snapshot,
        topology,
        measurements: Some(measurements),
        timing,
    };
    let mut report = observed.conclude(judging);
    report.timing.total = times.last;
    report
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeSet;
    use std::sync::LazyLock;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::journal::{Entry, Header, Journal, SCHEMA};
    use crate::measure::{Bench, Selection};
    use crate::model::finding::Severity;
    use crate::model::report::Tool;
    use crate::model::units::Bytes;
    use crate::plan::{self, Group, profile};
    use crate::report::{Style, named, render};

    /// The whole journal of a run on the machine with a narrow slot, by the real rooms.
    static JOURNAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let machine = Machine::parse("demo").unwrap();
        let mut snapshot =
            discover::discover(machine.telemetry(), discover::Depth::Everything, Duration::from_secs(60));
        snapshot.gpus.truncate(2);
        snapshot.pairs.retain(|pair| pair.source < 2 && pair.destination < 2);
        let driver = machine.driver().unwrap();
        let select = |index: u32| Selection { index, uuid: None, pci: snapshot.gpus[index as usize].pci.get() };
        let bench = Bench::open(driver.as_ref(), &[select(0), select(1)], Bytes(1 << 30));
        let facts = bench.facts().clone();
        let topology = topology::with_cuda(topology::build(&snapshot), &facts);
        let rounds = plan::rounds(&plan::Request {
            gpus: &[0, 1],
            driver: &facts,
            topology: &topology,
            profile: &profile::Profile::load(profile::Name::Quick).unwrap(),
            groups: &Group::ALL.into_iter().collect::<BTreeSet<_>>(),
            overlap_bytes: None,
            deadline: None,
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let header = Header {
            schema: SCHEMA.into(),
            tool: Tool::this(),
            started_at: "2026-11-20T17:42:44Z".into(),
            machine: "demo".into(),
            profile: "quick".into(),
            pid: 1,
            args: Vec::new(),
        };
        let mut journal = Journal::begin_at(&path, &header).unwrap();
        journal.write(&Entry::Facts { at: 0.1, snapshot: Cow::Borrowed(&snapshot) });
        journal.write(&Entry::Driver { at: 0.2, floor_seconds: 0.1, facts: Cow::Borrowed(&facts) });
        journal.write(&Entry::Plan { at: 0.3, rounds: Cow::Borrowed(&rounds) });
        for (round, at) in rounds.iter().zip(1..) {
            let outcome = bench.run(round);
            journal.write(&Entry::Outcome { at: f64::from(at), id: round.id, outcome: Cow::Borrowed(&outcome) });
        }
        journal.write(&Entry::Problem { problem: "something".into() });
        std::fs::read(path).unwrap()
    });

    fn judging() -> Judging {
        Judging { terms: Severity::Error.into(), settings: crate::diagnose::Settings::default() }
    }

    /// What every report of a run that was cut off must be, whatever its journal holds.
    fn assert_valid(report: &Report) {
        assert!([1, 3].contains(&report.verdict.exit_code), "{:?}", report.verdict);
        let style = Style { verbose: true, ..Style::PLAIN };
        assert!(render(report, named("text").unwrap(), &style).contains("RECOVERED"));
        let json = render(report, named("json").unwrap(), &style);
        let again: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(again.findings, report.findings);
        assert_eq!(again.verdict, report.verdict);
    }

    #[test]
    fn a_journal_cut_off_anywhere_gives_all_that_was_written() {
        let bytes = &*JOURNAL;
        let header = 1 + bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let (mut last, mut counted) = (None, 0);
        for end in 0..=bytes.len() {
            let found = read(&bytes[..end]);
            if end < header {
                assert!(found.is_err(), "{end}");
                continue;
            }
            let found = found.unwrap();
            assert_eq!(found.unreadable, 0, "{end}");
            if bytes[end - 1] != b'\n' {
                // Nothing but whole lines counts.
                assert_eq!(Some(&found), last.as_ref(), "{end}");
                continue;
            }
            last = Some(found.clone());
            let outcomes = found.outcomes.len();
            let planned =
                found.rounds.iter().filter(|round| matches!(round.task.action, plan::Action::Bandwidth { .. })).count();
            let report = report(found, &judging());
            assert_valid(&report);
            let cells = &report.measurements.as_ref().unwrap().peer;
            assert_eq!(cells.len(), planned);
            let measured = cells.iter().filter(|cell| cell.status == Status::Measured).count();
            // Each pair's first round verifies.
            assert!(measured + 2 >= outcomes, "{measured} of {outcomes}");
            counted += 1;
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(counted, lines);
        assert!(lines > 20, "{lines}");
    }

    #[test]
    fn a_run_that_was_cut_off_after_its_last_measurement_is_not_healthy() {
        let report = report(read(&JOURNAL).unwrap(), &judging());
        let measurements = report.measurements.as_ref().unwrap();
        assert!(measurements.peer.iter().all(|cell| cell.status == Status::Measured));
        assert_eq!(report.verdict.untested, 0);
        assert_ne!(report.verdict.exit_code, 0);
        assert_eq!(measurements.problems[1], "something");
        assert!((report.timing.total - 18.0).abs() < 1e-9, "{:?}", report.timing);
    }

    #[test]
    fn fuzz_journals() {
        use serde_json::Value;

        use crate::fuzz;

        // The facts, the driver, the plan, and some of what follows them.
        let lines: Vec<Value> =
            JOURNAL.split(|byte| *byte == b'\n').take(9).map(|line| serde_json::from_slice(line).unwrap()).collect();
        let strategy = (0..lines.len(), fuzz::mutations(), fuzz::edits(2));
        fuzz::run("journal", 0.4, &strategy, |(line, mutations, edits)| {
            let mut lines = lines.clone();
            lines[line] = fuzz::mutated(&lines[line], &mutations);
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            match read(&fuzz::edited(text.as_bytes(), &edits)) {
                Err(why) => fuzz::assert_is_sentence(&why),
                Ok(found) => {
                    if let Ok(report) = diagnose::bounded(report(found, &judging())) {
                        assert_valid(&report);
                    }
                    Ok(())
                }
            }
        });
    }

    /// Something done to the lines of a journal.
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
        let number = prop_oneof![Just("-1"), Just("1e308"), Just("0"), Just("18446744073709551615"), Just("null")];
        prop_oneof![
            at().prop_map(Harm::Cut),
            (at(), 1_u8..).prop_map(|(at, bits)| Harm::Flip(at, bits)),
            (at(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
            at().prop_map(Harm::Twice),
            (at(), at()).prop_map(|(one, other)| Harm::Swap(one, other)),
            (at(), number).prop_map(|(at, number)| Harm::Number(at, number.to_owned())),
        ]
    }

    fn do_harm(bytes: &mut Vec<u8>, harm: Harm) {
        let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (length, count) = (bytes.len().max(1), lines.len());
        match harm {
            Harm::Cut(at) => bytes.truncate(at % length),
            Harm::Flip(at, bits) => bytes.get_mut(at % length).into_iter().for_each(|byte| *byte ^= bits),
            Harm::Insert(at, more) => drop(bytes.splice(at % length..at % length, more)),
            Harm::Twice(line) => {
                lines.insert(line % count, lines[line % count].clone());
                *bytes = lines.join(&b'\n');
            }
            Harm::Swap(one, other) => {
                lines.swap(one % count, other % count);
                *bytes = lines.join(&b'\n');
            }
            // The first number after some place becomes another one.
            Harm::Number(at, number) => {
                let from = at % length;
                let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                let Some(begin) = bytes[from..].iter().position(digit).map(|place| from + place) else { return };
                let end = bytes[begin..].iter().position(|byte| !digit(byte)).map_or(bytes.len(), |more| begin + more);
                drop(bytes.splice(begin..end, number.into_bytes()));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_harm_to_a_journal_makes_a_panic(harms in prop::collection::vec(harm(), 1..6)) {
            let mut bytes = JOURNAL.clone();
            harms.into_iter().for_each(|harm| do_harm(&mut bytes, harm));
            match read(&bytes) {
                Ok(found) => assert_valid(&report(found, &judging())),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}
