//! A page of text being written: wraps to the width, cleans what it is given, colours if it may.

use anstyle::{AnsiColor, Effects};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::Style;
use super::escape::clean;
use super::matrix::Table;

/// Narrower terminals get lines of this width: below it neither hanging indents nor the first
/// columns of tables leave room for the rest.
pub(super) const MINIMUM_WIDTH: usize = 60;

/// What a piece of text means, so that colour can underline it. The words must say it too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paint {
    /// Nothing special.
    #[default]
    Plain,
    /// Of lesser weight: captions, placeholders.
    Faint,
    /// A heading.
    Strong,
    /// As it should be.
    Good,
    /// To be looked into.
    Warning,
    /// Wrong.
    Error,
}

impl Paint {
    /// The text in this paint; the text itself without colour.
    pub(super) fn apply(self, text: &str, color: bool) -> String {
        if !color || self == Self::Plain || text.is_empty() {
            return text.to_owned();
        }
        let style = match self {
            Self::Plain => anstyle::Style::new(),
            Self::Faint => anstyle::Style::new().effects(Effects::DIMMED),
            Self::Strong => anstyle::Style::new().effects(Effects::BOLD),
            Self::Good => AnsiColor::Green.on_default().effects(Effects::BOLD),
            Self::Warning => AnsiColor::Yellow.on_default().effects(Effects::BOLD),
            Self::Error => AnsiColor::Red.on_default().effects(Effects::BOLD),
        };
        format!("{style}{text}{style:#}")
    }
}

/// Text in the making.
pub(super) struct Page {
    width: usize,
    color: bool,
    verbose: bool,
    text: String,
}

impl Page {
    pub(super) fn new(style: &Style) -> Self {
        Self { width: style.width.max(MINIMUM_WIDTH), color: style.color, verbose: style.verbose, text: String::new() }
    }

    /// Whether every matrix is wanted.
    pub(super) const fn verbose(&self) -> bool {
        self.verbose
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    /// One empty line, and none at the top or after another.
    pub(super) fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// A heading, set apart from what stands above.
    pub(super) fn heading(&mut self, text: &str) {
        self.blank();
        self.line(Paint::Strong, text);
    }

    /// Text from the left margin, in one paint.
    pub(super) fn line(&mut self, paint: Paint, text: &str) {
        for line in wrap(&clean(text), self.width, self.width) {
            self.push(&paint.apply(&line, self.color));
        }
    }

    /// Text below a heading, indented by two.
    pub(super) fn note(&mut self, paint: Paint, text: &str) {
        for line in wrap(&clean(text), self.width - 2, self.width - 2) {
            self.push(&format!("  {}", paint.apply(&line, self.color)));
        }
    }

    /// A label in its paint, at `indent`, then text that wraps at the column `hang`.
    pub(super) fn item(&mut self, indent: usize, hang: usize, label: &str, paint: Paint, text: &str) {
        let label = clean(label);
        // A label that reaches into the text pushes it on; the lines below still start at `hang`.
        let start = (indent + label.width() + 1).max(hang);
        if start + 8 > self.width {
            self.note(paint, &label);
            return self.note(Paint::Plain, text);
        }
        let lines = wrap(&clean(text), self.width - start, self.width - hang);
        for (number, line) in lines.iter().enumerate() {
            if number == 0 {
                let gap = start - indent - label.width();
                let label = paint.apply(&label, self.color);
                self.push(&format!("{:indent$}{label}{:gap$}{line}", "", ""));
            } else {
                self.push(&format!("{:hang$}{line}", ""));
            }
        }
    }

    /// A table indented by two, in as many column blocks as the width needs.
    pub(super) fn table(&mut self, table: &Table) {
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

/// Holds a number and its unit on one line; written as a space.
pub(super) const GLUE: char = '\u{a0}';

/// The text in lines of at most `first` columns, then `rest`; at least one line. Words longer than
/// a line are cut, since a terminal would do worse.
fn wrap(text: &str, first: usize, rest: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut room = first;
    for mut word in text.split(|c: char| c.is_whitespace() && c != GLUE).filter(|word| !word.is_empty()) {
        if lines.last().is_some_and(|line| !line.is_empty()) {
            if word.width() < room {
                if let Some(line) = lines.last_mut() {
                    line.push(' ');
                    line.push_str(word);
                }
                room -= word.width() + 1;
                continue;
            }
            lines.push(String::new());
            room = rest;
        }
        while word.width() > room {
            let (fits, over) = word.split_at(cut(word, room));
            if let Some(line) = lines.last_mut() {
                line.push_str(fits);
            }
            lines.push(String::new());
            room = rest;
            word = over;
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(word);
        }
        room -= word.width();
    }
    for line in &mut lines {
        *line = line.replace(GLUE, " ");
    }
    lines
}

/// Where to cut so that at most `room` columns come before; always after at least one character.
fn cut(word: &str, room: usize) -> usize {
    let mut columns = 0;
    for (at, c) in word.char_indices() {
        columns += c.width().unwrap_or(0);
        if columns > room && at > 0 {
            return at;
        }
    }
    word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_overlong_ones_are_cut() {
        assert_eq!(wrap("", 10, 10), [""]);
        assert_eq!(wrap("one two three", 7, 5), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4, 3), ["abcd", "efg", "hij"]);
        assert_eq!(wrap("rate 7.88\u{a0}GB/s", 10, 10), ["rate", "7.88 GB/s"]);
        assert_eq!(wrap("a →→→→ b", 4, 4), ["a", "→→→→", "b"]);
        assert_eq!(wrap("日本語日本語", 5, 4), ["日本", "語日", "本語"]);
    }

    #[test]
    fn an_item_hangs_below_its_label() {
        let style = Style { width: 60, color: false, verbose: false };
        let mut page = Page::new(&style);
        page.item(2, 10, "next", Paint::Plain, "reseat the card and clean the contacts of the slot, then start again");
        page.item(0, 4, "long label", Paint::Plain, "text");
        assert_eq!(
            page.finish(),
            "  next    reseat the card and clean the contacts of the\n          slot, then start again\nlong label text\n"
        );
    }
}
