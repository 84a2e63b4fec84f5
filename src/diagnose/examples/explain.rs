//! Explains saved reports and prints what it makes of each as a line of JSON, for `scripts/random-machines --explanation` and
//! `scripts/perturbed-reports --explanation`: `cargo run --release -p peerscope-diagnose --example explain -- REPORT.json...`

// The shared file names crates as the program does.
extern crate peerscope_diagnose as diagnose;

#[path = "../../../tests/machines/shadow/explained.rs"]
mod explained;

use std::io::Write;

use explain::{BUDGET, Cause, Effect, Explanation, Figure, Part};
use model::node::NodeId;
use model::report::Report;
use serde_json::{Value, json};

use self::explained::{explained, gpus_of};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for file in std::env::args().skip(1) {
        let report: Report = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let explanation = explained(&report, BUDGET).as_ref().map_or_else(
            || json!({ "report": file, "causes": [] }),
            |one| words_of(&file, &report, one),
        );
        writeln!(out, "{explanation}")?;
    }
    Ok(())
}

fn words_of(file: &str, report: &Report, explanation: &Explanation) -> Value {
    let Explanation {
        causes,
        unexplained,
        looks,
        scatter_percent,
        gave_up,
        figures,
        predictions,
    } = explanation;
    let causes: Vec<Value> = causes.iter().map(|one| cause(report, one)).collect();
    let looks = looks.iter().map(|look| {
        let flows: Vec<String> = look.flows.iter().map(ToString::to_string).collect();
        json!({ "flows": flows, "between": look.between })
    });
    let looks: Vec<Value> = looks.collect();
    let unexplained = names(unexplained);
    json!({
        "report": file,
        "causes": causes,
        "unexplained": unexplained,
        "looks": looks,
        "scatter_percent": scatter_percent,
        "gave_up": gave_up,
        "figures": figures,
        "predictions": predictions,
    })
}

fn names(figures: &[Figure]) -> Vec<&str> {
    figures.iter().map(|figure| figure.name.as_str()).collect()
}

fn cause(report: &Report, cause: &Cause) -> Value {
    let parts =
        |parts: &[Part]| -> Vec<Value> { parts.iter().map(|one| part(report, *one)).collect() };
    let suspects = cause.suspects.iter().map(|suspect| {
        let words = suspect.test.to_string();
        json!({ "parts": parts(&suspect.parts), "test": words })
    });
    let value = match cause.effect {
        Effect::Capacity(value) | Effect::Factor(value) | Effect::Delay(value) => Some(value),
        Effect::Level | Effect::Detour | Effect::Unsteady => None,
    };
    json!({
        "parts": parts(&cause.parts),
        "way": cause.way.map(|way| format!("{way:?}")),
        "effect": cause.effect.to_string(),
        "value": value,
        "modes": cause.modes.to_string(),
        "under_load": cause.under_load,
        "gain_bits": cause.gain_bits,
        "explains": names(&cause.explains),
        "suspects": suspects.collect::<Vec<_>>(),
        "support": cause.support,
        "by_design": cause.by_design,
    })
}

/// Returns a part with the GPUs that it belongs to and the PCI function of a link.
fn part(report: &Report, part: Part) -> Value {
    let kind = match part {
        Part::Link(NodeId::HostBridge(..) | NodeId::HiddenRoot) => "root",
        Part::Link(_) => "link",
        Part::NvPair(..) => "nvlink-pair",
        Part::NvPort(_) => "nvlink-port",
        Part::Interconnect(..) => "interconnect",
        Part::Memory(_) => "memory",
        Part::Gpu(_) => "gpu",
        Part::Host(_) => "host",
        Part::Local(_) => "local",
        Part::Stage(_) => "staging",
        Part::Pair(..) => "pair",
        Part::StagedPair(..) => "staged-pair",
        Part::Exit(_) => "exit",
        Part::Class(_) => "class",
        Part::Machine => "machine",
    };
    let address = match part {
        Part::Link(NodeId::Pci(address)) => Some(address),
        Part::Link(NodeId::Gpu(gpu)) => report.snapshot.gpu(gpu).and_then(|gpu| gpu.pci.get()),
        _ => None,
    };
    json!({
        "kind": kind,
        "gpus": gpus_of(part, report),
        "address": address.map(|address| address.to_string()),
        "words": part.to_string(),
    })
}
