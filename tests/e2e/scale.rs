//! Machines of very many GPUs: what `check` and `topo` write, `diagnose` reads.

use serde_json::Value;

use crate::common::{list, place, read_json, run, text_of, write};

#[path = "../../benches/machine/mod.rs"]
mod machine;

/// More than are written in full.
const LEAN: u32 = 80;

#[test]
fn what_check_writes_of_many_gpus_diagnose_reads_and_judges_alike() {
    let (folder, report) = place("report.json");
    let description = write(folder.path(), "many.toml", &machine::description(LEAN));
    let report = text_of(&report);
    let ran = run(&[
        "check",
        "--profile",
        "quick",
        "--machine",
        &description,
        "-o",
        &report,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(&report).unwrap();
    assert_eq!(text.lines().count(), 1, "no indentation");
    let checked = read_json(&report);
    let pairs = (LEAN * (LEAN - 1)) as usize;
    for (table, rows) in [
        ("topology.pairs", list(&checked["topology"]["pairs"])),
        ("measurements.peer", list(&checked["measurements"]["peer"])),
    ] {
        assert!(
            rows.len() >= pairs,
            "{table} has {} of {pairs} pairs",
            rows.len()
        );
    }
    let cell = &checked["measurements"]["peer"][0];
    for key in [
        "achieved_gbps",
        "theoretical_gbps",
        "percent",
        "samples",
        "spread_percent",
        "verified",
        "status",
    ] {
        assert!(cell.get(key).is_some(), "{key}: {cell}");
    }
    let again = run(&["diagnose", &report, "--format", "json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let again = again.json();
    // Judged once more, it is the same report but for the time that took.
    for key in [
        "snapshot",
        "topology",
        "measurements",
        "findings",
        "verdict",
    ] {
        assert!(again[key] == checked[key], "{key} differs");
    }
}

#[test]
fn as_many_gpus_as_can_be_simulated_can_be_read_again() {
    let (folder, report) = place("report.json");
    let (most, more) = (machine::description(256), machine::description(257));
    let [most, more] = [("256.toml", most), ("257.toml", more)]
        .map(|(name, text)| write(folder.path(), name, &text));
    let report = text_of(&report);
    let ran = run(&["topo", "--machine", &most, "-o", &report]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(std::fs::metadata(&report).unwrap().len() < 40_000_000);
    assert_eq!(run(&["diagnose", &report]).code, Some(0));
    let refused = run(&["topo", "--machine", &more]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .stderr
            .contains("257 are more than can be simulated, which is 256"),
        "{refused:?}"
    );
    // A report of one more, made by somebody else.
    let mut edited: Value = read_json(&report);
    let mut gpu = edited["snapshot"]["gpus"][255].clone();
    gpu["index"] = 256.into();
    edited["snapshot"]["gpus"].as_array_mut().unwrap().push(gpu);
    let edited = write(folder.path(), "edited.json", &edited.to_string());
    let refused = run(&["diagnose", &edited]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused
            .stderr
            .contains("has 257 GPUs; a report can have 256 at most"),
        "{refused:?}"
    );
}
