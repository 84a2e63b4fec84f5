//! Findings as cards: what is wrong, what to do, the remaining causes with a test for each, and the evidence.

use maud::{Markup, html};

use super::blocks::NEW_LINE;
use crate::declared::capital;
use crate::digest::Digest;
use crate::escape::clean;
use crate::evidence;
use crate::figures::{by_key, count};
use crate::findings::{is_usual, part};
use crate::page::GLUE;
use model::finding::{Finding, Severity};
use model::snapshot::Snapshot;

/// Most findings of one rule that have a card each; the others are listed.
const SHOWN_PER_RULE: usize = 4;

/// Renders warnings and errors, worst first.
pub(super) fn write(digest: &Digest<'_>) -> Markup {
    section("Findings", &of(digest, false), &digest.report.snapshot)
}

/// Renders the information, which needs no action. What nearly every healthy machine gets is one line that unfolds.
pub(super) fn notes(digest: &Digest<'_>) -> Markup {
    let snapshot = &digest.report.snapshot;
    let (usual, own): (Vec<_>, Vec<_>) =
        of(digest, true).into_iter().partition(|finding| is_usual(finding));
    let mut codes: Vec<&str> = usual.iter().map(|finding| &*finding.code).collect();
    codes.dedup();
    html! {
        (section("Notes", &own, snapshot))
        @if !usual.is_empty() {
            (NEW_LINE) details .usual {
                summary { "As most machines have: " (clean(&codes.join(", "))) }
                @for finding in &usual { (NEW_LINE) (card(finding, snapshot)) }
            }
        }
    }
}

fn of<'a>(digest: &Digest<'a>, information: bool) -> Vec<&'a Finding> {
    let findings = digest.findings.iter().copied();
    findings.filter(|finding| (finding.severity == Severity::Info) == information).collect()
}

/// Renders findings below a heading, in their order. Renders nothing if there are none.
pub(super) fn section(title: &str, findings: &[&Finding], snapshot: &Snapshot) -> Markup {
    let groups = by_key(findings.iter().map(|one| ((one.severity, &one.code), *one)));
    html! {
        @if !groups.is_empty() {
            (NEW_LINE) section .findings aria-label=(title) {
                h2 { (title) }
                div .cards {
                    @for ((severity, code), alike) in &groups {
                        @let (shown, rest) = alike.split_at(alike.len().min(SHOWN_PER_RULE));
                        @for finding in shown { (NEW_LINE) (card(finding, snapshot)) }
                        @if !rest.is_empty() {
                            details .finding.(word(*severity).0) {
                                summary { (rest.len()) " more like this " code { (clean(code)) } }
                                ul { @for finding in rest { li { (clean(&finding.message)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

const fn word(severity: Severity) -> (&'static str, &'static str, &'static str) {
    match severity {
        Severity::Error => ("error", "✖", "Error"),
        Severity::Warning => ("warning", "▲", "Warning"),
        Severity::Info => ("info", "ℹ", "Note"),
    }
}

/// Renders a card; information is folded to its sentence.
fn card(finding: &Finding, snapshot: &Snapshot) -> Markup {
    let (class, sign, name) = word(finding.severity);
    // A report from elsewhere may have any address.
    let url = Some(clean(&finding.help_url));
    let url = url.filter(|url| url.starts_with("https://") || !url.contains(':'));
    let title = html! {
        span .badge { span aria-hidden="true" { (sign) } " " (name) }
        " " (clean(finding.short())) " " a href=[url] { code { (clean(&finding.code)) } }
    };
    html! {
        @if finding.severity == Severity::Info {
            details .finding.(class) { summary { (title) } (inside(finding, snapshot)) }
        } @else {
            article .finding.(class) { h3 { (title) } (inside(finding, snapshot)) }
        }
    }
}

/// Renders what to do and the part; the causes, as a checklist, and the evidence unfold.
fn inside(finding: &Finding, snapshot: &Snapshot) -> Markup {
    let (seen, effects) = (evidence::sentences(finding), finding.evidence.effects());
    let (mut stages, part) = (finding.stages().into_iter(), part(finding, snapshot));
    let (first, later) = (stages.next(), stages.as_slice());
    let place = Some(&finding.location)
        .filter(|place| !place.is_empty() && **place != finding.subject.to_string());
    // The title has the short sentence. An item for the rest is always there, and not shown if empty: a `; ` in a name must
    // not change what the page consists of.
    let rest = finding.message.split_once("; ").map_or("", |(_, rest)| rest);
    html! {
        @if let Some(first) = first { p .next { strong { "Do: " } (clean(&first)) } }
        @if !part.is_empty() { p .where { (clean(&part)) } }
        details {
            summary { "What was seen" @if !later.is_empty() { ", and what to do next" } }
            ul {
                li { (clean(&capital(rest))) }
                @for text in place.into_iter().chain(&seen) { li { (clean(text)) } }
            }
            @if !later.is_empty() { ul .next { @for stage in later { li { (clean(stage)) } } } }
            ul .suspects {
                @for suspect in &finding.suspects {
                    li { label { input type="checkbox"; span { strong { (clean(&suspect.cause)) } " · " (clean(&suspect.test)) } } }
                }
            }
        }
        @if !effects.is_empty() {
            details {
            summary { "Explains " (count(effects.len(), "other finding")) }
                ul { @for effect in effects { li { (clean(&effect.to_string())) } } }
            }
        }
    }
}

/// Returns the verdict and the findings as plain text for a ticket: what is wrong, the part, what to do, what was seen.
pub(super) fn ticket(digest: &Digest<'_>) -> String {
    let report = digest.report;
    let mut lines = vec![format!("{}, {}", super::title(digest), report.started_at)];
    lines.extend(digest.caveats.values().cloned());
    lines.push(
        digest
            .of_facts()
            .unwrap_or_else(|| format!("{} {}", digest.conclusion().0, digest.headline())),
    );
    for finding in of(digest, false) {
        let (_, _, word) = word(finding.severity);
        lines.push(String::new());
        lines.push(format!("{word}: {} [{}]", finding.message, finding.code));
        let below = [
            ("part", part(finding, &report.snapshot)),
            ("do", finding.next_step.clone()),
            ("seen", evidence::text(finding)),
        ];
        let below = below.into_iter().filter(|(_, text)| !text.is_empty());
        lines.extend(below.map(|(label, text)| format!("{label}: {text}")));
    }
    let lines: Vec<_> = lines.iter().map(|line| clean(line)).collect();
    lines.join("\n").replace(GLUE, " ")
}
