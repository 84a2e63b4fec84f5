//! Decisions by the real program: `pick`, `order`, `what-if`, `export`, `check --flows` and `check --against`.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Ran, finish, peerscope, place, program_text, run, write};

/// Reports of machines with 1, 2, 8 and 16 GPUs, healthy and faulty, each checked once.
static REPORTS: LazyLock<(TempDir, Vec<(&str, String)>)> = LazyLock::new(|| {
    let (folder, _) = place("");
    let names = ["single", "h200x2", "h200x8", "demo", "two-sockets", "pcie16", "desktop"];
    let report = |name| {
        let path = folder.path().join(format!("{name}.json"));
        let path = path.to_str().unwrap().to_owned();
        // Patterns of sixteen GPUs take long.
        let groups = if name == "pcie16" { "peers,host" } else { "peers,host,load" };
        let check = ["check", "--machine", name, "--only", groups, "--brief", "-o"];
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

/// Asserts that the text fits a terminal of 80 columns.
fn assert_fits(args: &[&str]) {
    let ran = finish(peerscope(args).env("COLUMNS", "80"));
    let is_to_copy = |line: &&str| line.starts_with("export ") || line.ends_with(",\\");
    let wide =
        ran.stdout.lines().filter(|line| !is_to_copy(line)).find(|line| line.chars().count() > 80);
    assert_eq!((ran.code, wide), (Some(0), None), "{ran:?}");
}

#[test]
fn every_machine_has_a_pick_and_an_order() {
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
                let why = "8 GPUs wanted and 7 of 8 GPUs can be used; GPU 5 is left out";
                assert_sentence(&ran, 1, why);
                continue;
            }
            assert_eq!(ran.code, Some(0), "{name} {number}: {ran:?}");
            let found = ran.json();
            assert_eq!(found["schema"], "peerscope.pick/1");
            let picked = found["jobs"][0]["gpus"].as_array().unwrap().len();
            assert_eq!(picked.to_string(), number);
        }
        let half = (gpus / 2).max(1).to_string();
        assert_fits(&["pick", "-k", &half, path]);
        assert_fits(&["pick", "-k", &half, "--all", path]);
        let ran = run(&["order", path]);
        if gpus == 1 {
            assert_sentence(&ran, 2, "one GPU has no order");
        } else {
            assert_fits(&["order", path]);
            let found = run(&["order", path, "--format", "json"]).json();
            assert_eq!(found["ring"]["gpus"].as_array().unwrap().len(), gpus, "{found}");
            let bus = |order: &str| found[order]["ring_bus_gbps"].as_f64().unwrap();
            assert!(bus("ring") >= bus("natural"), "{found}");
        }
    }
}

#[test]
fn the_narrow_gpu_is_left_out_and_the_socket_is_kept_together() {
    let found = run(&["pick", "-k", "4", report("demo"), "--format", "json"]).json();
    assert_eq!(found["left_out"][0]["gpu"], 5, "{found}");
    assert!(found["left_out"][0]["why"].as_str().unwrap().contains("[pcie-narrow]"), "{found}");
    let mut gpus: Vec<u64> = serde_json::from_value(found["jobs"][0]["gpus"].clone()).unwrap();
    gpus.sort_unstable();
    assert_eq!(gpus, [0, 1, 2, 3], "{found}");
    assert_eq!(found["jobs"][0]["ranks"][0]["adapters"][0], "mlx5_0", "{found}");
    let all = run(&["pick", "-k", "4", "--all", report("two-sockets"), "--format", "json"]).json();
    let jobs = all["jobs"].as_array().unwrap();
    let nodes: Vec<&Value> = jobs.iter().map(|job| &job["numa_nodes"]).collect();
    assert_eq!(nodes, [1, 1], "{all}");
}

#[test]
fn a_shell_evaluates_the_pick_and_stops_without_one() {
    let shell = |number: &str, more: &str| {
        let line = format!(
            "set -e; eval \"$({} pick -k {number} --shell {more} {})\"; \
             echo \"$CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES $PEERSCOPE_NUMA_NODES\" $PEERSCOPE_JOB_1",
            program_text(),
            report("demo")
        );
        finish(Command::new("sh").args(["-c", &line]))
    };
    let ran = shell("2", "");
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert_eq!((ran.code, words[0], words[2]), (Some(0), "PCI_BUS_ID", "0,0"), "{ran:?}");
    assert_eq!(words[1].matches("GPU-").count(), 2, "{ran:?}");
    let ran = shell("8", "");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let ran = shell("3", "--all");
    assert_eq!(ran.stdout.matches("GPU-").count(), 3, "{ran:?}");
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
fn the_jobs_of_a_machine_are_counted_also_if_there_is_one() {
    let ran = run(&["pick", "-k", "4", "--all", "--shell", report("demo")]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("export PEERSCOPE_JOBS=1\nexport PEERSCOPE_JOB_0=GPU-"), "{ran:?}");
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
        for more in ["--shell", "--all --shell", ""] {
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
fn what_if_says_what_a_repair_brings_and_which_finding_it_answers() {
    let fixed =
        run(&["what-if", report("demo"), "--fix", "pcie-narrow", "--format", "json"]).json();
    let codes = |of: &Value| -> Vec<String> {
        let codes = of
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| finding["code"].as_str().unwrap().to_owned());
        codes.collect()
    };
    assert!(codes(&fixed["answers"]).contains(&"pcie-narrow".to_owned()), "{fixed}");
    assert!(codes(&fixed["raises"]).is_empty(), "{fixed}");
    let after =
        |of: &Value| of["after_gbps"].as_f64().unwrap() / of["before_gbps"].as_f64().unwrap();
    assert!(after(&fixed["all_reduce"]) > 2.0, "{fixed}");
    // The same by the link itself.
    let trained =
        run(&["what-if", report("demo"), "--link", "GPU5=GEN4x16", "--format", "json"]).json();
    assert_eq!(trained["pairs"], fixed["pairs"]);
    // Another card in the slow slot has its rates.
    let moved = run(&["what-if", report("demo"), "--move", "5=8", "--format", "json"]).json();
    assert!(codes(&moved["raises"]).contains(&"pcie-narrow".to_owned()), "{moved}");
    for args in [
        &["--without", "5"][..],
        &["--move", "5=8"],
        &["--fix", "peer-access-missing"],
        &["--fix", "pcie-narrow:5", "--without", "1"],
    ] {
        let line = [&["what-if", report("demo")], args].concat();
        assert_fits(&line);
    }
    assert_fits(&["what-if", report("h200x8"), "--without", "3"]);
    assert_fits(&["what-if", report("pcie16"), "--link", "GPU 3=GEN4x8"]);
    assert_fits(&["what-if", report("single"), "--link", "0=GEN3x16"]);
}

#[test]
fn a_finding_says_what_its_repair_would_bring() {
    let ran = run(&["diagnose", report("demo"), "--format", "json"]).json();
    let finding = ran["findings"].as_array().unwrap().iter();
    let narrow = finding.clone().find(|finding| finding["code"] == "pcie-narrow").unwrap();
    let line = narrow["would_bring"].as_str().unwrap();
    assert!(line.starts_with("GPU 5 with 7 GPUs 5.7 to ") && line.len() < 120, "{line}");
    assert!(run(&["diagnose", report("demo")]).flowing().contains(&format!("brings {line}")));
}

#[test]
fn flows_of_the_user_are_measured_beside_their_prediction() {
    let flows = "0>1, 2>3, host0>4";
    let ran = run(&[
        "check",
        "--machine",
        "two-sockets",
        "--profile",
        "quick",
        "--flows",
        flows,
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let report = ran.json();
    let load = report["measurements"]["load"].as_array().unwrap();
    assert_eq!(
        (load.len(), &load[0]["pattern"]),
        (1, &Value::from("given")),
        "quick has no other pattern"
    );
    let given = load[0]["flows"].as_array().unwrap();
    assert_eq!(given.len(), 3);
    for flow in given {
        let (achieved, expected) =
            (flow["achieved_gbps"].as_f64().unwrap(), flow["expected_gbps"].as_f64().unwrap());
        assert!((0.9..1.1).contains(&(achieved / expected)), "{flow}");
    }
    assert_eq!(given[2]["from"]["host"]["node"], 0);
    let folder = place("").0;
    let path = write(folder.path(), "given.json", &ran.stdout);
    for more in [&[][..], &["--verbose"]] {
        let text = run(&[&["diagnose", &path], more].concat()).stdout;
        let (_, table) = text.split_once("The flows as given, all at once").unwrap();
        let rows: Vec<&str> = table.lines().skip(2).take(3).collect();
        for (row, name) in rows.iter().zip([
            "GPU 0 → GPU 1",
            "GPU 2 → GPU 3",
            "pinned host memory of NUMA node 0 → GPU 4",
        ]) {
            assert!(row.trim_start().starts_with(name), "{text}");
            let share: f64 = row.split_whitespace().last().unwrap().parse().unwrap();
            assert!((90.0..110.0).contains(&share), "{row}");
        }
    }
    // A refused pair is reported, and is no success.
    let ran = run(&[
        "check",
        "--machine",
        "demo",
        "--profile",
        "quick",
        "--flows",
        "1>6,0>2",
        "--format",
        "json",
    ]);
    let load = &ran.json()["measurements"]["load"][0];
    assert_eq!(load["status"], "skipped");
    assert!(load["reason"].as_str().unwrap().contains("may not reach"), "{load}");
    // Beside the patterns of a profile that has some.
    let ran = run(&["check", "--machine", "h200x2", "--flows", "0>1,host>0", "--format", "json"]);
    let load = ran.json()["measurements"]["load"].clone();
    assert!(load.as_array().unwrap().len() > 1, "{load}");
    let text = run(&["check", "--machine", "h200x2", "--profile", "quick", "--flows", "0>1,1>0"]);
    assert!(text.stdout.contains("as given"), "{text:?}");
}

#[test]
fn the_exported_topology_is_that_of_the_machine_and_another_one_is_not() {
    let (folder, _) = place("");
    let exported = run(&["export", "nccl-topo", "--machine", "demo"]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert_eq!(run(&["export", "nccl-topo", report("demo")]).stdout, exported.stdout);
    let topo = write(folder.path(), "topo.xml", &exported.stdout);
    let quick = ["check", "--machine", "demo", "--profile", "quick"];
    let ran = run(&[&quick[..], &["--against", &topo, "--format", "json"]].concat());
    let against = ran.json()["against"].clone();
    assert_eq!(
        (&against["kind"], &against["differences"]),
        (&Value::from("topology"), &serde_json::json!([]))
    );
    let wide = exported.stdout.replace("link_width=\"4\"", "link_width=\"16\"");
    let wide = write(folder.path(), "wide.xml", &wide);
    let text = run(&[&quick[..], &["--against", &wide]].concat());
    assert!(
        text.flowing().contains("costs NCCL plans with 31.5 GB/s where the link carries 7.9"),
        "{text:?}"
    );
    assert_eq!(run(&["export", "nccl-topo", "--machine", "none"]).code, Some(2));
}

#[test]
fn what_cannot_be_decided_is_a_sentence() {
    let (folder, _) = place("");
    let topo = folder.path().join("topo.json").to_str().unwrap().to_owned();
    run(&["topo", "--machine", "h200x2", "-o", &topo]);
    let text = write(folder.path(), "text.xml", "no xml");
    let demo = report("demo");
    for (args, code, part) in [
        (&["pick", "-k", "9", demo][..], 2, "-k 9: the machine has 8 GPUs"),
        (&["pick", "-k", "2", &topo], 3, "the report is one of 'topo'"),
        (&["order", &topo], 3, "the report is one of 'topo'"),
        (&["what-if", &topo, "--without", "0"], 3, "the report is one of 'topo'"),
        (&["pick", "-k", "2", "/nowhere.json"], 2, "/nowhere.json"),
        (
            &["pick", "-k", "2", "--machine", "demo", demo],
            2,
            "--machine has no effect on a saved report",
        ),
        (&["order", "--gpus", "0", demo], 2, "--gpus has no effect on a saved report"),
        (&["what-if", demo, "--without", "9"], 2, "there is no GPU 9"),
        (&["what-if", report("single"), "--without", "0"], 2, "no GPU would be left"),
        (&["what-if", demo, "--fix", "nonsense"], 2, "no such finding; it has"),
        (&["what-if", demo, "--move", "5=nowhere"], 2, "can only change places"),
        (&["check", "--machine", "h200x2", "--flows", "0>1"], 2, "give two or more"),
        (&["check", "--machine", "h200x2", "--flows", "0>1,0>7"], 2, "no GPU 7"),
        (
            &["check", "--machine", "h200x2", "--flows", "0>1,1>0", "--only", "peers"],
            2,
            "probe group load",
        ),
        (
            &["check", "--machine", "h200x2", "--against", &text],
            2,
            "is no topology or graph of NCCL",
        ),
        (&["pick", "-k", "2", "--machine", "none"], 3, "no figures"),
    ] {
        assert_sentence(&run(args), code, part);
    }
    // What clap itself refuses.
    for args in [
        &["pick", demo][..],
        &["pick", "-k", "0", demo],
        &["what-if", demo],
        &["what-if", demo, "--link", "5=x16"],
        &["what-if", demo, "--bridge", "1"],
        &["export", "nonsense"],
        &["check", "--flows", "a>b,0>1"],
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
    }
}

#[test]
fn without_a_report_the_machine_is_measured() {
    let ran = run(&["pick", "-k", "2", "--machine", "h200x2", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.json()["machine"], "h200x2");
    let some = run(&["order", "--machine", "two-sockets", "--gpus", "0-3", "--format", "json"]);
    assert_eq!(some.json()["natural"]["gpus"], serde_json::json!([0, 1, 2, 3]));
}
