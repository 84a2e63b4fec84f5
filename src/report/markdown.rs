//! The report as Markdown, for a ticket: the page for people, what is not needed at once folded, and how to see it again.
//!
//! Text that came from a machine is escaped, so that it makes no link, no HTML, no mention, and breaks no table.

use std::fmt::Write;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::format::{Format, Level, Style};
use super::matrix::Table;
use super::page::{Block, GLUE, Page};
use super::{partial, sections};
use model::shell::word;

pub(super) const FORMAT: Format = Format::new("markdown", &["md"], "For a ticket", render);

/// Most characters of one item. A finding's sentence is shorter by far; chosen.
const LONGEST: usize = 600;

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let page = sections::page(digest, Level::Figures, &Style::PLAIN);
    lay_out("peerscope", &page) + &reproduce(digest)
}

/// Returns a page as Markdown: findings in full, each further section folded.
pub fn lay_out(title: &str, page: &Page) -> String {
    let verdict = page.blocks().iter().find_map(|block| match block {
        Block::Verdict { word, .. } => Some(format!("{title}: {}", text(word))),
        _ => None,
    });
    let mut out = format!("# {}\n\n", verdict.unwrap_or_else(|| title.to_owned()));
    let mut is_folded = false;
    for block in page.blocks() {
        // Writing to a String cannot fail.
        let _ = match block {
            Block::Blank => Ok(()),
            Block::Banner(words) => paragraph(&mut out, &format!("**{}.**", text(words))),
            Block::Verdict { text: why, .. } => paragraph(&mut out, &format!("{}.", text(why))),
            Block::Finding { word, text: sentence, below, .. } => {
                finding(&mut out, word, sentence, below)
            }
            Block::Heading(words) => {
                let end = if is_folded { "</details>\n\n" } else { "" };
                is_folded = true;
                let start = format!("<details>\n<summary>{}</summary>", text(words));
                paragraph(&mut out, &format!("{end}{start}"))
            }
            Block::Line(_, words) | Block::Note(_, words) => paragraph(&mut out, &text(words)),
            Block::Item { label, text: words, .. } if label.is_empty() => {
                writeln!(out, "- {}", text(words))
            }
            Block::Item { label, text: words, .. } => {
                writeln!(out, "- {}: {}", text(label), text(words))
            }
            Block::Table(all) => table(&mut out, all),
        };
    }
    if is_folded {
        let _ = paragraph(&mut out, "</details>");
    }
    out
}

/// Writes a paragraph between two empty lines.
fn paragraph(out: &mut String, words: &str) -> std::fmt::Result {
    out.truncate(out.trim_end_matches('\n').len());
    writeln!(out, "\n\n{words}\n")
}

/// Writes a finding, with a list of what stands below it; suspects become a checklist.
fn finding(
    out: &mut String,
    word: &str,
    sentence: &str,
    below: &[(&'static str, String)],
) -> std::fmt::Result {
    writeln!(out, "- **{}** {}", text(word), text(sentence))?;
    for (label, words) in below {
        let words = text(&words.replace(GLUE, " "));
        let label = if *label == "suspect" { "[ ] suspect" } else { label };
        writeln!(out, "  - {label}: {words}")?;
    }
    Ok(())
}

/// Writes a table; its captions become one row.
fn table(out: &mut String, table: &Table) -> std::fmt::Result {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let (head, rows) = table.rows.split_at(table.head.min(table.rows.len()));
    let caption = |column: usize| {
        let words =
            head.iter().map(|row| row[column].text.as_str()).filter(|text| !text.is_empty());
        cell(&words.collect::<Vec<_>>().join(" "))
    };
    let mut lines = vec![line((0..table.align.len()).map(caption).collect())];
    lines.push(format!("|{}", "---|".repeat(table.align.len())));
    lines.extend(rows.iter().map(|row| line(row.iter().map(|shown| cell(&shown.text)).collect())));
    paragraph(out, &lines.join("\n"))
}

/// Returns the command that chose what was tested and how it was judged.
fn reproduce(digest: &Digest<'_>) -> String {
    let report = digest.report;
    let mut command = match &report.measurements {
        Some(measurements) => format!("peerscope check --profile {}", word(&measurements.profile)),
        None if report.watched.is_some() => "peerscope watch --for 30s".to_owned(),
        None => "peerscope topo".to_owned(),
    };
    if digest.is(Caveat::Simulated) {
        let _ = write!(command, " --machine {}", word(&report.machine));
    }
    for [option, value] in partial::every_option(&report.request) {
        let _ = write!(command, " {option} {}", word(&value));
    }
    format!(
        "## See it again\n\n{}\n\n`peerscope explain CODE` explains a finding.\n",
        code(&command)
    )
}

/// Escapes text so that nothing in it is Markdown: bold, a link, HTML, a mention or a reference. `@` and `#` become
/// code, where forges look for neither mentions nor references.
pub fn text(text: &str) -> String {
    let cleaned = clean(text);
    let mut escaped = String::with_capacity(cleaned.len() + 8);
    for (number, (at, c)) in cleaned.char_indices().enumerate() {
        if number == LONGEST {
            return escaped + "...";
        }
        match c {
            '@' | '#' => escaped.extend(['`', c, '`']),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '~' | '&' | '$' | '!' => {
                escaped.extend(['\\', c]);
            }
            // Forges find bare links by these.
            ':' if cleaned[at + 1..].starts_with("//") => escaped.push_str("\\:"),
            '.' if escaped.to_ascii_lowercase().ends_with("www") => escaped.push_str("\\."),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Escapes text for a table cell, which a bar would end.
pub fn cell(words: &str) -> String {
    text(words).replace('|', "\\|")
}

/// Returns a command as inline code, for any content.
fn code(command: &str) -> String {
    format!("`{}`", clean(command).replace('`', "'"))
}

#[cfg(test)]
mod tests;
