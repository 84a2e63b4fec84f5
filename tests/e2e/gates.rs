//! Tests of GPUs that are late at the gates of a row, over the fake driver: its kernel reports when it waits.

use serde_json::Value;

use crate::common::{Ran, codes, finish, list};
use crate::fake::Fake;

/// Runs a quick check of a machine of tests/cases over the fake driver.
fn live(case: &str) -> Ran {
    let fake = Fake::new(&format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR")));
    finish(&mut fake.command(&["check", "--profile", "quick", "--format", "json"]))
}

/// Returns pairs without a figure, each with its status and its reason.
fn without(report: &Value) -> Vec<(u64, u64, &str, &str)> {
    let pairs =
        list(&report["measurements"]["peer"]).iter().filter(|cell| cell["status"] != "measured");
    pairs
        .map(|cell| {
            let end = |key: &str| cell[key].as_u64().unwrap();
            (
                end("source"),
                end("destination"),
                cell["status"].as_str().unwrap(),
                cell["reason"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_gate_that_is_late_once_costs_a_row_and_nothing_else() {
    let ran = live("healthy-gate-late-once");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(without(&ran.json()), []);
}

#[test]
fn gates_that_are_always_late_are_other_programs_and_no_fault() {
    let ran = live("gates-late-always");
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    let without = without(&report);
    assert!(!without.is_empty());
    for (source, _, status, reason) in without {
        assert_eq!((source, status), (1, "skipped"), "{reason}");
        assert!(reason.starts_with("GPU 1 is used by other programs"), "{reason}");
    }
    let codes: Vec<_> = codes(&report).into_iter().filter(|code| *code != "not-tested").collect();
    assert_eq!(codes, [""; 0]);
}
