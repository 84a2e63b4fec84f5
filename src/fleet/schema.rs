//! The JSON Schema of a fleet file, made from the types and kept as docs/fleet.schema.json.
//!
//! `PEERSCOPE_WRITE_SCHEMA=1 cargo test -p peerscope-fleet schema` writes the file again.

use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::assess::{Question, assess};
use super::formats::{CODES, render};
use super::model::{Fleet, SCHEMA};
use super::sources::{Broken, Gathered};
use super::testing::{loaded_fleet_of, question, slow};
use report::Style;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/fleet.schema.json");

fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<Fleet>().to_value();
    schema["title"] = json!(SCHEMA);
    schema["description"] = json!("A fleet file of peerscope; docs/fleet.md says what it means.");
    schema["properties"]["schema"] =
        json!({ "description": "Name and version of this format.", "const": SCHEMA });
    schema["properties"]["made_at"]["format"] = json!("date-time");
    schema["$defs"]["Finding"]["properties"]["code"] = json!({ "description": "Its code; later versions may have more.", "type": "string", "pattern": "^fleet-[a-z-]+$" });
    model::schema::later_keys_are_optional(&mut schema);
    schema
}

/// Returns a fleet with an element in every list, as JSON.
fn full() -> Value {
    let mut digests = loaded_fleet_of(12);
    slow(&mut digests[3], 2, 0.6);
    digests[5].summary.driver_version = Some("1.2.3".into());
    let newer =
        super::digest::Digest { started_at: "2030-01-01T00:00:00Z".into(), ..digests[1].clone() };
    digests.push(newer);
    let broken = vec![Broken { file: "x.json".into(), why: "is not JSON".into() }];
    let gathered = Gathered { digests, broken, others: 1, left_out: vec!["notes.txt".into()] };
    let asked = || Question {
        list: Some(vec!["node001".into(), "nodeX".into()]),
        history: true,
        ..question()
    };
    let fleet = assess(&gathered, &asked());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.json");
    std::fs::write(&file, render(&fleet, "json", &Style::PLAIN)).unwrap();
    let earlier = super::Earlier::load(&file).unwrap();
    let fleet = assess(&gathered, &Question { earlier: Some(earlier), ..asked() });
    serde_json::from_str(&render(&fleet, "json", &Style::PLAIN)).unwrap()
}

#[test]
fn the_schema_in_docs_is_that_of_the_types() {
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("PEERSCOPE_WRITE_SCHEMA").is_some_and(|value| !value.is_empty()) {
        std::fs::write(FILE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(made == kept, "docs/fleet.schema.json is not up to date: scripts/goldens writes it");
}

#[test]
fn a_fleet_file_is_what_the_schema_says_and_nothing_else_is() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let fleet = full();
    for list in ["findings", "inventory", "cohorts", "nodes", "history"] {
        assert!(!fleet[list].as_array().unwrap().is_empty(), "{list} is empty");
    }
    assert!(fleet["list"].is_object() && fleet["changes"].is_object());
    assert!(
        fleet["findings"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| CODES.contains(&one["code"].as_str().unwrap()))
    );
    let errors: Vec<_> = validator.iter_errors(&fleet).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    for (pointer, value) in [
        ("/schema", json!("peerscope.fleet/99")),
        ("/verdict/verdict", json!("splendid")),
        ("/verdict/faulty", json!(-1)),
        ("/findings/0/severity", json!("fatal")),
        ("/findings/0/code", json!("pcie-narrow")),
        ("/cohorts/0/figures/0/median", json!("396")),
        ("/nodes/0/uuids", json!("GPU-1")),
        ("/read/broken/0/why", Value::Null),
    ] {
        let mut wrong = fleet.clone();
        *wrong.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert!(!validator.is_valid(&wrong), "{pointer}");
    }
    for (object, key) in [("", "nodes"), ("/verdict", "exit_code"), ("/cohorts/0", "signature")] {
        let mut wrong = fleet.clone();
        wrong.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        assert!(!validator.is_valid(&wrong), "{object} without {key}");
    }
    let mut newer = fleet;
    newer["nodes"][0]["room"] = json!(7);
    assert!(validator.is_valid(&newer), "more keys may come");
}
