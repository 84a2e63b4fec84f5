//! Finds the output of tools in the lines of an input.

use super::file::Input;
use super::lines::{command, lines};
use super::reader::{Ahead, Reader};
use super::readers::READERS;
use super::told::{Note, Notes, Told};
use super::trouble;
use model::pasted::PastedSection;

/// An input as it was read.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub name: String,
    pub lines: u32,
    pub sections: Vec<Section>,
    /// What lines say besides the sections.
    pub troubles: Vec<Told>,
    /// The line from which on nothing was read, because the input says too much.
    pub full: Option<u32>,
}

/// The output of one tool.
#[derive(Debug)]
pub(crate) struct Section {
    pub shown: PastedSection,
    pub told: Vec<Told>,
}

/// Most lines between a command and its output.
const NEAR: usize = 4;

/// Most lines between parts of one output: notes and sums that are not read.
const NEAR_LINES: u32 = 6;

/// Most lines that one reader looks at in vain, besides some for each line of the input. Input that is made to begin a section
/// in every line would take hours.
const MOST_IN_VAIN: usize = 50_000;
const IN_VAIN_PER_LINE: usize = 4;

/// Finds all sections. A line belongs to the first reader that makes something of it. `left` is the number of statements
/// that may still be made.
pub(crate) fn scan(input: &Input, left: &mut usize) -> Scanned {
    let lines = lines(&input.text);
    let mut scanned = Scanned {
        name: input.name.clone(),
        lines: u32::try_from(lines.len()).unwrap_or(u32::MAX),
        sections: Vec::new(),
        troubles: Vec::new(),
        full: None,
    };
    let mut last_command: Option<(usize, &str)> = None;
    // First and last lines of sections before they are joined.
    let mut places: Vec<(u32, u32)> = Vec::new();
    let most_in_vain = MOST_IN_VAIN + IN_VAIN_PER_LINE * lines.len();
    let mut in_vain = vec![0; READERS.len()];
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let text: &str = &line.text;
        let start = text.trim_start();
        if start.is_empty() {
            at += 1;
            continue;
        }
        let ahead = Ahead {
            lines: &lines[at..],
            command: last_command
                .filter(|(place, _)| at - place <= NEAR)
                .map(|(_, command)| command),
        };
        let found = READERS.iter().zip(&mut in_vain).find_map(|(reader, in_vain)| {
            if *in_vain > most_in_vain || !(reader.begins)(start) {
                return None;
            }
            read(reader, ahead, in_vain, *left)
        });
        if let Some((_, _, notes_full)) = &found
            && notes_full.is_some()
        {
            scanned.full = *notes_full;
            return scanned;
        }
        match found.map(|(section, used, _)| (section, used)) {
            Some((section, used)) => {
                *left = left.saturating_sub(section.told.len());
                places.push((section.shown.first_line, section.shown.last_line));
                scanned.add(section);
                at += used.max(1);
                last_command = None;
            }
            None => {
                if let Some(command) = command(text) {
                    last_command = Some((at, command));
                }
                at += 1;
            }
        }
    }
    let known = scanned.sections.iter().flat_map(Section::statements);
    scanned.troubles = trouble::of(&input.name, &lines, &places, &known.collect());
    scanned
}

fn read(
    reader: &'static Reader,
    ahead: Ahead<'_>,
    in_vain: &mut usize,
    left: usize,
) -> Option<(Section, usize, Option<u32>)> {
    let mut notes = Notes::within(left);
    let Some(used) = (reader.read)(ahead, &mut notes) else {
        *in_vain += notes.in_vain;
        return None;
    };
    let used = used.clamp(1, ahead.lines.len());
    let last = ahead.lines.get(used - 1)?.number;
    let shown = PastedSection {
        kind: reader.kind.to_owned(),
        tool: reader.tool.to_owned(),
        version: notes.version,
        first_line: ahead.lines.first()?.number,
        last_line: last,
        facts: u32::try_from(notes.told.len()).unwrap_or(u32::MAX),
    };
    let section = Section { shown, told: notes.told };
    Some((section, used, notes.full))
}

impl Section {
    /// Returns the lines from which its reader took an event, a fault, a problem or a link.
    fn statements(&self) -> impl Iterator<Item = u32> {
        let is_statement = |what: &Note| {
            matches!(what, Note::Xid(_) | Note::Fault(..) | Note::Problem(_) | Note::Link(..))
        };
        let told = self.told.iter().filter(move |told| is_statement(&told.what));
        told.map(|told| told.line)
    }
}

impl Scanned {
    /// Adds a section, to the one before if both are of one kind and follow each other: lines of a log.
    fn add(&mut self, section: Section) {
        if let Some(before) = self.sections.last_mut()
            && before.shown.kind == section.shown.kind
            && (section.shown.version.is_none() || before.shown.version == section.shown.version)
            && section.shown.first_line.saturating_sub(before.shown.last_line) <= NEAR_LINES
        {
            before.shown.last_line = section.shown.last_line;
            before.shown.facts = before.shown.facts.saturating_add(section.shown.facts);
            before.told.extend(section.told);
        } else {
            self.sections.push(section);
        }
    }
}
