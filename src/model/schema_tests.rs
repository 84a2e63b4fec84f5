//! The JSON Schema of the report, generated from the types and kept as docs/report.schema.json.
//!
//! `PEERSCOPE_WRITE_SCHEMA=1 cargo test -p peerscope-model schema` rewrites the file.

use std::path::{Path, PathBuf};

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::report::{Report, SCHEMA};
use super::schema::later_keys_are_optional;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.schema.json");

/// Facts that the contract promises: the schema requires them.
const PROMISED_FACTS: (&str, [&str; 6]) =
    ("Gpu", ["uuid", "pci", "name", "pcie_generation", "pcie_width", "nvlinks"]);

/// Returns the schema of the written form: every key that is always present is required. A key with a default for
/// reading is not required. It was added later, or it is a fact, any of which may be added later; reports without it
/// have the same format.
fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Report>().to_value();
    schema["title"] = json!(SCHEMA);
    schema["description"] =
        json!("A report of peerscope; docs/report.md says what each key means.");
    schema["properties"]["schema"] =
        json!({ "description": "Name and version of this format.", "const": SCHEMA });
    schema["properties"]["started_at"]["format"] = json!("date-time");
    let finding = &mut schema["$defs"]["Finding"]["properties"];
    finding["code"]["pattern"] = json!("^[a-z0-9]+(-[a-z0-9]+)*$");
    later_keys_are_optional(&mut schema);
    let (facts, promised) = PROMISED_FACTS;
    if let Value::Array(required) = &mut schema["$defs"][facts]["required"] {
        required.extend(promised.map(Value::from));
    }
    schema
}

#[test]
fn the_schema_in_docs_is_that_of_the_types() {
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("PEERSCOPE_WRITE_SCHEMA").is_some_and(|value| !value.is_empty()) {
        std::fs::write(FILE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(made == kept, "docs/report.schema.json is not up to date: scripts/goldens writes it");
}

#[test]
fn it_requires_what_the_contract_promises() {
    let schema = schema();
    let required = |schema: &Value| {
        let keys = schema["required"].as_array().into_iter().flatten();
        keys.map(|key| key.as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    let promised = |schema: &Value, keys: &str| {
        let required = required(schema);
        for key in keys.split_whitespace() {
            assert!(required.contains(key), "{key} is not required: {required:?}");
            assert!(schema["properties"].get(key).is_some(), "{key} is not described");
        }
    };
    promised(
        &schema,
        "schema tool started_at machine snapshot topology measurements findings verdict timing",
    );
    let defs = &schema["$defs"];
    promised(&defs["Gpu"], "index uuid pci name pcie_generation pcie_width nvlinks");
    promised(
        &defs["PairRoute"],
        "source destination class theoretical_gbps bottleneck peer_access",
    );
    promised(
        &defs["PeerBandwidth"],
        "source destination placement issuer engine direction path bytes achieved_gbps theoretical_gbps percent \
         samples spread_percent verified status reason",
    );
    promised(&defs["Finding"], "code severity subject message evidence next_step");
    promised(&defs["Verdict"], "verdict exit_code tested untested");
    assert!(!required(&defs["Gpu"]).contains("unknown"), "left out where everything is known");
    for (def, key) in [("PeerBandwidth", "fixed_cost_us"), ("Host", "xids")] {
        assert!(!required(&defs[def]).contains(key), "{def}.{key} came later");
    }
    let text = schema.to_string();
    assert!(
        !text.contains("\"additionalProperties\":false"),
        "a reader takes unknown keys as they come"
    );
}

/// Returns every report in a folder of recorded reports and below it.
fn recorded(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let of = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => recorded(&path),
        Some(extension) if extension == "json" => vec![path],
        _ => Vec::new(),
    };
    files.flat_map(of).collect()
}

#[test]
fn every_recorded_report_of_an_earlier_version_is_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let files = recorded(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data")));
    assert!(files.len() > 10, "{files:?}");
    let mut wrong = Vec::new();
    for file in files {
        let report = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let errors: Vec<_> = validator
            .iter_errors(&report)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if let Some(first) = errors.first() {
            let name = file.file_name().unwrap().display();
            wrong.push(format!("{name}: {} errors, first {first}", errors.len()));
        }
    }
    assert!(
        wrong.is_empty(),
        "a key that an earlier version did not write must be optional (CONTRIBUTING.md):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn what_is_not_a_report_does_not_pass() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let report: Value =
        serde_json::from_str(include_str!("../../tests/data/h200x4-worker-killed.json")).unwrap();
    for (pointer, value) in [
        ("/schema", json!("peerscope.report/99")),
        ("/verdict/verdict", json!("splendid")),
        ("/verdict/tested", json!("many")),
        ("/measurements/peer/0/engine", json!("bus")),
        ("/measurements/peer/0/placement/source", json!("third")),
        ("/measurements/peer/0/achieved_gbps", json!("396")),
        ("/topology/pairs/0/class", json!("NVLINK")),
        ("/snapshot/gpus/0/pci", json!("slot 3")),
        ("/snapshot/pci/0/unknown", json!({ "slot": "no idea" })),
        ("/findings/0/severity", json!("fatal")),
        ("/findings/0/subject", json!({ "kind": "gpu" })),
        ("/snapshot/gpus/0/pcie_width", json!(-1)),
    ] {
        let mut wrong = report.clone();
        *wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert!(!validator.is_valid(&wrong), "{pointer}");
    }
    for (object, key) in [("", "verdict"), ("/verdict", "exit_code"), ("/snapshot/gpus/0", "uuid")]
    {
        let mut wrong = report.clone();
        wrong.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        assert!(!validator.is_valid(&wrong), "{object} without {key}");
    }
    let mut newer = report;
    newer["verdict"]["confidence"] = json!(0.9);
    assert!(validator.is_valid(&newer), "more keys may come");
}
