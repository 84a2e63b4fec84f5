//! `nvidia-smi -q -x`: the same facts as XML.

use quick_xml::Reader as Xml;
use quick_xml::events::Event;

use super::smi_facts::{State, plain};
use crate::lines::Line;
use crate::reader::{Ahead, Reader};
use crate::told::Notes;
use model::pcie::DEEPEST;

pub(crate) const READER: Reader = Reader {
    kind: "smi-xml",
    tool: "nvidia-smi -q -x",
    begins: |line| line.starts_with("<nvidia_smi_log"),
    read,
};

/// Lines of an XML document up to the end of its root, as one text, with the place of each line in it.
pub(super) struct Document {
    pub text: String,
    /// Offset of the start of each line, and its number.
    starts: Vec<(usize, u32)>,
    pub used: usize,
}

impl Document {
    pub(super) fn of(lines: &[Line<'_>], end: &str) -> Self {
        let mut document = Self { text: String::new(), starts: Vec::new(), used: 0 };
        for line in lines {
            document.starts.push((document.text.len(), line.number));
            document.text.push_str(&line.text);
            document.text.push('\n');
            document.used += 1;
            if line.text.contains(end) {
                break;
            }
        }
        document
    }

    pub(super) fn line(&self, offset: u64) -> u32 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let after = self.starts.partition_point(|(start, _)| *start <= offset);
        self.starts.get(after.saturating_sub(1)).map_or(0, |(_, line)| *line)
    }
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let document = Document::of(ahead.lines, "</nvidia_smi_log>");
    let mut xml = Xml::from_str(&document.text);
    xml.config_mut().check_end_names = false;
    let mut state = State::default();
    let mut path: Vec<String> = Vec::new();
    let mut any = false;
    // A document that is broken or cut is read up to there.
    while let Ok(event) = xml.read_event() {
        let line = document.line(xml.buffer_position());
        match event {
            Event::Start(tag) => {
                let name = plain(&String::from_utf8_lossy(tag.name().as_ref()));
                if name == "gpu" {
                    let id = tag.try_get_attribute("id").ok().flatten();
                    let id = id.map(|id| String::from_utf8_lossy(&id.value).into_owned());
                    if let Some(address) = id.and_then(|id| id.parse().ok()) {
                        state.begin(address, line, notes);
                    }
                }
                path.push(name);
                if path.len() > DEEPEST {
                    break;
                }
            }
            Event::End(_) => {
                let ended = path.pop();
                if ended.is_some_and(|name| name == "gpu") {
                    state.end(notes);
                }
            }
            Event::Text(text) => {
                let text = text.decode().unwrap_or_default();
                if let Some((key, above)) = path.split_last().filter(|_| !text.trim().is_empty()) {
                    any = true;
                    state.take(above, key, text.trim(), line, notes);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    state.end(notes);
    notes.in_vain = document.used;
    any.then_some(document.used)
}
