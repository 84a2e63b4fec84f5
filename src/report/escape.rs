//! Makes control characters visible in names that come from a machine, so that no terminal acts on them.

use std::borrow::Cow;
use std::io::{self, Write};

/// Returns true if a terminal might act on this character instead of showing it. These are controls (ESC, newline, the
/// C1 range with its one-character CSI), marks that reorder or hide text, line separators, the invisible tag
/// characters, and noncharacters.
pub const fn acts(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{fdd0}'..='\u{fdef}' | '\u{e0000}'..='\u{e0fff}')
        || c as u32 & 0xfffe == 0xfffe
}

/// Returns the text with such characters written out: `\n`, `\u{1b}`.
pub fn clean(text: &str) -> Cow<'_, str> {
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

/// Writes part of a JSON string. Escapes characters that a terminal acts on, even if JSON would keep them.
pub(super) fn json_fragment<W: ?Sized + Write>(to: &mut W, fragment: &str) -> io::Result<()> {
    // Nearly all keys and names are plain ASCII, and a report of many GPUs contains hundreds of thousands of them.
    if fragment.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return to.write_all(fragment.as_bytes());
    }
    let mut rest = fragment;
    while let Some((at, c)) = rest.char_indices().find(|&(_, c)| acts(c)) {
        to.write_all(&rest.as_bytes()[..at])?;
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(to, "\\u{unit:04x}")?;
        }
        rest = &rest[at + c.len_utf8()..];
    }
    to.write_all(rest.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(clean("NVIDIA H200"), "NVIDIA H200");
        assert_eq!(
            clean("a\u{1b}[31mb\nc\u{9b}2J\u{202e}d\0"),
            "a\\u{1b}[31mb\\nc\\u{9b}2J\\u{202e}d\\u{0}"
        );
        assert_eq!(clean("GPU 0 → GPU 1 ✗"), "GPU 0 → GPU 1 ✗");
    }
}
