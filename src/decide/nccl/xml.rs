//! The elements of a file of NCCL.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Most elements of a file. NCCL itself takes 1024 for one machine; a file may have more of them.
const MOST: usize = 65_536;
/// Most levels. PCI trees have fewer than 16.
const DEEPEST: usize = 64;

/// An element with its attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    pub below: Vec<Element>,
}

impl Element {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Sets an attribute, if its value is known.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.attributes.insert(key.to_owned(), value.to_string());
        }
        self
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a number, as NCCL reads it.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.trim().parse().ok()
    }

    /// Returns the elements of this name directly below.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.below.iter().filter(move |element| element.name == name)
    }

    /// Calls `each` for this element and all below, with the elements above, the nearest last.
    pub(crate) fn walk<'a>(
        &'a self,
        above: &mut Vec<&'a Self>,
        each: &mut dyn FnMut(&'a Self, &[&'a Self]),
    ) {
        each(self, above);
        above.push(self);
        for element in &self.below {
            element.walk(above, each);
        }
        above.pop();
    }

    /// Writes the element as NCCL does: an element a line, two blanks for each level.
    pub(crate) fn write(&self, level: usize, to: &mut String) {
        let indent = " ".repeat(2 * level);
        to.push_str(&format!("{indent}<{}", self.name));
        for (key, value) in &self.attributes {
            // NCCL knows no entities; these characters are in no value that it needs.
            let value: String =
                value.chars().filter(|c| !"<>&\"'".contains(*c) && !c.is_control()).collect();
            to.push_str(&format!(" {key}=\"{value}\""));
        }
        if self.below.is_empty() {
            to.push_str("/>\n");
            return;
        }
        to.push_str(">\n");
        self.below.iter().for_each(|element| element.write(level + 1, to));
        to.push_str(&format!("{indent}</{}>\n", self.name));
    }
}

/// Reads the outermost element of a file.
///
/// # Errors
///
/// A sentence that says what is wrong.
pub(crate) fn parse(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut read = 0_usize;
    loop {
        let event = reader.read_event().map_err(|error| format!("it is no XML: {error}"))?;
        let closed = match event {
            Event::Start(start) => {
                open.push(element(&start)?);
                None
            }
            Event::Empty(start) => Some(element(&start)?),
            Event::End(_) => open.pop(),
            Event::Eof => return Err("it ends before its first element does".into()),
            _ => continue,
        };
        read += 1;
        if read > 2 * MOST || open.len() > DEEPEST {
            return Err(format!("it has more than {MOST} elements, or more than {DEEPEST} levels"));
        }
        let Some(closed) = closed else {
            continue;
        };
        match open.last_mut() {
            Some(above) => above.below.push(closed),
            None => return Ok(closed),
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut element = Element::new(&text(start.name().as_ref()));
    for attribute in start.attributes() {
        let attribute =
            attribute.map_err(|error| format!("an attribute cannot be read: {error}"))?;
        element.attributes.insert(text(attribute.key.as_ref()), text(&attribute.value));
    }
    Ok(element)
}
