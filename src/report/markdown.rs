//! The report as Markdown, for a ticket: what is wrong, on which machine, how to see it again.
//!
//! Short on purpose: the JSON report has everything. Text that came from a machine is escaped, so
//! that it makes no link, no HTML, no mention, and breaks no table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::digest::{Caveat, Digest, Figures};
use super::escape::clean;
use super::figures::{count, ranges};
use super::findings::sentence;
use super::format::{Format, Style};
use super::page::GLUE;
use super::{evidence, gaps, machine, partial, rows};
use crate::model::finding::Finding;
use crate::model::report::Report;
use crate::model::rounding::{percent, range, rate};

/// Markdown.
pub(super) const FORMAT: Format = Format::new("markdown", &["md"], "For a ticket", render);

/// Number of findings that are shown in full; the rest is counted by code.
const SHOWN_FINDINGS: usize = 8;

/// Number of pairs that are shown.
const SHOWN_PAIRS: usize = 5;

/// Number of lines of the other lists that are shown.
const SHOWN_LINES: usize = 16;

/// Longest text of one item, in characters. A finding's sentence is shorter by far; chosen.
const LONGEST: usize = 600;

/// The report for a ticket.
fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = verdict(&mut page, digest)
        .and_then(|()| every_finding(&mut page, digest))
        .and_then(|()| not_tested(&mut page, digest.report))
        .and_then(|()| facts(&mut page, digest.report))
        .and_then(|()| worst_pairs(&mut page, digest))
        .and_then(|()| advice(&mut page, digest.report))
        .and_then(|()| reproduce(&mut page, digest));
    page
}

fn verdict(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    writeln!(page, "# peerscope: {}\n", digest.word())?;
    for sentence in digest.caveats.values() {
        writeln!(page, "**{}.**\n", text(sentence))?;
    }
    writeln!(page, "{}; exit code {}.", text(&digest.headline()), digest.report.verdict.exit_code)
}

fn every_finding(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let all = &digest.findings;
    if all.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## Findings\n")?;
    let shown = if all.len() <= SHOWN_FINDINGS + 1 { all.len() } else { SHOWN_FINDINGS };
    for (number, finding) in all[..shown].iter().enumerate() {
        one_finding(page, digest.report, number + 1, finding)?;
    }
    let mut rest: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &all[shown..] {
        *rest.entry(&finding.code).or_default() += 1;
    }
    if !rest.is_empty() {
        let codes: Vec<_> = rest.iter().map(|(code, number)| format!("{number} x {}", text(code))).collect();
        writeln!(page, "\nAnd {} more: {}.", all.len() - shown, codes.join(", "))?;
    }
    Ok(())
}

fn one_finding(page: &mut String, report: &Report, number: usize, finding: &Finding) -> std::fmt::Result {
    let sentence = text(&sentence(finding, &report.snapshot));
    writeln!(page, "{number}. **{} {}**: {sentence}", finding.severity, text(&finding.code))?;
    if !finding.evidence.is_empty() {
        writeln!(page, "   - seen: {}", text(&evidence::text(finding).replace(GLUE, " ")))?;
    }
    if !finding.next_step.is_empty() {
        writeln!(page, "   - do: {}", text(&finding.next_step))?;
    }
    Ok(())
}

/// What could not be used, read or measured, and why.
fn not_tested(page: &mut String, report: &Report) -> std::fmt::Result {
    let lines = gaps::list(report, false);
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## Not tested, or not as planned\n")?;
    for (what, why) in lines.iter().take(SHOWN_LINES) {
        writeln!(page, "- {}: {}", text(what), text(why))?;
    }
    if lines.len() > SHOWN_LINES {
        writeln!(page, "- and {} more", lines.len() - SHOWN_LINES)?;
    }
    Ok(())
}

fn facts(page: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(page, "\n## Machine\n\n| what | is |\n|---|---|")?;
    writeln!(page, "| host | {} |", cell(&machine::host_text(report)))?;
    writeln!(page, "| software | {} |", cell(&machine::software(&report.snapshot.host)))?;
    let groups = machine::gpu_groups(report);
    if groups.is_empty() {
        writeln!(page, "| GPUs | none found |")?;
    }
    for (indices, facts) in groups.iter().take(SHOWN_LINES) {
        let number = if indices.len() > 1 { format!("{} x ", indices.len()) } else { String::new() };
        writeln!(page, "| GPU {} | {number}{} |", ranges(indices), cell(facts))?;
    }
    if groups.len() > SHOWN_LINES {
        writeln!(page, "| GPUs | {} more kinds |", groups.len() - SHOWN_LINES)?;
    }
    for (what, is) in report.measurements.as_ref().map(rows::measured).unwrap_or_default() {
        writeln!(page, "| {} | {} |", cell(&what), cell(&is))?;
    }
    Ok(())
}

/// The pairs with the least share of their theoretical rate.
fn worst_pairs(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let cells = digest.figures().filter_map(|cell| Some((cell, cell.percent?, cell.achieved_gbps?.0)));
    let mut cells: Vec<_> = cells.collect();
    cells.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    if cells.is_empty() {
        return Ok(());
    }
    let number = cells.len();
    writeln!(page, "\n## Pairs with the least of their theoretical bandwidth, of {}\n", count(number, "pair"))?;
    writeln!(
        page,
        "| pair | class | path | GB/s | % of theoretical | expected, GB/s | narrowest hop |\n|---|---|---|---|---|---|---|"
    )?;
    for (figure, share, achieved) in cells.iter().take(SHOWN_PAIRS) {
        let pair = figure.pair;
        let hop = digest.report.topology.route(pair).and_then(|route| route.bottleneck.as_deref()).unwrap_or("-");
        let (class, path, hop) = (digest.class(pair), figure.setup.path, cell(hop));
        let expected = Figures::of([*figure]).expected.map(|[low, high]| range(low, high, rate, " to "));
        let (expected, achieved, share) = (expected.unwrap_or_default(), rate(*achieved), percent(*share));
        writeln!(page, "| {pair} | {class} | {path} | {achieved} | {share} | {expected} | {hop} |")?;
    }
    Ok(())
}

/// What programs on this machine should do.
fn advice(page: &mut String, report: &Report) -> std::fmt::Result {
    if report.advice.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## For programs on this machine\n")?;
    for advice in report.advice.iter().take(SHOWN_LINES) {
        let calls: Vec<_> = advice.pytorch.iter().map(|call| code(call)).collect();
        let calls = if calls.is_empty() { String::new() } else { format!(" In PyTorch: {}.", calls.join("; ")) };
        writeln!(page, "- {}{calls}", text(&advice.sentence))?;
    }
    Ok(())
}

/// The options that chose what was tested and how it was judged.
fn reproduce(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let report = digest.report;
    let mut command = match &report.measurements {
        Some(measurements) => format!("peerscope check --profile {}", measurements.profile),
        None => "peerscope topo".to_owned(),
    };
    if digest.is(Caveat::Simulated) {
        let _ = write!(command, " --machine {}", word(&report.machine));
    }
    // A report of an earlier version has no request.
    let indices: Vec<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    if report.request.gpus.is_empty() && indices.iter().zip(0..).any(|(&index, place)| index != place) {
        let indices: Vec<_> = indices.iter().map(ToString::to_string).collect();
        let _ = write!(command, " --gpus {}", indices.join(","));
    }
    for [option, value] in partial::every_option(&report.request) {
        let _ = write!(command, " {option} {}", word(&value));
    }
    writeln!(page, "\n## See it again\n\n{}\n", code(&command))?;
    let (name, version) = (text(&report.tool.name), text(&report.tool.version));
    writeln!(
        page,
        "{name} {version}, run of {}. `peerscope explain CODE` explains a finding.",
        text(&report.started_at)
    )
}

/// Text that cannot be taken for Markdown: nothing in it is bold, a link, HTML, a mention or a
/// reference. `@` and `#` are put in code, where forges look for neither.
pub(crate) fn text(text: &str) -> String {
    let cleaned = clean(text);
    let short: String = cleaned.chars().take(LONGEST).collect();
    let mut escaped = String::with_capacity(short.len() + 8);
    let mut rest = short.as_str();
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '@' | '#' => {
                let _ = write!(escaped, "`{c}`");
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '~' | '&' | '$' | '!' => {
                escaped.extend(['\\', c]);
            }
            // Bare links are found by these.
            ':' if after.starts_with("//") => escaped.push_str("\\:"),
            '.' if escaped.to_ascii_lowercase().ends_with("www") => escaped.push_str("\\."),
            _ => escaped.push(c),
        }
        rest = after;
    }
    if short.len() < cleaned.len() {
        escaped.push_str("...");
    }
    escaped
}

/// The same for a cell of a table, which a bar would end.
pub(crate) fn cell(words: &str) -> String {
    text(words).replace('|', "\\|")
}

/// A value as one word of a shell.
fn word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:+=@%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// A command as inline code, for any content.
fn code(command: &str) -> String {
    format!("`{}`", clean(command).replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use comrak::nodes::NodeValue;
    use comrak::{Arena, Options, parse_document};

    use super::*;
    use crate::model::request::{Request, Silenced};
    use crate::report::sample;

    fn written(report: &Report) -> String {
        render(&Digest::of(report), &Style::PLAIN)
    }

    fn samples() -> Vec<Report> {
        vec![
            sample::healthy(2),
            sample::healthy(16),
            sample::pcie_box(),
            sample::unknown(0),
            sample::unknown(3),
            sample::nothing_measured(),
            sample::hostile(),
        ]
    }

    /// Checks that a page holds nothing that acts, by GitHub's dialect; gives the text of its
    /// tables' rows.
    fn assert_inert(page: &str) -> Vec<String> {
        let arena = Arena::new();
        let mut options = Options::default();
        options.extension.table = true;
        options.extension.autolink = true;
        options.extension.strikethrough = true;
        options.extension.footnotes = true;
        let mut rows = Vec::new();
        for node in parse_document(&arena, page, &options).descendants() {
            match &node.data().value {
                NodeValue::Link(_) | NodeValue::Image(_) => panic!("a link: {page}"),
                NodeValue::HtmlBlock(_) | NodeValue::HtmlInline(_) => panic!("HTML: {page}"),
                NodeValue::FootnoteReference(_) | NodeValue::Strikethrough => panic!("{page}"),
                NodeValue::Text(text) => {
                    assert!(!text.contains('@') && !text.contains('#'), "a mention: {text} in {page}");
                }
                NodeValue::TableRow(_) => {
                    let words = node.descendants().filter_map(|node| match &node.data().value {
                        NodeValue::Text(text) => Some(text.to_string()),
                        NodeValue::Code(code) => Some(code.literal.clone()),
                        _ => None,
                    });
                    rows.push(words.collect());
                }
                _ => {}
            }
        }
        rows
    }

    #[test]
    fn it_is_markdown_and_short() {
        for report in samples() {
            let page = written(&report);
            let rows = assert_inert(&page);
            assert!(rows.len() >= 3, "{page}");
            assert!(page.starts_with("# peerscope: ") && page.ends_with('\n'), "{page}");
            assert!(page.lines().count() <= 90 && page.len() < 20_000, "{} lines: {page}", page.lines().count());
            assert!(!page.contains("\n\n\n"), "{page}");
        }
    }

    #[test]
    fn a_machine_cannot_write_into_the_ticket() {
        for evil in [
            "<img src=x onerror=alert(1)>",
            "[click](https://evil.example)",
            "![x](https://evil.example/x.png)",
            "https://evil.example www.evil.example mail@evil.example",
            "WWW.evil.example HTTPS://evil.example ftp://evil.example",
            "@team #12 ~~gone~~ **bold** `code` $x$ &lt;b&gt;",
            "a | b | c \\| d",
            "a |\n|---|---|\n| b |",
            "x\n\n# heading\n\n| a |\n|---|",
            "trailing \\",
            "[^1] [a]: b",
        ] {
            let mut report = sample::pcie_box();
            report.machine = evil.into();
            report.started_at = evil.into();
            report.request = Request {
                gpus: vec![evil.into()],
                gpus_left_out: 1,
                only: vec![evil.into()],
                skip: vec![evil.into()],
                probes_left_out: vec![evil.into()],
                config: Some(evil.into()),
                silenced: vec![Silenced { code: evil.to_owned().into(), severity: None }],
                ..Request::default()
            };
            report.snapshot.host.hostname = crate::model::reading::Reading::Known(evil.into());
            report.snapshot.problems.push(evil.into());
            for gpu in &mut report.snapshot.gpus {
                gpu.name = crate::model::reading::Reading::Known(evil.into());
            }
            for route in &mut report.topology.pairs {
                route.bottleneck = Some(evil.into());
            }
            for finding in &mut report.findings {
                finding.message = evil.into();
                finding.code = evil.to_owned().into();
                finding.next_step = evil.into();
                finding.evidence.add(evil, vec![evil.to_owned()]);
            }
            for advice in &mut report.advice {
                (advice.sentence, advice.pytorch) = (evil.into(), vec![evil.into()]);
            }
            let page = written(&report);
            let rows = assert_inert(&page);
            // What a bar cut off would be dropped from its row without a word.
            let shown = clean(evil).into_owned();
            let whole = rows.iter().filter(|row| row.contains(&shown)).count();
            assert!(whole > SHOWN_PAIRS, "host, GPUs and hops show {whole} times {shown:?}: {rows:#?}");
            assert_eq!(page.lines().filter(|line| line.starts_with('#')).count(), 7, "{page}");
        }
    }

    #[test]
    fn it_says_what_is_wrong_where_and_how_to_see_it_again() {
        let page = written(&sample::pcie_box());
        for part in [
            "# peerscope: FAULTY\n\n**SIMULATED machine demo: ",
            "4 errors, 1 warning; ",
            "   - seen: ",
            "   - do: ",
            "(0000:44:00.0, slot 7)",
            "| host | simulated, ",
            "| GPU ",
            "% of theoretical",
            "--machine demo`",
            "peerscope 0.0.0, run of 2026-",
        ] {
            assert!(page.contains(part), "no {part}: {page}");
        }
        let mut some = sample::healthy(8);
        some.snapshot.gpus.retain(|gpu| gpu.index % 2 == 1);
        assert!(written(&some).contains(" --gpus 1,3,5,7`"), "{}", written(&some));
    }

    #[test]
    fn many_findings_are_counted_and_none_is_lost() {
        let mut report = sample::pcie_box();
        let one = report.findings[0].clone();
        report.findings = vec![one; 40];
        let page = written(&report);
        assert!(page.contains(&format!("And {} more: {} x ", 40 - SHOWN_FINDINGS, 40 - SHOWN_FINDINGS)), "{page}");
    }
}
