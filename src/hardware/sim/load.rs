//! Reading the description of a simulated machine.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::spec::{MachineSpec, Problem};

/// Why a description is no machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// Reads a description, fills in what it leaves out, and checks that it holds together.
///
/// # Errors
///
/// Line and key, and what is wrong with it.
pub fn parse(text: &str) -> Result<MachineSpec, LoadError> {
    let mut spec: MachineSpec = toml::from_str(text).map_err(|error| misread(text, &error))?;
    spec.complete();
    spec.check()
        .map_err(|Problem { key, message }| match line_of(text, &key) {
            Some(line) => LoadError(format!("line {line}, {key}: {message}")),
            None => LoadError(format!("{key}: {message}")),
        })?;
    Ok(spec)
}

/// What is no TOML, or does not have the keys and types that it should.
fn misread(text: &str, error: &toml::de::Error) -> LoadError {
    // TOML has keys where serde has fields.
    let message = error
        .message()
        .replace('\n', "; ")
        .replace(" field `", " key `");
    let Some(span) = error.span() else {
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
