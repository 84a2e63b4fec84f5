//! The report as Markdown, for a ticket: what is wrong, on which machine, and how to reproduce it.
//!
//! It is short on purpose: the JSON report contains everything. Details for later are folded. Text that came from a
//! machine is escaped, so that it makes no link, no HTML, no mention, and breaks no table.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::digest::{Caveat, Digest};
use super::escape::clean;
use super::figures::{count, ranges};
use super::findings::{Alike, by_rule, parts};
use super::format::{Format, Style};
use super::page::GLUE;
use super::pair_figures::Figures;
use super::{evidence, gaps, machine, partial, rows};
use model::finding::{Finding, Severity, Subject};
use model::measurement::PeerBandwidth;
use model::report::Report;
use model::rounding::{percent, range, rate};

pub(super) const FORMAT: Format = Format::new("markdown", &["md"], "For a ticket", render);

/// Most findings that are shown in full; the rest is counted by code.
const SHOWN_FINDINGS: usize = 8;

/// Most pairs that are shown.
const SHOWN_PAIRS: usize = 5;

/// Most lines of each other list.
const SHOWN_LINES: usize = 16;

/// Most characters of one item. A finding's sentence is shorter by far; chosen.
const LONGEST: usize = 600;

fn render(digest: &Digest<'_>, _: &Style) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = verdict(&mut page, digest)
        .and_then(|()| summary(&mut page, digest))
        .and_then(|()| every_finding(&mut page, digest))
        .and_then(|()| not_tested(&mut page, digest.report))
        .and_then(|()| {
            folded(&mut page, "Machine and what was measured", |page| facts(page, digest.report))
        })
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

/// Writes content folded below a title that does not come from the machine. Forges know these two HTML elements.
fn folded(
    page: &mut String,
    title: &str,
    inside: impl FnOnce(&mut String) -> std::fmt::Result,
) -> std::fmt::Result {
    writeln!(page, "\n<details>\n<summary>{title}</summary>\n")?;
    inside(page)?;
    writeln!(page, "\n</details>")
}

/// Writes a row for each kind of finding.
fn summary(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let all = by_rule(digest.report);
    if all.is_empty() {
        return Ok(());
    }
    writeln!(page, "\n| severity | finding | about |\n|---|---|---|")?;
    for Alike { severity, code, findings } in all.iter().take(SHOWN_LINES) {
        let about: Vec<String> =
            findings.iter().take(SHOWN_PAIRS).map(|finding| subject(finding)).collect();
        let more = findings.len().saturating_sub(SHOWN_PAIRS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(page, "| {severity} | {} | {}{more} |", cell(code), cell(&about.join(", ")))?;
    }
    if all.len() > SHOWN_LINES {
        writeln!(page, "| | {} more kinds | |", all.len() - SHOWN_LINES)?;
    }
    Ok(())
}

/// Returns the subject of a finding; for a link, its location.
fn subject(finding: &Finding) -> String {
    match finding.subject {
        Subject::PcieLink { .. } if !finding.location.is_empty() => finding.location.clone(),
        _ => finding.subject.to_string(),
    }
}

/// Writes warnings and errors in full, then information, folded.
fn every_finding(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let (notes, worse): (Vec<&Finding>, Vec<&Finding>) =
        digest.findings.iter().partition(|finding| finding.severity == Severity::Info);
    if !worse.is_empty() {
        writeln!(page, "\n## Findings\n")?;
        these(page, digest, &worse)?;
    }
    match notes.len() {
        0 => Ok(()),
        number => folded(page, &format!("Good to know: {}", count(number, "note")), |page| {
            these(page, digest, &notes)
        }),
    }
}

fn these(page: &mut String, digest: &Digest<'_>, all: &[&Finding]) -> std::fmt::Result {
    let shown = if all.len() <= SHOWN_FINDINGS + 1 { all.len() } else { SHOWN_FINDINGS };
    for (number, finding) in all[..shown].iter().enumerate() {
        one_finding(page, digest.report, number + 1, finding)?;
    }
    let mut rest: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &all[shown..] {
        *rest.entry(&finding.code).or_default() += 1;
    }
    if !rest.is_empty() {
        let codes: Vec<_> =
            rest.iter().map(|(code, number)| format!("{number} x {}", text(code))).collect();
        writeln!(page, "\nAnd {} more: {}.", all.len() - shown, codes.join(", "))?;
    }
    Ok(())
}

/// Writes a finding, its next step, the part it is about, and the suspects as a checklist.
fn one_finding(
    page: &mut String,
    report: &Report,
    number: usize,
    finding: &Finding,
) -> std::fmt::Result {
    let sentence = text(&finding.message);
    writeln!(page, "{number}. **{} {}**: {sentence}", finding.severity, text(&finding.code))?;
    for (number, stage) in finding.stages().iter().enumerate() {
        let lead = if number == 0 { "do: " } else { "" };
        writeln!(page, "   - {lead}{}", text(stage))?;
    }
    for part in parts(finding, &report.snapshot) {
        writeln!(page, "   - part: {}", text(&part))?;
    }
    let seen = evidence::text(finding).replace(GLUE, " ");
    if !seen.is_empty() {
        writeln!(page, "   - seen: {}", text(&seen))?;
    }
    for suspect in &finding.suspects {
        writeln!(
            page,
            "   - [ ] suspect: {}. Test: {}",
            text(&suspect.cause),
            text(&suspect.test)
        )?;
    }
    Ok(())
}

/// Lists everything that could not be used, read or measured, with the reasons.
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
    writeln!(page, "| what | is |\n|---|---|")?;
    writeln!(page, "| host | {} |", cell(&machine::host_text(report)))?;
    writeln!(page, "| software | {} |", cell(&machine::software(report)))?;
    let groups = machine::gpu_groups(report);
    if groups.is_empty() {
        writeln!(page, "| GPUs | none found |")?;
    }
    for (indices, facts) in groups.iter().take(SHOWN_LINES) {
        let number =
            if indices.len() > 1 { format!("{} x ", indices.len()) } else { String::new() };
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

/// Writes the pairs with the lowest share of their theoretical rate.
fn worst_pairs(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let cells =
        digest.figures().filter_map(|cell| Some((cell, cell.percent?, cell.achieved_gbps?.0)));
    let mut cells: Vec<_> = cells.collect();
    cells.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    if cells.is_empty() {
        return Ok(());
    }
    let title = format!(
        "Pairs with the least of their theoretical bandwidth, of {}",
        count(cells.len(), "pair")
    );
    folded(page, &title, |page| pairs_table(page, digest, &cells))
}

fn pairs_table(
    page: &mut String,
    digest: &Digest<'_>,
    cells: &[(&PeerBandwidth, f64, f64)],
) -> std::fmt::Result {
    writeln!(
        page,
        "| pair | class | path | GB/s | % of theoretical | expected, GB/s | narrowest hop |\n|---|---|---|---|---|---|---|"
    )?;
    for (figure, share, achieved) in cells.iter().take(SHOWN_PAIRS) {
        let pair = figure.pair;
        let hop = digest
            .report
            .topology
            .route(pair)
            .and_then(|route| route.bottleneck.as_deref())
            .unwrap_or("-");
        let (class, path, hop) = (digest.class(pair), figure.setup.path, cell(hop));
        let expected =
            Figures::of([*figure]).expected.map(|[low, high]| range(low, high, rate, " to "));
        let (expected, achieved, share) =
            (expected.unwrap_or_default(), rate(*achieved), percent(*share));
        writeln!(
            page,
            "| {pair} | {class} | {path} | {achieved} | {share} | {expected} | {hop} |"
        )?;
    }
    Ok(())
}

/// Writes the advice for programs on this machine.
fn advice(page: &mut String, report: &Report) -> std::fmt::Result {
    if report.advice.is_empty() {
        return Ok(());
    }
    folded(page, "For programs on this machine", |page| {
        report.advice.iter().take(SHOWN_LINES).try_for_each(|advice| {
            let calls: Vec<_> = advice.pytorch.iter().map(|call| code(call)).collect();
            let calls = if calls.is_empty() {
                String::new()
            } else {
                format!(" In PyTorch: {}.", calls.join("; "))
            };
            writeln!(page, "- {}{calls}", text(&advice.sentence))
        })
    })
}

/// Writes the options that chose what was tested and how it was judged.
fn reproduce(page: &mut String, digest: &Digest<'_>) -> std::fmt::Result {
    let report = digest.report;
    let mut command = match &report.measurements {
        Some(measurements) => format!("peerscope check --profile {}", measurements.profile),
        None => "peerscope topo".to_owned(),
    };
    if digest.is(Caveat::Simulated) {
        let _ = write!(command, " --machine {}", word(&report.machine));
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

/// Escapes text so that nothing in it is Markdown: bold, a link, HTML, a mention or a reference. `@` and `#` become
/// code, where forges look for neither mentions nor references.
pub fn text(text: &str) -> String {
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
            // Forges find bare links by these.
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

/// Escapes text for a table cell, which a bar would end.
pub fn cell(words: &str) -> String {
    text(words).replace('|', "\\|")
}

/// Returns a value as one word of a shell.
fn word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:+=@%".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// Returns a command as inline code, for any content.
fn code(command: &str) -> String {
    format!("`{}`", clean(command).replace('`', "'"))
}

#[cfg(test)]
mod tests;
