//! Tests of figures of host and GPU in expectations and comparisons. Slower figures are found, scattered ones are not,
//! and figures that one side lacks are reported.

use serde_json::{Value, json};

use crate::common::{
    Ran, check, codes, every_cell, list, place, read_json, run, text_of, with, write, write_json,
};

/// A report from 4 x H200 with every figure of host and GPU.
const FULL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x4-full.json");

fn compare(old: &str, new: &str, more: &[&str]) -> Ran {
    run(&with(vec!["compare".into(), old.into(), new.into()], more))
}

/// Writes the report with this change to a file in this folder.
fn changed(folder: &std::path::Path, name: &str, change: impl Fn(&mut Value)) -> String {
    let mut report = read_json(FULL);
    change(&mut report);
    write_json(folder, name, &report)
}

fn each(report: &mut Value, probe: &str, change: impl Fn(&mut Value)) {
    report["measurements"][probe].as_array_mut().unwrap().iter_mut().for_each(change);
}

/// Multiplies a figure.
fn times(cell: &mut Value, key: &str, by: f64) {
    if let Some(figure) = cell[key].as_f64() {
        cell[key] = json!(figure * by);
    }
}

fn scale_copies(report: &mut Value, by: impl Fn(&Value) -> f64) {
    each(report, "host", |copy| {
        let by = by(copy);
        ["achieved_gbps", "to_device_gbps", "to_host_gbps"]
            .iter()
            .for_each(|key| times(copy, key, by));
    });
}

fn scale_pipelines(report: &mut Value, by: impl Fn(&Value) -> f64) {
    each(report, "pipeline", |cell| {
        let by = by(cell);
        ["one_stream_us", "several_streams_us"].iter().for_each(|key| times(cell, key, 1.0 / by));
    });
}

/// Returns the findings of this rule.
fn of<'a>(report: &'a Value, code: &str) -> Vec<&'a Value> {
    list(&report["findings"]).iter().filter(|finding| finding["code"] == code).collect()
}

/// Applies the largest difference between runs of healthy machines (docs/dev/method.md).
fn noise(report: &mut Value) {
    scale_copies(report, |copy| {
        let shared = copy["direction"] == "both-ways" || copy["at_once"].as_u64().unwrap() > 1;
        match (copy["memory"].as_str(), copy["allocation"].as_str()) {
            (Some("pageable"), _) | (_, Some("anew")) => 0.4,
            _ if shared => 0.8,
            _ => 0.98,
        }
    });
    scale_pipelines(report, |cell| if cell["memory"] == "pageable" { 0.4 } else { 0.8 });
    each(report, "calls", |call| times(call, "host_blocked_us", 3.5));
    each(report, "launch_loop", |cell| times(cell, "turn_us", 2.0));
}

#[test]
fn a_slower_slot_is_one_finding() {
    let (folder, _) = place("x");
    let new = changed(folder.path(), "new.json", |report| {
        let share = |cell: &Value| if cell["gpu"] == 2 { 0.9 } else { 1.0 };
        scale_copies(report, share);
        scale_pipelines(report, share);
    });
    let ran = compare(FULL, &new, &["--format", "json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let comparison = ran.json();
    let [fell] = of(&comparison, "fell-since-baseline")[..] else { panic!("{comparison:#}") };
    assert_eq!(
        (&fell["subject"], &fell["severity"]),
        (&json!({"kind": "gpu", "index": 2}), &json!("error"))
    );
    let message = fell["message"].as_str().unwrap();
    assert!(
        message.contains("between the host and GPU 2") && message.contains("10.0%"),
        "{message}"
    );
    let fall = fell["evidence"]["fall_percent"].as_f64().unwrap();
    assert!((9.9..10.1).contains(&fall), "{fell}");
    // Compared the other way, the figure rose, which is information.
    let back = compare(&new, FULL, &[]);
    assert!(back.code == Some(0) && back.flowing().contains("figures rose"), "{back:?}");
    // Expectations and the options of diagnose give the same result.
    let expected = write(folder.path(), "expect.toml", &run(&["expect", FULL]).stdout);
    let judged = run(&["diagnose", &new, "--expect", &expected, "--format", "json"]);
    assert_eq!(judged.code, Some(1), "{judged:?}");
    let report = judged.json();
    let [unmet] = of(&report, "expectation-unmet")[..] else { panic!("{report:#}") };
    assert_eq!(unmet["subject"], json!({"kind": "gpu", "index": 2}));
    assert!(unmet["message"].as_str().unwrap().contains(", expected "), "{unmet}");
    let judged = run(&["diagnose", &new, "--baseline", FULL, "--format", "json"]);
    assert!(
        judged.code == Some(1) && codes(&judged.json()).contains(&"fell-since-baseline"),
        "{judged:?}"
    );
}

#[test]
fn what_the_memory_of_the_host_scatters_by_is_not_reported() {
    let (folder, _) = place("x");
    let new = changed(folder.path(), "new.json", noise);
    let ran = compare(FULL, &new, &["--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(of(&ran.json(), "fell-since-baseline"), [&Value::Null; 0]);
    let expected = write(folder.path(), "expect.toml", &run(&["expect", FULL]).stdout);
    let judged = run(&["diagnose", &new, "--expect", &expected, "--format", "json"]);
    assert_eq!(judged.code, Some(0), "{judged:?}");
    let report = judged.json();
    assert!(codes(&report).iter().all(|code| !code.starts_with("expectation")), "{report:#}");
}

#[test]
fn what_depends_on_the_host_fell_as_a_warning_in_words_of_its_own() {
    let (folder, _) = place("x");
    type Change = fn(&mut Value);
    let cases: [(Change, &str, &str); 4] = [
        (
            |report| {
                scale_copies(
                    report,
                    |copy| {
                        if copy["at_once"].as_u64().unwrap() > 1 { 0.5 } else { 1.0 }
                    },
                )
            },
            "Copies between the host and all GPUs fell 50.0%",
            "4 GPUs at once",
        ),
        (
            |report| {
                scale_copies(report, |copy| if copy["memory"] == "pageable" { 0.2 } else { 1.0 })
            },
            "fell 80.0%",
            "pageable, to",
        ),
        (
            |report| {
                scale_pipelines(report, |cell| if cell["memory"] == "pinned" { 0.5 } else { 1.0 })
            },
            "fell 50.0%",
            "pipeline of 8 batches in",
        ),
        (
            |report| {
                each(report, "calls", |call| {
                    if call["call"] == "launch" && call["gpu"] == 1 {
                        times(call, "host_blocked_us", 50.0);
                    }
                });
            },
            "rose since the earlier report, 3.81 → 190 us; kernel launch",
            "The host's calls for GPU 1 (",
        ),
    ];
    for (change, says, way) in cases {
        let new = changed(folder.path(), "new.json", change);
        let ran = compare(FULL, &new, &["--format", "json"]);
        let comparison = ran.json();
        let [fell] = of(&comparison, "fell-since-baseline")[..] else {
            panic!("{says}: {comparison:#}")
        };
        let message = fell["message"].as_str().unwrap();
        assert!(message.contains(says) && message.contains(way), "{message}");
        assert_eq!((ran.code, &fell["severity"]), (Some(0), &json!("warning")), "{message}");
        assert_eq!(compare(FULL, &new, &["--fail-on", "warning"]).code, Some(1));
        let text = compare(FULL, &new, &[]).flowing();
        assert!(!text.contains("no figure fell by more than its noise"), "{text}");
        // A buyer's floor is a floor, whatever the cause of a low figure.
        let expected = write(folder.path(), "expect.toml", &run(&["expect", FULL]).stdout);
        let judged = run(&["diagnose", &new, "--expect", &expected, "--format", "json"]);
        assert_eq!(judged.code, Some(1), "{judged:?}");
        let report = judged.json();
        assert_eq!(of(&report, "expectation-unmet").len(), 1, "{report:#}");
    }
}

#[test]
fn a_figure_that_one_side_lacks_is_said() {
    let (folder, _) = place("x");
    let none = changed(folder.path(), "none.json", |report| {
        let all = every_cell(report).count();
        for probe in ["host", "pipeline", "calls", "launch_loop"] {
            report["measurements"][probe] = json!([]);
        }
        // Count as a version without these probes would.
        let left_out = all - every_cell(report).count();
        let tested = report["verdict"]["tested"].as_u64().unwrap();
        report["verdict"]["tested"] = json!(tested - left_out as u64);
    });
    let whole = compare(FULL, FULL, &["--format", "json"]).json();
    let [then, now] =
        [compare(FULL, &none, &["--format", "json"]), compare(&none, FULL, &["--format", "json"])];
    assert_eq!([then.code, now.code], [Some(0); 2]);
    let missing = then.json()["not_compared"].as_u64().unwrap();
    // 14 kinds of copies, 2 at once, 8 pipelines, 9 calls that need not wait and 2 loops on each of four GPUs.
    assert_eq!(missing, 4 * (14 + 2 + 8 + 9 + 2), "{}", then.json());
    assert_eq!(whole["compared"], json!(then.json()["compared"].as_u64().unwrap() + missing));
    assert_eq!((&whole["not_compared"], &whole["only_in_new"]), (&json!(0), &json!(0)));
    assert_eq!(
        (&now.json()["not_compared"], &now.json()["only_in_new"]),
        (&json!(0), &json!(missing))
    );
    let text = compare(FULL, &none, &[]).flowing();
    assert!(
        text.contains(&format!("{missing} from the earlier report not measured again")),
        "{text}"
    );
    let text = compare(&none, FULL, &[]).flowing();
    assert!(text.contains(&format!("{missing} that the earlier report has not")), "{text}");

    // Expectations that peerscope wrote require only what the run was to measure; those that a person wrote require
    // everything.
    let file = run(&["expect", FULL]).stdout;
    let expected = write(folder.path(), "expect.toml", &file);
    let judged = run(&["diagnose", &none, "--expect", &expected, "--format", "json"]);
    assert_eq!(judged.code, Some(0), "{judged:?}");
    let beyond = judged.json();
    let [beyond] = of(&beyond, "expectation-beyond-profile")[..] else { panic!("{beyond:#}") };
    assert!(beyond["message"].as_str().unwrap().contains("pinned, to device"), "{beyond}");
    let written = write(folder.path(), "own.toml", "[figures.host]\n\"pinned, to host\" = 50\n");
    let judged = run(&["diagnose", &none, "--expect", &written, "--format", "json"]);
    assert_eq!(judged.code, Some(3), "{judged:?}");
    assert!(codes(&judged.json()).contains(&"expectation-unchecked"), "{judged:?}");
    assert_eq!(run(&["diagnose", FULL, "--expect", &written]).code, Some(0));

    // A planned measurement without a figure is a gap, whoever wrote the file.
    let failed = changed(folder.path(), "failed.json", |report| {
        each(report, "host", |copy| {
            if copy["gpu"] == 3 && copy["memory"] == "pageable" {
                (copy["achieved_gbps"], copy["status"], copy["reason"]) =
                    (Value::Null, json!("skipped"), json!("why"));
            }
        });
    });
    let judged = run(&["diagnose", &failed, "--expect", &expected]);
    assert_eq!(judged.code, Some(3), "{judged:?}");
    assert!(
        judged.flowing().contains("not measured of GPU 3: host (pageable, to device)"),
        "{}",
        judged.stdout
    );
}

#[test]
fn a_floor_for_each_gpu_where_slots_differ() {
    let (folder, _) = place("x");
    let report = changed(folder.path(), "narrow.json", |report| {
        each(report, "host", |copy| {
            if copy["gpu"] == 3 && copy["at_once"] == 1 {
                copy["theoretical_gbps"] = json!(15.75);
                times(copy, "achieved_gbps", 0.25);
            }
        });
    });
    let file = run(&["expect", &report, "--anyway"]).stdout;
    assert!(["GPU 3\" = 13.1", "GPU 0\" = 52.4"].iter().all(|of| file.contains(of)), "{file}");
}

#[test]
fn limits_of_a_hand_written_file_are_looked_at_one_by_one() {
    let (folder, _) = place("x");
    for (probe, text, code, says) in [
        ("host", "\"pinned, to device of GPU 1\" = 60", 1, "expected 60.0"),
        ("host", "\"pinned, to device, 4 GPUs at once\" = 50", 1, "4 GPUs at once"),
        ("host", "\"pageable, to host\" = 5", 0, "healthy"),
        ("host", "\"pinned, to device of GPU 9\" = 5", 3, "of GPU 9"),
        (
            "pipeline",
            "\"pipeline of 8 batches in 3 streams, pinned\" = 45",
            1,
            "pipeline of 8 batches",
        ),
        ("calls", "\"kernel launch\" = 1", 1, "kernel launch"),
        ("\"launch loop\"", "\"launch and wait for another GPU\" = 5", 1, "wait for another GPU"),
        ("\"launch loop\"", "\"launch and wait for the same GPU\" = 50", 0, "healthy"),
        ("calls", "\"kernel launch\" = 0", 2, "\"kernel launch\" = 0"),
        ("host", "\"pinned, to device\" = -1", 2, "\"pinned, to device\" = -1"),
        ("host", "pinned = 3", 2, "did you mean 'pinned, to"),
        ("host", "\"pined, to device\" = 3", 2, "did you mean 'pinned, to device'"),
        ("calls", "\"pinned, to device\" = 3", 2, "figures.calls"),
        ("hots", "\"pinned, to device\" = 3", 2, "did you mean 'host'"),
    ] {
        let file = write(folder.path(), "expect.toml", &format!("[figures.{probe}]\n{text}\n"));
        let ran = run(&["diagnose", FULL, "--figures", "--expect", &file]);
        assert_eq!(ran.code, Some(code), "{text}: {ran:?}");
        let said = if code == 2 { ran.stderr.clone() } else { ran.flowing() };
        assert!(said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_machine_with_one_gpu_is_compared_by_its_host_figures() {
    let (folder, file) = place("one.json");
    let file = text_of(&file);
    let ran = run(&with(check("single", "standard"), &["-o", &file, "--journal=none"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let same = compare(&file, &file, &[]);
    assert_eq!(same.code, Some(0), "{same:?}");
    let mut slower = read_json(&file);
    scale_copies(&mut slower, |_| 0.5);
    let slower = write_json(folder.path(), "slower.json", &slower);
    assert_eq!(compare(&file, &slower, &[]).code, Some(1));
}
