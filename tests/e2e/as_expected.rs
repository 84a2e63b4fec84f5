//! Tests of the page for a machine without a fault: it says that the links are as they should be if every figure is that of a
//! healthy machine, and nothing was left out.

use std::fmt::Write;

use serde_json::Value;

use crate::common::{check, list, place, read_json, run, text_of, with, write};

/// Advice for a user with a slow program on a machine whose links are as they should be.
const HINT: &str = "look at software";

/// Describes 8 x H100 behind NVSwitch whose copies between GPUs all reach this share of the usual rate.
fn all_at(share: f64) -> String {
    let mut text =
        "summary = \"8 x H100\"\nnuma_nodes = [{ cpus = \"0-47\" }, { cpus = \"48-95\" }]\n"
            .to_owned();
    for gpu in 1..=8 {
        let node = usize::from(gpu > 4);
        writeln!(
            text,
            "[[pci]]\naddress = \"0000:{gpu}0:00.0\"\nmax = \"Gen5 x16\"\nnuma_node = {node}"
        )
        .unwrap();
    }
    for gpu in 1..=8 {
        writeln!(
            text,
            "[[gpus]]\nname = \"NVIDIA H100 80GB HBM3\"\narchitecture = \"Hopper\"\nmemory = \"80GiB\"\n\
             pci = \"0000:{gpu}0:00.0\"\nnvlinks = [{{ count = 18, version = \"4.0\", remote = \"switch\" }}]"
        )
        .unwrap();
    }
    text + &format!(
        "[[faults.pairs]]\npairs = \"all\"\nfault = {{ slow = {{ share = {share} }} }}\n"
    )
}

#[test]
fn a_machine_with_figures_below_a_healthy_one_is_not_called_as_it_should_be() {
    let (folder, html) = place("page.html");
    let machine = write(folder.path(), "slow.toml", &all_at(0.88));
    let html = html.to_str().unwrap();
    for more in [&["-o", html][..], &["--verbose"], &["--gpus", "0-3"], &["--skip", "load"]] {
        let ran = run(&with(check(&machine, "standard"), more));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let page = ran.flowing();
        assert!(!page.contains(HINT) && page.contains("(88% of healthy)"), "{page}");
    }
    let page = std::fs::read_to_string(html).unwrap();
    assert!(!page.contains(HINT) && page.contains("88% of healthy"), "{page}");
    let saved = write(folder.path(), "saved.html", &page);
    let again = run(&["diagnose", &saved]).flowing();
    assert!(!again.contains(HINT) && again.contains("(88% of healthy)"), "{again}");
}

/// Returns the lowest share of a healthy machine's rate among the figures that pairs, host copies and patterns are judged
/// by, per cent.
fn lowest(report: &Value) -> f64 {
    let plain = |cell: &Value| {
        let placement = &cell["placement"];
        ["source", "destination"].iter().all(|side| placement[side] == "side")
            && placement["host"] == "non-blocking"
            && (cell["issuer"] == "source" && cell["engine"] == "copy")
            && (cell["direction"] == "one-way" && cell["path"] == "direct")
    };
    let pinned = |copy: &Value| {
        (copy["memory"] == "pinned" && copy["engine"] == "copy")
            && (copy["allocation"] == "reused" && copy["at_once"] == 1)
            && copy["direction"] != "both-ways"
    };
    let all = &report["measurements"];
    let peer = list(&all["peer"]).iter().filter(|cell| plain(cell));
    let host = list(&all["host"]).iter().filter(|copy| pinned(copy));
    let shares = peer.chain(host).chain(list(&all["load"]));
    shares.filter_map(|cell| cell["healthy_percent"].as_f64()).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_hint_to_look_elsewhere_needs_figures_of_a_healthy_machine_and_no_finding() {
    let mut said = 0;
    for machine in
        ["h200x8", "h200x2", "a100x8", "pcie16", "two-sockets", "nvlink12", "rtx4090x4", "single"]
    {
        let (_folder, file) = place("report.json");
        let page = run(&with(check(machine, "standard"), &["-o", &text_of(&file)])).flowing();
        let report = read_json(&file);
        let is_fine = report["verdict"]["verdict"] == "healthy"
            && list(&report["findings"]).iter().all(|finding| finding["severity"] == "info")
            && list(&report["snapshot"]["gpus"]).len() > 1
            && list(&report["measurements"]["left_out"]).is_empty()
            && report["measurements"]["load"].as_array().is_some_and(|load| !load.is_empty())
            && lowest(&report) >= 95.0;
        assert_eq!(page.contains(HINT), is_fine, "{machine}, {}: {page}", lowest(&report));
        said += usize::from(is_fine);
    }
    assert!(said > 4, "{said}");
}

#[test]
fn the_hint_needs_all_of_the_machine_and_of_the_tests() {
    for more in [
        &["--profile", "quick"][..],
        &["--skip", "load"],
        &["--skip", "host"],
        &["--only", "peers"],
        &["--gpus", "0-3"],
    ] {
        let args = [&["check", "--machine", "h200x8"][..], more].concat();
        let page = run(&args).flowing();
        assert!(!page.contains(HINT), "{more:?}: {page}");
    }
}

/// Describes 8 x H100 on which copies from GPU 0 to GPU 5 deliver wrong bytes while a third copy runs.
fn wrong_beside_a_third() -> String {
    let healthy = all_at(1.0);
    let healthy = healthy.split("[[faults").next().unwrap();
    format!(
        "{healthy}[[faults.pairs]]\npairs = {{ ordered = [0, 5] }}\nbeside_third = true\nfault = {{ corrupt = {{ words = 1 }} }}\n"
    )
}

#[test]
fn a_flow_that_arrives_wrong_beside_others_is_named_first_and_alone() {
    let (folder, _) = place("x");
    let machine = write(folder.path(), "wrong.toml", &wrong_beside_a_third());
    let ran = run(&with(check(&machine, "standard"), &["--format", "json"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report = ran.json();
    let finding = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["code"] == "data-wrong");
    let finding = finding.unwrap();
    assert_eq!(finding["subject"]["kind"], "pair", "{finding}");
    assert_eq!(
        (finding["subject"]["source"].as_u64(), finding["subject"]["destination"].as_u64()),
        (Some(0), Some(5))
    );
    assert_eq!(finding["evidence"]["pairs"], serde_json::json!(["GPU 0 → GPU 5"]), "{finding}");
    assert!(finding["evidence"]["gpus"].is_null(), "{finding}");
    let beside = finding["evidence"]["beside"].as_array().unwrap();
    assert_eq!(beside.len(), 6, "{finding}");
    assert!(!beside.contains(&serde_json::json!("GPU 0 → GPU 5")), "{finding}");
    // The line of a terminal names pair and fault.
    let page = run(&check(&machine, "standard")).flowing();
    let line = "GPU 0 → GPU 5: bytes arrive wrong while other copies run [data-wrong]";
    assert!(page.contains(line), "{page}");
}
