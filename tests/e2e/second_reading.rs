//! What a second reading found missing once: reports that look healthy and are not, and gaps that were
//! silent.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{HARDWARE_REPORT, check, list, place, read_json, run, text_of, wait_with_output, with, write_json};
use crate::worker_faults::{assert_one_pair_lost, busy_worker};

/// Exit code and findings of the hardware report after a change to every cell of a table.
fn judged(table: &str, change: impl Fn(&mut Value)) -> (Option<i32>, Value) {
    let mut report = read_json(HARDWARE_REPORT);
    report["measurements"][table].as_array_mut().unwrap().iter_mut().for_each(change);
    let folder = place("").0;
    let path = write_json(folder.path(), "changed.json", &report);
    let ran = run(&["diagnose", &path, "--format", "json"]);
    (ran.code, ran.json()["findings"].clone())
}

#[test]
fn a_placement_that_is_slow_everywhere_is_found() {
    let (code, findings) = judged("peer", |cell| {
        if cell["path"] == "direct" && cell["placement"]["source"] == "default" {
            (cell["achieved_gbps"], cell["percent"]) = (45.0.into(), 10.0.into());
        }
    });
    assert_ne!(findings, json!([]), "exit {code:?}");
}

#[test]
fn kernel_copies_that_are_slow_everywhere_are_found() {
    let (code, findings) = judged("peer", |cell| {
        if cell["engine"] == "kernel" {
            (cell["achieved_gbps"], cell["percent"]) = (4.5.into(), 1.0.into());
        }
    });
    assert_ne!(findings, json!([]), "exit {code:?}");
}

#[test]
fn one_pair_that_never_overlaps_is_found() {
    let (code, findings) = judged("overlap", |cell| {
        if cell["source"] == 2 && cell["destination"] == 3 {
            cell["overlap_percent"] = 0.0.into();
        }
    });
    assert_ne!(findings, json!([]), "exit {code:?}");
}

#[test]
fn measured_without_a_figure_is_not_tested() {
    let (code, _) = judged("peer", |cell| cell["achieved_gbps"] = Value::Null);
    assert_eq!(code, Some(3));
}

#[test]
fn a_link_was_not_under_load_when_nothing_was_copied() {
    let ran = run(&with(check("h200x2", "quick"), &["--skip", "peers,overlap,latency"]));
    assert!(!ran.flowing().contains("under load"), "{ran:?}");
}

#[test]
fn pairs_of_a_lost_gpu_are_counted_as_untested() {
    let report = run(&with(check("gpu-lost", "quick"), &["--format", "json"])).json();
    assert_ne!(report["verdict"]["untested"], 0);
    let devices = list(&report["measurements"]["driver"]["devices"]);
    assert!(devices.iter().any(|device| device["index"] == 1 && device["failure"].is_string()), "{devices:?}");
}

#[test]
fn a_binary_that_is_replaced_during_a_run_can_start_another_worker() {
    let (folder, report) = place("report.json");
    let binary = folder.path().join("peerscope");
    std::fs::copy(env!("CARGO_BIN_EXE_peerscope"), &binary).unwrap();
    let args = with(check("pcie16", "standard"), &["-o", &text_of(&report)]);
    let mut command = std::process::Command::new(&binary);
    command.env("XDG_STATE_HOME", crate::common::fresh_state());
    let run = command.args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let worker = busy_worker(&run);
    std::fs::remove_file(&binary).unwrap();
    crate::common::signal("KILL", worker);
    wait_with_output(run);
    assert_one_pair_lost(&read_json(report));
}
