//! JSON Schema of the types whose schema is written by hand. Only for tests: the program itself needs no schema.

use std::borrow::Cow;

use super::flow::{Endpoint, HostMemory};
use super::node::NodeId;
use super::reading::Unknown;
use super::snapshot::BoundDriver;
use super::topology::LinkClass;
use super::units::{Generation, Lanes, PciAddress};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Removes the keys with a default from the keys that a schema requires.
pub fn later_keys_are_optional(schema: &mut Value) {
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
