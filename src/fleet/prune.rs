//! Removes the parts of a report's text that a digest does not need, without parsing it. Ten thousand reports are
//! gigabytes, and nearly all of that is rows that no fleet is judged by.
//!
//! It relies on how `peerscope` writes JSON: every member on its own line, indented by two for each level. A JSON
//! string contains no line feed, so the indentation alone finds the line on which an object ends. If the text is not of
//! that form, nothing is removed: the whole text is parsed, which gives the same digest.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

/// The treatment of a member that is an object or a list. Members without a rule are removed.
enum Rule {
    /// Keeps the member unchanged.
    Keep,
    /// Applies rules to the members of an object.
    Members(Rules),
    /// Applies rules to the members of each object in a list.
    Elements(Rules),
    /// Removes copies in a placement other than the reference from a list.
    Copies,
}

type Rules = &'static [(&'static str, Rule)];

/// Everything that a digest is made from (`excerpt.rs`), except plain values, which always stay.
const REPORT: Rules = &[
    ("tool", Rule::Keep),
    ("request", Rule::Keep),
    (
        "snapshot",
        Rule::Members(&[("host", Rule::Keep), ("gpus", Rule::Elements(&[]))]),
    ),
    (
        "topology",
        Rule::Members(&[
            ("links", Rule::Elements(&[("pcie", Rule::Keep)])),
            ("pairs", Rule::Elements(&[("peer_access", Rule::Keep)])),
        ]),
    ),
    (
        "measurements",
        Rule::Members(&[
            ("peer", Rule::Copies),
            ("latency", Rule::Keep),
            ("local", Rule::Keep),
            ("host", Rule::Keep),
            ("load", Rule::Elements(&[])),
            ("counted", Rule::Keep),
        ]),
    ),
    ("findings", Rule::Elements(&[("subject", Rule::Keep)])),
    ("verdict", Rule::Keep),
];

/// Most levels that the pruner descends.
const LEVELS: usize = 8;

/// The ends of an object and of a list on each level.
static ENDS: LazyLock<Vec<[Finder<'static>; 2]>> = LazyLock::new(|| {
    let end = |level, c| Finder::new(&format!("\n{}{c}", "  ".repeat(level))).into_owned();
    (0..LEVELS)
        .map(|level| [end(level, '}'), end(level, ']')])
        .collect()
});

/// Bytes at the beginning of a copy that contain its placement.
const HEAD: usize = 320;

/// The reference placement in written form, and the beginning of any placement.
static PLACEMENT: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| {
    let words = [
        "\"source\": \"side\"",
        "\"destination\": \"side\"",
        "\"host\": \"non-blocking\"",
    ];
    let any = "\"placement\": {";
    let reference = format!("{any}\n          {}\n", words.join(",\n          "));
    [
        Finder::new(&reference).into_owned(),
        Finder::new(any).into_owned(),
    ]
});

/// Keeps the parts of the text that a digest needs. Returns `None` if the text is not in the form that `peerscope`
/// writes.
pub(crate) fn pruned(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let mut pruner = Pruner { text, at: 0, out };
    pruner.line_is(b"{")?;
    pruner.members(1, REPORT)?;
    pruner.line_is(b"}")?;
    text.get(pruner.at..)
        .is_none_or(|rest| rest.trim_ascii().is_empty())
        .then_some(())
}

struct Pruner<'a> {
    text: &'a [u8],
    at: usize,
    out: &'a mut Vec<u8>,
}

impl<'a> Pruner<'a> {
    /// Returns the line that begins here, without its line feed.
    fn line(&self) -> Option<&'a [u8]> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        rest.get(..memchr(b'\n', rest).unwrap_or(rest.len()))
    }

    fn keep(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
        self.out.push(b'\n');
        self.at += line.len() + 1;
    }

    /// Keeps this line. Returns `None` if it is not the expected one.
    fn line_is(&mut self, expected: &[u8]) -> Option<()> {
        let line = self.line().filter(|line| *line == expected)?;
        self.keep(line);
        Some(())
    }

    /// Handles the members of an object, up to the line that ends it.
    fn members(&mut self, level: usize, rules: Rules) -> Option<()> {
        loop {
            let line = self.line()?;
            let member = line.get(2 * level..).unwrap_or_default();
            let [b'"', rest @ ..] = member else {
                return is_indented(line, level - 1).then_some(());
            };
            let key = rest.get(..memchr(b'"', rest)?)?;
            let value = rest.get(key.len()..)?.strip_prefix(b"\": ")?;
            if !is_indented(line, level) || key.contains(&b'\\') {
                return None;
            }
            match value {
                b"{" | b"[" => self.block(level, key, line, rules)?,
                _ => self.keep(line),
            }
        }
    }

    /// Handles a member that is an object or a list over several lines.
    fn block(&mut self, level: usize, key: &[u8], line: &[u8], rules: Rules) -> Option<()> {
        let is_list = line.ends_with(b"[");
        let rule = rules
            .iter()
            .find(|(known, _)| known.as_bytes() == key)
            .map(|(_, rule)| rule);
        match (rule, is_list) {
            (Some(Rule::Members(rules)), false) => {
                self.keep(line);
                self.members(level + 1, rules)?;
                self.end(level, b'}')
            }
            (Some(Rule::Elements(rules)), true) => {
                self.keep(line);
                while is_bracket(self.line()?, level + 1) {
                    self.keep(self.line()?);
                    self.members(level + 2, rules)?;
                    self.end(level + 1, b'}')?;
                }
                self.end(level, b']')
            }
            (Some(Rule::Copies), true) => {
                self.keep(line);
                self.copies(level + 1)?;
                self.end(level, b']')
            }
            (Some(Rule::Keep), _) => {
                let end = self.end_of(level, is_list)?;
                self.out.extend_from_slice(self.text.get(self.at..end)?);
                self.at = end;
                self.rest_of_line()
            }
            (None, _) => {
                self.out
                    .extend_from_slice(line.strip_suffix(if is_list { b"[" } else { b"{" })?);
                self.out.extend_from_slice(b"null");
                self.at = self.end_of(level, is_list)?;
                self.rest_of_line()
            }
            _ => None,
        }
    }

    /// Keeps copies in the reference placement, and objects without a placement.
    fn copies(&mut self, level: usize) -> Option<()> {
        let mut is_first = true;
        let [reference, any] = &*PLACEMENT;
        while is_bracket(self.line()?, level) {
            let end = self.end_of(level, false)?;
            let copy = self.text.get(self.at..end)?;
            let head = copy.get(..HEAD).unwrap_or(copy);
            if reference.find(head).is_some() || any.find(head).is_none() {
                if !is_first {
                    self.out.extend_from_slice(b",\n");
                }
                is_first = false;
                self.out.extend_from_slice(copy);
            }
            self.at = end;
            match self.line()? {
                b"," => self.at += 2,
                b"" => self.at += 1,
                _ => return None,
            }
        }
        self.out.push(b'\n');
        Some(())
    }

    /// Returns the end of the object or list of this level that begins on this line.
    fn end_of(&self, level: usize, is_list: bool) -> Option<usize> {
        let end = &ENDS.get(level)?[usize::from(is_list)];
        let found = end.find(self.text.get(self.at..)?)?;
        Some(self.at + found + end.needle().len())
    }

    /// Keeps the line that ends an object or a list, with its comma.
    fn end(&mut self, level: usize, c: u8) -> Option<()> {
        let line = self.line()?;
        let ends = is_indented(line, level)
            && matches!(line.get(2 * level..)?, [end] | [end, b','] if *end == c);
        ends.then(|| self.keep(line))
    }

    fn rest_of_line(&mut self) -> Option<()> {
        let rest = self.line().filter(|rest| matches!(*rest, b"" | b","))?;
        self.keep(rest);
        Some(())
    }
}

fn is_indented(line: &[u8], level: usize) -> bool {
    line.get(..2 * level)
        .is_some_and(|indent| indent.iter().all(|byte| *byte == b' '))
        && line.get(2 * level).is_some_and(|byte| *byte != b' ')
}

/// Returns true if an object begins on this line of a list.
fn is_bracket(line: &[u8], level: usize) -> bool {
    line.len() == 2 * level + 1 && is_indented(line, level) && line.ends_with(b"{")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use report::{Style, named, render};

    fn prune(text: &str) -> Option<String> {
        let mut out = Vec::new();
        pruned(text.as_bytes(), &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    fn json(report: &model::report::Report) -> String {
        render(report, named("json").unwrap(), &Style::PLAIN)
    }

    #[test]
    fn what_is_left_is_json_with_what_is_needed() {
        for report in [
            sample::healthy(8),
            sample::pcie_box(),
            sample::unknown(3),
            sample::nothing_measured(),
        ] {
            let text = json(&report);
            let short = prune(&text).unwrap();
            assert!(
                short.len() * 2 < text.len() || text.len() < 20_000,
                "{} of {}",
                short.len(),
                text.len()
            );
            let (short, whole): (Value, Value) = (
                serde_json::from_str(&short).unwrap(),
                serde_json::from_str(&text).unwrap(),
            );
            for path in [
                "/schema",
                "/verdict",
                "/snapshot/host",
                "/snapshot/gpus/0/vbios",
                "/measurements/local",
            ] {
                assert_eq!(short.pointer(path), whole.pointer(path), "{path}");
            }
            let left = short.pointer("/snapshot/pci").unwrap();
            assert!(left.is_null() || left == &serde_json::json!([]), "{left}");
        }
    }

    #[test]
    fn another_form_is_left_alone() {
        let text = json(&sample::healthy(2));
        let value: Value = serde_json::from_str(&text).unwrap();
        for other in [
            value.to_string(),
            text.replace("\n  ", "\n   "),
            text.replace('\n', "\r\n"),
            text[..text.len() / 2].to_owned(),
            format!("{text}{{}}"),
            text.replace("\"snapshot\"", "\"snap\\u0073hot\""),
            String::new(),
        ] {
            assert_eq!(prune(&other), None, "{}", &other[..other.len().min(80)]);
        }
    }
}
