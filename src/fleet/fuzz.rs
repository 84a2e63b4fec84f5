//! Tests with broken reports among good ones: the fleet is assessed and written, whatever a file contains.

use std::sync::LazyLock;

use serde_json::Value;

use super::digest::{Digest, NoReport, read};
use super::sources::{Broken, Gathered};
use super::testing::{assessed, fleet_of};
use report::{Style, named, render};

/// Reports in their written form.
static TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let samples = [sample::healthy(2), sample::loaded(), sample::pcie_box(), sample::unknown(3)];
    let json = |report| render(report, named("json").unwrap(), &Style::PLAIN);
    samples.iter().map(json).collect()
});

static BASES: LazyLock<Vec<Value>> =
    LazyLock::new(|| TEXTS.iter().map(|text| serde_json::from_str(text).unwrap()).collect());

static OTHERS: LazyLock<Vec<Digest>> = LazyLock::new(|| fleet_of(5));

/// Reads one file among others: it becomes a node, a broken file with a sentence, or is left out.
fn among_others(text: &[u8]) -> Result<(), String> {
    let mut gathered = Gathered { digests: OTHERS.clone(), ..Gathered::default() };
    match read("fuzz.json", text).map_err(|why| why.to_string())? {
        Ok(digest) => gathered.digests.push(digest),
        Err(NoReport::Other) => gathered.others += 1,
        Err(NoReport::Broken(why)) => {
            fuzz::assert_is_sentence(&why)?;
            gathered.broken.push(Broken { file: "fuzz.json".into(), why });
        }
    }
    let fleet = assessed(&gathered);
    if fleet.nodes.len() < OTHERS.len() {
        return Err(format!("{} nodes are left", fleet.nodes.len()));
    }
    for format in ["text", "json", "html", "markdown", "junit", "prometheus"] {
        if super::formats::render(
            &fleet,
            format,
            &Style { level: report::Level::Every, ..Style::PLAIN },
        )
        .is_empty()
        {
            return Err(format!("{format} is empty"));
        }
    }
    let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
    super::export::write(folder.path(), &gathered, &fleet)
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_fleets_with_a_report_of_broken_structure() {
    let strategy = (0..BASES.len(), fuzz::mutations());
    fuzz::run("fleet, structure", 0.03, &strategy, |(base, mutations)| {
        let value = fuzz::mutated(&BASES[base], &mutations);
        among_others(value.to_string().as_bytes())
    });
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_fleets_with_a_report_of_broken_text() {
    let strategy = (0..TEXTS.len(), fuzz::edits(4));
    fuzz::run("fleet, text", 0.03, &strategy, |(base, edits)| {
        among_others(&fuzz::edited(TEXTS[base].as_bytes(), &edits))
    });
}
