//! The cost of every stage, by the number of GPUs: `cargo bench`, or `cargo bench -- diagnose` for one stage.
//!
//! The machines are made here: one NVLink domain with the requested number of GPUs. docs/dev/performance.md contains
//! figures.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start is to say so and stop")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

mod machine;
mod stages;

use divan::{Bencher, black_box};
use hardware::Machine;
use sim::Simulated;
use stages::Stages;

/// Numbers of GPUs: a server, and the most that a report can have.
const GPUS: [u32; 2] = [8, 32];

fn main() {
    divan::main();
}

/// Returns a machine with this number of GPUs, checked once.
fn stages(gpus: u32) -> &'static Stages {
    static CHECKED: Checked = Mutex::new(None);
    checked(&CHECKED, gpus, Stages::of)
}

/// Like [`stages`], by the profile `standard`.
fn standard(gpus: u32) -> &'static Stages {
    static CHECKED: Checked = Mutex::new(None);
    checked(&CHECKED, gpus, Stages::standard)
}

/// Checked machines, by their number of GPUs.
type Checked = Mutex<Option<HashMap<u32, &'static Stages>>>;

fn checked(
    known: &Checked,
    gpus: u32,
    check: fn(&Arc<dyn Machine>) -> Result<Stages, String>,
) -> &'static Stages {
    known.lock().unwrap().get_or_insert_default().entry(gpus).or_insert_with(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine.toml");
        std::fs::write(&file, machine::description(gpus)).unwrap();
        let machine: Arc<dyn Machine> = Arc::new(Simulated::find(file.to_str().unwrap()).unwrap());
        Box::leak(Box::new(check(&machine).unwrap()))
    })
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn routes(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.routes()));
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn plan(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.plan()));
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn diagnose(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.diagnose()));
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn render_json(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.render("json").unwrap()));
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn render_text(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.render("text").unwrap()));
}

/// A page must appear at once: the goal is 20 ms for 8 GPUs, 200 ms for 32.
#[divan::bench(args = GPUS, sample_count = 20)]
fn render_html(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    bencher.bench_local(|| black_box(stages.render("html").unwrap()));
}

/// Renders everything that a standard check measures.
#[divan::bench(args = GPUS, sample_count = 20)]
fn render_html_standard(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = standard(gpus);
    bencher.bench_local(|| black_box(stages.render("html").unwrap()));
}

#[divan::bench(args = GPUS, sample_count = 10)]
fn journal(bencher: Bencher<'_, '_>, gpus: u32) {
    let stages = stages(gpus);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal");
    bencher.bench_local(|| black_box(stages.journal(&file).unwrap()));
}
