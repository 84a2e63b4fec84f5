//! Tests of hardware that nobody here has, over the fake driver. docs/dev/compatibility.md lists the classes.

use serde_json::Value;

use crate::common::{Ran, codes, finish, list};
use crate::fake::Fake;

/// Checks a machine of tests/cases as the live one.
fn live(case: &str, profile: &str, more: &[&str]) -> Ran {
    let fake = Fake::new(&format!("{}/tests/cases/{case}.toml", env!("CARGO_MANIFEST_DIR")));
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
    assert_eq!((&link["version"], &link["crc_errors"]), (&"5.0".into(), &Value::Null));
    assert!(link["recovery_errors"].as_u64() >= Some(505), "{link}");
    assert!(codes(&report).contains(&"nvlink-errors-rose"), "{ran:?}");
}

#[test]
fn gpus_before_volta_have_kernels() {
    let ran = live("healthy-p100-pair", "quick", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    assert_eq!(report["measurements"]["driver"]["kernels_failure"], Value::Null);
    assert!(list(&report["measurements"]["peer"]).iter().all(|cell| cell["verified"] == "ok"));
}

#[test]
fn gpus_without_kernels_are_told_so_and_not_to_update_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("k80.toml");
    let pascal = include_str!("../cases/healthy-p100-pair.toml");
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/bases");
    let kepler = pascal.replace("Pascal", "Kepler").replace("\"bases", &format!("\"{base}"));
    std::fs::write(&machine, kepler).unwrap();
    let fake = Fake::new(machine.to_str().unwrap());
    let ran = finish(&mut fake.command(&["check", "--profile", "quick", "--format", "json"]));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let report = ran.json();
    let why = report["measurements"]["driver"]["kernels_failure"].as_str().unwrap();
    assert_eq!(
        why,
        "this GPU has compute capability 3.5, and peerscope has kernels from 5.0 (Maxwell) on"
    );
}

/// Returns whether every copy of two GPUs was verified, and why the kernels were not loaded if they were not.
fn kernels(case: &str, cuda_version: &str, environment: &[(&str, &str)]) -> (bool, Value) {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("machine.toml");
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let text = std::fs::read_to_string(format!("{cases}/{case}.toml")).unwrap();
    let text = text.replace("\"bases", &format!("\"{cases}/bases"));
    let host = format!("host = {{ cuda_version = \"{cuda_version}\" }}\ngpus = [");
    std::fs::write(&machine, text.replace("gpus = [", &host)).unwrap();
    let fake = Fake::new(machine.to_str().unwrap());
    let args = ["check", "--profile", "quick", "--format", "json"];
    let report = finish(fake.command(&args).envs(environment.iter().copied())).json();
    let peers = list(&report["measurements"]["peer"]);
    (
        !peers.is_empty() && peers.iter().all(|cell| cell["verified"] == "ok"),
        report["measurements"]["driver"]["kernels_failure"].clone(),
    )
}

#[test]
fn native_images_need_no_compiler_and_ptx_is_the_fallback() {
    let (no_jit, no_native) = (("CUDA_DISABLE_PTX_JIT", "1"), ("CUDA_FORCE_PTX_JIT", "1"));
    let pair = "healthy-p100-pair";
    assert_eq!(kernels(pair, "12.2", &[no_jit]), (true, Value::Null));
    assert_eq!(kernels(pair, "12.2", &[no_native]), (true, Value::Null));
    // Drivers before CUDA 12 are given the PTX alone.
    assert_eq!(kernels(pair, "11.4", &[]), (true, Value::Null));
    for (version, without) in [("11.4", &[no_jit][..]), ("12.2", &[no_jit, no_native])] {
        let (verified, why) = kernels(pair, version, without);
        assert!(!verified, "{version}");
        assert!(why.as_str().unwrap().contains("JIT"), "{why}");
    }
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
    let ran = live("healthy-h200-guest-with-confidential-computing", "standard", &[]);
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
    let peers = list(&report["measurements"]["peer"]).iter().filter(verified);
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
    assert_eq!(list(&report["snapshot"]["numa_nodes"]).len(), 2, "they are facts");
}

#[test]
fn counters_of_nvlink_5_are_read() {
    let report = live("gb200-tray-whose-link-loses-packets", "quick", &[]).json();
    let errors = &report["snapshot"]["gpus"][2]["nvlinks"][5]["packet_errors"];
    assert_eq!(errors["bit_error_rate_log10"], -253.8239, "{errors}");
    let added = &report["measurements"]["links"][2]["nvlink_errors"][0];
    assert_eq!(
        (&added["link"], &added["packet"], &added["failed_recovery"]),
        (&5.into(), &3.into(), &1.into()),
        "{added}"
    );
    assert!(codes(&report).contains(&"nvlink-errors-rose"));
}

#[test]
fn symbols_that_nvlink_5_corrects_are_read_and_judged() {
    let case = "gb200-tray-whose-link-corrects-many-symbols";
    let report = live(case, "quick", &[]).json();
    let histogram = |gpu: usize, link: usize| {
        let link = &report["snapshot"]["gpus"][gpu]["nvlinks"][link];
        list(&link["fec_histogram"]).len()
    };
    assert_eq!(histogram(1, 9), 16, "the fields of NVML");
    let corrected = &report["measurements"]["links"][1]["nvlink_corrected"];
    let codewords = &corrected[0]["codewords"];
    assert_eq!(corrected[0]["link"], 9, "{corrected}");
    let added: Vec<_> = list(codewords)[1..].iter().map(Value::as_u64).collect();
    let wanted = [90_000, 4_100, 800, 120, 40, 12, 3, 1, 1].map(Some);
    assert_eq!(added, wanted, "{corrected}");
    let others = list(&report["measurements"]["links"]).iter();
    let others: Vec<_> = others.map(|link| link["nvlink_corrected"].clone()).collect();
    assert_eq!(others[0], Value::Array(Vec::new()), "counted, and none");
    assert!(codes(&report).contains(&"nvlink-margin-low"));
    // Hopper does not count them, which is not the same as none.
    let hopper = live("healthy-h100-nc-12-links", "quick", &[]).json();
    let link = &hopper["snapshot"]["gpus"][0]["nvlinks"][0];
    assert_eq!(link["unknown"]["fec_histogram"], "unsupported", "{link}");
    assert!(hopper["measurements"]["links"][0]["nvlink_corrected"].is_null());
}

#[test]
fn a_placeholder_of_a_pcie_link_is_not_judged_where_cuda_or_nvml_know_it() {
    for (case, integrated) in
        [("healthy-gb10-placeholder-link", true), ("healthy-gh200-placeholder-link", false)]
    {
        let ran = live(case, "standard", &["--only", "host"]);
        assert_eq!(ran.code, Some(0), "{case}: {ran:?}");
        let report = ran.json();
        let judged = codes(&report).into_iter().find(|code| code.starts_with("pcie"));
        assert_eq!(judged, None, "{case}");
        let attributes = &report["measurements"]["driver"]["devices"][0]["attributes"];
        assert_eq!(attributes["integrated"], integrated, "{case}");
        assert_eq!(attributes["host_page_tables"], !integrated, "{case}");
        let theories = list(&report["measurements"]["host"]).iter();
        let theories: Vec<_> = theories.map(|cell| &cell["theoretical_gbps"]).collect();
        assert!(theories.iter().all(|theory| theory.is_null()), "{case}");
    }
}

#[test]
fn memory_that_cuda_says_cannot_be_registered_is_not_tried_and_not_untested() {
    let case = "healthy-jetson-registers-no-memory";
    let ran = live(case, "full", &["--only", "host,async"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    assert_eq!(report["verdict"]["untested"], 0);
    let registered = list(&report["measurements"]["host"]).iter();
    let registered: Vec<_> = registered.filter(|cell| cell["memory"] == "registered").collect();
    assert!(!registered.is_empty());
    for cell in registered {
        assert_eq!(cell["not_supported"], true, "{cell}");
    }
}

#[test]
fn copy_engines_of_a_virtual_gpu_and_under_windows_are_not_judged() {
    for case in ["healthy-vgpu-shares-engines", "healthy-wsl-copies-in-turn"] {
        let report = live(case, "standard", &["--only", "host,pipeline"]).json();
        let engines = list(&report["measurements"]["engines"]);
        assert!(
            engines.iter().all(|cell| cell["observed"] == 1 && cell["reported"] == 3),
            "{case}: {engines:?}"
        );
        assert!(!codes(&report).contains(&"copy-engines-fewer"), "{case}");
        let vgpu = &report["snapshot"]["gpus"][0]["vgpu"];
        assert_eq!(*vgpu, case.contains("vgpu"), "{case}");
    }
}
