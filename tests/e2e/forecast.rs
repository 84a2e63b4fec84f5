//! The forecast and the veto by the real program.

use crate::common::{flowing, place, run};

const H200X2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/h200x2-standard.json");

#[test]
fn a_saved_report_is_forecast_again_by_the_rules_of_another_version() {
    let of = |version: &str| {
        let ran = run(&["diagnose", H200X2, "--advice", "--nccl", version]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.flowing()
    };
    assert!(of("2.30").contains("NCCL 2.30, one process per GPU"));
    let old = of("2.18.5");
    assert!(old.contains("P2P/IPC"), "{old}");
    assert!(old.contains("NCCL 2.18 does not use cuMem by default"), "{old}");
}

#[test]
fn an_unknown_version_of_nccl_is_refused_with_those_that_are_known() {
    for version in ["2.31", "1.0", "new"] {
        let ran = run(&["diagnose", H200X2, "--nccl", version]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("2.30"), "{ran:?}");
    }
}

#[test]
fn the_page_and_json_have_it_too() {
    let (_folder, path) = place("report.html");
    let path = path.to_str().unwrap();
    let ran = run(&["diagnose", H200X2, "--format", "json", "-o", path]);
    let report = ran.json();
    let groups = report["forecast"]["nccl"]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1, "{groups:?}");
    assert_eq!(groups[0]["transport"], "p2p");
    let page = flowing(&std::fs::read_to_string(path).unwrap());
    assert!(page.contains("Who will use what"));
}

#[test]
fn a_veto_is_for_a_shell_and_keeps_the_exit_code() {
    let sound = run(&["diagnose", H200X2, "--veto"]);
    assert_eq!(sound.code, Some(0), "{sound:?}");
    assert!(sound.stdout.lines().all(|line| line.starts_with('#')), "{sound:?}");
    let args = ["check", "--machine", "writes-dropped", "--profile", "quick"];
    let broken = run(&[&args[..], &["--no-journal", "--veto"]].concat());
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stdout.contains("\nexport NCCL_P2P_DISABLE=1\n"), "{broken:?}");
    let files = "gpu_p2p_access_cache_for_${CUDA_VISIBLE_DEVICES-0,1,2,3}.json";
    assert!(broken.stdout.contains(files), "{broken:?}");
    let both = run(&[&args[..], &["--veto", "--advice"]].concat());
    assert_eq!(both.code, Some(2), "{both:?}");
    let json = run(&[&args[..], &["--veto", "--format", "json"]].concat());
    assert_eq!(json.code, Some(2), "the veto is text: {json:?}");
}

#[test]
fn hung_pairs_are_vetoed_and_pairs_that_work_are_not() {
    let args = ["check", "--machine", "pair-hangs", "--profile", "quick"];
    let ran = run(&[&args[..], &["--no-journal", "--format", "json"]].concat());
    let report = ran.json();
    let failed = report["veto"]["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let works = report["veto"]["pairs_file"]["works"].as_object().unwrap();
    assert!(works.values().any(|works| works == true), "{works:?}");
    assert!(works.values().any(|works| works == false), "{works:?}");
}
