//! A small language for the shape of JSON objects, so that a contract reads like its document.

use serde_json::Value;

/// Asserts that an object has these keys with values of these kinds.
///
/// `"index:whole percent:number? status:measured|failed"`: whole, number, text, flag, list, object
/// or any; alternatives are texts; `?` allows null.
pub fn assert_shape(object: &Value, fields: &str, place: &str) {
    assert!(object.is_object(), "{place} is no object: {object}");
    for field in fields.split_whitespace() {
        let (key, kind) = field.split_once(':').unwrap();
        let value = object.get(key).unwrap_or_else(|| panic!("{place} has no {key}: {object}"));
        let (kind, nullable) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        if value.is_null() {
            assert!(nullable, "{place}.{key} is null: {object}");
            continue;
        }
        let fits = match kind {
            "whole" => value.is_u64(),
            "number" => value.is_number(),
            "text" => value.as_str().is_some_and(|text| !text.is_empty()),
            "flag" => value.is_boolean(),
            "list" => value.is_array(),
            "object" => value.is_object(),
            "any" => true,
            alternatives => value.as_str().is_some_and(|text| alternatives.split('|').any(|known| known == text)),
        };
        assert!(fits, "{place}.{key} is {value}, expected {kind}");
    }
}
