//! Scattered blocks, by the real program over simulated machines and over the fake driver.

use serde_json::Value;

use crate::common::{codes, finish, list, run, write};
use crate::fake::Fake;

/// Returns the report of a check of scattered blocks alone.
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
    assert!(loops.iter().any(|cell| cell["source"] == cell["destination"]));
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
}

/// Returns the report of the live code over the fake driver, with these faults. The fake moves real bytes of the host, one
/// word after the other, so the shorter rows of `full` are run, and a busy machine has time for them.
fn live(machine: &str, faults: &str, code: i32) -> Value {
    let fake = Fake::new(machine);
    let mut command = fake.command(&["check", "--only", "small", "--no-journal"]);
    command.args(["--profile", "full", "--deadline", "30", "--format", "json"]);
    let ran = finish(command.env(fake_machine::FAULTS, faults));
    assert_eq!(ran.code, Some(code), "{ran:?}");
    ran.json()
}

#[test]
fn the_live_code_copies_and_verifies_every_block() {
    let report = live("h200x2", "", 0);
    for way in ["loop", "batch", "gather"] {
        let cells = of(&report, way);
        assert_eq!(cells.len(), 5 * 6, "{way}");
        for cell in cells {
            assert_eq!(cell["status"], "measured", "{cell}");
            assert_eq!(cell["verified"], "ok", "{cell}");
        }
    }
    assert_eq!(report["verdict"]["untested"], 0);
}

/// Calls of a loop of 64 blocks before its last row: the row that is not counted, and two more, each after one copy.
const BEFORE_THE_LAST_ROW: u32 = 64 + 2 * 65;

/// Checks that a fault leaves one cell wrong, and returns it.
fn only_wrong(report: &Value) -> &Value {
    let cells = list(&report["measurements"]["small"]).iter();
    let wrong: Vec<_> = cells.filter(|cell| cell["verified"] != "ok").collect();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(codes(report).contains(&"blocks-wrong"), "{report}");
    wrong[0]
}

#[test]
fn one_block_that_is_lost_in_one_row_is_found() {
    for function in ["cuMemcpyPeerAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"] {
        let fault = format!("{function}@{}=skip", BEFORE_THE_LAST_ROW + 1 + 30);
        let report = live("h200x2", &fault, 1);
        let cell = only_wrong(&report);
        assert_eq!((&cell["way"], &cell["bytes"]), (&"loop".into(), &4096.into()));
        let detail = cell["verification_detail"].as_str().unwrap();
        assert!(detail.contains("4 KiB of 256 KiB"), "{function}: {detail}");
    }
}

#[test]
fn a_batch_that_is_lost_in_one_row_is_found() {
    // The first row is not counted, and the bytes of the fourth are checked.
    let report = live("h200x2", "cuMemcpyBatchAsync_v2@4=skip", 1);
    let cell = only_wrong(&report);
    assert_eq!(cell["way"], "batch", "{cell}");
}

#[test]
fn full_has_them_for_a_ring_of_gpus_and_for_the_host() {
    let full = ["check", "--machine", "h200x8", "--profile", "full"];
    let only = ["--skip", "peers,latency,overlap,pipeline,async,load,live,share"];
    let ran = run(&[&full[..], &only, &["--no-journal", "--format", "json"]].concat());
    let report = ran.json();
    let ends = |cell: &Value| (cell["source"].as_u64(), cell["destination"].as_u64());
    let mut flows: Vec<_> = of(&report, "loop").into_iter().map(ends).collect();
    flows.sort_unstable();
    flows.dedup();
    let ring = (0..8).map(|gpu| (Some(gpu), Some((gpu + 1) % 8)));
    let mut wanted: Vec<_> = ring.chain([(None, Some(0)), (Some(0), None)]).collect();
    wanted.sort_unstable();
    assert_eq!(flows, wanted);
    // Named, they have every pair.
    let named =
        run(&[&full[..], &["--only", "small", "--no-journal", "--format", "json"]].concat());
    assert_eq!(of(&named.json(), "loop").len(), 5 * (8 * 7 + 2 * 8));
}

#[test]
fn the_profile_standard_leaves_them_out_unless_they_are_named() {
    let standard = run(&["check", "--machine", "h200x2", "--format", "json", "--no-journal"]);
    let report = standard.json();
    assert_eq!(report["measurements"]["small"], Value::Null);
    let left_out = &report["request"]["probes_left_out"];
    assert!(list(left_out).is_empty() || left_out.is_null(), "{left_out}");
}
