//! Tests with the machine that shows faults.

use crate::common::DEMO;

#[test]
fn times_add_up() {
    let timing = &DEMO["timing"];
    let [discover, start, measure, total] =
        ["discover", "driver_start", "measure", "total"].map(|key| timing[key].as_f64().unwrap());
    assert!(measure > 0.0 && discover > 0.0 && start > 0.0, "{timing}");
    assert!(discover + measure <= total && start <= total, "{timing}");
}
