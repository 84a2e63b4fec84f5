//! Findings as cards: what is wrong, what to do, the remaining causes with a test for each, and the evidence.

use maud::{Markup, html};

use super::super::digest::Digest;
use super::super::escape::clean;
use super::super::evidence;
use super::super::findings::{is_usual, parts};
use super::blocks::NEW_LINE;
use model::finding::{Finding, RuleId, Severity};
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
    let codes: Vec<&str> = usual.iter().map(|finding| &*finding.code).collect();
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
    let mut groups: Vec<((Severity, &RuleId), Vec<&Finding>)> = Vec::new();
    for &finding in findings {
        let key = (finding.severity, &finding.code);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, alike)) => alike.push(finding),
            None => groups.push((key, vec![finding])),
        }
    }
    html! {
        @if !groups.is_empty() {
            (NEW_LINE) section .findings aria-label=(title) {
                h2 { (title) }
                @for (_, alike) in &groups {
                    @let (shown, rest) = alike.split_at(alike.len().min(SHOWN_PER_RULE));
                    @for finding in shown { (NEW_LINE) (card(finding, snapshot)) }
                    @if !rest.is_empty() { (more(rest)) }
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
    let title = html! {
        span .badge { span aria-hidden="true" { (sign) } " " (name) }
        " " (clean(&finding.message)) " " code { (clean(&finding.code)) }
    };
    html! {
        @if finding.severity == Severity::Info {
            details .finding.(class) { summary { (title) } (inside(finding, snapshot)) }
        } @else {
            article .finding.(class) { h3 { (title) } (inside(finding, snapshot)) }
        }
    }
}

fn inside(finding: &Finding, snapshot: &Snapshot) -> Markup {
    let seen = evidence::sentences(finding);
    html! {
            (next(finding))
            @if !finding.suspects.is_empty() { (suspects(finding)) }
            @if !finding.location.is_empty() && finding.location != finding.subject.to_string() {
                p .where { strong { "Where: " } (clean(&finding.location)) }
            }
            @for part in parts(finding, snapshot) { p .where { strong { "Part: " } (clean(&part)) } }
            @if !seen.is_empty() {
                details open[finding.severity > Severity::Info] {
                    summary { "What was seen" }
                    ul { @for sentence in seen { li { (clean(&sentence)) } } }
                }
            }
            (effects(finding))
    }
}

/// Renders the steps, a line for each stage.
fn next(finding: &Finding) -> Markup {
    let stages = finding.stages();
    html! {
        @if let Some((first, later)) = stages.split_first() {
            div .next {
                strong { "Next step: " } (clean(first))
                @if !later.is_empty() { ul { @for stage in later { li { (clean(stage)) } } } }
            }
        }
    }
}

/// Renders the possible causes as a checklist.
fn suspects(finding: &Finding) -> Markup {
    html! {
        p { strong { "Suspects, and the test for each:" } }
        ul .suspects {
            @for suspect in &finding.suspects {
                li { label { input type="checkbox"; span { strong { (clean(&suspect.cause)) } " · " (clean(&suspect.test)) } } }
            }
        }
    }
}

fn effects(finding: &Finding) -> Markup {
    let effects = evidence::effects(finding);
    html! {
        @if !effects.is_empty() {
            details {
                summary { "Explains " (super::super::figures::count(effects.len(), "other finding")) }
                ul { @for effect in effects { li { (clean(&effect.to_string())) } } }
            }
        }
    }
}

fn more(rest: &[&Finding]) -> Markup {
    let (class, ..) = word(rest[0].severity);
    html! {
        details .finding.(class) {
            summary { (rest.len()) " more like this " code { (clean(&rest[0].code)) } }
            ul { @for finding in rest { li { (clean(&finding.message)) } } }
        }
    }
}
