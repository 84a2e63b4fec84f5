//! The JSON Schema of the report, made from the types and kept as docs/report.schema.json.
//!
//! Only for tests: the program itself needs no schema. `PEERSCOPE_WRITE_SCHEMA=1 cargo test --lib
//! schema` writes the file again.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::flow::{Endpoint, HostMemory};
use super::node::NodeId;
use super::reading::Unknown;
use super::report::{Report, SCHEMA};
use super::snapshot::BoundDriver;
use super::topology::LinkClass;
use super::units::{Generation, Lanes, PciAddress};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json");

impl JsonSchema for PciAddress {
    fn schema_name() -> Cow<'static, str> {
        "PciAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Domain, bus, device and function, such as 0000:3b:00.0.",
            "type": "string",
            "pattern": "^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\\.[0-7]$",
        })
    }
}

impl JsonSchema for BoundDriver {
    fn schema_name() -> Cow<'static, str> {
        "BoundDriver".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The kernel driver that is bound to a PCI function: its name, or none.",
            "type": "string",
            "examples": ["none", "nvidia", "nouveau", "vfio-pci"],
        })
    }
}

impl JsonSchema for NodeId {
    fn schema_name() -> Cow<'static, str> {
        "NodeId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Id of a node of the graph, such as gpu0, 0000:3b:00.0, pci0000:00, numa0 or nvswitch.",
            "type": "string",
        })
    }
}

impl JsonSchema for Generation {
    fn schema_name() -> Cow<'static, str> {
        "Generation".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let newest = Self::NEWEST.number();
        json_schema!({ "description": "A PCIe generation.", "type": "integer", "minimum": 1, "maximum": newest })
    }
}

impl JsonSchema for Lanes {
    fn schema_name() -> Cow<'static, str> {
        "Lanes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Number of lanes of a PCIe link.", "enum": Self::ALL.map(Self::number) })
    }
}

impl JsonSchema for Unknown {
    fn schema_name() -> Cow<'static, str> {
        "Unknown".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Why a fact is not known.",
            "type": "string",
            "pattern": "^(unsupported$|denied: |failed: |limited: |not read: )",
        })
    }
}

impl JsonSchema for LinkClass {
    fn schema_name() -> Cow<'static, str> {
        "LinkClass".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "What an ordered pair of GPUs is joined by, in nvidia-smi's words.",
            "type": "string",
            "pattern": "^(NV[0-9]+|PIX|PXB|PHB|NODE|SYS|\\?)$",
        })
    }
}

impl JsonSchema for Endpoint {
    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let memory = generator.subschema_for::<HostMemory>();
        json_schema!({
            "description": "Where bytes come from or go to: { \"gpu\": 3 }, the memory of a GPU by NVML's index, or \
                            { \"host\": { \"node\": 0, \"memory\": \"pinned\" } }, that of a NUMA node; null where the node is \
                            not known.",
            "type": "object",
            "properties": {
                "gpu": { "type": "integer", "minimum": 0 },
                "host": {
                    "type": "object",
                    "properties": { "node": { "type": ["integer", "null"], "minimum": 0 }, "memory": memory },
                    "required": ["node", "memory"],
                },
            },
            "oneOf": [{ "required": ["gpu"] }, { "required": ["host"] }],
        })
    }
}

/// The schema of what is written: every key that is always there is required. A key that came later
/// (it has a default for reading) is not, since reports without it are of the same format.
fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
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
    schema
}

fn later_keys_are_optional(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let later: Vec<String> = object
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("default").is_some())
                .map(|(key, _)| key.clone())
                .collect();
            if let Some(Value::Array(required)) = object.get_mut("required") {
                required.retain(|key| later.iter().all(|later| key != later));
            }
            object.values_mut().for_each(later_keys_are_optional);
        }
        Value::Array(values) => values.iter_mut().for_each(later_keys_are_optional),
        _ => {}
    }
}

#[test]
fn the_schema_in_docs_is_that_of_the_types() {
    let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("PEERSCOPE_WRITE_SCHEMA").is_some_and(|value| !value.is_empty()) {
        std::fs::write(FILE, &made).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        made == kept,
        "docs/report.schema.json is not up to date: PEERSCOPE_WRITE_SCHEMA=1 cargo test --lib schema, and commit it"
    );
}

#[test]
fn it_requires_what_the_contract_promises() {
    let schema = schema();
    let required = |schema: &Value| {
        let keys = schema["required"].as_array().into_iter().flatten();
        keys.map(|key| key.as_str().unwrap().to_owned())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let promised = |schema: &Value, keys: &str| {
        let required = required(schema);
        for key in keys.split_whitespace() {
            assert!(
                required.contains(key),
                "{key} is not required: {required:?}"
            );
            assert!(
                schema["properties"].get(key).is_some(),
                "{key} is not described"
            );
        }
    };
    promised(
        &schema,
        "schema tool started_at machine snapshot topology measurements findings verdict timing",
    );
    let defs = &schema["$defs"];
    promised(
        &defs["Gpu"],
        "index uuid pci name pcie_generation pcie_width nvlinks",
    );
    promised(
        &defs["PairRoute"],
        "source destination class theoretical_gbps bottleneck peer_access",
    );
    promised(
        &defs["PeerBandwidth"],
        "source destination placement issuer engine direction path bytes achieved_gbps theoretical_gbps percent \
         samples spread_percent verified status reason",
    );
    promised(
        &defs["Finding"],
        "code severity subject message evidence next_step",
    );
    promised(&defs["Verdict"], "verdict exit_code tested untested");
    assert!(
        !required(&defs["Gpu"]).contains("unknown"),
        "left out where everything is known"
    );
    assert!(
        !required(&defs["PeerBandwidth"]).contains("fixed_cost_us"),
        "came later"
    );
    let text = schema.to_string();
    assert!(
        !text.contains("\"additionalProperties\":false"),
        "a reader takes unknown keys as they come"
    );
}

#[test]
fn what_is_not_a_report_does_not_pass() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    // Read and written again: facts that came later are null in it, and not absent.
    let report: Report =
        serde_json::from_str(include_str!("../../tests/data/h200x4-worker-killed.json")).unwrap();
    let report = serde_json::to_value(report).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(&report)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
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
        *wrong
            .pointer_mut(pointer)
            .unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert!(!validator.is_valid(&wrong), "{pointer}");
    }
    for (object, key) in [
        ("", "verdict"),
        ("/verdict", "exit_code"),
        ("/snapshot/gpus/0", "uuid"),
    ] {
        let mut wrong = report.clone();
        wrong
            .pointer_mut(object)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key)
            .unwrap();
        assert!(!validator.is_valid(&wrong), "{object} without {key}");
    }
    let mut newer = report;
    newer["verdict"]["confidence"] = json!(0.9);
    assert!(validator.is_valid(&newer), "more keys may come");
}
