//! For people: a page as text, wrapped to the width, coloured if it may be.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthStr;

use super::body;
use super::digest::Digest;
use super::format::{Format, Style};
use super::matrix::Table;
use super::page::{Block, GLUE, Page, Paint};

/// Text.
pub(super) const FORMAT: Format = Format { is_looked_at: true, ..Format::new("text", &["txt"], "For people", render) };

fn render(digest: &Digest<'_>, style: &Style) -> String {
    lay_out(&body::page(digest, style.verbose), style)
}

/// Minimum width of a line, also on narrower terminals: below it, hanging indents and the first
/// columns of tables leave no space for the rest.
pub(super) const MINIMUM_WIDTH: usize = 60;

/// Column at which the text of a finding starts.
const FINDING: usize = 9;

/// Column at which its place, evidence, suspects and next step start.
const BELOW_FINDING: usize = 18;

/// The page as text.
pub(crate) fn lay_out(page: &Page, style: &Style) -> String {
    let mut out = Text { width: style.width.max(MINIMUM_WIDTH), color: style.color, text: String::new() };
    for block in page.blocks() {
        match block {
            Block::Blank => out.blank(),
            Block::Heading(text) => {
                out.blank();
                out.line(Paint::Strong, text);
            }
            Block::Banner(text) => {
                out.line(Paint::Warning, text);
                out.blank();
            }
            Block::Verdict { word, paint, text } => out.item((0, 2), &format!("{word}:"), *paint, text),
            Block::Finding { word, paint, text, below } => {
                out.blank();
                out.item((0, FINDING), word, *paint, text);
                for (label, text) in below {
                    out.item((FINDING, BELOW_FINDING), label, Paint::Faint, text);
                }
            }
            Block::Line(paint, text) => out.line(*paint, text),
            Block::Note(paint, text) => out.note(*paint, text),
            Block::Item { at, label, paint, text } => out.item(*at, label, *paint, text),
            Block::Table(table) => out.table(table),
        }
    }
    out.text
}

/// Text that is being written.
struct Text {
    width: usize,
    color: bool,
    text: String,
}

impl Text {
    /// One empty line, and none at the top or after another.
    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// Text from the left margin, in one paint.
    fn line(&mut self, paint: Paint, text: &str) {
        for line in wrap(text, self.width, 0, 0) {
            self.push(&paint.apply(&line, self.color));
        }
    }

    /// Text below a heading, indented by two.
    fn note(&mut self, paint: Paint, text: &str) {
        for line in wrap(text, self.width - 2, 0, 0) {
            self.push(&format!("  {}", paint.apply(&line, self.color)));
        }
    }

    /// A label at a column, then text that wraps at the column `hang`.
    fn item(&mut self, (indent, hang): (usize, usize), label: &str, paint: Paint, text: &str) {
        // A label that reaches into the text pushes it on; the lines below still start at `hang`.
        let start = (indent + label.width() + 1).max(hang);
        if start + 8 > self.width {
            self.note(paint, label);
            return self.note(Paint::Plain, text);
        }
        let gap = start - indent - label.width();
        let label = format!("{:indent$}{}{:gap$}", "", paint.apply(label, self.color), "");
        for (number, line) in wrap(text, self.width, start, hang).iter().enumerate() {
            match line.get(start..) {
                Some(line) if number == 0 => self.push(&format!("{label}{line}")),
                None if number == 0 => self.push(&label),
                _ => self.push(line),
            }
        }
    }

    /// A table indented by two, in as many column blocks as the width needs.
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

/// The text in lines of at most `width` columns, the first indented by `first`, the others by `rest`;
/// at least one line. Words longer than a line are cut, since a terminal would wrap them anywhere.
pub(super) fn wrap(text: &str, width: usize, first: usize, rest: usize) -> Vec<String> {
    let (first, rest) = (" ".repeat(first), " ".repeat(rest));
    let options = Options::new(width)
        .initial_indent(&first)
        .subsequent_indent(&rest)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).iter().map(|line| line.replace(GLUE, " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_overlong_ones_are_cut() {
        assert_eq!(wrap("", 10, 0, 0), [""]);
        assert_eq!(wrap("one two three", 7, 0, 2), ["one two", "  three"]);
        assert_eq!(wrap("abcdefghij", 4, 0, 1), ["abc", " def", " ghi", " j"]);
        assert_eq!(wrap("rate 7.88\u{a0}GB/s", 10, 0, 0), ["rate", "7.88 GB/s"]);
        assert_eq!(wrap("a →→→→ b", 4, 0, 0), ["a", "→→→→", "b"]);
        assert_eq!(wrap("日本語日本語", 5, 0, 0), ["日本", "語日", "本語"]);
    }

    #[test]
    fn an_item_hangs_below_its_label() {
        let style = Style { width: 60, ..Style::PLAIN };
        let mut page = Page::new(false);
        page.item(2, 10, "next", Paint::Plain, "reseat the card and clean the contacts of the slot, then start again");
        page.item(0, 4, "long label", Paint::Plain, "text");
        assert_eq!(
            lay_out(&page, &style),
            "  next    reseat the card and clean the contacts of the\n          slot, then start again\nlong label text\n"
        );
    }
}
