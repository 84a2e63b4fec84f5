//! The table of a GPU's state in docs/machines.md, written from the doc comments and defaults of its keys.

use model::schema::document::{assert_table, keys, meaning, words};
use serde_json::Value;

use super::GpuState;

#[test]
fn the_table_of_the_state_in_the_document_is_that_of_its_keys() {
    let schema = schemars::schema_for!(GpuState).to_value();
    let written = serde_json::to_string(&GpuState::default()).unwrap();
    let row = |(key, property): (&str, &Value)| {
        let default = match &property["default"] {
            Value::Null => "none".to_owned(),
            Value::Array(list) if list.is_empty() => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let meaning = meaning(property, words(property, &schema["$defs"]));
        format!("| `{key}` | {meaning} | {default} |")
    };
    let rows: Vec<_> = keys(&schema, &written).into_iter().map(row).collect();
    assert_table("machines.md", "`state`:", &rows);
}
