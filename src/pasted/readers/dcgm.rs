//! `dcgmi diag -j`: tests that failed or warned.

use serde_json::Value;

use super::nvbandwidth_json::{has_key, json_text};
use crate::reader::{Ahead, Reader};
use crate::told::{Note, Notes};
use model::pasted::PastedFaultKind;
use model::reading::Reading;

pub(crate) const READER: Reader =
    Reader { kind: "dcgm-diag", tool: "dcgmi diag -j", begins: |line| line.starts_with('{'), read };

/// Most results that are named.
const MOST: usize = 20;

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    if !has_key(ahead.lines, "DCGM") {
        return None;
    }
    let (json, used) = json_text(ahead.lines, notes)?;
    let root: Value = serde_json::from_str(&json).ok()?;
    let first = ahead.lines.first()?.number;
    let diagnostic = root.get("DCGM Diagnostic").or_else(|| root.get("DCGM GPU Diagnostic"))?;
    for (key, value) in [root.get("metadata"), Some(&root)]
        .into_iter()
        .flatten()
        .flat_map(|part| part.as_object())
        .flatten()
    {
        let Some(value) = value.as_str() else {
            continue;
        };
        if key.eq_ignore_ascii_case("version") || key == "DCGM Version" {
            notes.version = Some(value.to_owned());
        } else if key.starts_with("Driver Version") {
            notes.host(first, |host| host.driver_version = Reading::Known(value.to_owned()));
        }
    }
    let tests = list(diagnostic, "test_categories").flat_map(|category| list(category, "tests"));
    let results = tests
        .flat_map(|test| list(test, "results").map(move |result| (text(test, "name"), result)));
    let bad = results
        .filter(|(_, result)| matches!(text(result, "status"), "Fail" | "Warn" | "FAIL" | "WARN"));
    for (name, result) in bad.take(MOST) {
        let gpu = match (&result["gpu_id"], &result["gpu_ids"], &result["entity_id"]) {
            (Value::String(gpu), ..) | (_, Value::String(gpu), _) => format!(" on GPU {gpu}"),
            (Value::Number(gpu), ..) | (_, _, Value::Number(gpu)) => format!(" on GPU {gpu}"),
            _ => String::new(),
        };
        let why = list(result, "warnings").map(|why| match why {
            Value::String(why) => why.as_str(),
            why => text(why, "warning"),
        });
        let why: String = why.collect::<Vec<_>>().join("; ").chars().take(200).collect();
        let word = text(result, "status").to_ascii_lowercase();
        let text = format!("dcgmi diag: {name}: {word}{gpu}: {why}");
        let what = match word.as_str() {
            "fail" => Note::Fault(PastedFaultKind::TestFailed, None, text),
            _ => Note::Problem(text),
        };
        notes.add(first, what);
    }
    Some(used)
}
