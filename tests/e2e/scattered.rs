//! Scattered blocks, by the real program over simulated machines.

use serde_json::Value;

use crate::common::{codes, list, run, write};

/// Returns the report of a check of scattered blocks alone. The simulator runs it: parts of buffers of the fake driver have
/// contents of their own, so that it does not show what blocks bring into the whole.
fn blocks(machine: &str, code: i32) -> Value {
    let args = ["check", "--machine", machine, "--only", "small"];
    let ran = run(&[&args[..], &["--no-journal", "--format", "json"]].concat());
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.json()
}

/// Returns the cells of a way.
fn of<'r>(report: &'r Value, way: &str) -> Vec<&'r Value> {
    let cells = list(&report["measurements"]["small"]).iter();
    let cells: Vec<_> = cells.filter(|cell| cell["way"] == way).collect();
    assert!(!cells.is_empty(), "{way}");
    cells
}

fn built_in(name: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    format!("{root}/src/hardware/sim/machines/{name}.toml")
}

#[test]
fn blocks_are_copied_in_three_ways_and_their_bytes_verified() {
    let report = blocks("h200x2", 0);
    for way in ["loop", "batch", "gather"] {
        // Five sizes; two pairs, and each GPU with the host both ways.
        let cells = of(&report, way);
        assert_eq!(cells.len(), 5 * 6, "{way}");
        for cell in cells {
            assert_eq!(cell["status"], "measured", "{cell}");
            assert_eq!(cell["verified"], "ok", "{cell}");
            assert!(cell["block_us"].as_f64().unwrap() > 0.0, "{cell}");
        }
    }
    assert_eq!(report["verdict"]["untested"], 0);
}

#[test]
fn one_gpu_copies_within_itself_and_with_the_host() {
    let report = blocks("single", 0);
    let loops = of(&report, "loop");
    assert_eq!(loops.len(), 5 * 3, "{loops:?}");
    assert!(
        loops
            .iter()
            .any(|cell| cell["source"] == cell["destination"])
    );
}

#[test]
fn a_driver_without_batch_calls_is_said_and_leaves_nothing_untested() {
    let text = std::fs::read_to_string(built_in("h200x2")).unwrap();
    assert!(text.contains("[host]"), "{text}");
    let older = text.replacen("[host]", "[host]\ncuda_version = \"12.4\"", 1);
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "older.toml", &older);
    let report = blocks(&path, 0);
    for cell in of(&report, "batch") {
        assert_eq!(cell["not_supported"], true, "{cell}");
        let reason = cell["reason"].as_str().unwrap();
        assert!(reason.contains("cuMemcpyBatchAsync"), "{cell}");
    }
    assert_eq!(report["verdict"]["untested"], 0);
}

#[test]
fn lost_blocks_are_an_error() {
    let report = blocks("writes-dropped", 1);
    assert!(codes(&report).contains(&"blocks-wrong"), "{report}");
    assert_eq!(report["veto"]["environment"][0]["name"], "NCCL_P2P_DISABLE");
}

#[test]
fn the_profile_standard_leaves_them_out_unless_they_are_named() {
    let standard = run(&[
        "check",
        "--machine",
        "h200x2",
        "--format",
        "json",
        "--no-journal",
    ]);
    let report = standard.json();
    assert_eq!(report["measurements"]["small"], Value::Null);
    let left_out = &report["request"]["probes_left_out"];
    assert!(
        list(left_out).is_empty() || left_out.is_null(),
        "{left_out}"
    );
}
