//! Reading TOML through JSON.
//!
//! Serde makes code of its own for each type and each format, and nearly every type that is read from TOML is read from
//! JSON as well. So a text is parsed as TOML, its values are written as JSON, and that is read; what is wrong is found again
//! in the text. Code that reads TOML was 0.65 of the packaged program's 8.8 MB.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a text is not what was to be read from it. Shown with its place and the line that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRead {
    /// What is wrong.
    pub message: String,
    /// The bytes of the text that it is about, if that is known.
    pub span: Option<Range<usize>>,
    /// The same as a number of a line and of a character in it, both from 1, with the line.
    place: Option<(usize, usize, String)>,
}

impl NotRead {
    fn new(text: &str, message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        let place = span.as_ref().and_then(|span| {
            let before = text.get(..span.start)?;
            let begin = before.rfind('\n').map_or(0, |end| end + 1);
            let line = text.get(begin..)?.lines().next().unwrap_or_default();
            let number = 1 + before.matches('\n').count();
            Some((
                number,
                1 + before.get(begin..)?.chars().count(),
                line.to_owned(),
            ))
        });
        Self {
            message: message.into(),
            span,
            place,
        }
    }
}

impl fmt::Display for NotRead {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some((number, column, line)), Some(span)) = (&self.place, &self.span) {
            let margin = number.to_string().len();
            let most = line.chars().count().saturating_sub(column - 1).max(1);
            // Not by widths: those of formats end at 65535.
            let (before, marks) = (
                " ".repeat(column - 1),
                "^".repeat(span.len().clamp(1, most)),
            );
            writeln!(to, "TOML parse error at line {number}, column {column}")?;
            writeln!(to, "{:margin$} |", "")?;
            writeln!(to, "{number} | {line}")?;
            writeln!(to, "{:margin$} | {before}{marks}", "")?;
        }
        to.write_str(&self.message)
    }
}

/// Reads a value from a text in TOML.
///
/// # Errors
///
/// What is wrong with it, and where.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, NotRead> {
    from_table(text, &table(text)?)
}

/// The values of a text in TOML, each with its place.
///
/// # Errors
///
/// It is no TOML, and where.
pub fn table(text: &str) -> Result<Spanned<DeTable<'_>>, NotRead> {
    DeTable::parse(text).map_err(|error| NotRead::new(text, error.message(), error.span()))
}

/// Reads a value from values with their places in this text.
///
/// # Errors
///
/// What is wrong with it, and where.
pub fn from_table<T: DeserializeOwned>(
    text: &str,
    table: &Spanned<DeTable<'_>>,
) -> Result<T, NotRead> {
    let as_json = |backwards| {
        let json = Json::of(table, backwards);
        json.map_err(|(message, span)| NotRead::new(text, message, Some(span)))
    };
    let forwards = as_json(false)?;
    serde_json::from_slice(forwards.text.as_bytes()).map_err(|error| {
        let place = forwards.place(&error);
        if !place.is_some_and(|place| place.closes) {
            return not_read(text, &error, place);
        }
        // It is about the table, or about the last value in it, whose end serde did not note: from the other end that is
        // followed by another.
        let Ok(backwards) = as_json(true) else {
            return not_read(text, &error, place);
        };
        match serde_json::from_slice::<T>(backwards.text.as_bytes()) {
            Err(error) => not_read(text, &error, backwards.place(&error)),
            Ok(_) => not_read(text, &error, place),
        }
    })
}

fn not_read(text: &str, error: &serde_json::Error, place: Option<&Place>) -> NotRead {
    let at = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let message = match message.strip_suffix(&at).unwrap_or(&message) {
        // What serde says of JSON that is none, as this never is: of an enum, and of a list for a tuple.
        "expected value" => "expected a name, or a table with one key",
        "trailing characters" => "too many values",
        message => message,
    };
    NotRead::new(text, message, place.map(|place| place.span.clone()))
}

/// Values of TOML as JSON.
#[derive(Default)]
struct Json {
    /// One line, without blanks.
    text: String,
    places: Vec<Place>,
    /// Whether the last key of each table comes first.
    backwards: bool,
}

/// Where a piece of the JSON comes from.
struct Place {
    /// Where it ends, with what follows it (`:` or `,`).
    end: usize,
    /// Whether it closes a table or an array.
    closes: bool,
    /// The bytes of the TOML that it was.
    span: Range<usize>,
}

impl Json {
    fn of(table: &Spanned<DeTable<'_>>, backwards: bool) -> Result<Self, (String, Range<usize>)> {
        let mut json = Self {
            backwards,
            ..Self::default()
        };
        json.table(table.get_ref(), &table.span())?;
        json.end("", true, table.span());
        Ok(json)
    }

    /// The piece that an error is about. The JSON is one line.
    fn place(&self, error: &serde_json::Error) -> Option<&Place> {
        // A table or a list where neither is expected is not read: the error is in front of it.
        let begins = matches!(self.text.as_bytes().get(error.column()), Some(b'{' | b'['));
        let in_front = begins && error.to_string().starts_with("invalid type: ");
        self.places
            .iter()
            .find(|place| place.end >= error.column() + usize::from(in_front))
    }

    fn table(
        &mut self,
        table: &DeTable<'_>,
        span: &Range<usize>,
    ) -> Result<(), (String, Range<usize>)> {
        self.begin('{', span);
        let mut entries: Vec<_> = table.iter().collect();
        if self.backwards {
            entries.reverse();
        }
        for (number, (key, value)) in entries.into_iter().enumerate() {
            self.string(key.get_ref());
            self.end(":", false, key.span());
            self.value(value, number + 1 < table.len())?;
        }
        self.text.push('}');
        Ok(())
    }

    /// A value, and whether another follows.
    fn value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        more: bool,
    ) -> Result<(), (String, Range<usize>)> {
        let span = value.span();
        let wrong = |message: String| (message, value.span());
        match value.get_ref() {
            DeValue::String(text) => self.string(text),
            DeValue::Integer(number) => {
                let digits = i128::from_str_radix(number.as_str(), number.radix());
                let fits = |number: &i128| {
                    i64::try_from(*number).is_ok() || u64::try_from(*number).is_ok()
                };
                let number = digits
                    .ok()
                    .filter(fits)
                    .ok_or_else(|| wrong(format!("{number} has too many digits")))?;
                self.text.push_str(&number.to_string());
            }
            DeValue::Float(number) => {
                let finite = number
                    .as_str()
                    .parse()
                    .ok()
                    .filter(|number: &f64| number.is_finite());
                let number =
                    finite.ok_or_else(|| wrong(format!("{number} is no finite number")))?;
                self.text.push_str(&format!("{number:?}"));
            }
            DeValue::Boolean(value) => self.text.push_str(if *value { "true" } else { "false" }),
            DeValue::Datetime(_) => {
                return Err(wrong("a date or a time is not expected".to_owned()));
            }
            DeValue::Array(values) => {
                self.begin('[', &span);
                for (number, value) in values.iter().enumerate() {
                    self.value(value, number + 1 < values.len())?;
                }
                self.text.push(']');
            }
            DeValue::Table(table) => self.table(table, &span)?,
        }
        let closes = matches!(value.get_ref(), DeValue::Table(_) | DeValue::Array(_));
        self.end(if more { "," } else { "" }, closes, span);
        Ok(())
    }

    fn begin(&mut self, bracket: char, span: &Range<usize>) {
        self.text.push(bracket);
        self.places.push(Place {
            end: self.text.len(),
            closes: false,
            span: span.clone(),
        });
    }

    fn string(&mut self, text: &str) {
        self.text
            .push_str(&serde_json::Value::from(text).to_string());
    }

    fn end(&mut self, sign: &str, closes: bool, span: Range<usize>) {
        self.text.push_str(sign);
        self.places.push(Place {
            end: self.text.len(),
            closes,
            span,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Thing {
        number: u32,
        #[serde(default)]
        rate: f64,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        parts: BTreeMap<String, Part>,
        #[serde(default)]
        span: (u32, u32),
        #[serde(default, deserialize_with = "whole")]
        late: u32,
        #[serde(default, deserialize_with = "whole")]
        whole: u32,
    }

    fn whole<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| serde::de::Error::custom(format!("{text} has a fraction")))
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Part {
        Plain,
        Long(i64),
    }

    fn thing(text: &str) -> Result<Thing, NotRead> {
        from_toml(text)
    }

    /// What is wrong with a text, and the part of the text that is said to be.
    fn wrong(text: &str) -> (String, &str) {
        let error = thing(text).unwrap_err();
        let span = error.span.unwrap();
        (error.message, &text[span])
    }

    #[test]
    fn every_kind_of_value_is_read() {
        let text = "number = 0x1f\nrate = 1\nnames = ['a \"b\"', \"tab\\t\\u0001\"]\nparts.a = 'plain'\n[parts.b]\nlong = -3\n";
        let parts = [
            ("a".to_owned(), Part::Plain),
            ("b".to_owned(), Part::Long(-3)),
        ]
        .into();
        let names = vec!["a \"b\"".to_owned(), "tab\t\u{1}".to_owned()];
        assert_eq!(
            thing(text),
            Ok(Thing {
                number: 31,
                rate: 1.0,
                names,
                parts,
                span: (0, 0),
                late: 0,
                whole: 0
            })
        );
        assert_eq!(
            thing("number = 1_000\nrate = +6.25e-2")
                .unwrap()
                .rate
                .to_bits(),
            0.0625_f64.to_bits()
        );
    }

    #[test]
    fn what_is_wrong_is_found_in_the_text() {
        for (text, message, place) in [
            ("number = 1\nnumbre = 2", "unknown field `numbre`", "numbre"),
            (
                "number = 'one'",
                "invalid type: string \"one\", expected u32",
                "'one'",
            ),
            (
                "number = -1\n",
                "invalid value: integer `-1`, expected u32",
                "-1",
            ),
            ("rate = 1.5", "missing field `number`", ""),
            (
                "number = 1\nrate = 2\nparts = { a = 'plain', b = { long = 1, longer = 2 } }",
                "expected a name, or",
                "1",
            ),
            (
                "number = 1\nparts = { a = 3 }",
                "expected a name, or a table with one key",
                "3",
            ),
            ("number = 1\nspan = [1, 2, 3]", "too many values", "3"),
            // Nobody notes where this ended.
            ("late = '1.5'\nnumber = 1", "1.5 has a fraction", "'1.5'"),
            ("number = 1\nwhole = '1.5'", "1.5 has a fraction", "'1.5'"),
            (
                "number = 1\nnames = ['a', 2, 'c']",
                "invalid type: integer `2`",
                "2",
            ),
            (
                "number = 1\nnames = 2\nrate = 3",
                "invalid type: integer `2`, expected a sequence",
                "2",
            ),
            (
                "number = [1]\nrate = 3",
                "invalid type: sequence, expected u32",
                "[1]",
            ),
            (
                "number = 1\nnames = ['a', {}]",
                "invalid type: map, expected a string",
                "{}",
            ),
            ("number = 1\nother = [1]", "unknown field `other`", "other"),
            (
                "number = 1\nparts = { a = 'plane' }\n",
                "unknown variant `plane`",
                "'plane'",
            ),
            (
                "number = 1\nparts = { a = { long = 'x' }, b = 'plain' }\n",
                "invalid type: string \"x\"",
                "'x'",
            ),
            (
                "number = 99999999999999999999",
                "99999999999999999999 has too many digits",
                "99999999999999999999",
            ),
            ("number = 1\nrate = inf", "inf is no finite number", "inf"),
            (
                "number = 2026-11-22",
                "a date or a time is not expected",
                "2026-11-22",
            ),
            ("number = 1\nnumber = 2", "duplicate key", "number"),
        ] {
            let (said, at) = wrong(text);
            assert!(said.starts_with(message), "{text}: {said}");
            assert_eq!(at, place, "{text}");
        }
    }

    #[test]
    fn it_is_shown_below_its_line() {
        let shown = thing("number = 1\n  rate = 'fast' # no\n")
            .unwrap_err()
            .to_string();
        let wanted = "TOML parse error at line 2, column 10\n  |\n2 |   rate = 'fast' # no\n  |          ^^^^^^\n\
            invalid type: string \"fast\", expected f64";
        assert_eq!(shown, wanted);
    }
}
