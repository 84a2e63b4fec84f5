//! The report as JSON, the form that scripts rely on (docs/report.md).

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

use super::digest::Digest;
use super::escape::json_fragment;
use super::format::{Format, Style};
use model::report::Report;
use model::rounding::four_places;

pub const FORMAT: Format = Format::new("json", &["json"], "For scripts", render);

/// Returns the report as indented JSON with a newline at the end, keys in the order of the contract.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    tidy(digest.report)
}

/// Writes a report without holding all of its text.
pub(super) fn write(report: &Report, to: &mut dyn Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    put(report, &mut to)?;
    to.flush()
}

fn put(value: &impl Serialize, mut to: &mut dyn Write) -> io::Result<()> {
    let form = Tidy(PrettyFormatter::new());
    value.serialize(&mut Serializer::with_formatter(&mut to, form))?;
    to.write_all(b"\n")
}

/// Returns any value as JSON in the same form.
pub fn tidy(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let written = put(value, &mut bytes).map_err(|error| error.to_string());
    let text = written.and_then(|()| String::from_utf8(bytes).map_err(|error| error.to_string()));
    // Plain data cannot fail here. If it did, the error is still valid JSON.
    text.unwrap_or_else(|error| serde_json::json!({ "error": error }).to_string() + "\n")
}

/// Returns any value as JSON in one line.
///
/// # Errors
///
/// The value is no plain data.
pub fn in_a_line(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Tidy(CompactFormatter)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned() + "\n")
}

/// A formatter that rounds figures.
struct Tidy<F>(F);

impl<F: Formatter> Formatter for Tidy<F> {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_array(to)
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array(to)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(to, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array_value(to)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object(to)
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object(to)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(to, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object_value(to)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object_value(to)
    }

    /// Rounds floating-point numbers to four places.
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        CompactFormatter.write_f64(to, four_places(value))
    }

    /// Escapes characters that a terminal acts on, even if JSON would keep them.
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        json_fragment(to, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_ends_its_last_line() {
        let report = sample::pcie_box();
        let text = tidy(&report);
        assert!(text.starts_with("{\n  \"schema\": \"peerscope.report/1\",\n"), "{}", &text[..60]);
        assert!(text.ends_with("}\n"));
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(tidy(&back), text);
        assert_eq!(back.snapshot, report.snapshot);
    }

    #[test]
    fn floats_carry_no_noise() {
        let mut report = sample::healthy(2);
        report.timing.total = 0.1 + 0.2;
        report.timing.measure = 1.0 / 3.0;
        let text = tidy(&report);
        assert!(text.contains("\"total\": 0.3,"), "{text}");
        assert!(text.contains("\"measure\": 0.3333,"), "{text}");
    }
}
