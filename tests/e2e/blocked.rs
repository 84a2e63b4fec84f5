//! Tests of outputs whose reader never comes or stops reading: the first signal ends the wait, and nothing is lost.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::common::{check, peerscope, place, read_json, run, signal, text_of, wait, with};
use crate::worker_faults::{PATIENCE, child_of, until, until_it_handles_signals, until_it_hangs};

fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Sends one signal, which must end the run although its output has no reader, and returns the exit code and stderr.
fn ended_by(name: &str, mut run: Child) -> (Option<i32>, String) {
    signal(name, run.id());
    wait(&mut run);
    let mut told = String::new();
    run.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    (run.wait().unwrap().code(), told)
}

fn start(args: &[String], state: &Path, stdout: impl Into<Stdio>) -> Child {
    let mut command = peerscope(args);
    command.env("XDG_STATE_HOME", state).stdout(stdout).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the report of a run and reads it.
fn written(path: &Path) -> Value {
    until("a report", PATIENCE, || path.exists().then_some(()));
    read_json(path)
}

/// Checks that `recover` gets every measurement from the journal in this folder.
fn assert_recoverable(state: &Path, told: &str, code: i32) {
    assert!(
        told.contains("The measurements are kept") && told.contains("peerscope recover "),
        "{told}"
    );
    let mut recover = peerscope(&["recover", "--format", "json"]);
    let ran = crate::common::finish(recover.env("XDG_STATE_HOME", state));
    let report = ran.json();
    assert_eq!((ran.code, &report["verdict"]["untested"]), (Some(code), &Value::from(0)), "{told}");
}

#[test]
fn a_pipe_without_a_reader_does_not_swallow_a_signal() {
    for name in ["TERM", "INT", "HUP"] {
        let (folder, report) = place("report.json");
        let state = folder.path().join("state");
        let pipe = fifo(folder.path(), "pipe");
        // The pipe is listed first, and must not delay the other output.
        let args =
            with(check("h200x2", "quick"), &["-o", &text_of(&pipe), "-o", &text_of(&report)]);
        let run = start(&args, &state, Stdio::null());
        assert_eq!(written(&report)["verdict"]["exit_code"], 0);
        let (code, told) = ended_by(name, run);
        assert_eq!(code, Some(130), "{told}");
        assert!(
            told.contains(&format!("cannot write {}: nobody read it", text_of(&pipe))),
            "{told}"
        );
        assert_recoverable(&state, &told, 3);
    }
}

#[test]
fn a_timeline_or_a_journal_without_a_reader_does_not_swallow_a_signal_either() {
    let (folder, report) = place("report.json");
    let state = folder.path().join("state");
    let pipe = fifo(folder.path(), "run.trace");
    let args = with(check("h200x2", "standard"), &["-o", &text_of(&pipe), "-o", &text_of(&report)]);
    let run = start(&args, &state, Stdio::null());
    written(&report);
    let (code, told) = ended_by("TERM", run);
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("run.trace: nobody read it"), "{told}");
    assert_recoverable(&state, &told, 3);

    // Without its journal the run has not begun.
    let (folder, report) = place("report.json");
    let pipe = fifo(folder.path(), "journal");
    let args =
        with(check("h200x2", "quick"), &["--journal", &text_of(&pipe), "-o", &text_of(&report)]);
    let run = start(&args, &folder.path().join("state"), Stdio::null());
    until_it_handles_signals(run.id());
    let (code, told) = ended_by("TERM", run);
    assert_eq!(code, Some(130), "{told}");
    assert!(
        told.contains("cannot write the journal (") && told.contains("nobody read it"),
        "{told}"
    );
    assert_eq!(read_json(&report)["measurements"]["interrupted"], true);
}

#[test]
fn a_reader_that_reads_no_more_does_not_swallow_a_signal() {
    let (folder, report) = place("report.json");
    let state = folder.path().join("state");
    let args = with(check("demo", "standard"), &["--format", "json", "-o", &text_of(&report)]);
    // Nobody reads the other end, and a pipe holds less than this report.
    let (reader, writer) = std::io::pipe().unwrap();
    let run = start(&args, &state, writer);
    let mut text = [PollFd::new(&reader, PollFlags::IN)];
    until("text on stdout", PATIENCE, || {
        (poll(&mut text, Some(&Timespec::default())) == Ok(1)).then_some(())
    });
    let (code, told) = ended_by("TERM", run);
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("cannot write to stdout: nobody read it"), "{told}");
    assert_eq!(written(&report)["verdict"]["exit_code"], 1, "the file is written all the same");
    assert_recoverable(&state, &told, 1);
    drop(reader);

    let (folder, report) = place("report.json");
    let state = folder.path().join("state");
    let pipe = fifo(folder.path(), "pipe");
    let reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&pipe).unwrap();
    let args = with(check("demo", "standard"), &["-o", &text_of(&pipe), "-o", &text_of(&report)]);
    let run = start(&args, &state, Stdio::null());
    written(&report);
    let (code, told) = ended_by("INT", run);
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("nobody read it"), "{told}");
    drop(reader);
}

/// The signal arrives while copies run, as `timeout` sends it, and the output would wait afterwards.
#[test]
fn an_interrupted_run_does_not_wait_for_a_reader_either() {
    let (folder, report) = place("report.json");
    let pipe = fifo(folder.path(), "pipe");
    let args = ["check", "--machine", "pair-hangs", "--profile", "quick", "--deadline", "3600"]
        .map(String::from);
    let args = with(args.to_vec(), &["-o", &text_of(&pipe), "-o", &text_of(&report)]);
    let run = start(&args, &folder.path().join("state"), Stdio::null());
    let worker = until("a worker", PATIENCE, || child_of(run.id()));
    until_it_hangs(run.id(), worker);
    let (code, told) = ended_by("TERM", run);
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("nobody read it"), "{told}");
    assert_eq!(read_json(&report)["measurements"]["interrupted"], true);
}

/// Without a signal a reader may arrive as late and read as slowly as it likes.
#[test]
fn a_reader_of_a_pipe_that_is_late_gets_everything() {
    let (folder, _) = place("");
    let pipe = fifo(folder.path(), "pipe");
    let args = with(check("demo", "standard"), &["-o", &text_of(&pipe)]);
    let mut run = start(&args, &folder.path().join("state"), Stdio::null());
    std::thread::sleep(Duration::from_secs(3));
    let mut reader = File::open(&pipe).unwrap();
    let mut first = [0; 1000];
    reader.read_exact(&mut first).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let report: Value =
        serde_json::from_str(&(String::from_utf8(first.to_vec()).unwrap() + &rest)).unwrap();
    assert_eq!(
        (wait(&mut run).code(), &report["verdict"]["exit_code"]),
        (Some(1), &Value::from(1))
    );
    // A reader that closes its end has read what it wanted.
    let run = run_with_closed_reader(&pipe);
    assert_eq!(run, Some(0));
}

fn run_with_closed_reader(pipe: &Path) -> Option<i32> {
    let path = pipe.to_owned();
    let reader = std::thread::spawn(move || drop(File::open(path).unwrap()));
    let ran = run(&["topo", "--machine", "single", "-o", &text_of(pipe)]);
    reader.join().unwrap();
    ran.code
}
