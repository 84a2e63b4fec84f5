//! `nvidia-smi -q` as text: headings and `key : value`, deeper ones indented.

use super::smi_facts::{State, plain};
use crate::reader::{Ahead, Reader};
use crate::told::Notes;
use model::units::PciAddress;

pub(crate) const READER: Reader = Reader {
    kind: "smi-query",
    tool: "nvidia-smi -q",
    begins: |line| line.contains("NVSMI LOG") || block_of(line).is_some(),
    read,
};

/// Lines that no longer belong to this output in a row.
const STRANGE: usize = 3;

/// Returns the address of the GPU whose block this line begins.
pub(crate) fn block_of(line: &str) -> Option<PciAddress> {
    let address = line.trim().strip_prefix("GPU ")?;
    let is_address =
        address.len() >= 12 && address.bytes().filter(|byte| *byte == b':').count() == 2;
    address.parse().ok().filter(|_| is_address)
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let mut state = State::default();
    let mut headings: Vec<(usize, String)> = Vec::new();
    let mut strange = 0;
    let (mut used, mut keys) = (0, 0_u32);
    for (place, line) in ahead.lines.iter().enumerate() {
        let text = line.text.trim();
        if text.is_empty() {
            continue;
        }
        if text.contains("NVSMI LOG") {
            if place > 0 {
                break;
            }
            used = place + 1;
            continue;
        }
        let indent = line.text.len() - line.text.trim_start().len();
        headings.retain(|(above, _)| *above < indent);
        if let Some(address) = block_of(text) {
            headings.clear();
            state.begin(address, line.number, notes);
        } else if let Some((key, value)) = pair(text) {
            let names: Vec<String> = headings.iter().map(|(_, name)| name.clone()).collect();
            state.take(&names, &plain(key), value.trim(), line.number, notes);
            keys += 1;
        } else if is_heading(text) {
            // Facts follow it, if it is one.
            headings.push((indent, plain(text)));
            continue;
        } else {
            strange += 1;
            if strange > STRANGE {
                break;
            }
            continue;
        }
        (used, strange) = (place + 1, 0);
    }
    state.end(notes);
    notes.in_vain = used;
    (keys > 1).then_some(used)
}

/// Splits a line at its colon, which has spaces before it: a long run in what nvidia-smi prints, one where spaces were lost.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.split_once(" : ").or_else(|| Some((text.strip_suffix(" :")?, "")))?;
    (key.len() < 60).then_some((key.trim(), value))
}

/// Returns true for a heading: some words and no sign that a sentence, a path or a log has.
fn is_heading(text: &str) -> bool {
    text.len() < 60
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -/()".contains(c))
}
