//! A description that builds on another one: `base = "a100x8"` or `base = "bases/x.toml"`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{descriptions, text as file};
use model::nearest::did_you_mean;
use model::units::PciAddress;

/// A name with its position in the text.
type Named<'a> = Spanned<Cow<'a, str>>;

/// The key that names the base.
pub(super) const KEY: &str = "base";

/// Top-level lists whose tables are matched by an address, and the key that contains it.
const BY_ADDRESS: [(&str, &str); 3] = [("pci", "address"), ("gpus", "pci"), ("adapters", "pci")];

/// Returns the text of the base of this name: a built-in machine, or, if the name contains a slash or a dot, a file
/// beside the description.
///
/// # Errors
///
/// There is no such base, or it cannot be read; the error is a sentence.
pub(super) fn text(name: &str, folder: Option<&Path>) -> Result<Cow<'static, str>, String> {
    if let Some(text) = descriptions::description(name) {
        return Ok(text.into());
    }
    match folder {
        Some(folder) if name.contains(['/', '.']) => file::read(&folder.join(name))
            .map(Cow::Owned)
            .map_err(|error| format!("cannot read the machine '{name}': {error}")),
        _ => Err(format!(
            "there is no machine '{name}': a base is a built-in machine, or a file that ends in .toml{}",
            did_you_mean(name, descriptions::names())
        )),
    }
}

/// The values of a description where it gives none.
const DEFAULTS: &str = include_str!("defaults.toml");

/// Returns a description over the defaults: those of every machine and function, and those of each GPU's model.
///
/// # Errors
///
/// The defaults are no TOML, which a test rules out.
pub(super) fn over_defaults(own: DeTable<'_>) -> Result<DeTable<'_>, toml::de::Error> {
    let mut defaults = DeTable::parse(DEFAULTS)?.into_inner();
    let mut taken = |key| defaults.remove(key).map(|it| moved(it.into_inner(), &(0..0)));
    let (models, function) = (taken("models"), taken("function"));
    let mut machine = merged(defaults, own, &(0..0));
    let mut links = HashMap::new();
    for gpu in tables(&mut machine, "gpus") {
        let name = text_of(gpu, "name").unwrap_or_default().to_owned();
        let words = name.split(|c: char| !c.is_ascii_alphanumeric());
        let has = |word: &str| words.clone().any(|part| part == word);
        let rows = models.as_ref().and_then(DeValue::as_array).into_iter().flatten();
        let own = mem::replace(gpu, DeTable::new());
        for row in rows.filter_map(|row| row.get_ref().as_table()) {
            let named = text_of(row, "words").unwrap_or_default();
            if named.split_whitespace().all(has) {
                put(gpu, row.clone());
            }
        }
        gpu.remove("words");
        let max = gpu.remove("max");
        put(gpu, own);
        if let Some((max, address)) = max.zip(address(gpu, "pci")) {
            links.insert(address, max);
        }
        if let Some(memory) = gpu.get("memory").cloned() {
            gpu.entry(key("memory_free")).or_insert(memory);
        }
    }
    for given in tables(&mut machine, "pci") {
        let own = mem::replace(given, DeTable::new());
        if let Some(DeValue::Table(function)) = &function {
            put(given, function.clone());
        }
        if let Some(max) = address(&own, "address").and_then(|address| links.remove(&address)) {
            given.insert(key("max"), max);
        }
        put(given, own);
    }
    Ok(machine)
}

fn key(name: &'static str) -> Spanned<Cow<'static, str>> {
    Spanned::new(0..0, name.into())
}

/// Returns the tables of a list.
fn tables<'t, 'a>(
    machine: &'t mut DeTable<'a>,
    list: &str,
) -> impl Iterator<Item = &'t mut DeTable<'a>> {
    let list = machine.get_mut(list).and_then(|list| match list.get_mut() {
        DeValue::Array(list) => Some(list),
        _ => None,
    });
    let list = list.into_iter().flat_map(|list| &mut **list);
    list.filter_map(|element| match element.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    })
}

fn text_of<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.get(key)?.get_ref().as_str()
}

/// Removes the base's name from a description, and returns it.
///
/// # Errors
///
/// The name is not text; the error includes its position.
pub(super) fn take<'a>(
    table: &mut DeTable<'a>,
) -> Result<Option<Named<'a>>, (String, Range<usize>)> {
    let Some(value) = table.remove(KEY) else {
        return Ok(None);
    };
    let span = value.span();
    match value.into_inner() {
        DeValue::String(name) => Ok(Some(Spanned::new(span, name))),
        _ => Err(("a base is the name of a machine, in quotes".to_owned(), span)),
    }
}

/// Returns the base, overridden by the description's own values. Everything from the base gets the position `place` in
/// the description's text, that of the value of the key `base`.
pub(super) fn merged<'a>(base: DeTable<'a>, own: DeTable<'a>, place: &Range<usize>) -> DeTable<'a> {
    let DeValue::Table(mut base) = moved(DeValue::Table(base), place) else {
        return own;
    };
    for (key, value) in own {
        let keyed = BY_ADDRESS.iter().find(|(list, _)| *list == key.get_ref());
        let span = value.span();
        let value = match (keyed, base.remove(&key).map(Spanned::into_inner), value.into_inner()) {
            (Some((_, address)), Some(DeValue::Array(base)), DeValue::Array(own)) => {
                DeValue::Array(by_address(base.into_iter().collect(), own, address))
            }
            (_, Some(base), own) => over(base, own),
            (_, None, own) => own,
        };
        base.insert(key, Spanned::new(span, value));
    }
    base
}

/// Overrides a value with another; tables are merged key by key.
fn over<'a>(base: DeValue<'a>, own: DeValue<'a>) -> DeValue<'a> {
    let (DeValue::Table(mut base), DeValue::Table(own)) = (base, own.clone()) else {
        return own;
    };
    put(&mut base, own);
    DeValue::Table(base)
}

/// Puts values into a table; tables within it are merged.
fn put<'a>(base: &mut DeTable<'a>, own: DeTable<'a>) {
    for (key, value) in own {
        let span = value.span();
        let value = match base.remove(&key) {
            Some(below) => over(below.into_inner(), value.into_inner()),
            None => value.into_inner(),
        };
        base.insert(key, Spanned::new(span, value));
    }
}

/// Merges two lists: a table changes the base's table of the same address, and all others are appended.
fn by_address<'a>(
    mut list: Vec<Spanned<DeValue<'a>>>,
    own: toml::de::DeArray<'a>,
    key: &str,
) -> toml::de::DeArray<'a> {
    let mut addresses: Vec<_> =
        list.iter().map(|element| address(element.get_ref().as_table()?, key)).collect();
    for element in own {
        let at = element
            .get_ref()
            .as_table()
            .and_then(|element| address(element, key))
            .and_then(|address| addresses.iter().position(|known| *known == Some(address)));
        match at {
            Some(at) => {
                // An address that appears twice in the description is a mistake, which the check of the machine
                // reports.
                addresses[at] = None;
                let span = element.span();
                let base = std::mem::replace(
                    &mut list[at],
                    Spanned::new(span.clone(), DeValue::Boolean(false)),
                );
                list[at] = Spanned::new(span, over(base.into_inner(), element.into_inner()));
            }
            None => list.push(element),
        }
    }
    list.into_iter().collect()
}

fn address(element: &DeTable<'_>, key: &str) -> Option<PciAddress> {
    text_of(element, key)?.parse().ok()
}

/// Returns a value with the position of everything in it set to `place`.
fn moved<'a>(value: DeValue<'a>, place: &Range<usize>) -> DeValue<'a> {
    let at =
        |value: Spanned<DeValue<'a>>| Spanned::new(place.clone(), moved(value.into_inner(), place));
    match value {
        DeValue::Array(values) => DeValue::Array(values.into_iter().map(at).collect()),
        DeValue::Table(table) => DeValue::Table(
            table
                .into_iter()
                .map(|(key, value)| (Spanned::new(place.clone(), key.into_inner()), at(value)))
                .collect(),
        ),
        other => other,
    }
}
