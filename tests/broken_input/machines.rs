//! Descriptions of machines with broken content.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use model::snapshot::SlowFact;
use run::discover::discover;
use sim::{builtin, load, telemetry};

/// Machines to start from: the text of `machines --show`, and its structure.
static BASES: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    let machine = |name| {
        let text = toml::to_string(&builtin::get(name).unwrap()).unwrap();
        let value = toml::from_str(&text).unwrap();
        (text, value)
    };
    let differences = "base = \"single\"\nsummary = \"on a base\"\n[[gpus]]\npci = \"0000:03:00.0\"\ncopy_engines = 3\n";
    let on_base = (differences.into(), toml::from_str(differences).unwrap());
    ["h200x2", "single", "none", "exclusive", "pair-hangs"]
        .map(machine)
        .into_iter()
        .chain([on_base])
        .collect()
});

/// Reads a description as `topo --machine FILE` does before it judges.
fn use_machine(text: &str) -> Result<(), String> {
    match load::parse(text) {
        Err(error) => fuzz::assert_is_sentence(&error.to_string()),
        Ok(spec) => {
            let snapshot = discover(telemetry(spec), SlowFact::ALL, Duration::from_secs(4));
            // A thread that panicked never answered its question.
            if let Some(problem) =
                snapshot.problems.iter().find(|problem| problem.contains("broke off"))
            {
                return Err(problem.clone());
            }
            topology::build(&snapshot);
            Ok(())
        }
    }
}

/// TOML has no null.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            elements.retain(|element| !element.is_null());
            elements.iter_mut().for_each(without_nulls);
        }
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        _ => {}
    }
}

#[test]
fn more_links_than_a_number_has_room_for_are_cut_or_refused() {
    let mut spec = builtin::get("h200x2").unwrap();
    spec.gpus[0].nvlinks = vec![spec.gpus[0].nvlinks[0].clone(); 20];
    use_machine(&toml::to_string(&spec).unwrap()).unwrap();
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_machines_of_broken_structure() {
    let strategy = (0..BASES.len(), fuzz::mutations());
    fuzz::run("machine, structure", 0.5, &strategy, |(base, mutations)| {
        let mut value = fuzz::mutated(&BASES[base].1, &mutations);
        without_nulls(&mut value);
        // TOML cannot write some values, such as numbers beyond 63 bits. The other test covers them.
        toml::to_string(&value).map_or(Ok(()), |text| use_machine(&text))
    });
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_machines_of_broken_text() {
    let strategy = (0..BASES.len(), fuzz::edits(4));
    fuzz::run("machine, text", 0.5, &strategy, |(base, edits)| {
        let text = fuzz::edited(BASES[base].0.as_bytes(), &edits);
        use_machine(&String::from_utf8_lossy(&text))
    });
}
