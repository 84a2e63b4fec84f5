//! A page for people: its text and the meaning of each piece, before the layout as text or as HTML.
//! Cleans every text.

use super::escape::clean;
use super::matrix::Table;
pub use super::paint::Paint;
pub use super::wrap::GLUE;

/// A piece of a page. Its texts are clean.
#[derive(Debug, Clone)]
pub enum Block {
    /// Empty space, unless there is some already.
    Blank,
    /// What must be known before anything else.
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
    /// The title of what follows.
    Heading(String),
    /// Text from the left margin.
    Line(Paint, String),
    /// Text below a heading.
    Note(Paint, String),
    /// A label and its text; `at` are the columns of both.
    Item {
        at: (usize, usize),
        label: String,
        paint: Paint,
        text: String,
    },
    Table(Table),
}

/// A page in the making.
pub struct Page {
    verbose: bool,
    blocks: Vec<Block>,
}

impl Page {
    pub const fn new(verbose: bool) -> Self {
        Self {
            verbose,
            blocks: Vec::new(),
        }
    }

    /// Whether every matrix is wanted.
    pub const fn verbose(&self) -> bool {
        self.verbose
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// One empty line, and none at the top or after another.
    pub fn blank(&mut self) {
        self.blocks.push(Block::Blank);
    }

    /// What must be known before anything else.
    pub fn banner(&mut self, text: &str) {
        self.blocks.push(Block::Banner(cleaned(text)));
    }

    /// The conclusion in a word, and the reason for it.
    pub fn verdict(&mut self, word: &str, paint: Paint, text: &str) {
        self.blocks.push(Block::Verdict {
            word: cleaned(word),
            paint,
            text: cleaned(text),
        });
    }

    /// A finding, and the labelled texts below it; empty ones are left out.
    pub fn finding(
        &mut self,
        (word, paint): (&'static str, Paint),
        text: &str,
        below: Vec<(&'static str, String)>,
    ) {
        let below = below.into_iter().filter(|(_, text)| !text.is_empty());
        let below = below.map(|(label, text)| (label, cleaned(&text))).collect();
        self.blocks.push(Block::Finding {
            word,
            paint,
            text: cleaned(text),
            below,
        });
    }

    /// A heading, separated from what is above.
    pub fn heading(&mut self, text: &str) {
        self.blocks.push(Block::Heading(cleaned(text)));
    }

    /// Text from the left margin, in one paint.
    pub fn line(&mut self, paint: Paint, text: &str) {
        self.blocks.push(Block::Line(paint, cleaned(text)));
    }

    /// Text below a heading, indented by two.
    pub fn note(&mut self, paint: Paint, text: &str) {
        self.blocks.push(Block::Note(paint, cleaned(text)));
    }

    /// A label in its paint, at `indent`, then text that wraps at the column `hang`.
    pub fn item(&mut self, indent: usize, hang: usize, label: &str, paint: Paint, text: &str) {
        let (label, text) = (cleaned(label), cleaned(text));
        self.blocks.push(Block::Item {
            at: (indent, hang),
            label,
            paint,
            text,
        });
    }

    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }
}

fn cleaned(text: &str) -> String {
    clean(text).into_owned()
}
