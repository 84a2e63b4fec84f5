//! A line for each finding.

use unicode_width::UnicodeWidthStr;

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::findings::{Alike, by_rule, is_usual, label, place};
use super::super::page::{Page, Paint};
use model::finding::{Finding, Severity};
use model::snapshot::Snapshot;
use model::step;

/// Column at which the text starts.
const TEXT: usize = 9;

/// Least columns of the text beside a code; chosen.
const LEAST: usize = 30;

/// Most findings per rule that get their own summary line, on a page that describes them further down.
const LINES_PER_RULE: usize = 4;

/// Most findings, the worst ones, whose place and first step follow their line; the page describes the others further
/// down. Chosen.
const TOLD: usize = 2;

/// Column at which place and first step start.
const HANG: usize = TEXT + 9;

/// The subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    EachFinding,
    /// Each finding, if its rule has few.
    EachRule,
}

/// Writes the lines, worst first; each fits the width. A page that describes the findings further down has none for
/// information.
pub(super) fn write(page: &mut Page, digest: &Digest<'_>, width: usize, of: Of) {
    let mut all = by_rule(digest.report);
    if of == Of::EachRule {
        all.retain(|alike| alike.severity > Severity::Info);
    }
    if all.is_empty() || (of == Of::EachRule && is_whole_in_a_line(&all, width)) {
        return;
    }
    page.blank();
    let mut told = 0;
    for Alike {
        severity,
        code,
        findings,
    } in all
    {
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
            let sentence = clean(&finding.message).into_owned();
            let text = fitted(&sentence, &end, width.saturating_sub(TEXT));
            page.item(0, TEXT, word, paint, &text);
            if of == Of::EachRule && severity > Severity::Info && told < TOLD {
                told += 1;
                let room = width.saturating_sub(HANG);
                first_step(page, finding, &digest.report.snapshot, &text, room);
            }
        }
    }
}

/// Returns true for one finding whose sentence is not cut: its block below begins with the same line.
fn is_whole_in_a_line(all: &[Alike<'_>], width: usize) -> bool {
    let [one] = all else { return false };
    let [finding] = one.findings[..] else {
        return false;
    };
    let needed = clean(&finding.message).width() + clean(one.code).width() + " []".len();
    needed <= width.saturating_sub(TEXT)
}

/// Returns the rules whose information nearly every healthy machine gets, if there are any: `pageable-slower and
/// pinning-dominates`.
pub(super) fn usual(digest: &Digest<'_>) -> Option<String> {
    let codes = by_rule(digest.report);
    let codes: Vec<_> = codes
        .iter()
        .filter(|alike| is_usual(alike))
        .map(|alike| clean(alike.code).into_owned())
        .collect();
    (!codes.is_empty()).then(|| codes.join(", "))
}

/// Writes the place and the first steps below the line of a finding, so that a technician at the machine can begin.
fn first_step(page: &mut Page, finding: &Finding, snapshot: &Snapshot, line: &str, room: usize) {
    let place = place(&finding.subject, snapshot);
    let beside = match (place.as_slice(), finding.suspects.first()) {
        ([], suspect) => suspect.map(|suspect| ("suspect", suspect.cause.clone())),
        // The line itself contains the place if it had room.
        (parts, _) if parts.iter().any(|part| line.contains(part)) => None,
        (parts, _) => Some(("where", parts.join(", "))),
    };
    if let Some((word, text)) = beside {
        let text = clause(&clean(&text), room);
        page.item(TEXT, HANG, word, Paint::Faint, &text);
    }
    let steps = beginning(finding, room * 2 - room / 8);
    page.item(TEXT, HANG, "do", Paint::Strong, &steps);
}

/// Returns as many of the steps to take at once as fit.
fn beginning(finding: &Finding, room: usize) -> String {
    let first = step::at_once(&finding.steps);
    let fitting = (1..=first.len())
        .rev()
        .map(|number| clean(&step::sentences(&first[..number])).into_owned())
        .find(|text| text.width() <= room);
    fitting.unwrap_or_else(|| match first {
        [] => clause(&clean(&finding.next_step), room),
        [step, ..] => clause(&clean(&step::sentences(std::slice::from_ref(step))), room),
    })
}

/// Joins a sentence and its end in a line. Omits the end if it leaves the sentence no room.
fn fitted(sentence: &str, end: &str, width: usize) -> String {
    match width.checked_sub(end.width()).filter(|room| *room >= LEAST) {
        Some(room) => clause(sentence, room) + end,
        None => clause(sentence, width),
    }
}

/// Returns the most informative beginning of a sentence in this many columns. Prefers whole clauses, omits text in
/// brackets if that helps, else returns as many words as fit.
fn clause(sentence: &str, room: usize) -> String {
    if sentence.width() <= room {
        return sentence.to_owned();
    }
    let bare = without_brackets(sentence);
    let fitting = [sentence, &bare].into_iter().find_map(|text| {
        let ends = [": ", "; ", ". "]
            .iter()
            .flat_map(|end| text.match_indices(end))
            .map(|(at, _)| at);
        let ends = ends
            .chain([text.len()])
            .filter(|&at| text[..at].width() <= room);
        ends.max().map(|at| text[..at].to_owned())
    });
    // A clause of two words, such as a name before a colon, is not informative.
    if let Some(clause) = fitting.filter(|clause| clause.width() >= room / 3) {
        return clause;
    }
    let mut text = String::new();
    for word in bare.split(' ') {
        if text.width() + word.width() + " ...".len() + 1 > room {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text += word;
    }
    format!("{} ...", text.trim_end_matches([',', ';', ':']))
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
        assert_eq!(clause(LONG, 200), LONG);
        assert_eq!(
            clause(LONG, 70),
            "The PCIe link of GPU 5 (0000:44:00.0, slot 6) runs at Gen4 x4"
        );
        assert_eq!(clause(LONG, 50), "The PCIe link of GPU 5 runs at Gen4 x4");
        assert_eq!(clause(LONG, 36), "The PCIe link of GPU 5 runs at ...");
        assert_eq!(
            clause("GPU 3: it has stopped to answer and more words", 30),
            "GPU 3: it has stopped to ..."
        );
        assert_eq!(clause("((((", 3), " ...");
    }

    #[test]
    fn a_line_is_no_longer_than_there_is_room() {
        for width in 30..140 {
            let text = fitted(LONG, " [pcie-narrow]", width);
            assert!(
                text.width() <= width && text.starts_with("The PCIe link of"),
                "{width}: {text}"
            );
            assert_eq!(
                text.ends_with(" [pcie-narrow]"),
                width >= 44,
                "{width}: {text}"
            );
        }
        assert_eq!(
            fitted(LONG, " [pcie-narrow]", 71),
            "The PCIe link of GPU 5 runs at Gen4 x4 [pcie-narrow]"
        );
    }
}
