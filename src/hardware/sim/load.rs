//! Reading the description of a simulated machine.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::base;
use super::spec::{MachineSpec, Problem};

/// The reason why a description is no valid machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(String);

/// Reads a description, fills in what it omits, and checks its consistency. Its base, if it has one, is a built-in
/// machine.
///
/// # Errors
/// Line and key of the mistake, and its reason.
pub fn parse(text: &str) -> Result<MachineSpec, LoadError> {
    parse_in(text, None)
}

/// Does the same for a file in this folder, whose base may be another file.
///
/// # Errors
///
/// Line and key of the mistake, and its reason.
pub(crate) fn parse_in(text: &str, folder: Option<&Path>) -> Result<MachineSpec, LoadError> {
    let mut table = DeTable::parse(text).map_err(|error| misread(text, None, &error))?;
    let at_base = |message: String, place: Range<usize>| {
        let line = line_at(text, place.start);
        LoadError(format!("line {line}, {}: {message}", base::KEY))
    };
    let named = base::take(table.get_mut()).map_err(|(message, place)| at_base(message, place))?;
    let Some(name) = named else {
        return completed(text, &table);
    };
    let (place, name) = (name.span(), name.into_inner());
    let below = base::text(&name, folder).map_err(|message| at_base(message, place.clone()))?;
    let unusable =
        |why: String| at_base(format!("the machine '{name}' is not usable: {why}"), place.clone());
    let of_base = |error: toml::de::Error| unusable(misread(&below, None, &error).to_string());
    let mut below_table = DeTable::parse(&below).map_err(of_base)?;
    if below_table.get_mut().remove(base::KEY).is_some() {
        return Err(unusable("it has a base itself".to_owned()));
    }
    // Check the base first, so that a mistake in it is reported there, and not here.
    completed(&below, &below_table).map_err(|error| unusable(error.to_string()))?;
    let span = table.span();
    let merged = base::merged(below_table.into_inner(), table.into_inner(), &place);
    completed(text, &Spanned::new(span, merged))
}

/// Returns the machine of the values of this text.
fn completed(text: &str, table: &Spanned<DeTable<'_>>) -> Result<MachineSpec, LoadError> {
    let whole = base::over_defaults(table.get_ref().clone())
        .map_err(|error| misread(base::KEY, None, &error))?;
    let whole = Spanned::new(table.span(), whole);
    let mut spec: MachineSpec = MachineSpec::deserialize(Deserializer::from(whole))
        .map_err(|error| misread(text, Some(table.get_ref()), &error))?;
    spec.complete();
    spec.check().map_err(|Problem { key, message }| {
        match line_of(text, table.get_ref(), &key) {
            Some(line) => LoadError(format!("line {line}, {key}: {message}")),
            None => LoadError(format!("{key}: {message}")),
        }
    })?;
    Ok(spec)
}

/// Returns the error for text that is not TOML, or lacks the expected keys and types.
fn misread(text: &str, table: Option<&DeTable<'_>>, error: &toml::de::Error) -> LoadError {
    // serde's "field" is a "key" in TOML.
    let message = error.message().replace('\n', "; ").replace(" field `", " key `");
    let Some(span) = error.span() else {
        return LoadError(message);
    };
    let line = line_at(text, span.start);
    let mut best: Option<(usize, String)> = None;
    if let Some(table) = table {
        around(table, "", &span, &mut best);
    }
    match best {
        Some((_, key)) => LoadError(format!("line {line}, {key}: {message}")),
        None => LoadError(format!("line {line}: {message}")),
    }
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// Finds the smallest key or value around a position.
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
    if around && best.as_ref().is_none_or(|(length, _)| span.len() <= *length) {
        *best = Some((span.len(), path.to_owned()));
    }
}

/// Returns the line of a key such as `pci[3].parent`, or of the nearest key above it in the text.
fn line_of(text: &str, table: &DeTable<'_>, key: &str) -> Option<usize> {
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
                let table = below.map_or(Some(table), |value| value.get_ref().as_table())?;
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

#[cfg(test)]
#[path = "load_docs_tests.rs"]
mod docs_tests;
