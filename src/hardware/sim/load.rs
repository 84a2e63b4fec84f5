//! Finding a simulated machine by name or file.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::spec::{MachineSpec, Problem};
use super::{Simulated, builtin};
use crate::model::from_toml::{NotRead, from_toml};
use crate::model::nearest::did_you_mean;

/// The longest description that is read. The longest built-in one has some 100 kB.
const LONGEST: u64 = 4 << 20;

/// Why a description is no machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

impl Simulated {
    /// The built-in machine of this name, or the one that the file describes. A name with a slash
    /// or a dot is a file.
    ///
    /// # Errors
    ///
    /// A sentence that names the machine and lists those that exist, or that names the file, line
    /// and key that are wrong.
    pub fn find(name: &str) -> Result<Self, String> {
        if let Some(spec) = builtin::get(name) {
            return Ok(Self {
                name: name.to_owned(),
                spec,
            });
        }
        if !name.contains(['/', '.']) {
            let known: Vec<_> = builtin::names().collect();
            return Err(format!(
                "there is no machine '{name}'{}: choose live, a file that ends in .toml, or a simulated one ({})",
                did_you_mean(name, known.iter().copied().chain(["live"])),
                known.join(", ")
            ));
        }
        let text = read(Path::new(name))
            .map_err(|error| format!("cannot read the machine '{name}': {error}"))?;
        let spec =
            parse(&text).map_err(|error| format!("the machine '{name}' is not usable: {error}"))?;
        Ok(Self {
            name: name.to_owned(),
            spec,
        })
    }
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if read as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    Ok(text)
}

/// Reads a description, fills in what it leaves out, and checks that it holds together.
///
/// # Errors
///
/// Line and key, and what is wrong with it.
pub fn parse(text: &str) -> Result<MachineSpec, LoadError> {
    let mut spec: MachineSpec = from_toml(text).map_err(|error| misread(text, &error))?;
    spec.complete();
    spec.check()
        .map_err(|Problem { key, message }| match line_of(text, &key) {
            Some(line) => LoadError(format!("line {line}, {key}: {message}")),
            None => LoadError(format!("{key}: {message}")),
        })?;
    Ok(spec)
}

/// What is no TOML, or does not have the keys and types that it should.
fn misread(text: &str, error: &NotRead) -> LoadError {
    // TOML has keys where serde has fields.
    let message = error
        .message
        .replace('\n', "; ")
        .replace(" field `", " key `");
    let Some(span) = error.span.clone() else {
        return LoadError(message);
    };
    let line = line_at(text, span.start);
    let mut best: Option<(usize, String)> = None;
    if let Ok(table) = DeTable::parse(text) {
        around(table.get_ref(), "", &span, &mut best);
    }
    match best {
        Some((_, key)) => LoadError(format!("line {line}, {key}: {message}")),
        None => LoadError(format!("line {line}: {message}")),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
}

/// Finds the smallest key or value around a place.
fn around(
    table: &DeTable<'_>,
    above: &str,
    place: &Range<usize>,
    best: &mut Option<(usize, String)>,
) {
    for (key, value) in table {
        let path = if above.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{above}.{}", key.get_ref())
        };
        offer(key.span(), place, &path, best);
        around_value(value, &path, place, best);
    }
}

fn around_value(
    value: &Spanned<DeValue<'_>>,
    path: &str,
    place: &Range<usize>,
    best: &mut Option<(usize, String)>,
) {
    offer(value.span(), place, path, best);
    match value.get_ref() {
        DeValue::Table(table) => around(table, path, place, best),
        DeValue::Array(array) => {
            for (number, element) in array.iter().enumerate() {
                around_value(element, &format!("{path}[{number}]"), place, best);
            }
        }
        _ => {}
    }
}

fn offer(span: Range<usize>, place: &Range<usize>, path: &str, best: &mut Option<(usize, String)>) {
    let around = span.start <= place.start && place.end <= span.end;
    if around
        && best
            .as_ref()
            .is_none_or(|(length, _)| span.len() <= *length)
    {
        *best = Some((span.len(), path.to_owned()));
    }
}

/// The line of a key such as `pci[3].parent`, or of the nearest above it that the text has.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut offset = None;
    let mut below: Option<&Spanned<DeValue<'_>>> = None;
    for step in key.split(['.', '[']) {
        let next = match step.strip_suffix(']') {
            Some(number) => below?
                .get_ref()
                .as_array()?
                .get(number.parse::<usize>().ok()?)
                .map(|it| (it.span(), it)),
            None => {
                let table =
                    below.map_or(Some(table.get_ref()), |value| value.get_ref().as_table())?;
                let entry = table.iter().find(|(key, _)| key.get_ref() == step);
                entry.map(|(key, value)| (key.span(), value))
            }
        };
        let Some((span, value)) = next else { break };
        (offset, below) = (Some(span.start), Some(value));
    }
    offset.map(|offset| line_at(text, offset))
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
