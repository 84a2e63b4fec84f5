//! `nvbandwidth -j`: the same matrices as JSON.

use serde::Deserialize;
use serde_json::Value;

use super::nvbandwidth::{add, add_device, device, test};
use crate::lines::Line;
use crate::reader::{Ahead, Reader};
use crate::told::{Notes, number};
use model::reading::Reading;

pub(crate) const READER: Reader = Reader {
    kind: "nvbandwidth-json",
    tool: "nvbandwidth -j",
    begins: |line| line.starts_with('{'),
    read,
};

#[derive(Deserialize)]
struct Document {
    nvbandwidth: Root,
}

#[derive(Deserialize)]
struct Root {
    #[serde(rename = "Driver Version")]
    driver: Option<String>,
    #[serde(rename = "GPU Device list", default)]
    devices: Vec<String>,
    #[serde(default)]
    testcases: Vec<Testcase>,
    version: Option<String>,
}

#[derive(Deserialize)]
struct Testcase {
    #[serde(default)]
    bandwidth_description: String,
    #[serde(default)]
    bandwidth_matrix: Vec<Vec<Value>>,
    name: String,
}

/// Longest JSON text, bytes.
const LONGEST: usize = 8 << 20;

/// Returns the lines of a JSON value that begins here as one text, up to where its braces are closed, and their number.
fn json_text(lines: &[Line<'_>], notes: &mut Notes) -> Option<(String, usize)> {
    let (mut text, mut depth) = (String::new(), 0_i64);
    let (mut quoted, mut escaped) = (false, false);
    for (place, line) in lines.iter().enumerate() {
        for byte in line.text.bytes() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b'{' | b'[' if !quoted => depth += 1,
                b'}' | b']' if !quoted => depth -= 1,
                _ => {}
            }
        }
        text.push_str(&line.text);
        text.push('\n');
        notes.in_vain = place;
        if depth <= 0 {
            return Some((text, place + 1));
        }
        if text.len() > LONGEST {
            return None;
        }
    }
    None
}

/// Returns true if one of the first lines has this key. Braces begin much that is no JSON.
fn has_key(lines: &[Line<'_>], key: &str) -> bool {
    lines.iter().take(4).any(|line| line.text.contains(key))
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    if !has_key(ahead.lines, "\"nvbandwidth\"") {
        return None;
    }
    let (text, used) = json_text(ahead.lines, notes)?;
    let root = serde_json::from_str::<Document>(&text).ok()?.nvbandwidth;
    // The lines of its values are found by their text: the name of a test, then the rows below it.
    let line_of = |wanted: &str| {
        let mut lines = ahead.lines[..used].iter();
        lines.find(|line| line.text.contains(wanted)).map_or(0, |line| line.number)
    };
    let first = ahead.lines.first()?.number;
    let version = root.version.as_deref();
    notes.version = version.map(|version| version.trim_start_matches('v').to_owned());
    if let Some(driver) = root.driver {
        let line = line_of("Driver Version");
        notes.host(line, |host| host.driver_version = Reading::Known(driver));
    }
    // More than a machine can have are refused later.
    for text in root.devices.iter().take(1000) {
        if let Some(device) = device(text) {
            add_device(notes, line_of(text).max(first), device);
        }
    }
    for case in root.testcases {
        let Some(test) = test(&case.name) else {
            continue;
        };
        let line = line_of(&format!("\"{}\"", case.name)).max(first);
        for (row, cells) in case.bandwidth_matrix.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let value = match cell {
                    Value::String(text) => number(text),
                    Value::Number(value) => value.as_f64(),
                    _ => None,
                };
                if let Some(value) = value.filter(|value| *value > 0.0 && *value < 1e6) {
                    let description = &case.bandwidth_description;
                    add(notes, line, test, description, (row, column), value);
                }
            }
        }
    }
    Some(used)
}
