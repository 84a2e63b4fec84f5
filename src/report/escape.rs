//! Names that come from a machine are shown, never obeyed: control characters become visible.

use std::borrow::Cow;

/// Whether a terminal might act on this character rather than show it: controls (ESC, newline,
/// the C1 range with its one-character CSI), marks that reorder or hide text, line separators.
pub(super) const fn acts(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The text with such characters written out: `\n`, `\u{1b}`.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if acts(c) {
            // escape_default writes \n, \r and \t short and everything else as \u{…}.
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The text as a quoted string of the dot language. Each element of `lines` is a line of a label.
pub(super) fn dot_quoted(lines: &[&str]) -> String {
    let escaped = |line: &&str| clean(line).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", lines.iter().map(escaped).collect::<Vec<_>>().join("\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(clean("NVIDIA H200"), "NVIDIA H200");
        assert_eq!(clean("a\u{1b}[31mb\nc\u{9b}2J\u{202e}d\0"), "a\\u{1b}[31mb\\nc\\u{9b}2J\\u{202e}d\\u{0}");
        assert_eq!(clean("GPU 0 → GPU 1 ✗"), "GPU 0 → GPU 1 ✗");
    }

    #[test]
    fn dot_strings_cannot_be_left() {
        assert_eq!(dot_quoted(&["a\"];b", "c\\"]), r#""a\"];b\nc\\""#);
        assert_eq!(dot_quoted(&["x\ny"]), r#""x\\ny""#);
    }
}
