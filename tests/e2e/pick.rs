//! `pick` by the real program.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Ran, finish, place, program_text, run, write};

/// Reports of machines with 1, 2, 8 and 16 GPUs, healthy and faulty, each checked once.
static REPORTS: LazyLock<(TempDir, Vec<(&str, String)>)> = LazyLock::new(|| {
    let (folder, _) = place("");
    let names = ["single", "h200x2", "h200x8", "demo", "two-sockets", "pcie16", "desktop"];
    let report = |name| {
        let path = folder.path().join(format!("{name}.json"));
        let path = path.to_str().unwrap().to_owned();
        // Patterns of sixteen GPUs take long.
        let groups = if name == "pcie16" { "peers,host" } else { "peers,host,load" };
        let check = ["check", "--machine", name, "--only", groups, "-o"];
        let ran = run(&[&check[..], &[&path]].concat());
        assert!(ran.code == Some(0) || ran.code == Some(1), "{name}: {ran:?}");
        (name, path)
    };
    let reports = names.map(report).to_vec();
    (folder, reports)
});

fn report(name: &str) -> &'static str {
    let (_, path) = REPORTS.1.iter().find(|(known, _)| *known == name).unwrap();
    path
}

fn assert_sentence(ran: &Ran, code: i32, part: &str) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.starts_with("peerscope: ") && ran.stderr.contains(part), "{ran:?}");
}

#[test]
fn every_machine_has_a_pick() {
    for (name, path) in &REPORTS.1 {
        let gpus = match *name {
            "single" => 1,
            "h200x2" | "desktop" => 2,
            "pcie16" => 16,
            _ => 8,
        };
        for number in BTreeSet::from([1, (gpus / 2).max(1), gpus]) {
            let number = number.to_string();
            let ran = run(&["pick", "-k", &number, path, "--format", "json"]);
            if number == gpus.to_string() && *name == "demo" {
                let why = "8 GPUs wanted and 7 of 8 GPUs can be used together; GPU 5 is left out";
                assert_sentence(&ran, 1, why);
                continue;
            }
            assert_eq!(ran.code, Some(0), "{name} {number}: {ran:?}");
            let found = ran.json();
            assert_eq!(found["schema"], "peerscope.pick/1");
            assert_eq!(found["gpus"].as_array().unwrap().len().to_string(), number);
        }
    }
}

#[test]
fn the_narrow_gpu_is_left_out_and_the_socket_is_kept_together() {
    let found = run(&["pick", "-k", "4", report("demo"), "--format", "json"]).json();
    assert_eq!(found["left_out"][0]["gpu"], 5, "{found}");
    assert!(found["left_out"][0]["why"].as_str().unwrap().contains("[pcie-narrow]"), "{found}");
    assert_eq!(found["gpus"], serde_json::json!([0, 1, 2, 3]), "{found}");
    let text = run(&["pick", "-k", "4", report("demo")]).stdout;
    assert!(
        text.starts_with("GPU 0 1 2 3\n  slowest pair  ") && text.contains("[pcie-narrow]"),
        "{text}"
    );
}

#[test]
fn a_shell_evaluates_the_pick_and_stops_without_one() {
    let shell = |number: &str, more: &str| {
        let line = format!(
            "set -e; eval \"$({} pick -k {number} --shell {more} {})\"; \
             echo \"$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES\"",
            program_text(),
            report("demo")
        );
        finish(Command::new("sh").args(["-c", &line]))
    };
    let ran = shell("2", "");
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert_eq!((ran.code, words[0], words.len()), (Some(0), "PCI_BUS_ID", 2), "{ran:?}");
    assert_eq!(words[1].matches("GPU-").count(), 2, "{ran:?}");
    let ran = shell("8", "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    // A command line that is refused ends the script too.
    for (number, more) in [
        ("0", ""),
        ("''", ""),
        ("2", "--nosuch"),
        ("2", "--shel"),
        ("2", "--machine nosuch"),
        ("2", "nosuch.json"),
    ] {
        let ran = shell(number, more);
        assert_eq!(ran.stdout, "", "{number} {more}: {ran:?}");
        assert_ne!(ran.code, Some(0), "{number} {more}: {ran:?}");
    }
}

#[test]
fn nothing_of_a_report_runs_in_a_shell_that_evaluates_it() {
    let (folder, canary) = place("canary");
    let mut all: Value =
        serde_json::from_str(&std::fs::read_to_string(report("demo")).unwrap()).unwrap();
    for hostile in [
        "$(touch CANARY)",
        "`touch CANARY`",
        "; touch CANARY",
        "'; touch CANARY; '",
        "\ntouch CANARY\n",
    ] {
        let hostile = hostile.replace("CANARY", canary.to_str().unwrap());
        for gpu in all["snapshot"]["gpus"].as_array_mut().unwrap() {
            gpu["uuid"] = hostile.clone().into();
        }
        let file = write(folder.path(), "hostile.json", &all.to_string());
        for more in ["--shell", ""] {
            // Of the text for people, the lines to copy.
            let line = format!(
                "eval \"$({} pick -k 2 {more} {file} | grep -A9 ^export)\"",
                program_text()
            );
            let ran = finish(Command::new("sh").args(["-c", &line]));
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
            assert!(!canary.exists(), "{hostile}: {ran:?}");
        }
    }
}

#[test]
fn what_cannot_be_picked_is_a_sentence() {
    let (folder, _) = place("");
    let topo = folder.path().join("topo.json").to_str().unwrap().to_owned();
    run(&["topo", "--machine", "h200x2", "-o", &topo]);
    let demo = report("demo");
    for (args, code, part) in [
        (&["pick", "-k", "9", demo][..], 2, "-k 9: the machine has 8 GPUs"),
        (&["pick", "-k", "2", &topo], 3, "no rate of a copy between GPUs"),
        (&["pick", "-k", "2", "/nowhere.json"], 2, "/nowhere.json"),
        (&["pick", "-k", "2", "--machine", "demo", demo], 2, "--machine has no effect on pick"),
    ] {
        assert_sentence(&run(args), code, part);
    }
    // What clap itself refuses.
    for args in [&["pick", demo][..], &["pick", "-k", "0", demo], &["pick", "-k", "2"]] {
        let ran = run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
    }
}
