//! A line for each finding.

use unicode_width::UnicodeWidthStr;

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::findings::{Alike, by_rule, label};
use super::super::page::Page;
use model::finding::Severity;

/// Column at which the text starts.
const TEXT: usize = 9;

/// Fewest columns of a clause that says something; chosen.
const LEAST: usize = 20;

/// Most findings per rule that get their own summary line, on a page that describes them further down.
const LINES_PER_RULE: usize = 4;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    EachFinding,
    /// Each finding, if its rule has few.
    EachRule,
}

/// Writes the lines, worst first. A page that describes the findings further down has none for information, and none for
/// a single finding, which it describes next. Nobody has lines for what nearly every healthy machine gets.
pub(super) fn write(page: &mut Page, digest: &Digest<'_>, width: usize, of: Of) {
    let mut all = by_rule(digest.report);
    all.retain(|alike| match of {
        Of::EachRule => alike.severity > Severity::Info,
        Of::EachFinding => !alike.is_usual(),
    });
    let number: usize = all.iter().map(|alike| alike.findings.len()).sum();
    if number == 0 || (of == Of::EachRule && number == 1) {
        return;
    }
    page.blank();
    for Alike { severity, code, findings } in all {
        let (word, paint) = label(severity);
        let shown = match of {
            Of::EachRule if findings.len() > LINES_PER_RULE => 1,
            _ => findings.len(),
        };
        for (number, finding) in findings[..shown].iter().enumerate() {
            let rest = findings.len() - shown;
            let more = if rest > 0 && number + 1 == shown {
                format!(", and {rest} more")
            } else {
                String::new()
            };
            let end = format!("{more} [{}]", clean(code));
            let text = fitted(&clean(&finding.message), &end, width.saturating_sub(TEXT));
            page.item(0, TEXT, word, paint, &text);
        }
    }
}

/// Returns the rules whose information nearly every healthy machine gets, if there are any: `pageable-slower and
/// pinning-dominates`.
pub(super) fn usual(digest: &Digest<'_>) -> Option<String> {
    let codes = by_rule(digest.report);
    let codes: Vec<_> = codes
        .iter()
        .filter(|alike| alike.is_usual())
        .map(|alike| clean(alike.code).into_owned())
        .collect();
    (!codes.is_empty()).then(|| codes.join(", "))
}

/// Joins the most informative beginning of a sentence that fits the width and its end. If no clause fits, the first one
/// goes on in the next line: nothing is cut within a clause.
fn fitted(sentence: &str, end: &str, width: usize) -> String {
    let room = width.saturating_sub(end.width());
    let bare = without_brackets(sentence);
    if sentence.width() <= room {
        return sentence.to_owned() + end;
    }
    // A clause of two words, such as a name before a colon, is not informative.
    let says_something = |clause: &&str| clause.width() >= (room / 3).max(LEAST);
    let fitting = [sentence, &bare].into_iter().find_map(|text| {
        let clauses = clauses(text).filter(|clause| clause.width() <= room);
        clauses.filter(says_something).last()
    });
    let first = || clauses(&bare).find(says_something);
    fitting.or_else(first).unwrap_or(&bare).to_owned() + end
}

/// Ends of a clause, and how much of each belongs to it.
const ENDS: [(&str, usize); 6] =
    [(": ", 0), ("; ", 0), (". ", 0), ("GB/s, ", 4), (", while ", 0), (", although ", 0)];

/// Returns the beginnings of a sentence that end with a clause, the shortest first; the last is all of it.
fn clauses(sentence: &str) -> impl Iterator<Item = &str> {
    let mut ends: Vec<usize> = (ENDS.iter())
        .flat_map(|(end, kept)| sentence.match_indices(end).map(move |(at, _)| at + kept))
        .chain([sentence.len()])
        .collect();
    ends.sort_unstable();
    ends.into_iter().map(|end| &sentence[..end])
}

/// Returns the sentence without its brackets and their contents.
fn without_brackets(sentence: &str) -> String {
    let (mut bare, mut depth) = (String::with_capacity(sentence.len()), 0_usize);
    for c in sentence.chars() {
        match c {
            '(' => {
                depth += 1;
                bare.truncate(bare.trim_end().len());
            }
            ')' if depth > 0 => depth -= 1,
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "The PCIe link of GPU 5 (0000:44:00.0, slot 6) runs at Gen4 x4; the GPU and the port can do more";

    #[test]
    fn whole_clauses_are_kept() {
        assert_eq!(fitted(LONG, "", 200), LONG);
        assert_eq!(
            fitted(LONG, "", 70),
            "The PCIe link of GPU 5 (0000:44:00.0, slot 6) runs at Gen4 x4"
        );
        let bare = "The PCIe link of GPU 5 runs at Gen4 x4";
        assert_eq!(fitted(LONG, "", 50), bare);
        assert_eq!(fitted(LONG, " [pcie-narrow]", 71), format!("{bare} [pcie-narrow]"));
        assert_eq!(
            fitted("GPU 3: it has stopped to answer and more words", "", 30),
            "GPU 3: it has stopped to answer and more words",
            "a name says nothing"
        );
        assert_eq!(fitted("((((", "", 3), "");
    }

    #[test]
    fn a_clause_that_does_not_fit_goes_on_in_the_next_line() {
        assert_eq!(
            fitted(LONG, " [pcie-narrow]", 36),
            "The PCIe link of GPU 5 runs at Gen4 x4 [pcie-narrow]"
        );
        let slow = "Copies from GPU 5 (0000:60:00.0) to the host reach only 27.6 GB/s, 51% of the 54.2 GB/s of others; more";
        assert_eq!(
            fitted(slow, " [host-bandwidth-low]", 71),
            "Copies from GPU 5 to the host reach only 27.6 GB/s [host-bandwidth-low]"
        );
    }
}
