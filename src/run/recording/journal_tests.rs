use std::os::unix::fs::PermissionsExt;

use super::entry::{Entry, Event, Header, SCHEMA};
use super::{Journal, Recorder, is_going_on, place, read};
use hardware::LinkSample;
use model::placement::StreamKind;
use model::report::Tool;
use model::units::Lanes;
use probes::{Outcome, Row, Span};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

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
    let row = Row {
        gpu: 3,
        stream: StreamKind::Side,
        rows: vec![span],
        host_ns: vec![1.0 / 3.0],
        ..Row::default()
    };
    let outcome = Outcome::Rows { rows: vec![row] };
    journal.write(&Entry { at: 1.5, event: Event::Outcome { id: 7, outcome: outcome.clone() } });

    assert!(is_going_on(&path).unwrap());
    assert_eq!(place::left_over(&folders), [], "a run that goes on has left nothing over");
    drop(journal);
    assert!(!is_going_on(&path).unwrap());
    let left = place::left_over(&folders);
    assert_eq!((left.len(), &left[0].path, &left[0].header), (1, &path, &header()));

    let (_, found) = read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(found.outcomes().get(&7), Some(&outcome));
    let recorded = found.conclude();
    assert_eq!(
        (recorded.measurements.problems.last().unwrap().as_str(), recorded.timing.total),
        ("one\ntwo", 1.5)
    );
}

/// Returns readings of two GPUs that arrived together.
fn readings(turn: u64) -> Vec<(u32, LinkSample)> {
    let of = |gpu: u32, replays| {
        let sample = LinkSample {
            width: Some(Lanes::X16),
            replays: Some(replays),
            throttle_reasons: vec!["HW \"slow\"\n".into()],
            ..LinkSample::default()
        };
        (gpu, sample)
    };
    vec![of(0, 3), of(0, 3), of(7, 100 + turn)]
}

#[test]
fn readings_of_a_journal_that_was_cut_off_are_there_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut recorder = Recorder::new(
        Journal::begin_at(&path, &header(), &Arc::default()).unwrap(),
        "quick",
        Instant::now(),
    );
    for turn in 0..4 {
        recorder.take(Event::Links { readings: readings(turn) });
        let (_, found) = read(&std::fs::read(&path).unwrap()).unwrap();
        let links = found.conclude().measurements.links;
        let turns = u32::try_from(turn + 1).unwrap();
        let seen: Vec<_> =
            links.iter().map(|link| (link.index, link.readings, link.replays_added)).collect();
        assert_eq!(seen, [(0, 2 * turns, Some(0)), (7, turns, Some(turn))]);
        assert_eq!(links[0].throttle_reasons, ["HW \"slow\"\n"]);
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
    let mut journal =
        Journal::begin_at(Path::new("/dev/full"), &header(), &Arc::default()).unwrap();
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
    let why = Journal::begin_at(file.path(), &header(), &Arc::default()).err().unwrap();
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
        (line(r#"{"schema":"peerscope.journal/4"}"#), "use the version of peerscope that wrote it"),
        (line(r#"{"schema":"peerscope.journal/5"}"#), "not complete"),
    ] {
        let refused = read(&bytes).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}
