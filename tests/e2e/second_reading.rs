//! Tests of defects that a second review found: reports that look healthy and are not, and gaps that were not reported.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{
    Ran, cells, changed_report, check, list, pair, place, program, read_json, run, text_of,
    wait_with_output, with,
};
use crate::worker_faults::busy_worker;

/// Runs `diagnose` on the hardware report after a change to every cell of a table.
fn judged(table: &str, change: impl Fn(&mut Value)) -> Ran {
    let (_folder, path) = changed_report(|report| {
        report["measurements"][table].as_array_mut().unwrap().iter_mut().for_each(change);
    });
    run(&["diagnose", &path, "--format", "json"])
}

type Change = fn(&mut Value);

#[test]
fn what_is_slow_or_serial_in_one_respect_is_found() {
    let slow_placement: Change = |cell| {
        if cell["path"] == "direct" && cell["placement"]["source"] == "default" {
            (cell["achieved_gbps"], cell["percent"]) = (45.0.into(), 10.0.into());
        }
    };
    let slow_kernels: Change = |cell| {
        if cell["engine"] == "kernel" {
            (cell["achieved_gbps"], cell["percent"]) = (4.5.into(), 1.0.into());
        }
    };
    let serial_pair: Change = |cell| {
        if pair(cell) == (2, 3) {
            cell["overlap_percent"] = 0.0.into();
        }
    };
    for (what, table, change) in [
        ("a placement that is slow everywhere", "peer", slow_placement),
        ("kernel copies that are slow everywhere", "peer", slow_kernels),
        ("one pair that never overlaps", "overlap", serial_pair),
    ] {
        let ran = judged(table, change);
        assert_ne!(ran.json()["findings"], json!([]), "{what}: exit {:?}", ran.code);
    }
}

#[test]
fn measured_without_a_figure_is_not_tested() {
    assert_eq!(judged("peer", |cell| cell["achieved_gbps"] = Value::Null).code, Some(3));
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
    assert!(
        devices.iter().any(|device| device["index"] == 1 && device["failure"].is_string()),
        "{devices:?}"
    );
}

#[test]
fn a_binary_that_is_replaced_during_a_run_can_start_another_worker() {
    let (folder, report) = place("report.json");
    let binary = folder.path().join("peerscope");
    // Do not copy in this process. A child that another test forks meanwhile would hold the file open for writing, and
    // such a file cannot be run.
    let copied = std::process::Command::new("cp").arg(program()).arg(&binary).status();
    assert!(copied.unwrap().success());
    let args = with(check("pcie16", "standard"), &["-o", &text_of(&report)]);
    let mut command = std::process::Command::new(&binary);
    command.env("XDG_STATE_HOME", crate::common::fresh_state());
    let run = command.args(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let worker = busy_worker(&run);
    std::fs::remove_file(&binary).unwrap();
    crate::common::signal("KILL", worker);
    wait_with_output(run);
    let report = read_json(report);
    assert!(
        cells(&report).all(|cell| cell["status"] == "measured"),
        "{}",
        report["measurements"]["problems"]
    );
    assert_eq!(list(&report["measurements"]["problems"]).len(), 1, "the worker was not killed");
}

#[test]
fn readings_that_copies_refute_are_refuted_in_saved_reports_too() {
    let folder = tempfile::tempdir().unwrap();
    let (saved, again) =
        (text_of(&folder.path().join("saved.json")), text_of(&folder.path().join("again.json")));
    let machine =
        format!("{}/tests/cases/healthy-uplink-idle-gen1.toml", env!("CARGO_MANIFEST_DIR"));
    let ran = run(&[
        "check",
        "--machine",
        &machine,
        "--profile",
        "quick",
        "--journal=none",
        "-o",
        &saved,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let kept = read_json(std::path::Path::new(&saved));
    let refuted = |report: &Value| {
        let links = list(&report["topology"]["links"])
            .iter()
            .filter(|link| link["pcie"]["refuted"].is_array());
        links
            .map(|link| (link["lower"].clone(), link["pcie"]["refuted"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(refuted(&kept).len(), 1);

    std::fs::write(&saved, kept.to_string()).unwrap();
    let ran = run(&["diagnose", &saved, "-o", &again]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let judged = read_json(std::path::Path::new(&again));
    assert_eq!(refuted(&judged), refuted(&kept));
    assert_eq!(judged["findings"], kept["findings"]);
    for table in ["topology", "measurements"] {
        assert_eq!(judged[table], kept[table], "{table}");
    }
}
