//! A page for people: its texts with their meaning, before the layout as text or HTML. Cleans every text.

use super::escape::clean;
use super::matrix::Table;
pub use super::paint::Paint;
pub(crate) use super::wrap::GLUE;

/// A piece of a page. Its texts are clean.
#[derive(Debug, Clone)]
pub enum Block {
    /// An empty line, unless the line above is empty.
    Blank,
    /// A caveat.
    Banner(String),
    Verdict {
        word: String,
        paint: Paint,
        text: String,
    },
    /// A finding, with its evidence and next step.
    Finding {
        word: &'static str,
        paint: Paint,
        text: String,
        below: Vec<(&'static str, String)>,
    },
    /// A heading.
    Heading(String),
    /// Text from the left margin.
    Line(Paint, String),
    /// Text below a heading.
    Note(Paint, String),
    /// A label and its text; `at` contains the columns of both.
    Item {
        at: (usize, usize),
        label: String,
        paint: Paint,
        text: String,
    },
    Table(Table),
}

/// Column at which the text of a finding starts.
pub(super) const FINDING: usize = 9;

/// Most findings of a rule that have a line each at the end of a page.
const LINES_PER_RULE: usize = 4;

/// A page under construction.
pub struct Page {
    verbose: bool,
    blocks: Vec<Block>,
    end: Vec<Block>,
}

impl Page {
    pub const fn new(verbose: bool) -> Self {
        Self { verbose, blocks: Vec::new(), end: Vec::new() }
    }

    /// Returns true if every matrix is wanted.
    pub const fn verbose(&self) -> bool {
        self.verbose
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns what a terminal repeats at the end of a long page.
    pub(crate) fn end(&self) -> &[Block] {
        &self.end
    }

    /// Adds findings of one rule to what a terminal repeats at the end of a long page: a line each, or one line if there are
    /// many.
    pub fn at_end<'a>(
        &mut self,
        (word, paint): (&str, Paint),
        code: &str,
        texts: impl ExactSizeIterator<Item = &'a str>,
    ) {
        let (shown, more) = match texts.len() {
            many if many > LINES_PER_RULE => (1, format!(", and {} more", many - 1)),
            few => (few, String::new()),
        };
        self.end.extend(texts.take(shown).map(|text| Block::Item {
            at: (0, FINDING),
            label: word.to_owned(),
            paint,
            text: cleaned(&format!("{text}{more} [{code}]")),
        }));
    }

    /// Adds an empty line, except at the top or after another.
    pub fn blank(&mut self) {
        self.blocks.push(Block::Blank);
    }

    /// Adds a caveat.
    pub fn banner(&mut self, text: &str) {
        self.blocks.push(Block::Banner(cleaned(text)));
    }

    /// Adds the conclusion's word and its reason.
    pub fn verdict(&mut self, word: &str, paint: Paint, text: &str) {
        self.blocks.push(Block::Verdict { word: cleaned(word), paint, text: cleaned(text) });
    }

    /// Adds a finding with the labelled texts below it; empty ones are left out.
    pub fn finding(
        &mut self,
        (word, paint): (&'static str, Paint),
        text: &str,
        mut below: Vec<(&'static str, String)>,
    ) {
        below.retain(|(_, text)| !text.is_empty());
        below.iter_mut().for_each(|(_, text)| *text = cleaned(text));
        self.blocks.push(Block::Finding { word, paint, text: cleaned(text), below });
    }

    /// Adds a heading, separated from what is above.
    pub fn heading(&mut self, text: &str) {
        self.blocks.push(Block::Heading(cleaned(text)));
    }

    /// Adds text from the left margin, in one paint.
    pub fn line(&mut self, paint: Paint, text: &str) {
        self.blocks.push(Block::Line(paint, cleaned(text)));
    }

    /// Adds text below a heading, indented by two.
    pub fn note(&mut self, paint: Paint, text: &str) {
        self.blocks.push(Block::Note(paint, cleaned(text)));
    }

    /// Adds a label in its paint at `indent`, then text that wraps at the column `hang`.
    pub fn item(&mut self, indent: usize, hang: usize, label: &str, paint: Paint, text: &str) {
        let (label, text) = (cleaned(label), cleaned(text));
        self.blocks.push(Block::Item { at: (indent, hang), label, paint, text });
    }

    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }
}

fn cleaned(text: &str) -> String {
    clean(text).into_owned()
}
