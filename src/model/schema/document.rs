//! Tables of documents that are written from types: a row for each key, with its doc comment. Only for tests.

#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::path::Path;

use serde_json::Value;

/// Compares the table below a line of a document in docs/ with these rows. With `PEERSCOPE_WRITE_SCHEMA` in the
/// environment it writes them first. The head of the table stays.
///
/// # Panics
///
/// If the table has other rows, or is not there.
pub fn assert_table(file: &str, heading: &str, rows: &[String]) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join(file)).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let from = lines.iter().position(|line| *line == heading);
    let from = from.unwrap_or_else(|| panic!("docs/{file} has no line {heading}"));
    let is_row = |line: &&str| line.starts_with('|');
    let head = from + lines[from..].iter().take_while(|line| !is_row(line)).count();
    // Two lines of head.
    let first = head + 2;
    let end = head + lines[head..].iter().take_while(|line| is_row(line)).count();
    if lines[first..end] == *rows {
        return;
    }
    assert!(
        std::env::var_os("PEERSCOPE_WRITE_SCHEMA").is_some_and(|value| !value.is_empty()),
        "docs/{file}, {heading}: doc comments give other rows; scripts/goldens writes them:\n{}",
        rows.join("\n")
    );
    let rows: Vec<_> = rows.iter().map(String::as_str).collect();
    let written = [&lines[..first], &rows, &lines[end..]].concat();
    std::fs::write(docs.join(file), written.join("\n") + "\n").unwrap();
}

/// Returns the keys of a struct by its schema, in the order of a text of JSON in which it is written.
pub fn keys<'a>(schema: &'a Value, written: &str) -> Vec<(&'a str, &'a Value)> {
    let place = |key: &str| written.find(&format!("\"{key}\":"));
    let properties = schema["properties"].as_object().unwrap();
    let placed = properties.iter().filter_map(|(key, property)| {
        let place = place(key)?;
        Some((place, (key.as_str(), property)))
    });
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, key)| key).collect()
}

/// Returns the type of a key without its null, from the schema's definitions if it is one of them.
pub fn kind<'a>(property: &'a Value, defs: &'a Value) -> &'a Value {
    let some = property.get("anyOf").map_or(property, |either| &either[0]);
    let name = some.get("$ref").and_then(Value::as_str);
    name.map_or(some, |name| &defs[name.rsplit('/').next().unwrap()])
}

/// Returns the words of a key that is an enumeration.
pub fn words(property: &Value, defs: &Value) -> Option<String> {
    let words = kind(property, defs)["oneOf"].as_array()?;
    let words = words.iter().filter_map(|word| word["const"].as_str());
    Some(words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "))
}

/// Returns the doc comment of a key as a cell of a table, with details behind its first sentence.
pub fn meaning(property: &Value, details: Option<String>) -> String {
    let text = property["description"].as_str().unwrap_or_default();
    let text = text.strip_suffix('.').unwrap_or(text).replace('\n', " ");
    let mut letters = text.chars();
    let text = match (letters.next(), letters.next()) {
        // Abbreviations keep their capitals.
        (Some(first), Some(' ' | 'a'..='z')) if !text.starts_with("Xid") => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text,
    };
    let Some(details) = details else {
        return text;
    };
    match text.split_once(". ") {
        Some((first, rest)) => format!("{first}: {details}. {rest}"),
        None => format!("{text}: {details}"),
    }
}
