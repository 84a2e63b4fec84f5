//! `watch`: a job that runs, its odd link, and the ways to end.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::common::{
    Ran, codes, finish, list, peerscope, place, read_json, run, signal, text_of, wait,
    wait_with_output, with, write,
};

/// A machine on which a job runs; `more` is a line of its faults.
pub(crate) fn busy(folder: &std::path::Path, more: &str) -> String {
    let job = |gpu| {
        format!("{{ gpu = {gpu}, nvlink = [310.0, 305.0], pcie = [0.4, 0.2], utilization = 98 }}")
    };
    let jobs: Vec<String> = (0..2).map(job).collect();
    let text = format!(
        "base = \"h200x2\"\nsummary = \"a job runs\"\n[faults]\nothers = [{}]\n{more}\n",
        jobs.join(", ")
    );
    write(folder, "job.toml", &text)
}

const UNUSED: &str = "counters = [{ gpu = 1, links = [{ link = 7, part = 0.0 }] }]";

fn watch(machine: &str, more: &[&str]) -> Vec<String> {
    with(["watch", "--machine", machine].map(str::to_owned).to_vec(), more)
}

#[test]
fn a_link_that_carries_nothing_is_named_and_a_sound_job_is_not() {
    let (folder, report) = place("report.json");
    let ran = run(&watch(&busy(folder.path(), UNUSED), &["--for", "2s", "-o", &text_of(&report)]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("NVLink 7 of GPU 1"), "{}", ran.stdout);
    assert!(ran.stdout.contains("███████·█") && ran.stdout.contains("310"), "{}", ran.stdout);
    let report = read_json(&report);
    assert_eq!(codes(&report), ["nvlink-share-uneven"]);
    assert_eq!(list(&report["watched"]["gpus"])[0]["nvlinks"][17]["link"], 17);
    let sound = run(&watch(&busy(folder.path(), ""), &["--for", "2s", "--fail-on", "info"]));
    assert_eq!(sound.code, Some(0), "{sound:?}");
    // What counts as a fault is the reader's choice.
    let strict =
        run(&watch(&busy(folder.path(), UNUSED), &["--for", "2s", "--fail-on", "warning"]));
    assert_eq!(strict.code, Some(1), "{strict:?}");
}

#[test]
fn a_saved_report_is_judged_again_in_the_same_way() {
    let (folder, report) = place("report.json");
    run(&watch(&busy(folder.path(), UNUSED), &["--for", "2s", "-o", &text_of(&report)]));
    let again = run(&["diagnose", &text_of(&report), "--format", "json"]).json();
    let first = read_json(&report);
    assert_eq!(again["findings"], first["findings"]);
    assert_eq!(again["watched"], first["watched"]);
}

#[test]
fn readings_that_cannot_be_written_go_to_another_place() {
    let (folder, _) = place("x");
    let machine = busy(folder.path(), "");
    for more in [&["-o", "/dev/full"][..], &["--format", "json"], &[]] {
        let mut command = peerscope(&with(watch(&machine, &["--for", "2s"]), more));
        if more.first() != Some(&"-o") {
            command.stdout(File::options().write(true).open("/dev/full").unwrap());
        }
        let output = wait_with_output(
            command.env("TMPDIR", folder.path()).stderr(Stdio::piped()).spawn().unwrap(),
        );
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {stderr}");
        let (_, kept) = stderr.trim_end().split_once("the whole report is in ").expect(&stderr);
        assert!(read_json(kept)["watched"]["gpus"][0]["readings"].as_u64() > Some(1), "{kept}");
    }
}

#[test]
fn an_idle_machine_was_not_watched_at_work() {
    let ran = run(&watch("h200x2", &["--for", "2s"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("Start the job"), "{}", ran.stdout);
}

#[test]
fn without_a_terminal_a_length_or_lines_are_asked_for() {
    let ran = run(&watch("h200x2", &[]));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("--for 30s") && ran.stderr.contains("--format json"),
        "{}",
        ran.stderr
    );
}

#[test]
fn each_second_is_a_line_of_json() {
    let (folder, _) = place("x");
    let ran = run(&watch(&busy(folder.path(), UNUSED), &["--for", "3s", "--format", "json"]));
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 2, "{}", ran.stdout);
    for line in &lines {
        assert_eq!(line["schema"], "peerscope.watch/1");
        assert_eq!(list(&line["gpus"]).len(), 2);
    }
    let last = lines.last().unwrap();
    assert_eq!(list(&last["findings"])[0]["code"], "nvlink-share-uneven");
}

/// Watches a machine, interrupts that after its first line, and returns how it ended.
pub(crate) fn interrupted(machine: &str, more: &[&str]) -> ExitStatus {
    let args = with(watch(machine, &["--for", "1h", "--format", "json"]), more);
    let mut child = peerscope(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    signal("INT", child.id());
    wait(&mut child)
}

#[test]
fn it_ends_when_nobody_reads_it_any_more() {
    let (folder, _) = place("x");
    let args = watch(&busy(folder.path(), ""), &["--format", "json"]);
    let mut child = peerscope(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_report_is_written() {
    let (folder, report) = place("report.json");
    let ended = interrupted(&busy(folder.path(), ""), &["-o", &text_of(&report)]);
    assert_eq!(ended.code(), Some(130));
    assert!(read_json(&report)["watched"]["seconds"].as_f64().unwrap() > 0.0);
}

/// Runs the program on a terminal of its own, by a shell that first does something else and then becomes it.
fn on_terminal(kind: &str, first: &str, args: &[String]) -> Ran {
    let command = peerscope(args);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let line = format!("{first}exec {}", words.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    script.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    finish(script.env("TERM", kind))
}

#[test]
fn on_a_terminal_it_is_a_screen_and_leaves_the_terminal_as_it_was() {
    let (folder, _) = place("x");
    let ran = on_terminal("xterm", "", &watch(&busy(folder.path(), UNUSED), &["--for", "3s"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (before, after) = ran.stdout.split_once("\x1b[?1049l").expect("the terminal is given back");
    assert!(before.contains("\x1b[?1049h") && before.contains("q ends"), "{before:?}");
    assert!(after.contains("NVLink 7 of GPU 1"), "{after:?}");
}

#[test]
fn two_signals_at_once_give_the_terminal_back() {
    let (folder, _) = place("x");
    let signals = "(sleep 2; kill -INT $$; kill -TERM $$) & ";
    let ran = on_terminal("xterm", signals, &watch(&busy(folder.path(), ""), &["--for", "1h"]));
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("\x1b[?1049l"), "{ran:?}");
}

#[test]
fn a_terminal_that_cannot_draw_gets_a_report_alone() {
    let (folder, _) = place("x");
    let ran = on_terminal("dumb", "", &watch(&busy(folder.path(), ""), &["--for", "2s"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stdout.contains('\x1b') && ran.stdout.contains("Seen in"), "{ran:?}");
}

#[test]
fn a_machine_without_a_driver_is_a_line_too() {
    let ran = run(&watch("none", &["--for", "2s", "--format", "json"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let line: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(list(&line["findings"])[0]["code"], "nothing-measured");
}
