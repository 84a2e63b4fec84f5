//! Text and findings of every built-in machine, as they were last looked at.
//!
//! `INSTA_UPDATE=always cargo test --test e2e golden` writes the files again; look at `git diff`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::{DEMO, H200X8, HARDWARE_REPORT, MACHINES, check, finish, peerscope, place, run, text_of, with};
use crate::shape::keys;

fn golden(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Takes out what differs from run to run: the version, and what a clock said.
fn redact(text: &str) -> String {
    let mut lines = Vec::new();
    let mut in_time = false;
    for line in text.lines() {
        in_time = line.starts_with("Time ") || (in_time && line.starts_with(' '));
        if line.starts_with("Time ") {
            lines.push("Time    [redacted]".to_owned());
        } else if let Some(run) = line.strip_prefix("Run ") {
            let profile = run.split(", ").find(|part| part.starts_with("profile ")).unwrap_or("no profile");
            lines.push(format!("Run     [version], {profile}, [time]"));
        } else if !in_time {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}

fn topo(machine: &str) {
    golden(&format!("{machine}-topo"), &redact(&run(&["topo", "--machine", machine]).stdout));
}

fn checked(machine: &str, profile: &str) {
    golden(&format!("{machine}-{profile}"), &redact(&run(&check(machine, profile)).stdout));
}

fn digested(machine: &str) {
    let report = run(&with(check(machine, "quick"), &["--format", "json"])).json();
    golden(&format!("{machine}-json"), &digest(&report));
}

/// Findings, verdict, and how many cells of each table ended how.
fn digest(report: &Value) -> String {
    let mut cells: BTreeMap<String, u32> = BTreeMap::new();
    for (table, rows) in report["measurements"].as_object().unwrap() {
        for row in rows.as_array().into_iter().flatten() {
            if let Some(status) = row.get("status").and_then(Value::as_str) {
                *cells.entry(format!("{table} {status}")).or_default() += 1;
            }
        }
    }
    let digest = json!({
        "cells": cells,
        "findings": report["findings"],
        "problems": report["measurements"]["problems"],
        "verdict": report["verdict"],
    });
    serde_json::to_string_pretty(&digest).unwrap()
}

macro_rules! every_machine {
    ($($test:ident: $machine:literal,)*) => {
        const COVERED: &[&str] = &[$($machine),*];

        mod topo_text {
            $(#[test] fn $test() { super::topo($machine); })*
        }
        mod quick_text {
            $(#[test] fn $test() { super::checked($machine, "quick"); })*
        }
        mod standard_text {
            $(#[test] fn $test() { super::checked($machine, "standard"); })*
        }
        mod quick_json {
            $(#[test] fn $test() { super::digested($machine); })*
        }
    };
}

every_machine! {
    h200x8: "h200x8",
    h200x2: "h200x2",
    a100x8: "a100x8",
    nvlink12: "nvlink12",
    nvl72: "nvl72",
    two_sockets: "two-sockets",
    pcie16: "pcie16",
    rtx4090x4: "rtx4090x4",
    rtx3090x4: "rtx3090x4",
    desktop: "desktop",
    vm_flat: "vm-flat",
    single: "single",
    none: "none",
    demo: "demo",
    h200x8_links_down: "h200x8-links-down",
    trains_down: "trains-down",
    writes_dropped: "writes-dropped",
    pair_hangs: "pair-hangs",
    crash: "crash",
    gpu_lost: "gpu-lost",
    fabric_down: "fabric-down",
    no_kernels: "no-kernels",
    exclusive: "exclusive",
    memory_full: "memory-full",
}

#[test]
fn no_machine_is_left_out() {
    let listed = run(&["machines"]).stdout;
    golden("machines", &listed);
    let listed: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert_eq!(listed, MACHINES);
    assert_eq!(listed, COVERED);
}

#[test]
fn the_demo_machine_in_a_browser() {
    let (_folder, file) = place("report.html");
    run(&with(check("demo", "standard"), &["-o", &text_of(&file)]));
    let page = std::fs::read_to_string(file).unwrap();
    let timed = |line: &&str| [">Time</dt>", ">Run</dt>", ", started "].iter().any(|word| line.contains(word));
    let (taken_out, kept): (Vec<_>, Vec<_>) = page.lines().partition(timed);
    assert_eq!(taken_out.len(), 3, "{taken_out:?}");
    golden("demo-html", &kept.join("\n"));
}

#[test]
fn the_keys_of_a_report() {
    // Below these, keys are data.
    let open = ["unknown", "evidence"];
    let mut all = keys(&DEMO, &open);
    all.extend(keys(&H200X8, &open));
    golden("keys", &all.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_hardware_report() {
    golden("hardware", &redact(&run(&["diagnose", HARDWARE_REPORT]).stdout));
    let narrow = finish(peerscope(&["diagnose", "--verbose", HARDWARE_REPORT]).env("COLUMNS", "80"));
    golden("hardware-verbose-80", &redact(&narrow.stdout));
}

#[test]
fn many_gpus_in_few_lines() {
    for (machine, most) in [("nvl72", 80), ("pcie16", 150)] {
        for command in ["topo", "check"] {
            for width in ["80", "140"] {
                let mut args = vec![command, "--machine", machine];
                args.extend(if command == "check" { &["--profile", "quick"][..] } else { &[] });
                let told = finish(peerscope(&args).env("COLUMNS", width)).stdout;
                assert!(told.lines().count() <= most, "{machine} {command} {width}: {} lines", told.lines().count());
                if width == "80" {
                    golden(&format!("{machine}-{command}-80"), &redact(&told));
                }
            }
        }
    }
}

#[test]
fn no_machine_is_told_in_lines_longer_than_the_terminal() {
    for machine in MACHINES {
        for width in [80, 140] {
            let told = finish(peerscope(&["topo", "--machine", machine]).env("COLUMNS", width.to_string())).stdout;
            let longest = told.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= width, "{machine}: {longest} of {width}");
        }
    }
    for line in run(&["machines"]).stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}
