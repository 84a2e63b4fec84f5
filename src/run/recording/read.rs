//! Reads a journal back, whether it is complete or was cut off.

use super::entry::{Header, SCHEMA};
use super::fold::Recording;

/// Reads a journal: its header, and the fold over its entries. Unreadable lines and a torn
/// last line are left out; the recording lists both among its problems.
///
/// # Errors
///
/// The file is empty, is no journal, or has another version. The sentence does not name the file.
pub fn read(bytes: &[u8]) -> Result<(Header, Recording), String> {
    // Every line ends with a line feed: anything after the last one was cut off.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    let mut lines = whole.split(|byte| *byte == b'\n');
    let first = lines.next().filter(|line| !line.is_empty()).ok_or(match bytes {
        [] => "it is empty: the run was cut off before it had begun",
        _ => "it is not a journal of peerscope, or was cut off in its first line",
    })?;
    let header = header(first)?;
    let mut recording = Recording::new(&header.profile);
    let mut unreadable = 0;
    for line in lines {
        match serde_json::from_slice(line) {
            Ok(entry) => recording.take(entry),
            Err(_) => unreadable += 1,
        }
    }
    match unreadable {
        0 => {}
        1 => recording.unread("1 of its lines could not be read".into()),
        _ => recording.unread(format!("{unreadable} of its lines could not be read")),
    }
    if bytes.last() != Some(&b'\n') {
        recording.unread("its last line is not complete".into());
    }
    Ok((header, recording))
}

fn header(line: &[u8]) -> Result<Header, String> {
    let value: serde_json::Value =
        serde_json::from_slice(line).map_err(|_| "it is not a journal of peerscope")?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => serde_json::from_value(value)
            .map_err(|why| format!("its first line is not complete: {why}")),
        Some(other) => Err(format!(
            "it has the schema '{other}', this version reads {SCHEMA}: use the version of peerscope that wrote it"
        )),
        None => Err("it is not a journal of peerscope".into()),
    }
}
