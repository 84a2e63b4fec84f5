//! The explanation beside the findings of every labelled case and recorded report: it must accuse exactly the places that
//! findings on figures name. And its times.

mod explained;
mod score;

use std::time::Instant;

use explain::BUDGET;
use libtest_mimic::Trial;
use model::report::Report;

use self::explained::explained;
use self::score::Score;
use crate::common::{Ran, say, text_of};
use crate::{common, trial};

/// Cases whose figures are explained otherwise than findings say.
const OTHERWISE: [&str; 7] = [
    // The time that a copy takes beside its bytes is no change of a part: latency-high explains what it makes of rates.
    "small-copies-take-two-milliseconds",
    // A loss of less than a tenth is found by comparison with equals, which costs the explanation more bits than it gains.
    "one-direction-six-percent-low-among-equals",
    // A cause of 3%, which is too little for a finding.
    "healthy-one-gpu-three-percent-low-among-equals",
    // Copies by kernels at the same time are judged by the rule: they depend on more than the links.
    "kernels-slow-beside-others",
    // Memory of the other socket is information, and the explanation has no word for what is usual there.
    "healthy-memory-of-the-other-socket-slower",
    "healthy-two-gpus-a-socket-and-memory-of-the-other-slower",
    // One GPU: all copies with the host are its own, and the explanation names the class of these copies.
    "gh200-c2c-at-a-seventh",
];

/// Most predictions of one explanation, by the number of GPUs: what its time follows from.
const PREDICTIONS: [(usize, u64); 3] = [(8, 30_000), (16, 40_000), (72, 60_000)];

pub(crate) fn trials() -> Vec<Trial> {
    let times = trial("shadow::times".into(), times);
    let recorded = trial("shadow::recorded_reports".into(), recorded_reports);
    vec![recorded, times.with_ignored_flag(true)]
}

/// Returns a line for each place where the explanation and the findings of a case differ; for a case that is known to differ, one
/// if they do not.
pub(crate) fn differences(name: &str, ran: &Ran) -> Vec<String> {
    let differences = of_report(&parsed(ran));
    if !OTHERWISE.contains(&name) {
        return differences;
    }
    let agrees = "explained as findings say now: remove it from OTHERWISE in tests/machines/shadow";
    let agrees = differences.is_empty().then(|| agrees.to_owned());
    agrees.into_iter().collect()
}

fn of_report(report: &Report) -> Vec<String> {
    let Some(explanation) = explained(report, BUDGET) else {
        return Vec::new();
    };
    let Score { innocent, missed } = Score::of(report, &explanation);
    let innocent = innocent.iter().map(|place| format!("the explanation accuses {place}"));
    let missed = missed.iter().map(|finding| format!("the explanation does not accuse {finding}"));
    let gave_up = explanation.gave_up.then(|| "the explanation gave up".to_owned());
    innocent.chain(missed).chain(gave_up).collect()
}

fn recorded_reports() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut number = 0;
    for file in files.filter(|file| file.extension().is_some_and(|is| is == "json")) {
        let ran = common::run(&["diagnose", &text_of(&file), "--format", "json"]);
        let differences = of_report(&parsed(&ran));
        assert!(differences.is_empty(), "{}: {differences:?}", file.display());
        number += 1;
    }
    assert!(number > 10, "{number} recorded reports in {folder}");
}

fn parsed(ran: &Ran) -> Report {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// Prints how long explanations take, of healthy machines and of such with several faults. The limits hold for a build
/// with optimisation: `cargo test --release --test machines shadow::times`.
fn times() {
    let folder = tempfile::tempdir().unwrap();
    for (base, gpus) in [("h200x8", 8), ("pcie16", 16)] {
        let faulty = folder.path().join(format!("{base}.toml"));
        std::fs::write(&faulty, several_faults(base, gpus)).unwrap();
        for machine in [base.to_owned(), text_of(&faulty)] {
            let args = [
                "check",
                "--machine",
                &machine,
                "--profile",
                "standard",
                "--journal=none",
                "--format",
                "json",
            ];
            let report = parsed(&common::run(&args));
            let started = Instant::now();
            let explanation = explained(&report, BUDGET).unwrap();
            let took = started.elapsed();
            let words = format!(
                "{gpus} GPUs, {} causes of {} figures: {took:.1?}, {} predictions",
                explanation.causes.len(),
                explanation.figures,
                explanation.predictions
            );
            say(&words);
            assert!(!explanation.gave_up, "{words}");
            let limit = PREDICTIONS.into_iter().find(|(most, _)| gpus <= *most);
            let limit = limit.map_or(0, |(_, limit)| limit);
            assert!(explanation.predictions <= limit, "{words}");
        }
    }
}

/// Returns a machine whose GPU 5 is slow with all others, and into whose GPU 1 and between two others copies are slow.
fn several_faults(base: &str, gpus: usize) -> String {
    let slow = |pairs: String, share: f64| {
        format!("{{ pairs = {{ {pairs} }}, fault = {{ slow = {{ share = {share} }} }} }}")
    };
    let mut faults = vec![slow("both = [6, 7]".into(), 0.6)];
    for other in (0..gpus).filter(|other| *other != 5) {
        let (least, most) = (other.min(5), other.max(5));
        faults.push(slow(format!("both = [{least}, {most}]"), 0.7));
    }
    for other in (0..gpus).filter(|other| *other != 1) {
        faults.push(slow(format!("ordered = [{other}, 1]"), 0.8));
    }
    format!(
        "base = \"{base}\"\nsummary = \"several faults\"\nfaults = {{ pairs = [{}] }}\nnoise = {{ percent = 1.0, seed = 1 }}\n",
        faults.join(", ")
    )
}
