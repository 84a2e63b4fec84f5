use std::os::unix::fs::PermissionsExt;

use super::entry::{Entry, Event, Header, SCHEMA};
use super::{Journal, is_going_on, place, read};
use crate::hardware::LinkSample;
use crate::measure::Outcome;
use crate::measure::{Row, Span};
use crate::model::placement::StreamKind;
use crate::model::report::Tool;
use crate::model::units::Lanes;
use std::path::Path;

fn header() -> Header {
    Header {
        schema: SCHEMA.into(),
        tool: Tool::this(),
        started_at: "2026-11-20T17:42:44Z".into(),
        machine: "demo".into(),
        profile: "quick".into(),
        pid: std::process::id(),
        args: vec!["check".into()],
    }
}

fn problem(text: &str) -> Entry {
    Entry { at: 0.5, event: Event::Problem { problem: text.into() } }
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let folders = [folder.path().join("state/peerscope")];
    let mut journal = Journal::begin(&folders, &header());
    assert_eq!(journal.failure(), None);
    let path = journal.path().unwrap().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folders[0]), mode(&path)), (0o700, 0o600));
    journal.write(&problem("one\ntwo"));
    let span = Span { start_ns: 0.1, end_ns: 3e9 };
    let row = Row { gpu: 3, stream: StreamKind::Side, rows: vec![span], host_ns: vec![1.0 / 3.0], ..Row::default() };
    let outcome = Outcome::Rows { rows: vec![row] };
    journal.write(&Entry { at: 1.5, event: Event::Outcome { id: 7, outcome: outcome.clone() } });

    assert!(is_going_on(&path).unwrap());
    assert_eq!(place::left_over(&folders), [], "a run that goes on has left nothing over");
    drop(journal);
    assert!(!is_going_on(&path).unwrap());
    let left = place::left_over(&folders);
    assert_eq!((left.len(), &left[0].path, &left[0].header), (1, &path, &header()));

    let (_, found) = read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(found.outcomes().get(7), Some(&outcome));
    let recorded = found.conclude();
    assert_eq!((recorded.measurements.problems.last().unwrap().as_str(), recorded.timing.total), ("one\ntwo", 1.5));
}

#[test]
fn readings_that_come_together_are_written_as_each_would_be() {
    let folder = tempfile::tempdir().unwrap();
    let plain = LinkSample { width: Some(Lanes::X16), replays: Some(3), ..LinkSample::default() };
    let slowed = LinkSample { throttle_reasons: vec!["HW \"slow\"\n".into()], ..plain.clone() };
    let readings = [plain.clone(), plain.clone(), slowed.clone(), slowed, plain.clone(), LinkSample::default()];
    let readings: Vec<_> = (7..).zip(readings).collect();
    let written = |name: &str, write: &dyn Fn(&mut Journal)| {
        let path = folder.path().join(name);
        let mut journal = Journal::begin_at(&path, &header()).unwrap();
        write(&mut journal);
        assert_eq!(journal.failure(), None);
        std::fs::read_to_string(&path).unwrap()
    };
    for at in [1.0 / 3.0, 0.0, 1e-7, 12.0] {
        let together = written("together", &|journal| journal.write_readings(at, &readings));
        let each = written("each", &|journal| {
            for (gpu, sample) in readings.clone() {
                journal.write(&Entry { at, event: Event::Link { gpu, sample } });
            }
        });
        assert_eq!(together, each);
        assert_eq!(together.lines().count(), 1 + readings.len());
        ["together", "each"].iter().for_each(|name| std::fs::remove_file(folder.path().join(name)).unwrap());
    }
}

#[test]
fn a_journal_that_was_removed_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let folders = [folder.path().to_owned()];
    let journal = Journal::begin(&folders, &header());
    journal.remove();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_journal_goes_where_it_can_and_is_reported_where_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let journal = Journal::begin(&[file.join("no"), folder.path().join("yes")], &header());
    assert!(journal.path().unwrap().starts_with(folder.path().join("yes")));

    let mut none = Journal::begin(&[file.join("no")], &header());
    let why = none.failure().unwrap();
    assert!(why.contains("file/no: "), "{why}");
    none.write(&problem("nobody hears"));
    assert_eq!((none.failure(), none.path()), (None, None), "it is reported once");
}

#[test]
fn a_full_disk_ends_the_journal_and_is_reported_once() {
    let mut journal = Journal::begin_at(Path::new("/dev/full"), &header()).unwrap();
    assert_eq!(journal.failure().unwrap(), "no storage space");
    journal.write(&problem("more"));
    assert_eq!(journal.failure(), None);
    journal.remove();
    assert!(Path::new("/dev/full").exists(), "what the run did not make it must not remove");
}

#[test]
fn a_file_that_is_there_is_not_written_over() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "somebody's").unwrap();
    let why = Journal::begin_at(file.path(), &header()).unwrap_err();
    assert!(why.contains("is there already"), "{why}");
    assert_eq!(std::fs::read(file.path()).unwrap(), b"somebody's");
}

#[test]
fn only_the_newest_that_were_left_over_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folders = [folder.path().to_owned()];
    for day in 1..=12 {
        let header = Header { started_at: format!("2026-11-{day:02}T00:00:00Z"), ..header() };
        assert!(Journal::begin(&folders, &header).path().is_some());
    }
    std::fs::write(folder.path().join("another's@elsewhere.jsonl"), "").unwrap();
    let kept = place::prune(place::left_over(&folders));
    let days: Vec<_> = kept.iter().map(|left| &left.header.started_at[8..10]).collect();
    assert_eq!(days, ["12", "11", "10", "09", "08", "07", "06", "05", "04", "03"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 11);
}

#[test]
fn what_is_no_journal_is_refused_with_a_reason() {
    let line = |value: &str| format!("{value}\n").into_bytes();
    for (bytes, why) in [
        (Vec::new(), "it is empty"),
        (b"{\"schema\":\"peersc".to_vec(), "cut off in its first line"),
        (vec![0xff; 100], "not a journal"),
        (line("[]"), "not a journal"),
        (line(&"[".repeat(10_000)), "not a journal"),
        (line(r#"{"schema":"peerscope.journal/9"}"#), "use the version of peerscope that wrote it"),
        (line(r#"{"schema":"peerscope.journal/3"}"#), "not complete"),
    ] {
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}
