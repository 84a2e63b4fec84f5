//! Tests with reports of real hardware on which a fault was caused on purpose.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::{codes, list, run};

/// 8 x H200 without the driver's PTX compiler (`CUDA_DISABLE_PTX_JIT=1`).
const WITHOUT_KERNELS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x8-without-kernels.json");
/// 4 x H200, full profile, the worker killed with SIGKILL in the middle.
const WORKER_KILLED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x4-worker-killed.json");

#[test]
fn without_kernels_copies_are_measured_and_not_called_healthy() {
    let ran = run(&["diagnose", WITHOUT_KERNELS, "--format", "json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    let report = ran.json();
    // Another process had contexts on all GPUs during that run.
    assert_eq!(codes(&report), ["not-tested", "gpu-shared"]);
    let cells = list(&report["measurements"]["peer"]);
    assert_eq!(cells.len(), 8 * 56);
    for cell in cells {
        assert_eq!(
            (&cell["status"], &cell["verified"]),
            (&json!("measured"), &json!("inconclusive"))
        );
        let achieved = cell["achieved_gbps"].as_f64().unwrap();
        assert!(
            (394.0..=398.5).contains(&achieved),
            "the fallback gate measures the same: {achieved}"
        );
    }
}

#[test]
fn a_killed_worker_costs_one_pair() {
    let ran = run(&["diagnose", WORKER_KILLED, "--format", "json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report = ran.json();
    assert!(codes(&report).contains(&"copy-failed"), "{:?}", codes(&report));
    let measurements = &report["measurements"];
    let lost = |table: &str| -> BTreeSet<(u64, u64)> {
        let is_lost =
            |cell: &&Value| cell["status"] != "measured" && cell["direction"] != "both-ways";
        let ends = |cell: &Value| {
            (cell["source"].as_u64().unwrap(), cell["destination"].as_u64().unwrap())
        };
        list(&measurements[table]).iter().filter(is_lost).map(ends).collect()
    };
    for table in ["peer", "overlap", "latency"] {
        assert!(lost(table).is_subset(&BTreeSet::from([(1, 3)])), "{table}: {:?}", lost(table));
    }
    assert_eq!(lost("overlap").len(), 1);
    assert!(measurements["problems"][0].as_str().unwrap().contains("signal 9"));
}
