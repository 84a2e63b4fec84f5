//! Tests of what `check` measures after the plan, to tell explanations of its figures apart.

use serde_json::Value;

use crate::common::{Ran, finish, list, peerscope};

fn check(machine: &str, more: &[&str]) -> Ran {
    let args = ["check", "--journal=none", "--format", "json", "--machine", machine];
    finish(peerscope(&args).args(more))
}

fn case(name: &str) -> String {
    format!("{}/tests/cases/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

fn looks(report: &Value) -> &[Value] {
    report["measurements"]["second_looks"].as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn a_slow_gpu_is_measured_with_the_other_node_and_the_report_names_that() {
    let machine = case("numa-label-of-one-gpu-wrong");
    let ran = check(&machine, &["--profile", "standard"]);
    let report = ran.json();
    assert_eq!(looks(&report).len(), 2, "{ran:?}");
    let far = |copy: &&Value| copy["gpu"] == 1 && copy["numa_node"] == 1;
    let copies = list(&report["measurements"]["host"]).iter().filter(far);
    assert_eq!(copies.count(), 2);
    let findings = list(&report["findings"]).iter();
    let label = findings.filter(|one| one["code"] == "numa-label-wrong");
    let label: Vec<&Value> = label.collect();
    assert_eq!(label.len(), 1, "{ran:?}");

    let text =
        finish(&mut peerscope(&["check", "--journal=none", "--verbose", "--machine", &machine]));
    assert!(text.stdout.contains("second look"), "{text:?}");
}

#[test]
fn gpus_that_may_share_a_hop_are_copied_to_at_once() {
    let machine = case("hidden-uplink-above-two-slots");
    let ran = check(&machine, &["--profile", "standard"]);
    let report = ran.json();
    let flows = |look: &Value| list(&look["flows"]).len();
    assert!(looks(&report).iter().any(|look| flows(look) == 2), "{ran:?}");
    let patterns = list(&report["measurements"]["load"]).iter();
    let looked = patterns.filter(|load| load["pattern"] == "second-look");
    let looked: Vec<&Value> = looked.collect();
    assert_eq!(looked.len(), 1, "{ran:?}");
    let together = looked[0]["achieved_gbps"].as_f64().unwrap();
    assert!((5.0..8.0).contains(&together), "they share it: {together}");
    for (option, value) in [("--only", "peers"), ("--skip", "host")] {
        let ran = check(&machine, &["--profile", "standard", option, value]);
        assert_eq!(looks(&ran.json()).len(), 0, "{option} {value}");
    }
}

#[test]
fn a_healthy_machine_gets_no_second_look() {
    for machine in ["h200x2", "two-sockets", "vm-flat"] {
        let report = check(machine, &["--profile", "standard"]).json();
        assert_eq!(looks(&report).len(), 0, "{machine}");
        assert!(report["measurements"].get("second_looks").is_none());
    }
}
