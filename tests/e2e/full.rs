//! Tests of the profile `full` over labelled machines; tests/machines runs them with `standard`.

use serde_json::Value;

use crate::common::{codes, finish, list, peerscope, text_of};
use crate::fake::Fake;

/// Returns a report of `full` over a machine of tests/cases, and the exit code.
fn full(case: &str, more: &[&str]) -> (Value, Option<i32>) {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cases/{case}.toml"));
    let file = text_of(&file);
    let mut args = vec![
        "check",
        "--machine",
        &file,
        "--profile",
        "full",
        "--journal=none",
        "--format",
        "json",
    ];
    args.extend(more);
    let mut command = peerscope(&args);
    let ran = finish(command.env_remove("CUDA_VISIBLE_DEVICES"));
    (ran.json(), ran.code)
}

/// Returns the codes of findings at warning and above.
fn complaints(report: &Value) -> Vec<&str> {
    let all = list(&report["findings"]).iter().filter(|finding| finding["severity"] != "info");
    all.filter_map(|finding| finding["code"].as_str()).collect()
}

#[test]
fn buffers_of_unlike_sizes_accuse_nobody() {
    // The group async fills the buffers again. Addresses need more memory than is free.
    for more in [["--skip", "addresses"], ["--skip", "addresses,async"]] {
        let (report, code) = full("healthy-one-gpu-nearly-full", &more);
        assert_eq!(
            (complaints(&report), code),
            (vec![], Some(0)),
            "{more:?}: {:?}",
            codes(&report)
        );
    }
}

#[test]
fn a_pcie_counter_that_could_have_wrapped_accuses_no_driver() {
    let (report, code) = full("copies-over-pcie-although-nvlink-is-up", &[]);
    assert_eq!(
        (complaints(&report), code),
        (vec!["traffic-over-pcie"], Some(1)),
        "{:?}",
        codes(&report)
    );
}

#[test]
fn memory_that_the_driver_does_not_give_is_untested_and_no_fault() {
    // The second GPU gives half of its memory, in a second try, or nothing at all.
    for (then, unsure) in [(14, 4), (13, 0)] {
        let fake = Fake::new("h200x2");
        let mut command = fake.command(&["check", "--only", "addresses", "--format", "json"]);
        let faults = format!("cuMemAlloc_v2@12=code:2;cuMemAlloc_v2@{then}+=code:2");
        let ran = finish(command.env("PEERSCOPE_FAKE_FAULTS", faults));
        let report = ran.json();
        assert_eq!((ran.code, codes(&report)), (Some(3), vec!["not-tested"]), "{ran:?}");
        let cells = list(&report["measurements"]["addresses"]).iter();
        let of = |word: &str| cells.clone().filter(|cell| cell["verified"] == word).count();
        assert_eq!((of("ok"), of("inconclusive")), (4, unsure), "{ran:?}");
    }
}
