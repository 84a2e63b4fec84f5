//! Tests of machines with the largest number of GPUs, and of larger ones.

use serde_json::Value;

use crate::common::{place, read_json, run, text_of, write};

#[path = "../../benches/machine/mod.rs"]
mod machine;

#[test]
fn as_many_gpus_as_there_can_be_are_read_again_and_more_are_refused() {
    let (folder, report) = place("report.json");
    let (most, more) = (machine::description(32), machine::description(33));
    let [most, more] = [("32.toml", most), ("33.toml", more)]
        .map(|(name, text)| write(folder.path(), name, &text));
    let report = text_of(&report);
    let ran = run(&["topo", "--machine", &most, "-o", &report]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let again = run(&["diagnose", &report, "--format", "json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let (again, written) = (again.json(), read_json(&report));
    for key in ["snapshot", "topology", "findings", "verdict"] {
        assert!(again[key] == written[key], "{key} differs");
    }
    let refused = run(&["topo", "--machine", &more]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("33 are more than can be simulated, which is 32"),
        "{refused:?}"
    );
    // An edited report with one GPU more.
    let mut edited: Value = written;
    let mut gpu = edited["snapshot"]["gpus"][31].clone();
    gpu["index"] = 32.into();
    edited["snapshot"]["gpus"].as_array_mut().unwrap().push(gpu);
    let edited = write(folder.path(), "edited.json", &edited.to_string());
    let refused = run(&["diagnose", &edited]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("has 33 GPUs; a report can have 32 at most"), "{refused:?}");
}
