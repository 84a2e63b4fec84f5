//! `check --budget --ledger`: every part in turn, within the stated number of runs.

use std::process::Command;

use serde_json::Value;

use crate::common::{Ran, assert_fits_schema, finish, peerscope, place, program, run, text_of};

const FOUR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/bases/h200x4.toml");

/// So little that only one part fits into a run.
const LEAST: &str = "100ms";

fn check(machine: &str, budget: &str, ledger: &str) -> Ran {
    let args = ["check", "--machine", machine, "--profile", "quick", "--no-journal"];
    let more = ["--budget", budget, "--ledger", ledger, "--format", "json"];
    run(&[&args[..], &more].concat())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_part_is_measured_within_the_stated_number_of_runs_the_oldest_first() {
    let (_folder, ledger) = place("ledger.json");
    let ledger = text_of(&ledger);
    let mut first = None;
    // 6 pairs.
    for done in 1..=6 {
        let ran = check(FOUR, LEAST, &ledger);
        assert_eq!(ran.code, Some(0), "{done}");
        let report = ran.json();
        assert_fits_schema(&report);
        let rolling = &report["rolling"];
        let counts = ["parts", "covered_now", "never_covered", "all_within_runs", "runs"];
        let counts = counts.map(|key| number(&rolling[key]));
        assert_eq!(counts, [6, 1, 6 - done, 6, done], "{rolling}");
        if done == 1 {
            let pairs = &report["measurements"]["peer"][0];
            first = Some((number(&pairs["source"]), number(&pairs["destination"])));
        }
    }
    let ran = check(FOUR, LEAST, &ledger);
    let report = ran.json();
    let again = &report["measurements"]["peer"][0];
    assert_eq!(first, Some((number(&again["source"]), number(&again["destination"]))));
    assert!(report["rolling"]["oldest_seconds"].is_number());
    // With time for everything, everything is measured.
    let report = check(FOUR, "600s", &ledger).json();
    assert_eq!(report["rolling"]["covered_now"], 6);
    assert_eq!(report["measurements"]["left_out"], Value::Array(Vec::new()));
    let text =
        ["check", "--machine", FOUR, "--profile", "quick", "--budget", LEAST, "--ledger", &ledger];
    let text = run(&text);
    assert!(
        text.flowing().contains("the verdict of the machine stands on figures up to"),
        "{}",
        text.stdout
    );
}

#[test]
fn a_part_with_a_fault_is_measured_by_every_run_and_the_exit_code_stays() {
    let (_folder, ledger) = place("ledger.json");
    let ledger = text_of(&ledger);
    let whole = check("writes-dropped", "600s", &ledger);
    assert_eq!(whole.code, Some(1), "{whole:?}");
    let suspected = whole.json()["rolling"]["suspected"].clone();
    assert!(!suspected.as_array().unwrap().is_empty());
    for _ in 0..2 {
        let ran = check("writes-dropped", LEAST, &ledger);
        assert_eq!((ran.code, &ran.json()["rolling"]["suspected"]), (Some(1), &suspected));
    }
}

#[test]
fn a_full_disk_leaves_the_ledger_as_it_was() {
    let (_folder, ledger) = place("ledger.json");
    let path = text_of(&ledger);
    assert_eq!(check("h200x2", "600s", &path).code, Some(0));
    let before = std::fs::read(&ledger).unwrap();
    let mut full = Command::new("sh");
    let args = [
        "--machine",
        "h200x2",
        "--profile",
        "quick",
        "--no-journal",
        "--budget",
        "600s",
        "--ledger",
        &path,
    ];
    full.args(["-c", "ulimit -f 0; exec \"$0\" check \"$@\"", &text_of(&program())]).args(args);
    let ran = finish(&mut full);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let why = "this run does not count as coverage";
    assert!(crate::common::flowing(&ran.stdout).contains(why), "{ran:?}");
    assert_eq!(std::fs::read(&ledger).unwrap(), before);
}

#[test]
fn a_wrong_ledger_is_refused_before_anything_is_measured() {
    let (folder, ledger) = place("ledger.json");
    let path = text_of(&ledger);
    std::fs::write(&ledger, "notes").unwrap();
    let ran = check("h200x2", "1s", &path);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("is no ledger of 'peerscope check --ledger'"), "{ran:?}");
    assert_eq!(std::fs::read(&ledger).unwrap(), b"notes");
    std::fs::remove_file(&ledger).unwrap();
    assert_eq!(check("h200x2", "600s", &path).code, Some(0));
    let other = check("h200x8", "1s", &path);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("give each machine its own"), "{other:?}");
    for args in [
        &["check", "--budget", "3s"][..],
        &["check", "--ledger", &path],
        &["check", "--ledger", &path, "--budget", "0"],
    ] {
        let ran = finish(&mut peerscope(args));
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    drop(folder);
}
