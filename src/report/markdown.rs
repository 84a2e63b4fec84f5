//! The report as Markdown, for a ticket: what is wrong, on which machine, how to see it again.
//!
//! Short on purpose: the JSON report has everything. Text that came from a machine is escaped, so
//! that it makes no link, no HTML, no mention, and breaks no table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::brief::{self, count_of};
use super::escape::clean;
use super::figures::{count, ranges, rate};
use super::page::GLUE;
use super::{evidence, machine};
use crate::model::finding::{Finding, Severity};
use crate::model::report::{Conclusion, Report};

/// Findings that are shown in full; the rest is counted by code.
const SHOWN_FINDINGS: usize = 8;

/// Pairs that are shown.
const SHOWN_PAIRS: usize = 5;

/// Lines of the other lists that are shown.
const SHOWN_LINES: usize = 16;

/// Longest text of one item, in characters. A finding's sentence is shorter by far; chosen.
const LONGEST: usize = 600;

/// The report for a ticket.
pub fn render(report: &Report) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = verdict(&mut page, report)
        .and_then(|()| every_finding(&mut page, report))
        .and_then(|()| trouble(&mut page, report))
        .and_then(|()| facts(&mut page, report))
        .and_then(|()| worst_pairs(&mut page, report))
        .and_then(|()| reproduce(&mut page, report));
    page
}

fn verdict(page: &mut String, report: &Report) -> std::fmt::Result {
    let word = match report.verdict.verdict {
        Conclusion::Healthy => "healthy",
        Conclusion::Faulty => "FAULTY",
        Conclusion::Inconclusive => "inconclusive",
    };
    writeln!(page, "# peerscope: {word}\n")?;
    if report.machine != "live" {
        let name = text(&report.machine);
        writeln!(page, "**SIMULATED machine {name}: no figure below comes from real hardware.**\n")?;
    }
    if report.measurements.as_ref().is_some_and(|measurements| measurements.interrupted) {
        writeln!(page, "**INTERRUPTED: this report is partial and holds what was measured until then.**\n")?;
    }
    let verdict = &report.verdict;
    let parts: Vec<_> = [(Severity::Error, "error"), (Severity::Warning, "warning")]
        .into_iter()
        .map(|(severity, name)| (count_of(report, severity), name))
        .filter(|&(number, _)| number > 0)
        .map(|(number, name)| count(number, name))
        .collect();
    let found = if parts.is_empty() { "no errors and no warnings".to_owned() } else { parts.join(", ") };
    let tested = match (&report.measurements, verdict.untested) {
        (None, _) => "facts alone, nothing was to be measured".to_owned(),
        (Some(_), 0) => format!("all {} measurements made", verdict.tested),
        (Some(_), untested) => format!("{} measurements made, {untested} missing", verdict.tested),
    };
    writeln!(page, "{found}; {tested}; exit code {}.", verdict.exit_code)
}

fn every_finding(page: &mut String, report: &Report) -> std::fmt::Result {
    let all = brief::worst_first(report);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## Findings\n")?;
    let shown = if all.len() <= SHOWN_FINDINGS + 1 { all.len() } else { SHOWN_FINDINGS };
    for (number, finding) in all[..shown].iter().enumerate() {
        one_finding(page, report, number + 1, finding)?;
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
    let sentence = text(&brief::sentence(report, finding));
    writeln!(page, "{number}. **{} {}**: {sentence}", finding.severity, text(&finding.code))?;
    if !finding.evidence.is_empty() {
        writeln!(page, "   - seen: {}", text(&evidence::text(finding).replace(GLUE, " ")))?;
    }
    if !finding.next_step.is_empty() {
        writeln!(page, "   - do: {}", text(&finding.next_step))?;
    }
    Ok(())
}

/// What could not be used or read at all.
fn trouble(page: &mut String, report: &Report) -> std::fmt::Result {
    let mut lines: Vec<String> = report.snapshot.problems.clone();
    if let Some(measurements) = &report.measurements {
        let driver = &measurements.driver;
        lines.extend(driver.failure.iter().map(|why| format!("CUDA could not be used: {why}")));
        lines.extend(driver.kernels_failure.iter().map(|why| format!("GPU kernels could not be loaded: {why}")));
        lines.extend(
            driver
                .devices
                .iter()
                .filter_map(|device| Some(format!("GPU {} not tested: {}", device.index, device.failure.as_ref()?))),
        );
        lines.extend(measurements.problems.iter().cloned());
    }
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n## Not tested, or not as planned\n")?;
    for line in lines.iter().take(SHOWN_LINES) {
        writeln!(page, "- {}", text(line))?;
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
    Ok(())
}

/// The pairs that reach the least of what they could, by their direct figure where there is one.
fn worst_pairs(page: &mut String, report: &Report) -> std::fmt::Result {
    let pairs = brief::reference_by_pair(report);
    let mut cells: Vec<_> = pairs.into_values().filter(|figure| figure.percent.is_some()).collect();
    cells.sort_by(|one, other| one.percent.partial_cmp(&other.percent).unwrap_or(std::cmp::Ordering::Equal));
    if cells.is_empty() {
        return Ok(());
    }
    let number = cells.len();
    writeln!(page, "\n## Pairs with the least of their theoretical bandwidth, of {}\n", count(number, "pair"))?;
    writeln!(page, "| pair | class | path | GB/s | % of theoretical | narrowest hop |\n|---|---|---|---|---|---|")?;
    for figure in cells.iter().take(SHOWN_PAIRS) {
        let achieved = figure.achieved_gbps.map_or_else(|| "-".to_owned(), |achieved| rate(achieved.0));
        let percent = figure.percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}"));
        let hop = report.topology.route(figure.pair).and_then(|route| route.bottleneck.as_deref()).unwrap_or("-");
        let (pair, class) = (figure.pair, brief::class(report, figure.pair));
        writeln!(page, "| {pair} | {class} | {} | {achieved} | {percent} | {} |", figure.setup.path, cell(hop))?;
    }
    Ok(())
}

/// The options that a report tells; it does not keep its command line.
fn reproduce(page: &mut String, report: &Report) -> std::fmt::Result {
    let mut command = match &report.measurements {
        Some(measurements) => format!("peerscope check --profile {}", measurements.profile),
        None => "peerscope topo".to_owned(),
    };
    if report.machine != "live" {
        let _ = write!(command, " --machine {}", report.machine);
    }
    let indices: Vec<u32> = report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
    if indices.iter().zip(0..).any(|(&index, place)| index != place) {
        let indices: Vec<_> = indices.iter().map(ToString::to_string).collect();
        let _ = write!(command, " --gpus {}", indices.join(","));
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
fn text(text: &str) -> String {
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
fn cell(words: &str) -> String {
    text(words).replace('|', "\\|")
}

/// A command as inline code, whatever it holds.
fn code(command: &str) -> String {
    format!("`{}`", clean(command).replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use comrak::nodes::NodeValue;
    use comrak::{Arena, Options, parse_document};

    use super::*;
    use crate::report::sample;

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

    /// Checks that a page holds nothing that acts, as GitHub's dialect has it; gives the text of its
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
            let page = render(&report);
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
            let page = render(&report);
            let rows = assert_inert(&page);
            // What a bar cut off would be dropped from its row without a word.
            let shown = clean(evil).into_owned();
            let whole = rows.iter().filter(|row| row.contains(&shown)).count();
            assert!(whole > SHOWN_PAIRS, "host, GPUs and hops show {whole} times {shown:?}: {rows:#?}");
            assert_eq!(page.lines().filter(|line| line.starts_with('#')).count(), 6, "{page}");
        }
    }

    #[test]
    fn it_says_what_is_wrong_where_and_how_to_see_it_again() {
        let page = render(&sample::pcie_box());
        for part in [
            "# peerscope: FAULTY\n\n**SIMULATED machine demo: ",
            "3 errors, 1 warning; ",
            "   - seen: ",
            "   - do: ",
            "(0000:44:00.0, slot 7)",
            "| host | gpu-node-17, ",
            "| GPU ",
            "% of theoretical",
            "--machine demo`",
            "peerscope 0.0.0, run of 2026-",
        ] {
            assert!(page.contains(part), "no {part}: {page}");
        }
        let mut some = sample::healthy(8);
        some.snapshot.gpus.retain(|gpu| gpu.index % 2 == 1);
        assert!(render(&some).contains(" --gpus 1,3,5,7`"), "{}", render(&some));
    }

    #[test]
    fn many_findings_are_counted_and_none_is_lost() {
        let mut report = sample::pcie_box();
        let one = report.findings[0].clone();
        report.findings = vec![one; 40];
        let page = render(&report);
        assert!(page.contains(&format!("And {} more: {} x ", 40 - SHOWN_FINDINGS, 40 - SHOWN_FINDINGS)), "{page}");
    }
}
