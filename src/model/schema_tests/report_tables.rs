//! The tables of facts in docs/report.md, written from the doc comments of the facts.

use serde_json::Value;

use super::schema;
use crate::reading::Unknown;
use crate::schema::document::{assert_table, keys, kind, meaning, words};
use crate::snapshot::{Gpu, GpuPair, Host, NvLink, PciFunction, PciKind};
use crate::testing::pci;

/// Facts whose keys have a table of their own.
const TABLES: [(&str, &str); 1] = [("nvlinks", "#snapshotgpusnvlinks")];

/// Returns the type of a key in the words of the document.
fn type_of(key: &str, property: &Value, defs: &Value) -> &'static str {
    fn is(kind: &Value, name: &str) -> bool {
        kind["type"] == name || kind["type"][0] == name
    }
    let kind = kind(property, defs);
    let items = &kind["items"];
    match key.rsplit('_').next() {
        _ if is(kind, "boolean") => "true, false",
        _ if is(items, "string") => "list of text",
        _ if is(items, "integer") => "list of numbers",
        _ if is(kind, "array") => "list",
        _ if is(kind, "object") => "object",
        _ if is(kind, "string") || kind["oneOf"].is_array() => "text",
        Some("bytes") => "bytes",
        Some("mbps") => "10^6 bytes/s",
        Some("mhz") => "MHz",
        Some("c") => "degrees Celsius",
        Some("seconds") => "seconds",
        _ => "number",
    }
}

/// Returns the keys of an object, with their meaning.
fn parts(object: &Value, defs: &Value) -> Option<String> {
    let properties = object["properties"].as_object()?;
    // The order of their declaration, which `properties` does not keep.
    let required = object["required"].as_array().into_iter().flatten();
    let required: Vec<_> = required.filter_map(Value::as_str).collect();
    let optional = properties.keys().map(String::as_str);
    let optional = optional.filter(|key| !required.contains(key));
    let part = |key| {
        let property = &properties[key];
        format!("`{key}` ({})", meaning(property, words(property, defs)))
    };
    let keys = required.iter().copied().chain(optional);
    Some(keys.map(part).collect::<Vec<_>>().join(", "))
}

/// Returns the row of a fact.
fn row(key: &str, property: &Value, defs: &Value) -> String {
    let kind_of = kind(property, defs);
    let object = kind_of.get("items").map_or(kind_of, |items| kind(items, defs));
    let table = TABLES.into_iter().find(|(fact, _)| *fact == key);
    let details = match table {
        Some((_, anchor)) => Some(format!("[keys]({anchor})")),
        None => words(property, defs).or_else(|| parts(object, defs)),
    };
    let type_of = type_of(key, property, defs);
    let meaning = meaning(property, details);
    // Facts are optional; what is not one is always written.
    let nullable = property["type"][1] == "null" || property.get("anyOf").is_some();
    match (property.get("default"), nullable) {
        (Some(_), _) => format!("| `{key}` | {type_of} | {meaning} |"),
        (None, true) => format!("| `{key}` | {type_of} or null | {meaning}; always present |"),
        (None, false) => format!("| `{key}` | {type_of} | {meaning}; always present |"),
    }
}

#[test]
fn the_tables_of_facts_in_the_document_are_those_of_the_types() {
    let schema = schema();
    let defs = &schema["$defs"];
    let unread = Unknown::NotRead("".into());
    let table = |heading: &str, name: &str, written: serde_json::Result<String>| {
        let rows = keys(&defs[name], &written.unwrap()).into_iter();
        let rows = rows.filter(|(key, _)| *key != "unknown");
        let rows: Vec<_> = rows.map(|(key, property)| row(key, property, defs)).collect();
        assert_table("report.md", heading, &rows);
    };
    let host = Host::unread(&unread);
    let gpu = Gpu::unread(0, &unread);
    let link = NvLink::unread(0, &unread);
    let pair = GpuPair::unread(0, 1, &unread);
    let (address, bridge) = (pci("01:00.0"), "pci0000:00".to_owned());
    let function = PciFunction::unread(address, None, bridge, PciKind::Endpoint, &unread);
    table("### snapshot.host", "Host", serde_json::to_string(&host));
    table("### snapshot.gpus[]", "Gpu", serde_json::to_string(&gpu));
    table("### snapshot.gpus[].nvlinks[]", "NvLink", serde_json::to_string(&link));
    table("### snapshot.pairs[]", "GpuPair", serde_json::to_string(&pair));
    table("### snapshot.pci[]", "PciFunction", serde_json::to_string(&function));
}
