//! Tests that saved reports with removed rows, or with rows of GPUs that they do not list, are never healthy.

use std::path::Path;
use std::sync::LazyLock;

use model::measurement::Measurements;
use serde_json::{Value, json};

use crate::common::{check, codes, place, run, with, write_json};

/// A healthy report of two GPUs.
static TWO: LazyLock<Value> = LazyLock::new(|| healthy("h200x2", "standard"));

/// A healthy report of three GPUs, with several flows at once.
static THREE: LazyLock<Value> = LazyLock::new(|| healthy("rtx3090x4", "standard"));

fn healthy(machine: &str, profile: &str) -> Value {
    let ran = run(&with(check(machine, profile), &["--format", "json"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.json()
}

fn rows<'a>(report: &'a mut Value, table: &str) -> &'a mut Vec<Value> {
    report["measurements"][table].as_array_mut().unwrap()
}

type Change = fn(&mut Value);

/// Returns the exit code of `fleet` for this report.
fn fleet_code(folder: &Path, report: &Value) -> Option<i32> {
    run(&["fleet", &write_json(folder, "bare.json", report)]).code
}

/// Different removals of rows.
const REMOVALS: [(&str, Change); 5] = [
    ("the rows of source 1", |report| rows(report, "peer").retain(|row| row["source"] == 0)),
    ("the direct rows", |report| rows(report, "peer").retain(|row| row["path"] != "direct")),
    ("the rows of all pairs", |report| rows(report, "peer").clear()),
    ("one row", |report| drop(rows(report, "peer").remove(5))),
    ("all rows", |report| {
        for table in Measurements::TABLES {
            if let Some(rows) = report["measurements"].get_mut(table).and_then(Value::as_array_mut)
            {
                rows.clear();
            }
        }
    }),
];

#[test]
fn a_report_that_lacks_rows_is_inconclusive() {
    let (folder, _) = place("x");
    for (what, remove) in REMOVALS {
        let mut report = TWO.clone();
        remove(&mut report);
        let path = write_json(folder.path(), "cut.json", &report);
        let ran = run(&["diagnose", &path]);
        assert_eq!(ran.code, Some(3), "{what}: {ran:?}");
        let page = ran.flowing();
        assert!(
            !page.contains("healthy:")
                && !page.contains("all 1")
                && !page.contains("no measurement was asked"),
            "{page}"
        );
        assert!(page.contains("lacks the rows of"), "{what}: {page}");
        let judged = run(&["diagnose", &path, "--format", "json"]).json();
        let verdict = |report: &Value, key: &str| report["verdict"][key].as_u64().unwrap();
        let asked = verdict(&TWO, "tested");
        assert_eq!(
            verdict(&judged, "tested") + verdict(&judged, "untested"),
            asked,
            "{what}: {}",
            judged["verdict"]
        );
        // A judged report gets the same verdict when it is read again.
        let again = write_json(folder.path(), "again.json", &judged);
        let again = run(&["diagnose", &again, "--format", "json"]);
        assert_eq!(
            (again.code, again.json()["verdict"].clone()),
            (Some(3), judged["verdict"].clone()),
            "{what}"
        );
    }
}

#[test]
fn the_pairs_that_lack_their_rows_are_no_pairs_that_cannot_copy() {
    let (folder, _) = place("x");
    let mut report = TWO.clone();
    REMOVALS[0].1(&mut report);
    let page = run(&["diagnose", &write_json(folder.path(), "cut.json", &report)]).flowing();
    assert!(
        page.contains("1 of 2 pairs copy directly") && page.contains("; 1 was not measured"),
        "{page}"
    );
}

#[test]
fn without_a_record_of_what_was_asked_the_pairs_of_the_gpus_are() {
    let (folder, _) = place("x");
    for (what, remove) in &REMOVALS[..3] {
        let mut report = TWO.clone();
        remove(&mut report);
        let (tested, untested) = (json!(1), json!(0));
        (report["verdict"]["tested"], report["verdict"]["untested"]) = (tested, untested);
        let ran = run(&["diagnose", &write_json(folder.path(), "cut.json", &report)]);
        assert_eq!(ran.code, Some(3), "{what}: {ran:?}");
    }
    // Rows that were not requested are not missing.
    for more in [&["--only", "host"][..], &["--skip", "peers"], &["--gpus", "0"]] {
        let ran = run(&with(check("h200x2", "standard"), &[more, &["--format", "json"]].concat()));
        let mut report = ran.json();
        report["verdict"]["tested"] = json!(1);
        let again = run(&["diagnose", &write_json(folder.path(), "part.json", &report)]);
        assert_eq!((ran.code, again.code), (Some(0), Some(0)), "{more:?}: {again:?}");
    }
}

#[test]
fn no_row_can_be_removed_from_a_healthy_report() {
    let (folder, _) = place("x");
    for report in [&*TWO, &*THREE] {
        assert_eq!(report["verdict"]["verdict"], "healthy");
        let step = if std::ptr::eq(report, &*TWO) { 1 } else { 29 };
        for table in Measurements::TABLES {
            let number = report["measurements"][table].as_array().map_or(0, Vec::len);
            for at in (0..number).step_by(step) {
                let mut cut = report.clone();
                rows(&mut cut, table).remove(at);
                let ran = run(&["diagnose", &write_json(folder.path(), "cut.json", &cut)]);
                assert_eq!(ran.code, Some(3), "{table} {at}: {ran:?}");
            }
        }
        for table in ["/snapshot/gpus", "/topology/pairs"] {
            let mut cut = report.clone();
            cut.pointer_mut(table).unwrap().as_array_mut().unwrap().remove(0);
            let ran = run(&["diagnose", &write_json(folder.path(), "cut.json", &cut)]);
            assert_ne!(ran.code, Some(0), "{table}: {ran:?}");
        }
    }
}

#[test]
fn rows_of_gpus_that_the_report_does_not_have_are_refused() {
    let (folder, _) = place("x");
    let good = write_json(folder.path(), "good.json", &TWO);
    let changes: [(Change, &str); 5] = [
        (
            |report| {
                let mut row = rows(report, "peer")[0].clone();
                row["destination"] = json!(99);
                rows(report, "peer").push(row);
            },
            "GPU 99",
        ),
        (|report| rows(report, "host")[0]["gpu"] = json!(99), "GPU 99"),
        (|report| report["topology"]["pairs"][0]["destination"] = json!(99), "GPU 99"),
        (|report| report["snapshot"]["gpus"] = json!([]), "GPU 0"),
        (|report| drop(report["snapshot"]["gpus"].as_array_mut().unwrap().remove(1)), "GPU 1"),
    ];
    for (change, says) in changes {
        let mut report = TWO.clone();
        change(&mut report);
        let path = write_json(folder.path(), "odd.json", &report);
        for args in [
            vec!["diagnose", &path],
            vec!["compare", &good, &path],
            vec!["compare", &path, &good],
            vec!["expect", &path],
        ] {
            let ran = run(&args);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
            assert!(
                ran.stderr.contains("cannot be a report") && ran.stderr.contains(says),
                "{ran:?}"
            );
            assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{ran:?}");
        }
        assert_eq!(fleet_code(folder.path(), &report), Some(3));
    }
}

#[test]
fn nobody_takes_a_report_that_lacks_rows_for_that_of_a_healthy_machine() {
    let (folder, _) = place("x");
    let good = write_json(folder.path(), "good.json", &TWO);
    for (what, remove) in REMOVALS {
        let mut report = TWO.clone();
        remove(&mut report);
        let cut = write_json(folder.path(), "cut.json", &report);
        for (old, new) in [(&good, &cut), (&cut, &good), (&cut, &cut)] {
            let ran = run(&["compare", old, new]);
            assert_eq!(ran.code, Some(3), "{what}: {old} {new}: {ran:?}");
        }
        let expected = run(&["expect", &cut]);
        assert_eq!(
            (expected.code, expected.stdout.as_str()),
            (Some(2), ""),
            "{what}: {expected:?}"
        );
        let beside =
            run(&with(check("h200x2", "standard"), &["--baseline", &cut, "--format", "json"]));
        assert_eq!(beside.code, Some(3), "{what}: {beside:?}");
        assert!(codes(&beside.json()).contains(&"baseline-not-compared"), "{what}");
        assert_eq!(fleet_code(folder.path(), &report), Some(3), "{what}");
    }
    assert_eq!(run(&["fleet", &good]).code, Some(0));
}
