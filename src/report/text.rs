//! The text format for people: a page wrapped to the width, coloured if allowed.

use unicode_width::UnicodeWidthStr;

use super::digest::Digest;
use super::format::{Format, Style};
use super::matrix::Table;
use super::page::{Block, FINDING, Page, Paint};
use super::sections;
pub(super) use super::wrap::wrap;
use model::finding::short;

pub(super) const FORMAT: Format =
    Format { is_looked_at: true, ..Format::new("text", &["txt"], "For people", render) };

fn render(digest: &Digest<'_>, style: &Style) -> String {
    lay_out(&sections::page(digest, style.level, style), style)
}

/// Lines of the smallest terminal in use. The beginning of a longer page scrolls away.
const SCREEN: usize = 24;

/// Least width of a line, even on narrower terminals. Below it, hanging indents and the first columns of tables leave
/// no space for the rest.
pub(super) const MINIMUM_WIDTH: usize = 60;

/// Column at which its place, evidence, suspects and next step start.
const BELOW_FINDING: usize = 18;

/// Lays out the page as text. On a terminal a page that is longer than the screen ends with what matters most again: a
/// line for each finding, and the verdict.
pub fn lay_out(page: &Page, style: &Style) -> String {
    let text = blocks(page.blocks(), style);
    match style.terminal && text.lines().count() > SCREEN {
        true => format!("{text}\n{}", ending(page, style)),
        false => text,
    }
}

/// Returns the findings and the verdict of a page in short: no more than a screen has above the prompt.
fn ending(page: &Page, style: &Style) -> String {
    let said = page.blocks().iter().find_map(|block| match block {
        Block::Verdict { word, paint, text } => {
            let text = short(text).to_owned();
            Some(Block::Verdict { word: word.clone(), paint: *paint, text })
        }
        Block::Line(..) => Some(block.clone()),
        _ => None,
    });
    let verdict = blocks(&said, style);
    let mut room = SCREEN - 3 - verdict.lines().count();
    let findings: Vec<String> = page.end().iter().map(|line| blocks([line], style)).collect();
    let fits = |one: &&String| {
        let lines = one.lines().count();
        let fits = lines <= room;
        room = room.saturating_sub(lines);
        fits
    };
    let shown: Vec<&String> = findings.iter().take_while(fits).collect();
    let more = match findings.len() - shown.len() {
        0 => String::new(),
        more => format!("{:FINDING$}{more} more above\n", ""),
    };
    shown.into_iter().map(String::as_str).chain([&*more, &*verdict]).collect()
}

pub(super) fn blocks<'a>(page: impl IntoIterator<Item = &'a Block>, style: &Style) -> String {
    let mut out =
        Text { width: style.width.max(MINIMUM_WIDTH), color: style.color, text: String::new() };
    for block in page {
        match block {
            Block::Blank => out.blank(),
            Block::Heading(text) => {
                out.blank();
                out.line("", Paint::Strong, text);
            }
            Block::Banner(text) => {
                out.line("", Paint::Warning, text);
                out.blank();
            }
            Block::Verdict { word, paint, text } => {
                out.item((0, 2), &format!("{word}:"), *paint, text)
            }
            Block::Finding { word, paint, text, below } => {
                out.blank();
                out.item((0, FINDING), word, *paint, text);
                for (label, text) in below {
                    out.item((FINDING, BELOW_FINDING), label, Paint::Faint, text);
                }
            }
            Block::Line(paint, text) => out.line("", *paint, text),
            Block::Note(paint, text) => out.line("  ", *paint, text),
            Block::Item { at, label, paint, text } => out.item(*at, label, *paint, text),
            Block::Table(table) => out.table(table),
        }
    }
    out.text
}

/// Text under construction.
struct Text {
    width: usize,
    color: bool,
    text: String,
}

impl Text {
    /// Adds an empty line, except at the top or after another.
    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Adds text in one paint, every line behind an indent.
    fn line(&mut self, indent: &str, paint: Paint, text: &str) {
        for line in wrap(text, self.width - indent.len(), 0, 0) {
            self.push(&format!("{indent}{}", paint.apply(&line, self.color)));
        }
    }

    /// Adds a label at a column, then text that wraps at the column `hang`.
    fn item(&mut self, (indent, hang): (usize, usize), label: &str, paint: Paint, text: &str) {
        // A label that reaches into the text pushes it on; the lines below still start at `hang`.
        let start = (indent + label.width() + 1).max(hang);
        if start + 8 > self.width {
            self.line("  ", paint, label);
            return self.line("  ", Paint::Plain, text);
        }
        let gap = start - indent - label.width();
        let mut before = format!("{:indent$}{}{:gap$}", "", paint.apply(label, self.color), "");
        for line in wrap(text, self.width, start, hang) {
            let from = if before.is_empty() { 0 } else { start };
            self.push(&format!("{before}{}", line.get(from..).unwrap_or_default()));
            before.clear();
        }
    }

    /// Adds a table indented by two, in as many column blocks as the width needs.
    fn table(&mut self, table: &Table) {
        for (number, block) in table.render(self.width - 2, self.color).iter().enumerate() {
            if number > 0 {
                self.blank();
            }
            for line in block {
                self.push(&format!("  {line}"));
            }
        }
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_hangs_below_its_label() {
        let style = Style { width: 60, ..Style::PLAIN };
        let mut page = Page::new(false);
        page.item(
            2,
            10,
            "next",
            Paint::Plain,
            "reseat the card and clean the contacts of the slot, then start again",
        );
        page.item(0, 4, "long label", Paint::Plain, "text");
        assert_eq!(
            lay_out(&page, &style),
            "  next    reseat the card and clean the contacts of the\n          slot, then start again\nlong label text\n"
        );
    }
}
