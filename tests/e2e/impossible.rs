//! Tests that reports which no run can write are refused with the cell, and that rates above their links are never
//! healthy.

use serde_json::{Value, json};

use crate::common::{HARDWARE_REPORT, changed_report, codes, list, place, run, write};

/// Returns the first cell of a table, which goes from GPU 0 to GPU 1.
fn first<'a>(report: &'a mut Value, table: &str) -> &'a mut Value {
    &mut report["measurements"][table][0]
}

type Change = fn(&mut Value);

#[test]
fn reports_that_cannot_be_are_refused_with_their_cell() {
    let changes: [(Change, &str); 7] = [
        (|report| first(report, "peer")["achieved_gbps"] = json!(-396.0), "achieved_gbps is -396"),
        (|report| first(report, "peer")["achieved_gbps"] = json!(1e300), "achieved_gbps is 1"),
        (|report| first(report, "peer")["percent"] = json!(1e9), "percent is 1000000000"),
        (
            |report| first(report, "overlap")["overlap_percent"] = json!(140.0),
            "overlap_percent is 140",
        ),
        (|report| first(report, "latency")["latency_us"] = json!(-2.3), "latency_us is -2.3"),
        (|report| repeat(report, "peer"), "is there twice"),
        (|report| repeat(report, "latency"), "is there twice"),
    ];
    for (change, says) in changes {
        let (_folder, path) = changed_report(change);
        for args in [
            vec!["diagnose", &path],
            vec!["compare", HARDWARE_REPORT, &path],
            vec!["expect", &path],
        ] {
            let ran = run(&args);
            assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
            let lines = ran.stderr.trim_end().lines().count();
            assert!(
                ran.stderr.contains(says) && ran.stderr.contains("GPU 0 → GPU 1"),
                "{args:?}: {ran:?}"
            );
            assert_eq!((lines, ran.stdout.as_str()), (1, ""), "{ran:?}");
        }
    }
}

#[test]
fn a_gpu_or_a_route_that_is_listed_twice_is_refused() {
    for (list, says) in
        [("/snapshot/gpus", "has GPU 0 twice"), ("/topology/pairs", "has GPU 0 → GPU 1 twice")]
    {
        let (_folder, path) = changed_report(|report| {
            let all = report.pointer_mut(list).unwrap().as_array_mut().unwrap();
            all.push(all[0].clone());
        });
        for args in [vec!["diagnose", &path], vec!["pick", "-k", "2", &path], vec!["expect", &path]]
        {
            let ran = run(&args);
            assert!(ran.code == Some(2) && ran.stderr.contains(says), "{args:?}: {ran:?}");
        }
    }
}

#[test]
fn bytes_that_were_not_compared_are_doubted_when_the_report_is_read() {
    let (_folder, path) = changed_report(|report| {
        let cells = report["measurements"]["peer"].as_array_mut().unwrap();
        cells.iter_mut().for_each(|cell| cell["verified"] = json!("skipped"));
    });
    let ran = run(&["diagnose", &path]);
    assert!(ran.code == Some(3) && ran.stdout.contains("are not verified"), "{ran:?}");
}

#[test]
fn expectations_come_from_figures_and_not_from_the_word_of_the_report() {
    let (_folder, path) = changed_report(|report| {
        assert_eq!(report["verdict"]["verdict"], "healthy");
        let cells = report["measurements"]["peer"].as_array_mut().unwrap();
        cells.iter_mut().for_each(|cell| cell["achieved_gbps"] = json!(10.0));
    });
    let ran = run(&["expect", &path]);
    assert!(ran.code == Some(2) && ran.stderr.contains("a machine that is faulty"), "{ran:?}");
}

#[test]
fn expectations_have_no_character_that_a_terminal_obeys() {
    let name = "\u{9b}31mX\u{202e}Y\u{2028}Z\u{85}\u{1b}[2J";
    let (folder, path) = changed_report(|report| {
        let gpus = report["snapshot"]["gpus"].as_array_mut().unwrap();
        gpus.iter_mut().for_each(|gpu| gpu["name"] = json!(name));
    });
    let ran = run(&["expect", "--anyway", &path]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let is_inert = |c: char| c == '\n' || !(c.is_control() || "\u{202e}\u{2028}".contains(c));
    assert!(ran.stdout.chars().all(is_inert) && ran.stdout.contains("\\U0000009B31mX"), "{ran:?}");
    // It is the same name when it is read.
    let file = write(folder.path(), "expect.toml", &ran.stdout);
    let again = run(&["diagnose", "--expect", &file, &path]);
    assert!(!again.stdout.contains("model") && again.code != Some(2), "{again:?}");
}

fn repeat(report: &mut Value, table: &str) {
    let cell = first(report, table).clone();
    report["measurements"][table].as_array_mut().unwrap().push(cell);
}

#[test]
fn an_infinity_is_no_number_of_json() {
    let text = std::fs::read_to_string(HARDWARE_REPORT).unwrap();
    let at = text.find("\"achieved_gbps\":").unwrap() + "\"achieved_gbps\":".len();
    let end = at + text[at..].find(',').unwrap();
    let folder = place("").0;
    for number in ["1e999", "Infinity", "NaN"] {
        let path = write(
            folder.path(),
            "changed.json",
            &format!("{}{number}{}", &text[..at], &text[end..]),
        );
        let ran = run(&["diagnose", &path]);
        assert_eq!(ran.code, Some(2), "{number}: {ran:?}");
        assert!(ran.stderr.contains("changed.json is not "), "{number}: {ran:?}");
    }
}

#[test]
fn rates_above_their_links_are_inconclusive() {
    // 2.33 times the expected rate, in one cell or in all.
    for all in [false, true] {
        let (_folder, path) = changed_report(|report| {
            let cells = report["measurements"]["peer"].as_array_mut().unwrap();
            let direct = cells.iter_mut().filter(|cell| cell["path"] == "direct");
            for cell in direct.take(if all { usize::MAX } else { 1 }) {
                cell["achieved_gbps"] = json!(2.33 * 387.0);
            }
        });
        let ran = run(&["diagnose", &path, "--format", "json"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let report = ran.json();
        assert!(codes(&report).contains(&"figure-impossible"), "{}", report["findings"]);
        assert!(
            list(&report["findings"]).iter().all(|finding| finding["severity"] != "error"),
            "{report}"
        );
    }
}
