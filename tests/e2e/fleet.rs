//! Tests of `peerscope fleet` over reports of simulated machines, from the command line to the exit code.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use serde_json::Value;

use crate::common::{check, golden, peerscope, run, text_of, with, write};

/// A report of a healthy machine of two GPUs.
static HEALTHY: LazyLock<String> = LazyLock::new(|| report("h200x2"));

/// A report of the machine that shows faults.
static FAULTY: LazyLock<String> = LazyLock::new(|| report("demo"));

fn report(machine: &str) -> String {
    run(&with(check(machine, "quick"), &["--format", "json"])).stdout
}

/// Changes the report's node.
fn named(report: &str, node: &str) -> String {
    let named = report.replace("\"hostname\": \"simulated\"", &format!("\"hostname\": \"{node}\""));
    assert_ne!(named, report);
    named
}

/// Creates a folder with a report of each of these nodes.
fn folder(healthy: &[&str], faulty: &[&str]) -> tempfile::TempDir {
    // A folder below TMPDIR would make line breaks depend on the length of its path.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    for (report, nodes) in [(&*HEALTHY, healthy), (&*FAULTY, faulty)] {
        for node in nodes {
            std::fs::write(folder.path().join(format!("{node}.json")), named(report, node))
                .unwrap();
        }
    }
    folder
}

fn fleet(folder: &Path, more: &[&str]) -> crate::common::Ran {
    let path = folder.to_string_lossy().into_owned();
    let args: Vec<&str> = ["fleet", &path].into_iter().chain(more.iter().copied()).collect();
    run(&args)
}

#[test]
fn faulty_nodes_are_named_and_make_the_exit_code() {
    let reports = folder(&["n1", "n2", "n3"], &["n4", "n5"]);
    let ran = fleet(reports.path(), &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let text = ran.flowing();
    for words in [
        "FAULTY: 2 of 5 nodes faulty, 0 inconclusive, 3 healthy",
        "pcie-narrow",
        "n[4-5]",
        "n[1-3]",
        "SIMULATED",
    ] {
        assert!(text.contains(words), "no '{words}' in {}", ran.stdout);
    }
    let json = fleet(reports.path(), &["--format", "json"]).json();
    assert_eq!(json["schema"], "peerscope.fleet/1");
    assert_eq!(
        (&json["verdict"]["faulty"], &json["verdict"]["exit_code"]),
        (&Value::from(2), &Value::from(1))
    );
    assert_eq!(json["nodes"].as_array().unwrap().len(), 5);
    assert_eq!(fleet(reports.path(), &["--exit-contract", "nagios"]).code, Some(2));
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let healthy = folder(&["n1", "n2"], &[]);
    assert_eq!(fleet(healthy.path(), &[]).code, Some(0));
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(fleet(empty.path(), &[]).code, Some(3), "nothing was read");
    assert_eq!(fleet(empty.path(), &["--exit-contract", "nagios"]).code, Some(3));
    assert_eq!(fleet(healthy.path(), &["--nodes", "n[1-3]"]).code, Some(3), "one is missing");
    assert_eq!(fleet(healthy.path(), &["--nodes", "n[1-"]).code, Some(2));
    assert_eq!(fleet(healthy.path(), &["--since", "/nowhere"]).code, Some(2));
    assert_eq!(
        fleet(healthy.path(), &["--machine", "demo"]).code,
        Some(2),
        "it looks at no machine"
    );
    assert_eq!(
        fleet(healthy.path(), &["--verbose", "--format", "json"]).code,
        Some(2),
        "JSON has all there is"
    );
    assert_eq!(run(&["fleet"]).code, Some(2));
    let (begin, _) = HEALTHY.split_once("\"measurements\": {").unwrap();
    std::fs::write(healthy.path().join("broken.json"), begin).unwrap();
    let ran = fleet(healthy.path(), &[]);
    assert_eq!(ran.code, Some(3), "a file is unreadable");
    assert!(ran.flowing().contains("broken.json is not JSON"), "{}", ran.stdout);
}

#[test]
fn missing_nodes_are_listed_as_slurm_writes_them() {
    let reports = folder(&["n01", "n02", "x7"], &[]);
    let json = fleet(reports.path(), &["--nodes", "n[01-12],n20", "--format", "json"]).json();
    assert_eq!(json["list"]["missing"], "n[03-12,20]");
    assert_eq!(
        (&json["list"]["missing_count"], &json["list"]["unexpected"]),
        (&Value::from(11), &Value::from("x7"))
    );
    let names = reports.path().join("names.txt");
    std::fs::write(&names, "n01\nn02\nn05\n").unwrap();
    let text = fleet(reports.path(), &["--nodes", &format!("@{}", text_of(&names))]).flowing();
    assert!(text.contains("1 of 3 nodes of the list have no report"), "{text}");
}

#[test]
fn a_list_of_reports_comes_on_standard_input() {
    let reports = folder(&["n1", "n2"], &["n3"]);
    let list: Vec<String> = ["n1", "n3"]
        .iter()
        .map(|name| text_of(&reports.path().join(format!("{name}.json"))))
        .collect();
    for end in ["\n", "\0"] {
        let mut child = peerscope(&["fleet", "-", "--format", "json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all((list.join(end) + end).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &json["read"]["reports"]), (Some(1), &Value::from(2)));
    }
}

#[test]
fn every_format_is_written_and_tables_are_exported() {
    let reports = folder(&["n1", "n2"], &["n3"]);
    let out = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = ["txt", "json", "html", "md", "xml", "prom"]
        .iter()
        .map(|end| out.path().join(format!("fleet.{end}")))
        .collect();
    let tables = out.path().join("tables");
    let mut args: Vec<String> =
        files.iter().flat_map(|file| ["-o".to_owned(), text_of(file)]).collect();
    args.extend(["--export".to_owned(), text_of(&tables)]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    assert_eq!(fleet(reports.path(), &args).code, Some(1));
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("n3"), "{}: {text}", file.display());
    }
    let documented =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fleet.md")).unwrap();
    for name in ["nodes", "gpus", "links", "cells", "findings"] {
        let text = std::fs::read_to_string(tables.join(format!("{name}.csv"))).unwrap();
        let columns = text.lines().next().unwrap();
        assert!(
            documented.contains(&format!("| `{name}` | `{columns}` |")),
            "docs/fleet.md: {name}: {columns}"
        );
        assert!(text.lines().count() > 1, "{name}");
    }
    for refused in ["line", "svg"] {
        assert_eq!(fleet(reports.path(), &["--format", refused]).code, Some(2), "{refused}");
    }
}

#[test]
fn what_is_different_since_an_earlier_file_is_shown() {
    let before = folder(&["n1", "n2", "n3"], &[]);
    let file = before.path().join("fleet.json");
    assert_eq!(fleet(before.path(), &["-o", &text_of(&file)]).code, Some(0));
    let after = folder(&["n1", "n4"], &["n2"]);
    let ran = fleet(after.path(), &["--since", &text_of(&file), "--format", "json"]);
    let changes = &ran.json()["changes"];
    assert_eq!(changes["verdicts"]["healthy to faulty"], "n2");
    assert_eq!(
        (&changes["new_nodes"], &changes["lost_nodes"]),
        (&Value::from("n4"), &Value::from("n3"))
    );
    assert_eq!(changes["appeared"]["pcie-narrow"], "n2");
    // The fleet file is in the folder with the reports and is not one.
    let again = fleet(before.path(), &["--since", &text_of(&file)]);
    assert_eq!(again.code, Some(0));
    assert!(again.flowing().contains("none"), "{}", again.stdout);
}

#[test]
fn of_several_reports_of_a_node_the_newest_counts() {
    let reports = folder(&["n1"], &[]);
    let older = named(&FAULTY, "n1").replacen("\"started_at\": \"20", "\"started_at\": \"19", 1);
    std::fs::write(reports.path().join("older.json"), older).unwrap();
    let ran = fleet(reports.path(), &["--history"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    let text = ran.flowing();
    assert!(text.contains("Nodes with several reports") && text.contains("pcie-narrow"), "{text}");
    assert!(!fleet(reports.path(), &[]).stdout.contains("pcie-narrow"));
    let page = reports.path().join("fleet.html");
    let ran = fleet(reports.path(), &["--history", "-o", page.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("Reports of each node over time") && page.matches("<g>").count() == 2,
        "{page}"
    );
}

#[test]
fn what_is_said_of_a_small_fleet() {
    let reports = folder(&["r1n1", "r1n2", "r1n3", "r1n4", "r2n1"], &["r2n2", "r2n3"]);
    // Cut at a place where the words of the error do not depend on the length of a report.
    let (begin, _) = HEALTHY.split_once(",\n  \"verdict\"").unwrap();
    std::fs::write(reports.path().join("broken.json"), begin).unwrap();
    let ran = fleet(reports.path(), &["--nodes", "r1n[1-4],r2n[1-4]"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let place = text_of(reports.path());
    // Remove the path of the files, the time, and the position at which the cut JSON ends.
    let made = redacted(&ran.stdout.replace(&place, "[reports]"));
    golden("fleet", &made);
}

/// Removes what differs from run to run.
fn redacted(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("made 20"));
    lines.map(|line| line.split(" at line ").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn round_trips_of_running_kernels_are_compared_with_those_of_the_fleet() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let reports = folder.path().join("reports");
    std::fs::create_dir(&reports).unwrap();
    for node in 1..=6 {
        // On one node, flags take a third longer: no rule judges that, since two GPUs have no other pair.
        let slow = "talk = [{ pairs = { both = [0, 1] }, fault = { slow = { times = 1.33 } } }]";
        let faults = if node == 4 { slow } else { "" };
        let noise = format!("noise = {{ percent = 0.5, seed = {node} }}");
        let text = format!("base = \"h200x2\"\n{noise}\nfaults = {{ {faults} }}\n");
        let machine = write(folder.path(), &format!("m{node}.toml"), &text);
        let args = ["check", "--machine", &machine, "--only", "live"];
        let ran = run(&[&args[..], &["--journal=none", "--format", "json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let name = format!("n{node}");
        // A fleet compares nodes that are described alike.
        let report = named(&ran.stdout, &name).replace(&machine, "described");
        write(&reports, &format!("{name}.json"), &report);
    }
    let json = fleet(&reports, &["--format", "json"]).json();
    let found = json["findings"].as_array().unwrap();
    let low: Vec<_> =
        found.iter().filter(|finding| finding["code"] == "fleet-figure-low").collect();
    let [one] = low.as_slice() else { panic!("{found:?}") };
    assert_eq!(one["nodes"], "n4", "{one}");
    // Both round trips and the loads, in each direction; loads from own memory and the host's are as elsewhere.
    assert_eq!(one["evidence"]["figures"], 6, "{one}");
    let message = one["message"].as_str().unwrap();
    assert!(message.contains("6 of 10 figures are slower"), "{message}");
    let figures = json["cohorts"][0]["figures"].as_array().unwrap();
    let of = |probe: &str| {
        let of = figures.iter().filter(|figures| figures["probe"] == probe);
        of.map(|figures| (figures["setup"].as_str().unwrap(), &figures["unit"])).collect::<Vec<_>>()
    };
    let us = Value::from("us");
    assert_eq!(of("live"), [("pushed flags", &us), ("pulled flags", &us)]);
    assert!(of("chase").iter().all(|(_, unit)| **unit == us), "{figures:?}");
}
