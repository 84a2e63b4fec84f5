//! What a reader of one kind of output is, and what it sees.

use super::lines::Line;
use super::told::{Key, Notes};

/// A kind of output.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Its name in reports.
    pub kind: &'static str,
    /// The command that prints it.
    pub tool: &'static str,
    /// True if a section may begin with this line, whose leading spaces are removed. It is asked for every line.
    pub begins: fn(&str) -> bool,
    /// Reads a section from its first line on. Returns the number of its lines, or `None` if it is another.
    pub read: fn(Ahead<'_>, &mut Notes) -> Option<usize>,
}

/// The lines that a reader sees: from the first line of its section to the end of the input, and the command before them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ahead<'a> {
    pub lines: &'a [Line<'a>],
    /// The command that a shell printed shortly before.
    pub command: Option<&'a str>,
}

impl Ahead<'_> {
    /// Returns the GPU that a program calls so which was started by the command above: `CUDA_VISIBLE_DEVICES=2,3` renames
    /// GPUs.
    pub(crate) fn visible(&self, ordinal: u32) -> Key {
        let (_, list) = self
            .command
            .unwrap_or_default()
            .split_once("CUDA_VISIBLE_DEVICES=")
            .unwrap_or_default();
        let mut list = list.split(' ').next().unwrap_or_default().trim_matches('"').split(',');
        let own = list.nth(ordinal as usize).and_then(|own| own.parse().ok());
        Key::Ordinal(own.unwrap_or(ordinal))
    }
}
