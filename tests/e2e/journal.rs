//! Tests of runs that are cut off, and of reports made from their journals.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{
    Ran, cells, check, codes, every_cell, finish, flowing, list, peerscope, place, program_text,
    read_json, say, signal, skipped, text_of, wait, wait_with_output, with,
};
use crate::worker_faults::{PATIENCE, child_of, is_running, until};

/// Returns the command, with its state in this folder.
fn with_state<S: AsRef<str>>(args: &[S], state: &Path) -> Command {
    let mut command = peerscope(args);
    command.env("XDG_STATE_HOME", state);
    command
}

fn run_in<S: AsRef<str>>(args: &[S], state: &Path) -> Ran {
    finish(&mut with_state(args, state))
}

/// Returns the journals in the folder for state.
fn journals(state: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(state.join("peerscope")).into_iter().flatten();
    // The last reports are in a folder beside them.
    found.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
}

/// Returns the events of this kind in a journal, parsed without peerscope; the last line may be incomplete.
fn entries(journal: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read(journal).unwrap();
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    lines.map(|line| line["event"][kind].clone()).filter(|event| !event.is_null()).collect()
}

/// Kills a run after its journal contains at least this many outcomes, and returns the journal.
fn killed_after(outcomes: usize, state: &Path) -> PathBuf {
    let mut run = with_state(&check("pcie16", "standard"), state);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = until("a journal", PATIENCE, || journals(state).pop());
    // Only what is new is read each time: the run must not end before its lines are counted.
    let (mut file, mut text) = (File::open(&journal).unwrap(), Vec::new());
    let (mut seen, mut found) = (0, 0);
    until("enough outcomes", PATIENCE, || {
        file.read_to_end(&mut text).unwrap();
        let whole = text.iter().rposition(|byte| *byte == b'\n')? + 1;
        let fresh = String::from_utf8_lossy(&text[seen..whole]);
        found += fresh.lines().filter(|line| line.contains(r#"{"outcome":"#)).count();
        seen = seen.max(whole);
        (found >= outcomes).then_some(())
    });
    run.kill().unwrap();
    run.wait().unwrap();
    journal
}

#[test]
fn a_run_killed_at_any_moment_loses_nothing() {
    const MOMENTS: u32 = 30;
    let args = with(check("demo", "standard"), &["--gpus", "0,1,2,3,4"]);
    let began = Instant::now();
    assert_eq!(finish(&mut peerscope(&args)).code, Some(0));
    let whole = began.elapsed();
    let (mut reports, mut with_figures) = (0, 0);
    for moment in 0..MOMENTS {
        let (_folder, state) = place("state");
        let mut run = with_state(&args, &state);
        let began = Instant::now();
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Moments are closer together at the beginning, where facts and driver come.
        std::thread::sleep(
            (whole * moment * moment / (MOMENTS * MOMENTS)).saturating_sub(began.elapsed()),
        );
        let worker = child_of(run.id());
        run.kill().unwrap();
        run.wait().unwrap();
        if let Some(worker) = worker {
            until("the end of the worker", PATIENCE, || (!is_running(worker)).then_some(()));
        }
        // Before the first line, and after the report, there is nothing to recover.
        let Some(journal) =
            journals(&state).pop().filter(|journal| journal.metadata().unwrap().len() > 0)
        else {
            continue;
        };
        let plan = entries(&journal, "plan").pop().unwrap_or_default();
        let of_host = |line: &Value| {
            let rounds = plan["rounds"].as_array().into_iter().flatten();
            rounds
                .filter(|round| round["id"] == line["id"])
                .any(|round| round["task"]["action"] == "host")
        };
        let figures = |line: &Value| match line["outcome"]["outcome"].as_str().unwrap() {
            // For host copies, several GPUs at once have a cell each, and both ways of one GPU are one cell.
            "rows" if of_host(line) => {
                let gpus = list(&line["outcome"]["rows"]).iter().map(|row| row["gpu"].as_u64());
                gpus.collect::<std::collections::BTreeSet<_>>().len()
            }
            "within" | "pinned" | "pipeline" | "engines" | "launch-loop" | "hazard" => 1,
            "calls" => list(&line["outcome"]["calls"]).len(),
            "rows" => list(&line["outcome"]["rows"]).len(),
            "load" => list(&line["outcome"]["load"]["checks"]).len(),
            "live" => list(&line["outcome"]["talk"]["sides"]).len(),
            "chase" => list(&line["outcome"]["loads"]).len(),
            // A kernel on either GPU, beside a call that blocks and one that does not.
            "overlap" => 4,
            _ => 0,
        };
        let outcomes: usize = entries(&journal, "outcome").iter().map(figures).sum();
        let ran = run_in(&["recover", &text_of(&journal), "--format", "json"], &state);
        assert!([Some(1), Some(3)].contains(&ran.code), "moment {moment}: {ran:?}");
        let report = ran.json();
        assert_eq!(report["verdict"]["exit_code"].as_i64(), ran.code.map(i64::from));
        assert_eq!(report["schema"], "peerscope.report/1");
        assert_eq!(report["machine"], "demo");
        assert_eq!(report["measurements"]["cut_off"], true);
        // The journal records the request after the facts.
        let known = entries(&journal, "asked").len();
        assert_eq!(report["request"]["gpus_left_out"], 3 * known, "moment {moment}");
        let measured = every_cell(&report).filter(|cell| cell["status"] == "measured").count();
        assert_eq!(
            measured, outcomes,
            "moment {moment}: everything that was journalled is there, and nothing else"
        );
        for cell in every_cell(&report).filter(|cell| cell["status"] == "skipped") {
            assert!(cell["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{cell}");
        }
        reports += 1;
        with_figures += u32::from(outcomes > 0);
    }
    // The speed of the machine varies with the load of other tests.
    assert!(
        reports >= MOMENTS / 3 && with_figures > 0,
        "of {MOMENTS} only {reports} left a journal"
    );
    say(&format!(
        "killed at {MOMENTS} moments: {reports} journals, {with_figures} with figures, all recovered"
    ));
}

#[test]
fn the_next_run_tells_of_it_and_recover_takes_it() {
    let (_folder, state) = place("state");
    let journal = killed_after(200, &state);
    let next = run_in(&check("h200x2", "quick"), &state);
    assert_eq!(next.code, Some(0), "{next:?}");
    let told = &next.stderr;
    assert!(told.contains("did not finish: 'peerscope recover -o FILE.json'"), "{told}");
    assert!(told.contains(&text_of(&journal)) && told.lines().count() == 1, "{told}");
    assert_eq!(
        journals(&state),
        std::slice::from_ref(&journal),
        "the second run took its own away, and this alone"
    );

    // Showing the report does not remove the journal.
    let looked = run_in(&["recover"], &state);
    assert_eq!(looked.code, Some(3), "{looked:?}");
    assert!(looked.stdout.contains("RECOVERED: the run was cut off"), "{}", looked.stdout);
    assert!(looked.stderr.contains("is kept until"), "{}", looked.stderr);
    let (_other, file) = place("report.json");
    let taken = run_in(&["recover", "-o", &text_of(&file)], &state);
    assert_eq!((taken.code, taken.stderr.as_str()), (Some(3), ""));
    assert!(journals(&state).is_empty());
    let report = read_json(&file);
    assert_eq!(codes(&report), ["not-tested"]);
    assert!(cells(&report).filter(|cell| cell["status"] == "measured").count() >= 100);
    // A recovered report gets the same verdict each time it is judged.
    let again = finish(&mut peerscope(&["diagnose", &text_of(&file), "--format", "json"]));
    assert_eq!((again.code, &again.json()["findings"]), (Some(3), &report["findings"]));

    let nothing = run_in(&["recover"], &state);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(2), ""));
    let folder = text_of(&state);
    assert!(
        nothing.stderr.contains("nothing to recover") && nothing.stderr.contains(&folder),
        "{nothing:?}"
    );
}

#[test]
fn a_run_that_goes_on_is_not_offered() {
    let (_folder, state) = place("state");
    let args = ["check", "--machine", "pair-hangs", "--profile", "quick", "--deadline", "3600"];
    let mut run =
        with_state(&args, &state).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = until("a journal", PATIENCE, || {
        journals(&state).pop().filter(|journal| !entries(journal, "outcome").is_empty())
    });
    let other = run_in(&check("h200x2", "quick"), &state);
    assert_eq!((other.code, other.stderr.as_str()), (Some(0), ""));
    assert_eq!(run_in(&["recover"], &state).code, Some(2));
    let named = run_in(&["recover", &text_of(&journal)], &state);
    assert_eq!(named.code, Some(2));
    assert!(named.stderr.contains("is still going"), "{}", named.stderr);
    signal("INT", run.id());
    assert_eq!(wait(&mut run).code(), Some(130));
    assert!(journals(&state).is_empty(), "its report is out");
}

/// A process that a killed run was starting has the run's files until it has begun.
#[test]
fn a_lock_that_outlives_its_run_for_a_moment_is_waited_for() {
    let (_folder, state) = place("state");
    let args = ["check", "--machine", "pair-hangs", "--profile", "quick", "--deadline", "3600"];
    let mut run =
        with_state(&args, &state).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = until("a journal", PATIENCE, || {
        journals(&state).pop().filter(|journal| !entries(journal, "outcome").is_empty())
    });
    run.kill().unwrap();
    run.wait().unwrap();
    for args in [vec!["recover"], vec!["recover", &text_of(&journal)]] {
        let copy = std::fs::read(&journal).unwrap();
        let file = std::fs::File::open(&journal).unwrap();
        file.lock().unwrap();
        let unlocks = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(file);
        });
        let recovered = run_in(&args, &state);
        unlocks.join().unwrap();
        assert_ne!(recovered.code, Some(2), "{recovered:?}");
        assert!(recovered.stdout.contains("GPU"), "{recovered:?}");
        std::fs::write(&journal, copy).unwrap();
    }
}

#[test]
fn a_report_takes_the_journal_away_and_no_journal_leaves_none() {
    let (_folder, state) = place("state");
    for args in [
        check("demo", "quick"),
        check("none", "quick"),
        with(check("demo", "quick"), &["--gpus", "77"]),
    ] {
        run_in(&args, &state);
        assert_eq!(journals(&state), [""; 0].map(PathBuf::from), "{args:?}");
    }
    let (_folder, state) = place("state");
    let none = ["--journal=none", "--no-history"];
    assert_eq!(run_in(&with(check("h200x2", "quick"), &none), &state).code, Some(0));
    assert!(!state.exists());
}

#[test]
fn a_chosen_journal_is_taken_away_too_and_writes_over_nothing() {
    let (_folder, file) = place("mine.jsonl");
    let args = with(check("h200x2", "quick"), &["--journal", &text_of(&file)]);
    assert_eq!(finish(&mut peerscope(&args)).code, Some(0));
    assert!(!file.exists());
    std::fs::write(&file, "mine").unwrap();
    let refused = finish(&mut peerscope(&args));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
    assert!(refused.stderr.contains("is there already"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_journal_that_cannot_be_written_is_reported_once_and_stops_nothing() {
    for place in ["/dev/full", "/proc/no-such-folder/journal"] {
        let ran = finish(&mut peerscope(&with(check("h200x2", "quick"), &["--journal", place])));
        assert_eq!(ran.code, Some(0), "{place}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{place}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot write the journal"), "{place}: {}", ran.stderr);
        assert!(ran.stdout.contains("healthy"), "{place}: {}", ran.stdout);
    }
}

#[test]
fn what_could_not_be_written_at_the_end_is_kept() {
    let (_folder, state) = place("state");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let run = with_state(&check("h200x2", "quick"), &state)
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = wait_with_output(run);
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    let journal = journals(&state).pop().unwrap();
    assert!(told.contains(&format!("peerscope recover {}", text_of(&journal))), "{told}");
    let recovered = run_in(&["recover", "--format", "json"], &state);
    assert_eq!(recovered.code, Some(3), "{recovered:?}");
    let recovered = recovered.json();
    assert_eq!(recovered["verdict"]["untested"], 0);
    assert_eq!(list(&recovered["measurements"]["links"]).len(), 2);
}

/// Runs a script on a disk of this many KiB in a name space of its own. Journals are on that disk. `$elsewhere` is on
/// another disk, with the folder for temporary files.
fn on_a_small_disk(kib: u32, script: &str, elsewhere: &Path) -> Option<std::process::Output> {
    let (folder, _) = place("disk");
    let mount = format!(
        "mount -t tmpfs -o size={kib}k tmpfs '{0}' && cd '{0}' && {script}",
        text_of(folder.path())
    );
    let usable = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "tmpfs"])
        .arg(folder.path())
        .output();
    if !usable.is_ok_and(|tried| tried.status.success()) {
        skipped("a full disk: this system gives no mount in a name space of its own (unshare -rm)");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &mount, "sh", &program_text()]);
    command.env("XDG_STATE_HOME", folder.path().join("state"));
    command.env("TMPDIR", elsewhere).env("elsewhere", elsewhere);
    Some(command.output().unwrap())
}

#[test]
fn a_full_disk_is_reported_and_the_text_printed() {
    // The journal fills the disk first; then there is no room for files either.
    let script = r#""$1" check --machine pcie16 --profile quick -o r.json; echo "code $?"; ls -A"#;
    let (elsewhere, _) = place("");
    let Some(output) = on_a_small_disk(256, script, elsewhere.path()) else {
        return;
    };
    let (text, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        told.contains("cannot write the journal") && told.contains("no storage space"),
        "{told}"
    );
    assert!(told.contains("cannot write r.json: no storage space"), "{told}");
    assert!(text.contains("healthy"), "the text is printed all the same: {text}");
    assert!(text.ends_with("code 2\nstate\n"), "no half-written file: {text}");

    let (_folder, state) = place("state");
    let journal = killed_after(3000, &state);
    let script =
        format!(r#""$1" recover '{}' -o r.json; echo "code $?"; ls -A"#, text_of(&journal));
    let Some(output) = on_a_small_disk(256, &script, elsewhere.path()) else {
        return;
    };
    let (text, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("cannot write r.json: no storage space"), "{told}");
    assert!(text.contains("RECOVERED") && text.ends_with("code 2\n"), "{text}");
    assert!(journal.exists());
}

/// Returns the text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let begin = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in {text}")).1;
    begin.split_once(after).unwrap_or_else(|| panic!("no '{after}' behind '{before}' in {text}")).0
}

/// Counts the measurements of a report that have an outcome, and all measurements.
fn recorded(report: &Value) -> (usize, usize) {
    (
        every_cell(report).filter(|cell| cell["status"] != "skipped").count(),
        every_cell(report).count(),
    )
}

/// Leaves no other place that can hold a report.
const ALL_FULL: &str = "mount -t tmpfs -o size=4k tmpfs /var/tmp; mount -t tmpfs -o size=4k tmpfs /dev/shm; \
                        export TMPDIR=$PWD; ";

#[test]
fn a_report_that_a_full_disk_refuses_goes_to_another_place() {
    let (elsewhere, _) = place("");
    for (kib, more) in [(1200, ""), (64, ""), (64, "--journal=none")] {
        let script = format!(
            r#""$1" check --machine demo --no-history {more} -o r.json; echo "code $?"; ls -A; ls -A state/peerscope 2>/dev/null"#
        );
        let Some(output) = on_a_small_disk(kib, &script, elsewhere.path()) else {
            return;
        };
        let (text, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let what = format!("{kib} KiB {more}: {told}");
        assert!(text.contains("all 2230 measurements made"), "{what}");
        let end = if more.is_empty() { "code 2\nstate\n" } else { "code 2\n" };
        assert!(
            text.ends_with(end),
            "no half-written file, and no journal of what is in a report: {what}{text}"
        );
        assert!(told.contains("cannot write r.json: no storage space"), "{what}");
        assert!(!told.contains("are kept") && !told.contains("peerscope recover"), "{what}");
        assert!(
            !told.contains("its measurements are lost"),
            "a part of them is in the journal: {what}"
        );
        match (kib, more) {
            (1200, _) => {
                let took = between(&told, "The journal took ", " of 2230 measurements")
                    .parse::<u32>()
                    .unwrap();
                assert!((1..2230).contains(&took), "{what}");
            }
            (_, "") => {
                assert!(told.contains("The journal took none of the 2230 measurements"), "{what}")
            }
            _ => assert!(told.contains("There is no journal"), "{what}"),
        }
        let rescued = PathBuf::from(between(&told, "the whole report is in ", "\n"));
        assert_eq!(rescued.parent(), Some(elsewhere.path()), "{what}");
        let report = read_json(&rescued);
        assert_eq!(
            (&report["verdict"]["tested"], &report["verdict"]["exit_code"]),
            (&2230.into(), &1.into())
        );
        std::fs::remove_file(rescued).unwrap();
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "{what}");
    }
    // The report is not written a second time if another -o contains all of it.
    let script = r#""$1" check --machine demo -o r.md -o "$elsewhere/whole.json""#;
    let Some(output) = on_a_small_disk(64, script, elsewhere.path()) else {
        return;
    };
    let told = String::from_utf8_lossy(&output.stderr);
    let whole = elsewhere.path().join("whole.json");
    assert!(told.contains("cannot write r.md: no storage space"), "{told}");
    assert!(told.contains(&format!("the whole report is in {}\n", text_of(&whole))), "{told}");
    assert_eq!(recorded(&read_json(whole)), (2230, 2230));
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn where_every_disk_is_full_the_journal_is_kept_and_counted() {
    let (elsewhere, recovered) = place("recovered.json");
    for kib in [1200, 64] {
        // Run it twice: recover must not remove a journal that it could not use in full.
        let recover = r#"XDG_STATE_HOME=$PWD/state "$1" recover -o "$elsewhere/recovered.json""#;
        let script = format!(
            r#"{ALL_FULL}"$1" check --machine demo --no-history -o r.json; echo "code $?"; ls /var/tmp /dev/shm; {recover}; echo "code $?"; {recover} >/dev/null 2>&1; ls -A state/peerscope"#
        );
        let Some(output) = on_a_small_disk(kib, &script, elsewhere.path()) else {
            return;
        };
        let (text, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let what = format!("{kib} KiB: {told}");
        assert!(text.contains("all 2230 measurements made"), "the text is there: {what}");
        assert!(
            text.contains("code 2\n/dev/shm:\n\n/var/tmp:\n"),
            "nothing half-written: {what}{text}"
        );
        assert!(told.contains("cannot write r.json: no storage space"), "{what}");
        assert!(
            told.contains("no other place took the report (")
                && told.contains("/dev/shm: no storage space"),
            "{what}"
        );
        assert!(!told.contains("are kept"), "{what}");
        let report = read_json(&recovered);
        let (took, planned) = recorded(&report);
        let (check, recover) = (told.lines().nth(1).unwrap(), told.lines().nth(2).unwrap());
        if kib == 64 {
            assert!(check.contains("The journal took none of the 2230 measurements"), "{what}");
            assert!(!check.contains("peerscope recover"), "{what}");
            assert_eq!(took, 0);
            assert!(
                recover.contains("is kept: ") && recover.contains("it holds no measurement"),
                "{what}"
            );
            assert!(
                flowing(&text).contains("made from its journal, which holds no measurement"),
                "{text}"
            );
        } else {
            assert_eq!(planned, 2230);
            assert!(
                check.contains(&format!("The journal took {took} of 2230 measurements")),
                "{took}: {what}"
            );
            assert!(check.contains("peerscope recover "), "{what}");
            assert!(
                recover.contains("is kept: ") && recover.contains("its last line is not complete"),
                "{what}"
            );
            assert!(recover.contains(&format!("{took} of 2230 measurements")), "{took}: {what}");
            let holds = format!("its journal, which holds {took} of 2230 measurements");
            assert!(flowing(&text).contains(&holds), "{text}");
        }
        assert!(text.trim_end().ends_with(".jsonl"), "the journal is kept: {what}{text}");
    }
}

#[test]
fn recover_takes_no_journal_away_that_it_could_not_use() {
    let (_folder, state) = place("state");
    let journal = killed_after(200, &state);
    let whole = std::fs::read_to_string(&journal).unwrap();
    let first = whole.lines().position(|line| line.contains(r#"{"outcome":"#)).unwrap();
    let facts: String = whole.split_inclusive('\n').take(first).collect();
    let (_other, file) = place("report.json");
    for (text, why) in [
        (format!("{whole}{{\"at\":1.5,\"event\":{{\"outc"), "its last line is not complete"),
        (format!("{whole}{{}}\n{{}}\n"), "2 of its lines could not be read"),
        (facts, "it holds no measurement"),
    ] {
        std::fs::write(&journal, text).unwrap();
        let ran = run_in(&["recover", "-o", &text_of(&file)], &state);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let kept = format!("the journal {} is kept: ", text_of(&journal));
        assert!(ran.stderr.contains(&kept) && ran.stderr.contains(why), "{why}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert_eq!(journals(&state), std::slice::from_ref(&journal), "{why}");
    }
    std::fs::write(&journal, whole).unwrap();
    assert_eq!(run_in(&["recover", "-o", &text_of(&file)], &state).stderr, "");
    assert!(journals(&state).is_empty(), "all of it is in the report");
}
