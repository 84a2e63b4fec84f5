//! Tests of saved reports of real machines (tests/data). Each fits the schema and the terminal, and gets the verdict of
//! its last review.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::builtin::{assert_fits, assert_metrics};
use crate::common::{golden, list, place, read_json, run, text_of};
use crate::contract::{assert_contract, assert_nothing_left_out, assert_schema, violations};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let reports =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let of = |file: std::path::PathBuf| {
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        trial(format!("report::{name}"), move || saved(&name, &text_of(&file)))
    };
    reports.map(of).collect()
}

fn saved(name: &str, file: &str) {
    let report = read_json(file);
    assert_eq!(
        violations(&report),
        [""; 0],
        "tests/data/{name}.json, which an earlier version wrote, does not fit docs/report.schema.json: make the key optional \
         (CONTRIBUTING.md, \"Tests first\"); the recorded report is never changed"
    );
    let (folder, metrics) = place("report.prom");
    let judged = run(&["diagnose", file, "--format", "json", "-o", &text_of(&metrics)]);
    let judged = (judged.code, judged.json());
    assert_schema(&judged.1);
    assert_contract(&judged.1);
    assert_nothing_left_out(&judged.1);
    assert_metrics(&text_of(&metrics));
    drop(folder);
    golden(&format!("{name}-findings"), &digest(judged.0, &judged.1));
    for columns in [60, 80] {
        assert_fits(&["diagnose", file], columns);
        assert_fits(&["diagnose", file, "--verbose"], columns);
    }
    assert!(!run(&["diagnose", file]).stdout.contains("SIMULATED"));

    let mut unfit = report;
    unfit["verdict"]["tested"] = "many".into();
    assert_ne!(violations(&unfit), [""; 0], "a schema that takes everything");
}

/// Returns codes, severities and subjects, verdict and exit code: a change of wording does not affect them.
fn digest(code: Option<i32>, report: &Value) -> String {
    let kept = |finding: &Value| {
        json!([finding["code"], finding["severity"], finding["subject"]]).to_string()
    };
    let findings: Vec<_> = list(&report["findings"]).iter().map(kept).collect();
    serde_json::to_string_pretty(
        &json!({ "exit": code, "verdict": report["verdict"], "findings": findings }),
    )
    .unwrap()
}
