//! Tests with the machine that shows faults.

use crate::common::{DEMO, run};

#[test]
fn times_add_up() {
    let timing = &DEMO["timing"];
    let [discover, start, measure, total] =
        ["discover", "driver_start", "measure", "total"].map(|key| timing[key].as_f64().unwrap());
    assert!(measure > 0.0 && discover > 0.0 && start > 0.0, "{timing}");
    assert!(discover + measure <= total && start <= total, "{timing}");
}

#[test]
fn the_readme_shows_how_the_output_begins() {
    let readme = include_str!("../../README.md");
    let block = readme.split_once("```text\n").unwrap().1;
    let shown = block.split_once("```").unwrap().0;
    let ran = run(&["check", "--machine", "demo"]);
    // The line of the run, the last one, has its time.
    let parts = |text: &str| text.split_once("\nRun ").unwrap().0.to_owned();
    assert_eq!(parts(shown), parts(&ran.stdout));
}
