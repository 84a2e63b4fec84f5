//! The machine that shows faults.

use crate::common::{DEMO, codes, list, pair};

#[test]
fn the_demo_shows_both_of_its_faults_and_the_staged_figure() {
    assert_eq!(codes(&DEMO), ["pcie-narrow", "peer-access-missing"]);
    let findings = list(&DEMO["findings"]);
    assert_eq!(findings[0]["subject"]["index"], 5);
    assert_eq!(pair(&findings[1]["subject"]), (1, 6));
    let staged = list(&DEMO["measurements"]["peer"]).iter().filter(|cell| cell["path"] == "staged");
    let denied: Vec<_> = staged.filter(|cell| [(1, 6), (6, 1)].contains(&pair(cell))).collect();
    assert!(denied.len() >= 16 && denied.iter().all(|cell| cell["achieved_gbps"].as_f64().unwrap() > 5.0));
}

#[test]
fn times_add_up() {
    let timing = &DEMO["timing"];
    let [discover, start, measure, total] =
        ["discover", "driver_start", "measure", "total"].map(|key| timing[key].as_f64().unwrap());
    assert!(measure > 0.0 && discover > 0.0 && start > 0.0, "{timing}");
    assert!(discover + measure <= total && start <= total, "{timing}");
}
