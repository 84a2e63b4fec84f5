//! Wrapping of text into lines.

use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// A space that keeps a number and its unit on one line; written as a plain space.
pub(crate) const GLUE: char = '\u{a0}';

/// Splits a line at spaces, and behind each of several alternatives and of their parts.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let ends: &[char] = if line.contains('|') { &['|', '/'] } else { &[] };
    let parts = line.split_inclusive(ends);
    Box::new(parts.flat_map(|part| WordSeparator::AsciiSpace.find_words(part)))
}

/// Wraps the text into lines of at most `width` columns, the first indented by `first`, the others by `rest`. Returns
/// at least one line. Words longer than a line are cut, since a terminal would wrap them anywhere.
pub fn wrap(text: &str, width: usize, first: usize, rest: usize) -> Vec<String> {
    let (first, rest) = (" ".repeat(first), " ".repeat(rest));
    let options = Options::new(width)
        .initial_indent(&first)
        .subsequent_indent(&rest)
        .word_separator(WordSeparator::Custom(words))
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
        assert_eq!(wrap("one/two|three/four", 14, 0, 0), ["one/two|three/", "four"]);
        assert_eq!(wrap("a →→→→ b", 4, 0, 0), ["a", "→→→→", "b"]);
        assert_eq!(wrap("日本語日本語", 5, 0, 0), ["日本", "語日", "本語"]);
    }
}
