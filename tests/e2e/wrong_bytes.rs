//! Tests that wrong bytes of any probe are an error.

use model::measurement::Measurements;
use serde_json::{Value, json};

use crate::common::{check, codes, run, with, write_json};

/// Talk is judged by what a kernel missed or saw torn, and wrong bytes without that do not occur.
const BY_WHAT_WAS_HEARD: [&str; 1] = ["live"];

#[test]
fn wrong_bytes_of_every_probe_are_an_error() {
    let healthy = run(&with(check("h200x2", "full"), &["--format", "json"]));
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    let healthy = healthy.json();
    let folder = tempfile::tempdir().unwrap();
    let mut spoiled = Vec::new();
    for table in Measurements::TABLES {
        let Some(report) = with_wrong_bytes(&healthy, table) else {
            continue;
        };
        if BY_WHAT_WAS_HEARD.contains(table) {
            continue;
        }
        let file = write_json(folder.path(), "spoiled.json", &report);
        let judged = run(&["diagnose", &file, "--format", "json"]);
        assert_eq!(
            judged.code,
            Some(1),
            "{table}: no rule judges its wrong bytes (docs/dev/architecture.md, \"A probe\"): {:?}",
            codes(&judged.json())
        );
        spoiled.push(*table);
    }
    for known in ["peer", "host", "sharing", "load"] {
        assert!(spoiled.contains(&known), "{known} was not spoiled");
    }
}

/// Spoils the first measurement of a table whose bytes were checked and right; none if it has none.
fn with_wrong_bytes(healthy: &Value, table: &str) -> Option<Value> {
    let mut report = healthy.clone();
    let rows = report["measurements"][table].as_array_mut()?;
    let right = rows.iter_mut().find(|row| row["verified"] == "ok")?;
    right["verified"] = json!("corrupt");
    Some(report)
}
