//! Reading saved reports back.

use std::io::{self, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::files::{GZIP, LONGEST, file, unzipped, whole};
use super::html;
use model::report::{MOST_GPUS, Report, SCHEMA};
use model::{impossible, restore};

/// The name of standard input.
const STDIN: &str = "-";

/// Refuses more than one report from standard input, which can be read only once.
///
/// # Errors
///
/// Returns a sentence.
pub fn at_most_one_stdin<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<(), String> {
    match paths.into_iter().filter(|path| path.as_os_str() == STDIN).count() {
        0 | 1 => Ok(()),
        _ => Err(format!("'{STDIN}' is standard input, which can be only one of the reports")),
    }
}

/// Reads a saved report: a file, or standard input for `-`.
///
/// # Errors
///
/// Returns a sentence that names the file and its defect.
pub fn load(path: &Path) -> Result<Report, String> {
    let (name, text) = bytes(path)?;
    parse(&text).map_err(|error| format!("{name} {error}"))
}

/// Reads a file, or standard input for `-`. Returns its name for people and its bytes.
///
/// # Errors
///
/// Returns a sentence that names the file.
pub fn bytes(path: &Path) -> Result<(String, Vec<u8>), String> {
    let is_stdin = path.as_os_str() == STDIN;
    let name =
        if is_stdin { "standard input".to_owned() } else { path.to_string_lossy().into_owned() };
    let bytes = if is_stdin { whole(io::stdin().lock()) } else { file(path) };
    let bytes = bytes.map_err(|error| format!("cannot read {name}: {error}"))?;
    Ok((name, bytes))
}

/// Most bytes at the start of a file that are searched for the mark of a report.
const HEAD: usize = 4096;

/// Returns true if these bytes claim to be a report, whether they are a whole one or not.
pub fn is_report(bytes: &[u8]) -> bool {
    let unpacked;
    let text = if bytes.starts_with(&GZIP) {
        let mut head = Vec::new();
        let from = flate2::read::MultiGzDecoder::new(bytes);
        // What can be unpacked shows it.
        let _ = from.take(HEAD as u64).read_to_end(&mut head);
        unpacked = head;
        &unpacked
    } else {
        bytes
    };
    let text = without_mark(text);
    let head = text.get(..HEAD).unwrap_or(text);
    let is_page = html::embed::is_page(text) && {
        let head = head.to_ascii_lowercase();
        // Other tools write XML.
        memchr::memmem::find(&head, b"<!doctype html").is_some()
            || memchr::memmem::find(&head, b"<html").is_some()
    };
    is_page
        || (head.trim_ascii_start().starts_with(b"{")
            && memchr::memmem::find(head, b"\"schema\"").is_some())
}

/// Returns a text without the byte-order mark that some editors put first.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The key that every file of peerscope has.
#[derive(Deserialize)]
struct Head {
    schema: Option<Value>,
}

/// Reads a report: JSON or a page, compressed or not.
///
/// # Errors
///
/// Returns its defect, worded to follow the file's name.
pub fn parse(text: &[u8]) -> Result<Report, String> {
    let text = unzipped(text, LONGEST)?;
    let text = without_mark(&text);
    if !html::embed::is_page(text) {
        return from_json(text);
    }
    let json = html::embed::json_of(text, LONGEST)?;
    // A crafted page can unpack to itself.
    if html::embed::is_page(&json) {
        Err("is a page with another page in it".into())
    } else {
        from_json(&json)
    }
}

/// Returns the schema that a file of JSON claims to have.
pub fn schema(text: &[u8]) -> Option<String> {
    let head: Head = serde_json::from_slice(without_mark(text)).ok()?;
    Some(head.schema?.as_str()?.to_owned())
}

fn from_json(text: &[u8]) -> Result<Report, String> {
    // Serde would accept a list for an object.
    if !text.trim_ascii_start().starts_with(b"{") {
        serde_json::from_slice::<IgnoredAny>(text).map_err(not_json)?;
        return Err(NO_SCHEMA.to_owned());
    }
    let mut report: Report = serde_json::from_slice(text).map_err(|error| defect(text, &error))?;
    if report.schema != SCHEMA {
        return Err(other_schema(&report.schema));
    }
    if let Some(why) = impossible::in_report(&report) {
        return Err(format!("cannot be a report: {why}"));
    }
    restore::restore(&mut report);
    let mut report = bounded(report)?;
    diagnose::note_absent(&mut report);
    Ok(report)
}

const NO_SCHEMA: &str = "is not a peerscope report: it has no \"schema\"";

fn not_json(error: serde_json::Error) -> String {
    match (error.is_eof(), error.line(), error.column()) {
        (true, 0 | 1, 0) => "is not JSON: it is empty".to_owned(),
        (true, ..) => "is not JSON: it was cut off".to_owned(),
        _ => format!("is not JSON: {error}"),
    }
}

fn other_schema(schema: &str) -> String {
    let short: String = schema.chars().take(80).collect();
    format!("has the schema '{short}', this version reads {SCHEMA}")
}

/// Returns why an object is no report, if reading it as one ended with this error.
fn defect(text: &[u8], error: &serde_json::Error) -> String {
    let head: Head = match serde_json::from_slice(text) {
        Ok(head) => head,
        Err(error) => return not_json(error),
    };
    match head.schema.as_ref().and_then(Value::as_str) {
        Some(SCHEMA) => format!("is not a complete report: {error}"),
        Some(other) => other_schema(other),
        None => NO_SCHEMA.to_owned(),
    }
}

/// Returns the report, unless it has more GPUs than tables support.
///
/// # Errors
///
/// Returns its number of GPUs, worded to follow the file's name.
pub fn bounded(report: Report) -> Result<Report, String> {
    match report.gpus().len() {
        0..=MOST_GPUS => Ok(report),
        gpus => Err(format!("has {gpus} GPUs; a report can have {MOST_GPUS} at most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Style, named, render};

    #[test]
    fn a_report_is_read_in_every_form_that_it_travels_in() {
        let report = sample::healthy(2);
        let marked = |text: &str| [b"\xef\xbb\xbf", text.as_bytes()].concat();
        let texts =
            ["json", "html"].map(|name| render(&report, named(name).unwrap(), &Style::PLAIN));
        let wanted = parse(texts[0].as_bytes()).unwrap();
        for text in &texts {
            let gzip = html::embed::gzip_of(text.as_bytes());
            for form in [text.clone().into_bytes(), marked(text), gzip] {
                assert_eq!(parse(&form).as_ref(), Ok(&wanted));
            }
        }
        let torn = &html::embed::gzip_of(texts[0].as_bytes())[..500];
        assert!(parse(torn).unwrap_err().starts_with("cannot be unpacked: "));
    }
}
