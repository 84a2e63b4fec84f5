//! Tests of hardware that nobody here has, over the fake driver. docs/compatibility.md lists the classes.

use serde_json::Value;

use crate::common::{Ran, codes, finish, list};
use crate::fake::Fake;

/// Checks a machine of tests/cases as the live one.
fn live(case: &str, profile: &str, more: &[&str]) -> Ran {
    let fake = Fake::new(&format!(
        "{}/tests/cases/{case}.toml",
        env!("CARGO_MANIFEST_DIR")
    ));
    let args = ["check", "--profile", profile, "--format", "json"];
    finish(fake.command(&args).args(more))
}

/// Returns the measurements of a kind that have no figure, with their reasons.
fn without<'r>(report: &'r Value, kind: &str) -> Vec<&'r str> {
    let cells = list(&report["measurements"][kind]).iter();
    cells
        .filter(|cell| cell["status"] != "measured")
        .map(|cell| cell["reason"].as_str().unwrap())
        .collect()
}

#[test]
fn recoveries_of_nvlink_5_are_counted_although_it_has_no_flits() {
    let ran = live("gb200-tray-whose-link-14-recovers", "quick", &[]);
    let report = ran.json();
    let link = &report["snapshot"]["gpus"][0]["nvlinks"][14];
    assert_eq!(
        (&link["version"], &link["crc_errors"]),
        (&"5.0".into(), &Value::Null)
    );
    assert!(link["recovery_errors"].as_u64() >= Some(505), "{link}");
    assert!(codes(&report).contains(&"nvlink-errors-rose"), "{ran:?}");
}

#[test]
fn gpus_before_volta_have_kernels() {
    let ran = live("healthy-p100-pair", "quick", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    assert_eq!(
        report["measurements"]["driver"]["kernels_failure"],
        Value::Null
    );
    assert!(
        list(&report["measurements"]["peer"])
            .iter()
            .all(|cell| cell["verified"] == "ok")
    );
}

#[test]
fn gpus_without_kernels_are_told_so_and_not_to_update_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("k80.toml");
    let pascal = include_str!("../cases/healthy-p100-pair.toml");
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/bases");
    let kepler = pascal
        .replace("Pascal", "Kepler")
        .replace("\"bases", &format!("\"{base}"));
    std::fs::write(&machine, kepler).unwrap();
    let fake = Fake::new(machine.to_str().unwrap());
    let ran = finish(&mut fake.command(&["check", "--profile", "quick", "--format", "json"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    let why = report["measurements"]["driver"]["kernels_failure"]
        .as_str()
        .unwrap();
    assert_eq!(
        why,
        "this GPU has compute capability 3.5, and peerscope has kernels from 5.0 (Maxwell) on"
    );
}

#[test]
fn a_mig_instance_is_not_measured_as_its_gpu() {
    let ran = live("a100-cuda-shows-one-instance", "standard", &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    let device = &report["measurements"]["driver"]["devices"][0];
    let why = device["failure"].as_str().unwrap();
    assert!(why.contains("one instance of this GPU (MIG-"), "{why}");
    for kind in ["peer", "host", "local"] {
        let cells = report["measurements"][kind].as_array();
        assert!(cells.is_none_or(Vec::is_empty), "{kind}");
    }
}

#[test]
fn confidential_computing_gates_nothing_and_leaves_the_verdict_complete() {
    let ran = live(
        "healthy-h200-guest-with-confidential-computing",
        "standard",
        &[],
    );
    let report = ran.json();
    assert_eq!(report["verdict"]["untested"], 0, "{ran:?}");
    for kind in ["peer", "host", "latency", "overlap", "load"] {
        for why in without(&report, kind) {
            assert!(
                why.contains("confidential computing is on") || why.contains("cuMemHostRegister"),
                "{kind}: {why}"
            );
        }
    }
    let verified = |cell: &&Value| cell["verified"] == "ok" && cell["status"] == "measured";
    let peers = list(&report["measurements"]["peer"])
        .iter()
        .filter(verified);
    assert!(peers.count() >= 56, "one way between every pair");
}

#[test]
fn memory_of_a_gpu_is_no_node_of_the_host() {
    let ran = live("healthy-gh200-memory-nodes", "full", &["--only", "host"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    let nodes = list(&report["measurements"]["host"]).iter();
    let others: Vec<_> = nodes.filter(|cell| cell["numa_node"] != 0).collect();
    assert_eq!(others, Vec::<&Value>::new());
    assert_eq!(
        list(&report["snapshot"]["numa_nodes"]).len(),
        2,
        "they are facts"
    );
}
