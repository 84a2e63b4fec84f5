//! The list of rules for people, a sentence each.

use super::format::{Level, Style};
use super::page::{Page, Paint};
use super::text::lay_out;
use model::finding::Severity;

/// Column at which the sentences start: the longest code, the longest severity, and room between.
const SENTENCE: usize = 36;

/// Lists one entry for each rule: code, severity, meaning.
pub fn list<'a>(
    rules: impl IntoIterator<Item = (&'a str, Severity, String)>,
    style: &Style,
) -> String {
    let mut page = Page::new(style.level == Level::Every);
    for (code, severity, summary) in rules {
        page.item(0, SENTENCE, &format!("{code:<26} {severity}"), Paint::Plain, &summary);
    }
    lay_out(&page, style)
}
